/* HiTopKComm: what a machine's ranks have summed is selected from, and the selections travel
 * between machines.  A machine's residual lies with the rank that selected from that part of its
 * sum.
 *
 * Selecting lies between two hops, so all of it counts as communication. */
#include "engine/state.h"

weir_status weir_prepare_hitopk(weir_group *group) {
  (void)group; /* nothing can be done before the machine's sum is known */
  return WEIR_OK;
}

weir_status weir_exchange_hitopk(weir_group *group, const weir_allreduce *allreduce,
                                 weir_notes *notes) {
  (void)allreduce;
  weir_passage *passage = &group->passage;
  weir_hitopk_told told = {0};
  const weir_status status =
      weir_hitopk(group->engine->config.comm, weir_codec_find(group->plan.codec), group->context,
                  group->plan.cr, (weir_wire_format)group->plan.wire, group->fed, group->n,
                  group->spare, &told, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  /* The gain is that of the machines' sums: what of them was sent, told as part of this
   * rank's own. */
  passage->kept_square = told.share * passage->moments.sum_square;
  passage->extra_bytes = told.bytes - group->terms.byte_terms;
  passage->sum = group->spare;
  passage->next = group->fed;
  return WEIR_OK;
}
