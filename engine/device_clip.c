/* Clipping gradients on a device (session/clip.c), before they are handed in: queued on the
 * caller's stream. */
#include "engine/device.h"
#include "kernels/half.h"

typedef struct run {
  unsigned char *g;
  size_t n;
  unsigned type;
} run;

/* The next tensors of one type from *t on that follow one another in memory; n 0: there are
 * none. */
static run next_run(const weir_engine *engine, void *const *g, const uint32_t *place, size_t *t) {
  const size_t *offset = engine->layout.offset;
  run r = {NULL, 0, WEIR_FP32};
  for (; *t < engine->layout.tensors; ++*t) {
    const size_t n = offset[place[*t] + 1] - offset[place[*t]];
    const unsigned type = engine->types[place[*t]];
    if (n == 0) continue;
    if (r.n == 0)
      r = (run){g[*t], 0, type};
    else if (type != r.type || (unsigned char *)g[*t] != r.g + r.n * weir_type_bytes(type))
      break;
    r.n += n;
  }
  return r;
}

static weir_status check(const weir_engine *engine, void *const *g, const uint32_t *place) {
  const size_t *offset = engine->layout.offset;
  weir_status status = WEIR_OK;
  for (size_t t = 0; t < engine->layout.tensors && status == WEIR_OK; t++)
    if (offset[place[t] + 1] > offset[place[t]]) status = engine->backend->check(engine, g[t]);
  return status;
}

weir_status weir_engine_clip(const weir_engine *engine, void *const *g, const uint32_t *place,
                             double limit, double *norm) {
  const weir_on_device *on = engine->device;
  weir_status status = check(engine, g, place);
  bool more = false;
  run r;
  for (size_t t = 0; status == WEIR_OK && (r = next_run(engine, g, place, &t)).n > 0; more = true)
    status = weir_on_device_status(on, on->ops->measure(on->device, r.g, r.type, r.n, more));
  for (size_t t = 0; status == WEIR_OK && (r = next_run(engine, g, place, &t)).n > 0;)
    status = weir_on_device_status(on, on->ops->clip(on->device, r.g, r.type, r.n, limit));
  if (norm == NULL || status != WEIR_OK) return status;
  *norm = 0;
  return more ? weir_on_device_status(on, on->ops->norm(on->device, norm)) : WEIR_OK;
}
