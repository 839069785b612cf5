/* Low rank in the engine: powersgd's two sums, bilateral's one, and what both carry from step to
 * step. */
#ifndef WEIR_ENGINE_LOWRANK_H
#define WEIR_ENGINE_LOWRANK_H

#include "engine/state.h"
#include "kernels/powersgd.h"

size_t weir_lowrank_rank(const weir_bucket *bucket);
/* How many floats travel, *first_sum of them at first. */
size_t weir_lowrank_floats(const weir_bucket *bucket, size_t *first_sum);
/* The bucket's tensor number i, after the one in *t; start with a zeroed *t. */
void weir_lowrank_tensor(const weir_bucket *bucket, size_t i, weir_thin *t);

/* Is e too large to be multiplied?  All of its matrices stays in the residuals then. */
bool weir_lowrank_too_large(const weir_bucket *bucket);
/* May what was summed say what is not finite? */
bool weir_lowrank_is_large(const weir_bucket *bucket);
/* A sum of `count` of bucket->value's floats at `from`; rounded, what it loses on this rank is at
 * the same place of bucket->error. */
weir_status weir_lowrank_sum(weir_bucket *bucket, size_t from, size_t count, weir_headers *headers);

/* bilateral (bilateral.c): this rank's products, before the one sum; the sum, and what it has sent
 * of this rank's products taken off e; and in place of P and R, once they have come in, the next
 * step's B and Q. */
weir_status weir_bilateral_project(weir_bucket *bucket);
weir_status weir_bilateral_exchange(weir_bucket *bucket, weir_headers *headers);
void weir_bilateral_advance(weir_bucket *bucket, const weir_thin *t);

/* Of rounded sums, when the second is through: what this rank's Q has sent is taken off e. */
weir_status weir_lowrank_take_off(weir_bucket *bucket);

/* Where to start from: shapes at the engine's creation; room for a plan's rank, new columns drawn;
 * what a step that counts leaves to the next. */
size_t weir_warm_width(size_t rows, size_t numel); /* floats of a tensor in each column */
weir_status weir_warm_shape(weir_engine *engine, const size_t *rows);
weir_status weir_warm_reserve(weir_engine *engine, size_t rank);
void weir_warm_draw(weir_warm *warm, size_t from); /* columns `from` on, as for the first time */
void weir_warm_age(weir_engine *engine);           /* another plan is about to be adopted */
bool weir_warm_there(const weir_bucket *bucket);   /* is there a B for all of its rank? */
/* Column k of a matrix, from that element on. */
const float *weir_warm_column(const weir_warm *warm, const weir_thin *t, size_t k, size_t from);
void weir_warm_commit(weir_bucket *bucket);
void weir_warm_release(weir_warm *warm);

#endif
