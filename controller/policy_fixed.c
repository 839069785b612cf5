/* Policy fixed: one plan, always, but for a warm-up of its ratio. */
#include <string.h>

#include "base/base.h"
#include "controller/loop.h"
#include "kernels/codec.h"
#include "kernels/decorate.h"

/* As published: four epochs, each keeping a quarter of what the one before it kept. */
static const unsigned warm_stages = 4;
static const double warm_first = 0.25;
/* What is directed when a step has been seen is in force two steps after it: it rides on the
 * exchange of the next. */
static const uint64_t ahead = 2;

double weir_policy_warm_ratio(double cr, uint64_t step, uint64_t warmup_steps) {
  return weir_warmup_ratio(cr, step, warmup_steps, warm_stages, warm_first);
}

weir_status weir_policy_check_warmup(const char *policy) {
  weir_plan plan;
  const weir_status status = weir_policy_first_plan(policy, NULL, &plan);
  if (status != WEIR_OK) return status;
  const weir_codec *codec = weir_codec_find(plan.codec);
  if (strncmp(policy, weir_policy_fixed.name, strlen(weir_policy_fixed.name)) != 0 ||
      (codec->select == NULL && codec->draw == NULL))
    return weir_fail(
        WEIR_E_INVALID,
        "a warm-up does not go with policy %s; it takes fixed:CODEC:CR:COLLECTIVE with a "
        "codec that selects, such as dgc or topk",
        policy);
  return WEIR_OK;
}

void weir_policy_warm_start(weir_loop *loop, uint64_t step) {
  weir_plan plan = loop->current;
  loop->current.cr = weir_policy_warm_ratio(loop->warm_cr, step, loop->warmup_steps);
  plan.cr = weir_policy_warm_ratio(loop->warm_cr, step + 1, loop->warmup_steps);
  if (plan.cr != loop->current.cr) weir_loop_direct(loop, WEIR_ACTION_SWITCH, &plan);
}

/* What the stage is expected to cost; it begins whether that is known or not. */
weir_status weir_loop_begin_stage(weir_loop *loop, const weir_observation *seen,
                                  const weir_plan *plan) {
  weir_decision decision;
  weir_status status = WEIR_OK;
  loop->has_directive = false; /* a lost one that is repeated: it is of the stage before */
  loop->current = *plan;
  if (weir_network_known(&seen->network, loop->workers))
    status = weir_loop_decide(loop, seen, WEIR_TRIGGER_STAGE, &decision);
  if (!loop->has_directive) weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current);
  return status;
}

/* One plan for ever, but for its algorithm where the policy leaves that open.  The journal gets a
 * line all the same: what it is expected to cost. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  weir_decision decision;
  const double cr = weir_policy_warm_ratio(loop->warm_cr, seen->step + ahead, loop->warmup_steps);
  weir_plan plan = loop->current;
  plan.cr = cr;
  if (cr != loop->current.cr) return weir_loop_begin_stage(loop, seen, &plan);
  const uint32_t trigger = weir_loop_open_trigger(loop, seen);
  return trigger == WEIR_TRIGGER_NONE ? WEIR_OK : weir_loop_decide(loop, seen, trigger, &decision);
}

const weir_policy weir_policy_fixed = {
    .name = "fixed",
    .description = "fixed:CODEC:CR:COLLECTIVE[:WIRE], one plan throughout",
    .id = WEIR_POLICY_FIXED,
    .takes_plan = true,
    .without_feedback = true,
    .consider = consider,
};
