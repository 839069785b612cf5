/* Encoders, all of them alike: the same bytes from every version, exact lengths, bounded errors,
 * and decoders that take any bytes. */
#include <criterion/criterion.h>

#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"
#include "kernels_data.h"

enum { LONGEST = 100003, TENSORS = 5 };
static const size_t sizes[] = {0, 1, 2, 127, 128, 129, 1000, LONGEST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const struct {
  uint32_t codec;
  double cr;
} arms[] = {{WEIR_CODEC_FP16, 0.5},
            {WEIR_CODEC_QSGD, 2.0 / 32},
            {WEIR_CODEC_QSGD, 3.0 / 32},
            {WEIR_CODEC_QSGD, 4.0 / 32},
            {WEIR_CODEC_QSGD, 5.0 / 32},
            {WEIR_CODEC_QSGD, 7.0 / 32},
            {WEIR_CODEC_QSGD, 8.0 / 32},
            {WEIR_CODEC_TERNGRAD, 2.0 / 32},
            {WEIR_CODEC_ONEBIT, 1.0 / 32},
            {WEIR_CODEC_EFSIGNSGD, 1.0 / 32},
            {WEIR_CODEC_QSGD_NEAREST, 2.0 / 32},
            {WEIR_CODEC_QSGD_NEAREST, 4.0 / 32},
            {WEIR_CODEC_QSGD_L2, 4.0 / 32},
            {WEIR_CODEC_QSGD_L2, 8.0 / 32},
            {WEIR_CODEC_QSGD_L2_NEAREST, 4.0 / 32},
            {WEIR_CODEC_QSGD_L2_NEAREST, 8.0 / 32},
            {WEIR_CODEC_NONZERO, 2.0 / 32},
            {WEIR_CODEC_NONZERO, 3.0 / 32},
            {WEIR_CODEC_NONZERO, 5.0 / 32},
            {WEIR_CODEC_NONZERO, 8.0 / 32},
            {WEIR_CODEC_NONZERO_BF16, 16.0 / 32},
            {WEIR_CODEC_DITHERED, 4.0 / 32},
            {WEIR_CODEC_DITHERED, 7.0 / 32},
            {WEIR_CODEC_MINIFLOAT, 5.0 / 32},
            {WEIR_CODEC_MINIFLOAT, 8.0 / 32},
            {WEIR_CODEC_COMPANDED, 3.0 / 32},
            {WEIR_CODEC_COMPANDED, 4.0 / 32},
            {WEIR_CODEC_COMPANDED, 8.0 / 32}};
enum { ARMS = sizeof arms / sizeof arms[0] };

static void lay(size_t n, size_t offset[TENSORS + 1]) {
  const size_t ends[TENSORS + 1] = {0, n / 7, n / 7, n / 2, n / 2 + (n > 2), n};
  memcpy(offset, ends, sizeof ends);
}

/* Everything one case needs; the message lies at an odd address, with a mark behind it. */
typedef struct fixture {
  weir_codec_context *context;
  float *e, *got, *sum;
  uint8_t *message, *other;
} fixture;

static fixture create(void) {
  fixture f = {0};
  cr_assert_eq(weir_codec_context_create(&f.context), WEIR_OK);
  f.e = calloc(LONGEST + 1, sizeof(float));
  f.got = calloc(LONGEST + 1, sizeof(float));
  f.sum = calloc(LONGEST + 1, sizeof(float));
  f.message = malloc(4 * LONGEST + 100);
  f.other = malloc(4 * LONGEST + 100);
  cr_assert(f.e && f.got && f.sum && f.message && f.other);
  return f;
}

static void destroy(fixture *f) {
  weir_codec_context_free(f->context);
  free(f->e);
  free(f->got);
  free(f->sum);
  free(f->message);
  free(f->other);
}

static size_t encode(fixture *f, size_t arm, const weir_layout *layout, uint64_t seed,
                     uint8_t *out) {
  const weir_codec *codec = weir_codecs[arms[arm].codec];
  size_t bound = codec->bound(layout, arms[arm].cr);
  size_t bytes = 0;
  out[bound] = 0xa5;
  cr_assert_eq(codec->encode(f->context, f->e, layout, arms[arm].cr, seed, out, bound, &bytes),
               WEIR_OK, "%s", weir_last_error());
  cr_assert(codec->touched ? bytes <= bound : bytes == bound);
  cr_assert_eq(out[bound], 0xa5, "%s writes past its end", codec->name);
  return bytes;
}

static void check_decoded(fixture *f, size_t arm, const weir_layout *layout, size_t bytes,
                          const char *what) {
  const weir_codec *codec = weir_codecs[arms[arm].codec];
  size_t n = layout->offset[layout->tensors];
  for (size_t i = 0; i < n; i++) f->sum[i] = (float)i;
  f->got[n] = f->sum[n] = 77.0F;
  cr_assert_eq(codec->decode(f->context, f->message + 1, bytes, layout, f->got, false), WEIR_OK);
  cr_assert_eq(codec->decode(f->context, f->message + 1, bytes, layout, f->sum, true), WEIR_OK);
  cr_assert(f->got[n] == 77.0F && f->sum[n] == 77.0F);
  double error = 0.0;
  double whole = 0.0;
  for (size_t i = 0; i < n; i++) {
    cr_assert(isfinite(f->got[i]) && isfinite(f->e[i] - f->got[i]), "%s %s: element %zu", what,
              codec->name, i);
    cr_assert(f->sum[i] == (float)i + f->got[i]);
    error += pow((double)f->e[i] - (double)f->got[i], 2);
    whole += pow((double)f->e[i], 2);
  }
  /* A sign and a least-squares scale never lose more than there is. */
  if (arms[arm].codec == WEIR_CODEC_TERNGRAD || arms[arm].codec == WEIR_CODEC_ONEBIT ||
      arms[arm].codec == WEIR_CODEC_EFSIGNSGD) {
    cr_assert(error <= whole * 1.00001, "%s %s n=%zu: %g of %g", what, codec->name, n, error,
              whole);
  }
}

static void check_version(const weir_cpu_ops *cpu) {
  if (cpu == NULL) return;
  fixture f = create();
  weir_rng rng = weir_rng_of(11);
  for (size_t s = 0; s < SIZES; s++) {
    size_t offset[TENSORS + 1];
    lay(sizes[s], offset);
    weir_layout layout = {TENSORS, offset};
    for (int shape = 0; shape < SHAPES; shape++) {
      fill_shape(&rng, shape, f.e, sizes[s]);
      for (size_t arm = 0; arm < ARMS; arm++) {
        weir_cpu_force(&weir_cpu_scalar);
        size_t bytes = encode(&f, arm, &layout, 5 + s, f.other);
        weir_cpu_force(cpu);
        cr_assert_eq(encode(&f, arm, &layout, 5 + s, f.message + 1), bytes);
        cr_assert(memcmp(f.message + 1, f.other, bytes) == 0,
                  "%s %s n=%zu: other bytes than scalar", shape_name(shape),
                  weir_codecs[arms[arm].codec]->name, sizes[s]);
        check_decoded(&f, arm, &layout, bytes, shape_name(shape));
      }
    }
  }
  weir_cpu_force(NULL);
  destroy(&f);
}

Test(kernels_encode, scalar) { check_version(&weir_cpu_scalar); }

Test(kernels_encode, avx2_is_scalar_bit_for_bit) { check_version(weir_cpu_avx2()); }

Test(kernels_encode, avx512_is_scalar_bit_for_bit) { check_version(weir_cpu_avx512()); }

Test(kernels_encode, decoded_alike_by_all_versions) {
  fixture f = create();
  size_t offset[TENSORS + 1];
  lay(1000, offset);
  weir_layout layout = {TENSORS, offset};
  weir_rng rng = weir_rng_of(12);
  for (size_t arm = 0; arm < ARMS; arm++) {
    const weir_codec *codec = weir_codecs[arms[arm].codec];
    fill_shape(&rng, 1, f.e, 1000);
    size_t bytes = encode(&f, arm, &layout, 3, f.message);
    weir_cpu_force(&weir_cpu_scalar);
    cr_assert_eq(codec->decode(f.context, f.message, bytes, &layout, f.got, false), WEIR_OK);
    for (int v = 1; v < VERSIONS; v++) {
      if (version(v) == NULL) continue;
      weir_cpu_force(version(v));
      cr_assert_eq(codec->decode(f.context, f.message, bytes, &layout, f.sum, false), WEIR_OK);
      cr_assert(memcmp(f.got, f.sum, 1000 * sizeof(float)) == 0, "%s %s", version(v)->name,
                codec->name);
    }
  }
  weir_cpu_force(NULL);
  destroy(&f);
}

Test(kernels_encode, refuses_what_it_cannot_do) {
  fixture f = create();
  size_t offset[2] = {0, 300};
  weir_layout layout = {1, offset};
  size_t bytes = 9;
  for (size_t arm = 0; arm < ARMS; arm++) {
    const weir_codec *codec = weir_codecs[arms[arm].codec];
    size_t bound = codec->bound(&layout, arms[arm].cr);
    memset(f.message, 0xa5, bound);
    for (size_t room = 0; room < bound; room++) {
      cr_assert_eq(codec->encode(f.context, f.e, &layout, arms[arm].cr, 1, f.message, room, &bytes),
                   WEIR_E_CAPACITY);
      cr_assert_eq(bytes, 0);
    }
    for (size_t i = 0; i < bound; i++) cr_assert_eq(f.message[i], 0xa5, "%s", codec->name);
    static const double bad[] = {0.0, -1.0, 0.1, 1.0, 2.0, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
      cr_expect_eq(
          codec->encode(f.context, f.e, &layout, bad[i], 1, f.message, 4 * LONGEST, &bytes),
          WEIR_E_INVALID);
      cr_expect_eq(bytes, 0);
    }
    offset[1] = (size_t)UINT32_MAX + 1;
    cr_expect_eq(
        codec->encode(f.context, f.e, &layout, arms[arm].cr, 1, f.message, SIZE_MAX, &bytes),
        WEIR_E_UNSUPPORTED);
    offset[1] = 300;
  }
  destroy(&f);
}

/* --- decoders take any bytes ------------------------------------------------------------------ */

/* Decodes bytes that need not make sense: fine or refused, never out of bounds or not finite. */
static weir_status take(fixture *f, const weir_codec *codec, const uint8_t *bytes, size_t length,
                        const weir_layout *layout) {
  size_t n = layout->offset[layout->tensors];
  FREED uint8_t *copy = malloc(length > 0 ? length : 1); /* its end is the sanitizer's */
  memcpy(copy, bytes, length);
  for (size_t i = 0; i <= n; i++) f->got[i] = 3.0F;
  weir_status status = codec->decode(f->context, copy, length, layout, f->got, false);
  cr_assert(status == WEIR_OK || status == WEIR_E_PROTOCOL);
  cr_assert(f->got[n] == 3.0F);
  for (size_t i = 0; i < n; i++)
    cr_assert(status == WEIR_OK ? isfinite(f->got[i]) : f->got[i] == 3.0F, "%s", codec->name);
  return status;
}

Test(kernels_encode, truncated_and_lengthened) {
  fixture f = create();
  size_t offset[TENSORS + 1];
  lay(129, offset);
  weir_layout layout = {TENSORS, offset};
  weir_rng rng = weir_rng_of(13);
  fill_shape(&rng, 0, f.e, 129);
  for (size_t arm = 0; arm < ARMS; arm++) {
    const weir_codec *codec = weir_codecs[arms[arm].codec];
    size_t bytes = encode(&f, arm, &layout, 1, f.message);
    memset(f.message + bytes, 0, 8);
    for (size_t length = 0; length <= bytes + 8; length++) {
      cr_assert_eq(take(&f, codec, f.message, length, &layout),
                   length == bytes ? WEIR_OK : WEIR_E_PROTOCOL, "%s at %zu", codec->name, length);
    }
    size_t less[2] = {0, 128};
    cr_assert_eq(take(&f, codec, f.message, bytes, &(weir_layout){1, less}), WEIR_E_PROTOCOL);
  }
  destroy(&f);
}

Test(kernels_encode, mutated) {
  fixture f = create();
  size_t offset[TENSORS + 1];
  lay(300, offset);
  weir_layout layout = {TENSORS, offset};
  weir_rng rng = weir_rng_of(14);
  fill_shape(&rng, 1, f.e, 300);
  for (size_t arm = 0; arm < ARMS; arm++) {
    const weir_codec *codec = weir_codecs[arms[arm].codec];
    size_t bytes = encode(&f, arm, &layout, 1, f.message);
    for (int round = 0; round < 4000; round++) {
      memcpy(f.other, f.message, bytes);
      /* Headers and scales more often than the rest. */
      for (uint64_t hits = 1 + weir_rng_below(&rng, 4); hits > 0; hits--) {
        size_t reach = weir_rng_below(&rng, 2) ? 32 : bytes;
        f.other[weir_rng_below(&rng, reach)] = (uint8_t)weir_rng_next(&rng);
      }
      (void)take(&f, codec, f.other, bytes, &layout);
    }
  }
  destroy(&f);
}

Test(kernels_encode, scales_that_are_no_numbers_are_refused) {
  fixture f = create();
  const weir_layout layout = {1, (const size_t[]){0, 64}};
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < 64; i++) f.e[i] = (float)i - 31.0F;
  for (size_t arm = 1; arm < ARMS; arm++) {
    const weir_codec *codec = weir_codecs[arms[arm].codec];
    size_t bytes = encode(&f, arm, &layout, 1, f.message);
    cr_assert_eq(take(&f, codec, f.message, bytes, &layout), WEIR_OK);
    for (size_t i = 0; i < 3; i++) {
      memcpy(f.message + 16 + (codec->seeded ? 4 : 0), &bad[i], sizeof bad[i]);
      cr_assert_eq(take(&f, codec, f.message, bytes, &layout), WEIR_E_PROTOCOL, "%s", codec->name);
    }
  }
  destroy(&f);
}

/* --- with error feedback ---------------------------------------------------------------------- */

/* e = g + r, r = e - decode(encode(e)) for 300 steps: the residual settles instead of growing. */
Test(kernels_encode, residuals_stay_bounded) {
  enum { N = 4096, STEPS = 300 };
  fixture f = create();
  static const int shapes[] = {0, 1, 8, 9}; /* gaussian, laplace, mostly zero, few values */
  const weir_layout layout = {1, (const size_t[]){0, N}};
  weir_rng rng = weir_rng_of(15);
  static float g[N], r[N];
  for (size_t s = 0; s < 4; s++) {
    for (size_t arm = 0; arm < ARMS; arm++) {
      const weir_codec *codec = weir_codecs[arms[arm].codec];
      memset(r, 0, sizeof r);
      double gradient = 0.0;
      double residual = 0.0;
      for (uint64_t step = 0; step < STEPS; step++) {
        fill_shape(&rng, shapes[s], g, N);
        weir_moments moments = {0};
        weir_ef_accumulate(g, r, f.e, N, &moments);
        size_t bytes = encode(&f, arm, &layout, step, f.message);
        cr_assert_eq(codec->decode(f.context, f.message, bytes, &layout, f.got, false), WEIR_OK);
        for (size_t i = 0; i < N; i++) r[i] = f.e[i] - f.got[i];
        residual = weir_sum_square(r, N);
        gradient += weir_sum_square(g, N) / STEPS;
      }
      /* Signs of sparse gradients are coarse; nothing else needs so much.  The paper's scale of
       * terngrad comes to some 400, and buckets' L2 norms in few bits grow without bound. */
      cr_assert(residual < 100.0 * gradient, "%s cr %g %s: %g of %g", codec->name, arms[arm].cr,
                shape_name(shapes[s]), residual, gradient);
    }
  }
  destroy(&f);
}
