/* A bucket's way over a device, with the device's operations.  Compressing is queued on the
 * caller's stream; await waits for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/device.h"

static weir_status status_of(const weir_bucket *bucket, weir_status status) {
  return weir_on_device_status(bucket->engine->device, status);
}

/* --- compressing ------------------------------------------------------------------------------ */

/* What comes later is queued with the message. */
void weir_on_device_feed(weir_bucket *bucket) {
  weir_on_device *on = bucket->engine->device;
  const bool here = bucket->all && !bucket->parts, shares = bucket->scheme == WEIR_SCHEME_HITOPK;
  bucket->summed = here ? on->whole + bucket->at : NULL;
  bucket->lost = here && bucket->leaves ? on->lost + bucket->at : NULL;
  bucket->fed = here || shares ? on->whole + bucket->at : NULL;
  on->in_flight = true;
}

/* Low rank: the columns to start from lie where Q will be. */
static void put_columns(const weir_bucket *bucket) {
  const weir_warm *warm = &bucket->engine->warm;
  weir_thin t = {0};
  for (size_t i = 0; i < bucket->layout.tensors; i++) {
    weir_lowrank_tensor(bucket, i, &t);
    for (size_t k = 0; k < weir_lowrank_rank(bucket) && !t.whole; k++)
      memcpy(bucket->value + t.q + k * t.columns, weir_warm_column(warm, &t, k, 0),
             t.columns * sizeof(float));
  }
}

/* A list is the root's: the turn's, or that of any rank, which may turn out to be the root. */
static bool lists(const weir_bucket *bucket) {
  return bucket->scheme == WEIR_SCHEME_SHARED && bucket->codec->draw == NULL &&
         (bucket->codec->by_variance || weir_shared_root(bucket) == bucket->engine->rank);
}

/* A gathered message has its place among those of all ranks, or like a list in a room on the
 * device. */
static unsigned char *message_of(const weir_bucket *bucket) {
  const int rank = bucket->engine->rank;
  const bool gathers = bucket->scheme == WEIR_SCHEME_GATHER;
  if (!gathers && !lists(bucket)) return NULL;
  if (bucket->stays) return weir_on_device_room(bucket, rank);
  return bucket->blocks + (gathers ? (size_t)rank * bucket->stride : 0);
}

weir_status weir_on_device_compress(weir_bucket *bucket) {
  weir_engine *engine = bucket->engine;
  const weir_on_device *on = engine->device;
  unsigned char *const message = message_of(bucket);
  if (bucket->thin) put_columns(bucket);
  weir_device_task task = {
      .g = engine->submitted,
      .seed = weir_gather_seed(bucket),
      .message = message,
      .stays = message != NULL && bucket->stays,
      .copy = weir_on_device_column(bucket, engine->rank),
      .values = bucket->thin ? bucket->value : bucket->fed,
      .bins = engine->curve_wanted ? on->bins + bucket->number * WEIR_DEVICE_BINS : NULL};
  weir_on_device_sample(bucket, &task);
  return status_of(bucket, on->ops->compress(on->device, bucket->number, &task));
}

/* What a rank sends whose e is not finite: the message of zeros, as the host's, or where messages
 * stay on devices none.  The step will not count. */
static weir_status send_zeros(weir_bucket *bucket) {
  weir_engine *engine = bucket->engine;
  const size_t rank = (size_t)engine->rank;
  if (bucket->parts && bucket->fed == NULL)
    return status_of(bucket, engine->device->ops->drop(engine->device->device, bucket->number));
  if (bucket->all) memset(bucket->fed, 0, bucket->n * sizeof(float));
  if (bucket->thin) memset(bucket->value, 0, bucket->first_sum * sizeof(float));
  if (bucket->scheme == WEIR_SCHEME_PATH) return weir_path_prepare(bucket);
  bucket->block_bytes[rank] = 0;
  if (bucket->scheme != WEIR_SCHEME_GATHER || bucket->stays) return WEIR_OK;
  float *const zeros = calloc(bucket->n + 1, sizeof *zeros);
  size_t k = 0;
  if (zeros == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a message of zeros");
  unsigned char *const message = bucket->blocks + rank * bucket->stride;
  weir_status status;
  if (bucket->codec->encode != NULL) {
    status = weir_plan_encode(&bucket->plan, bucket->context, zeros, &bucket->layout,
                              weir_gather_seed(bucket), message, bucket->stride,
                              &bucket->block_bytes[rank]);
  } else {
    status = bucket->codec->select(bucket->context, zeros, &bucket->layout, bucket->plan.cr,
                                   bucket->index, bucket->kept, &k);
    if (status == WEIR_OK)
      status =
          weir_wire_encode(bucket->n, bucket->index, zeros, k, (weir_wire_format)bucket->plan.wire,
                           message, bucket->stride, &bucket->block_bytes[rank], NULL);
  }
  free(zeros);
  return status;
}

static double kept_square(const weir_bucket *bucket) {
  const weir_device_told *told = bucket->told;
  if (bucket->all || bucket->thin) return told->moments.sum_square;
  if (bucket->codec->encode == NULL) return told->other.sum_square;
  return fmax(told->moments.sum_square - told->other.sum_square, 0);
}

weir_status weir_on_device_await(weir_bucket *bucket) {
  const weir_on_device *on = bucket->engine->device;
  const weir_device_told *told = NULL;
  if (bucket->told != NULL) return WEIR_OK;
  const weir_status status = status_of(bucket, on->ops->await(on->device, bucket->number, &told));
  if (status != WEIR_OK) return status;
  bucket->told = told;
  bucket->finite = told->moments.nonfinite == 0 && isfinite(told->moments.sum_square);
  if (bucket->whole && bucket->lost != NULL) memset(bucket->lost, 0, bucket->n * sizeof(float));
  if (!bucket->finite) return send_zeros(bucket);
  if (told->fault != 0)
    return weir_fail(WEIR_E_INTERNAL, "the device finds its own message malformed");
  bucket->passage.moments = told->moments;
  bucket->passage.kept_square = kept_square(bucket);
  bucket->block_bytes[bucket->engine->rank] = told->bytes;
  return bucket->scheme == WEIR_SCHEME_PATH ? weir_path_prepare(bucket) : WEIR_OK;
}

/* --- the exchange ----------------------------------------------------------------------------- */

weir_status weir_on_device_check(const weir_bucket *bucket, const void *message, size_t bytes) {
  double peak;
  const weir_status status =
      bucket->codec->encode != NULL
          ? bucket->codec->check(message, bytes, &bucket->layout, &peak)
          : weir_wire_check(bucket->context, message, bytes, bucket->n, &peak);
  return status == WEIR_OK ? weir_gather_due(bucket, message) : status;
}

/* Of a rank that has sent none, zeros. */
static weir_status add_there(weir_bucket *bucket, int rank) {
  const weir_on_device *on = bucket->engine->device;
  const size_t bytes = bucket->block_bytes[rank];
  if (bytes == 0) return WEIR_OK;
  if (bucket->codec->encode != NULL && bytes != bucket->told->bytes) /* as long as this rank's */
    return weir_fail(WEIR_E_PROTOCOL, "malformed message of %zu bytes, not %llu", bytes,
                     (unsigned long long)bucket->told->bytes);
  bool first = true;
  for (int r = 0; r < rank; r++) first = first && bucket->block_bytes[r] == 0;
  return status_of(bucket, on->ops->decode(on->device, bucket->number,
                                           weir_on_device_room(bucket, rank), bytes, first));
}

/* The host looks at a message before the device does: whose is malformed is then known without
 * waiting.  What stays on devices they look at themselves. */
weir_status weir_on_device_decode(const weir_bucket *bucket, const void *message, size_t bytes,
                                  bool first) {
  const weir_on_device *on = bucket->engine->device;
  const weir_status status = weir_on_device_check(bucket, message, bytes);
  if (status != WEIR_OK) return status;
  return status_of(bucket, on->ops->decode(on->device, bucket->number, message, bytes, first));
}

weir_status weir_on_device_add(weir_bucket *bucket, int rank) {
  if (bucket->stays) return add_there(bucket, rank);
  return weir_on_device_decode(bucket, bucket->blocks + (size_t)rank * bucket->stride,
                               bucket->block_bytes[rank], rank == 0);
}

weir_status weir_on_device_list(weir_bucket *bucket, size_t *bytes) {
  *bytes = (size_t)bucket->told->bytes;
  return WEIR_OK;
}

weir_status weir_on_device_read(weir_bucket *bucket, int rank, size_t bytes) {
  weir_on_device *on = bucket->engine->device;
  on->in_flight = true;
  return status_of(
      bucket, on->ops->read(on->device, bucket->number, weir_on_device_room(bucket, rank), bytes));
}

/* Of a rank whose e is not finite, zeros. */
weir_status weir_on_device_fetch(weir_bucket *bucket) {
  const weir_on_device *on = bucket->engine->device;
  const uint32_t *const index = bucket->stays ? NULL : bucket->index;
  const weir_status status =
      status_of(bucket, on->ops->fetch(on->device, bucket->number, index, bucket->value));
  if (status == WEIR_OK && !bucket->finite) memset(bucket->value, 0, bucket->kept * sizeof(float));
  return status;
}

weir_status weir_on_device_settle(weir_bucket *bucket, const float *value) {
  weir_on_device *on = bucket->engine->device;
  on->in_flight = true;
  return status_of(bucket, on->ops->settle(on->device, bucket->number, bucket->error, value));
}

weir_status weir_on_device_store(weir_bucket *bucket, const float *sum) {
  weir_on_device *on = bucket->engine->device;
  on->in_flight = true;
  const weir_status status =
      bucket->stale_count > 0
          ? status_of(bucket, on->ops->stale(on->device, bucket->number, bucket->stale,
                                             bucket->stale_count))
          : WEIR_OK;
  if (status != WEIR_OK || bucket->parts) return status;
  return status_of(bucket, on->ops->store(on->device, bucket->number, bucket->lost, sum));
}

/* Of a rank whose e is not finite, zeros. */
weir_status weir_on_device_project_back(weir_bucket *bucket) {
  const weir_on_device *on = bucket->engine->device;
  if (!bucket->finite) {
    memset(bucket->value + bucket->first_sum, 0,
           (bucket->kept - bucket->first_sum) * sizeof(float));
    return WEIR_OK;
  }
  return status_of(bucket,
                   on->ops->project_back(on->device, bucket->number, bucket->value, bucket->error));
}

/* Of a rank whose e is not finite, nothing: the step will not count. */
weir_status weir_on_device_take_off(weir_bucket *bucket, const float *q) {
  weir_on_device *on = bucket->engine->device;
  if (!bucket->finite) return WEIR_OK;
  on->in_flight = true;
  return status_of(bucket, on->ops->take_off(on->device, bucket->number, q));
}

/* --- messages of parts ------------------------------------------------------------------------ */

static weir_device_part part_of(const weir_coder_part *part) {
  return (weir_device_part){.at = part->at,
                            .count = part->count,
                            .block = part->block,
                            .each = part->each,
                            .bytes = part->bytes,
                            .draws = weir_coder_state(part)};
}

/* What fails here is this rank's. */
static weir_status own(const weir_bucket *bucket, weir_status status) {
  status = status_of(bucket, status);
  return status == WEIR_OK ? WEIR_OK
                           : weir_engine_blame(bucket->engine, bucket->engine->rank, status);
}

static weir_status encode_part(void *user, const weir_coder_part *part, void *out) {
  const weir_bucket *bucket = user;
  weir_on_device *on = bucket->engine->device;
  const weir_device_part mine = part_of(part);
  on->in_flight = true;
  return own(bucket, on->ops->encode(on->device, bucket->number, &mine, out));
}

static weir_status decode_part(void *user, const weir_coder_part *part, const void *message,
                               bool add) {
  const weir_bucket *bucket = user;
  weir_on_device *on = bucket->engine->device;
  const weir_device_part mine = part_of(part);
  on->in_flight = true;
  return own(bucket, on->ops->add(on->device, bucket->number, &mine, message, add));
}

static weir_status await_parts(void *user) {
  const weir_bucket *bucket = user;
  const weir_on_device *on = bucket->engine->device;
  return own(bucket, on->ops->arrive(on->device));
}

static unsigned char *room_of(const void *user, int rank) {
  return weir_on_device_room(user, rank);
}

const weir_coder_ops weir_on_device_coder = {encode_part, decode_part, await_parts, room_of};

/* --- HiTopKComm ------------------------------------------------------------------------------- */

static weir_status select_share(void *user, weir_chunk share, const float *x, void *message,
                                size_t capacity, size_t *bytes, double *sent) {
  weir_bucket *bucket = user;
  weir_engine *engine = bucket->engine;
  weir_on_device *on = engine->device;
  const size_t offset[2] = {0, share.count};
  const weir_layout layout = {1, offset};
  const size_t k = share.count > 0 ? bucket->codec->kept(&layout, bucket->plan.cr) : 0;
  const weir_device_told *told = NULL;
  on->in_flight = true;
  weir_status status = own(bucket, on->ops->pick(on->device, bucket->number, share.begin,
                                                 share.count, k, x, bucket->room, &told));
  if (status == WEIR_OK && (told->fault != 0 || told->bytes > capacity)) {
    status = weir_fail(WEIR_E_INTERNAL, "the device finds its own message malformed");
    return weir_engine_blame(engine, engine->rank, status);
  }
  if (status != WEIR_OK) return status;
  memcpy(message, bucket->room, told->bytes);
  *bytes = told->bytes;
  *sent = told->moments.sum_square > 0 ? told->other.sum_square / told->moments.sum_square : 1;
  return WEIR_OK;
}

static weir_status add_share(void *user, weir_chunk part, const void *message, size_t bytes) {
  const weir_bucket *bucket = user;
  weir_on_device *on = bucket->engine->device;
  on->in_flight = true;
  return own(bucket,
             on->ops->take(on->device, bucket->number, part.begin, part.count, message, bytes));
}

const weir_hitopk_away weir_on_device_away = {.select = select_share, .add = add_share};

void weir_on_device_count(weir_bucket *bucket) {
  weir_passage *passage = &bucket->passage;
  const bool parts = bucket->parts && bucket->fed == NULL;
  if ((!parts && !bucket->thin) || bucket->told == NULL) return;
  passage->kept_square = fmax(passage->moments.sum_square - bucket->told->other.sum_square, 0);
}

weir_status weir_on_device_publish(weir_bucket *bucket, float share) {
  const weir_on_device *on = bucket->engine->device;
  weir_status status = WEIR_OK;
  if (bucket->thin)
    status = status_of(bucket, on->ops->expand(on->device, bucket->number, bucket->value));
  return status == WEIR_OK ? status_of(bucket, on->ops->publish(on->device, bucket->number,
                                                                bucket->engine->submitted, share))
                           : status;
}
