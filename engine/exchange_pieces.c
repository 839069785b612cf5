/* Encoders through AG, in pieces (collectives/pieces.h): when the messages of all ranks are longer
 * than the gradient.
 *
 * The sum grows from the front of spare, and where it has not come to yet lie the messages of the
 * next piece: each piece takes as much of what is left as leaves room for its messages behind it,
 * for messages of half the gradient from 4 ranks a third.  The last ones have a place of their own.
 * No piece is sent before what this rank sends of it has been taken off its residual.
 *
 * Where units are tensors, a tensor's scale is that of all of it: this rank's message is encoded at
 * once, lies at the end of spare, and is cut into the pieces' messages.
 *
 * With momentum e is wanted once more (velocity.h): what this rank sends is kept until the step
 * counts, one message behind the other, and taken off e at that time. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "collectives/pieces.h"
#include "engine/state.h"

typedef struct pieces {
  weir_group *group;
  const weir_codec *codec;
  weir_cut cut; /* of what was encoded at once */
  size_t at;
  weir_layout piece;
  size_t count, stride;
  unsigned char *messages; /* stride apart */
  size_t kept;             /* bytes of `own` */
} pieces;

/* At the end of spare, of the bytes that are the group's `kept`. */
unsigned char *weir_pieces_whole(const weir_group *group) {
  return (unsigned char *)(group->spare + group->n) - group->kept;
}

static void shape_next(pieces *p) {
  const weir_group *group = p->group;
  p->piece =
      weir_piece_next(&group->plan, group->engine->size, &group->layout, p->at, group->piece);
  p->count = p->piece.offset[p->piece.tensors];
  p->stride = p->codec->bound(&p->piece, group->plan.cr);
}

static void next(pieces *p) {
  const weir_group *group = p->group;
  const int ranks = group->engine->size;
  shape_next(p);
  const bool cuts = p->codec->scales > 0;
  const unsigned char *end = cuts ? p->cut.rest : (unsigned char *)(group->spare + group->n);
  unsigned char *const behind = (unsigned char *)(group->spare + p->at + p->count);
  p->messages = behind + (size_t)ranks * p->stride <= end ? behind : group->blocks;
}

/* --- what is kept of this rank's own ---------------------------------------------------------- */

/* A message behind its length. */
#define LENGTH ((size_t)16)
static size_t kept_bytes(size_t bound) { return LENGTH + (bound + 15) / 16 * 16; }

static void keep(unsigned char *to, const void *message, size_t bytes) {
  memcpy(to, &bytes, sizeof bytes);
  memcpy(to + LENGTH, message, bytes);
}

size_t weir_pieces_kept(weir_group *group) {
  pieces p = {.group = group, .codec = weir_codec_find(group->plan.codec)};
  size_t bytes = 0;
  if (p.codec->scales > 0) return kept_bytes(group->kept);
  for (; p.at < group->n; p.at += p.count) {
    shape_next(&p);
    bytes += kept_bytes(p.stride);
  }
  return bytes;
}

void weir_pieces_keep_whole(weir_group *group, size_t bytes) {
  keep(group->own, weir_pieces_whole(group), bytes);
  group->own_end = group->n;
}

weir_status weir_pieces_take_off(weir_group *group) {
  pieces p = {.group = group, .codec = weir_codec_find(group->plan.codec)};
  const unsigned char *own = group->own;
  weir_status status = WEIR_OK;
  for (; p.at < group->own_end && status == WEIR_OK; p.at += p.count) {
    size_t bytes;
    if (p.codec->scales > 0) {
      p.piece = group->layout;
      p.count = group->n;
    } else {
      shape_next(&p);
    }
    memcpy(&bytes, own, sizeof bytes);
    status = p.codec->decode(group->context, own + LENGTH, bytes, &p.piece, group->fed + p.at,
                             WEIR_DECODE_SUBTRACT);
    own += kept_bytes(p.stride);
  }
  const double lost = weir_sum_square(group->fed, group->n);
  group->passage.kept_square = fmax(group->passage.moments.sum_square - lost, 0);
  return status;
}

/* --- pieces ----------------------------------------------------------------------------------- */

static weir_status encode(pieces *p, unsigned char *message) {
  weir_group *group = p->group;
  const weir_engine *engine = group->engine;
  size_t *bytes = &group->block_bytes[engine->rank];
  if (p->codec->scales > 0) {
    *bytes = weir_cut_next(&p->cut, p->at + p->count, message);
    return WEIR_OK;
  }
  const uint64_t words[4] = {engine->turn, (uint64_t)engine->rank, group->number, p->at};
  const weir_status status =
      p->codec->encode(group->context, group->fed + p->at, &p->piece, group->plan.cr,
                       weir_hash(WEIR_HASH_INIT, words, sizeof words), message, p->stride, bytes);
  if (status != WEIR_OK) return status;
  if (group->velocity != WEIR_VELOCITY_TOLD)
    return p->codec->decode(group->context, message, *bytes, &p->piece, group->fed + p->at,
                            WEIR_DECODE_SUBTRACT);
  keep(group->own + p->kept, message, *bytes);
  p->kept += kept_bytes(p->stride);
  group->own_end = p->at + p->count;
  return WEIR_OK;
}

static weir_status exchange(pieces *p, weir_notes *notes) {
  weir_group *group = p->group;
  weir_engine *engine = group->engine;
  weir_status status = encode(p, p->messages + (size_t)engine->rank * p->stride);
  weir_lap_compress(group);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  status = weir_allgather(engine->config.comm, p->messages, p->stride, group->block_bytes, notes);
  weir_lap_comm(group);
  if (status == WEIR_OK) weir_ag_count(group);
  for (int r = 0; r < engine->size && status == WEIR_OK; r++) {
    status = p->codec->decode(group->context, p->messages + (size_t)r * p->stride,
                              group->block_bytes[r], &p->piece, group->spare + p->at,
                              r == 0 ? WEIR_DECODE_STORE : WEIR_DECODE_ADD);
    if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, r, status);
  }
  weir_lap_compress(group);
  return status;
}

/* Notes go along with the last piece. */
weir_status weir_exchange_pieces(weir_group *group, weir_notes *notes) {
  pieces p = {.group = group, .codec = weir_codec_find(group->plan.codec)};
  weir_status status = WEIR_OK;
  if (p.codec->scales > 0)
    weir_cut_begin(&p.cut, p.codec, weir_pieces_whole(group), &group->layout);
  for (; p.at < group->n && status == WEIR_OK; p.at += p.count) {
    next(&p);
    status = exchange(&p, p.at + p.count == group->n ? notes : NULL);
  }
  if (status != WEIR_OK) return status;
  group->passage.sum = group->spare;
  if (group->velocity == WEIR_VELOCITY_TOLD) return WEIR_OK;
  const double lost = weir_sum_square(group->fed, group->n);
  group->passage.kept_square = fmax(group->passage.moments.sum_square - lost, 0);
  return WEIR_OK;
}
