/* Policy groups: given divisions of the gradient, one after the other. */
#include "controller/loop.h"

/* Tables of buckets as they were given, from the second step on: rank 0 sends each to the others.
 * One holds for ever, several take turns.  The journal gets one line all the same, as for a fixed
 * plan. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  weir_turns *turns = &loop->turns;
  if (loop->current.buckets > 0 && (turns->count == 1 || loop->dwell < turns->steps)) {
    weir_decision decision;
    const bool due = loop->decisions == 0 && weir_network_known(&seen->network, loop->workers);
    return due ? weir_loop_decide(loop, seen, WEIR_TRIGGER_START, &decision) : WEIR_OK;
  }
  weir_plan plan = loop->current;
  size_t buckets;
  weir_turns_next(turns, loop->layout.tensors, loop->table, &buckets);
  weir_table_plan(loop->table, buckets, &loop->layout, &plan);
  weir_loop_say(loop, "the next division the policy names: %zu buckets", buckets);
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &plan);
  return WEIR_OK;
}

const weir_policy weir_policy_buckets = {
    .name = "groups",
    .description =
        "groups:layers:PLAN, groups:bucket=MB:PLAN, groups:even=N:PLAN or groups:FILE, one "
        "division into groups throughout; groups:turns=K:...;..., several in turns",
    .id = WEIR_POLICY_BUCKETS,
    .takes_table = true,
    .consider = consider,
};
