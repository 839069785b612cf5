/* A gradient's elements as they travel: fp32 from and to their place, bf16 through a staging
 * buffer. */
#ifndef WEIR_ALGORITHMS_VALUES_H
#define WEIR_ALGORITHMS_VALUES_H

#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

typedef struct weir_values {
  float *x;
  float *error; /* may be NULL */
  bool bf16;
  size_t width; /* bytes of an element on the wire */
} weir_values;

weir_values weir_values_of(float *x, float *error, weir_value_format format);

/* What to send of a chunk that is a partial sum: rounding is charged to `error`. */
const void *weir_values_partial(const weir_values *v, weir_chunk chunk, void *staging);
/* Round a complete sum to what will travel, in place. */
void weir_values_settle(const weir_values *v, weir_chunk chunk, void *staging);
/* What to send of a chunk that has been settled or received: exact. */
const void *weir_values_settled(const weir_values *v, weir_chunk chunk, void *staging);

/* x += what came in. */
void weir_values_add(const weir_values *v, weir_chunk chunk, const void *from);
/* Where a settled chunk shall be received, and what to do when it has been. */
void *weir_values_place(const weir_values *v, weir_chunk chunk, void *staging);
void weir_values_received(const weir_values *v, weir_chunk chunk, const void *staging);

/* --- without staging --------------------------------------------------------------------------- *
 *
 * A chunk that has been packed holds its values as they travel, at the front of its own memory;
 * where x is fp32 these are its values, and nothing has to be done. */

/* What to send of a partial sum, or of a complete one before it is sent for the first time, in its
 * own place: rounding is charged to `error`. */
const void *weir_values_pack(const weir_values *v, weir_chunk chunk);
/* The same of what has been settled or received: exact. */
const void *weir_values_pack_settled(const weir_values *v, weir_chunk chunk);
/* From what lies packed in a chunk's place, its values. */
void weir_values_unpack(const weir_values *v, weir_chunk chunk);
/* Room for what comes in to be added to a chunk that has not been charged yet: its part of error[],
 * which weir_values_take adds from and makes zero again; for fp32 scratch. */
void *weir_values_room(const weir_values *v, weir_chunk chunk, void *scratch);
void weir_values_take(const weir_values *v, weir_chunk chunk, void *room);

static inline size_t weir_values_bytes(const weir_values *v, weir_chunk chunk) {
  return chunk.count * v->width;
}

#endif
