/* The backend of gradients on a device: its life in an engine, and what a step as a whole does on
 * it.  One bucket's way is in device_bucket.c. */
#include "engine/device.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/half.h"

weir_status weir_on_device_status(const weir_on_device *on, weir_status status) {
  return status == WEIR_OK ? WEIR_OK : weir_fail(status, "%s", on->ops->last_error());
}

/* --- life ------------------------------------------------------------------------------------- */

static weir_status open_device(weir_engine *engine) {
  const weir_engine_config *config = &engine->config;
  const weir_device_ops *ops = config->device_ops;
  weir_on_device *on = calloc(1, sizeof *on);
  if (on == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a device");
  on->ops = ops;
  on->zero = true;
  on->thin = calloc(engine->layout.tensors + 1, sizeof *on->thin);
  const weir_status status =
      on->thin == NULL
          ? weir_fail(WEIR_E_NOMEM, "no memory for a device")
          : weir_on_device_status(
                on, ops->create(config->device, config->stream, engine->n, (float)config->momentum,
                                !config->without_feedback, config->device_timeout_s, &on->device));
  if (status != WEIR_OK) {
    free(on->thin);
    free(on);
    return status;
  }
  engine->device = on;
  return weir_on_device_open_samples(engine);
}

static void close_device(weir_engine *engine) {
  weir_on_device *on = engine->device;
  if (on == NULL) return;
  weir_on_device_close_samples(engine);
  weir_on_device_unshare(engine);
  on->ops->unpin(on->device, on->table);
  on->ops->unpin(on->device, on->lent);
  on->ops->unpin(on->device, on->bins);
  on->ops->unpin(on->device, on->lost);
  on->ops->unpin(on->device, on->whole);
  on->ops->free(on->device);
  free(on->residual);
  free(on->velocity);
  free(on->overflow);
  free(on->buckets);
  free(on->thin);
  free(on);
  engine->device = NULL;
}

/* --- memory ----------------------------------------------------------------------------------- */

static unsigned char *allocate(const weir_engine *engine, size_t bytes) {
  const weir_on_device *on = engine->device;
  void *memory = NULL;
  return on->ops->pin(on->device, bytes, &memory) == WEIR_OK ? memory : NULL;
}

static void release(const weir_engine *engine, unsigned char *memory, size_t bytes) {
  (void)bytes;
  const weir_on_device *on = engine->device;
  on->ops->unpin(on->device, memory);
}

weir_device_kind weir_on_device_kind(const weir_bucket *bucket) {
  if (bucket->parts && bucket->scheme == WEIR_SCHEME_HITOPK) return WEIR_DEVICE_SHARE;
  if (bucket->parts) return WEIR_DEVICE_PARTS;
  if (bucket->all) return WEIR_DEVICE_WHOLE;
  if (bucket->thin) return WEIR_DEVICE_THIN;
  if (bucket->scheme == WEIR_SCHEME_SHARED)
    return bucket->codec->draw != NULL ? WEIR_DEVICE_DRAWN : WEIR_DEVICE_LIST;
  return bucket->codec->encode != NULL ? WEIR_DEVICE_ENCODE : WEIR_DEVICE_SELECT;
}

/* Elements that a bucket selects or draws; bytes of a message are none. */
static size_t picked(const weir_bucket *bucket, weir_device_kind kind) {
  if (kind == WEIR_DEVICE_SHARE)
    return weir_hitopk_most(bucket->engine->config.comm, bucket->codec, bucket->plan.cr, bucket->n);
  const bool none =
      kind == WEIR_DEVICE_ENCODE || kind == WEIR_DEVICE_WHOLE || kind == WEIR_DEVICE_PARTS;
  return none ? 0 : bucket->kept;
}

static weir_device_bucket shape_of(const weir_on_device *on, const weir_bucket *bucket) {
  const weir_device_kind kind = weir_on_device_kind(bucket);
  weir_thin *const thin = on->thin + bucket->first;
  for (size_t t = 0; t < bucket->layout.tensors && kind == WEIR_DEVICE_THIN; t++) {
    thin[t] = t > 0 ? thin[t - 1] : (weir_thin){0};
    weir_lowrank_tensor(bucket, t, &thin[t]);
  }
  return (weir_device_bucket){.kind = kind,
                              .codec = bucket->plan.codec,
                              .bucket_log2 = bucket->plan.bucket_log2,
                              .cr = bucket->plan.cr,
                              .wire = (weir_wire_format)bucket->plan.wire,
                              .layout = bucket->layout,
                              .types = bucket->engine->types + bucket->first,
                              .at = bucket->at,
                              .n = bucket->n,
                              .kept = picked(bucket, kind),
                              .stride = bucket->stride,
                              .tensors_at = bucket->first,
                              .thin = thin,
                              .rank = weir_lowrank_rank(bucket),
                              .first_sum = bucket->first_sum,
                              .damped = bucket->damped};
}

/* Page-locked memory at *memory, unless there is some already. */
static weir_status pin_once(const weir_on_device *on, size_t bytes, float **memory) {
  void *made = NULL;
  if (*memory != NULL) return WEIR_OK;
  const weir_status status = weir_on_device_status(on, on->ops->pin(on->device, bytes, &made));
  if (status == WEIR_OK) *memory = made;
  return status;
}

static weir_status grow(weir_on_device *on, size_t count) {
  if (count <= on->capacity) return WEIR_OK;
  weir_device_bucket *buckets = realloc(on->buckets, count * sizeof *buckets);
  if (buckets != NULL) on->buckets = buckets;
  bool *overflow = realloc(on->overflow, count * sizeof *overflow);
  if (overflow != NULL) on->overflow = overflow;
  if (buckets == NULL || overflow == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a plan of %zu buckets", count);
  on->capacity = count;
  return WEIR_OK;
}

/* For gradients that go to the host whole, and for gain curves. */
static weir_status pin_more(weir_engine *engine, const weir_bucket_set *set) {
  weir_on_device *on = engine->device;
  const size_t bytes = engine->n * sizeof(float);
  weir_status status = WEIR_OK;
  for (size_t k = 0; k < set->count && status == WEIR_OK; k++) {
    const weir_device_kind kind = weir_on_device_kind(&set->bucket[k]);
    if (kind != WEIR_DEVICE_WHOLE && kind != WEIR_DEVICE_SHARE) continue;
    status = pin_once(on, bytes, &on->whole);
    if (status == WEIR_OK && kind == WEIR_DEVICE_WHOLE && set->bucket[k].leaves)
      status = pin_once(on, bytes, &on->lost);
  }
  if (status != WEIR_OK || engine->curve == NULL || set->count <= on->bins_groups) return status;
  void *bins = NULL;
  status =
      weir_on_device_status(on, on->ops->pin(on->device, set->count * WEIR_DEVICE_BINS, &bins));
  if (status != WEIR_OK) return status;
  on->ops->unpin(on->device, on->bins);
  on->bins = bins;
  on->bins_groups = set->count;
  return WEIR_OK;
}

static weir_status reserve(weir_engine *engine, const weir_bucket_set *set) {
  weir_on_device *on = engine->device;
  weir_status status = grow(on, set->count);
  if (status == WEIR_OK) status = pin_more(engine, set);
  if (status != WEIR_OK) return status;
  for (size_t k = 0; k < set->count; k++) on->buckets[k] = shape_of(on, &set->bucket[k]);
  return weir_on_device_status(
      on, on->ops->reserve(on->device, on->buckets, set->count, (size_t)engine->size));
}

static size_t shared(const weir_engine *engine) { return engine->device->half; }

static weir_status check(const weir_engine *engine, const void *gradient) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->check(on->device, gradient));
}

/* --- a step as a whole ------------------------------------------------------------------------ */

static weir_status make_curve(weir_engine *engine) {
  const weir_on_device *on = engine->device;
  for (size_t k = 1; k < engine->set.count; k++)
    on->ops->add_bins(on->bins, on->bins + k * WEIR_DEVICE_BINS);
  return weir_on_device_status(on, on->ops->curve(on->bins, engine->n, engine->curve));
}

static weir_status header(weir_engine *engine) {
  weir_bucket *last = &engine->set.bucket[engine->set.count - 1];
  weir_status status = last->status == WEIR_OK ? weir_on_device_await(last)
                                               : weir_fail(last->status, "%s", last->text);
  if (status == WEIR_OK && engine->curve_wanted) status = make_curve(engine);
  if (status == WEIR_OK) weir_on_device_show(engine);
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
}

static weir_status finish(weir_engine *engine) {
  weir_on_device *on = engine->device;
  weir_status status = weir_on_device_status(on, on->ops->finish(on->device, on->overflow));
  if (status == WEIR_E_PROTOCOL) return weir_on_device_find_culprit(engine, status);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  on->in_flight = false;
  for (size_t k = 0; k < engine->set.count; k++) {
    if (on->overflow[k]) engine->set.bucket[k].overflow = true;
    weir_on_device_count(&engine->set.bucket[k]);
  }
  return WEIR_OK;
}

static weir_status zero(weir_engine *engine) {
  const weir_on_device *on = engine->device;
  const size_t *offset = engine->layout.offset;
  const uint8_t byte = engine->config.keep_nonfinite ? WEIR_NAN_BYTE : 0;
  weir_status status = WEIR_OK;
  for (size_t t = 0; t < engine->layout.tensors && status == WEIR_OK; t++)
    if (offset[t + 1] > offset[t])
      status = weir_on_device_status(
          on, on->ops->fill(on->device, engine->submitted[t],
                            (offset[t + 1] - offset[t]) * weir_type_bytes(engine->types[t]), byte));
  return status;
}

/* Whether this succeeds no longer matters to the step; the next one will tell. */
static void rest(weir_engine *engine) {
  weir_on_device *on = engine->device;
  if (on->in_flight) (void)on->ops->finish(on->device, on->overflow);
  on->in_flight = false;
}

static void commit(weir_engine *engine) {
  weir_on_device *on = engine->device;
  rest(engine); /* of a step that failed here, what was settled after it */
  on->ops->commit(on->device);
  on->zero = !weir_engine_leaves(engine);
}

static weir_status keep_room(weir_engine *engine) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->keep_room(on->device));
}

/* Queued: a fault of the device's shows at the next wait. */
static void keep(weir_engine *engine, bool restore) {
  weir_on_device *on = engine->device;
  *(restore ? &on->zero : &on->kept_zero) = restore ? on->kept_zero : on->zero;
  (void)on->ops->keep(on->device, restore);
}

/* --- on the host ------------------------------------------------------------------------------ */

static weir_status make_copy(const weir_engine *engine, float **copy) {
  if (*copy == NULL) *copy = malloc((engine->n + 1) * sizeof **copy);
  return *copy != NULL ? WEIR_OK
                       : weir_fail(WEIR_E_NOMEM, "no memory for a copy of %zu elements", engine->n);
}

/* NaN where the device does not tell. */
static const float *residual(const weir_engine *engine) {
  weir_on_device *on = engine->device;
  if (make_copy(engine, &on->residual) == WEIR_OK &&
      on->ops->save(on->device, on->residual, NULL) != WEIR_OK)
    for (size_t i = 0; i < engine->n; i++) on->residual[i] = NAN;
  return on->residual;
}

static weir_status recall(weir_engine *engine, bool squares, weir_engine_memory *memory) {
  weir_on_device *on = engine->device;
  (void)squares; /* no codec that wants them runs here */
  weir_status status = make_copy(engine, &on->residual);
  if (status == WEIR_OK && engine->config.momentum > 0) status = make_copy(engine, &on->velocity);
  if (status != WEIR_OK) return status;
  memory->zero = on->zero;
  memory->residual = on->residual;
  memory->velocity = on->velocity;
  return weir_on_device_status(on, on->ops->save(on->device, on->residual, on->velocity));
}

static weir_status take(weir_engine *engine, const weir_engine_memory *memory) {
  weir_on_device *on = engine->device;
  on->zero = memory->zero;
  return weir_on_device_status(
      on, on->ops->load(on->device, memory->zero ? NULL : memory->residual, memory->velocity));
}

static weir_status scale(weir_engine *engine, float factor) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->scale(on->device, factor, !on->zero));
}

/* The gain curve and the samples come with the bucket's message (header). */
static void show(weir_bucket *bucket) { (void)bucket; }

const weir_backend weir_device_backend = {.open = open_device,
                                          .close = close_device,
                                          .reserve = reserve,
                                          .allocate = allocate,
                                          .release = release,
                                          .share = weir_on_device_share,
                                          .unshare = weir_on_device_unshare,
                                          .shared = shared,
                                          .on_caller = true,
                                          .check = check,
                                          .feed = weir_on_device_feed,
                                          .show = show,
                                          .compress = weir_on_device_compress,
                                          .await = weir_on_device_await,
                                          .add = weir_on_device_add,
                                          .pass_on = weir_on_device_pass_on,
                                          .list = weir_on_device_list,
                                          .read = weir_on_device_read,
                                          .fetch = weir_on_device_fetch,
                                          .settle = weir_on_device_settle,
                                          .store = weir_on_device_store,
                                          .project_back = weir_on_device_project_back,
                                          .take_off = weir_on_device_take_off,
                                          .coder = &weir_on_device_coder,
                                          .away = &weir_on_device_away,
                                          .publish = weir_on_device_publish,
                                          .header = header,
                                          .finish = finish,
                                          .zero = zero,
                                          .commit = commit,
                                          .rest = rest,
                                          .keep_room = keep_room,
                                          .keep = keep,
                                          .recall = recall,
                                          .take = take,
                                          .scale = scale,
                                          .residual = residual};
