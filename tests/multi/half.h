/* Numbers of 16 bits worked out by their definition, with doubles and powers of two: what the
 * library's own conversions are compared with. */
#ifndef WEIR_TESTS_HALF_H
#define WEIR_TESTS_HALF_H

#include <math.h>
#include <stdint.h>
#include <weir/weir.h>

/* Bits of the mantissa, and the exponent of the least normal number. */
static inline int half_mantissa(unsigned type) { return type == WEIR_BF16 ? 7 : 10; }
static inline int half_least(unsigned type) { return type == WEIR_BF16 ? -126 : -14; }

static inline double half_value(unsigned type, uint16_t bits) {
  const int mantissa = half_mantissa(type), least = half_least(type);
  const int exponent = (bits & 0x7fff) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  const int special = type == WEIR_BF16 ? 255 : 31;
  if (exponent == special) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, least - mantissa);
  return sign * ldexp(fraction + (1 << mantissa), least + exponent - 1 - mantissa);
}

/* Distance of the type's numbers around x. */
static inline double half_unit(unsigned type, double x) {
  const int least = half_least(type);
  int exponent = least;
  if (x != 0) (void)frexp(x, &exponent);
  return ldexp(1, (exponent - 1 > least ? exponent - 1 : least) - half_mantissa(type));
}

/* The nearest number of the type without a limit of its exponent, ties to even. */
static inline double half_nearest(unsigned type, double x) {
  const double unit = half_unit(type, x);
  return nearbyint(x / unit) * unit;
}

/* Of a number that the type has. */
static inline uint16_t half_bits(unsigned type, double x) {
  const int mantissa = half_mantissa(type);
  const double unit = half_unit(type, x);
  const uint16_t count = (uint16_t)(fabs(x) / unit);
  int exponent;
  (void)frexp(unit, &exponent);
  const int above = exponent - 1 + mantissa - half_least(type);
  return (uint16_t)((signbit(x) ? 0x8000 : 0) | (count + (above << mantissa)));
}

#endif
