/* Error feedback, e = g + residual (flexible communication, equation 2), and the small passes
 * around it. */
#include <float.h>

#include "kernels/internal.h"

void weir_ef_accumulate(const float *g, const float *r, float *e, size_t n, weir_moments *moments) {
  weir_cpu()->feed(&(weir_feeding){.g = g, .r = r, .e = e, .n = n}, moments);
}

double weir_sum_square(const float *x, size_t n) { return weir_cpu()->sum_square(x, n); }

/* Magnitudes are floats' bits without the sign, and the least above 0 is 1. */
size_t weir_nonzero(const float *x, size_t n) { return weir_cpu()->count(x, n, 1); }

size_t weir_nonzero_runs(const float *x, size_t n) {
  size_t runs = n > 0 && x[0] != 0.0F;
  for (size_t i = 1; i < n; i++) runs += (x[i] != 0.0F) & (x[i - 1] == 0.0F);
  return runs;
}

void weir_gather(const float *e, const uint32_t *index, size_t k, float *value) {
  for (size_t i = 0; i < k; i++) value[i] = e[index[i]];
}

void weir_scatter_zero(float *e, const uint32_t *index, size_t k) {
  for (size_t i = 0; i < k; i++) e[index[i]] = 0.0F;
}

void weir_scatter_add(float *to, const uint32_t *index, const float *value, size_t k) {
  for (size_t i = 0; i < k; i++) to[index[i]] += value[i];
}

void weir_scale(float *x, size_t n, float factor) {
  for (size_t i = 0; i < n; i++) x[i] *= factor;
}

void weir_halve(const float *x, size_t n, float *to) {
  for (size_t i = 0; i < n; i++) to[i] = 0.5F * x[i];
}

void weir_add_half(const float *x, size_t n, float *to) {
  for (size_t i = 0; i < n; i++) {
    const float sum = to[i] + 0.5F * x[i];
    const float below = sum < FLT_MAX ? sum : FLT_MAX;
    to[i] = below > -FLT_MAX ? below : -FLT_MAX;
  }
}
