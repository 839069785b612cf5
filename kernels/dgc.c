/* dgc: the selection of Deep Gradient Compression (Lin et al., 2018, section 3.3 and appendix).
 * Per tensor of n elements, of which k are to be kept:
 *
 *   1  a sample of 1 % gives a threshold: its (k/n)-quantile of |e|;
 *   2  all elements that reach it are collected;
 *   3  more than k: the k largest of them, which are exactly the k largest of all ("hierarchical
 *      selection").  Fewer, where the paper sends fewer: all of them, and from the lowest index up
 *      enough of those that reach a second, more careful threshold of the same sample.
 *
 * So exactly k are kept, every one of them above the second threshold.  Which of the two it is,
 * falls out one way as often as the other: so the one pass collects what reaches the second, and
 * both are decided there.  A sample that misleads (more is collected than there is room for, or too
 * little) is found out, and takes more passes; short tensors and k > n/4 are searched exactly.
 *
 * The paper's momentum correction, momentum factor masking, clipping and warm-up change what comes
 * into a codec, not the codec: decorate.h, which goes with any codec. */
#include <math.h>

#include "kernels/internal.h"

#define SHARE 100 /* one in so many elements is sampled */

static size_t sampled_of(size_t n) { return n / SHARE > WEIR_SAMPLE ? n / SHARE : WEIR_SAMPLE; }

/* Step 3, with `above` elements that reach high. */
static weir_band fill_up(uint32_t high, uint32_t low, size_t above, size_t k) {
  return (weir_band){high, low, k - above, k};
}

/* More elements reach low than there is room for, or one thread had for its share. */
static weir_status select_crowded(weir_codec_context *context, const float *e, size_t n, size_t k,
                                  uint32_t high, uint32_t low, uint32_t base, uint32_t *index) {
  const size_t above = weir_cpu()->count(e, n, high);
  if (above < k && weir_cpu()->emit(e, n, fill_up(high, low, above, k), base, index) == k)
    return WEIR_OK;
  return weir_topk_indices(context, e, n, k, base, index);
}

static weir_status select_tensor(weir_codec_context *context, const float *e, size_t n, size_t k,
                                 uint32_t base, uint32_t *index) {
  if (!weir_listable(n, k)) return weir_topk_indices(context, e, n, k, base, index);
  const size_t sampled = sampled_of(n);
  const weir_list_plan plan = weir_plan_list(n, k, sampled);
  const size_t rank = (size_t)ceil((double)k / (double)n * (double)sampled);
  weir_status status = weir_context_reserve(context, plan.room);
  if (status != WEIR_OK) return status;
  weir_sample(e, n, sampled, context->magnitude);
  const uint32_t high = weir_kth_largest(context, context->magnitude, sampled, rank).bits;
  const uint32_t low = weir_kth_largest(context, context->magnitude, sampled, plan.rank).bits;
  const size_t count = weir_compact(context, e, n, low, context->capacity);
  if (count == SIZE_MAX) return select_crowded(context, e, n, k, high, low, base, index);
  if (count < k) return weir_topk_indices(context, e, n, k, base, index);
  const size_t above = weir_cpu()->count(context->magnitude, count, high);
  const weir_band band =
      above < k ? fill_up(high, low, above, k)
                : weir_band_of(weir_kth_largest(context, context->magnitude, count, k), k);
  (void)weir_emit_candidates(context, count, band, base, index);
  return WEIR_OK;
}

static weir_status select_each(weir_codec_context *context, const float *e,
                               const weir_layout *layout, double cr, uint32_t *index,
                               size_t capacity, size_t *k) {
  return weir_select_tensors(context, e, layout, cr, index, capacity, k, select_tensor);
}

static size_t listed(size_t n, size_t k) { return weir_plan_list(n, k, sampled_of(n)).room; }

const weir_codec weir_codec_dgc = {
    .id = WEIR_CODEC_DGC,
    .name = "dgc",
    .description = "top of each tensor by a sampled threshold (Deep Gradient Compression)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER),
    .wires = WEIR_WIRES_ALL,
    .by_tensor = true,
    .device = true,
    .kept = weir_lwtopk_kept,
    .select = select_each,
    .listed = listed,
    .prior = {2e-5, 2e-9, 0, 4e-9},
};
