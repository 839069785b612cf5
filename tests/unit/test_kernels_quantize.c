/* Quantizers against what their papers say, worked out in double precision or by hand. */
#include <criterion/criterion.h>
#include <float.h>

#include "kernels/encoder.h"
#include "kernels_data.h"

enum { MOST = 4096 };

static uint8_t message[8 * MOST + 64];
static float decoded[MOST];

static void decode(uint32_t codec, size_t bytes, const weir_layout *layout) {
  cr_assert_eq(weir_codecs[codec]->decode(NULL, message, bytes, layout, decoded, false), WEIR_OK,
               "%s", weir_last_error());
}

static void qsgd(const float *x, size_t n, weir_qsgd_options options, uint64_t seed) {
  size_t bytes = 0;
  size_t offset[2] = {0, n};
  cr_assert_eq(weir_qsgd_encode_with(x, n, options, seed, message, sizeof message, &bytes), WEIR_OK,
               "%s", weir_last_error());
  cr_assert_eq(bytes, weir_qsgd_bound_with(n, options));
  decode(WEIR_CODEC_QSGD, bytes, &(weir_layout){1, offset});
}

/* --- by hand ---------------------------------------------------------------------------------- */

static float float_at(size_t at) {
  float x;
  memcpy(&x, message + at, sizeof x);
  return x;
}

Test(kernels_quantize, qsgd_message_by_hand) {
  const float x[10] = {0, 1, 2, 3, 0, 3, 1, 2, -5, -2};
  weir_qsgd_options options = {.bits = 2, .bucket = 8, .nearest = true};
  qsgd(x, 10, options, 0);
  const uint8_t head[16] = {'W', 'R', 'E', '1', 10, 0, 0, 0, 8, 0, 0, 0, WEIR_CODEC_QSGD, 2, 2, 0};
  cr_assert(memcmp(message, head, sizeof head) == 0);
  cr_assert_eq(weir_qsgd_bound_with(10, options), 16 + 10 + 10);
  /* First bucket: step (3 - 0) / 3 = 1 from 0; codes 0 1 2 3, 0 3 1 2 from the lowest bits up. */
  cr_assert(float_at(16) == 1.0F && float_at(20) == 0.0F);
  cr_assert_eq(message[24], 0xe4);
  cr_assert_eq(message[25], 0x9c);
  /* Second: step (-2 + 5) / 3 = 1 from -5; codes 0 3, filled up with zeros. */
  cr_assert(float_at(26) == 1.0F && float_at(30) == -5.0F);
  cr_assert_eq(message[34], 0x0c);
  cr_assert_eq(message[35], 0);
  cr_assert(memcmp(decoded, x, sizeof x) == 0);
}

/* A plan's bucket, and none of a codec that has no such thing. */
Test(kernels_quantize, plans_name_buckets) {
  static const struct {
    const char *plan;
    uint8_t bucket[4], bits, mode;
    size_t bytes; /* of 3000 elements: 16, each bucket's scales, and codes */
  } cases[] = {{"qsgd:0.125:ag", {128, 0}, 4, 0, 16 + 24 * 8 + 1500},
               {"qsgd:0.125:sra:bucket=64", {64, 0}, 4, 0, 16 + 47 * 8 + 1500},
               {"qsgd-nearest:0.0625:ag:bucket=1024", {0, 4}, 2, 2, 16 + 3 * 8 + 750},
               {"qsgd-l2:0.25:ag:bucket=8192", {0, 32}, 8, 1, 16 + 4 + 3000}};
  float x[3000];
  weir_rng rng = weir_rng_of(8);
  for (size_t i = 0; i < 3000; i++) x[i] = (float)weir_rng_normal(&rng);
  const weir_layout layout = {1, (const size_t[]){0, 3000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    weir_plan plan;
    size_t bytes = 0;
    cr_assert_eq(weir_plan_parse(cases[i].plan, &plan), WEIR_OK);
    cr_assert_eq(weir_plan_bound(&plan, &layout), cases[i].bytes, "%s: %zu", cases[i].plan,
                 weir_plan_bound(&plan, &layout));
    cr_assert_eq(weir_plan_encode(&plan, NULL, x, &layout, 5, message, sizeof message, &bytes),
                 WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(bytes, cases[i].bytes);
    cr_assert_eq(memcmp(message + 8, cases[i].bucket, 4), 0, "%s", cases[i].plan);
    cr_assert(message[13] == cases[i].bits && message[14] == cases[i].mode, "%s", cases[i].plan);
    decode(plan.codec, bytes, &layout);
  }
}

/* Many buckets, found and coded some at a time: each is what its own elements and draws make it.
 * The grid is of eighths, so that a place on it is exact. */
Test(kernels_quantize, qsgd_buckets_stand_for_themselves) {
  enum { BUCKET = 128, N = 21 * BUCKET + 37, EACH = 8 + BUCKET / 2 };
  const weir_qsgd_options options = {.bits = 4, .bucket = BUCKET};
  static float x[N];
  weir_rng rng = weir_rng_of(17);
  for (size_t i = 0; i < N; i++) { /* a bucket's width is 15 * 2^b, from b on */
    size_t b = i / BUCKET;
    double place = i % BUCKET < 2 ? 15.0 * (double)(i % BUCKET)
                                  : (double)weir_rng_below(&rng, 15 * 8 + 1) / 8.0;
    x[i] = (float)((double)b + ldexp(place, (int)(b % 5)));
  }
  for (int v = 0; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    weir_cpu_force(version(v));
    qsgd(x, N, options, 99);
    for (size_t i = 0; i < N; i++) {
      size_t b = i / BUCKET;
      double place = ((double)x[i] - (double)b) / ldexp(1.0, (int)(b % 5));
      double draw = (double)(weir_mix32(weir_unit_key(99, b + 1) + (uint32_t)(i % BUCKET)) >> 8);
      unsigned want = (unsigned)place + (place - floor(place) > draw * 0x1p-24);
      size_t at = 16 + b * EACH;
      unsigned code = message[at + 8 + i % BUCKET / 2] >> 4 * (i % 2) & 15;
      cr_assert(float_at(at) == ldexpf(1.0F, (int)(b % 5)) && float_at(at + 4) == (float)b);
      cr_assert_eq(code, want, "%s: element %zu of bucket %zu", version(v)->name, i % BUCKET, b);
    }
  }
  weir_cpu_force(NULL);
}

/* 128 elements of 3 have the norm 33.94, of which a seventh is 4.8487: of 8 bits of mantissa,
 * 155/32 = 4.84375 is the nearest, which 3 is 0.619 of.  Over many draws that share of them goes
 * up. */
Test(kernels_quantize, l2_steps_are_bfloat16s) {
  float x[128];
  double sum = 0;
  for (size_t i = 0; i < 128; i++) x[i] = 3;
  for (uint64_t seed = 0; seed < 200; seed++) {
    qsgd(x, 128, (weir_qsgd_options){.bits = 4, .bucket = 128, .l2 = true}, seed);
    cr_assert_eq(float_at(16), 4.84375F);
    for (size_t i = 0; i < 128; i++) {
      cr_assert(decoded[i] == 0 || decoded[i] == 4.84375F);
      sum += (double)decoded[i];
    }
  }
  /* 25600 draws: the mean's error is 4.84 * 0.486 / 160 = 0.0147 */
  cr_assert_float_eq(sum / 25600, 3, 5 * 0.0147, "%g", sum / 25600);
}

Test(kernels_quantize, signs_by_hand) {
  const float x[9] = {1, 3, -2, -4, 2, -6, 0, 6, -12};
  const size_t offset[4] = {0, 4, 4, 9};
  const weir_layout layout = {3, offset};
  size_t bytes = 0;
  cr_assert_eq(weir_codecs[WEIR_CODEC_ONEBIT]->encode(NULL, x, &layout, 1.0 / 32, 0, message,
                                                      sizeof message, &bytes),
               WEIR_OK);
  cr_assert_eq(bytes, 16 + 8 + 1 + 8 + 1); /* the empty tensor takes nothing */
  cr_assert_eq(message[24], 0x0c);
  cr_assert_eq(message[33], 0x12);
  decode(WEIR_CODEC_ONEBIT, bytes, &layout);
  const float means[9] = {2, 2, -3, -3, 8.0F / 3, -9, 8.0F / 3, 8.0F / 3, -9};
  cr_assert(memcmp(decoded, means, sizeof means) == 0);
  cr_assert_eq(weir_codecs[WEIR_CODEC_EFSIGNSGD]->encode(NULL, x, &layout, 1.0 / 32, 0, message,
                                                         sizeof message, &bytes),
               WEIR_OK);
  cr_assert_eq(bytes, 16 + 4 + 1 + 4 + 1);
  decode(WEIR_CODEC_EFSIGNSGD, bytes, &layout);
  const float sized[9] = {2.5F, 2.5F, -2.5F, -2.5F, 5.2F, -5.2F, 5.2F, 5.2F, -5.2F};
  cr_assert(memcmp(decoded, sized, sizeof sized) == 0);
}

/* Nothing to draw: every element is -s, 0 or s. */
Test(kernels_quantize, terngrad_by_hand) {
  const float x[6] = {3, -3, 0, 0, 3, -0.0F};
  const float back[6] = {3, -3, 0, 0, 3, 0};
  const weir_layout layout = {1, (const size_t[]){0, 6}};
  for (int unbiased = 0; unbiased < 2; unbiased++) {
    size_t bytes = 0;
    weir_terngrad_options options = {.unbiased = unbiased};
    cr_assert_eq(weir_terngrad_encode_with(x, &layout, options, 9, message, sizeof message, &bytes),
                 WEIR_OK);
    cr_assert_eq(bytes, 16 + 4 + 2);
    cr_assert_eq(message[20], 2 | 0 << 2 | 1 << 4 | 1 << 6);
    cr_assert_eq(message[21], 2 | 1 << 2);
    decode(WEIR_CODEC_TERNGRAD, bytes, &layout);
    for (size_t i = 0; i < 6; i++) cr_assert(decoded[i] == back[i]);
  }
}

/* --- error bounds ----------------------------------------------------------------------------- */

static double step_of(const float *x, size_t n, weir_qsgd_options options) {
  double low = INFINITY, high = -INFINITY, square = 0;
  for (size_t i = 0; i < n; i++) {
    low = fmin(low, (double)x[i]);
    high = fmax(high, (double)x[i]);
    square += (double)x[i] * (double)x[i];
  }
  return options.l2 ? sqrt(square) / ((1 << (options.bits - 1)) - 1)
                    : (high - low) / ((1 << options.bits) - 1);
}

Test(kernels_quantize, qsgd_errors_stay_within_a_step_of_their_bucket) {
  static float x[MOST];
  static const size_t sizes[] = {1, 2, 127, 128, 129, 1000, MOST};
  weir_rng rng = weir_rng_of(21);
  for (int mode = 0; mode < 4; mode++) {
    for (unsigned bits = 2; bits <= 8; bits++) {
      weir_qsgd_options options = {bits, bits % 2 ? 1024 : 128, mode & 1, mode & 2};
      for (int shape = 0; shape < SHAPES; shape++) {
        size_t n = sizes[(size_t)shape % 7];
        if (shape == 5) {
          continue; /* one huge value: see below */
        }
        fill_shape(&rng, shape, x, n);
        qsgd(x, n, options, bits);
        for (size_t at = 0; at < n; at += options.bucket) {
          size_t count = n - at < options.bucket ? n - at : options.bucket;
          const double step = step_of(x + at, count, options);
          double bound = step * (options.nearest ? 0.5001 : 1.0001);
          if (options.l2) { /* to 8 bits of mantissa: it is off by 1/512 at most, the end as much */
            const double end = step * ((1 << (options.bits - 1)) - 1);
            bound = fmax(bound * (1 + 0x1p-9), end * 0x1.01p-9);
          }
          /* Below the narrowest grid nothing but the lowest value is sent. */
          bound = fmax(bound, 256.0 * (double)FLT_MIN);
          for (size_t i = at; i < at + count; i++)
            bound = fmax(bound, fabs((double)x[i]) * 0x1p-22);
          for (size_t i = at; i < at + count; i++) {
            cr_assert(fabs((double)x[i] - (double)decoded[i]) <= bound,
                      "%s mode %d bits %u: %g of %g", shape_name(shape), mode, bits,
                      (double)decoded[i], (double)x[i]);
          }
        }
      }
    }
  }
}

Test(kernels_quantize, huge_values_saturate_at_a_quarter_of_the_range) {
  float x[128] = {FLT_MAX, -FLT_MAX, 1.0F};
  qsgd(x, 128, (weir_qsgd_options){4, 128, true, false}, 0);
  cr_assert_float_eq((double)decoded[0] / (double)FLT_MAX, 0.25, 1e-6);
  cr_assert_float_eq((double)decoded[1] / (double)FLT_MAX, -0.25, 1e-6);
  qsgd(x, 128, (weir_qsgd_options){4, 128, true, true}, 0); /* steps of 8 bits of mantissa */
  cr_assert_float_eq((double)decoded[0] / (double)FLT_MAX, 0.25, 0.25 * 0x1p-9);
}

Test(kernels_quantize, equal_buckets_and_zeros_are_exact) {
  float x[300];
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < 300; i++) x[i] = round == 0 ? 0.0F : 0.1F * (float)(1 + i / 128);
    qsgd(x, 300, (weir_qsgd_options){.bits = 2, .bucket = 128}, 4);
    cr_assert(memcmp(x, decoded, sizeof x) == 0);
  }
}

/* --- unbiasedness ----------------------------------------------------------------------------- */

/* Mean over many seeds against the element.  A mean of S draws with width w leaves the expectation
 * by more than w sqrt(ln(2 / p) / (2 S)) with probability p at most (Hoeffding); p = 1e-12. */
enum { SEEDS = 3000, UNITS = 256 };
static double mean[UNITS], product;

static double hoeffding(double width) { return width * sqrt(log(2e12) / (2.0 * SEEDS)); }

static void add_draw(const float *x) {
  double before = 0.0;
  for (size_t i = 0; i < UNITS; i++) {
    double error = (double)decoded[i] - (double)x[i];
    mean[i] += (double)decoded[i] / SEEDS;
    product += i > 0 ? error * before : 0.0;
    before = error;
  }
}

Test(kernels_quantize, stochastic_rounding_is_unbiased) {
  float x[UNITS];
  weir_rng rng = weir_rng_of(22);
  for (int l2 = 0; l2 < 2; l2++) {
    for (unsigned bits = 2; bits <= 8; bits += 2) {
      weir_qsgd_options options = {.bits = bits, .bucket = 128, .l2 = l2};
      fill_shape(&rng, l2, x, UNITS);
      memset(mean, 0, sizeof mean);
      product = 0.0;
      for (uint64_t seed = 0; seed < SEEDS; seed++) {
        qsgd(x, UNITS, options, seed);
        add_draw(x);
      }
      double widest = 0.0;
      for (size_t i = 0; i < UNITS; i++) {
        double step = step_of(x + i / 128 * 128, 128, options);
        widest = fmax(widest, step);
        cr_assert(fabs(mean[i] - (double)x[i]) <= hoeffding(step) + 1e-6, "bits %u l2 %d: %g of %g",
                  bits, l2, mean[i], (double)x[i]);
      }
      /* Neighbours are drawn independently: their errors' products average to zero. */
      cr_assert(fabs(product) / (SEEDS * (UNITS - 1)) <=
                2.0 * widest * widest * sqrt(log(2e12) / (2.0 * SEEDS * (UNITS - 1))));
    }
  }
}

/* Of a gradient's squared errors, the mean over many draws, with a last bucket that is cut short:
 * independent elements each err by at most a step, so that 3000 draws of 250 tell 2 %. */
Test(kernels_quantize, mean_errors_are_those_of_really_drawing) {
  enum { N = 250 };
  float x[N];
  weir_rng rng = weir_rng_of(24);
  for (uint32_t bucket = 64; bucket <= 128; bucket *= 2) {
    double due[WEIR_QSGD_WIDTHS];
    fill_shape(&rng, 0, x, N);
    weir_qsgd_mean_errors(x, N, bucket, due);
    for (unsigned bits = 2; bits <= 8; bits++) {
      double drawn = 0;
      for (uint64_t seed = 0; seed < SEEDS; seed++) {
        qsgd(x, N, (weir_qsgd_options){.bits = bits, .bucket = bucket}, seed);
        for (size_t i = 0; i < N; i++) drawn += pow((double)decoded[i] - (double)x[i], 2) / SEEDS;
      }
      cr_assert_float_eq(due[bits - 2], drawn, 0.02 * drawn, "%u bits in %u: %g, drawn %g", bits,
                         bucket, due[bits - 2], drawn);
    }
  }
}

Test(kernels_quantize, terngrad_with_the_papers_scale_is_unbiased) {
  float x[UNITS];
  const size_t offset[3] = {0, 100, UNITS};
  const weir_layout layout = {2, offset};
  weir_rng rng = weir_rng_of(23);
  fill_shape(&rng, 0, x, UNITS);
  memset(mean, 0, sizeof mean);
  float largest = 0.0F;
  for (size_t i = 0; i < UNITS; i++) largest = fmaxf(largest, fabsf(x[i]));
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    size_t bytes = 0;
    weir_terngrad_options options = {.unbiased = true};
    cr_assert_eq(
        weir_terngrad_encode_with(x, &layout, options, seed, message, sizeof message, &bytes),
        WEIR_OK);
    decode(WEIR_CODEC_TERNGRAD, bytes, &layout);
    add_draw(x);
  }
  for (size_t i = 0; i < UNITS; i++)
    cr_assert(fabs(mean[i] - (double)x[i]) <= hoeffding((double)largest));
}

/* The plan's terngrad: t = 0 below, the scale is the mean magnitude of what fired, and nothing
 * beyond 2.5 root mean squares raises the chance of anything else to fire. */
Test(kernels_quantize, terngrad_sends_the_least_squares_scale) {
  static float x[MOST];
  const weir_layout layout = {1, (const size_t[]){0, MOST}};
  weir_rng rng = weir_rng_of(24);
  fill_shape(&rng, 1, x, MOST);
  size_t bytes = 0;
  cr_assert_eq(weir_codecs[WEIR_CODEC_TERNGRAD]->encode(NULL, x, &layout, 0.0625, 5, message,
                                                        sizeof message, &bytes),
               WEIR_OK);
  decode(WEIR_CODEC_TERNGRAD, bytes, &layout);
  double sum = 0, fired = 0, square = 0, expected = 0;
  for (size_t i = 0; i < MOST; i++) square += (double)x[i] * (double)x[i] / MOST;
  for (size_t i = 0; i < MOST; i++) {
    double a = fabs((double)x[i]) / (2.5 * sqrt(square));
    expected += fmin(a, 1.0);
    cr_assert(decoded[i] == 0.0F || (decoded[i] > 0.0F) == (x[i] > 0.0F));
    cr_assert(a < 1.0 || decoded[i] != 0.0F);
    sum += decoded[i] != 0.0F ? fabs((double)x[i]) : 0.0;
    fired += decoded[i] != 0.0F;
  }
  cr_assert_float_eq(fabs(fired - expected), 0.0, MOST * sqrt(log(2e12) / (2.0 * MOST)));
  for (size_t i = 0; i < MOST; i++)
    cr_assert(decoded[i] == 0.0F || fabs(fabs((double)decoded[i]) - sum / fired) < 1e-5);
}

/* --- half precision --------------------------------------------------------------------------- */

/* The value of a finite half by its definition. */
static double half_value(uint16_t half) {
  int exponent = half >> 10 & 31;
  double fraction = half & 1023;
  double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
  return half & 0x8000 ? -size : size;
}

Test(kernels_quantize, every_half_decodes_to_its_value) {
  static uint8_t all[16 + 2 * 65536];
  static float value[65536];
  size_t count = 0;
  for (uint32_t half = 0; half < 65536; half++) {
    if ((half & 0x7c00) != 0x7c00) {
      uint16_t bits = (uint16_t)half;
      memcpy(all + 16 + 2 * count++, &bits, 2);
    }
  }
  const uint32_t n = (uint32_t)count;
  memcpy(all, "WRE1", 4);
  memcpy(all + 4, &n, 4);
  all[12] = WEIR_CODEC_FP16;
  all[13] = 16;
  const weir_layout layout = {1, (const size_t[]){0, count}};
  const weir_codec *codec = weir_codecs[WEIR_CODEC_FP16];
  cr_assert_eq(codec->decode(NULL, all, 16 + 2 * count, &layout, value, false), WEIR_OK);
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, all + 16 + 2 * i, 2);
    cr_assert((double)value[i] == half_value(half) && !signbit(value[i]) == !(half & 0x8000));
  }
  static uint8_t again[sizeof all];
  size_t bytes = 0;
  cr_assert_eq(codec->encode(NULL, value, &layout, 0.5, 0, again, sizeof again, &bytes), WEIR_OK);
  cr_assert_eq(bytes, 16 + 2 * count);
  cr_assert(memcmp(again, all, bytes) == 0);
  const uint16_t infinite = 0x7c00;
  memcpy(all + 16, &infinite, 2);
  cr_assert_eq(codec->decode(NULL, all, bytes, &layout, value, false), WEIR_E_PROTOCOL);
}

Test(kernels_quantize, floats_round_to_the_nearest_half) {
  static float x[MOST];
  const weir_layout layout = {1, (const size_t[]){0, MOST}};
  weir_rng rng = weir_rng_of(25);
  for (int round = 0; round < 50; round++) {
    for (size_t i = 0; i < MOST; i++) {
      /* From 2^-30 to 2^18, ties (few bits) among them. */
      uint64_t bits = weir_rng_next(&rng);
      double f = (double)(bits >> 40 & (bits & 1 ? 0xffffff : 0xfff000)) * 0x1p-24 + 1.0;
      x[i] = (float)ldexp(bits & 2 ? f : -f, (int)(bits >> 8 & 63) % 49 - 30);
    }
    size_t bytes = 0;
    cr_assert_eq(weir_codecs[WEIR_CODEC_FP16]->encode(NULL, x, &layout, 0.5, 0, message,
                                                      sizeof message, &bytes),
                 WEIR_OK);
    decode(WEIR_CODEC_FP16, bytes, &layout);
    for (size_t i = 0; i < MOST; i++) {
      int exponent;
      double a = fabs((double)x[i]);
      (void)frexp(a, &exponent);
      double unit = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
      double want = copysign(fmin(nearbyint(a / unit) * unit, 65504.0), (double)x[i]);
      cr_assert((double)decoded[i] == want, "%.9g gives %.9g, not %.9g", (double)x[i],
                (double)decoded[i], want);
    }
  }
}
