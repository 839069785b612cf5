/* Fusion and the choice for each bucket decided together: the plan that an engine with three lanes
 * executes, from live costs.
 *
 * Model.  Tensors 0..n-1 in backward order.  A row is one way to compress and exchange a bucket of
 * consecutive tensors.  The caller computes gradients; a bucket's compression runs there once its
 * last gradient is ready (beside = false), or on a thread of its own (beside = true), first come,
 * first served; exchanges follow one another on the wire, in the order of the buckets, decoding
 * included.  For bucket k = tensors [i, j) with a row of curves h (compress) and g (exchange), both
 * of the bucket's dense fp32 bytes:
 *
 *   caller      C += gaps(i..j) + h                 compression of k is done at D = C
 *   thread      C += gaps(i..j)   P = max(P, C) + h compression of k is done at D = P
 *   wire        E  = max(E, D) + g
 *   then        C += s
 *
 * s is what the exchange takes from the caller that computes on beside it: processor time, where
 * the lanes (or all ranks of a machine) share one.  0 where each has its own.
 *
 * The step takes E of the last bucket, from the begin of the backward pass.  With a single row this
 * is the fusion problem of planner/fusion.h; rows without compression make it the choice of what to
 * compress ("ByteComp", section 4.4) and of how, so that it holds both papers' decisions.
 *
 * Plain computation on the caller's thread; results belong to the caller. */
#ifndef WEIR_PLANNER_SOLVE_H
#define WEIR_PLANNER_SOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

#include "collectives/cost.h"
#include "planner/curve.h"
#include "planner/profile.h"

enum { WEIR_SOLVE_ROWS = 64, WEIR_SOLVE_TENSORS = 4000 };

typedef struct weir_solve_row {
  weir_curve compress; /* s, before the exchange; curves borrowed */
  weir_curve exchange; /* s on the wire lane, decoding included */
  bool beside;         /* compressed on the thread beside the backward pass */
  double taken_s;      /* s = taken_s + taken_per_byte_s * bytes; both from 0 */
  double taken_per_byte_s;
} weir_solve_row;

typedef struct weir_solve_bucket {
  size_t end;                       /* one past its last tensor; ascending, the last one's is n */
  size_t row;                       /* which of the rows */
  double compressed_s, exchanged_s; /* predicted, from the begin of the backward pass */
} weir_solve_bucket;

typedef struct weir_solution {
  size_t count;
  weir_solve_bucket *bucket;
  double step_s;
  double least_s; /* proven: no division and no choice of rows is below it; step_s when exact */
} weir_solution;

typedef struct weir_solve_limits {
  /* Per tensor, bit r: row r may be used for a bucket that holds it.  NULL: any row.  Borrowed. */
  const uint64_t *allowed;
  /* Steps of search (about 10 ns each) after which the best solution known is returned, with
   * least_s < step_s saying how far from the optimum it may be.  0: WEIR_SOLVE_WORK, 10 to
   * 20 ms.  Bounds come first and are not cut short, as nothing is pruned or proven by a part of
   * them: with affine rows some 400 steps a tensor and row at most, with measured ones half the
   * square of the tensors for each.  With 1000 tensors and 8 affine rows all of it takes 20 ms,
   * with 4000 and 40 about 60. */
  size_t work;
} weir_solve_limits;
enum { WEIR_SOLVE_WORK = 1200000 };

/* limits may be NULL.  The answer is never worse than one bucket, every tensor alone, buckets and
 * even divisions with any single row that is allowed everywhere (weir_fusion_baselines).
 * WEIR_E_INVALID: no rows, more than WEIR_SOLVE_ROWS, a curve that fails weir_curve_check, a share
 * taken from the caller that is negative or not finite, times that add up to no finite one, or a
 * tensor that no row is allowed for (the message names it).  WEIR_E_CAPACITY: more than
 * WEIR_SOLVE_TENSORS tensors.  WEIR_E_NOMEM.  Then *best is empty. */
weir_status weir_solve(const weir_profile *profile, const weir_solve_row *rows, size_t count,
                       const weir_solve_limits *limits, weir_solution *best);
void weir_solution_free(weir_solution *solution);

/* Fill in the times of the buckets, whose ends and rows are given, by the recurrence above; returns
 * the step's. */
double weir_solve_evaluate(const weir_profile *profile, const weir_solve_row *rows,
                           weir_solve_bucket *bucket, size_t count);

/* A row's exchange curve on these links, without decoding: weir_cost_plan_between's terms.  Affine:
 * through the costs of 2^12 and of `bytes` (the whole gradient's, at least 2^14) dense bytes. */
weir_curve weir_solve_exchange(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                               double bytes);

#endif
