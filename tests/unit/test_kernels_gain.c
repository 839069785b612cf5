/* The gain curve against exact top-k by sorting. */
#include <criterion/criterion.h>

#include "kernels/codec.h"
#include "kernels_data.h"

static int descending(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x < y) - (x > y);
}

/* prefix[k] = energy of the k largest. */
static double *prefix_energy(const float *e, size_t n) {
  double *prefix = malloc((n + 1) * sizeof *prefix);
  prefix[0] = 0.0;
  for (size_t i = 0; i < n; i++) prefix[i + 1] = (double)e[i] * (double)e[i];
  qsort(prefix + 1, n, sizeof *prefix, descending);
  for (size_t i = 0; i < n; i++) prefix[i + 1] += prefix[i];
  return prefix;
}

static double ratio_of(int step) { return 0.0005 * pow(1.0 / 0.0005, step / 49.0); }

static void check_curve(const weir_gain_curve *curve, const double *prefix, size_t n,
                        double relative, const char *what) {
  for (int step = 0; step < 50; step++) {
    double cr = step == 49 ? 1.0 : ratio_of(step);
    size_t k = (size_t)fmax(1.0, floor(cr * (double)n));
    double want = prefix[n] > 0.0 ? prefix[k] / prefix[n] : 1.0;
    double gain = weir_gain_curve_gain(curve, cr);
    cr_expect_leq(fabs(gain - want), relative * want, "%s cr=%g: %g, true %g", what, cr, gain,
                  want);
    cr_expect(gain >= 0.0 && gain <= 1.0);
  }
}

Test(kernels_gain, within_one_percent_of_exact) {
  enum { N = 200000 };
  weir_rng rng = weir_rng_of(17);
  FREED float *e = malloc(N * sizeof *e);
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  for (int shape = 0; shape < SHAPES; shape++) {
    fill_shape(&rng, shape, e, N);
    FREED double *prefix = prefix_energy(e, N);
    weir_gain_curve_fill(curve, e, N, 1);
    /* Gaussian, Laplace and heavy tails within 1 %; the odd shapes within a bin's width in energy;
     * denormals share bins that are wide for them. */
    double relative = shape < 3 ? 0.01 : shape == 6 ? 1.0 : 0.065;
    check_curve(curve, prefix, N, relative, shape_name(shape));
  }
  weir_gain_curve_free(curve);
  weir_gain_curve_free(NULL);
}

/* 3, -4, 0, 12: energies 9, 16, 0, 144. */
Test(kernels_gain, by_hand) {
  const float e[4] = {3.0F, -4.0F, 0.0F, 12.0F};
  const float zero[4] = {0};
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  weir_gain_curve_fill(curve, e, 4, 1);
  cr_expect_float_eq(weir_gain_curve_gain(curve, 0.25), 144.0 / 169.0, 1e-12);
  cr_expect_float_eq(weir_gain_curve_gain(curve, 0.5), 160.0 / 169.0, 1e-12);
  cr_expect_eq(weir_gain_curve_gain(curve, 0.75), 1.0);
  cr_expect_eq(weir_gain_curve_gain(curve, 1.0), 1.0);
  cr_expect_float_eq(weir_gain_curve_gain(curve, 0.01), 144.0 / 169.0, 1e-12);
  weir_gain_curve_fill(curve, zero, 4, 1);
  cr_expect_eq(weir_gain_curve_gain(curve, 0.25), 1.0);
  weir_gain_curve_fill(curve, e, 0, 1);
  cr_expect_eq(weir_gain_curve_gain(curve, 0.25), 1.0);
  /* The sample sees the 3 alone, which stands for all that are smaller than its bin's end: two. */
  weir_gain_curve_fill(curve, e, 4, SIZE_MAX);
  cr_expect_float_eq(weir_gain_curve_gain(curve, 0.25), 144.0 / 178.0, 1e-12);
  cr_expect_float_eq(weir_gain_curve_gain(curve, 0.5), 160.0 / 178.0, 1e-12);
  cr_expect_float_eq(weir_gain_curve_gain(curve, 0.75), 169.0 / 178.0, 1e-12);
  cr_expect_eq(weir_gain_curve_gain(curve, 1.0), 1.0);
  weir_gain_curve_free(curve);
}

/* Every tenth element and all of the largest, where a few hold nearly all of the energy, too: ten
 * of a million, 97 % of it. */
Test(kernels_gain, sampling_comes_close) {
  enum { N = 1000000 };
  weir_rng rng = weir_rng_of(23);
  FREED float *e = malloc(N * sizeof *e);
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  for (int shape = 0; shape < 4; shape++) {
    fill_shape(&rng, shape, e, N);
    if (shape == 3) fill_shape(&rng, 0, e, N);
    for (size_t i = 0; shape == 3 && i < 10; i++) e[99991 * i + 7] = 1800.0F;
    FREED double *prefix = prefix_energy(e, N);
    weir_gain_curve_fill(curve, e, N, 10);
    for (int step = 0; step < 50; step++) {
      const double cr = step == 49 ? 1.0 : ratio_of(step);
      const double want = prefix[(size_t)floor(cr * N)] / prefix[N];
      cr_expect_float_eq(weir_gain_curve_gain(curve, cr), want, 0.01 * want,
                         "%d, cr %g: %g, not %g", shape, cr, weir_gain_curve_gain(curve, cr), want);
    }
  }
  weir_gain_curve_free(curve);
}

/* As few elements as a sample of 2^18 needs, but never so far apart that rows of a power of two are
 * seen at the same places. */
Test(kernels_gain, strides_are_odd) {
  static const size_t n[] = {0, 1, 1 << 18, (1 << 18) + 1, 1 << 19, (1 << 20) + 1, SIZE_MAX / 2};
  static const size_t stride[] = {1, 1, 1, 3, 3, 5, (SIZE_MAX / 2 >> 18) + 2};
  for (size_t i = 0; i < sizeof n / sizeof *n; i++)
    cr_expect_eq(weir_gain_curve_stride(n[i]), stride[i], "%zu: %zu", n[i],
                 weir_gain_curve_stride(n[i]));
}

/* Plans of several groups fill a curve group by group: it is the whole gradient's. */
Test(kernels_gain, parts_make_the_whole) {
  enum { N = 60000, PARTS = 5 };
  static const size_t ends[PARTS + 1] = {0, 3, 3, 20001, 20004, N};
  weir_rng rng = weir_rng_of(29);
  FREED float *e = malloc(N * sizeof *e);
  weir_gain_curve *whole = NULL, *parts = NULL;
  cr_assert_eq(weir_gain_curve_create(&whole), WEIR_OK);
  cr_assert_eq(weir_gain_curve_create(&parts), WEIR_OK);
  fill_shape(&rng, 1, e, N);
  FREED double *prefix = prefix_energy(e, N);
  weir_gain_curve_fill(whole, e, N, 1);
  for (size_t stride = 1; stride <= 3; stride += 2) {
    weir_gain_curve_fill(parts, e, ends[1], stride);
    for (size_t p = 1; p < PARTS; p++)
      weir_gain_curve_add(parts, e + ends[p], ends[p + 1] - ends[p], stride);
    if (stride == 1) check_curve(parts, prefix, N, 0.01, "in parts");
    for (int step = 0; step < 50; step++) {
      const double cr = ratio_of(step), gain = weir_gain_curve_gain(whole, cr);
      const double off = fabs(weir_gain_curve_gain(parts, cr) - gain);
      cr_expect_leq(off, stride == 1 ? 1e-12 : 0.02 * gain, "stride %zu, cr %g: %g", stride, cr,
                    off / gain);
    }
  }
  /* 3 and -4, then 0 and 12: 144 of 169 with one of four, 160 with two. */
  const float few[4] = {3.0F, -4.0F, 0.0F, 12.0F};
  weir_gain_curve_fill(parts, few, 2, 1);
  weir_gain_curve_add(parts, few + 2, 2, 1);
  cr_expect_float_eq(weir_gain_curve_gain(parts, 0.25), 144.0 / 169.0, 1e-12);
  cr_expect_float_eq(weir_gain_curve_gain(parts, 0.5), 160.0 / 169.0, 1e-12);
  weir_gain_curve_free(whole);
  weir_gain_curve_free(parts);
}
