/* What an exchange must give, worked out the slow and simple way for short gradients. */
#ifndef WEIR_TESTS_REFERENCE_H
#define WEIR_TESTS_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Mark the k elements of [first, last) of largest magnitude, the lower index first on ties. */
static inline void reference_top(const float *e, size_t first, size_t last, size_t k, bool *kept) {
  for (size_t i = first; i < last; i++) {
    size_t before = 0; /* elements that come before i in the order */
    for (size_t j = first; j < last; j++)
      before += fabsf(e[j]) > fabsf(e[i]) || (fabsf(e[j]) == fabsf(e[i]) && j < i);
    kept[i] = before < k;
  }
}

static inline size_t reference_kept(size_t n, double cr) {
  if (n == 0) return 0;
  const size_t k = (size_t)floor(cr * (double)n);
  return k > 1 ? k : 1;
}

/* bfloat16 by rounding to nearest even, in arithmetic: 8 significant bits. */
static inline float reference_bf16(float x) {
  if (x == 0 || !isfinite(x)) return x;
  int exponent;
  const double fraction = frexp(fabs((double)x), &exponent); /* [0.5, 1) */
  if (exponent < -125) exponent = -125;                      /* subnormals share their step */
  const double step = ldexp(1, exponent - 8);
  (void)fraction;
  return (float)copysign(nearbyint(fabs((double)x) / step) * step, (double)x);
}

static inline double reference_variance(const float *e, size_t n) {
  if (n == 0) return 0;
  double mean = 0, sum = 0;
  for (size_t i = 0; i < n; i++) mean += e[i];
  mean /= (double)n;
  for (size_t i = 0; i < n; i++) sum += (e[i] - mean) * (e[i] - mean);
  return sum / (double)n;
}

#endif
