/* Messages of the quantizers that the table of codecs has, device against scalar. */
#include <float.h>

#include "kernels/encoder.h"
#include "parity.h"

enum { N = 100003, TENSORS = 7 };
static const size_t sizes[] = {0, 1, 5, 1000, 8193, N};
#define SIZES (sizeof sizes / sizeof sizes[0])

typedef struct quantizer {
  uint32_t codec;
  double cr;
  unsigned bits;
  size_t scales; /* of a tensor; 0: tensors are not told apart */
} quantizer;
static const quantizer kinds[] = {
    {WEIR_CODEC_TERNGRAD, 2.0 / 32, 2, 1},  {WEIR_CODEC_ONEBIT, 1.0 / 32, 1, 2},
    {WEIR_CODEC_EFSIGNSGD, 1.0 / 32, 1, 1}, {WEIR_CODEC_MINIFLOAT, 5.0 / 32, 5, 0},
    {WEIR_CODEC_MINIFLOAT, 6.0 / 32, 6, 0}, {WEIR_CODEC_MINIFLOAT, 7.0 / 32, 7, 0},
    {WEIR_CODEC_MINIFLOAT, 8.0 / 32, 8, 0}, {WEIR_CODEC_COMPANDED, 3.0 / 32, 3, 0},
    {WEIR_CODEC_COMPANDED, 4.0 / 32, 4, 0}, {WEIR_CODEC_COMPANDED, 5.0 / 32, 5, 0},
    {WEIR_CODEC_COMPANDED, 6.0 / 32, 6, 0}, {WEIR_CODEC_COMPANDED, 7.0 / 32, 7, 0},
    {WEIR_CODEC_COMPANDED, 8.0 / 32, 8, 0}, {WEIR_CODEC_COMPANDED, 3.5 / 32, 4, 0},
    {WEIR_CODEC_COMPANDED, 7.5 / 32, 8, 0}, {WEIR_CODEC_FP16, 0.5, 16, 0}};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* Tensors of n elements in all: short, empty, unaligned, long. */
static weir_layout spread(size_t n, size_t offset[TENSORS + 1]) {
  const size_t at[TENSORS + 1] = {0, n > 0, n > 0, n / 9 + 1, n / 2, n / 2, n - n / 50, n};
  offset[0] = 0;
  for (size_t t = 1; t <= TENSORS; t++) {
    size_t wanted = at[t] < n ? at[t] : n;
    offset[t] = wanted > offset[t - 1] ? wanted : offset[t - 1];
  }
  return (weir_layout){TENSORS, offset};
}

/* Equal, or next to each other; any NaN is as good as any other. */
static bool close_scales(const uint8_t *got, const uint8_t *wanted) {
  float a;
  float b;
  memcpy(&a, got, sizeof a);
  memcpy(&b, wanted, sizeof b);
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || nextafterf(a, b) == b;
}

/* Byte for byte but for the scales. */
static void same_message(const quantizer *kind, const weir_layout *layout, const uint8_t *got,
                         const uint8_t *wanted, size_t bytes, const char *what) {
  size_t at = sizeof(weir_encoded);
  cr_assert(memcmp(got, wanted, at) == 0, "%s: another header", what);
  for (size_t t = 0; t < layout->tensors && kind->scales > 0; t++) {
    size_t count = layout->offset[t + 1] - layout->offset[t];
    for (size_t s = 0; s < kind->scales && count > 0; s++, at += sizeof(float))
      cr_assert(close_scales(got + at, wanted + at), "%s: scale %zu of tensor %zu", what, s, t);
    size_t codes = weir_codes_bytes(count, kind->bits);
    cr_assert(memcmp(got + at, wanted + at, codes) == 0, "%s: codes of tensor %zu", what, t);
    at += codes;
  }
  cr_assert(memcmp(got + at, wanted + at, bytes - at) == 0, "%s: values", what);
}

/* Decodes message on both sides, stored and then added; both may refuse it. */
static void check_decode(weir_cuda *cuda, const quantizer *kind, const weir_layout *layout,
                         const uint8_t *message, size_t bytes, size_t skew, const char *what) {
  size_t n = layout->offset[layout->tensors];
  FREED float *to = array(n, sizeof *to);
  FREED float *wanted = array(n, sizeof *wanted);
  LENT device_buffer dm = put(cuda, message, bytes, skew);
  LENT device_buffer dt = put(cuda, to, n * sizeof *to, 4);
  for (int add = 0; add < 2; add++) {
    must(weir_cuda_decode(cuda, kind->codec, dm.data, bytes, layout, kind->cr, dt.data, add));
    weir_status status = weir_cuda_wait(cuda);
    cr_assert_eq(weir_codecs[kind->codec]->decode(NULL, message, bytes, layout, wanted, add),
                 status, "%s: decoded with %d", what, (int)status);
    get(cuda, to, dt, n * sizeof *to);
    same_floats(to, wanted, n, what);
  }
}

static void check_kind(weir_cuda *cuda, const quantizer *kind, const weir_layout *layout,
                       const float *x, uint64_t seed, size_t skew, const char *what) {
  size_t n = layout->offset[layout->tensors];
  size_t bound = weir_codecs[kind->codec]->bound(layout, kind->cr);
  size_t bytes = 0;
  size_t wanted_bytes = 0;
  FREED uint8_t *got = array(bound, 1);
  FREED uint8_t *wanted = array(bound, 1);
  must(weir_cuda_reserve_tensors(cuda, layout));
  LENT device_buffer dx = put(cuda, x, n * sizeof *x, 4 * (skew % 4));
  LENT device_buffer dm = take(cuda, bound, skew);
  must(
      weir_cuda_encode(cuda, kind->codec, dx.data, layout, kind->cr, seed, dm.data, bound, &bytes));
  must(weir_codecs[kind->codec]->encode(NULL, x, layout, kind->cr, seed, wanted, bound,
                                        &wanted_bytes));
  cr_assert_eq(bytes, bound);
  cr_assert_eq(wanted_bytes, bound);
  get(cuda, got, dm, bytes);
  same_message(kind, layout, got, wanted, bytes, what);
  check_decode(cuda, kind, layout, wanted, bytes, skew, what);
  check_decode(cuda, kind, layout, got, bytes, skew + 1, what);
}

/* A clip may differ in its last bit, and codes with it; in none of these inputs does one. */
Test(parity_units, messages_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  weir_rng rng = weir_rng_of(31);
  FREED float *x = array(N, sizeof *x);
  size_t offset[TENSORS + 1];
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t n = sizes[s];
      size_t whole[2] = {0, n};
      weir_layout layout = spread(n, offset);
      if (shape % 3 == 2) layout = (weir_layout){1, whole};
      fill_shape(&rng, shape, x, n);
      for (size_t k = 0; k < KINDS; k++) {
        check_kind(cuda, &kinds[k], &layout, x, weir_rng_next(&rng), (s + k) % 5,
                   shape_name(shape));
      }
    }
  }
}

/* The contract gives no message for these, but the same one on both sides, and no decoded NaN. */
Test(parity_units, what_is_not_finite_is_treated_alike) {
  enum { LENGTH = 5000 };
  static const float wild[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX};
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  weir_rng rng = weir_rng_of(32);
  float x[LENGTH];
  size_t offset[TENSORS + 1];
  weir_layout layout = spread(LENGTH, offset);
  for (size_t w = 0; w < sizeof wild / sizeof wild[0]; w++) {
    for (size_t k = 0; k < KINDS; k++) {
      fill_shape(&rng, 0, x, LENGTH);
      x[LENGTH / 4] = wild[w];
      x[LENGTH - 1] = wild[w];
      if (kinds[k].codec == WEIR_CODEC_FP16 && !isfinite(wild[w])) {
        continue; /* the halves of what is not finite are not said */
      }
      check_kind(cuda, &kinds[k], &layout, x, w, k, "not finite");
    }
  }
}

/* Every half there is, and floats around each. */
Test(parity_units, halves_are_equal) {
  enum { HALVES = 0xf800, AROUND = 3 };
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  FREED float *x = array(HALVES * AROUND, sizeof *x);
  size_t count = 0;
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    if ((bits & 0x7c00U) == 0x7c00U) continue;
    float value = weir_fp16_value((uint16_t)bits);
    x[count++] = value;
    x[count++] = nextafterf(value * 1.0009765625F, 0.0F);
    x[count++] = value * 1.00048828125F; /* half way to the next, for normal halves */
  }
  cr_assert_eq(count, HALVES * AROUND);
  size_t whole[2] = {0, count};
  check_kind(cuda, &kinds[KINDS - 1], &(weir_layout){1, whole}, x, 0, 3, "halves");
}

static bool has_buckets(const quantizer *kind) {
  return kind->codec == WEIR_CODEC_MINIFLOAT || kind->codec == WEIR_CODEC_COMPANDED;
}

/* Buckets cut off anywhere, with zeros of both signs, the largest and the smallest values. */
Test(parity_units, buckets_are_equal) {
  enum { MOST = 4000 };
  static const size_t lengths[] = {1, 7, 8, 9, 127, 128, 129, 255, 2047, 2048, 2049, MOST};
  static const float edge[] = {0.0F, -0.0F, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45F};
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  weir_rng rng = weir_rng_of(33);
  float x[MOST];
  for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
    for (size_t k = 0; k < KINDS; k++) {
      const weir_layout layout = {1, (const size_t[]){0, lengths[l]}};
      if (!has_buckets(&kinds[k])) continue;
      fill_shape(&rng, (int)(l + k) % SHAPES, x, lengths[l]);
      check_kind(cuda, &kinds[k], &layout, x, l, k, "whole and cut off");
      for (size_t i = 0; i < lengths[l]; i += 1 + weir_rng_below(&rng, 9))
        x[i] = edge[weir_rng_below(&rng, l % 2 == 0 ? 2 : 6)];
      check_kind(cuda, &kinds[k], &layout, x, l, k, "edges");
    }
}

/* Buckets of next to nothing, of which some widths of companded make something and others do not;
 * and elements in the middle between two of its values, where one rounding decides. */
Test(parity_units, small_buckets_and_middles_are_equal) {
  enum { UNIT = 128, MOST = 40 * UNIT };
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  float x[MOST];
  for (size_t k = 0; k < KINDS; k++) {
    const weir_layout layout = {1, (const size_t[]){0, MOST}};
    const int top = (1 << (kinds[k].bits - 1)) - 1;
    if (!has_buckets(&kinds[k])) continue;
    for (int i = 0; i < MOST; i++) {
      const int j = i % UNIT % top;
      const float middle = ldexpf((float)(j * j + j) + 0.5F, i / UNIT - 128 - (int)kinds[k].bits);
      x[i] = i % UNIT == 0 ? ldexpf((float)(top * top), i / UNIT - 128 - (int)kinds[k].bits)
             : i % 3 == 0  ? middle
             : i % 3 == 1  ? -nextafterf(middle, 0)
                           : nextafterf(middle, INFINITY);
    }
    check_kind(cuda, &kinds[k], &layout, x, k, k, "small and middle");
  }
}

/* Every code there is, those beyond the largest value as well, in units of scales of all sizes. */
Test(parity_units, codes_are_read_alike) {
  enum { LENGTH = 256, UNIT = 128 };
  static const float scales[] = {1.0F, 0.0F, -0.0F, 0.3F, FLT_MAX, 2e34F, FLT_MIN, 1e-45F};
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  const weir_layout layout = {1, (const size_t[]){0, LENGTH}};
  const float zeros[LENGTH] = {0};
  for (size_t k = 0; k < KINDS; k++) {
    const size_t unit = sizeof(float) + weir_codes_bytes(UNIT, kinds[k].bits);
    if (!has_buckets(&kinds[k])) continue;
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
      uint8_t message[sizeof(weir_encoded) + LENGTH + 2 * sizeof(float)], code[UNIT];
      size_t bytes = 0;
      must(weir_codecs[kinds[k].codec]->encode(NULL, zeros, &layout, kinds[k].cr, 0, message,
                                               sizeof message, &bytes));
      for (size_t half = 0; half < 2; half++) {
        uint8_t *const to = message + sizeof(weir_encoded) + half * unit;
        for (size_t i = 0; i < UNIT; i++)
          code[i] = (uint8_t)((half * UNIT + i) & ((1U << kinds[k].bits) - 1));
        memcpy(to, &scales[s], sizeof scales[s]);
        weir_codes_write(code, UNIT, kinds[k].bits, to + sizeof(float));
      }
      check_decode(cuda, &kinds[k], &layout, message, bytes, s, "every code");
    }
  }
}

/* A message of the wrong kind, or with what would not stay finite. */
Test(parity_units, malformed_messages_change_nothing) {
  enum { LENGTH = 1000, HARMS = 16 + 3 };
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  float x[LENGTH];
  float got[LENGTH];
  size_t offset[TENSORS + 1];
  weir_layout layout = spread(LENGTH, offset);
  must(weir_cuda_reserve_tensors(cuda, &layout));
  for (size_t i = 0; i < LENGTH; i++) x[i] = (float)i;
  for (size_t k = 0; k < KINDS; k++) {
    uint32_t codec = kinds[k].codec;
    size_t bytes = weir_codecs[kinds[k].codec]->bound(&layout, kinds[k].cr);
    FREED uint8_t *message = array(bytes, 1);
    for (int harm = 0; harm < HARMS; harm++) {
      must(weir_codecs[kinds[k].codec]->encode(NULL, x, &layout, kinds[k].cr, 1, message, bytes,
                                               &bytes));
      if (harm < 16) {
        message[harm] ^= harm == 14 ? 4 : 1; /* terngrad knows modes 0 to 3 */
      } else if (codec != WEIR_CODEC_FP16) {
        memcpy(message + 16, &bad[harm - 16], sizeof(float));
      } else {
        memcpy(message + bytes - 2, &(uint16_t){0x7c00}, 2);
      }
      LENT device_buffer dm = put(cuda, message, bytes, 1);
      LENT device_buffer dt = put(cuda, x, sizeof x, 0);
      must(weir_cuda_decode(cuda, codec, dm.data, bytes, &layout, kinds[k].cr, dt.data, true));
      cr_assert_eq(weir_cuda_wait(cuda), WEIR_E_PROTOCOL, "kind %zu, harm %d", k, harm);
      get(cuda, got, dt, sizeof got);
      same_floats(got, x, LENGTH, "unchanged");
    }
  }
}

Test(parity_units, errors_are_told_at_once) {
  OPENED weir_cuda *cuda = open_cuda(0, 0);
  size_t offset[TENSORS + 1];
  size_t other[3] = {0, 500, 1000};
  size_t huge[2] = {0, (size_t)UINT32_MAX + 1};
  weir_layout layout = spread(1000, offset);
  must(weir_cuda_reserve_tensors(cuda, &layout));
  must(weir_cuda_reserve_tensors(cuda, &layout));
  cr_assert_eq(weir_cuda_reserve_tensors(cuda, &(weir_layout){1, huge}), WEIR_E_INVALID);
  for (size_t k = 0; k < KINDS; k++) {
    uint32_t codec = kinds[k].codec;
    double cr = kinds[k].cr;
    size_t bound = weir_codecs[kinds[k].codec]->bound(&layout, cr);
    size_t bytes = 1;
    cr_assert_eq(weir_cuda_encode(cuda, codec, NULL, &layout, cr, 0, NULL, bound - 1, &bytes),
                 WEIR_E_CAPACITY);
    cr_assert_eq(bytes, 0);
    cr_assert_eq(weir_cuda_encode(cuda, codec, NULL, &layout, 0.3, 0, NULL, bound, &bytes),
                 WEIR_E_INVALID);
    cr_assert_eq(weir_cuda_decode(cuda, codec, NULL, bound, &layout, 0.3, NULL, false),
                 WEIR_E_INVALID);
    cr_assert_eq(weir_cuda_decode(cuda, codec, NULL, bound + 1, &layout, cr, NULL, false),
                 WEIR_E_PROTOCOL);
    cr_assert_eq(weir_cuda_decode(cuda, codec, NULL, 0, &layout, cr, NULL, false), WEIR_E_PROTOCOL);
    weir_status wanted = kinds[k].scales > 0 ? WEIR_E_STATE : WEIR_E_UNSUPPORTED;
    weir_layout not_reserved =
        wanted == WEIR_E_STATE ? (weir_layout){2, other} : (weir_layout){1, huge};
    cr_assert_eq(weir_cuda_encode(cuda, codec, NULL, &not_reserved, cr, 0, NULL, SIZE_MAX, &bytes),
                 wanted);
    cr_assert_eq(weir_cuda_decode(cuda, codec, NULL, bound, &not_reserved, cr, NULL, false),
                 wanted);
  }
  must(weir_cuda_wait(cuda));
}
