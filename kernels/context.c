/* Scratch of one thread, and what every select checks. */
#include <stdlib.h>

#include "base/base.h"
#include "kernels/internal.h"

weir_status weir_codec_context_create(weir_codec_context **out) {
  *out = calloc(1, sizeof **out);
  if (*out == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a codec's scratch");
  weir_give_back(*out, sizeof **out); /* all zero: what is not used takes none */
  return WEIR_OK;
}

void weir_codec_context_free(weir_codec_context *context) {
  if (context == NULL) return;
  free(context->own_magnitude);
  free(context->own_position);
  free(context->bitmap);
  free(context);
}

void weir_codec_context_use(weir_codec_context *context, weir_pool *pool) {
  weir_ahead_forget(context);
  context->pool = pool;
  free(context->own_magnitude); /* the next use makes room as the pool wants it */
  free(context->own_position);
  context->own_magnitude = NULL;
  context->own_position = NULL;
  context->own_capacity = 0;
  weir_codec_context_lend(context, NULL, 0);
}

void weir_codec_context_lend(weir_codec_context *context, void *memory, size_t bytes) {
  context->lent = memory;
  context->lent_bytes = bytes;
  context->magnitude = memory == NULL ? context->own_magnitude : NULL;
  context->position = memory == NULL ? context->own_position : NULL;
  context->capacity = memory == NULL ? context->own_capacity : 0;
}

void weir_codec_context_touched(weir_codec_context *context, const void *const *g,
                                const uint8_t *type) {
  context->touched.g = g;
  context->touched.type = type;
}

/* With threads, each compacts into a share of its own, twice as large as an even one. */
size_t weir_context_room(size_t candidates, bool threads) {
  const size_t count = threads ? 2 * candidates + WEIR_POOL_MOST * WEIR_CANDIDATE_SLACK
                               : candidates + WEIR_CANDIDATE_SLACK;
  return count * (sizeof(float) + sizeof(uint32_t));
}

static weir_status make_room(weir_codec_context *context, size_t candidates, size_t count) {
  float *magnitude = malloc(count * sizeof *magnitude);
  uint32_t *position = malloc(count * sizeof *position);
  if (magnitude == NULL || position == NULL) {
    free(magnitude);
    free(position);
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu candidates of a top-k search", candidates);
  }
  free(context->own_magnitude);
  free(context->own_position);
  context->own_magnitude = magnitude;
  context->own_position = position;
  context->own_capacity = candidates;
  return WEIR_OK;
}

weir_status weir_context_reserve(weir_codec_context *context, size_t candidates) {
  weir_ahead_forget(context); /* its list is where others will be */
  if (context->capacity >= candidates && context->magnitude != NULL) return WEIR_OK;
  const size_t bytes = weir_context_room(candidates, context->pool != NULL);
  const size_t count = bytes / (sizeof(float) + sizeof(uint32_t));
  const bool lent = bytes <= context->lent_bytes;
  if (!lent && (context->own_capacity < candidates || context->own_magnitude == NULL)) {
    const weir_status status = make_room(context, candidates, count);
    if (status != WEIR_OK) return status;
  }
  context->magnitude = lent ? context->lent : context->own_magnitude;
  context->position = lent ? (uint32_t *)context->lent + count : context->own_position;
  context->capacity = lent ? candidates : context->own_capacity;
  return WEIR_OK;
}

weir_status weir_context_bitmap(weir_codec_context *context, size_t words) {
  if (words <= context->bitmap_words && context->bitmap != NULL) return WEIR_OK;
  uint64_t *bitmap = malloc((words > 0 ? words : 1) * sizeof *bitmap);
  if (bitmap == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a bitmap of %zu elements", 64 * words);
  free(context->bitmap);
  context->bitmap = bitmap;
  context->bitmap_words = words;
  return WEIR_OK;
}

weir_status weir_select_check(const weir_layout *layout, double cr, size_t kept, size_t capacity) {
  size_t n = layout->offset[layout->tensors];
  if (!(cr > 0.0 && cr <= 1.0))
    return weir_fail(WEIR_E_INVALID, "compression ratio %g is not in (0, 1]", cr);
  if (n > UINT32_MAX)
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than 32-bit indices reach", n);
  if (capacity < kept)
    return weir_fail(WEIR_E_CAPACITY, "%zu indices do not fit into room for %zu", kept, capacity);
  return WEIR_OK;
}
