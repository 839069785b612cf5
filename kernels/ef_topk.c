/* Error feedback and exact top-k in one pass over memory: while e = g + r is made, and still in
 * registers, what reaches a floor estimated beforehand from a sample of g + r is listed.  The k
 * largest are then found among the few collected; a floor that misleads is found out, and the
 * search runs over e as always. */
#include "kernels/internal.h"

static void sample_sum(const float *const *g, const weir_layout *layout, const float *r,
                       float *sample) {
  size_t stretch = layout->offset[layout->tensors] / WEIR_SAMPLE;
  uint64_t state = 1;
  size_t t = 0;
  for (size_t i = 0; i < WEIR_SAMPLE; i++) {
    size_t at = weir_sample_at(i, stretch, &state);
    while (layout->offset[t + 1] <= at) {
      t++;
    }
    sample[i] = g[t][at - layout->offset[t]] + r[at];
  }
}

/* e = g + r with its moments, and the list of candidates (NULL: none). */
static void accumulate(const float *const *g, const weir_layout *layout, const float *r, float *e,
                       weir_moments *moments, weir_candidates *list) {
  const bool large = layout->offset[layout->tensors] >= WEIR_STREAM_LEAST && e != r;
  for (size_t t = 0; t < layout->tensors; t++) {
    const size_t at = layout->offset[t];
    const bool stream = large && (uintptr_t)(e + at) % 64 == 0 && e + at != g[t];
    weir_cpu()->feed(&(weir_feeding){.g = g[t],
                                     .r = r + at,
                                     .e = e + at,
                                     .n = layout->offset[t + 1] - at,
                                     .list = list,
                                     .base = (uint32_t)at,
                                     .stream = stream},
                     moments);
  }
  if (large) {
    weir_cpu()->drain();
  }
}

weir_status weir_ef_topk(weir_codec_context *context, const float *const *g,
                         const weir_layout *layout, const float *r, float *e, double cr,
                         weir_moments *moments, uint32_t *index, size_t capacity, size_t *k) {
  size_t n = layout->offset[layout->tensors];
  size_t kept = weir_topk_kept(layout, cr);
  *k = 0;
  weir_status status = weir_select_check(layout, cr, kept, capacity);
  bool listable = weir_listable(n, kept);
  uint32_t floor_bits = 0;
  if (status == WEIR_OK && listable) {
    status = weir_context_reserve(context, WEIR_SAMPLE);
  }
  if (status == WEIR_OK && listable) {
    sample_sum(g, layout, r, context->magnitude);
    status = weir_list_floor(context, n, kept, &floor_bits);
  }
  if (status != WEIR_OK) {
    return status;
  }
  weir_candidates list = {.floor_bits = floor_bits,
                          .magnitude = context->magnitude,
                          .position = context->position,
                          .capacity = context->capacity};
  accumulate(g, layout, r, e, moments, listable ? &list : NULL);
  if (moments->nonfinite > 0) {
    return WEIR_OK;
  }
  if (listable) {
    weir_found found = weir_list_conclude(context, e, n, kept, floor_bits, list.count);
    weir_emit_found(context, e, n, kept, &found, 0, index);
  } else {
    status = weir_topk_indices(context, e, n, kept, 0, index);
  }
  *k = status == WEIR_OK ? kept : 0;
  return status;
}
