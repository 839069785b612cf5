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
  for (size_t i = 0; i < n; i++) {
    prefix[i + 1] = (double)e[i] * (double)e[i];
  }
  qsort(prefix + 1, n, sizeof *prefix, descending);
  for (size_t i = 0; i < n; i++) {
    prefix[i + 1] += prefix[i];
  }
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
    double error = weir_gain_curve_error(curve, cr);
    cr_expect_leq(fabs(gain - want), relative * want, "%s cr=%g: %g, true %g", what, cr, gain,
                  want);
    cr_expect_leq(fabs(gain - want), error + 1e-12, "%s cr=%g: off by %g, bound %g", what, cr,
                  fabs(gain - want), error);
    cr_expect(gain >= 0.0 && gain <= 1.0 && error >= 0.0);
  }
}

Test(kernels_gain, within_one_percent_of_exact) {
  enum { N = 200000 };
  weir_rng rng;
  weir_rng_seed(&rng, 17);
  float *e = malloc(N * sizeof *e);
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  for (int shape = 0; shape < SHAPES; shape++) {
    fill_shape(&rng, shape, e, N);
    double *prefix = prefix_energy(e, N);
    weir_gain_curve_fill(curve, e, N, 1);
    /* Gaussian, Laplace and heavy tails within 1 %; the odd shapes within a bin's width in energy;
     * denormals share bins that are wide for them, so there the bound alone must hold. */
    double relative = shape < 3 ? 0.01 : shape == 6 ? 1.0 : 0.065;
    check_curve(curve, prefix, N, relative, shape_name(shape));
    free(prefix);
  }
  weir_gain_curve_free(curve);
  weir_gain_curve_free(NULL);
  free(e);
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
  cr_expect_eq(weir_gain_curve_error(curve, 0.25), 0.0);
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
  weir_rng rng;
  weir_rng_seed(&rng, 23);
  float *e = malloc(N * sizeof *e);
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  for (int shape = 0; shape < 4; shape++) {
    fill_shape(&rng, shape, e, N);
    if (shape == 3) fill_shape(&rng, 0, e, N);
    for (size_t i = 0; shape == 3 && i < 10; i++) e[99991 * i + 7] = 1800.0F;
    double *prefix = prefix_energy(e, N);
    weir_gain_curve_fill(curve, e, N, 10);
    for (int step = 0; step < 50; step++) {
      const double cr = step == 49 ? 1.0 : ratio_of(step);
      const double want = prefix[(size_t)floor(cr * N)] / prefix[N];
      cr_expect_float_eq(weir_gain_curve_gain(curve, cr), want, 0.01 * want,
                         "%d, cr %g: %g, not %g", shape, cr, weir_gain_curve_gain(curve, cr), want);
    }
    free(prefix);
  }
  weir_gain_curve_free(curve);
  free(e);
}

/* The bound covers what a sample can be off, on every input; it says something where there are
 * enough elements: of a million normal ones, of which 15 in 16 are below the floor (squares
 * below 3.47: mean 0.7205, variance 0.673) and each tenth is looked at, sqrt(2 10.31 * 10 * 9 *
 * 93750 * 0.673) = 10821 and 3 * 10.31 * 10 * 3.47 = 1073 make 1.19 % of the gain, to which the
 * border's bin adds a little. */
Test(kernels_gain, the_bound_covers_samples) {
  enum { N = 1000000 };
  static const size_t strides[] = {3, 10, 97, 5001, N};
  weir_rng rng;
  weir_rng_seed(&rng, 37);
  float *e = malloc(N * sizeof *e);
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  for (int shape = 0; shape < SHAPES; shape++) {
    fill_shape(&rng, shape, e, N);
    double *prefix = prefix_energy(e, N);
    for (size_t s = 0; s < sizeof strides / sizeof strides[0]; s++) {
      weir_gain_curve_fill(curve, e, N, strides[s]);
      check_curve(curve, prefix, N, INFINITY, shape_name(shape));
      cr_expect_eq(weir_gain_curve_error(curve, 1.0), 0.0);
      if (shape != 0 || strides[s] != 10) continue;
      for (int step = 20; step < 30; step++) { /* 0.011 to 0.045: all that is kept is known */
        const double gain = weir_gain_curve_gain(curve, ratio_of(step));
        const double bound = weir_gain_curve_error(curve, ratio_of(step));
        cr_expect(bound > 0.0115 * gain && bound < 0.0150 * gain, "cr %g: bound %g of gain %g",
                  ratio_of(step), bound, gain);
      }
    }
    free(prefix);
  }
  weir_gain_curve_free(curve);
  free(e);
}

/* Plans of several groups fill a curve group by group: it is the whole gradient's. */
Test(kernels_gain, parts_make_the_whole) {
  enum { N = 60000, PARTS = 5 };
  static const size_t ends[PARTS + 1] = {0, 3, 3, 20001, 20004, N};
  weir_rng rng;
  weir_rng_seed(&rng, 29);
  float *e = malloc(N * sizeof *e);
  weir_gain_curve *whole = NULL, *parts = NULL;
  cr_assert_eq(weir_gain_curve_create(&whole), WEIR_OK);
  cr_assert_eq(weir_gain_curve_create(&parts), WEIR_OK);
  fill_shape(&rng, 1, e, N);
  double *prefix = prefix_energy(e, N);
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
  free(prefix);
  free(e);
}

static int larger_first(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x < y) - (x > y);
}

/* Against the k-th largest by sorting: not above it, and less than a bin below. */
Test(kernels_gain, thresholds_are_less_than_a_bin_below) {
  enum { N = 50000 };
  weir_rng rng;
  weir_rng_seed(&rng, 31);
  float *e = malloc(N * sizeof *e);
  weir_gain_curve *curve = NULL;
  cr_assert_eq(weir_gain_curve_create(&curve), WEIR_OK);
  for (int shape = 0; shape < SHAPES; shape++) {
    fill_shape(&rng, shape, e, N);
    weir_gain_curve_fill(curve, e, N, 1);
    for (size_t i = 0; i < N; i++) e[i] = fabsf(e[i]);
    qsort(e, N, sizeof *e, larger_first);
    for (int step = 0; step < 50; step++) {
      const double cr = step == 49 ? 1.0 : ratio_of(step);
      const double kth = (double)e[(size_t)fmax(1.0, floor(cr * N)) - 1];
      const double threshold = weir_gain_curve_threshold(curve, cr);
      cr_expect(threshold <= kth && kth - threshold < fmax(threshold / 32, 0x1p-131),
                "%s cr=%g: %g, k-th largest %g", shape_name(shape), cr, threshold, kth);
    }
  }
  /* Between 2 and 4 bins begin at sixteenths: 3.05 is in that of 3, and 12 begins one of halves. */
  const float few[4] = {3.05F, -4.0F, 0.0F, 12.0F};
  weir_gain_curve_fill(curve, few, 4, 1);
  cr_expect_eq(weir_gain_curve_threshold(curve, 0.25), 12.0);
  cr_expect_eq(weir_gain_curve_threshold(curve, 0.5), 4.0);
  cr_expect_eq(weir_gain_curve_threshold(curve, 0.75), 3.0);
  cr_expect_eq(weir_gain_curve_threshold(curve, 1.0), 0.0);
  weir_gain_curve_fill(curve, few, 0, 1);
  cr_expect_eq(weir_gain_curve_threshold(curve, 0.5), 0.0);
  weir_gain_curve_free(curve);
  free(e);
}
