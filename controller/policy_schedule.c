/* Policy schedule: plans one after the other, at epochs or steps that are given: as MSTopK with
 * HiTopKComm in the first 13 epochs and a dense torus in the other 15 (S. Shi et al., Towards
 * Scalable Distributed Training of Deep Learning on Public Cloud Clusters, 2021, section 5.6). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/loop.h"

/* What is directed when a step has been seen is in force two steps after it. */
static const uint64_t ahead = 2;

static const char epoch_key[] = "epoch=", step_key[] = "step=";

/* --- text ------------------------------------------------------------------------------------- */

/* "epoch=N:" or "step=N:" in front of a plan, which *text then points at. */
static weir_status parse_start(const char **text, weir_stages *s) {
  const bool by_step = strncmp(*text, step_key, strlen(step_key)) == 0;
  if (!by_step && strncmp(*text, epoch_key, strlen(epoch_key)) != 0)
    return weir_fail(WEIR_E_INVALID,
                     "stage %zu of a schedule is '%s'; expected epoch=N:PLAN or "
                     "step=N:PLAN",
                     s->count + 1, *text);
  if (s->count > 1 && by_step != s->by_step)
    return weir_fail(WEIR_E_INVALID, "a schedule goes by epochs or by steps, not by both");
  const char *const digits = *text + strlen(by_step ? step_key : epoch_key);
  char *end = NULL;
  errno = 0;
  const unsigned long long from = strtoull(digits, &end, 10);
  if (*digits < '0' || *digits > '9' || errno != 0 || *end != ':')
    return weir_fail(WEIR_E_INVALID, "stage %zu of a schedule begins at '%.20s'; expected a number",
                     s->count + 1, digits);
  if (from <= s->stage[s->count - 1].from)
    return weir_fail(WEIR_E_INVALID,
                     "stage %zu of a schedule begins at %llu; expected more than "
                     "the %llu of the one before",
                     s->count + 1, from, (unsigned long long)s->stage[s->count - 1].from);
  s->by_step = by_step;
  s->stage[s->count].from = from;
  *text = end + 1;
  return WEIR_OK;
}

static weir_status parse_stage(const char *text, weir_stages *s) {
  if (s->count == WEIR_STAGES_MAX)
    return weir_fail(WEIR_E_INVALID, "a schedule has at most %d stages", WEIR_STAGES_MAX);
  weir_status status = s->count > 0 ? parse_start(&text, s) : WEIR_OK;
  if (status == WEIR_OK) status = weir_plan_parse(text, &s->stage[s->count].plan);
  s->count++;
  return status;
}

weir_status weir_stages_parse(const char *text, weir_stages *s) {
  char stage[WEIR_PLAN_TEXT_MAX + 32];
  weir_status status = WEIR_OK;
  *s = (weir_stages){.count = 0};
  while (status == WEIR_OK) {
    const size_t length = strcspn(text, ";");
    if (length >= sizeof stage)
      return weir_fail(WEIR_E_INVALID, "stage %zu of a schedule is too long", s->count + 1);
    memcpy(stage, text, length);
    stage[length] = '\0';
    status = parse_stage(stage, s);
    if (text[length] == '\0') break;
    text += length + 1;
  }
  return status;
}

/* --- while it runs ---------------------------------------------------------------------------- */

size_t weir_stages_at(const weir_stages *s, uint64_t at) {
  size_t stage = 0;
  while (stage + 1 < s->count && s->stage[stage].left_out) stage++;
  for (size_t i = stage + 1; i < s->count && s->stage[i].from <= at; i++)
    if (!s->stage[i].left_out) stage = i;
  return stage;
}

static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  const weir_stages *s = &loop->stages;
  const size_t stage = weir_stages_at(s, s->by_step ? seen->step + ahead : seen->epoch);
  if (stage != loop->stage) {
    loop->stage = stage;
    loop->open = s->stage[stage].plan.algorithm == WEIR_ALGORITHM_ANY;
    return weir_loop_begin_stage(loop, seen, &s->stage[stage].plan);
  }
  weir_decision decision;
  const uint32_t trigger = weir_loop_open_trigger(loop, seen);
  return trigger == WEIR_TRIGGER_NONE ? WEIR_OK : weir_loop_decide(loop, seen, trigger, &decision);
}

const weir_policy weir_policy_schedule = {
    .name = "schedule",
    .description =
        "schedule:PLAN;epoch=N:PLAN;... or schedule:PLAN;step=N:PLAN;...: plans one "
        "after the other",
    .id = WEIR_POLICY_SCHEDULE,
    .takes_stages = true,
    .consider = consider,
};
