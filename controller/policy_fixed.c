/* Policy fixed: one plan, always. */
#include "controller/loop.h"

/* One plan for ever.  The journal gets one line all the same: what it is expected to cost. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  weir_decision decision;
  if (loop->decisions > 0 || loop->steps < 3 || !weir_network_known(&seen->network, loop->workers))
    return WEIR_OK;
  return weir_loop_decide(loop, seen, WEIR_TRIGGER_START, &decision);
}

const weir_policy weir_policy_fixed = {
    .name = "fixed",
    .description = "fixed:CODEC:CR:COLLECTIVE[:WIRE], one plan throughout",
    .id = WEIR_POLICY_FIXED,
    .takes_plan = true,
    .consider = consider,
};
