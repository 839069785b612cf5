/* Selections that hold nothing back.
 *
 * Where a rank's gradient has no more nonzero elements than top-k sends, top-k sends all of them: an
 * embedding gets gradient only in the rows that a batch has seen.  That is no compression of the
 * training, and needs no evidence.  What it takes is known: headers tell how many elements are not
 * zero, and so the ratio is not searched for.  docs/internals/progress.md has what rounding's
 * remainders do. */
#include <math.h>

#include "controller/decide.h"

static const double margin = 1.05; /* of the most that was seen of late */
static const double largest = 0.5; /* ratio that is still a selection */

uint32_t weir_arm_exact(const weir_arm *arm) {
  const weir_plan *plan = &arm->plan;
  if (plan->codec != WEIR_CODEC_TOPK || plan->scheme != WEIR_SCHEME_GATHER || plan->cr != 0.0)
    return 0;
  return plan->wire == WEIR_WIRE_AUTO_FP32   ? WEIR_EXACT_FP32
         : plan->wire == WEIR_WIRE_AUTO_BF16 ? WEIR_EXACT_BF16
                                             : 0;
}

uint32_t weir_plan_exact(const weir_plan *plan) {
  const size_t arm = weir_arm_of(plan);
  if (arm == WEIR_ARMS || weir_method_of(plan) < WEIR_METHODS) return 0;
  return weir_arm_exact(weir_arm_at(arm));
}

/* A coarse grid, eight ratios in an octave, so that a plan stays while shares vary a little.  No
 * method's ratio is on it. */
double weir_exact_cr(double nonzero) {
  static const double eighth[] = {1.0,
                                  0.91700404320467125,
                                  0.84089641525371454,
                                  0.77110541270397041,
                                  0.70710678118654752,
                                  0.64841977732550484,
                                  0.59460355750136054,
                                  0.54525386633262884};
  const double least = margin * nonzero;
  double cr = 0.0;
  if (!(nonzero > 0.0)) return 0.0;
  for (int i = 0; i < 8 * 32; i++) {
    const double lower = ldexp(eighth[i % 8], -(i / 8));
    if (lower < least) break;
    cr = lower;
  }
  return cr <= largest ? cr : 0.0;
}

bool weir_exact_holds(const weir_decision_input *in, const weir_plan *plan) {
  const uint32_t exact = weir_plan_exact(plan);
  return exact != 0 && in->policy == WEIR_POLICY_WEIR && in->risk != WEIR_RISK_BOLD &&
         in->nonzero > 0.0 && plan->cr >= in->nonzero && (exact & in->exact_refused) == 0;
}

bool weir_plan_keeps(const weir_plan *plan) {
  return weir_plan_safe(plan) || weir_plan_exact(plan) != 0;
}
