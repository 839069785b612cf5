/* Evaluating a fusion, the baselines, and the choice of the exact method. */
#include "planner/fusion.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"

static const double mib = 1048576.0;

const weir_fusion_baseline weir_fusion_baselines[] = {
    {"layer-wise", 0.0, 0},           {"bucket 2 MiB", 2.0 * mib, 0},
    {"bucket 4 MiB", 4.0 * mib, 0},   {"bucket 8 MiB", 8.0 * mib, 0},
    {"bucket 16 MiB", 16.0 * mib, 0}, {"bucket 25 MiB", 25.0 * mib, 0},
    {"bucket 32 MiB", 32.0 * mib, 0}, {"bucket 64 MiB", 64.0 * mib, 0},
    {"one bucket", 0.0, 1},           {"even, 2 buckets", 0.0, 2},
    {"even, 4 buckets", 0.0, 4},      {"even, 8 buckets", 0.0, 8},
    {"even, 16 buckets", 0.0, 16},
};
const size_t weir_fusion_baseline_count =
    sizeof weir_fusion_baselines / sizeof *weir_fusion_baselines;

void weir_fusion_free(weir_fusion *fusion) {
  free(fusion->end);
  *fusion = (weir_fusion){0};
}

double weir_fusion_evaluate(const weir_profile *profile, const weir_curve *compress,
                            const weir_curve *communicate, const size_t *end, size_t buckets) {
  double compressed = 0.0, sent = 0.0;
  for (size_t k = 0, tensor = 0; k < buckets; k++) {
    double bytes = 0.0;
    for (; tensor < end[k]; tensor++) {
      compressed += profile->tensors[tensor].gap_s;
      bytes += weir_profile_bytes(profile, tensor);
    }
    compressed += weir_curve_at(compress, bytes);
    sent = fmax(compressed, sent) + weir_curve_at(communicate, bytes);
  }
  return sent;
}

weir_status weir_fusion_solve(const weir_profile *profile, const weir_curve *compress,
                              const weir_curve *communicate, weir_fusion *best) {
  return compress->count || communicate->count
             ? weir_fusion_labels(profile, compress, communicate, 0, best)
             : weir_fusion_affine(profile, compress, communicate, best);
}

weir_status weir_fusion_run_baseline(const weir_fusion_baseline *baseline,
                                     const weir_profile *profile, const weir_curve *compress,
                                     const weir_curve *communicate, weir_fusion *fusion) {
  const size_t n = profile->count;
  *fusion = (weir_fusion){.end = malloc(n * sizeof *fusion->end)};
  if (!fusion->end) return weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", n);
  const size_t even = baseline->buckets < n ? baseline->buckets : n;
  double bytes = 0.0;
  for (size_t j = 1; j <= n; j++) {
    bytes += weir_profile_bytes(profile, j - 1);
    int close = 1;
    if (baseline->bucket_bytes > 0.0)
      close = bytes >= baseline->bucket_bytes;
    else if (even)
      close = j * even / n > (j - 1) * even / n;
    if (!close && j < n) continue;
    fusion->end[fusion->buckets++] = j;
    bytes = 0.0;
  }
  fusion->iteration_s =
      weir_fusion_evaluate(profile, compress, communicate, fusion->end, fusion->buckets);
  return WEIR_OK;
}
