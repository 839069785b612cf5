/* mstopk: MSTopK ("Towards Scalable Distributed Training of Deep Learning on Public Cloud
 * Clusters", algorithm 1).  ROUNDS rounds of bisection look for a threshold between the mean
 * and the largest of |e|: thres = mean + ratio (largest - mean).  thres1 is the lowest threshold
 * tried that at most k elements reach, thres2 the highest that more than k reach.  Kept are all
 * elements >= thres1 and a contiguous slice of those in [thres2, thres1), in all exactly k.
 *
 * Where this differs from the paper's listing, and why:
 * - the slice starts at the first such element instead of a random one: deterministic, and equal
 *   magnitudes keep the lower index;
 * - thres1 starts at infinity, not at 0: when no threshold tried is reached by at most k elements
 *   (all magnitudes equal), the listing's 0 would take everything;
 * - a round asks only whether at most k elements reach the threshold, that is, whether the
 *   (k+1)-th largest magnitude lies below it.  That magnitude is found once, and the rounds touch
 *   no data.  Every round decides as in the paper. */
#include "kernels/internal.h"

#define ROUNDS 30

/* Algorithm 1, lines 4-24; border: bits of the (k+1)-th largest magnitude. */
static weir_band bisect(double mean, double largest, uint32_t border) {
  /* Above every finite magnitude, and above border even if the caller broke the rule that e be
   * finite: never more than k elements reach band.high. */
  weir_band band = {border < WEIR_INF_BITS ? WEIR_INF_BITS : border + 1, 0, 0};
  double l = 0.0;
  double r = 1.0;
  for (int round = 0; round < ROUNDS; round++) {
    double ratio = l + (r - l) / 2.0;
    uint32_t bits = weir_bits_reaching(mean + ratio * (largest - mean));
    if (border < bits) {
      r = ratio;
      band.high = bits;
    } else {
      l = ratio;
      band.low = bits;
    }
  }
  return band;
}

static weir_status select_some(weir_codec_context *context, const float *e, size_t n, size_t k,
                               uint32_t *index) {
  const weir_cpu_ops *cpu = weir_cpu();
  double sum = 0.0;
  uint32_t max_bits = 0;
  cpu->abs_sum_max(e, n, &sum, &max_bits);
  weir_found found;
  weir_status status = weir_search(context, e, n, k + 1, &found);
  if (status != WEIR_OK) {
    return status;
  }
  weir_band band = bisect(sum / (double)n, (double)weir_float_of(max_bits), found.kth.bits);
  /* A short list holds everything from floor_bits up, and band.high > k-th >= floor_bits. */
  band.quota = k - (found.listed > 0 ? cpu->count(context->magnitude, found.listed, band.high)
                                     : cpu->count(e, n, band.high));
  if (found.listed > 0 && band.low >= found.floor_bits) {
    (void)weir_emit_candidates(context, found.listed, band, 0, index);
  } else {
    (void)cpu->emit(e, n, band, 0, index);
  }
  return WEIR_OK;
}

weir_status weir_mstopk_select(weir_codec_context *context, const float *e,
                               const weir_layout *layout, double cr, uint32_t *index,
                               size_t capacity, size_t *k) {
  size_t n = layout->offset[layout->tensors];
  size_t kept = weir_topk_kept(layout, cr);
  weir_status status = weir_select_check(layout, cr, kept, capacity);
  if (status == WEIR_OK && kept < n) {
    status = select_some(context, e, n, kept, index);
  } else if (status == WEIR_OK) {
    status = weir_topk_indices(context, e, n, kept, 0, index);
  }
  *k = status == WEIR_OK ? kept : 0;
  return status;
}
