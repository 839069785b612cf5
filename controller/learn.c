/* Learning online: how far measurement and model are apart, per arm and codec. */
#include <math.h>
#include <string.h>

#include "controller/loop.h"

static const double weight = 0.2;      /* of a new value in a moving average */
static const double departure = 0.4;   /* of measured from predicted communication time */
static const double least = 0.5, most = 4.0; /* bounds of a correction */

static double clamp(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

/* The first value is taken whole: a prior is worth less than one measurement. */
static void blend(double *average, double value, bool first) {
  *average = first ? value : *average + weight * (value - *average);
}

void weir_learn_start(weir_learnt *l) {
  memset(l, 0, sizeof *l);
  for (size_t a = 0; a < WEIR_ARMS; a++) l->correction[a] = 1.0;
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) l->compress[c] = 1.0;
  l->overlap = weir_model.overlap_prior;
  l->gain = -1.0;
}

void weir_learn_switched(weir_learnt *l) {
  l->gain = -1.0;
  l->gain_steps = 0;
  l->step_count = 0;
  l->departures = 0;
  l->absorb = false;
}

/* An untried arm borrows from a tried one of the same collective: they share the wire's ways. */
static void share_correction(weir_learnt *l, size_t arm) {
  for (size_t a = 0; a < WEIR_ARMS; a++)
    if (!l->tried[a] && weir_arms[a].collective == weir_arms[arm].collective)
      l->correction[a] = l->correction[arm];
}

static void learn_comm(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  const size_t arm = weir_arm_of(&seen->heard.plan);
  if (!weir_network_known(&seen->heard.network, loop->workers) || !(seen->heard.comm > 0.0)) return;
  const double modelled = weir_cost_seconds(&seen->heard.terms, seen->heard.network.latency,
                                            1.0 / seen->heard.network.bandwidth);
  if (!(modelled > 0.0) || !isfinite(modelled)) return;
  const double ratio = clamp(seen->heard.comm / modelled, least, most);
  const double known = arm < WEIR_ARMS ? l->correction[arm] : 1.0;
  const bool first = arm < WEIR_ARMS && !l->tried[arm];
  const bool departs = fabs(seen->heard.comm / modelled / known - 1.0) > departure;
  l->departures = departs ? l->departures + 1 : 0;
  if (arm == WEIR_ARMS) return;
  /* A sudden departure is more likely the network's doing than the arm's: it must not be learnt as
   * the arm's own until probing has found nothing, or unless nothing was known of the arm. */
  if (departs && !l->absorb && !first) return;
  blend(&l->correction[arm], ratio, first);
  l->tried[arm] = true;
  share_correction(l, arm);
}

static void learn_codec(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  const weir_plan *plan = &seen->heard.plan;
  const double prior = weir_compress_prior(plan->codec, (uint64_t)loop->workers, loop->elements,
                                           plan->cr);
  if (seen->heard.compress > 0.0 && prior > 0.0) {
    const double ratio = clamp(seen->heard.compress / prior, 1e-3, 1e3);
    blend(&l->compress[plan->codec], ratio, !l->timed[plan->codec]);
    l->timed[plan->codec] = true;
  }
  if (plan->codec == WEIR_CODEC_STAR && l->has_curve && seen->heard.gain > 0.0) {
    const double top = weir_curve_gain(weir_curve_cr, l->curve, plan->cr);
    if (top > plan->cr + 0.01) /* else it cannot be told */
      blend(&l->overlap, weir_overlap(seen->heard.gain, top, plan->cr), false);
  }
}

void weir_learn(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  if (seen->compute > 0.0) blend(&l->compute, seen->compute, !(l->compute > 0.0));
  if (seen->has_curve && !seen->trial) {
    for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) l->curve[i] = seen->curve[i];
    l->has_curve = true;
  }
  if (!seen->heard.valid || seen->heard.trial) return;
  learn_codec(loop, seen);
  learn_comm(loop, seen);
  if (seen->heard.plan.id != loop->current.id) return;
  blend(&l->gain, seen->heard.gain, l->gain_steps == 0);
  l->gain_steps++;
  blend(&l->step_s, seen->heard.compute + seen->heard.compress + seen->heard.comm,
        l->step_count == 0);
  l->step_count++;
}
