/* Low rank through two all-reduces (kernels/powersgd.c has the method): first P of every matrix and
 * all that travels whole, then Q of every matrix.  A bucket's value buffer holds what travels,
 *
 *   for each tensor, P (rank columns of `rows` elements) or the whole tensor; first_sum floats
 *   for each matrix, Q (rank columns of `columns` elements)
 *
 * and e becomes the residual: each rank takes off what its own projection sends.  Where sums are
 * rounded, the error buffer has what each lost at the same places, and behind that this rank's Q,
 * of which only then is known what was sent.  All of this is the host's, also where e is on a
 * device. */
#include "engine/lowrank.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/schemes.h"
#include "engine/backend.h"

/* --- walking over a bucket's tensors ---------------------------------------------------------- */

size_t weir_lowrank_rank(const weir_bucket *bucket) { return weir_powersgd_rank(bucket->plan.cr); }

void weir_lowrank_tensor(const weir_bucket *bucket, size_t i, weir_thin *t) {
  const size_t rank = weir_lowrank_rank(bucket);
  const size_t next = t->whole ? t->left : t->right + t->width * t->columns; /* of bilateral's */
  if (i > 0) {
    t->p += t->whole ? t->n : rank * t->rows;
    t->q += t->whole ? 0 : rank * t->columns;
  } else {
    t->q = bucket->first_sum;
  }
  t->tensor = bucket->first + i;
  t->at = bucket->layout.offset[i];
  t->n = bucket->layout.offset[i + 1] - t->at;
  t->rows = bucket->engine->warm.rows[t->tensor];
  t->columns = t->n / t->rows;
  t->whole = !weir_powersgd_thins(t->rows, t->n, rank);
  t->width = bucket->at_once ? 2 * rank : rank;
  if (!bucket->at_once) {
    t->left = t->p;
    t->right = t->q;
  } else {
    t->left = i > 0 ? next : bucket->kept;
    t->right = t->left + t->width * t->rows;
  }
}

size_t weir_lowrank_floats(const weir_bucket *bucket, size_t *first_sum) {
  const size_t rank = weir_lowrank_rank(bucket);
  size_t first = 0, second = 0;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    first += t.whole ? t.n : rank * t.rows;
    second += t.whole ? 0 : rank * t.columns;
  }
  *first_sum = first;
  return first + second;
}

/* --- the exchange ----------------------------------------------------------------------------- */

bool weir_lowrank_too_large(const weir_bucket *bucket) {
  return !(sqrt(bucket->passage.moments.sum_square) <= WEIR_POWERSGD_LIMIT);
}

/* On all ranks, where P becomes NaN: no column is finite then.  Messages hold numbers, and this
 * rank's matrices send zeros. */
static void spoil(const weir_bucket *bucket) {
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    for (size_t k = 0; k < weir_lowrank_rank(bucket) * t.rows && !t.whole; k++)
      bucket->value[t.p + k] = weir_factors_encoded(&bucket->plan) ? 0.0F : NAN;
  }
}

/* Between the two sums: the common columns, which ranks make alike wherever their gradients are,
 * and this rank's Q, which is zeros where all ranks have columns and its e is too large. */
static weir_status project_back(weir_bucket *bucket, bool large) {
  weir_engine *engine = bucket->engine;
  float *const q = bucket->value + bucket->first_sum;
  const size_t bytes = (bucket->kept - bucket->first_sum) * sizeof *q;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    if (!t.whole)
      weir_powersgd_orthogonalise(bucket->value + t.p, t.rows, weir_lowrank_rank(bucket));
  }
  const weir_status status = engine->backend->project_back(bucket);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  if (large && weir_factors_encoded(&bucket->plan)) memset(q, 0, bytes);
  if (bucket->error != NULL) memcpy(bucket->error + bucket->kept, q, bytes);
  return WEIR_OK;
}

/* One factor of every product has columns of length 1, so that no element is larger than the other
 * factor's largest times their number. */
bool weir_lowrank_is_large(const weir_bucket *bucket) {
  const size_t columns = weir_lowrank_rank(bucket) * (bucket->at_once ? 2 : 1);
  float most = 0;
  bool finite = true;
  for (size_t i = 0; i < bucket->kept; i++) {
    const float size = fabsf(bucket->value[i]);
    finite = finite && size <= FLT_MAX;
    most = size > most ? size : most;
  }
  return !finite || (double)most * (double)columns > (double)FLT_MAX / 2;
}

weir_status weir_lowrank_sum(weir_bucket *bucket, size_t from, size_t count,
                             weir_headers *headers) {
  weir_comm *comm = bucket->engine->config.comm;
  float *const x = bucket->value + from;
  float *const lost = bucket->error != NULL ? bucket->error + from : NULL;
  weir_status status;
  weir_lap_compress(bucket);
  if (weir_factors_encoded(&bucket->plan)) {
    const uint64_t words[3] = {bucket->engine->turn, bucket->number, from};
    weir_coder coder = weir_factor_coder(&bucket->plan);
    coder.context = bucket->context;
    coder.shortened = &bucket->passage.shortened;
    coder.seed = weir_hash(WEIR_HASH_INIT, words, sizeof words);
    status = weir_compressed_of(&bucket->plan)->run(comm, &coder, x, count, lost, headers);
  } else {
    if (lost != NULL) memset(lost, 0, count * sizeof *lost);
    status = weir_sum_run(&bucket->sum, comm, x, count,
                          lost != NULL ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, lost, headers);
  }
  weir_lap_comm(bucket);
  return status;
}

weir_status weir_lowrank_take_off(weir_bucket *bucket) {
  const float *const lost = bucket->error + bucket->first_sum;
  float *const own = bucket->error + bucket->kept;
  for (size_t i = 0; i < bucket->kept - bucket->first_sum; i++) own[i] -= lost[i];
  return bucket->engine->backend->take_off(bucket, own);
}

weir_status weir_exchange_lowrank(weir_bucket *bucket, weir_headers *headers) {
  if (bucket->at_once) return weir_bilateral_exchange(bucket, headers);
  weir_engine *engine = bucket->engine;
  const size_t first = bucket->first_sum;
  const bool large = weir_lowrank_too_large(bucket);
  if (large) spoil(bucket);
  weir_status status = weir_lowrank_sum(bucket, 0, first, NULL);
  if (status == WEIR_OK) status = project_back(bucket, large);
  if (status == WEIR_OK) status = weir_lowrank_sum(bucket, first, bucket->kept - first, headers);
  if (status != WEIR_OK) return status;
  if (bucket->error != NULL) status = weir_lowrank_take_off(bucket);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  bucket->overflow = weir_lowrank_is_large(bucket);
  bucket->settled = true;
  weir_lap_compress(bucket);
  return WEIR_OK;
}

/* --- where the next step starts from ---------------------------------------------------------- */

size_t weir_warm_width(size_t rows, size_t numel) { return rows > 1 ? numel / rows + rows : 0; }

weir_status weir_warm_shape(weir_engine *engine, const size_t *rows) {
  weir_warm *warm = &engine->warm;
  const weir_layout *layout = &engine->layout;
  warm->tensors = layout->tensors;
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
    warm->at[t] = warm->width;
    warm->width += weir_warm_width(warm->rows[t], n);
  }
  warm->at[layout->tensors] = warm->width;
  return WEIR_OK;
}

static uint64_t seed_of(size_t column, uint64_t turn) {
  const uint64_t words[2] = {column, turn};
  return weir_hash(WEIR_HASH_INIT, words, sizeof words);
}

/* Of every matrix the part for Q; there is no B yet. */
static void draw_column(const weir_warm *warm, float *to, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  memset(to, 0, warm->width * sizeof *to);
  for (size_t t = 0; t < warm->tensors; t++)
    for (size_t i = warm->at[t]; i + warm->rows[t] < warm->at[t + 1]; i++)
      to[i] = (float)weir_rng_normal(&rng);
}

void weir_warm_draw(weir_warm *warm, size_t from) {
  for (size_t k = from; k < warm->rank; k++)
    draw_column(warm, warm->values + k * warm->width, seed_of(k, 0));
}

weir_status weir_warm_reserve(weir_engine *engine, size_t rank) {
  weir_warm *warm = &engine->warm;
  if (rank <= warm->rank) return WEIR_OK;
  size_t count, bytes;
  float *values = NULL;
  if (!__builtin_mul_overflow(rank, warm->width, &count) &&
      !__builtin_mul_overflow(count, sizeof *values, &bytes))
    values = realloc(warm->values, bytes > 0 ? bytes : 1);
  if (values == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu columns of low rank", rank);
  const size_t from = warm->rank;
  warm->values = values;
  warm->rank = rank;
  weir_warm_draw(warm, from);
  return WEIR_OK;
}

const float *weir_warm_column(const weir_warm *warm, const weir_thin *t, size_t k, size_t from) {
  return warm->values + k * warm->width + warm->at[t->tensor] + from;
}

/* Under plans of other codecs B lies less and less well, and the first step makes a new one. */
void weir_warm_age(weir_engine *engine) {
  const weir_warm *warm = &engine->warm;
  for (size_t i = 0; i < engine->set.count; i++)
    if (engine->set.bucket[i].thin) return;
  for (size_t k = 0; k < warm->rank; k++)
    for (size_t t = 0; t < warm->tensors; t++)
      if (warm->rows[t] > 1)
        memset(warm->values + k * warm->width + warm->at[t + 1] - warm->rows[t], 0,
               warm->rows[t] * sizeof *warm->values);
}

bool weir_warm_there(const weir_bucket *bucket) {
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    if (t.whole) continue;
    const float *b =
        weir_warm_column(&bucket->engine->warm, &t, weir_lowrank_rank(bucket) - 1, t.columns);
    return weir_sum_square(b, t.rows) > 0.0;
  }
  return true;
}

/* A column that has died, its matrix being of lower rank, is drawn anew. */
static void keep(const weir_bucket *bucket, const float *column, size_t n, size_t at) {
  float *const to = bucket->engine->warm.values + at;
  if (!weir_powersgd_normalise(column, n, to))
    weir_powersgd_draw(to, n, seed_of(at, bucket->engine->turn + 1));
}

void weir_warm_commit(weir_bucket *bucket) {
  const weir_warm *warm = &bucket->engine->warm;
  const size_t rank = weir_lowrank_rank(bucket);
  if (!bucket->thin) return;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    if (t.whole) continue;
    if (bucket->at_once) weir_bilateral_advance(bucket, &t);
    for (size_t k = 0; k < rank; k++) {
      const size_t at = k * warm->width + warm->at[t.tensor];
      keep(bucket, bucket->value + t.q + k * t.columns, t.columns, at);
      keep(bucket, bucket->value + t.p + k * t.rows, t.rows, at + t.columns);
    }
  }
}

void weir_warm_release(weir_warm *warm) {
  free(warm->rows);
  free(warm->at);
  free(warm->values);
}
