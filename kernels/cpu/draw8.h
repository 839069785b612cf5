/* Rounding to codes with AVX2, 32 elements at a time.  Included by avx2.c.
 *
 * Stochastic rounding is done in integers as in draw16.h, with the sign turned: of an element at t
 * on the grid, T = ceil(2^24 t), and a draw d below 2^24, what stands in d - T from bit 24 on is
 * minus the code.  So no draw has to be inverted, and what AVX2 has for packing, which saturates at
 * either end of a signed byte, leaves what lies beyond the grid beyond it.  Codes above 127 are no
 * signed bytes: there floats are compared, as the scalar version does. */

typedef struct grid8 {
  __m256 base, inverse, zero, top;
} grid8;

TARGET static inline grid8 grid_in_lanes(weir_grid grid) {
  return (grid8){_mm256_set1_ps(grid.base), _mm256_set1_ps(grid.inverse), _mm256_set1_ps(grid.zero),
                 _mm256_set1_ps((float)grid.top)};
}

/* An element's place on the grid; 0 of NaN. */
TARGET static inline __m256 grid_places(const float *x, grid8 grid) {
  __m256 t = _mm256_sub_ps(_mm256_loadu_ps(x), grid.base);
  t = _mm256_add_ps(_mm256_mul_ps(t, grid.inverse), grid.zero);
  return _mm256_min_ps(_mm256_max_ps(t, _mm256_setzero_ps()), grid.top);
}

/* The 32 bytes that packing makes of four vectors, which are 0-3 8-11 16-19 24-27, 4-7 12-15 20-23
 * 28-31, in order. */
TARGET static inline __m256i bytes_in_order(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* weir_mix32 of what has been xored with its upper half, 8 at a time. */
TARGET static inline __m256i mix32_on(__m256i x) {
  x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7feb352d));
  x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
  x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)UINT32_C(0x846ca68b)));
  return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

TARGET static inline __m256i mix32(__m256i x) {
  return mix32_on(_mm256_xor_si256(x, _mm256_srli_epi32(x, 16)));
}

/* The usual case.  Codes count from the grid's base, 2^24 times its inverse is a float, and no
 * product of that with a difference rounds to 0, so that the factor may be a part of the inverse;
 * and all draws have the same upper half. */
static inline bool is_plain(weir_grid grid, uint32_t key, size_t n) {
  return grid.zero == 0.0F && grid.inverse >= 1.0F && grid.inverse <= 0x1p100F &&
         (key & 0xffff) + n <= 0x10000;
}

#define CODE_ONE 0x1p24F /* what a code counts beside a draw */

/* Minus the codes of 8 elements.  Below -2^31 the conversion gives -2^31: places beyond 128 end
 * there.  plain: with 2^24 times the inverse; upper: of the draws. */
TARGET static inline __attribute__((always_inline)) __m256i minus_codes(const float *x, grid8 grid,
                                                                        __m256i draw, __m256i upper,
                                                                        bool plain) {
  __m256 t = _mm256_mul_ps(_mm256_sub_ps(grid.base, _mm256_loadu_ps(x)), grid.inverse);
  t = plain ? t : _mm256_sub_ps(t, grid.zero);
  t = _mm256_min_ps(t, _mm256_setzero_ps()); /* and 0 of NaN */
  t = plain ? t : _mm256_mul_ps(t, _mm256_set1_ps(CODE_ONE));
  __m256i mixed = plain ? mix32_on(_mm256_xor_si256(draw, upper)) : mix32(draw);
  __m256i sum =
      _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_floor_ps(t)), _mm256_srli_epi32(mixed, 8));
  return _mm256_srai_epi32(sum, 24);
}

TARGET static inline __m256i compared_codes(const float *x, grid8 grid, __m256i draw) {
  __m256 t = grid_places(x, grid);
  __m256i below = _mm256_cvttps_epi32(t);
  __m256 rest = _mm256_sub_ps(t, _mm256_cvtepi32_ps(below));
  __m256 u = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(mix32(draw), 8)),
                           _mm256_set1_ps(0x1p-24F));
  /* The comparison's -1 where it holds. */
  return _mm256_sub_epi32(below, _mm256_castps_si256(_mm256_cmp_ps(rest, u, _CMP_GT_OQ)));
}

/* Codes of 32 elements, in packing's order.  top: of a grid up to 127. */
TARGET static inline __attribute__((always_inline)) __m256i stochastic_codes(
    const float *x, grid8 grid, __m256i draw, __m256i upper, __m256i top, bool plain) {
  __m256i minus[4];
  for (int i = 0; i < 4; i++) {
    __m256i at = _mm256_add_epi32(draw, _mm256_set1_epi32(8 * i));
    minus[i] = minus_codes(x + 8 * i, grid, at, upper, plain);
  }
  __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(minus[0], minus[1]),
                                     _mm256_packs_epi32(minus[2], minus[3]));
  return _mm256_min_epu8(_mm256_abs_epi8(bytes), top);
}

TARGET static inline __m256i wide_codes(const float *x, grid8 grid, __m256i draw) {
  __m256i code[4];
  for (int i = 0; i < 4; i++)
    code[i] = compared_codes(x + 8 * i, grid, _mm256_add_epi32(draw, _mm256_set1_epi32(8 * i)));
  return _mm256_packus_epi16(_mm256_packus_epi32(code[0], code[1]),
                             _mm256_packus_epi32(code[2], code[3]));
}

/* Pairs of codes become low + 16 * high; 32 codes in packing's order, 16 bytes in theirs. */
TARGET static inline __m128i nibbles_of(__m256i codes) {
  __m256i words = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
  __m256i bytes = _mm256_packus_epi16(words, words);
  return _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}

/* The whole thirty-twos of n elements; plain and nibbles are constants where this is inlined. */
TARGET static inline __attribute__((always_inline)) size_t quantize_vectors(
    const float *x, size_t n, weir_grid grid, uint32_t key, uint8_t *out, bool plain,
    bool nibbles) {
  grid.inverse *= plain ? CODE_ONE : 1.0F;
  const grid8 on = grid_in_lanes(grid);
  const __m256i upper = _mm256_set1_epi32((int)(key >> 16));
  const __m256i top = _mm256_set1_epi8((char)grid.top);
  __m256i draw = counting(key);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i codes = stochastic_codes(x + i, on, draw, upper, top, plain);
    if (nibbles) {
      _mm_storeu_si128((void *)(out + i / 2), nibbles_of(codes));
    } else {
      _mm256_storeu_si256((void *)(out + i), bytes_in_order(codes));
    }
    draw = _mm256_add_epi32(draw, _mm256_set1_epi32(32));
  }
  return i;
}

TARGET static size_t quantize_wide(const float *x, size_t n, weir_grid grid, uint32_t key,
                                   uint8_t *code) {
  const grid8 on = grid_in_lanes(grid);
  __m256i draw = counting(key);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    _mm256_storeu_si256((void *)(code + i), bytes_in_order(wide_codes(x + i, on, draw)));
    draw = _mm256_add_epi32(draw, _mm256_set1_epi32(32));
  }
  return i;
}

TARGET static void quantize_stochastic(const float *x, size_t n, weir_grid grid, uint32_t key,
                                       uint8_t *code) {
  size_t i = grid.top > 127           ? quantize_wide(x, n, grid, key, code)
             : is_plain(grid, key, n) ? quantize_vectors(x, n, grid, key, code, true, false)
                                      : quantize_vectors(x, n, grid, key, code, false, false);
  plain_quantize_stochastic(x + i, n - i, grid, key + (uint32_t)i, code + i);
}

TARGET static void quantize_nibbles(const float *x, size_t n, weir_grid grid, uint32_t key,
                                    uint8_t *out) {
  size_t i = is_plain(grid, key, n) ? quantize_vectors(x, n, grid, key, out, true, true)
                                    : quantize_vectors(x, n, grid, key, out, false, true);
  if (i < n) { /* whole eights, filled up with zeros */
    uint8_t code[32] = {0};
    plain_quantize_stochastic(x + i, n - i, grid, key + (uint32_t)i, code);
    plain_pack(code, (n - i + 7) / 8, 4, out + i / 2);
  }
}

/* t rounded down unless it lies more than a half above that: t - 1/2 rounded up.  The difference is
 * exact from 1/4 on, and below that it stays under 0. */
TARGET static inline __m256i nearest_codes(const float *x, grid8 grid) {
  __m256 t = _mm256_sub_ps(grid_places(x, grid), _mm256_set1_ps(0.5F));
  return _mm256_cvtps_epi32(_mm256_ceil_ps(t));
}

TARGET static void quantize_nearest(const float *x, size_t n, weir_grid grid, uint8_t *code) {
  const grid8 on = grid_in_lanes(grid);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i first = _mm256_packus_epi32(nearest_codes(x + i, on), nearest_codes(x + i + 8, on));
    __m256i second =
        _mm256_packus_epi32(nearest_codes(x + i + 16, on), nearest_codes(x + i + 24, on));
    _mm256_storeu_si256((void *)(code + i), bytes_in_order(_mm256_packus_epi16(first, second)));
  }
  plain_quantize_nearest(x + i, n - i, grid, code + i);
}
