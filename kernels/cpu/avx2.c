/* AVX2 version: sums take 16 elements at a time, so that the lanes of the summation contract are
 * four accumulators of 4 doubles; what is left at the end is done as in the scalar version. */
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,bmi,bmi2,f16c,popcnt")))
#define LOWRANK_REGISTER 8
#include "kernels/cpu/elias8.h"
#include "kernels/cpu/fold8.h"
#include "kernels/cpu/half8.h"
#include "kernels/cpu/lowrank.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/spread8.h"

TARGET static inline void copy_line(unsigned char *to, const unsigned char *from) {
  const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)from);
  const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + 32));
  _mm256_stream_si256((__m256i *)(void *)to, a);
  _mm256_stream_si256((__m256i *)(void *)(to + 32), b);
}

#include "kernels/cpu/copy.h"

typedef struct lanes {
  __m256d part[4];
} lanes;

TARGET static inline __m256i magnitudes(const float *x) {
  return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)x),
                          _mm256_set1_epi32(0x7fffffff));
}

/* from, from + 1, .. */
TARGET static inline __m256i counting(uint32_t from) {
  return _mm256_add_epi32(_mm256_set1_epi32((int)from), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Bit i: lane i of m is >= bits.  Magnitudes are below 2^31, so the signed comparison that AVX2 has
 * is right; bits - 1 wraps to -1 for 0 and to 2^31 - 1 for 2^31. */
TARGET static inline uint32_t reaching(__m256i m, uint32_t bits) {
  __m256i above = _mm256_cmpgt_epi32(m, _mm256_set1_epi32((int)(bits - 1)));
  return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(above));
}

TARGET static inline void add_lanes(lanes *to, __m256 x, size_t half) {
  __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  to->part[2 * half] = _mm256_add_pd(to->part[2 * half], a);
  to->part[2 * half + 1] = _mm256_add_pd(to->part[2 * half + 1], b);
}

TARGET static inline void add_squares(lanes *to, __m256 x, size_t half) {
  __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  to->part[2 * half] = _mm256_add_pd(to->part[2 * half], _mm256_mul_pd(a, a));
  to->part[2 * half + 1] = _mm256_add_pd(to->part[2 * half + 1], _mm256_mul_pd(b, b));
}

TARGET static inline lanes no_lanes(void) {
  __m256d zero = _mm256_setzero_pd();
  return (lanes){{zero, zero, zero, zero}};
}

TARGET static inline void store_lanes(const lanes *from, double lane[WEIR_LANES]) {
  for (size_t i = 0; i < 4; i++) _mm256_storeu_pd(lane + 4 * i, from->part[i]);
}

TARGET static double sum_square(const float *x, size_t n) {
  lanes squares = no_lanes();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    add_squares(&squares, _mm256_loadu_ps(x + i), 0);
    add_squares(&squares, _mm256_loadu_ps(x + i + 8), 1);
  }
  if (i == n) { /* buckets: memory would take as long as the sum */
    return fold_sum(_mm256_add_pd(squares.part[0], squares.part[2]),
                    _mm256_add_pd(squares.part[1], squares.part[3]));
  }
  double lane[WEIR_LANES];
  store_lanes(&squares, lane);
  weir_lanes_square(x, i, n, lane);
  return weir_fold_lanes(lane);
}

TARGET static void abs_sum_max(const float *x, size_t n, double *sum, uint32_t *max_bits) {
  lanes sums = no_lanes();
  __m256i most = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t half = 0; half < 2; half++) {
      __m256i m = magnitudes(x + i + 8 * half);
      most = _mm256_max_epu32(most, m);
      add_lanes(&sums, _mm256_castsi256_ps(m), half);
    }
  }
  double lane[WEIR_LANES];
  store_lanes(&sums, lane);
  uint32_t largest[8];
  _mm256_storeu_si256((__m256i *)(void *)largest, most);
  uint32_t max = 0;
  for (size_t j = 0; j < 8; j++) max = largest[j] > max ? largest[j] : max;
  *max_bits = weir_lanes_magnitude(x, i, n, lane, max);
  *sum = weir_fold_lanes(lane);
}

TARGET static size_t count(const float *x, size_t n, uint32_t bits) {
  size_t found = 0;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) found += (size_t)__builtin_popcount(reaching(magnitudes(x + i), bits));
  return found + weir_cpu_scalar.count(x + i, n - i, bits);
}

/* The permutation that moves the chosen lanes to the front. */
TARGET static inline __m256i packing(uint32_t take) { return byte_row(byte_places, take); }

TARGET static size_t compact(const float *x, size_t n, uint32_t bits, uint32_t base,
                             float *magnitude, uint32_t *position, size_t capacity) {
  __m256i at = counting(base);
  size_t found = 0;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256i m = magnitudes(x + i);
    uint32_t take = reaching(m, bits);
    __m256i order = packing(take);
    /* Whole vectors go out, into the slack if need be. */
    _mm256_storeu_si256((__m256i *)(void *)(magnitude + found),
                        _mm256_permutevar8x32_epi32(m, order));
    _mm256_storeu_si256((__m256i *)(void *)(position + found),
                        _mm256_permutevar8x32_epi32(at, order));
    at = _mm256_add_epi32(at, _mm256_set1_epi32(8));
    found += (size_t)__builtin_popcount(take);
    if (found > capacity) return SIZE_MAX;
  }
  size_t rest = weir_cpu_scalar.compact(x + i, n - i, bits, base + (uint32_t)i, magnitude + found,
                                        position + found, capacity - found);
  return rest != SIZE_MAX ? found + rest : SIZE_MAX;
}

#include "kernels/cpu/feed8.h"

TARGET static size_t emit(const float *x, size_t n, weir_band band, uint32_t base,
                          uint32_t *index) {
  size_t taken = 0;
  size_t i = 0;
  for (; i + 8 <= n && taken < band.most; i += 8) {
    __m256i m = magnitudes(x + i);
    uint32_t take = reaching(m, band.high);
    if (band.quota > 0) {
      uint32_t middle = reaching(m, band.low) & ~take;
      if (band.quota < 8) middle = _pdep_u32((UINT32_C(1) << band.quota) - 1, middle);
      band.quota -= (size_t)__builtin_popcount(middle);
      take |= middle;
    }
    for (; take != 0; take &= take - 1)
      index[taken++] = base + (uint32_t)i + (uint32_t)__builtin_ctz(take);
  }
  band.most -= taken;
  return taken + weir_cpu_scalar.emit(x + i, n - i, band, base + (uint32_t)i, index + taken);
}

/* weir_bf16_bits, 8 at a time, in the low halves. */
TARGET static inline __m256i round_to_bf16(__m256i bits) {
  __m256i inf = _mm256_set1_epi32((int)WEIR_INF_BITS);
  __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000));
  __m256i m = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  __m256i upper = _mm256_srli_epi32(m, 16);
  __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(m, _mm256_set1_epi32(0x7fff)), odd), 16);
  rounded = _mm256_min_epu32(rounded, _mm256_set1_epi32(0x7f7f));
  rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7f80), _mm256_cmpeq_epi32(m, inf));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)),
                               _mm256_cmpgt_epi32(m, inf));
  return _mm256_or_si256(rounded, sign);
}

TARGET static void bf16_encode(const float *x, size_t n, uint16_t *out, float *error) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    fetch_ahead(x + i);
    fetch_ahead((error != NULL ? error : x) + i);
    __m256 v = _mm256_loadu_ps(x + i);
    __m256i rounded = round_to_bf16(_mm256_castps_si256(v));
    __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    _mm_storeu_si128((__m128i *)(void *)(out + i), packed);
    if (error != NULL) {
      __m256 back = _mm256_castsi256_ps(_mm256_slli_epi32(rounded, 16));
      _mm256_storeu_ps(error + i,
                       _mm256_add_ps(_mm256_loadu_ps(error + i), _mm256_sub_ps(v, back)));
    }
  }
  weir_cpu_scalar.bf16_encode(x + i, n - i, out + i, error != NULL ? error + i : NULL);
}

TARGET static void bf16_decode(const uint8_t *x, size_t n, float *out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(x + 2 * i));
    _mm256_storeu_si256((__m256i *)(void *)(out + i),
                        _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  weir_cpu_scalar.bf16_decode(x + 2 * i, n - i, out + i);
}

/* MINPS and MAXPS give their second operand unless the first is smaller (larger): the lanes of the
 * scalar version. */
TARGET static void range(const float *x, size_t n, float *low, float *high) {
  __m256 least[2];
  __m256 most[2];
  least[0] = least[1] = most[0] = most[1] = _mm256_set1_ps(x[0]);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t half = 0; half < 2; half++) {
      __m256 d = _mm256_loadu_ps(x + i + 8 * half);
      least[half] = _mm256_min_ps(d, least[half]);
      most[half] = _mm256_max_ps(d, most[half]);
    }
  }
  if (i < n) {
    float rest[16];
    for (size_t lane = 0; lane < 16; lane++) rest[lane] = i + lane < n ? x[i + lane] : x[0];
    for (size_t half = 0; half < 2; half++) {
      __m256 d = _mm256_loadu_ps(rest + 8 * half);
      least[half] = _mm256_min_ps(d, least[half]);
      most[half] = _mm256_max_ps(d, most[half]);
    }
  }
  __m256 l = _mm256_min_ps(least[1], least[0]);
  __m256 m = _mm256_max_ps(most[1], most[0]);
  fold_range(l, m, low, high);
}

#include "kernels/cpu/draw8.h"

TARGET static inline __m256 on_grid(const uint8_t *code, weir_grid grid) {
  __m128i c = _mm_min_epu8(_mm_loadl_epi64((const __m128i *)(const void *)code),
                           _mm_set1_epi8((char)grid.top));
  __m256 place =
      _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(c)), _mm256_set1_ps(grid.zero));
  return _mm256_add_ps(_mm256_set1_ps(grid.base), _mm256_mul_ps(place, _mm256_set1_ps(grid.step)));
}

TARGET static void dequantize(const uint8_t *code, size_t n, weir_grid grid, float *to) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, on_grid(code + i, grid));
  plain_dequantize(code + i, n - i, grid, to + i);
}

TARGET static void dequantize_add(const uint8_t *code, size_t n, weir_grid grid, float *to) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_add_ps(_mm256_loadu_ps(to + i), on_grid(code + i, grid)));
  plain_dequantize_add(code + i, n - i, grid, to + i);
}

static const weir_cpu_ops avx2 = {
    .name = "avx2",
    .feed = feed,
    .sum_square = sum_square,
    .abs_sum_max = abs_sum_max,
    .count = count,
    .compact = compact,
    .emit = emit,
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .range = range,
    .quantize_nearest = quantize_nearest,
    .quantize_stochastic = quantize_stochastic,
    .quantize_nibbles = quantize_nibbles,
    .dequantize = dequantize,
    .dequantize_add = dequantize_add,
    .pack = pack,
    .unpack = unpack,
    .fp16_encode = fp16_encode,
    .fp16_decode = fp16_decode,
    WEIR_QUANTIZER_OPS,
    WEIR_LOWRANK_OPS,
    WEIR_SPREAD_OPS,
    .copy_past = copy_past,
    WEIR_ELIAS_OPS,
    .elias_masks = elias_masks,
    .elias_masks_able = elias_masks_able,
};

/* clang's __builtin_cpu_supports does not know this one. */
static bool half_able(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

const weir_cpu_ops *weir_cpu_avx2(void) {
  const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && half_able();
  return able ? &avx2 : NULL;
}

#else

const weir_cpu_ops *weir_cpu_avx2(void) { return NULL; }

#endif
