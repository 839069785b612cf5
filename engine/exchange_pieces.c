/* Encoders through AG, in pieces (collectives/pieces.h): when the messages of all ranks are longer
 * than the gradient.
 *
 * The sum grows from the front of spare, and where it has not come to yet lie the messages of the
 * next piece: each piece takes as much of what is left as leaves room for its messages behind it,
 * for messages of half the gradient from 4 ranks a third.  The last ones have a place of their own.
 * No piece is sent before what this rank sends of it has been taken off its residual. */
#include <math.h>

#include "base/base.h"
#include "collectives/pieces.h"
#include "engine/state.h"

static size_t stride_of(const weir_group *group, size_t count) {
  return weir_piece_bytes(&group->plan, count);
}

/* Where a piece's messages lie. */
static unsigned char *place_of(const weir_group *group, size_t at, size_t count) {
  const size_t room = (group->n - at - count) * sizeof(float);
  return (size_t)group->engine->size * stride_of(group, count) <= room
             ? (unsigned char *)(group->spare + at + count)
             : group->blocks;
}

static weir_status encode(weir_group *group, size_t at, size_t count, unsigned char *message) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  const weir_engine *engine = group->engine;
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const uint64_t words[4] = {engine->turn, (uint64_t)engine->rank, group->number, at};
  size_t *bytes = &group->block_bytes[engine->rank];
  const weir_status status = codec->encode(group->context, group->fed + at, &layout, group->plan.cr,
                                           weir_hash(WEIR_HASH_INIT, words, sizeof words), message,
                                           stride_of(group, count), bytes);
  return status == WEIR_OK ? codec->decode(group->context, message, *bytes, &layout,
                                           group->fed + at, WEIR_DECODE_SUBTRACT)
                           : status;
}

static weir_status exchange(weir_group *group, size_t at, size_t count, weir_notes *notes) {
  weir_engine *engine = group->engine;
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  const size_t offset[2] = {0, count}, stride = stride_of(group, count);
  const weir_layout layout = {1, offset};
  unsigned char *const all = place_of(group, at, count);
  weir_status status = encode(group, at, count, all + (size_t)engine->rank * stride);
  weir_lap_compress(group);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  status = weir_allgather(engine->config.comm, all, stride, group->block_bytes, notes);
  weir_lap_comm(group);
  if (status == WEIR_OK) weir_ag_count(group);
  for (int r = 0; r < engine->size && status == WEIR_OK; r++) {
    status = codec->decode(group->context, all + (size_t)r * stride, group->block_bytes[r], &layout,
                           group->spare + at, r == 0 ? WEIR_DECODE_STORE : WEIR_DECODE_ADD);
    if (status != WEIR_OK) return weir_engine_blame(engine, r, status);
  }
  weir_lap_compress(group);
  return status;
}

/* Notes go along with the last piece. */
weir_status weir_exchange_pieces(weir_group *group, weir_notes *notes) {
  weir_status status = WEIR_OK;
  for (size_t at = 0; at < group->n && status == WEIR_OK;) {
    const size_t count = weir_piece_next(&group->plan, group->engine->size, group->n - at);
    status = exchange(group, at, count, at + count == group->n ? notes : NULL);
    at += count;
  }
  if (status != WEIR_OK) return status;
  const double lost = weir_sum_square(group->fed, group->n);
  group->passage.kept_square = fmax(group->passage.moments.sum_square - lost, 0);
  group->passage.sum = group->spare;
  return WEIR_OK;
}
