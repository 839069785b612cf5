/* companded: codes worked out by hand, every element at the nearest value of its grid, residuals
 * within what half a step allows, and messages that are not as they should be. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"
#include "kernels_data.h"

enum { HEAD = 16, SCALE = 4, BUCKET = 128 };

static const weir_codec *row(void) { return weir_codec_find(WEIR_CODEC_COMPANDED); }

static size_t encode(const float *e, size_t n, double bits, uint8_t *out) {
  const size_t offset[] = {0, n};
  const weir_layout layout = {1, offset};
  size_t bytes = 0;
  cr_assert_eq(row()->encode(NULL, e, &layout, bits / 32.0, 1, out,
                             row()->bound(&layout, bits / 32.0), &bytes),
               WEIR_OK, "%s", weir_last_error());
  return bytes;
}

static void decode(const uint8_t *message, size_t bytes, size_t n, float *to) {
  const size_t offset[] = {0, n};
  const weir_layout layout = {1, offset};
  cr_assert_eq(row()->decode(NULL, message, bytes, &layout, to, WEIR_DECODE_STORE), WEIR_OK, "%s",
               weir_last_error());
}

static float scale_at(const uint8_t *message, size_t at) {
  float scale;
  memcpy(&scale, message + at, sizeof scale);
  return scale;
}

/* T: of the grids of at most 2^bits values, which are 2 T + 1, the largest has that. */
static int top_of(double bits) { return (int)floor((exp2(bits) - 1) / 2); }
/* The largest value of a grid in its units. */
static double squares(double bits) { return pow(top_of(bits), 2); }

/* The bucket's largest over T^2, rounded to 8 bits of mantissa, the first with them, to even. */
static double scale_of(double bits, double most) {
  int exponent;
  const double mantissa = frexp((double)(float)(most / squares(bits)), &exponent);
  return ldexp(nearbyint(mantissa * 256), exponent - 8);
}

/* --- by hand ---------------------------------------------------------------------------------- */

/* Codes of 8 elements, the first in the lowest bits. */
static void check_codes(const float e[8], double width, const uint64_t codes[8], float most) {
  const unsigned bits = (unsigned)ceil(width);
  uint8_t message[64];
  uint64_t packed = 0, want = 0;
  float x[8];
  for (size_t i = 0; i < 8; i++) x[i] = e[i] * most;
  const size_t bytes = encode(x, 8, width, message);
  cr_assert_eq(bytes, HEAD + SCALE + bits);
  memcpy(&packed, message + HEAD + SCALE, bits);
  for (size_t i = 0; i < 8; i++) want |= codes[i] << bits * i;
  cr_assert_eq(packed, want, "%g: %llx, not %llx", (double)most, (unsigned long long)packed,
               (unsigned long long)want);
}

static const float sizes[] = {1.0F, 49.0F, 0.3F, 1e-30F, 3e37F};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* With 4 bits T is 7, and values are -49, -36, -25, -16, -9, -4, -1, 0, 1, 4, ..., 49 of 49, with
 * the codes 0 to 14; in the middle between 1 and 4 is 2.5, between 0 and 1 it is 0.5, and between
 * 36 and 49 it is 42.5. */
Test(companded, four_bits_by_hand) {
  static const float some[8] = {1.0F,       2.4F / 49, 2.6F / 49, -2.4F / 49,
                                -2.6F / 49, 0.4F / 49, 0.6F / 49, 0.0F};
  static const uint64_t codes[8] = {14, 8, 9, 6, 5, 7, 8, 7};
  static const float others[8] = {-0.0F,     -1.0F,      42.4F / 49, -42.6F / 49,
                                  6.4F / 49, -6.6F / 49, 20.4F / 49, -0.4F / 49};
  static const uint64_t their_codes[8] = {7, 0, 13, 0, 9, 4, 11, 7};
  for (size_t s = 0; s < SIZES; s++) {
    check_codes(some, 4, codes, sizes[s]);
    check_codes(others, 4, their_codes, sizes[s]);
  }
}

/* With 3 bits T is 3: -9, -4, -1, 0, 1, 4 and 9 of 9 have the codes 0 to 6, with the middles 0.5,
 * 2.5 and 6.5. */
Test(companded, three_bits_by_hand) {
  static const float e[8] = {1.0F,      6.4F / 9, -6.6F / 9, 2.4F / 9,
                             -2.6F / 9, 0.4F / 9, -0.6F / 9, -0.0F};
  static const uint64_t codes[8] = {6, 5, 0, 4, 1, 3, 2, 3};
  for (size_t s = 0; s < SIZES; s++) check_codes(e, 3, codes, sizes[s]);
}

/* With 3.5 bits T is 5, as 11 values are fewer than 2^3.5 and 13 are more: -25, -16, -9, -4, -1, 0,
 * 1, 4, ..., 25 of 25 have the codes 0 to 10, of 4 bits, with the middles 0.5, 2.5, 6.5, 12.5 and
 * 20.5. */
Test(companded, three_and_a_half_bits_by_hand) {
  static const float e[8] = {1.0F,       20.4F / 25, -20.6F / 25, 12.4F / 25,
                             12.6F / 25, -6.6F / 25, 0.4F / 25,   -0.6F / 25};
  static const uint64_t codes[8] = {10, 9, 0, 8, 9, 2, 5, 4};
  for (size_t s = 0; s < SIZES; s++) check_codes(e, 3.5, codes, sizes[s]);
}

/* The widths' steps beside zero are 1 / T^2: of 9, 25, 49, ..., 8100 and 16129.  Where the largest
 * is just that the scale is 1, and values of the grid come back as they are. */
Test(companded, values_of_every_grid_stay) {
  static const int tops[] = {3, 5, 7, 10, 15, 22, 31, 44, 63, 90, 127};
  for (double bits = 3; bits <= 8; bits += 0.5) {
    const int top = tops[(int)(2 * bits) - 6];
    float e[255], got[255];
    uint8_t message[HEAD + 2 * (SCALE + BUCKET)];
    for (int j = -top; j <= top; j++) e[j + top] = (float)(j * abs(j));
    e[BUCKET] = (float)(top * top); /* the second bucket's largest, where there is one */
    const size_t n = 2 * (size_t)top + 1;
    const size_t bytes = encode(e, n, bits, message);
    cr_assert_eq(scale_at(message, HEAD), 1.0F);
    decode(message, bytes, n, got);
    for (size_t i = 0; i < n; i++)
      cr_assert_eq(got[i], e[i], "%g bits: %g became %g", bits, (double)e[i], (double)got[i]);
  }
}

/* 16 of header, then of each bucket a scale and its codes, the last eight filled up. */
Test(companded, bytes_by_hand) {
  static const struct {
    size_t n;
    double bits;
    size_t bytes;
  } rows[] = {{0, 4, 16},
              {1, 3, 16 + 4 + 3},
              {8, 3, 16 + 4 + 3},
              {9, 3, 16 + 4 + 6},
              {128, 3, 16 + 4 + 48},
              {128, 3.5, 16 + 4 + 64}, /* codes of 4 bits */
              {128, 4, 16 + 4 + 64},
              {128, 8, 16 + 4 + 128},
              {129, 4, 16 + 68 + 4 + 4},
              {205, 5, 16 + 84 + 4 + 50}, /* 77 are 9 eights and 5 */
              {1024, 7, 16 + 8 * (4 + 112)}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    float e[1024] = {0};
    uint8_t message[2048];
    const weir_layout layout = {1, (const size_t[]){0, rows[i].n}};
    cr_assert_eq(row()->bound(&layout, rows[i].bits / 32.0), rows[i].bytes);
    cr_assert_eq(encode(e, rows[i].n, rows[i].bits, message), rows[i].bytes);
    cr_assert_eq(message[12], 22); /* the codec's number on the wire */
    cr_assert_eq(message[13], ceil(rows[i].bits));
    cr_assert_eq(message[14], rows[i].bits != ceil(rows[i].bits));
  }
}

/* Every bucket has a scale of its own: what the last one holds is not lost beside the first's. */
Test(companded, a_bucket_that_is_cut_off) {
  enum { N = BUCKET + 77 };
  float e[N], got[N];
  uint8_t message[256];
  for (size_t i = 0; i < N; i++) e[i] = i < BUCKET ? 1e6F : i % 2 ? 0.049F : -0.001F;
  const size_t bytes = encode(e, N, 4, message);
  /* 1e6 / 49 = 20408.16 lies between 159 and 160 times 128, and 0.001 between 131 and 132 times
   * 2^-17. */
  cr_assert_eq(scale_at(message, HEAD), 159 * 128);
  cr_assert_eq(scale_at(message, HEAD + SCALE + BUCKET / 2), 131 * 0x1p-17F);
  decode(message, bytes, N, got);
  for (size_t i = 0; i < N; i++) {
    const double want = i < BUCKET ? 49 * 159 * 128 : (i % 2 ? 49 : -1) * 131 * 0x1p-17;
    cr_assert_float_eq(got[i], want, 1e-6 * fabs(want), "%zu: %g", i, (double)got[i]);
  }
}

/* What is a bfloat16 in a float's place can travel in half of the bytes. */
Test(companded, scales_are_the_nearest_bfloat16s) {
  weir_rng rng = weir_rng_of(74);
  for (int round = 0; round < 2000; round++) {
    const double bits = 3 + round % 11 * 0.5;
    const float most =
        (float)ldexp(1 + weir_rng_uniform(&rng), (int)weir_rng_below(&rng, 200) - 100);
    uint8_t message[64];
    (void)encode((const float[8]){-most, most / 3}, 8, bits, message);
    cr_assert_eq(message[HEAD] | message[HEAD + 1], 0);
    cr_assert_eq((double)scale_at(message, HEAD), scale_of(bits, (double)most), "%a", (double)most);
  }
}

/* --- errors ----------------------------------------------------------------------------------- */

/* Values of a bucket of this scale, in double; j from -T to T. */
static double value_of(int j, double scale) { return j * fabs((double)j) * scale; }

/* Half of the step between the two values beside x, and a few roundings of floats.  Beyond the last
 * value, which is by a 256th at the most, the last step counts. */
static double half_a_step(double x, double bits, double scale) {
  const int top = top_of(bits);
  int above = -top + 1;
  while (above < top && value_of(above, scale) < x) above++;
  return (value_of(above, scale) - value_of(above - 1, scale)) / 2 + 1e-6 * fabs(x);
}

static void check_errors(const float *e, size_t n, double bits) {
  float got[BUCKET];
  uint8_t message[HEAD + SCALE + BUCKET];
  double most = 0;
  for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)e[i]));
  decode(message, encode(e, n, bits, message), n, got);
  for (size_t i = 0; i < n; i++) {
    const double off = fabs((double)got[i] - (double)e[i]);
    cr_assert(off <= half_a_step((double)e[i], bits, scale_of(bits, most)),
              "%g bits: %g became %g of %g", bits, (double)e[i], (double)got[i], most);
    if (fabs((double)e[i]) == most) /* the scale is rounded, to 8 bits, and the product */
      cr_assert(off <= (1.0 / 256 + (double)FLT_EPSILON) * most, "%g bits: %a became %a", bits,
                (double)e[i], (double)got[i]);
  }
}

/* Elements of all sizes and shapes, from the ends of what floats are. */
Test(companded, none_errs_by_more_than_half_a_step) {
  static const int shapes[] = {0, 1, 2, 3, 4, 7, 8, 9, 10, 11};
  weir_rng rng = weir_rng_of(71);
  float e[BUCKET];
  for (int round = 0; round < 1500; round++) {
    const double bits = 3 + round % 11 * 0.5;
    const size_t n = round % 5 == 0 ? 1 + weir_rng_below(&rng, BUCKET) : BUCKET;
    const float size = ldexpf(1, (int)weir_rng_below(&rng, 200) - 95);
    fill_shape(&rng, shapes[round % 10], e, n);
    for (size_t i = 0; i < n; i++) e[i] *= size;
    check_errors(e, n, bits);
  }
}

/* Near the middles of neighbours, where one rounding decides. */
Test(companded, both_neighbours_are_near_in_the_middle) {
  for (double bits = 3; bits <= 8; bits += 0.5) {
    const int top = top_of(bits);
    for (int j = 0; j < top; j++)
      for (size_t s = 0; s < SIZES; s++) {
        const double middle = (double)(j * j + j) + 0.5;
        float e[6] = {sizes[s], (float)(middle * scale_of(bits, (double)sizes[s]))};
        e[2] = nextafterf(e[1], INFINITY);
        e[3] = nextafterf(e[1], 0);
        e[4] = -e[2];
        e[5] = -e[3];
        check_errors(e, 6, bits);
      }
  }
}

/* --- the ends of what floats are -------------------------------------------------------------- */

/* Beyond a quarter of the largest float elements go to the end of the grid; nothing overflows. */
Test(companded, the_largest_floats_stay_finite) {
  const float e[8] = {FLT_MAX, -FLT_MAX, FLT_MAX / 2, FLT_MAX / 4, -FLT_MAX / 4, 0.0F, 1.0F, -0.0F};
  const float end = FLT_MAX / 4;
  for (double bits = 3; bits <= 8; bits += 0.5) {
    uint8_t message[64];
    float got[8];
    double peak;
    const weir_layout layout = {1, (const size_t[]){0, 8}};
    const size_t bytes = encode(e, 8, bits, message);
    decode(message, bytes, 8, got);
    for (size_t i = 0; i < 5; i++)
      cr_assert_float_eq((double)got[i],
                         copysign(squares(bits) * scale_of(bits, (double)end), (double)e[i]),
                         FLT_EPSILON * end, "%g bits: %a", bits, (double)got[i]);
    for (size_t i = 5; i < 8; i++) cr_assert_eq(got[i], 0.0F);
    for (size_t i = 0; i < 8; i++) cr_assert(isfinite(e[i] - got[i]));
    cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_OK);
    cr_assert(peak >= (double)got[0] && peak <= 1.004 * (double)end, "%g", peak);
  }
}

static void check_zeros(const float *e, size_t n, double bits) {
  uint8_t message[HEAD + SCALE + BUCKET];
  float got[BUCKET];
  const size_t bytes = encode(e, n, bits, message);
  cr_assert_eq(scale_at(message, HEAD), 0.0F);
  decode(message, bytes, n, got);
  for (size_t i = 0; i < n; i++) cr_assert_eq(got[i], 0.0F, "%g bits: %g", bits, (double)got[i]);
}

Test(companded, next_to_nothing_is_nothing) {
  for (double bits = 3; bits <= 8; bits += 0.5) {
    float e[BUCKET] = {0};
    check_zeros(e, BUCKET, bits);
    for (size_t i = 0; i < BUCKET; i++) e[i] = i % 2 ? -0.0F : 0.0F;
    check_zeros(e, BUCKET, bits);
    e[5] = 1e-45F;
    check_zeros(e, BUCKET, bits);
    e[6] = -FLT_MIN;
    check_zeros(e, BUCKET, bits);
    e[7] = nextafterf(FLT_MIN * 256, 0);
    check_zeros(e, BUCKET, bits);
  }
}

/* From 2^-126 up: a bucket is nothing, with what it lacks left, or its largest comes back and its
 * zeros stay.  With 8 bits the scale of 2^-118 would be 2^-132, and its inverse infinite. */
Test(companded, small_buckets_are_whole_or_nothing) {
  for (double bits = 3; bits <= 8; bits += 0.5)
    for (int exponent = -126; exponent < -100; exponent++) {
      const float most = ldexpf(1.7F, exponent);
      const float e[8] = {most, -most, 0.0F, -0.0F, most / 2, 1e-45F, -FLT_MIN / 2, most / 9};
      uint8_t message[64];
      float got[8];
      decode(message, encode(e, 8, bits, message), 8, got);
      cr_assert(got[2] == 0.0F && got[3] == 0.0F, "%g bits, 2^%d: %g", bits, exponent,
                (double)got[2]);
      if (most < FLT_MIN * 256 || (double)most < (double)FLT_MIN * squares(bits))
        check_zeros(e, 8, bits);
      else
        check_errors(e, 8, bits);
    }
}

/* --- every version of the passes -------------------------------------------------------------- */

/* Any number of elements, middles of neighbours among them, what is not finite, and every code
 * that a byte can hold. */
Test(companded, all_versions_are_scalar_bit_for_bit) {
  static const float edge[] = {0.0F,     -0.0F,   0.5F,    2.5F,      42.5F, 49.0F,  -49.0F,
                               INFINITY, FLT_MAX, FLT_MIN, -INFINITY, NAN,   1e-45F, 0.25F};
  weir_rng rng = weir_rng_of(72);
  for (int v = 1; v < VERSIONS; v++) {
    const weir_cpu_ops *const it = version(v);
    for (size_t n = 0; n <= 2 * BUCKET && it != NULL; n++) {
      const int32_t top = top_of(3 + n % 11 * 0.5);
      const float inverse = n % 3 == 0 ? 1.0F : n % 3 == 1 ? 0.3F : 1e30F;
      float x[2 * BUCKET], a[2 * BUCKET], b[2 * BUCKET];
      uint8_t code[2 * BUCKET], other[2 * BUCKET];
      for (size_t i = 0; i < n; i++)
        x[i] = i % 3 == 0 ? edge[weir_rng_below(&rng, sizeof edge / sizeof *edge)]
                          : 20 * (float)weir_rng_normal(&rng);
      weir_cpu_scalar.round_to_squares(x, n, inverse, top, code);
      it->round_to_squares(x, n, inverse, top, other);
      cr_assert_eq(memcmp(code, other, n), 0, "%s: codes of %zu", it->name, n);
      for (size_t i = 0; i < n; i++) {
        cr_assert(code[i] <= 2 * top);
        code[i] = (uint8_t)(i + n);
      }
      weir_cpu_scalar.read_squares(code, n, inverse, top, a);
      it->read_squares(code, n, inverse, top, b);
      cr_assert_eq(memcmp(a, b, n * sizeof *a), 0, "%s: values of %zu", it->name, n);
      weir_cpu_scalar.read_squares_add(code, n, 0.7F, top, a);
      it->read_squares_add(code, n, 0.7F, top, b);
      cr_assert_eq(memcmp(a, b, n * sizeof *a), 0, "%s: sums of %zu", it->name, n);
    }
  }
}

/* --- with error feedback ---------------------------------------------------------------------- */

/* What is lost is at most c = (2 T - 1) / (2 T^2), and a 256th of that for the scale's rounding, of
 * a bucket's largest, which is at most G, the largest gradient, and what was left: R <= c (G + R),
 * so R <= c G / (1 - c).  What was sent and what is left are the gradients, but for the roundings
 * of 1000 sums. */
Test(companded, residuals_stay_within_half_a_step) {
  enum { N = 3 * BUCKET + 5, STEPS = 1000 };
  static float e[N], g[N], r[N], got[N];
  static double sent[N], given[N];
  uint8_t message[HEAD + 4 * (SCALE + BUCKET)];
  weir_rng rng = weir_rng_of(73);
  for (double bits = 3; bits <= 8; bits += 0.5) {
    const double top = sqrt(squares(bits)), c = (2 * top - 1) / (2 * top * top) * 257 / 256;
    memset(r, 0, sizeof r);
    memset(sent, 0, sizeof sent);
    memset(given, 0, sizeof given);
    for (int step = 0; step < STEPS; step++) {
      weir_moments moments = {0};
      for (size_t i = 0; i < N; i++) {
        const double u = 2 * weir_rng_uniform(&rng) - 1;
        g[i] = (float)(i % 2 ? u : u * u * u * 0.1 + 0.05); /* half of them drift */
      }
      weir_ef_accumulate(g, r, e, N, &moments);
      decode(message, encode(e, N, bits, message), N, got);
      for (size_t i = 0; i < N; i++) {
        r[i] = e[i] - got[i];
        cr_assert(fabs((double)r[i]) <= 1.0001 * c / (1 - c), "%g bits, step %d: %g left", bits,
                  step, (double)r[i]);
        sent[i] += (double)got[i];
        given[i] += (double)g[i];
      }
    }
    for (size_t i = 0; i < N; i++)
      cr_assert_float_eq(sent[i] + (double)r[i], given[i], STEPS * FLT_EPSILON, "%g bits: %g", bits,
                         sent[i] + (double)r[i] - given[i]);
  }
}

/* --- messages that are not as they should be -------------------------------------------------- */

/* The encoder writes no code above 2 T; from the wire it counts as that, the largest value. */
Test(companded, codes_beyond_the_grid_are_its_end) {
  for (double bits = 3; bits <= 8; bits += 0.5) {
    const weir_layout layout = {1, (const size_t[]){0, 8}};
    const float e[8] = {-1.0F, 1.0F};
    uint8_t message[64];
    float got[8];
    double peak;
    const size_t bytes = encode(e, 8, bits, message);
    const unsigned all = (1U << (unsigned)ceil(bits)) - 1;          /* above 2 T: that is even */
    message[HEAD + SCALE] = (uint8_t)(message[HEAD + SCALE] | all); /* -1 was code 0 */
    decode(message, bytes, 8, got);
    cr_assert_eq(got[0], got[1]);
    const double end = squares(bits) * scale_of(bits, 1.0);
    cr_assert_float_eq(got[0], end, FLT_EPSILON, "%a", (double)got[0]);
    cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_OK);
    cr_assert_float_eq(peak, end, 1e-6);
  }
}

static void refuse(const uint8_t *message, size_t bytes, const char *what) {
  const weir_layout layout = {1, (const size_t[]){0, 8}};
  float got[8];
  double peak;
  cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_E_PROTOCOL, "%s", what);
  cr_assert_eq(row()->decode(NULL, message, bytes, &layout, got, WEIR_DECODE_STORE),
               WEIR_E_PROTOCOL, "%s", what);
}

Test(companded, foreign_heads_and_lengths) {
  static const struct {
    size_t at;
    uint8_t to;
    const char *what;
  } wrong[] = {{0, 0, "magic"},   {4, 9, "elements"}, {8, 64, "bucket"}, {9, 1, "bucket"},
               {12, 21, "codec"}, {13, 2, "bits"},    {13, 9, "bits"},   {13, 0, "bits"},
               {13, 5, "length"}, {14, 2, "mode"},    {15, 1, "zero"}};
  const float e[8] = {2.0F, 1.0F};
  uint8_t message[64], bad[64];
  const size_t bytes = encode(e, 8, 4, message);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    memcpy(bad, message, bytes);
    bad[wrong[i].at] = wrong[i].to;
    refuse(bad, bytes, wrong[i].what);
  }
  /* A half bit fewer than 4 there is; than 3 there is none. */
  message[14] = 1;
  const weir_layout layout = {1, (const size_t[]){0, 8}};
  double peak;
  cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_OK);
  const size_t fewer = encode(e, 8, 3, bad);
  bad[14] = 1;
  refuse(bad, fewer, "mode");
  message[14] = 0;
  refuse(message, bytes - 1, "shorter");
  refuse(message, bytes + 1, "longer");
  refuse(message, 15, "half a header");
}

/* A scale times T^2 must be a float; of 0 and -0 it is 0. */
Test(companded, foreign_scales) {
  const weir_layout layout = {1, (const size_t[]){0, 8}};
  const float e[8] = {2.0F, -1.0F};
  for (double bits = 3; bits <= 8; bits += 0.5) {
    const float most = (float)((double)FLT_MAX / squares(bits));
    const float bad[] = {-1.0F, -FLT_MIN, NAN, -NAN, INFINITY, -INFINITY, FLT_MAX, 1.00001F * most};
    const float good[] = {0.0F, -0.0F, FLT_MIN, 1e-45F, 0.99999F * most};
    uint8_t message[64];
    float got[8];
    double peak;
    const size_t bytes = encode(e, 8, bits, message);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
      memcpy(message + HEAD, &bad[i], sizeof bad[i]);
      refuse(message, bytes, "a scale");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
      memcpy(message + HEAD, &good[i], sizeof good[i]);
      cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_OK, "%g", (double)good[i]);
      cr_assert_float_eq(peak, (double)good[i] * squares(bits), 1e-6 * peak);
      decode(message, bytes, 8, got);
      for (size_t k = 0; k < 8; k++) cr_assert(fabs((double)got[k]) <= peak);
    }
  }
}
