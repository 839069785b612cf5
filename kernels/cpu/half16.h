/* Half precision with AVX-512: the processor's own conversions, 16 elements at a time.  Multiplying
 * by a power of two, as weir_fp16_value does, takes twice as long in some minutes as in others
 * where halves are denormal.  Included by avx512.c. */
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/quantize.h"

/* Of a half whose exponent is all ones the conversion would make Inf or NaN. */
TARGET static inline __m512 halves16(const uint8_t *x) {
  const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)x);
  const __m256i ones = _mm256_set1_epi16(0x7c00);
  if (_mm256_cmpeq_epi16_mask(_mm256_and_si256(half, ones), ones) != 0) {
    float value[16];
    plain_fp16_decode(x, 16, value, WEIR_DECODE_STORE);
    return _mm512_loadu_ps(value);
  }
  return _mm512_cvtph_ps(half);
}

TARGET static void fp16_decode(const uint8_t *x, size_t n, float *to, weir_decoding how) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 v = halves16(x + 2 * i);
    if (how != WEIR_DECODE_STORE) {
      fetch_ahead(to + i);
      const __m512 old = _mm512_loadu_ps(to + i);
      v = how == WEIR_DECODE_ADD ? _mm512_add_ps(old, v) : _mm512_sub_ps(old, v);
    }
    _mm512_storeu_ps(to + i, v);
  }
  plain_fp16_decode(x + 2 * i, n - i, to + i, how);
}

TARGET static void fp16_encode(const float *x, size_t n, uint8_t *out) {
  const __m512i sign = _mm512_set1_epi32((int)UINT32_C(0x80000000));
  const __m512 most = _mm512_set1_ps(65504.0F);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i bits = _mm512_loadu_si512(x + i);
    const __m512 m = _mm512_min_ps(_mm512_castsi512_ps(_mm512_andnot_si512(sign, bits)), most);
    const __m512i limited = _mm512_or_si512(_mm512_castps_si512(m), _mm512_and_si512(bits, sign));
    _mm256_storeu_si256((__m256i *)(void *)(out + 2 * i),
                        _mm512_cvtps_ph(_mm512_castsi512_ps(limited), _MM_FROUND_TO_NEAREST_INT));
  }
  plain_fp16_encode(x + i, n - i, out + 2 * i);
}
