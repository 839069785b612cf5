#include "controller/loop.h"

/* One table of groups for ever, from the second step on: rank 0 sends it to the others.  The journal
 * gets one line all the same, as for a fixed plan. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  weir_decision decision;
  if (loop->current.groups > 0) {
    const bool due = loop->decisions == 0 && weir_network_known(&seen->network, loop->workers);
    return due ? weir_loop_decide(loop, seen, WEIR_TRIGGER_START, &decision) : WEIR_OK;
  }
  weir_plan plan = loop->current;
  weir_table_plan(loop->table, loop->text_groups, &loop->layout, &plan);
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &plan);
  return WEIR_OK;
}

const weir_policy weir_policy_groups = {
    .name = "groups",
    .description = "groups:layers:PLAN, groups:bucket=MB:PLAN, groups:even=N:PLAN or groups:FILE, one "
                   "division into groups throughout",
    .id = WEIR_POLICY_GROUPS,
    .takes_table = true,
    .consider = consider,
};
