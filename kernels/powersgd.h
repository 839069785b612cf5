/* The low-rank codec's parts; engine/lowrank.c puts them together, because between them
 * lie two all-reduces. */
#ifndef WEIR_KERNELS_POWERSGD_H
#define WEIR_KERNELS_POWERSGD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

#include "kernels/codec.h"

/* A plan's ratio is rank / WEIR_POWERSGD_RANK_MAX. */
size_t weir_powersgd_rank(double cr);

/* Is a tensor of numel elements in rows (1: a vector) sent as two thin matrices?  Only when these
 * are smaller: rank (rows + columns) < rows columns. */
bool weir_powersgd_thins(size_t rows, size_t numel, size_t rank);

/* Floats that tensors in so many rows each come to that way: what travels of them, in both sums. */
size_t weir_powersgd_kept(const weir_layout *layout, const size_t *rows, size_t rank);

/* Where a tensor of a bucket lies, and its parts among the floats that travel: P (rank columns of
 * `rows` elements) or the whole tensor, and Q (rank columns of `columns` elements). */
typedef struct weir_thin {
  bool whole; /* travels as it is */
  size_t tensor;
  size_t at, n; /* elements of the bucket */
  size_t rows, columns;
  size_t p, q; /* q is meaningless when whole */
  /* What of it all ranks take is a product of `width` columns, of `rows` elements at `left` and of
   * `columns` at `right`: P and Q, or what bilateral makes of them behind all that travels. */
  size_t left, right, width;
} weir_thin;

/* Gradients of a larger l2 norm are not projected: so P, Q and P Q^T stay finite. */
#define WEIR_POWERSGD_LIMIT 0x1p100

/* A column to start from: n draws of a normal distribution, the same for the same seed. */
void weir_powersgd_draw(float *q, size_t n, uint64_t seed);

/* P = M Q.  M has rows x columns elements, row after row; column k of Q lies at q + k * stride,
 * column k of P at p + k * rows. */
void weir_powersgd_project(const float *m, size_t rows, size_t columns, const float *q,
                           size_t stride, size_t rank, float *p);
/* Make P's columns orthonormal, in place (modified Gram-Schmidt, twice).  A column that depends on
 * those before it, or is not finite, becomes zero: it then sends nothing. */
void weir_powersgd_orthogonalise(float *p, size_t rows, size_t rank);
/* Q = M^T P; column k of Q lies at q + k * columns. */
void weir_powersgd_project_back(const float *m, size_t rows, size_t columns, const float *p,
                                size_t rank, float *q);
/* to = P Q^T, or to -= P Q^T when subtract; rows x columns elements, rank at most
 * WEIR_POWERSGD_RANK_MAX. */
void weir_powersgd_expand(const float *p, size_t rows, const float *q, size_t columns, size_t rank,
                          float *to, bool subtract);
/* A column of Q as the next step starts from it: of length 1.  False when it has none, being zero
 * or not finite. */
bool weir_powersgd_normalise(const float *q, size_t n, float *to);

#endif
