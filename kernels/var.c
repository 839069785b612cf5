/* var: VAR-Topk, variance-based AR-Topk (flexible communication, section 3-B, algorithm 1
 * lines 10-13). The root is the rank whose error-fed gradient has the largest variance,
 * sum(e^2)/n - (sum(e)/n)^2; the indices are the exact top-k of the root's gradient. */
#include <math.h>

#include "kernels/internal.h"

double weir_variance(const weir_moments *moments, size_t n) {
  if (n == 0) return 0.0;
  double mean = moments->sum / (double)n;
  double variance = moments->sum_square / (double)n - mean * mean;
  /* Rounding can push the variance of equal elements below zero. */
  return variance > 0.0 ? variance : 0.0;
}

int weir_variance_root(const float *variance, int ranks) {
  int root = 0;
  for (int r = 1; r < ranks; r++)
    if (variance[r] > variance[root] || (isnan(variance[root]) && !isnan(variance[r]))) root = r;
  return root;
}

const weir_codec weir_codec_var = {
    .id = WEIR_CODEC_VAR,
    .name = "var",
    .description = "top-k indices of the rank of largest variance (VAR-Topk, algorithm 1)",
    .schemes = WEIR_WITH(WEIR_SCHEME_SHARED),
    .wires = WEIR_WIRES_SUMMED,
    .shared_indices = true,
    .by_variance = true,
    .device = true,
    .kept = weir_topk_kept,
    .select = weir_topk_select,
    .prior = {2e-5, 2.5e-9, 0, 4e-9},
};
