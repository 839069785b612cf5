/* Low rank through one all-reduce (kernels/bilateral.c has the method).  A bucket's value buffer
 * holds what travels, as powersgd's does (lowrank.c),
 *
 *   for each tensor, P or the whole tensor, and for each matrix, R
 *
 * and behind it, for each matrix, the two factors of what all ranks take of it:
 *
 *   left   B and P, of `rows` elements      right   R and Q, of `columns` elements
 *
 * In these P and R are this rank's own until its e has become the residual, and then the sums. */
#include "kernels/bilateral.h"

#include <math.h>
#include <string.h>

#include "base/schemes.h"
#include "engine/backend.h"
#include "engine/host.h"
#include "engine/lowrank.h"
#include "kernels/internal.h"

/* A matrix' four parts of its two factors. */
typedef struct sides {
  float *b, *p, *r, *q;
  size_t p_bytes, r_bytes;
} sides;

static sides sides_of(const weir_bucket *bucket, const weir_thin *t) {
  const size_t rank = weir_lowrank_rank(bucket);
  float *const left = bucket->value + t->left, *const right = bucket->value + t->right;
  return (sides){.b = left,
                 .p = left + rank * t->rows,
                 .r = right,
                 .q = right + rank * t->columns,
                 .p_bytes = rank * t->rows * sizeof(float),
                 .r_bytes = rank * t->columns * sizeof(float)};
}

/* --- before the sum --------------------------------------------------------------------------- */

/* All ranks have the same columns and make the same of them. */
static void take_columns(const weir_bucket *bucket, const weir_thin *t, const sides *s) {
  const weir_warm *warm = &bucket->engine->warm;
  const size_t rank = weir_lowrank_rank(bucket);
  for (size_t k = 0; k < rank; k++) {
    memcpy(s->q + k * t->columns, weir_warm_column(warm, t, k, 0), t->columns * sizeof(float));
    memcpy(s->b + k * t->rows, weir_warm_column(warm, t, k, t->columns), t->rows * sizeof(float));
  }
  weir_powersgd_orthogonalise(s->q, t->columns, rank);
  weir_powersgd_orthogonalise(s->b, t->rows, rank);
}

/* e -= B R^T + P Q^T */
static void take_off(const weir_bucket *bucket, const weir_thin *t) {
  weir_powersgd_expand(bucket->value + t->left, t->rows, bucket->value + t->right, t->columns,
                       t->width, bucket->fed + t->at, true);
}

static void project(const weir_bucket *bucket, const weir_thin *t, bool large) {
  const size_t rank = weir_lowrank_rank(bucket);
  const float *const e = bucket->fed + t->at;
  const sides s = sides_of(bucket, t);
  take_columns(bucket, t, &s);
  if (large) {
    memset(s.p, 0, s.p_bytes);
    memset(s.r, 0, s.r_bytes);
  } else {
    weir_powersgd_project(e, t->rows, t->columns, s.q, t->columns, rank, s.p);
    weir_powersgd_project_back(e, t->rows, t->columns, s.b, rank, s.r);
    weir_bilateral_beside(s.b, t->rows, rank, s.p);
  }
  memcpy(bucket->value + t->p, s.p, s.p_bytes);
  memcpy(bucket->value + t->q, s.r, s.r_bytes);
}

static void tell_kept(weir_bucket *bucket) {
  const double left = weir_sum_square(bucket->fed, bucket->n);
  bucket->passage.kept_square = fmax(bucket->passage.moments.sum_square - left, 0);
}

/* Where sums are exact, what is sent is known already. */
weir_status weir_bilateral_project(weir_bucket *bucket) {
  const bool large = weir_lowrank_too_large(bucket), exact = bucket->error == NULL;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    float *const e = bucket->fed + t.at;
    if (!t.whole) {
      project(bucket, &t, large);
      if (exact) take_off(bucket, &t);
    } else if (t.n > 0) {
      memcpy(bucket->value + t.p, e, t.n * sizeof *e);
      memset(e, 0, t.n * sizeof *e);
    }
  }
  if (exact) tell_kept(bucket);
  return WEIR_OK;
}

/* --- and after it ----------------------------------------------------------------------------- */

static void subtract(float *x, const float *lost, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] -= lost[i];
}

/* What rounding has lost was not sent. */
static void settle(weir_bucket *bucket) {
  const size_t rank = weir_lowrank_rank(bucket);
  const float *const error = bucket->error;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    if (t.whole) {
      if (t.n > 0) memcpy(bucket->fed + t.at, error + t.p, t.n * sizeof *error);
      continue;
    }
    const sides s = sides_of(bucket, &t);
    subtract(s.p, error + t.p, rank * t.rows);
    subtract(s.r, error + t.q, rank * t.columns);
    take_off(bucket, &t);
  }
  tell_kept(bucket);
}

static void take_sums(const weir_bucket *bucket) {
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    if (t.whole) continue;
    const sides s = sides_of(bucket, &t);
    memcpy(s.p, bucket->value + t.p, s.p_bytes);
    memcpy(s.r, bucket->value + t.q, s.r_bytes);
  }
}

weir_status weir_bilateral_exchange(weir_bucket *bucket, weir_headers *headers) {
  const weir_status status = weir_lowrank_sum(bucket, 0, bucket->kept, headers);
  if (status != WEIR_OK) return status;
  if (bucket->error != NULL) settle(bucket);
  take_sums(bucket);
  bucket->overflow = weir_lowrank_is_large(bucket);
  bucket->settled = true;
  weir_lap_compress(bucket);
  return WEIR_OK;
}

/* P and R lie where they came in until here. */
void weir_bilateral_advance(weir_bucket *bucket, const weir_thin *t) {
  const size_t rank = weir_lowrank_rank(bucket);
  const float *const left = bucket->value + t->left, *const right = bucket->value + t->right;
  float *const p = bucket->value + t->p, *const q = bucket->value + t->q;
  weir_powersgd_orthogonalise(q, t->columns, rank);
  weir_bilateral_times(left, t->rows, right, t->columns, t->width, q, rank, p);
  weir_powersgd_orthogonalise(p, t->rows, rank);
  weir_bilateral_times(right, t->columns, left, t->rows, t->width, p, rank, q);
}
