/* Policy paper: NSGA-II over the ratio alone, then the knee ("Flexible Communication for Optimal
 * Distributed Learning over Unpredictable Networks", section 3-E). */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/select.h"
#include "controller/decide.h"
#include "moo/knee.h"

const double weir_trial_cr[WEIR_TRIALS] = {0.1, 0.033, 0.011, 0.004, 0.001};

/* Between measured candidates, linear in log cr; held flat outside. */
static double interpolate(const double *value, double cr) {
  if (cr >= weir_trial_cr[0]) return value[0];
  for (size_t i = 1; i < WEIR_TRIALS; i++)
    if (cr >= weir_trial_cr[i]) {
      const double share =
          log(cr / weir_trial_cr[i]) / log(weir_trial_cr[i - 1] / weir_trial_cr[i]);
      return value[i] + share * (value[i - 1] - value[i]);
    }
  return value[WEIR_TRIALS - 1];
}

/* Each rank's own top-k, of the whole gradient unless lwtopk was asked for (the gain of the paper's
 * MSTopk is the higher of its two AG codecs), or one rank's indices: STAR's, unless VAR's were
 * asked for, as the paper found STAR usually the better.  Eight bytes an element, as in the paper.
 */
static const char *const texts[] = {"mstopk:0.1:ag", "star:0.1:art-ring", "star:0.1:art-tree"};
enum { PLANS = sizeof texts / sizeof *texts };
static weir_plan plans[PLANS];

static void parse_plans(void) {
  for (size_t i = 0; i < PLANS; i++)
    if (weir_plan_parse(texts[i], &plans[i]) != WEIR_OK) abort();
}

/* The cheapest of AG, ART-Ring and ART-Tree by the paper's rows, which priced NCCL's ring and tree;
 * where NCCL can be told, these run. */
void weir_paper_candidate(const weir_decision_input *in, double cr, weir_candidate *c) {
  static pthread_once_t parsed = PTHREAD_ONCE_INIT;
  (void)pthread_once(&parsed, parse_plans);
  c->comm_s = INFINITY;
  for (size_t i = 0; i < PLANS; i++) {
    weir_plan plan = plans[i];
    const uint32_t codec = i == 0 ? in->paper_gather : in->paper_shared;
    if (codec != WEIR_CODEC_NONE) plan.codec = codec;
    plan.cr = cr;
    const double s = weir_cost_paper(&plan, (int)in->workers, in->latency,
                                     1.0 / weir_input_goodput(in), 4.0 * (double)in->elements);
    if (i > 0 && s >= c->comm_s) continue;
    c->comm_s = s;
    c->plan = weir_plan_told(in, &plan);
  }
  c->compress_s = interpolate(in->trial_compress, cr);
  c->gain = interpolate(in->trial_gain, cr);
  c->progress_per_s = weir_progress(c->plan.codec, c->gain) / weir_step_seconds(in, c);
}

static double objectives(void *user, const double *x, const uint32_t *category, double *f) {
  (void)category;
  weir_candidate c;
  weir_paper_candidate(user, x[0], &c);
  f[0] = c.compress_s;
  f[1] = c.comm_s;
  f[2] = c.gain > 0.0 ? 1.0 / c.gain : INFINITY;
  return 0.0;
}

weir_status weir_decide_paper(const weir_decision_input *in, weir_decision *d) {
  weir_decision_input copy = *in; /* the problem's user pointer is not const */
  const weir_moo_problem problem = {.reals = 1,
                                    .lower = &weir_constants.paper_cr_low,
                                    .upper = &weir_constants.paper_cr_high,
                                    .objectives = 3,
                                    .user = &copy,
                                    .evaluate = objectives};
  weir_moo_front front;
  const weir_status status = weir_decide_search(&problem, in->seed, &front);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < WEIR_TRIALS; i++)
    weir_paper_candidate(in, weir_trial_cr[i], &d->candidate[d->candidates++]);
  if (front.count == 0) { /* every gain is 0: keep the most */
    d->choice = d->candidate[0];
    (void)snprintf(d->why, sizeof d->why, "no candidate gains anything: the largest ratio");
  } else {
    for (size_t i = 0; i < front.count && i < WEIR_FRONT_MAX; i++)
      weir_paper_candidate(in, front.x[i], &d->front[d->front_size++]);
    d->choice = d->front[weir_moo_knee(front.f, front.count, 3)];
    (void)snprintf(d->why, sizeof d->why, "the knee of the front");
  }
  weir_moo_front_free(&front);
  const weir_link link = weir_input_link(in); /* the paper names no all-gather */
  d->choice.plan = weir_select_plan(&d->choice.plan, weir_input_shape(in), &link, in->elements,
                                    weir_cost_kept(&d->choice.plan, in->elements));
  d->switched = !weir_same_plan(&d->choice.plan, &in->current);
  d->predicted_s = weir_step_seconds(in, &d->choice);
  return WEIR_OK;
}
