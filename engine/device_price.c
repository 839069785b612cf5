/* What compressing takes on an engine's device: another engine there, alone in its group and over
 * tensors like the first ones', runs some steps of every plan, so that each is timed as it is run,
 * copies to the host and back included.  A gradient longer than what is run goes on by the line
 * through two sizes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "engine/device.h"
#include "kernels/half.h"

/* Elements that are run at the most, and of a longer gradient as many a second time by this. */
static const size_t usual_most = (size_t)1 << 22, smaller = 64;
enum {
  WARM_UPS = 2, /* steps of a plan that do not count: what is used for the first time */
  STEPS = 5,    /* and that do, of which the median does */
  MESSAGES = 4, /* decoded one after the other to learn what each takes; more take as much each */
  ALIGNED = 4   /* bytes: floats follow one another without a gap */
};

/* One size that is run. */
typedef struct trial {
  weir_engine *engine;
  size_t n, tensors;
  size_t *offset, *rows; /* as an engine's */
  void **gradient;       /* a tensor, on the device */
  void *source, *memory; /* all of them: page-locked, and on the device */
  size_t bytes;
} trial;

/* The first tensors, as they are, up to so many elements; of one that is longer whole rows, or what
 * there is room for. */
static weir_status shape(trial *t, const weir_engine *of, size_t most) {
  t->offset = calloc(of->layout.tensors + 1, sizeof *t->offset);
  t->rows = calloc(of->layout.tensors + 1, sizeof *t->rows);
  t->gradient = calloc(of->layout.tensors + 1, sizeof *t->gradient);
  if (t->offset == NULL || t->rows == NULL || t->gradient == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory to time %zu tensors", of->layout.tensors);
  for (bool whole = true; whole && t->tensors < of->layout.tensors; t->tensors++) {
    const size_t i = t->tensors, room = most - t->n;
    const size_t all = of->layout.offset[i + 1] - of->layout.offset[i], rows = of->warm.rows[i];
    const size_t columns = all / rows;
    whole = all <= room;
    t->rows[i] = whole ? rows : columns > 0 && room >= columns ? room / columns : 1;
    t->n += whole ? all : t->rows[i] > 1 ? t->rows[i] * columns : room;
    t->offset[i + 1] = t->n;
  }
  return WEIR_OK;
}

static size_t numel(const trial *t, size_t i) { return t->offset[i + 1] - t->offset[i]; }

static size_t place_of(const trial *t, size_t i, const uint8_t *types) {
  return (numel(t, i) * weir_type_bytes(types[i]) + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* With the heavy tails that gradients have. */
static void draw(const trial *t, const uint8_t *types) {
  weir_rng rng = weir_rng_of(1);
  unsigned char *at = t->source;
  for (size_t i = 0; i < t->tensors; at += place_of(t, i, types), i++)
    for (size_t k = 0; k < numel(t, i); k++) {
      const float x = (float)(int32_t)(weir_rng_next(&rng) >> 32) / 2147483648.0F;
      const float value = x * x * x;
      if (types[i] == WEIR_FP32)
        ((float *)(void *)at)[k] = value;
      else
        (void)weir_narrow(types[i], &value, 1, (uint16_t *)(void *)at + k);
    }
}

static weir_status make_gradients(trial *t, const uint8_t *types) {
  const weir_on_device *on = t->engine->device;
  for (size_t i = 0; i < t->tensors; i++) t->bytes += place_of(t, i, types);
  weir_status status = weir_on_device_status(on, on->ops->pin(on->device, t->bytes, &t->source));
  if (status == WEIR_OK)
    status = weir_on_device_status(on, on->ops->memory(on->device, t->bytes, &t->memory));
  if (status != WEIR_OK) return status;
  draw(t, types);
  unsigned char *at = t->memory;
  for (size_t i = 0; i < t->tensors; at += place_of(t, i, types), i++) t->gradient[i] = at;
  return WEIR_OK;
}

static weir_status open_trial(trial *t, const weir_engine *of, weir_comm *comm,
                              const weir_plan *first, size_t most) {
  weir_status status = shape(t, of, most);
  if (status != WEIR_OK) return status;
  const weir_engine_config config = {.comm = comm,
                                     .layout = {t->tensors, t->offset},
                                     .rows = t->rows,
                                     .types = of->types,
                                     .momentum = of->config.momentum,
                                     .first_plan = *first,
                                     .codec_threads = of->config.codec_threads,
                                     .device_ops = of->config.device_ops,
                                     .device = of->config.device,
                                     .stream = of->config.stream,
                                     .device_timeout_s = of->config.device_timeout_s,
                                     .devices = true,
                                     .without_feedback = of->config.without_feedback,
                                     .scope = of->config.scope};
  status = weir_engine_create(&t->engine, &config);
  return status == WEIR_OK ? make_gradients(t, of->types) : status;
}

static void close_trial(trial *t) {
  if (t->engine != NULL) {
    const weir_on_device *on = t->engine->device;
    on->ops->forget(on->device, t->memory);
    on->ops->unpin(on->device, t->source);
  }
  weir_engine_free(t->engine);
  free(t->gradient);
  free(t->rows);
  free(t->offset);
}

/* --- timing ----------------------------------------------------------------------------------- */

/* What a step says that it has compressed and decoded for. */
static weir_status step(const trial *t, double *seconds) {
  weir_step_info info;
  weir_status status = weir_engine_step_begin(t->engine, NULL);
  for (size_t i = 0; i < t->tensors && status == WEIR_OK; i++)
    status = weir_engine_submit(t->engine, (uint32_t)i, t->gradient[i]);
  if (status == WEIR_OK) status = weir_engine_step_end(t->engine, &info);
  if (status == WEIR_OK) *seconds = info.compress_s;
  return status;
}

/* The last step's message, as if so many ranks had sent it. */
static weir_status decode(const trial *t, size_t messages, double *seconds) {
  weir_engine *engine = t->engine;
  weir_bucket *bucket = &engine->set.bucket[0];
  const double begin_s = weir_now_s();
  weir_status status = WEIR_OK;
  for (size_t m = 0; m < messages && status == WEIR_OK; m++)
    status =
        weir_on_device_decode(bucket, bucket->blocks, bucket->block_bytes[engine->rank], m == 0);
  if (status == WEIR_OK) status = engine->backend->publish(bucket, 1.0F / (float)messages);
  if (status == WEIR_OK) status = engine->backend->finish(engine);
  *seconds = weir_now_s() - begin_s;
  return status;
}

static double median(double seconds[STEPS]) {
  weir_sort(seconds, STEPS);
  return seconds[STEPS / 2];
}

/* A message more. */
static weir_status time_message(const trial *t, size_t messages, double *seconds) {
  double one[STEPS], all[STEPS];
  weir_status status = WEIR_OK;
  for (int s = 0; s < STEPS && status == WEIR_OK; s++) {
    status = decode(t, 1, &one[s]);
    if (status == WEIR_OK) status = decode(t, messages, &all[s]);
  }
  if (status != WEIR_OK) return status;
  const double more = median(all) - median(one);
  *seconds = more > 0 ? more / (double)(messages - 1) : 0;
  return WEIR_OK;
}

static weir_status fill(const trial *t) {
  const weir_on_device *on = t->engine->device;
  return weir_on_device_status(on, on->ops->copy(on->device, t->memory, t->source, t->bytes));
}

static weir_status time_plan(const trial *t, const weir_plan *plan, size_t ranks, double *seconds) {
  weir_engine *engine = t->engine;
  weir_on_device *on = engine->device;
  const size_t messages = ranks < MESSAGES ? ranks : MESSAGES;
  double each[STEPS], message = 0;
  weir_status status = weir_engine_adopt(engine, plan, NULL);
  const bool gathers = status == WEIR_OK && engine->set.bucket[0].scheme == WEIR_SCHEME_GATHER;
  if (gathers)
    status = weir_on_device_status(on, on->ops->reserve(on->device, on->buckets, 1, messages));
  if (status == WEIR_OK) status = fill(t);
  for (int s = -WARM_UPS; s < STEPS && status == WEIR_OK; s++)
    status = step(t, &each[s < 0 ? 0 : s]);
  if (status == WEIR_OK && gathers && messages > 1) status = time_message(t, messages, &message);
  if (status == WEIR_OK) *seconds = median(each) + (double)(ranks - 1) * message;
  return status;
}

/* All plans with the first *n elements, at most so many; *n becomes how many these are. */
static weir_status time_size(const weir_engine *of, weir_comm *comm, const weir_plan *plans,
                             size_t count, size_t *n, double *seconds) {
  trial t = {0};
  weir_status status = open_trial(&t, of, comm, &plans[0], *n);
  for (size_t i = 0; i < count && status == WEIR_OK; i++)
    status = time_plan(&t, &plans[i], (size_t)of->size, &seconds[i]);
  *n = t.n;
  close_trial(&t);
  return status;
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* Seconds of n elements by the line through two sizes, as far as it rises; else through the larger
 * one and the origin. */
static double line_at(size_t n, const size_t size[2], double less, double more) {
  const double beyond = (double)(n - size[1]);
  const bool rises = size[1] > size[0] && more > less;
  return more +
         beyond * (rises ? (more - less) / (double)(size[1] - size[0]) : more / (double)size[1]);
}

static weir_status time_sizes(const weir_engine *of, weir_comm *comm, size_t most,
                              const weir_plan *plans, size_t count, double *seconds) {
  size_t size[2] = {most / smaller, most};
  weir_status status = time_size(of, comm, plans, count, &size[1], seconds);
  if (status != WEIR_OK || size[1] == of->n) return status;
  double *less = calloc(count, sizeof *less);
  if (less == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to time %zu plans", count);
  status = time_size(of, comm, plans, count, &size[0], less);
  for (size_t i = 0; i < count && status == WEIR_OK; i++)
    seconds[i] = line_at(of->n, size, less[i], seconds[i]);
  free(less);
  return status;
}

weir_status weir_engine_price(const weir_engine *engine, size_t most, const weir_plan *plans,
                              size_t count, double *seconds) {
  weir_transport *alone = NULL;
  weir_comm *comm = NULL;
  char name[64];
  if (engine->device == NULL)
    return weir_fail(WEIR_E_UNSUPPORTED, "steps are timed on a device, and there is none");
  if (count == 0) return WEIR_OK;
  (void)snprintf(name, sizeof name, "weir priced %p", (void *)&alone);
  const double timeout_s = engine->config.device_timeout_s;
  weir_status status = weir_transport_inproc(&alone, name, 0, 1, timeout_s);
  if (status != WEIR_OK) return status;
  status = weir_comm_create(&comm, alone, timeout_s);
  if (status == WEIR_OK)
    status = time_sizes(engine, comm, most > 0 ? most : usual_most, plans, count, seconds);
  weir_comm_free(comm);
  alone->ops->destroy(alone);
  return status;
}
