/* Exact top-k, alone and fused with error feedback, and mstopk, device against scalar. */
#include <float.h>

#include "selection.h"

enum { LARGE = 40009, ROOM = 65536 };
/* Around lanes, tiles and the size from which a sample is taken (32768). */
static const size_t sizes[] = {1, 2, 31, 33, 4095, 4097, 32767, 32768, LARGE};
#define SIZES (sizeof sizes / sizeof sizes[0])
enum { RATIOS = 7 };

static size_t kept_for(size_t n, size_t ratio) {
  const size_t kept[RATIOS] = {1, n / 1000, n / 100, n / 10, n / 4 + 1, n / 2, n};
  return kept[ratio] < 1 ? 1 : kept[ratio] > n ? n : kept[ratio];
}

static void same_indices(const arrays *a, size_t n, size_t k, const char *what) {
  for (size_t i = 0; i < k; i++) {
    cr_assert_eq(a->index[i], a->wanted[i], "%s, %zu of %zu: index %zu is %u, not %u", what, k, n,
                 i, a->index[i], a->wanted[i]);
  }
}

/* Sums run in another order: by at most n 2^-53 of the sum of magnitudes, as the header says; here
 * with the two orders' errors added. */
static void close_moments(weir_moments got, weir_moments wanted, const float *e, size_t n,
                          const char *what) {
  double magnitude = 0.0;
  for (size_t i = 0; i < n; i++) magnitude += isfinite(e[i]) ? fabs((double)e[i]) : 0.0;
  double bound = 2.0 * (double)n * DBL_EPSILON;
  cr_assert_eq(got.nonfinite, wanted.nonfinite, "%s: %zu not finite, not %zu", what, got.nonfinite,
               wanted.nonfinite);
  cr_assert(fabs(got.sum - wanted.sum) <= bound * magnitude, "%s: sum %a, not %a", what, got.sum,
            wanted.sum);
  cr_assert(fabs(got.sum_square - wanted.sum_square) <= bound * wanted.sum_square,
            "%s: sum of squares %a, not %a", what, got.sum_square, wanted.sum_square);
}

/* Error feedback and top-k of a->g and a->r on both sides, in place when at is not 0. */
static void check_fused(weir_cuda *cuda, arrays *a, size_t n, size_t k, size_t skew, int in_place,
                        const char *what) {
  LENT device_buffer g = put(cuda, a->g, n * sizeof(float), skew);
  LENT device_buffer r = put(cuda, a->r, n * sizeof(float), skew);
  LENT device_buffer own = take(cuda, n * sizeof(float), skew);
  LENT device_buffer index = take(cuda, k * sizeof(uint32_t), 4);
  LENT device_buffer value = take(cuda, k * sizeof(float), 8);
  LENT device_buffer moments = take(cuda, sizeof(weir_moments), 0);
  device_buffer e = in_place == 0 ? own : in_place == 1 ? g : r;
  must(weir_cuda_ef_topk(cuda, g.data, r.data, e.data, n, k, index.data, value.data, moments.data));
  weir_moments wanted = {0};
  weir_moments got;
  weir_ef_accumulate(a->g, a->r, a->e, n, &wanted);
  must(weir_topk_indices(a->context, a->e, n, k, 0, a->wanted));
  get(cuda, &got, moments, sizeof got);
  close_moments(got, wanted, a->e, n, what);
  get(cuda, a->index, index, k * sizeof(uint32_t));
  same_indices(a, n, k, what);
  weir_gather(a->e, a->wanted, k, a->value);
  get(cuda, a->got, value, k * sizeof(float));
  same_floats(a->got, a->value, k, what);
  weir_scatter_zero(a->e, a->wanted, k);
  get(cuda, a->got, e, n * sizeof(float));
  same_floats(a->got, a->e, n, what);
}

Test(parity_select, fused_topk_is_equal) {
  OPENED weir_cuda *cuda = open_cuda(LARGE, LARGE);
  weir_rng rng = weir_rng_of(11);
  arrays a = make_arrays(ROOM);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t ratio = (s + (size_t)shape) % RATIOS;
      fill_shape(&rng, shape, a.g, sizes[s]);
      fill_shape(&rng, shape % 2 == 0 ? shape : 0, a.r, sizes[s]);
      check_fused(cuda, &a, sizes[s], kept_for(sizes[s], ratio), 4 * (s % 4), (int)(s % 3),
                  shape_name(shape));
    }
    for (size_t ratio = (size_t)shape % 2; ratio < RATIOS; ratio += 3) {
      fill_shape(&rng, shape, a.g, LARGE);
      memset(a.r, 0, LARGE * sizeof *a.r);
      check_fused(cuda, &a, LARGE, kept_for(LARGE, ratio), ratio % 2 * 4, 2, shape_name(shape));
    }
  }
  free_arrays(a);
}

/* What is not finite is counted, counts as largest and is otherwise treated like any value. */
Test(parity_select, fused_topk_counts_what_is_not_finite) {
  OPENED weir_cuda *cuda = open_cuda(LARGE, LARGE);
  weir_rng rng = weir_rng_of(12);
  arrays a = make_arrays(ROOM);
  for (size_t ratio = 0; ratio < RATIOS; ratio++) {
    fill_shape(&rng, 0, a.g, LARGE);
    fill_shape(&rng, 0, a.r, LARGE);
    for (size_t i = 0; i < 100; i++) {
      a.g[weir_rng_below(&rng, LARGE)] = i % 2 == 0 ? INFINITY : -INFINITY;
      a.g[weir_rng_below(&rng, LARGE)] = FLT_MAX;
      a.r[weir_rng_below(&rng, LARGE)] = FLT_MAX;
    }
    check_fused(cuda, &a, LARGE, kept_for(LARGE, ratio), 0, 0, "with infinities");
  }
  /* NaN's bits differ between devices: only the count is asked for. */
  a.g[7] = NAN;
  a.r[LARGE - 1] = NAN;
  weir_moments wanted = {0};
  weir_moments got;
  weir_ef_accumulate(a.g, a.r, a.e, LARGE, &wanted);
  LENT device_buffer g = put(cuda, a.g, LARGE * sizeof(float), 0);
  LENT device_buffer r = put(cuda, a.r, LARGE * sizeof(float), 0);
  LENT device_buffer moments = take(cuda, sizeof got, 0);
  must(weir_cuda_ef_accumulate(cuda, g.data, r.data, r.data, LARGE, moments.data));
  get(cuda, &got, moments, sizeof got);
  close_moments(got, wanted, a.e, LARGE, "with NaN");
  get(cuda, a.got, r, LARGE * sizeof(float));
  same_floats(a.got, a.e, LARGE, "with NaN");
  free_arrays(a);
}

/* Where the device's sample looks (select.cu, estimate): large values there and nowhere else make
 * it expect many more than there are. */
Test(parity_select, a_misleading_sample_is_noticed) {
  enum { N = ROOM, SAMPLE = 8192, STRETCH = N / SAMPLE, K = 10000 };
  OPENED weir_cuda *cuda = open_cuda(N, K);
  weir_rng rng = weir_rng_of(13);
  arrays a = make_arrays(ROOM);
  fill_shape(&rng, 0, a.g, N);
  memset(a.r, 0, N * sizeof *a.r);
  for (uint32_t i = 0; i < SAMPLE; i++)
    a.g[i * STRETCH + ((uint64_t)weir_mix32(i) * STRETCH >> 32)] += 100.0F;
  check_fused(cuda, &a, N, K, 0, 2, "too few candidates");
  for (size_t i = 0; i < N; i++) {
    a.g[i] = -a.g[i] + 200.0F; /* and the other way round: far too many */
  }
  check_fused(cuda, &a, N, K / 100, 0, 2, "too many candidates");
  free_arrays(a);
}

Test(parity_select, nothing_to_do) {
  OPENED weir_cuda *cuda = open_cuda(10, 1);
  weir_moments got;
  device_buffer moments = take(cuda, sizeof got, 0);
  float x[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  device_buffer g = put(cuda, x, sizeof x, 0);
  must(weir_cuda_ef_topk(cuda, NULL, NULL, NULL, 0, 0, NULL, NULL, moments.data));
  get(cuda, &got, moments, sizeof got);
  cr_assert(got.sum == 0.0 && got.sum_square == 0.0 && got.nonfinite == 0);
  must(weir_cuda_ef_topk(cuda, g.data, g.data, g.data, 10, 0, NULL, NULL, moments.data));
  get(cuda, &got, moments, sizeof got);
  cr_assert(got.sum == 110.0 && got.sum_square == 1540.0);
  must(weir_cuda_topk(cuda, NULL, 0, 0, NULL, NULL));
  cr_assert_eq(weir_cuda_ef_topk(cuda, NULL, NULL, NULL, 1, 2, NULL, NULL, NULL), WEIR_E_INVALID);
  weir_cuda_release(cuda, g.block);
  weir_cuda_release(cuda, moments.block);
  must(weir_cuda_wait(cuda));
}

/* topk and mstopk of a given e, which stays as it is. */
static void check_selection(weir_cuda *cuda, arrays *a, size_t n, size_t k, size_t skew,
                            bool mstopk, const char *what) {
  const weir_layout layout = {1, (const size_t[]){0, n}};
  LENT device_buffer e = put(cuda, a->e, n * sizeof(float), skew);
  LENT device_buffer index = take(cuda, k * sizeof(uint32_t), 0);
  LENT device_buffer value = take(cuda, k * sizeof(float), 0);
  size_t kept = 0;
  if (mstopk) {
    double cr = (double)k / (double)n;
    const weir_cuda_fed fed = {.e = e.data};
    must(weir_cuda_select(cuda, WEIR_CODEC_MSTOPK, &fed, &layout, cr, 0, index.data, value.data, k,
                          &kept));
    cr_assert_eq(kept, k);
    must(
        weir_codecs[WEIR_CODEC_MSTOPK]->select(a->context, a->e, &layout, cr, a->wanted, n, &kept));
  } else {
    must(weir_cuda_topk(cuda, e.data, n, k, index.data, value.data));
    must(weir_topk_indices(a->context, a->e, n, k, 0, a->wanted));
    kept = k;
  }
  cr_assert_eq(kept, k);
  get(cuda, a->index, index, k * sizeof(uint32_t));
  same_indices(a, n, k, what);
  get(cuda, a->got, value, k * sizeof(float));
  weir_gather(a->e, a->wanted, k, a->value);
  same_floats(a->got, a->value, k, what);
  get(cuda, a->got, e, n * sizeof(float));
  same_floats(a->got, a->e, n, what);
}

static void check_selections(bool mstopk, uint64_t seed) {
  OPENED weir_cuda *cuda = open_cuda(LARGE, LARGE);
  weir_rng rng = weir_rng_of(seed);
  arrays a = make_arrays(ROOM);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      fill_shape(&rng, shape, a.e, sizes[s]);
      size_t ratio = ((size_t)shape + 2 * s) % RATIOS;
      check_selection(cuda, &a, sizes[s], kept_for(sizes[s], ratio), 4 * (s % 4), mstopk,
                      shape_name(shape));
    }
    fill_shape(&rng, shape, a.e, LARGE);
    for (size_t ratio = (size_t)(shape + 1) % 3; ratio < RATIOS; ratio += 3)
      check_selection(cuda, &a, LARGE, kept_for(LARGE, ratio), 0, mstopk, shape_name(shape));
  }
  free_arrays(a);
}

Test(parity_select, topk_is_equal) { check_selections(false, 14); }

/* A threshold could differ in its last bit; in none of these inputs does anything lie there. */
Test(parity_select, mstopk_is_equal) { check_selections(true, 15); }
