/* The guard: a switch must promise enough, and not come too soon after the last. */
#include <stdio.h>

#include "base/schemes.h"
#include "controller/decide.h"

bool weir_same_plan(const weir_plan *a, const weir_plan *b) {
  return a->codec == b->codec && weir_same_collective(a, b) && a->wire == b->wire &&
         a->cr == b->cr && a->bucket_log2 == b->bucket_log2;
}

bool weir_trigger_network(uint32_t trigger) {
  return trigger == WEIR_TRIGGER_LATENCY || trigger == WEIR_TRIGGER_BANDWIDTH;
}

void weir_guard(const weir_decision_input *in, const weir_candidate *best, weir_decision *d) {
  weir_candidate current;
  weir_evaluate(in, &in->current, &current);
  const bool changed = weir_trigger_network(in->trigger);
  const double needed = changed ? weir_constants.hysteresis_changed : weir_constants.hysteresis;
  const double promised = best->progress_per_s / current.progress_per_s - 1.0;
  const bool more_bits = in->policy == WEIR_POLICY_WEIR && in->risk != WEIR_RISK_BOLD &&
                         weir_plan_bits(&best->plan) > weir_plan_bits(&current.plan) &&
                         promised >= -weir_constants.spare;
  d->switched = false;
  if (weir_same_plan(&best->plan, &current.plan))
    (void)snprintf(d->why, sizeof d->why, "the plan in force is the best");
  else if (!(promised > needed) && !more_bits)
    (void)snprintf(d->why, sizeof d->why, "kept: %.1f %% more progress/s is within %.0f %%",
                   100.0 * promised, 100.0 * needed);
  else if (!changed && in->trigger != WEIR_TRIGGER_START && in->trigger != WEIR_TRIGGER_TRIAL &&
           in->trigger != WEIR_TRIGGER_SPARSITY && in->dwell < weir_constants.dwell)
    (void)snprintf(d->why, sizeof d->why, "kept: only %llu steps since the last switch",
                   (unsigned long long)in->dwell);
  else if (!(current.progress_per_s > 0.0)) {
    d->switched = true;
    (void)snprintf(d->why, sizeof d->why, "%s",
                   !weir_plan_sparse(&current.plan) || weir_sparse_known(in)
                       ? "the plan in force does not count as one that holds the loss"
                   : in->withheld != 0 ? "what a method has held back is sent before"
                                       : "more than half of a gradient is not zero");
  } else {
    d->switched = true;
    (void)snprintf(d->why, sizeof d->why,
                   promised > needed ? "%.1f %% more progress/s expected"
                                     : "more bits, at %+.1f %% progress/s",
                   100.0 * promised);
  }
  d->choice = d->switched ? *best : current;
  d->predicted_s = weir_step_seconds(in, &d->choice);
}
