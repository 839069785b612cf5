/* Low rank through two all-reduces (kernels/powersgd.c has the method): first P of every matrix and
 * all that travels whole, then Q of every matrix.  A group's value buffer holds what travels,
 *
 *   for each tensor, P (rank columns of `rows` elements) or the whole tensor; first_sum floats
 *   for each matrix, Q (rank columns of `columns` elements)
 *
 * and fed becomes the residual: each rank takes off what its own projection sends. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/lowrank.h"

/* --- walking over a group's tensors ----------------------------------------------------------- */

static size_t rank_of(const weir_group *group) { return weir_powersgd_rank(group->plan.cr); }

void weir_lowrank_tensor(const weir_group *group, size_t i, weir_thin *t) {
  const size_t rank = rank_of(group);
  if (i > 0) {
    t->p += t->whole ? t->n : rank * t->rows;
    t->q += t->whole ? 0 : rank * t->columns;
  } else {
    t->q = group->first_sum;
  }
  t->tensor = group->first + i;
  t->at = group->layout.offset[i];
  t->n = group->layout.offset[i + 1] - t->at;
  t->rows = group->engine->warm.rows[t->tensor];
  t->columns = t->n / t->rows;
  t->whole = !weir_powersgd_thins(t->rows, t->n, rank);
}

size_t weir_lowrank_floats(const weir_group *group, size_t *first_sum) {
  const size_t rank = rank_of(group);
  size_t first = 0, second = 0;
  weir_thin t = {0};
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    first += t.whole ? t.n : rank * t.rows;
    second += t.whole ? 0 : rank * t.columns;
  }
  *first_sum = first;
  return first + second;
}

/* --- the exchange ----------------------------------------------------------------------------- */

/* All of it stays in the residuals. */
bool weir_lowrank_spoilt(const weir_group *group, const weir_thin *t) {
  if (sqrt(group->passage.moments.sum_square) <= WEIR_POWERSGD_LIMIT) return false;
  for (size_t i = 0; i < rank_of(group) * t->rows; i++) group->value[t->p + i] = NAN;
  return true;
}

static void project(weir_group *group, const weir_thin *t) {
  const weir_warm *warm = &group->engine->warm;
  float *const p = group->value + t->p;
  const size_t rank = rank_of(group);
  if (weir_lowrank_spoilt(group, t)) return;
  weir_powersgd_project(group->fed + t->at, t->rows, t->columns, warm->q + warm->at[t->tensor],
                        warm->columns, rank, p);
}

weir_status weir_prepare_lowrank(weir_group *group) {
  weir_thin t = {0};
  if (group->whole) { /* a dense sum */
    group->passage.kept_square = group->passage.moments.sum_square;
    group->passage.sum = group->fed;
    return WEIR_OK;
  }
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    if (!t.whole) {
      project(group, &t);
    } else if (t.n > 0) {
      memcpy(group->value + t.p, group->fed + t.at, t.n * sizeof(float));
      memset(group->fed + t.at, 0, t.n * sizeof(float));
    }
  }
  return WEIR_OK;
}

/* Between the two sums: the common columns, this rank's Q, and its residual. */
static void project_back(weir_group *group) {
  const size_t rank = rank_of(group);
  weir_thin t = {0};
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    if (t.whole) continue;
    float *const p = group->value + t.p, *const q = group->value + t.q,
                 *const m = group->fed + t.at;
    weir_powersgd_orthogonalise(p, t.rows, rank);
    weir_powersgd_project_back(m, t.rows, t.columns, p, rank, q);
    weir_powersgd_expand(p, t.rows, q, t.columns, rank, m, true);
  }
  const double left = weir_sum_square(group->fed, group->n);
  group->passage.kept_square = fmax(group->passage.moments.sum_square - left, 0);
}

static void expand(const weir_group *group, const weir_thin *t, float *to) {
  if (!t->whole)
    weir_powersgd_expand(group->value + t->p, t->rows, group->value + t->q, t->columns,
                         rank_of(group), to, false);
  else if (t->n > 0)
    memcpy(to, group->value + t->p, t->n * sizeof *to);
}

/* P's columns have length 1, so that no element of P Q^T is larger than Q's largest times their
 * number. */
bool weir_lowrank_is_large(const weir_group *group) {
  float most = 0;
  bool finite = true;
  for (size_t i = 0; i < group->kept; i++) {
    const float size = fabsf(group->value[i]);
    finite = finite && size <= FLT_MAX;
    most = size > most ? size : most;
  }
  return !finite || (double)most * (double)rank_of(group) > (double)FLT_MAX / 2;
}

/* What there is now to be published. */
static void conclude(weir_group *group) {
  weir_thin t = {0};
  group->passage.next = group->fed;
  if (group->late) {
    group->overflow = weir_lowrank_is_large(group);
    return;
  }
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    expand(group, &t, group->spare + t.at);
  }
  group->passage.sum = group->spare;
}

weir_status weir_publish_lowrank(weir_group *group, float share) {
  if (!group->late) return weir_residual_publish(group, share);
  weir_thin t = {0};
  group->old = WEIR_OLD_IN_PLACE;
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    expand(group, &t, group->engine->submitted[t.tensor]);
    weir_scale(group->engine->submitted[t.tensor], t.n, share);
  }
  return WEIR_OK;
}

/* An all-reduce may take as much memory again: what travels whole and is long goes in parts. */
weir_status weir_lowrank_sum_first(weir_group *group, const weir_allreduce *allreduce) {
  enum { LEAST = 8192 };
  const size_t left = group->n - group->kept, part = left > LEAST ? left : LEAST;
  weir_status status = WEIR_OK;
  for (size_t at = 0; status == WEIR_OK && (at == 0 || at < group->first_sum); at += part) {
    const size_t rest = group->first_sum - at;
    status = allreduce->run(group->engine->config.comm, group->value + at,
                            rest < part ? rest : part, WEIR_VALUE_FP32, NULL, NULL);
  }
  return status;
}

weir_status weir_exchange_lowrank(weir_group *group, const weir_allreduce *allreduce,
                                  weir_notes *notes) {
  weir_comm *comm = group->engine->config.comm;
  const size_t first = group->first_sum;
  weir_status status = WEIR_OK;
  if (group->whole)
    status = allreduce->run(comm, group->fed, group->n, WEIR_VALUE_FP32, NULL, notes);
  else
    status = weir_lowrank_sum_first(group, allreduce);
  weir_lap_comm(group);
  if (status != WEIR_OK || group->whole) return status;
  project_back(group);
  weir_lap_compress(group);
  status =
      allreduce->run(comm, group->value + first, group->kept - first, WEIR_VALUE_FP32, NULL, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  conclude(group);
  weir_lap_compress(group);
  return WEIR_OK;
}

/* --- where the next step starts from ---------------------------------------------------------- */

weir_status weir_warm_shape(weir_engine *engine, const size_t *rows) {
  weir_warm *warm = &engine->warm;
  const weir_layout *layout = &engine->layout;
  warm->at = calloc(layout->tensors + 1, sizeof *warm->at);
  warm->rows = calloc(layout->tensors + 1, sizeof *warm->rows);
  if (warm->at == NULL || warm->rows == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for the shapes of %zu tensors", layout->tensors);
  for (size_t t = 0; t < layout->tensors; t++) {
    const size_t n = layout->offset[t + 1] - layout->offset[t];
    warm->rows[t] = rows != NULL && rows[t] > 1 ? rows[t] : 1;
    if (n % warm->rows[t] != 0)
      return weir_fail(WEIR_E_INVALID, "tensor %zu of %zu elements does not have %zu rows", t, n,
                       warm->rows[t]);
    warm->at[t] = warm->columns;
    if (warm->rows[t] > 1) warm->columns += n / warm->rows[t];
  }
  warm->at[layout->tensors] = warm->columns;
  return WEIR_OK;
}

static uint64_t seed_of(size_t column, uint64_t turn) {
  const uint64_t words[2] = {column, turn};
  return weir_hash(WEIR_HASH_INIT, words, sizeof words);
}

void weir_warm_draw(weir_warm *warm, size_t from) {
  for (size_t k = from; k < warm->rank; k++)
    weir_powersgd_draw(warm->q + k * warm->columns, warm->columns, seed_of(k, 0));
}

weir_status weir_warm_reserve(weir_engine *engine, size_t rank) {
  weir_warm *warm = &engine->warm;
  if (rank <= warm->rank) return WEIR_OK;
  size_t count, bytes;
  float *q = NULL;
  if (!__builtin_mul_overflow(rank, warm->columns, &count) &&
      !__builtin_mul_overflow(count, sizeof *q, &bytes))
    q = realloc(warm->q, bytes > 0 ? bytes : 1);
  if (q == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu columns of low rank", rank);
  const size_t from = warm->rank;
  warm->q = q;
  warm->rank = rank;
  weir_warm_draw(warm, from);
  return WEIR_OK;
}

void weir_warm_commit(weir_group *group) {
  const weir_warm *warm = &group->engine->warm;
  if (!weir_codec_find(group->plan.codec)->low_rank || group->whole) return;
  weir_thin t = {0};
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    for (size_t k = 0; k < rank_of(group) && !t.whole; k++) {
      const size_t at = k * warm->columns + warm->at[t.tensor];
      if (!weir_powersgd_normalise(group->value + t.q + k * t.columns, t.columns, warm->q + at))
        weir_powersgd_draw(warm->q + at, t.columns, seed_of(at, group->engine->turn + 1));
    }
  }
}

void weir_warm_release(weir_warm *warm) {
  free(warm->rows);
  free(warm->at);
  free(warm->q);
}
