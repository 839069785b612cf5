/* The engine's memory.  Grows when a plan needs more than any before it, never within a step. */
#include <stdlib.h>

#include "base/base.h"
#include "engine/state.h"

/* malloc of count things of size bytes; at least one byte, NULL on overflow too. */
static void *room(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  return malloc(bytes > 0 ? bytes : 1);
}

static weir_status reserve_kept(weir_engine *engine, size_t k) {
  if (engine->index != NULL && k <= engine->kept_capacity) return WEIR_OK;
  uint32_t *index = room(k, sizeof *index);
  float *value = room(k, sizeof *value);
  float *error = room(k, sizeof *error);
  if (index == NULL || value == NULL || error == NULL) {
    free(index);
    free(value);
    free(error);
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu kept elements", k);
  }
  free(engine->index);
  free(engine->value);
  free(engine->error);
  engine->index = index;
  engine->value = value;
  engine->error = error;
  engine->kept_capacity = k;
  return WEIR_OK;
}

weir_status weir_engine_reserve(weir_engine *engine, const weir_plan *plan) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (codec == NULL) return weir_fail(WEIR_E_INVALID, "codec %u is unknown", plan->codec);
  if (codec->dense) return WEIR_OK;
  size_t stride;
  if (codec->encode != NULL) {
    stride = codec->bound(&engine->layout, plan->cr);
  } else {
    const size_t k = codec->kept(&engine->layout, plan->cr);
    weir_status status = reserve_kept(engine, k);
    if (status != WEIR_OK) return status;
    stride = weir_wire_bound(engine->n, k, (weir_wire_format)plan->wire);
  }
  /* At least what VAR's variances take, and every block aligned. */
  stride = (stride + 15) / 16 * 16 + 16;
  const size_t ranks = (size_t)engine->size;
  if (stride > SIZE_MAX / ranks)
    return weir_fail(WEIR_E_NOMEM, "%zu messages of %zu bytes do not fit memory", ranks, stride);
  if (stride * ranks > engine->blocks_capacity) {
    unsigned char *blocks = malloc(stride * ranks);
    if (blocks == NULL)
      return weir_fail(WEIR_E_NOMEM, "no memory for %zu messages of %zu bytes", ranks, stride);
    free(engine->blocks);
    engine->blocks = blocks;
    engine->blocks_capacity = stride * ranks;
  }
  engine->stride = stride;
  return WEIR_OK;
}

void weir_engine_release(weir_engine *engine) {
  free(engine->checkpoint.hook_bytes);
  free(engine->checkpoint.memory);
  free(engine->hooks);
  free(engine->states);
  free(engine->notes);
  free(engine->block_bytes);
  free(engine->blocks);
  free(engine->error);
  free(engine->value);
  free(engine->index);
  free(engine->spare);
  free(engine->fed);
  free(engine->residual);
  free(engine->submitted);
  free((void *)engine->layout.offset);
}
