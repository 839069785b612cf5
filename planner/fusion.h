/* Tensor fusion: which consecutive tensors are compressed and sent together.
 *
 * Model ("Cupcake", equations 1-3).  Tensors 0..n-1 in backward order.  Backward and compression
 * share the compute stream; a bucket is compressed as soon as its last gradient is ready, before
 * the backward pass goes on.  Communication is one FIFO stream.  For bucket k = tensors [i, j):
 *
 *   C_k = gaps(0..j) + sum over buckets up to k of compress(bytes)   compression of k is done
 *   E_k = max(C_k, E_{k-1}) + communicate(bytes)                    communication of k is done
 *
 * The iteration time is E of the last bucket: from the begin of the backward pass, every tensor's
 * gap included, forward pass and decoding not.  bytes are dense fp32 bytes of the bucket; both
 * curves are functions of them, so that what is sent after compression is the curve's business.
 *
 * All of it is plain computation on the caller's thread; results belong to the caller. */
#ifndef WEIR_PLANNER_FUSION_H
#define WEIR_PLANNER_FUSION_H

#include <stddef.h>

#include "planner/curve.h"
#include "planner/profile.h"

typedef struct weir_fusion {
  size_t buckets;
  size_t *end; /* of each bucket: one past its last tensor; ascending, end[buckets - 1] = n */
  double iteration_s;
  double least_s; /* proven: no fusion is below it.  Solvers only; iteration_s when exact */
} weir_fusion;

void weir_fusion_free(weir_fusion *fusion);

/* The iteration time of the given ends, by the recurrence above. */
double weir_fusion_evaluate(const weir_profile *profile, const weir_curve *compress,
                            const weir_curve *communicate, const size_t *end, size_t buckets);

/* The optimum.  Affine curves: weir_fusion_affine; any other: weir_fusion_labels.
 * WEIR_E_INVALID for curves that fail weir_curve_check or give no finite time, WEIR_E_NOMEM,
 * WEIR_E_CAPACITY. */
weir_status weir_fusion_solve(const weir_profile *profile, const weir_curve *compress,
                              const weir_curve *communicate, weir_fusion *best);

/* Exact for affine curves, O(n^2) at worst.  With h = a + b x, g = c + d x and m buckets,
 *
 *   E_last = (m + 1) c + max over buckets t = 1..m, [i, j), of P(j) + R(i) + t (a - c)
 *   P(j) = gaps(0..j) + b bytes(0..j), not descending;  R(i) = d bytes(i..n), not ascending.
 *
 * So whether m buckets can end by T is answered by taking each bucket as long as its own term
 * allows (leaving one tensor for each later bucket): the furthest reach is best for the next bucket
 * too, as R does not ascend.  One such walk is O(n).  The counts m are tried in random order, a
 * count is searched by bisection only when it beats the best time so far, which is expected to
 * happen O(log n) times. */
weir_status weir_fusion_affine(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, weir_fusion *best);

/* Exact for any curves that never descend: weir_solve (planner/solve.h) with a single row.  The
 * number of partial fusions it keeps has no polynomial bound: after `work` steps (0:
 * WEIR_FUSION_WORK, about a second) the search ends with the best fusion known, and least_s <
 * iteration_s says how far from the optimum it may be.  WEIR_E_CAPACITY for more than
 * WEIR_FUSION_LABEL_TENSORS tensors. */
enum { WEIR_FUSION_WORK = 1 << 24, WEIR_FUSION_LABEL_TENSORS = 4000 };
weir_status weir_fusion_labels(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, size_t work, weir_fusion *best);

/* Baselines, in the order they are reported.  Layer-wise: every tensor alone.  Bucket: a bucket is
 * closed once it holds at least that many bytes.  Even: buckets whose numbers of tensors differ by
 * at most one. */
typedef struct weir_fusion_baseline {
  const char *name;
  double bucket_bytes; /* > 0: bucket */
  size_t buckets;      /* > 0: even, at most the number of tensors; both 0: layer-wise */
} weir_fusion_baseline;
extern const weir_fusion_baseline weir_fusion_baselines[];
extern const size_t weir_fusion_baseline_count;
weir_status weir_fusion_run_baseline(const weir_fusion_baseline *baseline,
                                     const weir_profile *profile, const weir_curve *compress,
                                     const weir_curve *communicate, weir_fusion *fusion);

#endif
