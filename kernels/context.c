/* Scratch of one thread, and what every select checks. */
#include <stdlib.h>

#include "base/base.h"
#include "kernels/internal.h"

weir_status weir_codec_context_create(weir_codec_context **out) {
  *out = calloc(1, sizeof **out);
  return *out != NULL ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for a codec's scratch");
}

void weir_codec_context_free(weir_codec_context *context) {
  if (context == NULL) {
    return;
  }
  free(context->magnitude);
  free(context->position);
  free(context->mark);
  free(context);
}

void weir_codec_context_use(weir_codec_context *context, weir_pool *pool) {
  context->pool = pool;
  free(context->magnitude); /* the next use makes room as the pool wants it */
  free(context->position);
  context->magnitude = NULL;
  context->position = NULL;
  context->capacity = 0;
}

weir_status weir_context_reserve(weir_codec_context *context, size_t candidates) {
  if (context->capacity >= candidates && context->magnitude != NULL) {
    return WEIR_OK;
  }
  /* With threads, each compacts into a share of its own, twice as large as an even one. */
  size_t count = context->pool == NULL ? candidates + WEIR_CANDIDATE_SLACK
                                       : 2 * candidates + WEIR_POOL_MOST * WEIR_CANDIDATE_SLACK;
  float *magnitude = malloc(count * sizeof *magnitude);
  uint32_t *position = malloc(count * sizeof *position);
  if (magnitude == NULL || position == NULL) {
    free(magnitude);
    free(position);
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu candidates of a top-k search", candidates);
  }
  free(context->magnitude);
  free(context->position);
  context->magnitude = magnitude;
  context->position = position;
  context->capacity = candidates;
  return WEIR_OK;
}

weir_status weir_context_marks(weir_codec_context *context, size_t words) {
  if (words <= context->mark_words && context->mark != NULL) {
    return WEIR_OK;
  }
  uint64_t *mark = malloc((words > 0 ? words : 1) * sizeof *mark);
  if (mark == NULL) {
    return weir_fail(WEIR_E_NOMEM, "no memory to mark %zu elements", 64 * words);
  }
  free(context->mark);
  context->mark = mark;
  context->mark_words = words;
  return WEIR_OK;
}

weir_status weir_select_check(const weir_layout *layout, double cr, size_t kept, size_t capacity) {
  size_t n = layout->offset[layout->tensors];
  if (!(cr > 0.0 && cr <= 1.0)) {
    return weir_fail(WEIR_E_INVALID, "compression ratio %g is not in (0, 1]", cr);
  }
  if (n > UINT32_MAX) {
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than 32-bit indices reach", n);
  }
  if (capacity < kept) {
    return weir_fail(WEIR_E_CAPACITY, "%zu indices do not fit into room for %zu", kept, capacity);
  }
  return WEIR_OK;
}
