/* Half precision with AVX2: as half16.h, 8 elements at a time.  Included by avx2.c. */
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/quantize.h"

TARGET static inline __m256 halves8(const uint8_t *x) {
  const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)x);
  const __m128i ones = _mm_set1_epi16(0x7c00);
  if (_mm_movemask_epi8(_mm_cmpeq_epi16(_mm_and_si128(half, ones), ones)) != 0) {
    float value[8];
    plain_fp16_decode(x, 8, value, WEIR_DECODE_STORE);
    return _mm256_loadu_ps(value);
  }
  return _mm256_cvtph_ps(half);
}

TARGET static void fp16_decode(const uint8_t *x, size_t n, float *to, weir_decoding how) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 v = halves8(x + 2 * i);
    if (how != WEIR_DECODE_STORE) {
      fetch_ahead(to + i);
      const __m256 old = _mm256_loadu_ps(to + i);
      v = how == WEIR_DECODE_ADD ? _mm256_add_ps(old, v) : _mm256_sub_ps(old, v);
    }
    _mm256_storeu_ps(to + i, v);
  }
  plain_fp16_decode(x + 2 * i, n - i, to + i, how);
}

TARGET static void fp16_encode(const float *x, size_t n, uint8_t *out) {
  const __m256 sign = _mm256_set1_ps(-0.0F), most = _mm256_set1_ps(65504.0F);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    const __m256 m = _mm256_min_ps(_mm256_andnot_ps(sign, v), most);
    const __m256 limited = _mm256_or_ps(m, _mm256_and_ps(v, sign));
    _mm_storeu_si128((__m128i *)(void *)(out + 2 * i),
                     _mm256_cvtps_ph(limited, _MM_FROUND_TO_NEAREST_INT));
  }
  plain_fp16_encode(x + i, n - i, out + 2 * i);
}
