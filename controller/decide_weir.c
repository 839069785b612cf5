/* Policy weir: the front over every arm and ratio, then the point of most progress per second. */
#include <math.h>
#include <stdio.h>

#include "controller/decide.h"

static double objectives(void *user, const double *x, const uint32_t *category, double *f) {
  const weir_decision_input *in = user;
  const weir_arm *arm = &weir_arms[category[0]];
  const bool dense = arm->codec == WEIR_CODEC_NONE || arm->codec == WEIR_CODEC_BF16;
  const weir_plan plan = {.codec = arm->codec,
                          .collective = arm->collective,
                          .wire = arm->wire,
                          .cr = dense ? 1.0 : fmin(1.0, exp(x[0]))};
  weir_candidate c;
  weir_evaluate(in, &plan, &c);
  f[0] = c.compress_s;
  f[1] = c.comm_s;
  f[2] = c.gain > 0.0 ? 1.0 / c.gain : INFINITY;
  return 0.0;
}

static weir_status find_front(const weir_decision_input *in, weir_decision *d) {
  const double low = log(weir_model.cr_low), high = log(weir_model.cr_high);
  const uint32_t arms = (uint32_t)weir_arm_count(in);
  weir_decision_input copy = *in; /* the problem's user pointer is not const */
  const weir_moo_problem problem = {.reals = 1,
                                    .lower = &low,
                                    .upper = &high,
                                    .categoricals = 1,
                                    .values = &arms,
                                    .objectives = 3,
                                    .user = &copy,
                                    .evaluate = objectives};
  weir_moo_front front;
  const weir_status status = weir_decide_search(&problem, in->seed, &front);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < front.count && i < WEIR_FRONT_MAX; i++) {
    const weir_arm *arm = &weir_arms[front.category[i]];
    weir_plan plan = {.codec = arm->codec, .collective = arm->collective, .wire = arm->wire};
    const bool dense = arm->codec == WEIR_CODEC_NONE || arm->codec == WEIR_CODEC_BF16;
    plan.cr = dense ? 1.0 : fmin(1.0, exp(front.x[i]));
    weir_evaluate(in, &plan, &d->front[d->front_size++]);
  }
  weir_moo_front_free(&front);
  return WEIR_OK;
}

static weir_status go_back(const weir_decision_input *in, weir_decision *d) {
  weir_evaluate(in, &in->previous, &d->choice);
  d->switched = true;
  d->predicted_s = weir_step_seconds(in, &d->choice);
  (void)snprintf(d->why, sizeof d->why, "slower than foretold and than the plan before it");
  return WEIR_OK;
}

weir_status weir_decide_weir(const weir_decision_input *in, weir_decision *d) {
  const weir_status status = find_front(in, d);
  if (status != WEIR_OK) return status;
  const weir_candidate *best = NULL;
  for (size_t a = 0; a < weir_arm_count(in); a++) {
    weir_candidate *c = &d->candidate[d->candidates++];
    weir_best_of_arm(in, &weir_arms[a], c);
    if (!best || c->progress_per_s > best->progress_per_s) best = c;
  }
  /* The search can hit a better point than scan and section where the model is not unimodal. */
  for (size_t i = 0; i < d->front_size; i++)
    if (d->front[i].progress_per_s > best->progress_per_s) best = &d->front[i];
  if (in->trigger == WEIR_TRIGGER_FALLBACK) return go_back(in, d);
  const weir_candidate chosen = *best;
  weir_guard(in, &chosen, d);
  return WEIR_OK;
}
