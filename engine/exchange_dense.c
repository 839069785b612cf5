/* Every element, summed by an all-reduce: as fp32, or as bf16 with the rounding kept back.
 *
 * What earlier sparse plans left in the residuals is part of e, so the sum flushes it. */
#include <string.h>

#include "engine/lowrank.h"

weir_status weir_prepare_dense(weir_group *group) {
  if (weir_codec_find(group->plan.codec)->low_rank) return weir_prepare_lowrank(group);
  const bool rounded = group->plan.codec == WEIR_CODEC_BF16;
  if (rounded) memset(group->spare, 0, group->n * sizeof(float));
  group->passage.kept_square = group->passage.moments.sum_square;
  group->passage.sum = group->fed;
  group->passage.next = rounded ? group->spare : NULL;
  return WEIR_OK;
}

weir_status weir_exchange_dense(weir_group *group, const weir_allreduce *allreduce,
                                weir_notes *notes) {
  if (weir_codec_find(group->plan.codec)->low_rank)
    return weir_exchange_lowrank(group, allreduce, notes);
  weir_comm *comm = group->engine->config.comm;
  const bool rounded = group->plan.codec == WEIR_CODEC_BF16;
  /* In a trial spare is there, and free. */
  if (!rounded && group->engine->set.trial)
    weir_comm_lend(comm, group->spare, group->n * sizeof(float));
  const weir_status status =
      allreduce->run(comm, group->fed, group->n, rounded ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32,
                     group->passage.next, notes);
  weir_comm_lend(comm, NULL, 0);
  weir_lap_comm(group);
  return status;
}
