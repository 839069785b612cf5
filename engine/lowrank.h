/* Low rank in the engine: powersgd's two sums, and the columns that it carries from step to step.
 */
#ifndef WEIR_ENGINE_LOWRANK_H
#define WEIR_ENGINE_LOWRANK_H

#include "engine/state.h"
#include "kernels/powersgd.h"

size_t weir_lowrank_rank(const weir_bucket *bucket);
/* How many floats travel, *first_sum of them at first. */
size_t weir_lowrank_floats(const weir_bucket *bucket, size_t *first_sum);
/* The bucket's tensor number i, after the one in *t; start with a zeroed *t. */
void weir_lowrank_tensor(const weir_bucket *bucket, size_t i, weir_thin *t);

/* Of rounded sums, when the second is through: what this rank's Q has sent is taken off e. */
weir_status weir_lowrank_take_off(weir_bucket *bucket);

/* Where to start from: shapes at the engine's creation; room for a plan's rank, new columns drawn;
 * what a step that counts leaves to the next. */
weir_status weir_warm_shape(weir_engine *engine, const size_t *rows);
weir_status weir_warm_reserve(weir_engine *engine, size_t rank);
void weir_warm_draw(weir_warm *warm, size_t from); /* columns `from` on, as for the first time */
void weir_warm_commit(weir_bucket *bucket);
void weir_warm_release(weir_warm *warm);

#endif
