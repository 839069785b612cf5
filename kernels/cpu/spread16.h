/* Spreading with AVX-512: 16 elements at a time.  Included by avx512.c. */
#include "kernels/cpu/spread.h"

/* The values of each quarter of a mask begin where those of the quarters before it end. */
#define UP_TO(bits, quarter) \
  (size_t) __builtin_popcountll((bits) & ((UINT64_C(1) << 16 * (quarter)) - 1))

TARGET static inline __m512 spread16(uint64_t bits, unsigned quarter, const float *value) {
  return _mm512_maskz_expand_ps((__mmask16)(bits >> 16 * quarter),
                                _mm512_loadu_ps(value + UP_TO(bits, quarter)));
}

TARGET static inline size_t spread_word(uint64_t bits, const float *value, float *to, bool stream) {
  __m512 a = spread16(bits, 0, value), b = spread16(bits, 1, value);
  __m512 c = spread16(bits, 2, value), d = spread16(bits, 3, value);
  if (stream) {
    _mm512_stream_ps(to, a);
    _mm512_stream_ps(to + 16, b);
    _mm512_stream_ps(to + 32, c);
    _mm512_stream_ps(to + 48, d);
  } else {
    _mm512_storeu_ps(to, a);
    _mm512_storeu_ps(to + 16, b);
    _mm512_storeu_ps(to + 32, c);
    _mm512_storeu_ps(to + 48, d);
  }
  return (size_t)__builtin_popcountll(bits);
}

TARGET static size_t spread_add(const uint64_t *mask, size_t words, const float *value, float *to) {
  const float *next = value;
  for (size_t w = 0; w < words; w++, to += 64) {
    uint64_t bits = mask[w];
    if (bits == 0) continue;
    for (unsigned quarter = 0; quarter < 4; quarter++) {
      _mm_prefetch((const char *)(to + 16 * quarter) + WEIR_SPREAD_AHEAD, _MM_HINT_T0);
      __m512 sum = _mm512_loadu_ps(to + 16 * quarter);
      sum = _mm512_mask_add_ps(sum, (__mmask16)(bits >> 16 * quarter), sum,
                               spread16(bits, quarter, next));
      _mm512_storeu_ps(to + 16 * quarter, sum);
    }
    next += (size_t)__builtin_popcountll(bits);
  }
  return (size_t)(next - value);
}

TARGET static void drain(void) { _mm_sfence(); }

#include "kernels/cpu/spread_all.h"
