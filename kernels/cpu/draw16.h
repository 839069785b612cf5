/* Stochastic rounding with AVX-512, 16 elements at a time.  Included by avx512.c.
 *
 * An element at t on the grid goes up where t - floor(t) > d / 2^24, d the 24 upper bits of its
 * draw.  In integers: with T = ceil(2^24 t), the carry of T + (2^24 - 1 - d) into bit 24 says so,
 * and what stands from bit 24 on is the code.  2^24 t is exact, and for integers d ceil(y) > d
 * where y > d. */

/* 2^32 - 1 - weir_mix32, 16 at a time. */
TARGET static inline __m512i mix32_inverted(__m512i x) {
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x7feb352d));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)UINT32_C(0x846ca68b)));
  __m512i shifted = _mm512_srli_epi32(x, 16);
  return _mm512_ternarylogic_epi32(x, shifted, shifted, 0xc3); /* not (x xor shifted) */
}

typedef struct grid16 {
  __m512 base, inverse, zero, top;
} grid16;

TARGET static inline grid16 grid_in_lanes(weir_grid grid) {
  return (grid16){_mm512_set1_ps(grid.base), _mm512_set1_ps(grid.inverse),
                  _mm512_set1_ps(grid.zero), _mm512_set1_ps((float)grid.top)};
}

TARGET static inline __m512i stochastic_codes(__m512 x, grid16 grid, __m512i draw) {
  __m512 t = _mm512_sub_ps(x, grid.base);
  t = _mm512_add_ps(_mm512_mul_ps(t, grid.inverse), grid.zero);
  t = _mm512_min_ps(_mm512_max_ps(t, _mm512_setzero_ps()), grid.top);
  __m512i place = _mm512_cvt_roundps_epu32(_mm512_mul_ps(t, _mm512_set1_ps(0x1p24F)),
                                           _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  __m512i chance = _mm512_srli_epi32(mix32_inverted(draw), 8);
  return _mm512_srli_epi32(_mm512_add_epi32(place, chance), 24);
}

TARGET static void quantize_stochastic(const float *x, size_t n, weir_grid grid, uint32_t key,
                                       uint8_t *code) {
  grid16 lanes = grid_in_lanes(grid);
  __m512i draw = counting(key);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512i codes = stochastic_codes(_mm512_loadu_ps(x + i), lanes, draw);
    _mm_storeu_si128((__m128i *)(void *)(code + i), _mm512_cvtepi32_epi8(codes));
    draw = _mm512_add_epi32(draw, _mm512_set1_epi32(16));
  }
  plain_quantize_stochastic(x + i, n - i, grid, key + (uint32_t)i, code + i);
}

/* Pairs of lanes become low + 16 * high, a byte each. */
TARGET static inline __m128i nibbles_of(__m512i codes) {
  return _mm512_cvtepi64_epi8(_mm512_or_si512(codes, _mm512_srli_epi64(codes, 28)));
}

TARGET static void quantize_nibbles(const float *x, size_t n, weir_grid grid, uint32_t key,
                                    uint8_t *out) {
  grid16 lanes = grid_in_lanes(grid);
  __m512i draw = counting(key);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512i codes = stochastic_codes(_mm512_loadu_ps(x + i), lanes, draw);
    _mm_storel_epi64((__m128i *)(void *)(out + i / 2), nibbles_of(codes));
    draw = _mm512_add_epi32(draw, _mm512_set1_epi32(16));
  }
  if (i < n) { /* whole eights, filled up with zeros */
    __mmask16 rest = (__mmask16)((1U << (n - i)) - 1);
    __m512i codes = stochastic_codes(_mm512_maskz_loadu_ps(rest, x + i), lanes, draw);
    uint64_t last = (uint64_t)_mm_cvtsi128_si64(nibbles_of(_mm512_maskz_mov_epi32(rest, codes)));
    memcpy(out + i / 2, &last, (n - i + 7) / 8 * 4);
  }
}
