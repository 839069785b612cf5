/* Arithmetic on single floats that every device must do alike: plain C here, and the same text
 * again for CUDA.  No header of kernels/ is included, so that CUDA files can include this one.
 *
 * Magnitudes are compared as integers, the bits of |x|: for finite floats that is the order of
 * the values, denormals included, and it needs no care about rounding modes or flushing. */
#ifndef WEIR_KERNELS_NUMBER_H
#define WEIR_KERNELS_NUMBER_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define WEIR_NUMBER __host__ __device__ static inline
#else
#define WEIR_NUMBER static inline
#endif

/* Bits of +Inf; finite magnitudes are below. */
#define WEIR_INF_BITS UINT32_C(0x7f800000)

WEIR_NUMBER uint32_t weir_bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

WEIR_NUMBER uint32_t weir_magnitude(float x) { return weir_bits_of(x) & UINT32_C(0x7fffffff); }

WEIR_NUMBER float weir_float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* A bijection of 32 bits whose values look drawn at random: xor-shifts and odd factors
 * (multiply-xorshift hashing, constants of C. Wellons' "lowbias32"). */
WEIR_NUMBER uint32_t weir_mix32(uint32_t x) {
  x ^= x >> 16;
  x *= UINT32_C(0x7feb352d);
  x ^= x >> 15;
  x *= UINT32_C(0x846ca68b);
  return x ^ x >> 16;
}

/* Nearest bfloat16, ties to even.  A finite value never becomes Inf: beyond the largest finite
 * bfloat16 it saturates, so that what is lost stays a finite residual.  NaN stays a (quiet) NaN. */
WEIR_NUMBER uint16_t weir_bf16_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t sign = (bits >> 16) & 0x8000U;
  uint32_t magnitude = bits & UINT32_C(0x7fffffff);
  uint32_t rounded = (magnitude + 0x7fffU + ((magnitude >> 16) & 1U)) >> 16;
  rounded = rounded < 0x7f7fU ? rounded : 0x7f7fU;
  uint32_t special = magnitude > WEIR_INF_BITS ? (magnitude >> 16) | 0x40U : 0x7f80U;
  return (uint16_t)(sign | (magnitude < WEIR_INF_BITS ? rounded : special));
}

WEIR_NUMBER float weir_bf16_value(uint16_t bits) { return weir_float_of((uint32_t)bits << 16); }

WEIR_NUMBER float weir_bf16_nearest(float x) { return weir_bf16_value(weir_bf16_bits(x)); }

/* Nearest half, ties to even; a finite value saturates at 65504 instead of becoming Inf, so that
 * what is lost stays a finite residual.  x must be finite. */
WEIR_NUMBER uint16_t weir_fp16_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t sign = bits >> 16 & 0x8000U;
  uint32_t magnitude = bits & UINT32_C(0x7fffffff);
  if (magnitude <
      UINT32_C(0x38800000)) { /* below 2^-14: multiples of 2^-24, by the adder's rounding */
    float shifted = weir_float_of(magnitude) + 0.5F;
    memcpy(&bits, &shifted, sizeof bits);
    return (uint16_t)(sign | (bits - UINT32_C(0x3f000000)));
  }
  uint32_t rounded = (magnitude + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  rounded -= (127 - 15) << 10;
  return (uint16_t)(sign | (rounded < 0x7bffU ? rounded : 0x7bffU));
}

/* Exact; half must be finite.  Read as a float's upper bits it is 2^112 times too small, below
 * 2^-14 as well. */
WEIR_NUMBER float weir_fp16_value(uint16_t half) {
  float value = weir_float_of((uint32_t)(half & 0x7fffU) << 13) * 0x1p112F;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return weir_float_of(bits | (uint32_t)(half & 0x8000U) << 16);
}

/* The same of any half: Inf and NaN, too. */
WEIR_NUMBER float weir_half_value(uint16_t half) {
  uint32_t special = (uint32_t)(half & 0x8000U) << 16 | WEIR_INF_BITS | (half & 0x3ffU) << 13;
  return (half & 0x7c00U) != 0x7c00U ? weir_fp16_value(half) : weir_float_of(special);
}

/* Bits of the least magnitudes that rounding to nearest makes infinite: half a unit above the
 * largest half (65504 + 16) and the largest bfloat16. */
#define WEIR_FP16_OVERFLOW UINT32_C(0x477ff000)
#define WEIR_BF16_OVERFLOW UINT32_C(0x7f7f8000)

/* Bits of the smallest float that is >= threshold >= 0. */
WEIR_NUMBER uint32_t weir_bits_reaching(double threshold) {
  float nearest = (float)threshold;
  uint32_t bits = weir_magnitude(nearest);
  return (double)nearest < threshold ? bits + 1 : bits;
}

/* Bin of a magnitude in a gain curve: exponent and first 5 bits of the mantissa. */
#define WEIR_GAIN_SHIFT 18
#define WEIR_GAIN_BINS (1U << (31 - WEIR_GAIN_SHIFT))

/* --- selections ------------------------------------------------------------------------------ */

/* max(1, floor(c*n)), at most n; 0 for n = 0.  c*n counts as the integer beside it when it is
 * within 4 units in the last place of it, so that 0.29 * 100 gives 29 although the product of the
 * nearest doubles is 28.999999999999996. */
WEIR_NUMBER size_t weir_kept_of(size_t n, double cr) {
  if (n == 0 || cr >= 1.0) return n;
  double product = cr * (double)n;
  double whole = nearbyint(product);
  if (fabs(product - whole) > 4.0 * DBL_EPSILON * product) whole = floor(product);
  if (!(cr > 0.0) || whole < 1.0) return 1;
  return whole < (double)n ? (size_t)whole : n;
}

/* Places of a sample, from one stretch of elements each: Knuth's linear congruence, whose next
 * state is factor * state + increment modulo 2^64, from 1; the upper half of the next state says
 * where in the stretch. */
#define WEIR_SAMPLE_FACTOR UINT64_C(6364136223846793005)
#define WEIR_SAMPLE_INCREMENT UINT64_C(1442695040888963407)

/* Draw number i (from 0) of the sequence that start names, in [0, n), n <= 2^32: splitmix64, times
 * n, upper half.  No value is likelier than another by more than 2^-32 of its probability.  Draws
 * stand for themselves, so that many can be made at a time. */
WEIR_NUMBER uint32_t weir_draw_below(uint64_t start, uint64_t i, uint64_t n) {
  uint64_t z = start + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return (uint32_t)(((z >> 32) * n + ((z & UINT32_MAX) * n >> 32)) >> 32);
}

/* Where the sequence of a seed starts: seeds that are neighbours get far apart. */
WEIR_NUMBER uint64_t weir_draw_start(uint64_t seed) {
  uint64_t z = (seed ^ seed >> 32) * UINT64_C(0xd6e8feb86659fd93);
  z = (z ^ z >> 32) * UINT64_C(0xd6e8feb86659fd93);
  return z ^ z >> 32;
}

/* Rounds of MSTopK's bisection when selecting; its paper's measurements take as many. */
#define WEIR_MSTOPK_ROUNDS 30

/* --- clipping -------------------------------------------------------------------------------- */

/* weir_clip_factor (kernels/decorate.h). */
WEIR_NUMBER float weir_clip_to(double sum_square, double limit) {
  double norm = sqrt(sum_square);
  return limit > 0.0 && norm > limit && norm <= DBL_MAX ? (float)(limit / norm) : 1.0F;
}

/* --- quantizers ------------------------------------------------------------------------------ */

/* Largest magnitude that a grid reaches: what lies beyond saturates and stays in the residual, and
 * no difference or decoded value overflows. */
#define WEIR_GRID_LIMIT (FLT_MAX / 4)
/* Below this a unit's width is taken as zero: its step would be denormal. */
#define WEIR_GRID_LEAST (FLT_MIN * 256)

/* x within the grid's reach, as a float. */
WEIR_NUMBER float weir_grid_limit(double x) {
  return x > (double)WEIR_GRID_LIMIT    ? WEIR_GRID_LIMIT
         : x < -(double)WEIR_GRID_LIMIT ? -WEIR_GRID_LIMIT
                                        : (float)x;
}

/* Bits of a code by a plan's ratio, which is so many over 32; 0 where it is no whole number of them
 * from least to most. */
WEIR_NUMBER unsigned weir_code_bits(double cr, unsigned least, unsigned most) {
  const double bits = cr * 32.0;
  return bits >= least && bits <= most && bits == floor(bits) ? (unsigned)bits : 0;
}

/* The same where half bits count too: the code has as many as the next whole number, which *half
 * says is half a bit more. */
WEIR_NUMBER unsigned weir_code_bits_halved(double cr, unsigned least, unsigned most,
                                           uint8_t *half) {
  const double bits = cr * 32.0, whole = ceil(bits);
  *half = whole - bits == 0.5;
  return bits >= least ? weir_code_bits(*half ? whole / 32.0 : cr, least, most) : 0;
}

/* Where a unit's draws start: splitmix64 of seed and unit. */
WEIR_NUMBER uint32_t weir_unit_key(uint64_t seed, uint64_t number) {
  uint64_t z = seed + number * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)((z ^ z >> 31) >> 32);
}

/* A bucket's largest magnitude, of its smallest and its largest element; 0 where that would be next
 * to nothing. */
WEIR_NUMBER float weir_bucket_largest(float low, float high) {
  const float most = weir_grid_limit(fmax((double)high, -(double)low));
  return most >= WEIR_GRID_LEAST ? most : 0.0F;
}

/* --- minifloat (kernels/minifloat.c) --------------------------------------------------------- */

#define WEIR_MINIFLOAT_BUCKET 128U
#define WEIR_MINIFLOAT_LEAST 5U /* bits of a code, the sign, 4 of exponent and none of mantissa */
#define WEIR_MINIFLOAT_MOST 8U
#define WEIR_MINIFLOAT_MANTISSA(bits) ((bits)-WEIR_MINIFLOAT_LEAST)

/* Rounded up: the largest comes to 1 or more, which is taken as 1. */
WEIR_NUMBER float weir_minifloat_inverse(float scale) {
  return scale > 0.0F ? nextafterf(1.0F / scale, INFINITY) : 0.0F;
}

/* The bits of a float below those of its code are drawn away: with a random number below them
 * added, they carry with the probability of what they are worth.  What lies below the least normal
 * value, where values are evenly spaced, is lifted by it first: there a float's bits below the
 * code's are spaced alike. */
WEIR_NUMBER uint8_t weir_minifloat_code(float x, float inverse, unsigned mantissa, uint32_t draw) {
  const uint32_t sign = weir_bits_of(x) >> 31;
  float t = weir_float_of(weir_magnitude(x)) * inverse;
  t = t < 1.0F ? t : 1.0F;
  const uint32_t even = t < 0x1p-14F;
  t += even ? 0x1p-14F : 0.0F;
  const uint32_t bits = (weir_bits_of(t) + (draw >> (9 + mantissa))) >> (23 - mantissa);
  return (uint8_t)(bits - ((even ? 113U : 112U) << mantissa) + (sign << (4 + mantissa)));
}

/* Codes above 1, which no message of ours has, are 1. */
WEIR_NUMBER float weir_minifloat_value(uint32_t code, float scale, unsigned mantissa) {
  const uint32_t sign = code >> (4 + mantissa) << 31, one = 15U << mantissa;
  uint32_t c = code & ((16U << mantissa) - 1);
  c = c < one ? c : one;
  const float normal = weir_float_of((c + (112U << mantissa)) << (23 - mantissa));
  const float even = weir_float_of((c + (113U << mantissa)) << (23 - mantissa)) - 0x1p-14F;
  const float value = (c < 1U << mantissa ? even : normal) * scale;
  return weir_float_of(weir_bits_of(value) | sign);
}

/* --- companded (kernels/companded.c) --------------------------------------------------------- */

#define WEIR_COMPANDED_BUCKET 128U
#define WEIR_COMPANDED_LEAST 3U
#define WEIR_COMPANDED_MOST 8U

/* T of kernels/companded.c: as many values as so many bits can tell apart, and an odd number.  2 to
 * the power of bits - 1/2 is 181/256 of 2 to that of bits, to a whole number. */
WEIR_NUMBER int32_t weir_companded_top(unsigned bits, unsigned half) {
  return half != 0 ? ((INT32_C(181) << bits) / 256 - 1) / 2 : (INT32_C(1) << (bits - 1)) - 1;
}

/* A bucket's largest magnitude; 0 where its scale would be denormal: that would not say what the
 * largest was, and with 7 bits or more the inverse could be infinite, which makes of 0 NaN. */
WEIR_NUMBER float weir_companded_most(float low, float high, int32_t top) {
  const float most = weir_bucket_largest(low, high);
  return most >= FLT_MIN * (float)(top * top) ? most : 0.0F;
}

/* The nearest bfloat16, so that half of its bytes need not travel where codes are coded.  The
 * bucket's largest may lie beyond the grid, by a 256th at the most, and becomes its end all the
 * same. */
WEIR_NUMBER float weir_companded_scale(float most, int32_t top) {
  return weir_bf16_nearest(most / (float)(top * top));
}

WEIR_NUMBER float weir_companded_inverse(float scale) { return scale > 0.0F ? 1.0F / scale : 0.0F; }

/* Of two neighbours j^2 and (j + 1)^2 the middle is (j + 1/2)^2 + 1/4. */
WEIR_NUMBER uint8_t weir_companded_code(float x, float inverse, int32_t top) {
  const float most = (float)(top * top);
  float t = weir_float_of(weir_magnitude(x)) * inverse;
  t = t < most ? t : most;
  t = t > 0.25F ? t - 0.25F : 0.0F;
  const int32_t j = (int32_t)(sqrtf(t) + 0.5F);
  return (uint8_t)(weir_bits_of(x) >> 31 ? top - j : top + j);
}

/* Codes beyond the grid, which no message of ours has, are its end. */
WEIR_NUMBER float weir_companded_value(int32_t code, float scale, int32_t top) {
  const int32_t j = (code < 2 * top ? code : 2 * top) - top;
  return (float)(j * (j < 0 ? -j : j)) * scale;
}

#endif
