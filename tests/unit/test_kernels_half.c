/* Gradients of 16 bits: widening is exact and rounding is to the nearest, in every version of the
 * passes, for all numbers that there are. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "../multi/half.h"
#include "kernels/half.h"
#include "kernels_data.h"

enum { ALL = 65536 };

static void widen_all(unsigned type) {
  static uint16_t half[ALL];
  static float wide[ALL];
  for (int i = 0; i < ALL; i++) half[i] = (uint16_t)i;
  weir_widen(type, half, ALL, wide);
  for (int i = 0; i < ALL; i++) {
    const double due = half_value(type, (uint16_t)i);
    cr_assert(
        isnan(due) ? isnan(wide[i]) : (double)wide[i] == due && !signbit(wide[i]) == !signbit(due),
        "type %u, bits %#x: %g, not %g", type, (unsigned)i, (double)wide[i], due);
  }
}

/* One at a time: a block without special numbers goes another way. */
static void widen_each(unsigned type) {
  for (int i = 0; i < ALL; i++) {
    const uint16_t half = (uint16_t)i;
    float wide;
    weir_widen(type, &half, 1, &wide);
    const double due = half_value(type, half);
    cr_assert(isnan(due) ? isnan(wide) : (double)wide == due, "type %u, bits %#x", type,
              (unsigned)i);
  }
}

/* Every number, the middle between it and the next, and what lies just beside that. */
static void narrow_all(unsigned type) {
  const int finite = type == WEIR_BF16 ? 0x7f80 : 0x7c00;
  float *x = malloc((size_t)finite * 8 * sizeof *x);
  uint16_t *out = malloc((size_t)finite * 8 * sizeof *out);
  size_t n = 0;
  for (int i = 0; i + 1 < finite; i++) {
    const double low = half_value(type, (uint16_t)i), high = half_value(type, (uint16_t)(i + 1));
    const float middle = (float)((low + high) / 2);
    const float values[] = {(float)low, middle, nextafterf(middle, 0),
                            nextafterf(middle, INFINITY)};
    for (int k = 0; k < 4; k++) {
      x[n++] = values[k];
      x[n++] = -values[k];
    }
  }
  cr_assert(weir_narrow(type, x, n, out));
  for (size_t i = 0; i < n; i++) {
    const double due = half_nearest(type, (double)x[i]);
    cr_assert_eq(out[i], half_bits(type, copysign(due, (double)x[i])),
                 "type %u: %.9g became %#x, not %g", type, (double)x[i], (unsigned)out[i], due);
  }
  free(out);
  free(x);
}

Test(kernels_half, widening_is_exact_and_rounding_goes_to_the_nearest) {
  for (int v = 0; v < VERSIONS; v++)
    for (unsigned type = WEIR_FP16; type <= WEIR_BF16; type++) {
      if (version(v) == NULL) continue;
      weir_cpu_force(version(v));
      widen_all(type);
      widen_each(type);
      narrow_all(type);
    }
  weir_cpu_force(NULL);
}

/* Half a unit above the largest number, which ties to even would make 2^16 and 2^128. */
Test(kernels_half, what_would_be_infinite_is_told) {
  static const struct {
    unsigned type;
    float largest, tie;
  } limits[] = {{WEIR_FP16, 65504, 65520}, {WEIR_BF16, 0x1.fep127f, 0x1.ffp127f}};
  for (int v = 0; v < VERSIONS; v++)
    for (int i = 0; i < 2 && version(v) != NULL; i++)
      for (size_t n = 1; n < 70; n += 17)
        for (int sign = -1; sign <= 1; sign += 2) {
          float x[70] = {0};
          uint16_t out[70];
          weir_cpu_force(version(v));
          x[n - 1] = (float)sign * nextafterf(limits[i].tie, 0);
          cr_assert(weir_narrow(limits[i].type, x, n, out));
          cr_assert_eq(half_value(limits[i].type, out[n - 1]), sign * (double)limits[i].largest);
          x[n - 1] = (float)sign * limits[i].tie;
          cr_assert(!weir_narrow(limits[i].type, x, n, out));
          x[n - 1] = (float)sign * INFINITY;
          cr_assert(!weir_narrow(limits[i].type, x, n, out));
          x[n - 1] = NAN;
          cr_assert(!weir_narrow(limits[i].type, x, n, out));
        }
  weir_cpu_force(NULL);
}

Test(kernels_half, zero_and_nan_are_what_their_names_say) {
  for (unsigned type = WEIR_FP16; type <= WEIR_BF16; type++) {
    cr_assert(isnan(half_value(type, WEIR_NAN_BYTE << 8 | WEIR_NAN_BYTE)));
    for (int i = 0; i < ALL; i++)
      cr_assert_eq(weir_half_nonzero((uint16_t)i), half_value(type, (uint16_t)i) != 0);
  }
  cr_assert(weir_type_bytes(WEIR_FP32) == 4 && weir_type_bytes(WEIR_FP16) == 2 &&
            weir_type_bytes(WEIR_BF16) == 2);
}
