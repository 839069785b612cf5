/* qsgd's messages and gain curves, device against scalar. */
#include <float.h>

#include "kernels/encoder.h"
#include "parity.h"

enum { N = 20011 };
static const size_t sizes[] = {0, 1, 7, 8, 9, 127, 128, 129, 255, 2047, 2048, 2049, 4000, N};
#define SIZES (sizeof sizes / sizeof sizes[0])

static weir_qsgd_options options_of(unsigned bits) {
  return (weir_qsgd_options){.bits = bits, .bucket = 128};
}

/* Byte for byte, but that any NaN of a scale is as good as any other. */
static void same_message(const uint8_t *got, const uint8_t *wanted, size_t n,
                         weir_qsgd_options options, const char *what) {
  size_t scales = options.l2 ? 1 : 2;
  size_t unit = scales * sizeof(float) + options.bucket / 8 * options.bits;
  size_t bytes = weir_qsgd_bound_with(n, options);
  for (size_t i = 0; i < bytes; i++) {
    size_t in_unit = i < sizeof(weir_encoded) ? SIZE_MAX : (i - sizeof(weir_encoded)) % unit;
    if (in_unit < scales * sizeof(float)) {
      float scale[2];
      memcpy(&scale[0], got + i - in_unit % sizeof(float), sizeof(float));
      memcpy(&scale[1], wanted + i - in_unit % sizeof(float), sizeof(float));
      if (isnan(scale[0]) && isnan(scale[1])) continue;
    }
    cr_assert_eq(got[i], wanted[i],
                 "%s, %u bits, buckets of %u, mode %d%d, %zu elements: byte %zu is %u, not %u",
                 what, options.bits, options.bucket, options.l2, options.nearest, n, i, got[i],
                 wanted[i]);
  }
}

/* Encode x on both sides and decode it again, stored and added, at odd addresses.  Both may refuse
 * what was not finite. */
static void check_qsgd(weir_cuda *cuda, const float *x, size_t n, weir_qsgd_options options,
                       uint64_t seed, size_t skew, const char *what) {
  size_t bound = weir_qsgd_bound_with(n, options);
  size_t bytes = 0;
  size_t wanted_bytes = 0;
  FREED uint8_t *got = array(bound, 1);
  FREED uint8_t *wanted = array(bound, 1);
  FREED float *to = array(n, sizeof *to);
  FREED float *wanted_to = array(n, sizeof *wanted_to);
  const weir_layout layout = {1, (const size_t[]){0, n}};
  LENT device_buffer dx = put(cuda, x, n * sizeof *x, 4);
  LENT device_buffer message = take(cuda, bound, skew);
  LENT device_buffer dto = put(cuda, x, n * sizeof *x, 4);
  must(weir_cuda_qsgd_encode(cuda, dx.data, n, options, seed, message.data, bound, &bytes));
  must(weir_qsgd_encode_with(x, n, options, seed, wanted, bound, &wanted_bytes));
  cr_assert_eq(bytes, wanted_bytes);
  get(cuda, got, message, bytes);
  same_message(got, wanted, n, options, what);
  memcpy(wanted_to, x, n * sizeof *x);
  for (int add = 0; add < 2; add++) {
    must(weir_cuda_qsgd_decode(cuda, message.data, bytes, n, options, dto.data, add));
    weir_status status = weir_cuda_wait(cuda);
    cr_assert_eq(weir_codecs[WEIR_CODEC_QSGD]->decode(NULL, wanted, bytes, &layout, wanted_to, add),
                 status, "%s: decoded with %d", what, (int)status);
    get(cuda, to, dto, n * sizeof *to);
    same_floats(to, wanted_to, n, what);
  }
}

Test(parity_encode, qsgd_is_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(21);
  FREED float *x = array(N, sizeof *x);
  for (int shape = 0; shape < SHAPES; shape++) {
    for (unsigned bits = 2; bits <= 8; bits++) {
      for (size_t s = bits % 2; s < SIZES; s += 2) {
        fill_shape(&rng, shape, x, sizes[s]);
        check_qsgd(cuda, x, sizes[s], options_of(bits), weir_rng_next(&rng), s % 3,
                   shape_name(shape));
      }
    }
    /* Zeros of both signs and the largest values, anywhere in a bucket. */
    for (size_t i = 0; i < N; i += 1 + weir_rng_below(&rng, 9)) {
      static const float edge[] = {0.0F, -0.0F, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45F};
      x[i] = edge[weir_rng_below(&rng, shape % 2 == 0 ? 2 : 6)];
    }
    check_qsgd(cuda, x, N, options_of(4), 5, 0, shape_name(shape));
  }
  /* A bucket whose smallest is 0 or -0, at every place of each. */
  for (size_t i = 0; i < 128; i++) {
    for (size_t j = 0; j < 128; j++) x[j] = 1.0F + (float)j;
    x[i] = -0.0F;
    x[(i * 5 + 3) % 128] = 0.0F;
    check_qsgd(cuda, x, 128, options_of(4), i, 0, "zeros");
  }
}

/* Every grid, rounding and width, over buckets from the smallest to some thousand elements, whole
 * and cut off anywhere. */
Test(parity_encode, modes_and_buckets_of_qsgd_are_equal) {
  static const uint32_t buckets[] = {8, 24, 120, 128, 136, 1024, 5000, 65536};
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(23);
  FREED float *x = array(N, sizeof *x);
  for (size_t b = 0; b < sizeof buckets / sizeof buckets[0]; b++) {
    for (unsigned mode = 0; mode < 4; mode++) {
      for (unsigned bits = 2; bits <= 8; bits++) {
        const weir_qsgd_options options = {bits, buckets[b], mode & 1, mode & 2};
        const size_t lengths[] = {0, 1, buckets[b], weir_rng_below(&rng, 4000)};
        size_t n = lengths[(bits + mode) % 4] < N ? lengths[(bits + mode) % 4] : N;
        int shape = (int)weir_rng_below(&rng, SHAPES);
        fill_shape(&rng, shape, x, n);
        check_qsgd(cuda, x, n, options, weir_rng_next(&rng), (b + bits) % 5, shape_name(shape));
      }
    }
  }
}

/* All shapes under the table's names, against the CPU's row of the same name. */
Test(parity_encode, rows_of_qsgd_are_equal) {
  static const uint32_t rows[] = {WEIR_CODEC_QSGD, WEIR_CODEC_QSGD_NEAREST, WEIR_CODEC_QSGD_L2,
                                  WEIR_CODEC_QSGD_L2_NEAREST};
  enum { LENGTH = 3001 };
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  weir_rng rng = weir_rng_of(24);
  FREED float *x = array(LENGTH, sizeof *x);
  const weir_layout layout = {1, (const size_t[]){0, LENGTH}};
  for (int shape = 0; shape < SHAPES; shape++) {
    for (unsigned mode = 0; mode < 4; mode++) {
      unsigned bits = 2 + ((unsigned)shape + mode) % 7;
      const weir_qsgd_options options = {bits, 128, mode & 1, mode & 2};
      const weir_codec *codec = weir_codecs[rows[mode]];
      double cr = bits / 32.0;
      size_t bytes = codec->bound(&layout, cr);
      FREED uint8_t *got = array(bytes, 1);
      FREED uint8_t *wanted = array(bytes, 1);
      fill_shape(&rng, shape, x, LENGTH);
      LENT device_buffer dx = put(cuda, x, LENGTH * sizeof *x, 0);
      LENT device_buffer dm = take(cuda, bytes, 1);
      must(weir_cuda_encode(cuda, codec->id, dx.data, &layout, cr, 9, dm.data, bytes, &bytes));
      must(codec->encode(NULL, x, &layout, cr, 9, wanted, bytes, &bytes));
      get(cuda, got, dm, bytes);
      same_message(got, wanted, LENGTH, options, codec->name);
      must(weir_cuda_decode(cuda, codec->id, dm.data, bytes, &layout, cr, dx.data, true));
      must(codec->decode(NULL, wanted, bytes, &layout, x, true));
      FREED float *to = array(LENGTH, sizeof *to);
      get(cuda, to, dx, LENGTH * sizeof *to);
      same_floats(to, x, LENGTH, codec->name);
    }
  }
}

/* The contract gives no message for these, but the same one on both sides, and no decoded NaN. */
Test(parity_encode, what_is_not_finite_is_treated_alike) {
  enum { LENGTH = 700 };
  static const float wild[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX};
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  weir_rng rng = weir_rng_of(25);
  float x[LENGTH];
  for (unsigned mode = 0; mode < 4; mode++) {
    for (size_t w = 0; w < sizeof wild / sizeof wild[0]; w++) {
      for (size_t where = 0; where < 40; where += 13) {
        const weir_qsgd_options options = {2 + (unsigned)w, where > 20 ? 200 : 128, mode & 1,
                                           mode & 2};
        fill_shape(&rng, 0, x, LENGTH);
        x[where] = wild[w];
        x[LENGTH - 1] = wild[w];
        check_qsgd(cuda, x, LENGTH, options, w, where % 4, "not finite");
      }
    }
  }
}

/* A message of the wrong kind, or with scales that would not stay finite. */
enum { LENGTH = 1000, BITS = 4 };

/* A message for LENGTH elements is refused, and what it would have been decoded to stays. */
static void refuses(weir_cuda *cuda, const uint8_t *message, size_t bytes,
                    weir_qsgd_options options, int harm) {
  float to[LENGTH];
  float got[LENGTH];
  for (size_t i = 0; i < LENGTH; i++) to[i] = -1.0F;
  LENT device_buffer dm = put(cuda, message, bytes, 0);
  LENT device_buffer dt = put(cuda, to, sizeof to, 0);
  must(weir_cuda_qsgd_decode(cuda, dm.data, bytes, LENGTH, options, dt.data, false));
  cr_assert_eq(weir_cuda_wait(cuda), WEIR_E_PROTOCOL, "harm %d", harm);
  get(cuda, got, dt, sizeof got);
  same_floats(got, to, LENGTH, "unchanged");
}

Test(parity_encode, malformed_messages_change_nothing) {
  static const float bad_scales[][2] = {
      {-1.0F, 0.0F}, {NAN, 0.0F}, {1.0F, NAN}, {INFINITY, 0.0F}, {FLT_MAX / 8, FLT_MAX / 8}};
  OPENED weir_cuda *cuda = open_cuda(LENGTH, 0);
  float x[LENGTH];
  for (size_t i = 0; i < LENGTH; i++) x[i] = (float)i;
  size_t bytes = weir_qsgd_bound_with(LENGTH, options_of(BITS));
  FREED uint8_t *message = array(bytes, 1);
  for (int harm = 0; harm < 16 + 5; harm++) {
    must(weir_qsgd_encode_with(x, LENGTH, options_of(BITS), 1, message, bytes, &bytes));
    if (harm < 16) {
      message[harm] ^= 1;
    } else {
      memcpy(message + 16 + 72 * 7, bad_scales[harm - 16], sizeof bad_scales[0]);
    }
    refuses(cuda, message, bytes, options_of(BITS), harm);
  }
  /* A message of another mode, and L2 scales: of one each. */
  const weir_qsgd_options l2 = {.bits = BITS, .bucket = 128, .l2 = true};
  bytes = weir_qsgd_bound_with(LENGTH, l2);
  for (int harm = 0; harm < 5; harm++) {
    must(weir_qsgd_encode_with(x, LENGTH, l2, 1, message, bytes, &bytes));
    if (harm < 4) {
      static const float scale[] = {-1.0F, NAN, INFINITY, FLT_MAX / 6};
      memcpy(message + 16 + 68 * 7, &scale[harm], sizeof scale[harm]);
    } else {
      message[14] |= 2;
    }
    refuses(cuda, message, bytes, l2, 100 + harm);
  }
}

Test(parity_encode, bad_sizes_and_options_are_refused_at_once) {
  OPENED weir_cuda *cuda = open_cuda(LENGTH, 0);
  const size_t bytes = weir_qsgd_bound_with(LENGTH, options_of(BITS));
  size_t none = 1;
  cr_assert_eq(weir_cuda_qsgd_decode(cuda, NULL, bytes - 1, LENGTH, options_of(BITS), NULL, false),
               WEIR_E_PROTOCOL);
  cr_assert_eq(
      weir_cuda_qsgd_encode(cuda, NULL, LENGTH, options_of(BITS), 0, NULL, bytes - 1, &none),
      WEIR_E_CAPACITY);
  cr_assert_eq(none, 0);
  cr_assert_eq(weir_cuda_qsgd_encode(cuda, NULL, SIZE_MAX, options_of(4), 0, NULL, 100, &none),
               WEIR_E_UNSUPPORTED);
  static const weir_qsgd_options bad[] = {{.bits = 1, .bucket = 128},
                                          {.bits = 9, .bucket = 128},
                                          {.bits = 4, .bucket = 0},
                                          {.bits = 4, .bucket = 12},
                                          {.bits = 4, .bucket = 65544}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    cr_assert_eq(weir_cuda_qsgd_encode(cuda, NULL, 1, bad[i], 0, NULL, 100, &none), WEIR_E_INVALID);
    cr_assert_eq(weir_cuda_qsgd_decode(cuda, NULL, 0, 1, bad[i], NULL, false), WEIR_E_INVALID);
  }
}

/* The CPU's sums have rounding errors, at most N 2^-53 of the energy each. */
Test(parity_encode, gain_curves_are_equal) {
  enum { LARGE = 70001, RATIOS = 50 };
  OPENED weir_cuda *cuda = open_cuda(LARGE, 0);
  weir_rng rng = weir_rng_of(22);
  FREED float *x = array(LARGE, sizeof *x);
  FREED weir_cuda_gain_bin *bins = array(WEIR_CUDA_GAIN_BINS, sizeof *bins);
  weir_gain_curve *got;
  weir_gain_curve *wanted;
  must(weir_gain_curve_create(&got));
  must(weir_gain_curve_create(&wanted));
  for (int shape = 0; shape < SHAPES; shape++) {
    for (int empty = 0; empty < 2; empty++) {
      size_t n = empty ? 0 : LARGE - (size_t)shape;
      fill_shape(&rng, shape, x, n);
      LENT device_buffer dx = put(cuda, x, n * sizeof *x, 4);
      LENT device_buffer db = take(cuda, WEIR_CUDA_GAIN_BINS * sizeof *bins, 0);
      must(weir_cuda_gain_histogram(cuda, dx.data, n, db.data));
      get(cuda, bins, db, WEIR_CUDA_GAIN_BINS * sizeof *bins);
      must(weir_cuda_gain_curve(bins, n, got));
      weir_gain_curve_fill(wanted, x, n, 1);
      for (int i = 1; i <= RATIOS && n > 0; i++) {
        double cr = pow(10.0, -4.0 * (double)i / RATIOS);
        double g = weir_gain_curve_gain(got, cr);
        double w = weir_gain_curve_gain(wanted, cr);
        cr_assert(fabs(g - w) <= 4.0 * LARGE * DBL_EPSILON, "%s at %g: %g, not %g",
                  shape_name(shape), cr, g, w);
      }
    }
  }
  weir_gain_curve_free(got);
  weir_gain_curve_free(wanted);
}
