/* Error feedback and exact top-k in one pass over memory: while e = g + r is made, and still in
 * registers, what reaches a floor estimated beforehand from a sample of g + r is listed.  The k
 * largest are then found among the few collected; a floor that misleads is found out, and the
 * search runs over e as always. */
#include "kernels/internal.h"

static void sample_sum(const weir_ahead_of *sum, const weir_layout *layout, float *sample) {
  size_t stretch = layout->offset[layout->tensors] / WEIR_SAMPLE;
  uint64_t state = 1;
  size_t t = 0;
  for (size_t i = 0; i < WEIR_SAMPLE; i++) {
    size_t at = weir_sample_at(i, stretch, &state);
    while (layout->offset[t + 1] <= at) t++;
    float fed = sum->g[t][at - layout->offset[t]];
    if (sum->u != NULL) fed += sum->momentum * sum->u[at];
    sample[i] = fed + sum->r[at];
  }
}

weir_status weir_ahead_begin(weir_codec_context *context, const weir_ahead_of *sum,
                             const weir_layout *layout, const float *e, double cr) {
  const size_t n = layout->offset[layout->tensors];
  const size_t k = weir_topk_kept(layout, cr);
  weir_ahead_forget(context);
  if (!weir_listable(n, k)) return WEIR_OK;
  uint32_t floor_bits = 0;
  weir_status status = weir_context_reserve(context, WEIR_SAMPLE);
  if (status == WEIR_OK) {
    sample_sum(sum, layout, context->magnitude);
    status = weir_list_floor(context, n, k, &floor_bits);
  }
  if (status == WEIR_OK) {
    context->ahead.list = (weir_candidates){.floor_bits = floor_bits,
                                            .magnitude = context->magnitude,
                                            .position = context->position,
                                            .capacity = context->capacity};
    context->ahead.e = e;
    context->ahead.n = n;
    context->ahead.k = k;
  }
  return status;
}

void weir_ahead_forget(weir_codec_context *context) { context->ahead.e = NULL; }

static weir_candidates *list_of(weir_codec_context *context) {
  return context->ahead.e != NULL ? &context->ahead.list : NULL;
}

void weir_ahead_feed(weir_codec_context *context, size_t at, const float *g, const float *r,
                     float *e, size_t n, weir_moments *moments) {
  weir_cpu()->feed(
      &(weir_feeding){
          .g = g, .r = r, .e = e, .n = n, .list = list_of(context), .base = (uint32_t)at},
      moments);
}
