/* Policy groups: given divisions of the gradient, one after the other. */
#include <string.h>

#include "collectives/select.h"
#include "controller/loop.h"

/* Tables of buckets as they were given, from the second step on: rank 0 sends each to the others.
 * One holds for ever, but for the algorithms that it leaves open; several take turns.  The journal
 * gets a line for every network, as for a fixed plan. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  weir_turns *turns = &loop->turns;
  const bool known = weir_network_known(&seen->network, loop->workers);
  if (loop->current.buckets > 0 && (turns->count == 1 || loop->dwell < turns->steps)) {
    weir_decision decision;
    const uint32_t trigger = weir_loop_open_trigger(loop, seen);
    const weir_status status =
        trigger == WEIR_TRIGGER_NONE ? WEIR_OK : weir_loop_decide(loop, seen, trigger, &decision);
    if (status != WEIR_OK || trigger == WEIR_TRIGGER_NONE || turns->count > 1) return status;
  }
  weir_plan plan = loop->current;
  size_t buckets;
  weir_turns_next(turns, loop->layout.tensors, loop->next_table, &buckets);
  if (known) {
    const weir_link link = weir_learn_link(loop, &seen->network);
    weir_select_table(loop->next_table, buckets, &loop->layout, weir_loop_shape(loop), &link);
  }
  weir_table_plan(loop->next_table, buckets, &loop->layout, &plan);
  /* A turn is one even where it divides as the one before it: whoever times them counts turns. */
  if (plan.layout == loop->current.layout && turns->count == 1) return WEIR_OK;
  memcpy(loop->table, loop->next_table, buckets * sizeof *loop->table);
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
    .without_feedback = true,
    .consider = consider,
};
