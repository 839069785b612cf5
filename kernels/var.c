/* var: VAR-Topk, variance-based AR-Topk (flexible communication, section 3-B, algorithm 1
 * lines 10-13). The root is the rank whose error-fed gradient has the largest variance,
 * sum(e^2)/n - (sum(e)/n)^2; the indices are the exact top-k of the root's gradient. */
#include "kernels/internal.h"

weir_status weir_var_select(weir_codec_context *context, const float *e, const weir_layout *layout,
                            double cr, uint32_t *index, size_t capacity, size_t *k) {
  return weir_topk_select(context, e, layout, cr, index, capacity, k);
}

double weir_variance(const weir_moments *moments, size_t n) {
  if (n == 0) {
    return 0.0;
  }
  double mean = moments->sum / (double)n;
  double variance = moments->sum_square / (double)n - mean * mean;
  /* Rounding can push the variance of equal elements below zero. */
  return variance > 0.0 ? variance : 0.0;
}
