/* Encoders through AG: each rank's encoded gradient, all-gathered, decoded and added up in rank
 * order.  Only this rank's own loss, e - decode(its own message), stays behind. */
#include <math.h>

#include "base/base.h"
#include "engine/state.h"

/* Draws differ from rank to rank, step to step and group to group, follow from these alone, and are
 * drawn again alike after a trial. */
static uint64_t seed_of(const weir_group *group) {
  const uint64_t words[3] = {group->engine->turn, (uint64_t)group->engine->rank, group->number};
  return weir_hash(WEIR_HASH_INIT, words, (group->number > 0 ? 3 : 2) * sizeof *words);
}

static unsigned char *block(const weir_group *group, int rank) {
  return group->blocks + (size_t)rank * group->stride;
}

/* The sum over ranks, after this rank's own message has told what it lost.  The spare buffer holds
 * first the one, then the other. */
static weir_status decode_all(weir_group *group, const weir_codec *codec) {
  weir_engine *engine = group->engine;
  float *const sum = group->spare;
  const int own = engine->rank;
  weir_status status = codec->decode(group->context, block(group, own), group->block_bytes[own],
                                     &group->layout, sum, false);
  if (status != WEIR_OK) return weir_engine_blame(engine, own, status);
  const double lost = weir_ef_subtract(group->fed, sum, group->n);
  group->passage.kept_square = fmax(group->passage.moments.sum_square - lost, 0);
  for (int r = 0; r < engine->size; r++) {
    if (r == 0 && own == 0) continue; /* decoded just now */
    status = codec->decode(group->context, block(group, r), group->block_bytes[r], &group->layout,
                           sum, r > 0);
    if (status != WEIR_OK) return weir_engine_blame(engine, r, status);
  }
  return WEIR_OK;
}

weir_status weir_prepare_encoded(weir_group *group) {
  const int rank = group->engine->rank;
  return weir_codec_find(group->plan.codec)
      ->encode(group->context, group->fed, &group->layout, group->plan.cr, seed_of(group),
               block(group, rank), group->stride, &group->block_bytes[rank]);
}

weir_status weir_exchange_encoded(weir_group *group, weir_notes *notes) {
  weir_status status = weir_allgather(group->engine->config.comm, group->blocks, group->stride,
                                      group->block_bytes, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  status = decode_all(group, weir_codec_find(group->plan.codec));
  if (status != WEIR_OK) return status;
  group->passage.sum = group->spare;
  group->passage.next = group->fed;
  weir_lap_compress(group);
  return WEIR_OK;
}
