/* AVX-512 version: 16 elements at a time, one per lane of the summation contract; what is left of
 * the last 16 is done as in the scalar version. */
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,popcnt")))
#define LOWRANK_REGISTER 16
#include "kernels/cpu/elias16.h"
#include "kernels/cpu/fold8.h"
#include "kernels/cpu/half16.h"
#include "kernels/cpu/lowrank.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/spread16.h"

TARGET static inline void copy_line(unsigned char *to, const unsigned char *from) {
  _mm512_stream_si512((__m512i *)(void *)to, _mm512_loadu_si512(from));
}

#include "kernels/cpu/copy.h"

/* fpclass: quiet NaN, +Inf, -Inf, signalling NaN */
#define NONFINITE 0x99

TARGET static inline __m512i magnitudes(const float *x) {
  return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* from, from + 1, .. */
TARGET static inline __m512i counting(uint32_t from) {
  return _mm512_add_epi32(_mm512_set1_epi32((int)from),
                          _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

/* How many elements a mask names.  Cut to 16 bits where the compiler cannot see that they are: GCC
 * 12, when it keeps a mask in memory across a call (as under ThreadSanitizer), stores two bytes of
 * it and counts the ones of four. */
TARGET static inline size_t mask_ones(__mmask16 mask) {
  uint32_t bits = _cvtmask16_u32(mask);
  __asm__("movzwl %w0, %0" : "+r"(bits));
  return (size_t)__builtin_popcount(bits);
}

TARGET static inline __m512d low_half(__m512 x) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}

TARGET static inline __m512d high_half(__m512 x) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}

TARGET static double sum_square(const float *x, size_t n) {
  __m512d square0 = _mm512_setzero_pd(), square1 = square0;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 v = _mm512_loadu_ps(x + i);
    __m512d a = low_half(v);
    __m512d b = high_half(v);
    square0 = _mm512_add_pd(square0, _mm512_mul_pd(a, a));
    square1 = _mm512_add_pd(square1, _mm512_mul_pd(b, b));
  }
  if (i == n) { /* buckets: memory would take as long as the sum */
    __m512d eight = _mm512_add_pd(square0, square1);
    return fold_sum(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
  }
  double lane[WEIR_LANES];
  _mm512_storeu_pd(lane, square0);
  _mm512_storeu_pd(lane + 8, square1);
  weir_lanes_square(x, i, n, lane);
  return weir_fold_lanes(lane);
}

TARGET static void abs_sum_max(const float *x, size_t n, double *sum, uint32_t *max_bits) {
  __m512d sum0 = _mm512_setzero_pd(), sum1 = sum0;
  __m512i most = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512i m = magnitudes(x + i);
    __m512 v = _mm512_castsi512_ps(m);
    most = _mm512_max_epu32(most, m);
    sum0 = _mm512_add_pd(sum0, low_half(v));
    sum1 = _mm512_add_pd(sum1, high_half(v));
  }
  double lane[WEIR_LANES];
  _mm512_storeu_pd(lane, sum0);
  _mm512_storeu_pd(lane + 8, sum1);
  uint32_t max = _mm512_reduce_max_epu32(most);
  *max_bits = weir_lanes_magnitude(x, i, n, lane, max);
  *sum = weir_fold_lanes(lane);
}

TARGET static size_t count(const float *x, size_t n, uint32_t bits) {
  __m512i least = _mm512_set1_epi32((int)bits);
  size_t found = 0;
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    found += mask_ones(_mm512_cmpge_epu32_mask(magnitudes(x + i), least));
  return found + weir_cpu_scalar.count(x + i, n - i, bits);
}

TARGET static size_t compact(const float *x, size_t n, uint32_t bits, uint32_t base,
                             float *magnitude, uint32_t *position, size_t capacity) {
  __m512i least = _mm512_set1_epi32((int)bits);
  __m512i at = counting(base);
  size_t found = 0;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512i m = magnitudes(x + i);
    __mmask16 take = _mm512_cmpge_epu32_mask(m, least);
    /* Whole vectors go out, into the slack if need be: no branch, no slow compressing store. */
    _mm512_storeu_si512(magnitude + found, _mm512_maskz_compress_epi32(take, m));
    _mm512_storeu_si512(position + found, _mm512_maskz_compress_epi32(take, at));
    at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
    found += mask_ones(take);
    if (found > capacity) return SIZE_MAX;
  }
  size_t rest = weir_cpu_scalar.compact(x + i, n - i, bits, base + (uint32_t)i, magnitude + found,
                                        position + found, capacity - found);
  return rest != SIZE_MAX ? found + rest : SIZE_MAX;
}

TARGET static size_t emit(const float *x, size_t n, weir_band band, uint32_t base,
                          uint32_t *index) {
  __m512i high = _mm512_set1_epi32((int)band.high);
  __m512i low = _mm512_set1_epi32((int)band.low);
  __m512i at = counting(base);
  size_t taken = 0;
  size_t i = 0;
  for (; i + 16 <= n && taken < band.most; i += 16) {
    __m512i m = magnitudes(x + i);
    uint32_t take = _mm512_cmpge_epu32_mask(m, high);
    if (band.quota > 0) {
      uint32_t middle = _mm512_cmpge_epu32_mask(m, low) & ~take;
      if (band.quota < 16) middle = _pdep_u32((UINT32_C(1) << band.quota) - 1, middle);
      band.quota -= (size_t)__builtin_popcount(middle);
      take |= middle;
    }
    if (take != 0) {
      unsigned width = (unsigned)__builtin_popcount(take);
      _mm512_mask_storeu_epi32(index + taken, (__mmask16)((UINT32_C(1) << width) - 1),
                               _mm512_maskz_compress_epi32((__mmask16)take, at));
      taken += width;
    }
    at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
  }
  band.most -= taken;
  return taken + weir_cpu_scalar.emit(x + i, n - i, band, base + (uint32_t)i, index + taken);
}

/* weir_bf16_bits, 16 at a time, in the low halves. */
TARGET static inline __m512i round_to_bf16(__m512i bits) {
  __m512i inf = _mm512_set1_epi32((int)WEIR_INF_BITS);
  __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x8000));
  __m512i m = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  __m512i upper = _mm512_srli_epi32(m, 16);
  __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(m, _mm512_set1_epi32(0x7fff)), odd), 16);
  rounded = _mm512_min_epu32(rounded, _mm512_set1_epi32(0x7f7f));
  rounded =
      _mm512_mask_mov_epi32(rounded, _mm512_cmpeq_epi32_mask(m, inf), _mm512_set1_epi32(0x7f80));
  rounded = _mm512_mask_or_epi32(rounded, _mm512_cmpgt_epu32_mask(m, inf), upper,
                                 _mm512_set1_epi32(0x40));
  return _mm512_or_si512(rounded, sign);
}

TARGET static void bf16_encode(const float *x, size_t n, uint16_t *out, float *error) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    fetch_ahead(x + i);
    fetch_ahead((error != NULL ? error : x) + i);
    __m512 v = _mm512_loadu_ps(x + i);
    __m512i rounded = round_to_bf16(_mm512_castps_si512(v));
    _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm512_cvtepi32_epi16(rounded));
    if (error != NULL) {
      __m512 back = _mm512_castsi512_ps(_mm512_slli_epi32(rounded, 16));
      _mm512_storeu_ps(error + i,
                       _mm512_add_ps(_mm512_loadu_ps(error + i), _mm512_sub_ps(v, back)));
    }
  }
  weir_cpu_scalar.bf16_encode(x + i, n - i, out + i, error != NULL ? error + i : NULL);
}

TARGET static void bf16_decode(const uint8_t *x, size_t n, float *out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(x + 2 * i));
    _mm512_storeu_si512(out + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  weir_cpu_scalar.bf16_decode(x + 2 * i, n - i, out + i);
}

/* MINPS and MAXPS give their second operand unless the first is smaller (larger): the lanes of the
 * scalar version. */
TARGET static void range(const float *x, size_t n, float *low, float *high) {
  __m512 least = _mm512_set1_ps(x[0]);
  __m512 most = least;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 d = _mm512_loadu_ps(x + i);
    least = _mm512_min_ps(d, least);
    most = _mm512_max_ps(d, most);
  }
  __mmask16 rest = (__mmask16)((1U << (n - i)) - 1);
  __m512 d = _mm512_maskz_loadu_ps(rest, x + i);
  least = _mm512_mask_min_ps(least, rest, d, least);
  most = _mm512_mask_max_ps(most, rest, d, most);
  __m256 l = _mm256_min_ps(_mm512_extractf32x8_ps(least, 1), _mm512_castps512_ps256(least));
  __m256 m = _mm256_max_ps(_mm512_extractf32x8_ps(most, 1), _mm512_castps512_ps256(most));
  fold_range(l, m, low, high);
}

#include "kernels/cpu/draw16.h"
#include "kernels/cpu/feed16.h"

TARGET static inline __m512 on_grid(const uint8_t *code, weir_grid grid) {
  __m128i c = _mm_min_epu8(_mm_loadu_si128((const __m128i *)(const void *)code),
                           _mm_set1_epi8((char)grid.top));
  __m512 place =
      _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(c)), _mm512_set1_ps(grid.zero));
  return _mm512_add_ps(_mm512_set1_ps(grid.base), _mm512_mul_ps(place, _mm512_set1_ps(grid.step)));
}

TARGET static void dequantize(const uint8_t *code, size_t n, weir_grid grid, float *to) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(to + i, on_grid(code + i, grid));
  plain_dequantize(code + i, n - i, grid, to + i);
}

TARGET static void dequantize_add(const uint8_t *code, size_t n, weir_grid grid, float *to) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(to + i, _mm512_add_ps(_mm512_loadu_ps(to + i), on_grid(code + i, grid)));
  plain_dequantize_add(code + i, n - i, grid, to + i);
}

static const weir_cpu_ops avx512 = {
    .name = "avx512",
    .feed = feed,
    .sum_square = sum_square,
    .abs_sum_max = abs_sum_max,
    .count = count,
    .compact = compact,
    .emit = emit,
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .range = range,
    .quantize_nearest = plain_quantize_nearest,
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

const weir_cpu_ops *weir_cpu_avx512(void) {
  bool able = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("bmi2");
  return able ? &avx512 : NULL;
}

#else

const weir_cpu_ops *weir_cpu_avx512(void) { return NULL; }

#endif
