/* Error feedback and exact top-k in one pass over memory: while e = g + r is written block by
 * block, and still in the first cache, what reaches a floor estimated beforehand from a sample of g
 * + r is collected.  The k largest are then found among the few collected; a floor that misleads is
 * found out, and the search runs over e as always. */
#include "kernels/internal.h"

/* Elements whose g, r and e are in the first cache together. */
#define BLOCK ((size_t)2048)

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

/* e = g + r with its moments; returns how many elements were collected, SIZE_MAX: too many. */
static size_t accumulate(weir_codec_context *context, const float *const *g,
                         const weir_layout *layout, const float *r, float *e, weir_moments *moments,
                         uint32_t floor_bits, size_t room) {
  size_t found = 0;
  for (size_t t = 0; t < layout->tensors; t++) {
    size_t first = layout->offset[t];
    size_t end = layout->offset[t + 1];
    for (size_t at = first; at < end; at += BLOCK) {
      size_t part = end - at < BLOCK ? end - at : BLOCK;
      weir_cpu()->accumulate(g[t] + (at - first), r + at, e + at, part, moments);
      if (found == SIZE_MAX || room == 0) {
        continue;
      }
      size_t more =
          weir_cpu()->compact(e + at, part, floor_bits, (uint32_t)at, context->magnitude + found,
                              context->position + found, room - found);
      found = more != SIZE_MAX ? found + more : SIZE_MAX;
    }
  }
  return found;
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
  size_t count =
      accumulate(context, g, layout, r, e, moments, floor_bits, listable ? context->capacity : 0);
  if (moments->nonfinite > 0) {
    return WEIR_OK;
  }
  if (listable) {
    weir_found found = weir_list_conclude(context, e, n, kept, floor_bits, count);
    weir_emit_found(context, e, n, kept, &found, 0, index);
  } else {
    status = weir_topk_indices(context, e, n, kept, 0, index);
  }
  *k = status == WEIR_OK ? kept : 0;
  return status;
}
