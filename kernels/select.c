/* Exact selection of the k largest magnitudes in linear time.
 *
 * A sample of the gradient estimates a magnitude somewhat below the k-th largest; one
 * compaction pass collects everything above it, and the exact search runs on that short list.
 * When the sample cannot help (small n, large k), misleads (too few collected) or meets ties
 * in bulk (too many), the search runs over all elements: either the estimate is itself the
 * k-th magnitude, which two counts show, or three counting passes fix the k-th magnitude digit
 * by digit. Every route gives the same indices. */
#include <math.h>

#include "kernels/internal.h"

#define SAMPLE 8192

/* Count digits of the elements whose bits above the digit equal prefix. */
static void count_digits(uint32_t histogram[][WEIR_RADIX_BINS], size_t copies, const float *x,
                         size_t n, unsigned shift, uint32_t mask, uint32_t prefix,
                         unsigned prefix_shift) {
  memset(histogram, 0, copies * sizeof histogram[0]);
  for (size_t i = 0; i < n; i++) {
    uint32_t bits = weir_magnitude(x[i]);
    if (bits >> prefix_shift == prefix) {
      /* Neighbours go to different copies: equal digits do not wait for each other. */
      histogram[i & (copies - 1)][(bits >> shift) & mask]++;
    }
  }
  for (size_t copy = 1; copy < copies; copy++) {
    for (size_t bin = 0; bin <= mask; bin++) {
      histogram[0][bin] += histogram[copy][bin];
    }
  }
}

weir_kth weir_kth_largest(weir_codec_context *context, const float *x, size_t n, size_t k) {
  static const struct {
    unsigned shift, width;
  } digit[] = {{20, 11}, {10, 10}, {0, 10}};
  size_t copies = n < 4096 ? 1 : WEIR_RADIX_COPIES;
  weir_kth kth = {0, 0};
  uint32_t prefix = 0;
  for (size_t level = 0; level < 3; level++) {
    unsigned shift = digit[level].shift;
    uint32_t mask = (UINT32_C(1) << digit[level].width) - 1;
    count_digits(context->histogram, copies, x, n, shift, mask, prefix,
                 shift + digit[level].width);
    uint32_t bin = mask;
    while (kth.above + context->histogram[0][bin] < k) {
      kth.above += context->histogram[0][bin];
      bin--;
    }
    prefix = prefix << digit[level].width | bin;
  }
  kth.bits = prefix;
  return kth;
}

void weir_sample(const float *e, size_t n, size_t count, float *sample) {
  size_t stretch = n / count;
  uint64_t state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    sample[i] = e[i * stretch + (size_t)(((state >> 32) * stretch) >> 32)];
  }
}

/* Magnitude above which about k of n lie, erring on the low side. */
static uint32_t estimate_floor(weir_codec_context *context, const float *e, size_t n, size_t k,
                               size_t *expected) {
  float *sample = context->magnitude;
  weir_sample(e, n, SAMPLE, sample);
  double share = (double)k / (double)n * SAMPLE;
  double rank = ceil(share + 4.0 * sqrt(share) + 8.0);
  rank = rank < SAMPLE ? rank : SAMPLE;
  *expected = (size_t)((rank + 4.0 * sqrt(rank) + 8.0) / SAMPLE * (double)n);
  return weir_kth_largest(context, sample, SAMPLE, (size_t)rank).bits;
}

/* Is the k-th largest magnitude exactly bits?  So it is when ties in bulk spoil the short list. */
static bool is_kth(const float *e, size_t n, size_t k, uint32_t bits, weir_kth *kth) {
  size_t above = weir_cpu()->count(e, n, bits + 1);
  if (above >= k || weir_cpu()->count(e, n, bits) < k) {
    return false;
  }
  *kth = (weir_kth){bits, above};
  return true;
}

weir_status weir_search(weir_codec_context *context, const float *e, size_t n, size_t k,
                        weir_found *out) {
  *out = (weir_found){0};
  if (n < 4 * (size_t)SAMPLE || k > n / 4) {
    out->kth = weir_kth_largest(context, e, n, k);
    return WEIR_OK;
  }
  weir_status status = weir_context_reserve(context, SAMPLE);
  if (status != WEIR_OK) {
    return status;
  }
  size_t expected = 0;
  uint32_t floor_bits = estimate_floor(context, e, n, k, &expected);
  status = weir_context_reserve(context, expected > SAMPLE ? expected : SAMPLE);
  if (status != WEIR_OK) {
    return status;
  }
  size_t count = weir_cpu()->compact(e, n, floor_bits, context->magnitude, context->position,
                                     context->capacity);
  if (count != SIZE_MAX && count >= k) {
    out->kth = weir_kth_largest(context, context->magnitude, count, k);
    out->listed = count;
    out->floor_bits = floor_bits;
  } else if (!is_kth(e, n, k, floor_bits, &out->kth)) {
    out->kth = weir_kth_largest(context, e, n, k);
  }
  return WEIR_OK;
}

size_t weir_emit_candidates(const weir_codec_context *context, size_t count, weir_band band,
                            uint32_t base, uint32_t *index) {
  size_t taken = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t m = weir_magnitude(context->magnitude[i]);
    bool middle = m < band.high && m >= band.low && band.quota > 0;
    band.quota -= middle;
    if (middle || m >= band.high) {
      index[taken++] = base + context->position[i];
    }
  }
  return taken;
}

weir_status weir_topk_indices(weir_codec_context *context, const float *e, size_t n, size_t k,
                              uint32_t base, uint32_t *index) {
  if (k == n) {
    for (size_t i = 0; i < n; i++) {
      index[i] = base + (uint32_t)i;
    }
    return WEIR_OK;
  }
  weir_found found;
  weir_status status = weir_search(context, e, n, k, &found);
  if (status != WEIR_OK) {
    return status;
  }
  weir_band band = {found.kth.bits + 1, found.kth.bits, k - found.kth.above};
  if (found.listed > 0) {
    (void)weir_emit_candidates(context, found.listed, band, base, index);
  } else {
    (void)weir_cpu()->emit(e, n, band, base, index);
  }
  return WEIR_OK;
}
