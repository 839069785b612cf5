/* Spreading with AVX2: 8 elements at a time.  Included by avx2.c. */
#include "kernels/cpu/byte_lanes.h"
#include "kernels/cpu/spread.h"

/* Lane j gets the value whose number is how many lanes below j are set; the others, any. */
TARGET static inline __m256 spread8(__m256i ranks, const float *value) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(value), ranks);
}

TARGET static inline size_t spread_word(uint64_t bits, const float *value, float *to, bool stream) {
  const float *next = value;
  for (unsigned part = 0; part < 8; part++, bits >>= 8, to += 8) {
    __m256i ranks = byte_row(byte_ranks, bits);
    __m256 x =
        _mm256_blendv_ps(spread8(ranks, next), _mm256_setzero_ps(), _mm256_castsi256_ps(ranks));
    next += (size_t)__builtin_popcount((unsigned)(bits & 0xff));
    if (stream) {
      _mm256_stream_ps(to, x);
    } else {
      _mm256_storeu_ps(to, x);
    }
  }
  return (size_t)(next - value);
}

TARGET static size_t spread_add(const uint64_t *mask, size_t words, const float *value, float *to) {
  const float *next = value;
  for (size_t w = 0; w < words; w++, to += 64) {
    uint64_t bits = mask[w];
    if (bits == 0) continue;
    /* All eight parts, empty or not: where the last of them ends nobody could predict. */
    for (unsigned part = 0; part < 8; part++, bits >>= 8) {
      if (part % 2 == 0)
        _mm_prefetch((const char *)(to + 8 * part) + WEIR_SPREAD_AHEAD, _MM_HINT_T0);
      __m256i ranks = byte_row(byte_ranks, bits);
      __m256 old = _mm256_loadu_ps(to + 8 * part);
      __m256 sum = _mm256_add_ps(old, spread8(ranks, next));
      _mm256_storeu_ps(to + 8 * part, _mm256_blendv_ps(sum, old, _mm256_castsi256_ps(ranks)));
      next += (size_t)__builtin_popcount((unsigned)(bits & 0xff));
    }
  }
  return (size_t)(next - value);
}

TARGET static void drain(void) { _mm_sfence(); }

#include "kernels/cpu/spread_all.h"
