/* Buckets of the plan that is decided, and what buckets would save under plans of more bits.  Plans
 * are compared by what they take for a gradient as a whole; but what is exchanged while the
 * backward pass runs adds nothing to a step, and then few bits would be sent for nothing. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "controller/loop.h"

static bool may_divide(const weir_loop *loop, const weir_decision_input *in) {
  return loop->overlap && loop->has_gaps && loop->layout.tensors > 1 && !loop->fuse_failed &&
         !loop->rounds.undivided && in->trigger != WEIR_TRIGGER_FALLBACK;
}

/* A plan without buckets does as well where they cannot be planned, as of very many tensors. */
static void stay_undivided(weir_loop *loop, weir_fused *fused) {
  weir_log(WEIR_LOG_WARN, "no buckets are planned: %s", weir_last_error());
  *fused = (weir_fused){0};
  loop->overlap = false;
}

static weir_fused fuse(weir_loop *loop, const weir_decision_input *in, const weir_plan *plan) {
  weir_fused fused = {0};
  if (!may_divide(loop, in) || weir_plan_sparse(plan)) return fused;
  const weir_status status =
      weir_fuse(in, plan, &loop->layout, loop->gap_s, &loop->learnt.bucket_costs,
                weir_constants.hysteresis, loop->next_table, &fused);
  if (status != WEIR_OK) stay_undivided(loop, &fused);
  return fused;
}

/* The backward pass, as far as gradients come during it. */
static double backward_s(const weir_loop *loop) {
  double seconds = 0.0;
  for (size_t t = 0; t < loop->layout.tensors; t++) seconds += loop->gap_s[t];
  return seconds;
}

/* --- before the decision ---------------------------------------------------------------------- */

static double exchanged_s(const weir_candidate *c) { return c->compress_s + c->comm_s; }

/* What a plan's buckets save.  They may have any collective of its codec, so that others of these
 * are taken to save as much: they compare as they do as a whole. */
static double look_at(weir_loop *loop, const weir_plan *plan, double most_s,
                      weir_decision_input *in) {
  const weir_fused fused = fuse(loop, in, plan);
  const double saved_s = fmin(most_s, fmax(0.0, fused.whole_s - fused.step_s));
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_plan *other = &weir_arm_at(a)->plan;
    if (other->codec == plan->codec && other->cr == plan->cr) in->saved[a] = saved_s;
  }
  return saved_s;
}

/* Progress per second with what buckets save, of which no more is known than that they hide nothing
 * beyond the backward pass. */
static double at_best(const weir_decision_input *in, const weir_candidate *c, double hidden_s) {
  const double whole_s = weir_step_seconds(in, c);
  return c->progress_per_s * whole_s / (whole_s - fmin(hidden_s, exchanged_s(c)));
}

/* The fastest of those of most bits among those with fewer than so many. */
static const weir_candidate *next_below(const weir_decision *d, double bits) {
  const weir_candidate *found = NULL;
  for (size_t i = 0; i < d->candidates; i++) {
    const weir_candidate *c = &d->candidate[i];
    const double of_c = weir_plan_bits(&c->plan);
    const double of_found = found != NULL ? weir_plan_bits(&found->plan) : 0.0;
    if (c->progress_per_s > 0.0 && of_c < bits &&
        (of_c > of_found ||
         (of_c == of_found && found != NULL && c->progress_per_s > found->progress_per_s)))
      found = c;
  }
  return found;
}

weir_status weir_loop_look_ahead(weir_loop *loop, weir_decision_input *in, weir_decision *d) {
  weir_candidate chosen = d->choice, other;
  if (weir_trigger_network(in->trigger)) loop->fuse_failed = false;
  if (in->risk == WEIR_RISK_BOLD || !may_divide(loop, in)) return WEIR_OK;
  const double fewest = weir_plan_bits(&chosen.plan), hidden_s = backward_s(loop);
  const double saved_s = look_at(loop, &chosen.plan, INFINITY, in);
  /* A plan in force that has fewer bits is not to stay because buckets would hide more of it. */
  if (in->current.codec != chosen.plan.codec || in->current.cr != chosen.plan.cr)
    (void)look_at(loop, &in->current, weir_plan_bits(&in->current) > fewest ? INFINITY : saved_s,
                  in);
  weir_evaluate(in, &chosen.plan, &chosen);
  const double enough = (1.0 - weir_constants.spare) * chosen.progress_per_s;
  const weir_candidate *c = next_below(d, INFINITY);
  for (; c != NULL && weir_plan_bits(&c->plan) > fewest;
       c = next_below(d, weir_plan_bits(&c->plan))) {
    if (at_best(in, c, hidden_s) < enough) continue;
    (void)look_at(loop, &c->plan, INFINITY, in);
    weir_evaluate(in, &c->plan, &other);
    if (other.progress_per_s >= enough) break;
  }
  return weir_decide(in, d);
}

/* --- after it --------------------------------------------------------------------------------- */

weir_status weir_loop_divide(weir_loop *loop, const weir_decision_input *in,
                             weir_decision *decision) {
  const bool changed = weir_trigger_network(in->trigger);
  weir_plan plan = decision->choice.plan;
  decision->buckets = loop->current.buckets;
  if (!decision->switched && !changed && loop->current.buckets > 0 && !loop->fuse_failed &&
      !loop->rounds.undivided)
    return WEIR_OK;
  const weir_fused fused = fuse(loop, in, &plan);
  decision->buckets = fused.count;
  if (fused.count > 0) {
    const double rest = fmax(0.0, in->compute - backward_s(loop));
    decision->predicted_s = rest + fused.step_s;
    loop->undivided_s = rest + fused.whole_s;
    plan.buckets = (uint32_t)fused.count;
    plan.layout = weir_buckets_name(loop->next_table, fused.count);
  }
  if (!decision->switched && plan.layout == loop->current.layout) return WEIR_OK;
  memcpy(loop->table, loop->next_table, fused.count * sizeof *loop->table);
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &plan);
  return WEIR_OK;
}
