/* The backend of gradients in host memory: its buffers, and what a step as a whole does to them.
 * One bucket's way is in host_feed.c and host_bucket.c. */
#include "engine/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/half.h"
#include "kernels/whitened.h"

#define LINE 64              /* messages begin on a cache line */
#define BLOCK ((size_t)4096) /* elements that are widened at a time */

static size_t bytes_of(const weir_engine *engine) { return engine->n * sizeof(float); }

/* Pages that nobody touches are not there. */
static weir_status zeroed(const weir_engine *engine, float **memory) {
  *memory = calloc(engine->n + 1, sizeof **memory);
  return *memory != NULL
             ? WEIR_OK
             : weir_fail(WEIR_E_NOMEM, "no memory for a gradient of %zu elements", engine->n);
}

static void close_host(weir_engine *engine) {
  weir_host *host = &engine->host;
  free(host->residual);
  free(host->fed);
  free(host->sum);
  free(host->velocity);
  free(host->next);
  free(host->kept_residual);
  free(host->kept_velocity);
  free(host->square);
  free(host->kept_square);
  *host = (weir_host){.zero = true};
}

static weir_status room_for_squares(const weir_engine *engine, uint16_t **square) {
  if (*square == NULL) *square = calloc(engine->n + 1, sizeof **square);
  return *square != NULL
             ? WEIR_OK
             : weir_fail(WEIR_E_NOMEM, "no memory for what %zu elements usually are", engine->n);
}

static weir_status open_host(weir_engine *engine) {
  weir_host *host = &engine->host;
  host->zero = true;
  weir_status status = zeroed(engine, &host->residual);
  if (status == WEIR_OK) status = zeroed(engine, &host->fed);
  if (status == WEIR_OK) status = zeroed(engine, &host->sum);
  host->counts = engine->config.counts && engine->config.momentum == 0;
  if (status != WEIR_OK || engine->config.momentum == 0) return status;
  status = zeroed(engine, &host->velocity);
  return status == WEIR_OK ? zeroed(engine, &host->next) : status;
}

static bool whitens(const weir_bucket_set *set) {
  bool some = false;
  for (size_t k = 0; k < set->count; k++) some = some || set->bucket[k].codec->whitened;
  return some;
}

static bool wants_squares(const weir_engine *engine, const weir_bucket_set *set) {
  return engine->committed < engine->config.follows || whitens(set);
}

/* Every plan's buckets have room in what there is, but for what whitened ones are measured by. */
static weir_status reserve(weir_engine *engine, const weir_bucket_set *set) {
  return wants_squares(engine, set) ? room_for_squares(engine, &engine->host.square) : WEIR_OK;
}

static unsigned char *allocate(const weir_engine *engine, size_t bytes) {
  (void)engine;
  return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
}

/* What the library's allocator keeps takes no pages then. */
static void release(const weir_engine *engine, unsigned char *memory, size_t bytes) {
  (void)engine;
  weir_give_back(memory, bytes);
  free(memory);
}

static weir_status check(const weir_engine *engine, const void *gradient) {
  (void)engine, (void)gradient; /* host memory is wherever the caller says */
  return WEIR_OK;
}

/* Feeding and compressing have done everything before they return. */
static weir_status await_host(weir_bucket *bucket) {
  (void)bucket;
  return WEIR_OK;
}

/* What rounding loses has been added up where the next residual is, in the units it was rounded
 * in. */
static weir_status store(weir_bucket *bucket, const float *sum) {
  (void)sum;
  if (bucket->codec->whitened && bucket->lost != NULL)
    weir_unwhiten(bucket->lost, bucket->engine->host.square + bucket->at, bucket->n);
  return WEIR_OK;
}

static weir_status header(weir_engine *engine) {
  (void)engine;
  return WEIR_OK;
}

static weir_status zero(weir_engine *engine) {
  const size_t *offset = engine->layout.offset;
  const int byte = engine->config.keep_nonfinite ? WEIR_NAN_BYTE : 0;
  for (size_t t = 0; t < engine->layout.tensors; t++)
    memset(engine->submitted[t], byte,
           (offset[t + 1] - offset[t]) * weir_type_bytes(engine->types[t]));
  return WEIR_OK;
}

static void swap(float **a, float **b) {
  float *const held = *a;
  *a = *b;
  *b = held;
}

static void commit(weir_engine *engine) {
  weir_host *host = &engine->host;
  const weir_bucket_set *set = &engine->set;
  const bool some = weir_engine_leaves(engine);
  for (size_t k = 0; k < set->count && some; k++) {
    const weir_bucket *bucket = &set->bucket[k];
    if (!bucket->leaves)
      memset(host->fed + bucket->at, 0, bucket->n * sizeof(float));
    else if (bucket->damped && !host->zero)
      weir_add_half(host->residual + bucket->at, bucket->n, host->fed + bucket->at);
  }
  if (some) swap(&host->residual, &host->fed);
  host->zero = !some;
  if (host->velocity != NULL) swap(&host->velocity, &host->next);
}

static void rest(weir_engine *engine) { (void)engine; }

/* A tensor's average, which may be of 16 bits. */
static void follow_tensor(const weir_engine *engine, size_t t) {
  float x[BLOCK];
  uint16_t *const square = engine->host.square + engine->layout.offset[t];
  const size_t n = engine->layout.offset[t + 1] - engine->layout.offset[t];
  if (engine->types[t] == WEIR_FP32) {
    weir_squares_follow(square, engine->submitted[t], n);
    return;
  }
  for (size_t at = 0; at < n; at += BLOCK) {
    const size_t count = n - at < BLOCK ? n - at : BLOCK;
    weir_widen(engine->types[t], (const uint16_t *)engine->submitted[t] + at, count, x);
    weir_squares_follow(square + at, x, count);
  }
}

static void forget(weir_engine *engine) {
  weir_host *host = &engine->host;
  free(host->square);
  free(host->kept_square);
  host->square = host->kept_square = NULL;
  host->followed = 0;
}

/* Where it is not wanted any more nobody pays for it; a trial's checkpoint may have it yet. */
static void follow(weir_engine *engine) {
  weir_host *host = &engine->host;
  const bool wanted = wants_squares(engine, &engine->set);
  if (!wanted && engine->config.follows > 0 && !engine->in_trial) forget(engine);
  if (!wanted && host->followed == 0) return;
  for (size_t t = 0; t < engine->layout.tensors; t++) follow_tensor(engine, t);
  host->followed++;
}

/* --- trials ----------------------------------------------------------------------------------- */

static weir_status keep_room(weir_engine *engine) {
  weir_host *host = &engine->host;
  weir_status status = WEIR_OK;
  if (host->kept_residual == NULL) status = zeroed(engine, &host->kept_residual);
  if (status == WEIR_OK && host->velocity != NULL && host->kept_velocity == NULL)
    status = zeroed(engine, &host->kept_velocity);
  return status == WEIR_OK && host->followed > 0 ? room_for_squares(engine, &host->kept_square)
                                                 : status;
}

/* Where a trial was the first that wanted to know, nothing is known again. */
static void keep_squares(weir_engine *engine, bool restore) {
  weir_host *host = &engine->host;
  const size_t bytes = engine->n * sizeof *host->square;
  if (!restore) host->kept_followed = host->followed;
  if (host->followed > 0 && host->kept_followed > 0)
    memcpy(restore ? host->square : host->kept_square, restore ? host->kept_square : host->square,
           bytes);
  else if (host->followed > 0)
    memset(host->square, 0, bytes);
  host->followed = host->kept_followed;
}

static void keep(weir_engine *engine, bool restore) {
  weir_host *host = &engine->host;
  const size_t bytes = bytes_of(engine);
  if (restore)
    host->zero = host->kept_zero;
  else
    host->kept_zero = host->zero;
  if (!host->zero && bytes > 0)
    memcpy(restore ? host->residual : host->kept_residual,
           restore ? host->kept_residual : host->residual, bytes);
  if (host->velocity != NULL && bytes > 0)
    memcpy(restore ? host->velocity : host->kept_velocity,
           restore ? host->kept_velocity : host->velocity, bytes);
  keep_squares(engine, restore);
}

static const float *residual(const weir_engine *engine) {
  const weir_host *host = &engine->host;
  if (host->zero) memset(host->residual, 0, bytes_of(engine));
  return host->residual;
}

static weir_status recall(weir_engine *engine, bool squares, weir_engine_memory *memory) {
  weir_host *host = &engine->host;
  const weir_status status = squares ? room_for_squares(engine, &host->square) : WEIR_OK;
  if (status != WEIR_OK) return status;
  (void)residual(engine); /* what counts as zero is zero now */
  memory->zero = host->zero;
  memory->residual = host->residual;
  memory->velocity = host->velocity;
  memory->squares = squares || host->followed > 0 ? host->square : NULL;
  memory->followed = host->followed;
  return WEIR_OK;
}

/* The rest was filled in where it is. */
static weir_status take(weir_engine *engine, const weir_engine_memory *memory) {
  engine->host.zero = memory->zero;
  engine->host.followed = memory->followed;
  return WEIR_OK;
}

static weir_status scale(weir_engine *engine, float factor) {
  const weir_host *host = &engine->host;
  if (!host->zero) weir_scale(host->residual, engine->n, factor);
  if (host->velocity != NULL) weir_scale(host->velocity, engine->n, factor);
  return WEIR_OK;
}

const weir_backend weir_host_backend = {.open = open_host,
                                        .close = close_host,
                                        .reserve = reserve,
                                        .allocate = allocate,
                                        .release = release,
                                        .digests = true,
                                        .check = check,
                                        .feed = weir_host_feed,
                                        .show = weir_host_show,
                                        .compress = weir_host_compress,
                                        .await = await_host,
                                        .add = weir_host_add,
                                        .list = weir_host_list,
                                        .fetch = weir_host_fetch,
                                        .settle = weir_host_settle,
                                        .store = store,
                                        .project_back = weir_host_project_back,
                                        .take_off = weir_host_take_off,
                                        .publish = weir_host_publish,
                                        .header = header,
                                        .finish = header,
                                        .zero = zero,
                                        .commit = commit,
                                        .rest = rest,
                                        .follow = follow,
                                        .forget = forget,
                                        .keep_room = keep_room,
                                        .keep = keep,
                                        .recall = recall,
                                        .take = take,
                                        .scale = scale,
                                        .residual = residual};
