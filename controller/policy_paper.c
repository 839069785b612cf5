/* The paper's controller: trials of five ratios, NSGA-II, the knee.
 *
 * A header tells of the step before it, and a directive rides on the next exchange; so the next
 * candidate is directed when nine steps of this one have been seen, which lets exactly ten run, and
 * the decision falls one step after the trials' end, whose headers bring the last of the ten.
 * Trials repeat as often as the gain moves: the paper sets no other limit. */
#include <math.h>

#include "controller/loop.h"

static const int trial_steps = 10;
static const uint64_t settle_steps = 10; /* of smoothed gain before it is compared */

static void direct_candidate(weir_loop *loop, const weir_observation *seen) {
  /* No trial has been measured yet where this asks for the cheapest collective: costs alone. */
  const weir_decision_input in = {.workers = (uint64_t)loop->workers,
                                  .elements = loop->elements,
                                  .latency = seen->network.latency,
                                  .bandwidth = seen->network.bandwidth,
                                  .goodput = seen->network.goodput};
  weir_candidate c;
  weir_paper_candidate(&in, weir_trial_cr[loop->trials.candidate], &c);
  weir_loop_direct(loop, WEIR_ACTION_TRIAL, &c.plan);
}

static void start_trials(weir_loop *loop, const weir_observation *seen, uint32_t trigger) {
  loop->trials.phase = WEIR_TRIALS_RUN;
  loop->trials.trigger = trigger;
  loop->trials.candidate = 0;
  loop->trials.ran = 0;
  for (int i = 0; i < WEIR_TRIALS; i++) {
    loop->trials.count[i] = 0;
    loop->trials.compress[i] = loop->trials.gain[i] = 0.0;
  }
  direct_candidate(loop, seen);
  loop->trials.first_id = loop->directive.plan.id;
}

/* Running averages over steps; the headers were already averaged over ranks. */
static void hear_trial(weir_loop *loop, const weir_observation *seen) {
  if (!seen->heard.valid || !seen->heard.trial || seen->heard.plan.id < loop->trials.first_id)
    return;
  const uint64_t at = seen->heard.plan.id - loop->trials.first_id;
  if (at >= WEIR_TRIALS) return;
  const int n = ++loop->trials.count[at];
  loop->trials.compress[at] += (seen->heard.compress - loop->trials.compress[at]) / n;
  loop->trials.gain[at] += (seen->heard.gain - loop->trials.gain[at]) / n;
}

static void run_trials(weir_loop *loop, const weir_observation *seen) {
  const uint64_t id = loop->trials.first_id + (uint64_t)loop->trials.candidate;
  if (!seen->trial || seen->plan.id != id) return; /* its directive is still on the way */
  if (++loop->trials.ran < trial_steps - 1) return;
  loop->trials.ran = 0;
  if (++loop->trials.candidate < WEIR_TRIALS) {
    direct_candidate(loop, seen);
    return;
  }
  loop->trials.phase = WEIR_TRIALS_DRAIN;
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current); /* restores what was before */
}

static weir_status decide(weir_loop *loop, const weir_observation *seen, uint32_t trigger) {
  weir_decision decision;
  const weir_status status = weir_loop_decide(loop, seen, trigger, &decision);
  if (status != WEIR_OK) return status;
  loop->trials.reference = decision.choice.gain;
  return WEIR_OK;
}

static weir_status step(weir_loop *loop, const weir_observation *seen) {
  if (loop->workers <= 1 || !weir_network_known(&seen->network, loop->workers)) return WEIR_OK;
  hear_trial(loop, seen);
  switch (loop->trials.phase) {
    case WEIR_TRIALS_NONE:
      if (loop->steps >= 2) start_trials(loop, seen, WEIR_TRIGGER_START);
      return WEIR_OK;
    case WEIR_TRIALS_RUN: run_trials(loop, seen); return WEIR_OK;
    case WEIR_TRIALS_DRAIN:
      if (seen->trial || seen->plan.id != loop->current.id) return WEIR_OK;
      loop->trials.phase = WEIR_TRIALS_DONE;
      return decide(loop, seen, loop->trials.trigger);
    case WEIR_TRIALS_DONE: break;
  }
  const uint32_t moved = weir_loop_network_trigger(loop, &seen->network);
  if (moved != WEIR_TRIGGER_NONE) {
    weir_loop_probe_found(loop);
    return decide(loop, seen, moved);
  }
  if (loop->learnt.gain_steps >= settle_steps && fabs(loop->learnt.gain - loop->trials.reference) >=
                                                     weir_model.change * loop->trials.reference)
    start_trials(loop, seen, WEIR_TRIGGER_GAIN);
  return WEIR_OK;
}

/* Trials are steps like others to the monitor, so it may want to look in their midst. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  const weir_status status = step(loop, seen);
  if (status == WEIR_OK && loop->workers > 1 && weir_network_known(&seen->network, loop->workers))
    weir_loop_consider_probe(loop, seen);
  return status;
}

const weir_policy weir_policy_paper = {
    .name = "paper",
    .description = "trials, NSGA-II and knee of the flexible-communication paper",
    .id = WEIR_POLICY_PAPER,
    .first = "mstopk:0.1:ag",
    .heaviest = {"mstopk:0.1:ag", "star:0.1:art-tree"},
    .consider = consider,
};
