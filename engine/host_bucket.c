/* A bucket's way in host memory: compressing it, the parts of its exchange, and its average. */
#include <math.h>
#include <string.h>

#include "engine/average.h"
#include "engine/host.h"
#include "engine/lowrank.h"
#include "kernels/half.h"
#include "kernels/whitened.h"

static float *sum_of(const weir_bucket *bucket) { return bucket->engine->host.sum + bucket->at; }
static const uint16_t *squares_of(const weir_bucket *bucket) {
  return bucket->engine->host.square + bucket->at;
}

/* --- selecting and encoding ------------------------------------------------------------------- */

void weir_host_lend(weir_bucket *bucket) {
  weir_codec_context_lend(bucket->context, sum_of(bucket), bucket->n * sizeof(float));
}

static weir_status select_own(weir_bucket *bucket) {
  size_t k = 0;
  weir_host_lend(bucket);
  const weir_status status =
      bucket->codec->select(bucket->context, bucket->fed, &bucket->layout, bucket->plan.cr,
                            bucket->index, bucket->kept, &k);
  weir_codec_context_lend(bucket->context, NULL, 0);
  return status;
}

/* Momentum that was sent is stale (kernels/decorate.h). */
static void take_out(const weir_bucket *bucket) {
  const weir_host *host = &bucket->engine->host;
  weir_scatter_zero(bucket->fed, bucket->index, bucket->kept);
  if (host->next != NULL) weir_scatter_zero(host->next + bucket->at, bucket->index, bucket->kept);
}

static void keep_back(const weir_bucket *bucket) {
  if (bucket->error == NULL) return;
  weir_scatter_add(bucket->fed, bucket->index, bucket->error, bucket->kept);
}

/* What 16 bits lose of a value stays behind. */
static weir_status send_selection(weir_bucket *bucket) {
  const size_t rank = (size_t)bucket->engine->rank, k = bucket->kept;
  weir_status status = select_own(bucket);
  if (status != WEIR_OK) return status;
  weir_gather(bucket->fed, bucket->index, k, bucket->value);
  bucket->passage.kept_square = weir_sum_square(bucket->value, k);
  if (bucket->error != NULL) memset(bucket->error, 0, k * sizeof(float));
  status =
      weir_wire_encode(bucket->n, bucket->index, bucket->value, k,
                       (weir_wire_format)bucket->plan.wire, bucket->blocks + rank * bucket->stride,
                       bucket->stride, &bucket->block_bytes[rank], bucket->error);
  if (status != WEIR_OK) return status;
  take_out(bucket);
  keep_back(bucket);
  return WEIR_OK;
}

/* A velocity goes on where no gradient comes any more: then e itself says what there is to send. */
static void tell_touched(const weir_bucket *bucket) {
  const weir_engine *engine = bucket->engine;
  const bool known = bucket->codec->touched && engine->host.velocity == NULL;
  weir_codec_context_touched(bucket->context,
                             known ? (const void *const *)engine->submitted + bucket->first : NULL,
                             engine->types + bucket->first);
}

/* Only this rank's own loss, e - decode(its own message), stays behind. */
static weir_status send_encoded(weir_bucket *bucket) {
  const size_t rank = (size_t)bucket->engine->rank;
  unsigned char *const message = bucket->blocks + rank * bucket->stride;
  tell_touched(bucket);
  weir_status status = weir_plan_encode(&bucket->plan, bucket->context, bucket->fed,
                                        &bucket->layout, weir_gather_seed(bucket), message,
                                        bucket->stride, &bucket->block_bytes[rank]);
  if (status == WEIR_OK)
    status = bucket->codec->decode(bucket->context, message, bucket->block_bytes[rank],
                                   &bucket->layout, bucket->fed, WEIR_DECODE_SUBTRACT);
  if (status != WEIR_OK) return status;
  if (bucket->codec->whitened) weir_unwhiten(bucket->fed, squares_of(bucket), bucket->n);
  const double lost = weir_sum_square(bucket->fed, bucket->n);
  bucket->passage.kept_square = fmax(bucket->passage.moments.sum_square - lost, 0);
  return WEIR_OK;
}

/* The list that all ranks take when this one is the root. */
static weir_status make_list(weir_bucket *bucket) {
  bucket->stopwatch->elements += bucket->n;
  const weir_status status = select_own(bucket);
  bucket->listed = true;
  if (status != WEIR_OK) return status;
  return weir_wire_encode(bucket->n, bucket->index, NULL, bucket->kept,
                          (weir_wire_format)bucket->plan.wire, bucket->blocks, bucket->stride,
                          &bucket->block_bytes[bucket->engine->rank], NULL);
}

static weir_status prepare_shared(weir_bucket *bucket) {
  const bool known = !bucket->codec->by_variance;
  if (bucket->codec->draw != NULL) return weir_shared_draw(bucket);
  return known && bucket->engine->rank == weir_shared_root(bucket) ? make_list(bucket) : WEIR_OK;
}

/* --- low rank --------------------------------------------------------------------------------- */

/* P of every matrix; what travels whole leaves nothing behind. */
static weir_status project(weir_bucket *bucket) {
  bucket->at_once = bucket->codec->at_once && weir_warm_there(bucket);
  if (bucket->at_once) return weir_bilateral_project(bucket);
  const weir_warm *warm = &bucket->engine->warm;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    float *const e = bucket->fed + t.at;
    if (!t.whole) {
      weir_powersgd_project(e, t.rows, t.columns, weir_warm_column(warm, &t, 0, 0), warm->width,
                            weir_lowrank_rank(bucket), bucket->value + t.p);
    } else if (t.n > 0) {
      memcpy(bucket->value + t.p, e, t.n * sizeof *e);
      memset(e, 0, t.n * sizeof *e);
    }
  }
  return WEIR_OK;
}

static void tell_kept(weir_bucket *bucket) {
  const double left = weir_sum_square(bucket->fed, bucket->n);
  bucket->passage.kept_square = fmax(bucket->passage.moments.sum_square - left, 0);
}

weir_status weir_host_project_back(weir_bucket *bucket) {
  const size_t rank = weir_lowrank_rank(bucket);
  const bool rounded = bucket->error != NULL;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    float *const p = bucket->value + t.p, *const q = bucket->value + t.q,
                 *const e = bucket->fed + t.at;
    if (!t.whole) weir_powersgd_project_back(e, t.rows, t.columns, p, rank, q);
    if (t.whole && rounded) memcpy(e, bucket->error + t.p, t.n * sizeof *e);
    if (!t.whole && !rounded) weir_powersgd_expand(p, t.rows, q, t.columns, rank, e, true);
  }
  if (!rounded) tell_kept(bucket);
  return WEIR_OK;
}

weir_status weir_host_take_off(weir_bucket *bucket, const float *q) {
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    if (!t.whole)
      weir_powersgd_expand(bucket->value + t.p, t.rows, q + (t.q - bucket->first_sum), t.columns,
                           weir_lowrank_rank(bucket), bucket->fed + t.at, true);
  }
  tell_kept(bucket);
  return WEIR_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* A compressed all-reduce encodes in its hops, which is counted here. */
weir_status weir_host_compress(weir_bucket *bucket) {
  if (bucket->scheme == WEIR_SCHEME_SHARED) return prepare_shared(bucket);
  if (!bucket->whole) bucket->stopwatch->elements += bucket->n;
  if (bucket->thin) return project(bucket);
  if (bucket->codec->whitened) weir_whiten(bucket->fed, squares_of(bucket), bucket->n);
  if (bucket->scheme == WEIR_SCHEME_PATH) return weir_path_prepare(bucket);
  if (bucket->scheme == WEIR_SCHEME_GATHER)
    return bucket->codec->encode != NULL ? send_encoded(bucket) : send_selection(bucket);
  if (bucket->whole && bucket->lost != NULL) memset(bucket->lost, 0, bucket->n * sizeof(float));
  bucket->passage.kept_square = bucket->passage.moments.sum_square;
  return WEIR_OK;
}

/* --- the exchange ----------------------------------------------------------------------------- */

/* Our own message too is decoded from its bytes: every rank adds the same values. */
weir_status weir_host_add(weir_bucket *bucket, int rank) {
  const unsigned char *const message = bucket->blocks + (size_t)rank * bucket->stride;
  const size_t bytes = bucket->block_bytes[rank];
  float *const sum = sum_of(bucket);
  const weir_status status =
      bucket->codec->encode != NULL
          ? bucket->codec->decode(bucket->context, message, bytes, &bucket->layout, sum,
                                  rank == 0 ? WEIR_DECODE_STORE : WEIR_DECODE_ADD)
      : rank == 0 ? weir_wire_decode_dense(bucket->context, message, bytes, bucket->n, sum)
                  : weir_wire_decode_add(bucket->context, message, bytes, bucket->n, sum);
  return status == WEIR_OK ? weir_gather_due(bucket, message) : status;
}

weir_status weir_host_list(weir_bucket *bucket, size_t *bytes) {
  const weir_status status = bucket->listed ? WEIR_OK : make_list(bucket);
  *bytes = bucket->block_bytes[bucket->engine->rank];
  return status;
}

weir_status weir_host_fetch(weir_bucket *bucket) {
  weir_gather(bucket->fed, bucket->index, bucket->kept, bucket->value);
  return WEIR_OK;
}

/* The sum is published from the list. */
weir_status weir_host_settle(weir_bucket *bucket, const float *value) {
  (void)value;
  take_out(bucket);
  keep_back(bucket);
  return WEIR_OK;
}

/* --- publishing ------------------------------------------------------------------------------- */

/* Elements that are rounded at a time, and the columns of a matrix that are expanded so. */
#define BLOCK ((size_t)4096)
#define STRIP ((size_t)128)

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* One pass over memory, which digests as well; the first of the n stands at `place` of the
 * gradient. An exponent of all ones, which numbers that are not finite have, becomes the sign when
 * one is added to it. */
static bool scale_to(float *restrict to, const float *restrict sum, size_t n, float share,
                     size_t place, uint32_t *average) {
  uint32_t carry = 0, digest = 0;
  for (size_t i = 0; i < n; i++) {
    const float x = sum[i] * share;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    carry |= (bits & UINT32_C(0x7f800000)) + UINT32_C(0x00800000);
    digest += weir_average_term(x, place + i);
    to[i] = x;
  }
  *average += digest;
  return (carry & UINT32_C(0x80000000)) == 0;
}

/* The same of at most BLOCK elements, rounded once to 16 bits. */
static bool round_block(unsigned type, uint16_t *to, const float *sum, size_t n, float share) {
  float x[BLOCK];
  for (size_t i = 0; i < n; i++) x[i] = sum[i] * share;
  return weir_narrow(type, x, n, to);
}

static bool round_to(unsigned type, uint16_t *to, const float *sum, size_t n, float share,
                     size_t place, uint32_t *average) {
  bool finite = true;
  uint32_t digest = 0;
  for (size_t at = 0; at < n; at += BLOCK) {
    const size_t count = least(n - at, BLOCK);
    finite = round_block(type, to + at, sum + at, count, share) && finite;
    for (size_t i = at; i < at + count; i++) digest += weir_average_half_term(to[i], place + i);
  }
  *average += digest;
  return finite;
}

/* Elements from `from` on of tensor t (of the engine) become share times what is summed; false: the
 * average is not finite, or would not be in the tensor's type. */
static bool publish_run(weir_bucket *bucket, size_t t, size_t from, const float *sum, size_t n,
                        float share) {
  const weir_engine *engine = bucket->engine;
  const unsigned type = engine->types[t];
  const size_t place = engine->layout.offset[t] + from;
  if (type == WEIR_FP32)
    return scale_to((float *)engine->submitted[t] + from, sum, n, share, place, &bucket->average);
  return round_to(type, (uint16_t *)engine->submitted[t] + from, sum, n, share, place,
                  &bucket->average);
}

/* The listed elements [from, end) are those of a tensor that begins at `offset` of the bucket. */
static void scatter(weir_bucket *bucket, float *to, size_t offset, size_t from, size_t end,
                    float share) {
  for (size_t i = from; i < end; i++) {
    const float x = bucket->value[i] * share;
    to[bucket->index[i] - offset] = x;
    bucket->average += weir_average_term(x, bucket->at + bucket->index[i]);
  }
}

static bool scatter_half(weir_bucket *bucket, unsigned type, uint16_t *to, size_t offset,
                         size_t from, size_t end, float share) {
  uint16_t half[BLOCK];
  bool finite = true;
  for (size_t at = from; at < end; at += BLOCK) {
    const size_t count = least(end - at, BLOCK);
    finite = round_block(type, half, bucket->value + at, count, share) && finite;
    for (size_t i = 0; i < count; i++) {
      const size_t index = bucket->index[at + i];
      to[index - offset] = half[i];
      bucket->average += weir_average_half_term(half[i], bucket->at + index);
    }
  }
  return finite;
}

static bool publish_shared(weir_bucket *bucket, float share) {
  const weir_engine *engine = bucket->engine;
  const size_t *offset = bucket->layout.offset;
  bool finite = true;
  for (size_t t = 0, i = 0; t < bucket->layout.tensors; t++) {
    void *const to = engine->submitted[bucket->first + t];
    const unsigned type = engine->types[bucket->first + t];
    const size_t from = i;
    while (i < bucket->kept && bucket->index[i] < offset[t + 1]) i++;
    memset(to, 0, (offset[t + 1] - offset[t]) * weir_type_bytes(type));
    if (type == WEIR_FP32)
      scatter(bucket, to, offset[t], from, i, share);
    else
      finite = scatter_half(bucket, type, to, offset[t], from, i, share) && finite;
  }
  return finite;
}

static void expand(const weir_bucket *bucket, const weir_thin *t, float *to, float share) {
  weir_powersgd_expand(bucket->value + t->left, t->rows, bucket->value + t->right, t->columns,
                       t->width, to, false);
  weir_scale(to, t->n, share);
}

/* A part of a matrix in so many rows and columns: what expanding takes of P and Q, and what it
 * makes. */
typedef struct tile {
  float p[WEIR_POWERSGD_RANK_MAX * (BLOCK / STRIP)], q[WEIR_POWERSGD_RANK_MAX * STRIP];
  float to[BLOCK];
} tile;

/* A matrix of 16 bits has no floats to be expanded to; element by element it is the same. */
static bool expand_half(weir_bucket *bucket, const weir_thin *t, float share) {
  const size_t rank = t->width;
  bool finite = true;
  tile part;
  for (size_t c = 0; c < t->columns; c += STRIP) {
    const size_t columns = least(t->columns - c, STRIP);
    for (size_t k = 0; k < rank; k++)
      memcpy(part.q + k * columns, bucket->value + t->right + k * t->columns + c,
             columns * sizeof(float));
    for (size_t r = 0; r < t->rows; r += BLOCK / STRIP) {
      const size_t rows = least(t->rows - r, BLOCK / STRIP);
      for (size_t k = 0; k < rank; k++)
        memcpy(part.p + k * rows, bucket->value + t->left + k * t->rows + r, rows * sizeof(float));
      weir_powersgd_expand(part.p, rows, part.q, columns, rank, part.to, false);
      for (size_t i = 0; i < rows; i++)
        finite = publish_run(bucket, t->tensor, (r + i) * t->columns + c, part.to + i * columns,
                             columns, share) &&
                 finite;
    }
  }
  return finite;
}

static bool publish_thin(weir_bucket *bucket, float share) {
  const weir_engine *engine = bucket->engine;
  bool finite = true;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    float *const to = engine->submitted[t.tensor];
    if (t.whole) {
      finite = publish_run(bucket, t.tensor, 0, bucket->value + t.p, t.n, share) && finite;
    } else if (engine->types[t.tensor] != WEIR_FP32) {
      finite = expand_half(bucket, &t, share) && finite;
    } else {
      expand(bucket, &t, to, share);
      for (size_t k = 0; k < t.n; k++)
        bucket->average += weir_average_term(to[k], bucket->at + t.at + k);
    }
  }
  return finite;
}

static bool publish_sum(weir_bucket *bucket, float share) {
  const size_t *offset = bucket->layout.offset;
  bool finite = true;
  for (size_t t = 0; t < bucket->layout.tensors; t++)
    finite = publish_run(bucket, bucket->first + t, 0, sum_of(bucket) + offset[t],
                         offset[t + 1] - offset[t], share) &&
             finite;
  return finite;
}

/* An average that is not finite, or would not be in 16 bits, is the same on all ranks, and so is
 * that the step is lost. */
weir_status weir_host_publish(weir_bucket *bucket, float share) {
  if (bucket->codec->whitened) weir_unwhiten(sum_of(bucket), squares_of(bucket), bucket->n);
  const bool finite = bucket->scheme == WEIR_SCHEME_SHARED ? publish_shared(bucket, share)
                      : bucket->thin                       ? publish_thin(bucket, share)
                                                           : publish_sum(bucket, share);
  bucket->overflow = !finite;
  return WEIR_OK;
}
