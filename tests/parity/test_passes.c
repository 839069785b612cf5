/* Passes that touch each element once, device against scalar. */
#include <float.h>

#include "kernels/decorate.h"
#include "kernels/half.h"
#include "parity.h"

enum { N = 20000 };
/* Around the sizes of lanes, warps, blocks and tiles. */
static const size_t sizes[] = {0, 1, 3, 31, 32, 33, 255, 257, 4095, 4096, 4097, N};
#define SIZES (sizeof sizes / sizeof sizes[0])

/* A shape with NaN, infinities and the largest finite values sprinkled in. */
static void fill_wild(weir_rng *rng, int shape, float *x, size_t n) {
  static const float special[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN, -0.0F};
  fill_shape(rng, shape, x, n);
  for (size_t i = 0; i < n; i += 1 + weir_rng_below(rng, 40))
    x[i] = special[weir_rng_below(rng, sizeof special / sizeof special[0])];
}

Test(parity_passes, casts_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(1);
  FREED float *x = array(N, sizeof *x);
  FREED float *error = array(N, sizeof *error);
  FREED float *wanted_error = array(N, sizeof *wanted_error);
  FREED float *back = array(N, sizeof *back);
  FREED float *wanted_back = array(N, sizeof *wanted_back);
  FREED uint16_t *half = array(N, sizeof *half);
  FREED uint16_t *wanted = array(N, sizeof *wanted);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t n = sizes[s];
      size_t skew = 4 * (s % 4);
      fill_wild(&rng, shape, x, n);
      fill_shape(&rng, 0, error, n);
      memcpy(wanted_error, error, n * sizeof *error);
      LENT device_buffer dx = put(cuda, x, n * sizeof *x, skew);
      LENT device_buffer de = put(cuda, error, n * sizeof *error, skew);
      LENT device_buffer dh = take(cuda, n * sizeof *half, skew / 2);
      LENT device_buffer db = take(cuda, n * sizeof *back, 0);
      must(weir_cuda_bf16_encode(cuda, dx.data, n, dh.data, de.data));
      must(weir_cuda_bf16_decode(cuda, dh.data, n, db.data));
      weir_bf16_encode(x, n, wanted, wanted_error);
      weir_bf16_decode(wanted, n, wanted_back);
      get(cuda, half, dh, n * sizeof *half);
      get(cuda, error, de, n * sizeof *error);
      get(cuda, back, db, n * sizeof *back);
      cr_assert_arr_eq(half, wanted, n * sizeof *half, "%s", shape_name(shape));
      same_floats(error, wanted_error, n, "what bf16 loses");
      same_floats(back, wanted_back, n, "bf16");
    }
  }
}

Test(parity_passes, arithmetic_and_indices_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, N);
  weir_rng rng = weir_rng_of(2);
  FREED float *x = array(N, sizeof *x);
  FREED float *y = array(N, sizeof *y);
  FREED float *got = array(N, sizeof *got);
  FREED float *value = array(N, sizeof *value);
  FREED uint32_t *index = array(N, sizeof *index);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t n = sizes[s];
      size_t k = n / 7 + (n > 0);
      fill_wild(&rng, shape, x, n);
      fill_wild(&rng, (shape + 1) % SHAPES, y, n);
      random_indices(&rng, n, k, index);
      LENT device_buffer dx = put(cuda, x, n * sizeof *x, 4);
      LENT device_buffer dy = put(cuda, y, n * sizeof *y, 8);
      LENT device_buffer di = put(cuda, index, k * sizeof *index, 4);
      LENT device_buffer dv = take(cuda, k * sizeof *value, 12);
      must(weir_cuda_gather(cuda, dx.data, n, di.data, k, dv.data, true));
      weir_gather(x, index, k, value);
      weir_scatter_zero(x, index, k);
      must(weir_cuda_scatter_add(cuda, dy.data, n, di.data, dv.data, k));
      weir_scatter_add(y, index, value, k);
      get(cuda, got, dv, k * sizeof *got);
      same_floats(got, value, k, "gathered");
      get(cuda, got, dx, n * sizeof *got);
      same_floats(got, x, n, "zeroed");
      get(cuda, got, dy, n * sizeof *got);
      same_floats(got, y, n, "added");
    }
  }
}

Test(parity_passes, what_is_too_large_becomes_the_largest) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(4);
  FREED float *x = array(N, sizeof *x);
  FREED float *got = array(N, sizeof *got);
  for (size_t s = 0; s < SIZES; s++) {
    const size_t n = sizes[s];
    fill_wild(&rng, (int)s % SHAPES, x, n);
    LENT device_buffer dx = put(cuda, x, n * sizeof *x, 4 * (s % 4));
    must(weir_cuda_hold_finite(cuda, dx.data, n));
    get(cuda, got, dx, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
      if (isinf(x[i])) x[i] = x[i] > 0 ? FLT_MAX : -FLT_MAX;
    same_floats(got, x, n, "held");
  }
}

/* u = m u + g apart, in u's place and in g's. */
Test(parity_passes, momentum_is_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(3);
  FREED float *g = array(N, sizeof *g);
  FREED float *u = array(N, sizeof *u);
  FREED float *got = array(N, sizeof *got);
  FREED float *wanted = array(N, sizeof *wanted);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t n = sizes[s];
      fill_wild(&rng, shape, g, n);
      fill_wild(&rng, (shape + 5) % SHAPES, u, n);
      LENT device_buffer dg = put(cuda, g, n * sizeof *g, 4 * (s % 4));
      LENT device_buffer du = put(cuda, u, n * sizeof *u, 8);
      LENT device_buffer own = take(cuda, n * sizeof *u, 4);
      device_buffer to = s % 3 == 0 ? own : s % 3 == 1 ? du : dg;
      weir_momentum_correct(g, u, wanted, n, 0.9F);
      must(weir_cuda_momentum_correct(cuda, dg.data, du.data, to.data, n, 0.9F));
      get(cuda, got, to, n * sizeof *got);
      same_floats(got, wanted, n, shape_name(shape));
    }
  }
}

/* The factor's last bit may differ, and each element's with it; what needs no clipping, and what is
 * not finite, stays as it is. */
Test(parity_passes, clipping_is_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(4);
  FREED float *x = array(N, sizeof *x);
  FREED float *got = array(N, sizeof *got);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t n = sizes[s];
      fill_shape(&rng, shape, x, n);
      if (s % 4 == 3) x[n / 2] = shape % 2 == 0 ? NAN : INFINITY;
      double norm = sqrt(weir_sum_square(x, n));
      static const double share[] = {0.5, 1.5, 0.0, 1e-3, 1.0 / 3};
      double limit = isfinite(norm) ? norm * share[(s + (size_t)shape) % 5] : 1.0;
      const size_t first = n / 3; /* as if they lay apart */
      LENT device_buffer dx = put(cuda, x, n * sizeof *x, 4 * (s % 4));
      LENT device_buffer room = take(cuda, WEIR_CUDA_MEASURE, 0);
      float *const at = dx.data;
      must(weir_cuda_measure(cuda, at, WEIR_FP32, first, false, room.data));
      must(weir_cuda_measure(cuda, at + first, WEIR_FP32, n - first, true, room.data));
      must(weir_cuda_clip(cuda, at, WEIR_FP32, first, limit, room.data));
      must(weir_cuda_clip(cuda, at + first, WEIR_FP32, n - first, limit, room.data));
      float factor = weir_clip_factor(weir_sum_square(x, n), limit);
      weir_scale(x, n, factor);
      get(cuda, got, dx, n * sizeof *got);
      for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)x[i]);
        bool same = memcmp(&got[i], &x[i], sizeof x[i]) == 0 || (isnan(got[i]) && isnan(x[i]));
        cr_assert(same || (factor < 1.0F && off <= 0x1p-22 * fabs((double)x[i]) + 1e-44),
                  "%s, %zu of %zu: %a, not %a", shape_name(shape), i, n, (double)got[i],
                  (double)x[i]);
      }
    }
  }
}

/* Squares of whole numbers add up to the same in any order, so that factors are equal. */
Test(parity_passes, clipping_of_16_bits_is_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(6);
  FREED float *const x = array(N, sizeof *x);
  FREED uint16_t *const half = array(N, sizeof *half), *const got = array(N, sizeof *got);
  for (unsigned type = WEIR_FP16; type <= WEIR_BF16; type++)
    for (size_t s = 0; s < SIZES; s++) {
      const size_t n = sizes[s], first = n / 3;
      for (size_t i = 0; i < n; i++) x[i] = (float)weir_rng_below(&rng, 17) - 8;
      cr_assert(weir_narrow(type, x, n, half));
      if (s % 4 == 3) half[n / 2] = type == WEIR_FP16 ? 0x7c00 : 0x7f80; /* infinite */
      const double square = weir_half_square(type, half, n);
      const double limit = isfinite(square) ? sqrt(square) * (s % 2 == 0 ? 1.0 / 3 : 1.5) : 1;
      LENT device_buffer dx = put(cuda, half, n * sizeof *half, 4 * (s % 4));
      LENT device_buffer room = take(cuda, WEIR_CUDA_MEASURE, 0);
      uint16_t *const at = dx.data;
      must(weir_cuda_measure(cuda, at, type, first, false, room.data));
      must(weir_cuda_measure(cuda, at + first, type, n - first, true, room.data));
      must(weir_cuda_clip(cuda, at, type, first, limit, room.data));
      must(weir_cuda_clip(cuda, at + first, type, n - first, limit, room.data));
      const float factor = weir_clip_factor(square, limit);
      if (factor < 1) weir_half_scale(type, half, n, factor);
      get(cuda, got, dx, n * sizeof *got);
      for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], half[i], "type %u, %zu of %zu: %#x, not %#x", type, i, n,
                     (unsigned)got[i], (unsigned)half[i]);
    }
}

/* Indices from the wire: out of range, equal, descending. */
Test(parity_passes, malformed_indices_change_nothing) {
  enum { LENGTH = 1000, K = 300 };
  OPENED weir_cuda *cuda = open_cuda(LENGTH, K);
  static const struct {
    size_t at;
    uint32_t value;
  } harm[] = {{K - 1, LENGTH}, {K - 1, UINT32_MAX}, {5, 4}, {0, 7}, {299, 0}};
  float to[LENGTH];
  float got[LENGTH];
  float value[K];
  uint32_t index[K];
  for (size_t i = 0; i < LENGTH; i++) to[i] = (float)i;
  for (size_t h = 0; h <= sizeof harm / sizeof harm[0]; h++) {
    bool harmed = h < sizeof harm / sizeof harm[0];
    for (uint32_t i = 0; i < K; i++) {
      index[i] = i;
      value[i] = 1.0F;
    }
    if (harmed) index[harm[h].at] = harm[h].value;
    LENT device_buffer dt = put(cuda, to, sizeof to, 0);
    LENT device_buffer di = put(cuda, index, sizeof index, 0);
    LENT device_buffer dv = put(cuda, value, sizeof value, 0);
    must(weir_cuda_scatter_add(cuda, dt.data, LENGTH, di.data, dv.data, K));
    cr_assert_eq(weir_cuda_wait(cuda), harmed ? WEIR_E_PROTOCOL : WEIR_OK);
    must(weir_cuda_wait(cuda)); /* told once */
    get(cuda, got, dt, sizeof got);
    for (size_t i = 0; i < LENGTH; i++)
      cr_assert_eq(got[i], (float)i + (!harmed && i < K ? 1.0F : 0.0F));
  }
  cr_assert_eq(weir_cuda_scatter_add(cuda, NULL, 1, NULL, NULL, 2), WEIR_E_INVALID);
}

Test(parity_passes, contexts_refuse_what_they_cannot_do) {
  weir_cuda *cuda = NULL;
  cr_assert_eq(weir_cuda_create(-1, NULL, &cuda), WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_create(weir_cuda_devices(), NULL, &cuda), WEIR_E_INVALID);
  cr_assert_null(cuda);
  weir_cuda_free(NULL);
  must(weir_cuda_create(0, NULL, &cuda));
  cr_assert_not_null(weir_cuda_stream(cuda));
  cr_assert_eq(weir_cuda_reserve(cuda, 10, 11), WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_reserve(cuda, (size_t)UINT32_MAX + 1, 1), WEIR_E_INVALID);
  must(weir_cuda_reserve(cuda, 100, 10));
  must(weir_cuda_reserve(cuda, 50, 20)); /* grows to 20 of 100 */
  const float zeros[100] = {0};
  float *x = NULL;
  must(weir_cuda_alloc(cuda, sizeof zeros, (void **)&x));
  must(weir_cuda_copy(cuda, x, zeros, sizeof zeros));
  must(weir_cuda_ef_accumulate(cuda, x, x, x, 100, NULL));
  cr_assert_eq(weir_cuda_ef_accumulate(cuda, x, x, x, 101, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_cuda_topk(cuda, x, 100, 21, NULL, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_cuda_topk(cuda, x, 100, 101, NULL, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_topk(cuda, x, (size_t)UINT32_MAX + 1, 1, NULL, NULL), WEIR_E_UNSUPPORTED);
  void *all = NULL;
  cr_assert_eq(weir_cuda_alloc(cuda, SIZE_MAX / 2 + 1, &all), WEIR_E_NOMEM);
  cr_assert_null(all);
  weir_cuda_release(cuda, x);
  must(weir_cuda_wait(cuda));
  weir_cuda_free(cuda);
}
