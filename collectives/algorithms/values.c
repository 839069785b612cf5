#include "collectives/algorithms/values.h"

#include <string.h>

#include "kernels/codec.h"

weir_values weir_values_of(float *x, float *error, weir_value_format format) {
  const bool bf16 = format == WEIR_VALUE_BF16;
  return (weir_values){x, error, bf16, bf16 ? sizeof(uint16_t) : sizeof(float)};
}

const void *weir_values_partial(const weir_values *v, weir_chunk chunk, void *staging) {
  if (!v->bf16) return v->x + chunk.begin;
  weir_bf16_encode(v->x + chunk.begin, chunk.count, staging,
                   v->error ? v->error + chunk.begin : NULL);
  return staging;
}

void weir_values_settle(const weir_values *v, weir_chunk chunk, void *staging) {
  if (!v->bf16) return;
  (void)weir_values_partial(v, chunk, staging);
  weir_bf16_decode(staging, chunk.count, v->x + chunk.begin);
}

const void *weir_values_settled(const weir_values *v, weir_chunk chunk, void *staging) {
  if (!v->bf16) return v->x + chunk.begin;
  weir_bf16_encode(v->x + chunk.begin, chunk.count, staging, NULL);
  return staging;
}

void weir_values_add(const weir_values *v, weir_chunk chunk, const void *from) {
  if (v->bf16)
    weir_add_bf16(v->x + chunk.begin, from, chunk.count);
  else
    weir_add_fp32(v->x + chunk.begin, from, chunk.count);
}

void *weir_values_place(const weir_values *v, weir_chunk chunk, void *staging) {
  return v->bf16 ? staging : (void *)(v->x + chunk.begin);
}

void weir_values_received(const weir_values *v, weir_chunk chunk, const void *staging) {
  if (v->bf16) weir_bf16_decode(staging, chunk.count, v->x + chunk.begin);
}

enum { PIECE = 1024 }; /* stays in the first-level cache */

static size_t piece_at(weir_chunk chunk, size_t at) {
  return chunk.count - at < PIECE ? chunk.count - at : PIECE;
}

/* Front to back: what is written lies before what is still to be read. */
static const void *pack(const weir_values *v, weir_chunk chunk, float *error) {
  float *const x = v->x + chunk.begin;
  if (!v->bf16) return x;
  uint16_t piece[PIECE];
  for (size_t at = 0; at < chunk.count; at += PIECE) {
    const size_t count = piece_at(chunk, at);
    weir_bf16_encode(x + at, count, piece, error ? error + at : NULL);
    memcpy((unsigned char *)x + at * sizeof *piece, piece, count * sizeof *piece);
  }
  return x;
}

const void *weir_values_pack(const weir_values *v, weir_chunk chunk) {
  return pack(v, chunk, v->error ? v->error + chunk.begin : NULL);
}

const void *weir_values_pack_settled(const weir_values *v, weir_chunk chunk) {
  return pack(v, chunk, NULL);
}

/* Back to front, for the same reason. */
void weir_values_unpack(const weir_values *v, weir_chunk chunk) {
  float *const x = v->x + chunk.begin;
  uint16_t piece[PIECE];
  if (!v->bf16) return;
  for (size_t end = chunk.count; end > 0;) {
    const size_t at = (end - 1) / PIECE * PIECE;
    memcpy(piece, (const unsigned char *)x + at * sizeof *piece, (end - at) * sizeof *piece);
    weir_bf16_decode(piece, end - at, x + at);
    end = at;
  }
}

void *weir_values_room(const weir_values *v, weir_chunk chunk, void *scratch) {
  return v->bf16 ? (void *)(v->error + chunk.begin) : scratch;
}

void weir_values_take(const weir_values *v, weir_chunk chunk, void *room) {
  uint16_t piece[PIECE];
  if (!v->bf16) {
    weir_add_fp32(v->x + chunk.begin, room, chunk.count);
    return;
  }
  for (size_t at = 0; at < chunk.count; at += PIECE) {
    const size_t count = piece_at(chunk, at);
    unsigned char *const from = (unsigned char *)room + at * sizeof *piece;
    memcpy(piece, from, count * sizeof *piece);
    memset(from, 0, count * sizeof *piece);
    weir_add_bf16(v->x + chunk.begin + at, piece, count);
  }
}
