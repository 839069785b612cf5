/* dgc: the selection of Deep Gradient Compression (Lin et al., 2018, section 3.3 and appendix).
 * Per tensor of n elements, of which k are to be kept:
 *
 *   1  a sample of 1 % gives a threshold: its (k/n)-quantile of |e|;
 *   2  all elements that reach it are collected in one pass;
 *   3  more than k: the k largest of them, which are exactly the k largest of all ("hierarchical
 *      selection").  Fewer, where the paper sends fewer: all of them, and from the lowest index up
 *      enough of those that reach a second, more careful threshold of the same sample.
 *
 * So exactly k are kept, every one of them above the second threshold.  A sample that misleads
 * (neither is met, or far too many are collected) is found out, and the exact search runs instead;
 * so it does for short tensors and k > n/4.
 *
 * The paper's momentum correction, momentum factor masking, clipping and warm-up change what comes
 * into a codec, not the codec: decorate.h, and engine/velocity.c, which goes with any codec. */
#include <math.h>

#include "kernels/internal.h"

#define SAMPLE_LEAST ((size_t)8192)
#define SHARE 100 /* one in so many elements is sampled */

/* Step 3 when the list of count elements that reach high is too short. */
static bool fill_up(const float *e, size_t n, size_t k, weir_band band, uint32_t base,
                    uint32_t *index) {
  return weir_cpu()->count(e, n, band.low) >= k && weir_cpu()->emit(e, n, band, base, index) == k;
}

static weir_status select_tensor(weir_codec_context *context, const float *e, size_t n, size_t k,
                                 uint32_t base, uint32_t *index) {
  size_t sampled = n / SHARE > SAMPLE_LEAST ? n / SHARE : SAMPLE_LEAST;
  if (n < 4 * SAMPLE_LEAST || k > n / 4) {
    return weir_topk_indices(context, e, n, k, base, index);
  }
  weir_status status = weir_context_reserve(context, sampled > 2 * k ? sampled : 2 * k);
  if (status != WEIR_OK) {
    return status;
  }
  weir_sample(e, n, sampled, context->magnitude);
  double share = (double)k / (double)n * (double)sampled;
  size_t rank = (size_t)ceil(share);
  size_t careful = (size_t)ceil(share + 4.0 * sqrt(share) + 8.0);
  uint32_t high = weir_kth_largest(context, context->magnitude, sampled, rank).bits;
  uint32_t low = weir_kth_largest(context, context->magnitude, sampled, careful).bits;
  size_t count = weir_compact(context, e, n, high, context->capacity);
  if (count != SIZE_MAX && count >= k) {
    weir_kth kth = weir_kth_largest(context, context->magnitude, count, k);
    (void)weir_emit_candidates(context, count, weir_band_of(kth, k), base, index);
    return WEIR_OK;
  }
  if (count != SIZE_MAX && fill_up(e, n, k, (weir_band){high, low, k - count, k}, base, index)) {
    return WEIR_OK;
  }
  return weir_topk_indices(context, e, n, k, base, index);
}

weir_status weir_dgc_select(weir_codec_context *context, const float *e, const weir_layout *layout,
                            double cr, uint32_t *index, size_t capacity, size_t *k) {
  return weir_select_tensors(context, e, layout, cr, index, capacity, k, select_tensor);
}
