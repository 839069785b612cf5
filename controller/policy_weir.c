/* The default policy.  At risk bold the headers' gain curve tells what a ratio is worth; otherwise
 * trials do (rounds.c). */
#include <math.h>

#include "base/log.h"
#include "controller/loop.h"

static const double slow_factor = 1.5;
static const int slow_steps = 5;         /* in a row: on a busy machine any few are slow */
static const uint64_t proved_steps = 10; /* after which a plan is known by its steps */
/* Before the first decision: enough for medians of what the first plan costs. */
static const uint64_t settle_steps = 4;

static double progress_of(const weir_loop *loop, const weir_plan *plan, double gain) {
  const bool early = weir_codecs[plan->codec]->whitened;
  weir_decision_input in = {.policy = WEIR_POLICY_WEIR,
                            .risk = loop->risk,
                            /* It was chosen when it counted. */
                            .settled = early ? WEIR_UNSETTLED : WEIR_SETTLED_SGD,
                            .squares_known = 1,
                            .nonzero = loop->learnt.nonzero};
  for (size_t m = 0; m < WEIR_METHODS; m++) in.shown[m] = loop->rounds.record[m].progress;
  return weir_plan_progress(&in, plan, gain);
}

static bool gain_moved(const weir_loop *loop) {
  const double cr = loop->current.cr;
  if (!loop->curve || weir_plan_safe(&loop->current)) return false;
  const double before = weir_curve_gain(weir_curve_cr, loop->curve_at_decision, cr);
  const double now = weir_curve_gain(weir_curve_cr, loop->learnt.curve, cr);
  return fabs(now - before) >= weir_constants.change * before;
}

/* Exchanges that take another time than predicted may mean another network: that comes first, and
 * so does a probe whose answer is due. */
static bool in_doubt(const weir_loop *loop) {
  return loop->probe.pending || (loop->learnt.departures > 0 && loop->learnt.absorb == 0);
}

static uint32_t find_trigger(const weir_loop *loop, const weir_observation *seen) {
  if (loop->decisions == 0) return WEIR_TRIGGER_START;
  if (weir_loop_denser(loop)) return WEIR_TRIGGER_SPARSITY;
  const uint32_t moved = weir_loop_network_trigger(loop, &seen->network);
  if (moved != WEIR_TRIGGER_NONE) return moved;
  if (seen->has_curve && !in_doubt(loop) && gain_moved(loop)) return WEIR_TRIGGER_GAIN;
  return loop->since_decision >= weir_constants.period ? WEIR_TRIGGER_PERIODIC : WEIR_TRIGGER_NONE;
}

/* After a switch: is it slower than foretold, and than what the plan before it achieved?  Where
 * exchanges take another time than predicted, the network comes first: no arm is given up for what
 * probing has not looked into. */
static bool switch_failed(weir_loop *loop, const weir_observation *seen) {
  loop->probation.in_doubt = false;
  if (!loop->probation.armed || !seen->heard.valid || seen->heard.plan.id != loop->current.id)
    return false;
  const double step_s = seen->heard.whole;
  const double rate = progress_of(loop, &seen->heard.plan, seen->heard.gain) / step_s;
  if (step_s > slow_factor * loop->probation.predicted_s && rate < loop->probation.previous_rate) {
    if (++loop->probation.slow < slow_steps) return false;
    loop->probation.in_doubt = in_doubt(loop);
    loop->probation.armed = loop->probation.in_doubt;
    return !loop->probation.in_doubt;
  }
  loop->probation.slow = 0;
  if (loop->learnt.step_count >= proved_steps) loop->probation.armed = false;
  return false;
}

/* Do buckets take clearly longer than the gradient undivided would, by what was foretold?  Every
 * one wakes threads, for which there may be no processor. */
static bool division_failed(const weir_loop *loop) {
  const weir_learnt *l = &loop->learnt;
  return loop->current.buckets > 0 && !loop->fuse_failed && l->heard_id == loop->current.id &&
         l->step_count >= proved_steps && loop->undivided_s > 0.0 && !in_doubt(loop) &&
         l->step_s > (1.0 + weir_constants.change) * loop->undivided_s;
}

/* Decide, and put a switch on probation. */
static weir_status answer(weir_loop *loop, const weir_observation *seen, uint32_t trigger,
                          bool changed) {
  weir_decision decision;
  const weir_plan before = loop->current;
  const double rate = loop->learnt.step_count > 0
                          ? progress_of(loop, &before, loop->learnt.gain) / loop->learnt.step_s
                          : 0.0;
  const weir_status status = weir_loop_decide(loop, seen, trigger, &decision);
  if (status != WEIR_OK || !decision.switched) return status;
  loop->probation.armed = !changed && trigger != WEIR_TRIGGER_FALLBACK && rate > 0.0;
  loop->probation.previous = before;
  loop->probation.previous_rate = rate;
  loop->probation.predicted_s = decision.predicted_s;
  loop->probation.slow = 0;
  return WEIR_OK;
}

/* Is it known how fast the network is?  Nothing is decided before. */
static bool network_known(const weir_loop *loop, const weir_observation *seen) {
  static const uint64_t soon = 50; /* steps */
  const bool known = weir_network_known(&seen->network, loop->workers);
  if (!known && loop->steps == soon && loop->decisions == 0)
    weir_log(WEIR_LOG_WARN,
             "%d steps have not told how fast the network is, without which policy weir decides "
             "nothing and the first plan stays; active_probes measures it",
             (int)soon);
  return known;
}

static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  if (loop->workers <= 1 || loop->steps < settle_steps || !network_known(loop, seen) ||
      (loop->curve && !loop->learnt.has_curve))
    return WEIR_OK;
  bool busy;
  const weir_status tried = weir_rounds_step(loop, seen, &busy);
  if (tried != WEIR_OK || busy) return tried;
  uint32_t trigger = find_trigger(loop, seen);
  const bool changed = weir_trigger_network(trigger);
  if (changed) {
    loop->probation.armed = loop->probation.in_doubt =
        false; /* its record was made on another network */
    weir_loop_probe_found(loop);
  } else if (switch_failed(loop, seen)) {
    if (seen->heard.plan.buckets > 0)
      loop->fuse_failed = true; /* the arm may be as good as ever */
    else
      weir_learn_blame(loop, seen);
    trigger = WEIR_TRIGGER_FALLBACK;
  } else if (division_failed(loop)) {
    loop->fuse_failed = true;
    trigger = WEIR_TRIGGER_PERIODIC;
  }
  const weir_status status =
      trigger == WEIR_TRIGGER_NONE ? WEIR_OK : answer(loop, seen, trigger, changed);
  if (status == WEIR_OK && !changed) weir_loop_consider_probe(loop, seen);
  return status == WEIR_OK ? weir_rounds_consider(loop, seen) : status;
}

const weir_policy weir_policy_weir = {
    .name = "weir",
    .description = "most expected progress per second, from measured curve and network",
    .id = WEIR_POLICY_WEIR,
    .first = "bf16:1:dense-ring",
    /* Safe, and on a slow network every step counts. */
    .first_of_several = "companded:0.15625:sra",
    .first_by_sgd = "qsgd-l2:0.125:sra:huffman",
    .curve = true,
    .consider = consider,
};
