/* The edges of every codec's contract (kernels/codec.h), over the whole table: what is not finite,
 * nothing at all, one element, all of them, no more than the limit, any alignment. */
#include <criterion/criterion.h>

#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"
#include "kernels_data.h"

enum { LONG = 40000, SPARE = 16 }; /* long enough for every sampling path */

static float values[LONG + SPARE], back[LONG + SPARE], sum[LONG + SPARE];
static uint32_t indices[LONG + SPARE], others[LONG + SPARE];
static uint8_t message[4 * LONG + 64], again[4 * LONG + 64];

/* A ratio that the codec takes. */
static double ratio_of(const weir_codec *codec) {
  switch (codec->id) {
    case WEIR_CODEC_FP16: return 0.5;
    case WEIR_CODEC_QSGD:
    case WEIR_CODEC_QSGD_NEAREST:
    case WEIR_CODEC_QSGD_L2:
    case WEIR_CODEC_QSGD_L2_NEAREST:
    case WEIR_CODEC_NONZERO:
    case WEIR_CODEC_COMPANDED:
    case WEIR_CODEC_WHITENED:
    case WEIR_CODEC_DITHERED: return 4.0 / 32;
    case WEIR_CODEC_MINIFLOAT: return 6.0 / 32;
    case WEIR_CODEC_NONZERO_BF16: return 16.0 / 32;
    case WEIR_CODEC_TERNGRAD: return 2.0 / 32;
    case WEIR_CODEC_ONEBIT:
    case WEIR_CODEC_EFSIGNSGD: return 1.0 / 32;
    default: return 0.1;
  }
}

/* Selects or draws; what holds of every list is checked here. */
static size_t choose(const weir_codec *codec, weir_codec_context *c, const float *e,
                     const weir_layout *layout, double cr, uint32_t *index) {
  const size_t n = layout->offset[layout->tensors], kept = codec->kept(layout, cr);
  size_t k = SIZE_MAX;
  index[kept] = 0xdeadbeef;
  const weir_status status = codec->draw != NULL ? codec->draw(c, layout, cr, 7, index, kept, &k)
                                                 : codec->select(c, e, layout, cr, index, kept, &k);
  cr_assert_eq(status, WEIR_OK, "%s: %s", codec->name, weir_last_error());
  cr_assert_eq(k, kept, "%s keeps %zu of %zu, not %zu", codec->name, k, n, kept);
  cr_assert_eq(index[kept], 0xdeadbeef);
  for (size_t i = 0; i < k; i++)
    cr_assert(index[i] < n && (i == 0 || index[i] > index[i - 1]), "%s n=%zu", codec->name, n);
  return k;
}

static bool selects(const weir_codec *codec) {
  return codec->select != NULL || codec->draw != NULL;
}

/* --- what is not finite ---------------------------------------------------------------------- */

static void poison(float bad, int where) {
  weir_rng rng = weir_rng_of(3);
  fill_shape(&rng, 1, values, LONG);
  for (size_t i = 0; i < LONG; i++)
    if ((where == 0 && i == 0) || (where == 1 && i == LONG / 2) || (where == 2 && i == LONG - 1) ||
        (where == 3 && i % 3 == 0) || where == 4)
      values[i] = bad;
}

/* In bounds, exactly k, the same whatever the vector width; what decodes at all is finite. */
static void check_poisoned(const weir_codec *codec, weir_codec_context *c,
                           const weir_layout *layout) {
  const double cr = ratio_of(codec);
  for (int v = 0; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    weir_cpu_force(version(v));
    uint32_t *index = v == 0 ? indices : others;
    uint8_t *bytes = v == 0 ? message : again;
    if (selects(codec)) {
      const size_t k = choose(codec, c, values, layout, cr, index);
      cr_assert(memcmp(index, indices, k * sizeof *index) == 0, "%s, %s", codec->name,
                version(v)->name);
    }
    if (codec->encode == NULL) continue;
    size_t size = 0;
    const size_t bound = codec->bound(layout, cr);
    cr_assert_eq(codec->encode(c, values, layout, cr, 7, bytes, bound, &size), WEIR_OK);
    cr_assert(codec->touched ? size <= bound : size == bound);
    cr_assert(memcmp(bytes, message, size) == 0, "%s, %s", codec->name, version(v)->name);
    for (size_t i = 0; i < LONG; i++) back[i] = 3.0F;
    const weir_status status = codec->decode(c, bytes, size, layout, back, false);
    cr_assert(status == WEIR_OK || status == WEIR_E_PROTOCOL);
    for (size_t i = 0; i < LONG; i++)
      cr_assert(status == WEIR_OK ? isfinite(back[i]) : back[i] == 3.0F, "%s", codec->name);
  }
  weir_cpu_force(NULL);
}

Test(kernels_edges, what_is_not_finite_stays_in_bounds) {
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  const size_t offset[4] = {0, 5, 5, LONG};
  const weir_layout layout = {3, offset};
  SCOPED weir_codec_context *const c = open_context();
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++)
    for (size_t b = 0; b < 3; b++)
      for (int where = 0; where < 5; where++) {
        poison(bad[b], where);
        check_poisoned(weir_codecs[id], c, &layout);
      }
}

/* What a step relies on to find it: every kind is counted, wherever it comes from. */
Test(kernels_edges, what_is_not_finite_is_counted) {
  enum { N = 67 };
  float g[N], r[N], e[N];
  for (int v = 0; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    weir_cpu_force(version(v));
    for (size_t i = 0; i < N; i++) g[i] = r[i] = 1.0F;
    g[0] = NAN;
    r[1] = INFINITY;
    g[33] = -INFINITY;
    g[65] = 3e38F; /* overflows to Inf in the sum */
    r[65] = 3e38F;
    g[66] = INFINITY; /* Inf - Inf */
    r[66] = -INFINITY;
    weir_moments moments = {0};
    weir_ef_accumulate(g, r, e, N, &moments);
    cr_assert_eq(moments.nonfinite, 5);
    cr_assert(moments.sum == 2.0 * (N - 5) && moments.sum_square == 4.0 * (N - 5));
  }
  weir_cpu_force(NULL);
}

/* --- sizes ------------------------------------------------------------------------------------ */

Test(kernels_edges, nothing_and_one_element) {
  SCOPED weir_codec_context *const c = open_context();
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
    const weir_codec *codec = weir_codecs[id];
    const double cr = ratio_of(codec);
    for (size_t n = 0; n < 2; n++)
      for (size_t tensors = n; tensors < 4; tensors++) {
        const size_t offset[4] = {0, tensors == 1 ? n : 0, n, n};
        const weir_layout layout = {tensors, offset};
        values[0] = tensors % 2 ? 1.5F : -0.25F;
        if (selects(codec)) {
          cr_assert_eq(choose(codec, c, values, &layout, cr, indices), n);
          cr_assert(n == 0 || indices[0] == 0);
        }
        if (codec->encode == NULL) continue;
        size_t size = 0;
        const size_t bound = codec->bound(&layout, cr);
        cr_assert_eq(codec->encode(c, values, &layout, cr, 7, message, bound, &size), WEIR_OK);
        cr_assert(codec->touched ? size <= bound : size == bound);
        back[0] = back[1] = 9.0F;
        cr_assert_eq(codec->decode(c, message, size, &layout, back, false), WEIR_OK);
        /* Of a single element sign, mean magnitude and range are the element, but for the 8 bits
         * of mantissa that a short scale has. */
        const float off = n == 0 ? 0.0F : fabsf(back[0] / values[0] - 1.0F);
        cr_assert(back[n] == 9.0F && off <= (codec->short_scales ? 1.0F / 256 : 0.0F), "%s",
                  codec->name);
      }
  }
}

/* k is never more than n: the ratio may not ask for it, and nobody's list may claim it. */
Test(kernels_edges, more_than_all) {
  SCOPED weir_codec_context *const c = open_context();
  const size_t offset[3] = {0, 2, 7};
  const weir_layout layout = {2, offset};
  for (size_t i = 0; i < 7; i++) values[i] = (float)i - 3.0F;
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
    const weir_codec *codec = weir_codecs[id];
    size_t k = 1;
    if (!selects(codec)) continue;
    cr_assert_eq(choose(codec, c, values, &layout, 1.0, indices), 7);
    cr_assert_eq(choose(codec, c, values, &layout, 0x1.fffffffffffffp-1, indices), 7, "%s",
                 codec->name);
    const double more = 0x1.0000000000001p0;
    cr_assert_eq(codec->draw != NULL ? codec->draw(c, &layout, more, 7, indices, LONG, &k)
                                     : codec->select(c, values, &layout, more, indices, LONG, &k),
                 WEIR_E_INVALID, "%s", codec->name);
    cr_assert_eq(k, 0);
  }
  size_t size = 1, k = 1;
  for (uint32_t i = 0; i < 8; i++) indices[i] = i;
  for (weir_wire_format f = WEIR_WIRE_PAPER; f < WEIR_WIRE_LISTS; f++) {
    cr_assert_eq(weir_wire_encode(7, indices, values, 8, f, message, sizeof message, &size, NULL),
                 WEIR_E_INVALID);
    cr_assert_eq(weir_wire_encode(7, indices, values, 7, f, message, sizeof message, &size, NULL),
                 WEIR_OK);
    message[4] = 8; /* the header's k */
    cr_assert_eq(weir_wire_decode(message, size, 7, others, back, LONG, &k), WEIR_E_PROTOCOL);
    cr_assert_eq(k, 0);
  }
}

/* 2^32 - 1 elements: the lengths, worked out by hand; one more: refused before anything is read. */
Test(kernels_edges, the_limit_of_32_bit_indices) {
  static const struct {
    uint32_t codec;
    double cr;
    size_t bytes;
  } rows[] = {
      {WEIR_CODEC_FP16, 0.5, 16 + 2 * (size_t)4294967295},
      {WEIR_CODEC_QSGD, 4.0 / 32, 16 + (size_t)33554432 * (8 + 64)}, /* the last bucket has 127 */
      {WEIR_CODEC_QSGD_NEAREST, 2.0 / 32, 16 + (size_t)33554432 * (8 + 32)},
      {WEIR_CODEC_QSGD_L2, 5.0 / 32, 16 + (size_t)33554432 * (4 + 80)}, /* one scale */
      {WEIR_CODEC_COMPANDED, 3.0 / 32, 16 + (size_t)33554432 * (4 + 48)},
      {WEIR_CODEC_TERNGRAD, 2.0 / 32, 16 + 4 + (size_t)1073741824},
      {WEIR_CODEC_ONEBIT, 1.0 / 32, 16 + 8 + 536870912},
      {WEIR_CODEC_EFSIGNSGD, 1.0 / 32, 16 + 4 + 536870912},
  };
  SCOPED weir_codec_context *const c = open_context();
  size_t offset[2] = {0, UINT32_MAX};
  const weir_layout layout = {1, offset};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    cr_assert_eq(weir_codecs[rows[i].codec]->bound(&layout, rows[i].cr), rows[i].bytes, "%s",
                 weir_codecs[rows[i].codec]->name);
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
    const weir_codec *codec = weir_codecs[id];
    const double cr = ratio_of(codec);
    size_t k = 1;
    offset[1] = UINT32_MAX;
    if (selects(codec)) cr_assert_eq(codec->kept(&layout, 0.5), 2147483647);
    offset[1] = (size_t)UINT32_MAX + 1;
    weir_status status = WEIR_E_UNSUPPORTED;
    if (codec->draw != NULL) status = codec->draw(c, &layout, 1e-9, 7, indices, LONG, &k);
    if (codec->select != NULL) status = codec->select(c, NULL, &layout, 1e-9, indices, LONG, &k);
    if (codec->encode != NULL)
      status = codec->encode(c, NULL, &layout, cr, 7, message, SIZE_MAX, &k);
    cr_assert_eq(status, WEIR_E_UNSUPPORTED, "%s", codec->name);
    cr_assert(k == 0 || (!selects(codec) && codec->encode == NULL));
  }
}

/* --- alignment -------------------------------------------------------------------------------- */

/* Floats and indices at every multiple of 4 bytes, messages anywhere: the same result. */
static void check_place(const weir_codec *codec, weir_codec_context *c, size_t n, size_t shift) {
  const double cr = ratio_of(codec);
  const size_t offset[3] = {0, n / 3, n};
  const weir_layout layout = {2, offset};
  const float *e = values + shift;
  memmove(values + shift, values, n * sizeof *values);
  if (selects(codec)) {
    const size_t k = choose(codec, c, e, &layout, cr, others + shift);
    if (shift == 0) memcpy(indices, others, k * sizeof *others);
    cr_assert(memcmp(others + shift, indices, k * sizeof *indices) == 0, "%s", codec->name);
  }
  if (codec->encode != NULL) {
    size_t size = 0;
    uint8_t *at = again + shift;
    cr_assert_eq(codec->encode(c, e, &layout, cr, 7, at, codec->bound(&layout, cr), &size),
                 WEIR_OK);
    if (shift == 0) {
      memcpy(message, again, size);
      cr_assert_eq(codec->decode(c, message, size, &layout, back, false), WEIR_OK);
    }
    cr_assert(memcmp(at, message, size) == 0, "%s", codec->name);
    cr_assert_eq(codec->decode(c, at, size, &layout, sum + shift, false), WEIR_OK);
    cr_assert(memcmp(sum + shift, back, n * sizeof *back) == 0, "%s", codec->name);
  }
  memmove(values, values + shift, n * sizeof *values);
}

Test(kernels_edges, every_alignment) {
  static const size_t sizes[] = {1, 15, 16, 17, 1000, LONG};
  SCOPED weir_codec_context *const c = open_context();
  weir_rng rng = weir_rng_of(4);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
      fill_shape(&rng, 0, values, sizes[s]);
      for (size_t shift = 0; shift < SPARE; shift++)
        check_place(weir_codecs[id], c, sizes[s], shift);
    }
}
