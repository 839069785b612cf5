/* What the kernels' tests share: contexts, instruction sets, and inputs, which are distributions
 * and adversarial shapes. */
#ifndef WEIR_TESTS_KERNELS_DATA_H
#define WEIR_TESTS_KERNELS_DATA_H

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../held.h"
#include "base/base.h"
#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"

/* Before a context's declaration: it is freed where its block ends. */
#define SCOPED __attribute__((cleanup(close_context)))

static inline void close_context(weir_codec_context *const *context) {
  weir_codec_context_free(*context);
}

static inline weir_codec_context *open_context(void) {
  weir_codec_context *context = NULL;
  cr_assert_eq(weir_codec_context_create(&context), WEIR_OK);
  return context;
}

/* Every instruction set that there is code for; NULL: this processor does not have it. */
enum { VERSIONS = 3 };
static inline const weir_cpu_ops *version(int v) {
  return v == 0 ? &weir_cpu_scalar : v == 1 ? weir_cpu_avx2() : weir_cpu_avx512();
}

enum { SHAPES = 12 };

static inline const char *shape_name(int shape) {
  static const char *const name[SHAPES] = {
      "gaussian", "laplace",   "heavy-tailed", "all equal",  "all zero",   "one huge",
      "denormal", "ascending", "mostly zero",  "few values", "descending", "signed zeros"};
  return name[shape];
}

static inline float shape_value(weir_rng *rng, int shape, size_t i, size_t n) {
  double u = weir_rng_uniform(rng);
  float sign = weir_rng_next(rng) & 1 ? 1.0F : -1.0F;
  switch (shape) {
    case 0: return (float)weir_rng_normal(rng);
    case 1: return sign * (float)(-log(1.0 - u));
    case 2: return sign * (float)pow(1.0 - u, -0.6);
    case 3: return sign * 0.1F;
    case 4: return 0.0F;
    case 5: return i == n / 2 ? 3e38F : sign * 1e-3F * (float)u;
    case 6: return sign * (float)(weir_rng_below(rng, 5000)) * 1.4e-45F;
    case 7: return (float)i;
    case 8: return u < 0.001 ? sign * (float)u : 0.0F;
    case 9: return sign * (float)weir_rng_below(rng, 4);
    case 10: return -(float)(n - i);
    default: return i % 3 == 0 ? -0.0F : 0.0F;
  }
}

static inline void fill_shape(weir_rng *rng, int shape, float *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = shape_value(rng, shape, i, n);
}

/* k different indices out of n, ascending (selection sampling: each list equally likely). */
static inline void random_indices(weir_rng *rng, size_t n, size_t k, uint32_t *index) {
  size_t taken = 0;
  for (size_t i = 0; i < n && taken < k; i++) {
    if (weir_rng_below(rng, n - i) < k - taken) index[taken++] = (uint32_t)i;
  }
}

#endif
