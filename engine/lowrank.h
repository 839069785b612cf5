/* Low rank in the engine: powersgd's two sums, and the columns that it carries from step to step.
 */
#ifndef WEIR_ENGINE_LOWRANK_H
#define WEIR_ENGINE_LOWRANK_H

#include "engine/state.h"
#include "kernels/powersgd.h"

/* What the dense exchange does with it; floats: how many travel, *first_sum of them at first. */
size_t weir_lowrank_floats(const weir_group *group, size_t *first_sum);
weir_status weir_prepare_lowrank(weir_group *group);
weir_status weir_exchange_lowrank(weir_group *group, const weir_allreduce *allreduce,
                                  weir_notes *notes);
weir_status weir_publish_lowrank(weir_group *group, float share); /* or dense */
/* Its parts.  The group's tensor number i, after the one in *t; start with a zeroed *t. */
void weir_lowrank_tensor(const weir_group *group, size_t i, weir_thin *t);
/* Is this rank's e too large to be projected?  P is NaN then, and no column finite on any rank. */
bool weir_lowrank_spoilt(const weir_group *group, const weir_thin *t);
/* The sum of what travels first. */
weir_status weir_lowrank_sum_first(weir_group *group, const weir_allreduce *allreduce);
/* With both sums known: may what they say not be finite? */
bool weir_lowrank_is_large(const weir_group *group);

/* Where to start from: shapes at the engine's creation; room for a plan's rank, new columns drawn;
 * what a step that counts leaves to the next. */
weir_status weir_warm_shape(weir_engine *engine, const size_t *rows);
weir_status weir_warm_reserve(weir_engine *engine, size_t rank);
void weir_warm_draw(weir_warm *warm, size_t from); /* columns `from` on, as for the first time */
void weir_warm_commit(weir_group *group);
void weir_warm_release(weir_warm *warm);

#endif
