/* nonzero: what is sent, in how many bytes, and messages that are not as they should be. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "kernels/codec.h"
#include "kernels/half.h"

enum { MOST = 20000, HEAD = 16, COUNTS = 8 };

static const weir_codec *row(void) { return weir_codec_find(WEIR_CODEC_NONZERO); }
static const weir_codec *halves(void) { return weir_codec_find(WEIR_CODEC_NONZERO_BF16); }

static size_t encode(weir_codec_context *context, const float *e, const weir_layout *layout,
                     double bits, uint8_t *out) {
  const size_t bound = row()->bound(layout, bits / 32.0);
  size_t bytes = 0;
  cr_assert_eq(row()->encode(context, e, layout, bits / 32.0, 3, out, bound, &bytes), WEIR_OK, "%s",
               weir_last_error());
  cr_assert_leq(bytes, bound);
  return bytes;
}

/* Of 64 and 8 elements: 8..15 and 24..31 of the first, which a unit of 8 divides: gap 1, length 1,
 * twice; of the second all. */
static const size_t by_hand[] = {0, 64, 64, 72};
static const weir_layout hand = {3, by_hand};
#define LIST_BY_HAND "\2\3\x08\x08\0\1\3\0"

static void repeat(const float x[8], float *e) {
  memset(e, 0, by_hand[3] * sizeof *e);
  for (size_t i = 0; i < 8; i++) e[8 + i] = e[24 + i] = e[64 + i] = x[i];
}

/* 24 values in 5 bits, of which the largest is 15^2, so that the scale is 1: codes are 15 more than
 * the root of the nearest square, with the middles 0.5 and 90.5, in 5 bits each, the first
 * in the lowest. */
Test(nonzero, a_message_by_hand) {
  static const float x[] = {225.0F, -225.0F, 100.0F, -81.5F, 90.0F, 91.0F, 0.25F, -0.75F};
  static const float nearest[] = {225.0F, -225.0F, 100.0F, -81.0F, 81.0F, 100.0F, 0.0F, -1.0F};
#define CODES_30_0_25_6_24_25_15_14 "\x1e\x64\x83\xf3\x73"
  static const char wanted[] =
      "WRE1"
      "\x48\0\0\0"                    /* elements */
      "\x80\0\0\0"                    /* of a unit */
      "\x13\x05\0\0"                  /* nonzero, bits */
      "\x18\0\0\0"                    /* values */
      "\x08\0\0\0"                    /* bytes of the list */
      LIST_BY_HAND "\x00\x00\x80\x3f" /* the scale */
      CODES_30_0_25_6_24_25_15_14 CODES_30_0_25_6_24_25_15_14 CODES_30_0_25_6_24_25_15_14;
  float e[72], got[72], due[72];
  uint8_t message[256];
  double peak = 0;
  repeat(x, e);
  repeat(nearest, due);
  const size_t bytes = encode(NULL, e, &hand, 5, message);
  cr_assert_eq(bytes, sizeof wanted - 1);
  for (size_t i = 0; i < bytes; i++)
    cr_assert_eq(message[i], (uint8_t)wanted[i], "byte %zu: %x", i, message[i]);
  cr_assert_eq(row()->decode(NULL, message, bytes, &hand, got, WEIR_DECODE_STORE), WEIR_OK);
  for (size_t i = 0; i < 72; i++) cr_assert_eq(got[i], due[i], "%zu", i);
  cr_assert_eq(row()->decode(NULL, message, bytes, &hand, got, WEIR_DECODE_ADD), WEIR_OK);
  for (size_t i = 0; i < 72; i++) cr_assert_eq(got[i], 2 * due[i], "%zu", i);
  cr_assert_eq(row()->check(message, bytes, &hand, &peak), WEIR_OK);
  cr_assert_float_eq(peak, 225.0, 1e-3);
}

/* 2 bits have no squares but signs: four even values from the least to the largest, which two
 * floats tell, and of these the ends are what they were. */
Test(nonzero, two_bits_are_an_even_grid) {
  static const float x[] = {12, -3, 12, -3, 12, -3, 12, -3};
  static const char list[] = LIST_BY_HAND;
  const size_t list_bytes = sizeof list - 1;
  float e[72], got[72];
  uint8_t message[256];
  uint32_t count[2];
  repeat(x, e);
  const size_t bytes = encode(NULL, e, &hand, 2, message);
  memcpy(count, message + HEAD, sizeof count);
  cr_assert_eq(count[0], 24u);
  cr_assert_eq(count[1], list_bytes);
  cr_assert_eq(memcmp(message + HEAD + COUNTS, list, list_bytes), 0);
  cr_assert_eq(bytes, HEAD + COUNTS + list_bytes + 8 + 6);
  cr_assert_eq(row()->decode(NULL, message, bytes, &hand, got, WEIR_DECODE_STORE), WEIR_OK);
  for (size_t i = 0; i < 72; i++) cr_assert_float_eq(got[i], e[i], 1e-5, "%zu", i);
}

/* What is sent is companded's message of the same values, unit by unit, to the last bit. */
Test(nonzero, values_are_compandeds) {
  enum { VALUES = 1504 }; /* more than one piece, and part of a unit; in runs of 16 */
  static float e[2 * VALUES], dense[VALUES];
  static uint8_t message[4 * VALUES], other[4 * VALUES];
  const weir_codec *const companded = weir_codec_find(WEIR_CODEC_COMPANDED);
  const weir_layout layout = {1, (const size_t[]){0, sizeof e / sizeof *e}};
  const weir_layout alone = {1, (const size_t[]){0, VALUES}};
  weir_rng rng = weir_rng_of(6);
  for (size_t i = 0; i < VALUES; i++)
    e[i / 16 * 32 + i % 16] = dense[i] = (float)weir_rng_normal(&rng);
  for (double bits = 3; bits <= 8; bits += 0.5) {
    uint32_t count[2];
    size_t bytes = 0;
    const size_t whole = encode(NULL, e, &layout, bits, message);
    cr_assert_eq(
        companded->encode(NULL, dense, &alone, bits / 32.0, 1, other, sizeof other, &bytes),
        WEIR_OK);
    memcpy(count, message + HEAD, sizeof count);
    cr_assert_eq(count[0], (uint32_t)VALUES);
    cr_assert_eq(whole - count[1] - COUNTS, bytes, "%g bits", bits);
    cr_assert_eq(memcmp(message + HEAD + COUNTS + count[1], other + HEAD, bytes - HEAD), 0, "%g",
                 bits);
  }
}

/* Lengths from 8 on are told apart, and a list's numbers of 128 and more take two bytes. */
Test(nonzero, long_runs_and_gaps_by_hand) {
  const weir_layout layout = {1, (const size_t[]){0, 1000}};
  float e[1000] = {0};
  uint8_t message[2000];
  uint32_t count[2];
  for (size_t i = 301; i < 310; i++) e[i] = 1.0F;
  (void)encode(NULL, e, &layout, 8, message);
  /* Gap 301 * 8 + 7 = 2415 = 18 * 128 + 111; length 9 - 8. */
  static const uint8_t list[] = {1, 0, 111 + 128, 18, 1};
  memcpy(count, message + HEAD, sizeof count);
  cr_assert_eq(count[0], 9u);
  cr_assert_eq(count[1], sizeof list);
  cr_assert_eq(memcmp(message + HEAD + COUNTS, list, sizeof list), 0);
}

typedef struct kind {
  size_t run, period; /* elements that lie together of so many; 0: at random, a third */
} kind;

static void fill(weir_rng *rng, kind k, float *e, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const bool in = k.period > 0 ? i % k.period < k.run : weir_rng_below(rng, 3) == 0;
    e[i] = in ? (float)weir_rng_normal(rng) + 20.0F : i % 2 ? 0.0F : -0.0F;
  }
}

/* Of normal numbers, six about 20: of bfloat16 half a unit in the last place of 32; of 2 bits a
 * step of a grid over all values, which has zeros to reach where a tensor goes whole; of others
 * half the step between the squares of T and T - 1, T^2 being the largest. */
static float errs_by(unsigned bits, bool zeros) {
  const float top = (float)((1u << (bits - 1)) - 1);
  if (bits == 16) return 0.0626F;
  return bits == 2 ? (zeros ? 26.0F : 12.0F) / 3 : 26.0F * (2 * top - 1) / (2 * top * top);
}

/* Whatever lies where: zeros stay zeros, others err by no more than rounding does, and the message
 * is never longer than was said; a told gradient rules, of whatever type. */
Test(nonzero, what_is_touched_goes_and_in_no_more_than_was_said) {
  static float e[MOST], got[MOST], g[MOST];
  static uint16_t half[MOST];
  static uint8_t message[2 * MOST];
  static const kind kinds[] = {{0, 1},  {1, 1},  {1, 2},    {2, 3},    {1, 3},     {7, 8}, {8, 9},
                               {9, 20}, {1, 17}, {16, 320}, {1, 1000}, {640, 641}, {0, 0}};
  weir_codec_context *context;
  weir_rng rng = weir_rng_of(9);
  cr_assert_eq(weir_codec_context_create(&context), WEIR_OK);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int told = 0; told < 3; told++) /* by e, by fp32, by halves */
      for (unsigned bits = 2; bits <= 16; bits += bits < 8 ? 1 : 8) {
        const size_t n = 1 + weir_rng_below(&rng, MOST), third = weir_rng_below(&rng, n + 1);
        const size_t offset[] = {0, third, third, n};
        const weir_layout layout = {3, offset};
        fill(&rng, kinds[k], told ? g : e, n);
        for (size_t i = 0; i < n && told; i++) {
          half[i] = g[i] != 0.0F ? 0x8001 : 0x8000; /* the smallest of bf16; -0 */
          e[i] = (float)weir_rng_normal(&rng) + 20.0F;
        }
        const void *const at[] = {told == 2 ? (const void *)half : g, NULL,
                                  told == 2 ? (const void *)(half + third) : g + third};
        const uint8_t types[3] = {told == 2 ? WEIR_BF16 : WEIR_FP32, WEIR_FP32,
                                  told == 2 ? WEIR_BF16 : WEIR_FP32};
        weir_codec_context_touched(context, told ? at : NULL, types);
        const size_t bytes = encode(context, e, &layout, bits, message);
        cr_assert_eq(row()->decode(NULL, message, bytes, &layout, got, WEIR_DECODE_STORE), WEIR_OK);
        uint32_t count[2];
        size_t touched = 0;
        memcpy(count, message + HEAD, sizeof count);
        for (size_t i = 0; i < n; i++) touched += (told ? g[i] : e[i]) != 0.0F;
        cr_assert(count[0] == touched || count[0] >= third || count[0] >= n - third);
        for (size_t i = 0; i < n; i++)
          if ((told ? g[i] : e[i]) != 0.0F)
            cr_assert_lt(fabsf(got[i] - e[i]), errs_by(bits, count[0] > touched), "%u bits", bits);
          else if (count[0] == touched)
            cr_assert_eq(got[i], 0.0F, "element %zu: %g", i, (double)got[i]);
      }
  weir_codec_context_free(context);
}

/* Rows of 16 of which one in twenty is touched: their bits, a scale of 4 bytes for 128 of them, two
 * with 2 bits and none with 16, and one byte or two for where a row is. */
Test(nonzero, rows_take_what_the_model_says) {
  static float e[MOST];
  static uint8_t message[2 * MOST];
  const weir_layout layout = {1, (const size_t[]){0, MOST}};
  weir_rng rng = weir_rng_of(4);
  for (unsigned bits = 2; bits <= 16; bits += bits < 8 ? 1 : 8) {
    const double grid = bits == 16 ? 0 : (bits == 2 ? 8.0 : 4.0) / 128;
    size_t rows = 0;
    memset(e, 0, sizeof e);
    for (size_t r = 0; r < MOST / 16; r++) {
      if (weir_rng_below(&rng, 20) != 0) continue;
      rows++;
      for (size_t i = 0; i < 16; i++) e[16 * r + i] = 1.0F + (float)weir_rng_uniform(&rng);
    }
    const double bytes = (double)encode(NULL, e, &layout, bits, message);
    const double least = HEAD + COUNTS + 2 + 16.0 * (double)rows * (bits / 8.0 + grid);
    cr_assert(bytes >= least + (double)rows && bytes <= least + 2.0 * (double)rows + 8, "%g",
              bytes);
    const double share = 16.0 * (double)rows / MOST;
    const double told = weir_nonzero_share(share, share / 16, bits / 32.0) *
                        (double)row()->bound(&layout, bits / 32.0);
    cr_assert(told > 0.9 * bytes && told < 1.1 * bytes, "%g, foretold %g", bytes, told);
  }
  cr_assert_eq(weir_nonzero_share(1.0, 0.5, 0.125), 1.0);
  /* 1.5 bytes a run: 128 values take 4 + 80 bytes, 8 + 32 and 256. */
  cr_assert_float_eq(weir_nonzero_share(0.03, 0.001, 5.0 / 32), 0.03 + 0.192 / 84, 1e-12);
  cr_assert_float_eq(weir_nonzero_share(0.03, 0.001, 2.0 / 32), 0.03 + 0.192 / 40, 1e-12);
  cr_assert_float_eq(weir_nonzero_share(0.03, 0.001, 16.0 / 32), 0.03 + 0.192 / 256, 1e-12);
}

static void refused(const uint8_t *message, size_t bytes, const weir_layout *layout,
                    const char *what) {
  float to[64];
  double peak;
  for (size_t i = 0; i < 64; i++) to[i] = 5.0F;
  cr_assert_eq(row()->decode(NULL, message, bytes, layout, to, WEIR_DECODE_ADD), WEIR_E_PROTOCOL,
               "%s", what);
  cr_assert(strstr(weir_last_error(), what) != NULL, "%s: %s", what, weir_last_error());
  cr_assert_eq(row()->check(message, bytes, layout, &peak), WEIR_E_PROTOCOL, "%s", what);
  for (size_t i = 0; i < 64; i++) cr_assert_eq(to[i], 5.0F);
}

Test(nonzero, what_is_malformed_is_refused_and_nothing_written) {
  const size_t offset[] = {0, 40, 64};
  const weir_layout layout = {2, offset};
  float e[64] = {0};
  uint8_t good[128], bad[160];
  for (size_t i = 8; i < 16; i++) e[i] = (float)i;
  for (size_t i = 48; i < 52; i++) e[i] = (float)i;
  const size_t bytes = encode(NULL, e, &layout, 8, good), list = HEAD + COUNTS;
  /* {1, 3, gap 1 * 8 + 0, 1, 2, gap 2 * 8 + 0} */
  const struct {
    size_t at;
    uint8_t value;
    const char *what;
  } spoilt[] = {{0, 'X', "not such a message"},
                {4, 63, "wrong number of elements"},
                {8, 64, "unknown bits, bucket or mode"},
                {13, 9, "unknown bits, bucket or mode"},
                {13, 1, "unknown bits, bucket or mode"},
                {13, 15, "unknown bits, bucket or mode"},
                {13, 2, "wrong length"}, /* two scales and fewer codes */
                {13, 7, "wrong length"},
                {14, 2, "unknown bits, bucket or mode"},
                {HEAD, 7, "wrong length"},
                {HEAD, 65, "wrong length"},
                {HEAD + 4, 7, "wrong length"},
                {HEAD + 7, 255, "wrong length"},
                {list, 2, "runs beyond"},
                {list, 0, "runs beyond"},
                {list + 1, 2, "runs beyond"},  /* half as many elements */
                {list + 1, 32, "runs beyond"}, /* a unit that no gradient has */
                {list + 2, 5 << 3, "runs beyond"},
                {list + 2, (1 << 3) + 5, "runs beyond"},
                {list + 2, 128, "runs beyond"},
                {list + 6 + 3, 0xff, "a scale out of range"},
                {list + 6 + 3, 0xbf, "a scale out of range"},  /* less than 0 */
                {list + 6 + 3, 0x7e, "a scale out of range"}}; /* 127^2 times it are too much */
  for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
    memcpy(bad, good, bytes);
    bad[spoilt[i].at] = spoilt[i].value;
    if (spoilt[i].at == list + 9) bad[list + 8] = 0xff; /* which makes of 0xff NaN */
    refused(bad, bytes, &layout, spoilt[i].what);
  }
  /* 4.5 bits there are, 2.5 there are not. */
  const size_t fewer = encode(NULL, e, &layout, 3, bad);
  bad[14] = 1;
  refused(bad, fewer, &layout, "unknown bits, bucket or mode");
  for (size_t cut = 0; cut < bytes; cut++) refused(good, cut, &layout, "");
  memcpy(bad, good, bytes);
  bad[bytes] = 0;
  refused(bad, bytes + 1, &layout, "wrong length");
}

/* A number without end, and lengths that wrap round, in a list that is as long as it says. */
Test(nonzero, numbers_without_end_are_refused) {
  const weir_layout layout = {1, (const size_t[]){0, 64}};
  uint8_t message[HEAD + COUNTS + 16] = {
      'W', 'R', 'E', '1', 64, 0, 0, 0, 128, 0, 0, 0, WEIR_CODEC_NONZERO, 4};
  message[HEAD + 4] = 16;
  memset(message + HEAD + COUNTS, 255, 16);
  refused(message, sizeof message, &layout, "runs beyond");
  message[HEAD + COUNTS] = 1;
  message[HEAD + COUNTS + 1] = 31;
  refused(message, sizeof message, &layout, "runs beyond");
}

Test(nonzero, other_widths_and_short_rooms_are_refused) {
  const weir_layout layout = {1, (const size_t[]){0, 8}};
  const float e[8] = {1.0F};
  uint8_t message[64];
  size_t bytes;
  cr_assert_eq(row()->encode(NULL, e, &layout, 1 / 32.0, 1, message, 64, &bytes), WEIR_E_INVALID);
  cr_assert_eq(row()->encode(NULL, e, &layout, 9 / 32.0, 1, message, 64, &bytes), WEIR_E_INVALID);
  const size_t bound = row()->bound(&layout, 0.25);
  cr_assert_eq(row()->encode(NULL, e, &layout, 0.25, 1, message, bound - 1, &bytes),
               WEIR_E_CAPACITY);
}

/* One run of three: the upper halves of their floats, and those of an infinity and of a NaN. */
Test(nonzero, halves_by_hand_and_spoilt) {
  const weir_layout layout = {1, (const size_t[]){0, 64}};
  float e[64] = {0}, got[64];
  uint8_t message[256];
  double peak = 0;
  size_t bytes = 0;
  e[5] = 1.0F, e[6] = -2.0F, e[7] = 1.00390625F; /* between 0x3f80 and 0x3f81: to the even one */
  cr_assert_eq(halves()->encode(NULL, e, &layout, 0.5, 1, message, sizeof message, &bytes),
               WEIR_OK);
  static const uint8_t body[] = {1, 0, 5 << 3 | 2, 0x80, 0x3f, 0x00, 0xc0, 0x80, 0x3f};
  cr_assert_eq(bytes, HEAD + COUNTS + sizeof body);
  cr_assert_eq(memcmp(message + HEAD + COUNTS, body, sizeof body), 0);
  cr_assert_eq(halves()->check(message, bytes, &layout, &peak), WEIR_OK);
  cr_assert_eq(peak, 2.0);
  cr_assert_eq(halves()->decode(NULL, message, bytes, &layout, got, WEIR_DECODE_STORE), WEIR_OK);
  for (size_t i = 0; i < 64; i++)
    cr_assert_eq(got[i], i == 5 || i == 7 ? 1.0F : i == 6 ? -2.0F : 0.0F);
  message[bytes - 1] = 0x7f, message[bytes - 2] = 0x80;
  refused(message, bytes, &layout, "a scale out of range");
  message[bytes - 2] = 0xc0;
  refused(message, bytes, &layout, "a scale out of range");
}
