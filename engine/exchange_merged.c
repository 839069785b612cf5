/* A selection through AG in a trial, in one all-gather as without one.  The submitted buffers hold
 * what the trial falls back to, so that the messages lie in spare, where their sum is made.  It is
 * packed beside them (kernels/codec.h, weir_merge) and then spread over spare.  spare holds
 *
 *   selecting    indices | candidates
 *   preparing    indices | values | errors |        messages
 *   gathered     packed |                           messages
 *   merged       sum */
#include <string.h>

#include "base/base.h"
#include "collectives/pieces.h"
#include "engine/state.h"

bool weir_merged_fits(const weir_group *group, size_t stride) {
  const weir_plan *plan = &group->plan;
  const weir_codec *codec = weir_codec_find(plan->codec);
  const size_t ranks = (size_t)group->engine->size, n = group->n, kept = group->kept;
  if (codec->select == NULL || n == 0 || weir_pieces_wanted(plan, (int)ranks, n, kept))
    return false;
  const bool threads = group->engine->pool != NULL;
  const size_t packed = weir_merge_floats(n, ranks, kept);
  const size_t before = packed > 3 * kept ? packed : 3 * kept;
  return before + ranks * stride / sizeof(float) <= n &&
         kept + 1 + weir_select_room(codec, n, kept, threads) / sizeof(float) < n;
}

void weir_merged_open(weir_group *group) {
  const size_t ranks = (size_t)group->engine->size, kept = group->kept;
  const size_t listed = (kept + 1) / 2 * 2; /* whole words of 64 bits behind */
  const bool rounds = group->plan.wire >= WEIR_WIRE_AUTO_BF16;
  group->index = (uint32_t *)(void *)group->spare;
  group->value = group->spare + kept;
  group->error = rounds ? group->spare + 2 * kept : NULL;
  group->room = group->spare + listed;
  group->room_bytes = (group->n - listed) * sizeof(float);
  group->blocks = (unsigned char *)(group->spare + group->n) - ranks * group->stride;
}

weir_status weir_merged_sum(weir_group *group) {
  const size_t ranks = (size_t)group->engine->size;
  size_t floats, bad;
  const weir_status status =
      weir_merge(group->blocks, group->stride, group->block_bytes, ranks, group->n, group->kept,
                 group->merging, group->spare, &floats, &bad);
  if (status != WEIR_OK) return weir_comm_refuse(group->engine->config.comm, (int)bad, status);
  float *const packed = group->spare + (group->n - floats);
  memmove(packed, group->spare, floats * sizeof *packed);
  weir_merge_spread(group->merging, ranks, packed, group->n, group->spare);
  return WEIR_OK;
}
