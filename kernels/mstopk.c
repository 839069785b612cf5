/* mstopk: MSTopK ("Towards Scalable Distributed Training of Deep Learning on Public Cloud
 * Clusters", algorithm 1).  N rounds of bisection (30 when selecting, as many as in the paper's
 * measurements) look for a threshold between the mean and the largest of |e|:
 * thres = mean + ratio (largest - mean).  thres1 is the lowest threshold
 * tried that at most k elements reach, thres2 the highest that more than k reach.  Kept are all
 * elements >= thres1 and a contiguous slice of those in [thres2, thres1), in all exactly k.
 *
 * Where this differs from the paper's listing, and why:
 * - the slice starts at the first such element instead of a random one: deterministic, and equal
 *   magnitudes keep the lower index;
 * - where the slice would be more than SLICE of what is kept, the largest of [thres2, thres1) are
 * kept instead: the bisection starts from the mean, and where that lies above the k-th magnitude
 * (one huge element) it separates nothing, and the listing would keep whatever comes first;
 * - thres1 starts at infinity, not at 0: when no threshold tried is reached by at most k elements
 *   (all magnitudes equal), the listing's 0 would take everything;
 * - a round asks only whether at most k elements reach the threshold, that is, whether the
 *   (k+1)-th largest magnitude lies below it.  That magnitude is found once, and the rounds touch
 *   no data.  Every round decides as in the paper. */
#include <math.h>

#include "kernels/internal.h"

#define SLICE 0.01

/* Algorithm 1, lines 4-24; border: bits of the (k+1)-th largest magnitude. */
static weir_mstopk_thresholds bisect(double mean, double largest, uint32_t border,
                                     unsigned rounds) {
  weir_mstopk_thresholds thresholds = {INFINITY, 0.0};
  double l = 0.0;
  double r = 1.0;
  for (unsigned round = 0; round < rounds; round++) {
    double ratio = l + (r - l) / 2.0;
    double threshold = mean + ratio * (largest - mean);
    if (border < weir_bits_reaching(threshold)) {
      r = ratio;
      thresholds.upper = threshold;
    } else {
      l = ratio;
      thresholds.lower = threshold;
    }
  }
  return thresholds;
}

weir_status weir_mstopk_search(weir_codec_context *context, const float *e, size_t n, size_t k,
                               unsigned rounds, weir_mstopk_thresholds *thresholds,
                               weir_found *found) {
  double sum = 0.0;
  uint32_t max_bits = 0;
  weir_cpu()->abs_sum_max(e, n, &sum, &max_bits);
  weir_status status = weir_search(context, e, n, k + 1, found);
  if (status == WEIR_OK)
    *thresholds = bisect(sum / (double)n, (double)weir_float_of(max_bits), found->kth.bits, rounds);
  return status;
}

static weir_status select_some(weir_codec_context *context, const float *e, size_t n, size_t k,
                               uint32_t base, uint32_t *index) {
  const weir_cpu_ops *cpu = weir_cpu();
  weir_mstopk_thresholds thresholds;
  weir_found found;
  weir_status status =
      weir_mstopk_search(context, e, n, k, WEIR_MSTOPK_ROUNDS, &thresholds, &found);
  if (status != WEIR_OK) return status;
  /* Above border even if the caller broke the rule that e be finite: never more than k elements
   * reach band.high.  A short list holds everything from floor_bits up, and high > border >=
   * floor_bits. */
  uint32_t border = found.kth.bits;
  uint32_t high = isfinite(thresholds.upper) ? weir_bits_reaching(thresholds.upper) : WEIR_INF_BITS;
  high = high > border ? high : border + 1;
  size_t reach = found.listed > 0 ? cpu->count(context->magnitude, found.listed, high)
                                  : cpu->count(e, n, high);
  weir_band band = {high, weir_bits_reaching(thresholds.lower), k - reach, k};
  if ((double)band.quota > SLICE * (double)k)
    return weir_topk_indices(context, e, n, k, base, index);
  if (found.listed > 0 && band.low >= found.floor_bits) {
    (void)weir_emit_candidates(context, found.listed, band, base, index);
  } else {
    (void)cpu->emit(e, n, band, base, index);
  }
  return WEIR_OK;
}

static weir_status select_all(weir_codec_context *context, const float *e,
                              const weir_layout *layout, double cr, uint32_t *index,
                              size_t capacity, size_t *k) {
  return weir_select_whole(context, e, layout, cr, index, capacity, k, select_some);
}

const weir_codec weir_codec_mstopk = {
    .id = WEIR_CODEC_MSTOPK,
    .name = "mstopk",
    .description = "threshold search over the whole gradient (MSTopK, algorithm 1)",
    .schemes =
        WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_HITOPK) | WEIR_WITH(WEIR_SCHEME_PATH),
    .wires = WEIR_WIRES_ALL,
    .device = true,
    .kept = weir_topk_kept,
    .select = select_all,
    .prior = {2e-5, 2e-9, 0, 4e-9},
};
