/* minifloat: codes worked out by hand, errors in proportion to the elements, and messages that are
 * not as they should be. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"

enum { HEAD = 16, SCALE = 4, BUCKET = 128 };

static const weir_codec *row(void) { return weir_codec_find(WEIR_CODEC_MINIFLOAT); }

static size_t encode(const float *e, size_t n, unsigned bits, uint64_t seed, uint8_t *out) {
  const size_t offset[] = {0, n};
  const weir_layout layout = {1, offset};
  size_t bytes = 0;
  cr_assert_eq(row()->encode(NULL, e, &layout, bits / 32.0, seed, out,
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

/* In units of 8: 1, 1/2, -1/8, 5/8 = 2^-1 (1 + 2/8), 2^-14, 3 2^-17, -0 and 15/8 2^-1.  With 3 bits
 * of mantissa 1 has the code 15 * 8, 1/2 that less 8, and so on; values on the grid are not drawn.
 * A sign is 128. */
Test(minifloat, codes_by_hand) {
  const float e[8] = {8.0F, 4.0F, -1.0F, 5.0F, 8 * 0x1p-14F, 24 * 0x1p-17F, -0.0F, 7.5F};
  static const uint8_t codes[8] = {120, 112, 128 + 96, 114, 8, 3, 128, 119};
  uint8_t message[64];
  float scale, got[8];
  const size_t bytes = encode(e, 8, 8, 3, message);
  cr_assert_eq(bytes, HEAD + SCALE + 8);
  memcpy(&scale, message + HEAD, sizeof scale);
  cr_assert_eq(scale, 8.0F);
  for (size_t i = 0; i < 8; i++)
    cr_assert_eq(message[HEAD + SCALE + i], codes[i], "%zu: %u", i, message[HEAD + SCALE + i]);
  decode(message, bytes, 8, got);
  cr_assert_eq(memcmp(got, e, sizeof e), 0);
}

/* 5 bits are powers of two: 1, 1/2, 1/4, -1/8, 1/16, 2^-14, 0 and -1 have the codes 15, 14, 13, 12,
 * 11, 1, 0, 15. */
Test(minifloat, five_bits_by_hand) {
  const float e[8] = {1.0F, 0.5F, 0.25F, -0.125F, 0.0625F, 0x1p-14F, 0.0F, -1.0F};
  static const uint64_t codes[8] = {15, 14, 13, 16 + 12, 11, 1, 0, 16 + 15};
  uint64_t packed = 0, want = 0;
  uint8_t message[64];
  const size_t bytes = encode(e, 8, 5, 3, message);
  cr_assert_eq(bytes, HEAD + SCALE + 5);
  memcpy(&packed, message + HEAD + SCALE, 5);
  for (size_t i = 0; i < 8; i++) want |= codes[i] << 5 * i;
  cr_assert_eq(packed, want, "%llx, not %llx", (unsigned long long)packed,
               (unsigned long long)want);
}

/* The two values beside 3/8 of 5 bits are 1/4 and 1/2: half of all draws each.  Of a third of the
 * smallest value a third. */
Test(minifloat, draws_are_right_on_average) {
  enum { TRIES = 2000 };
  float e[BUCKET] = {1.0F}, got[BUCKET];
  uint8_t message[256];
  double half = 0, low = 0;
  for (size_t i = 1; i < BUCKET; i++) e[i] = i % 2 ? 0.375F : -0x1p-14F / 3;
  for (uint64_t seed = 0; seed < TRIES; seed++) {
    decode(message, encode(e, BUCKET, 5, seed, message), BUCKET, got);
    for (size_t i = 1; i < BUCKET; i++) {
      if (i % 2) cr_assert(got[i] == 0.25F || got[i] == 0.5F, "%g", (double)got[i]);
      if (i % 2 == 0) cr_assert(got[i] == 0.0F || got[i] == -0x1p-14F, "%g", (double)got[i]);
      half += i % 2 && got[i] == 0.5F;
      low += i % 2 == 0 && got[i] != 0.0F;
    }
  }
  /* 128000 and 126000 draws: a deviation of 0.0014. */
  cr_assert_float_eq(half / (TRIES * 64.0), 0.5, 0.006, "%g", half / (TRIES * 64.0));
  cr_assert_float_eq(low / (TRIES * 63.0), 1.0 / 3, 0.006, "%g", low / (TRIES * 63.0));
}

/* Elements of all magnitudes from 1 to 2^-14 beside each other: signs are kept, none errs by more
 * than 2^-m of itself, and the mean square is at most 4^-m / (4 + 4 2^-m) of it. */
Test(minifloat, errors_are_in_proportion) {
  enum { TRIES = 400 };
  weir_rng rng = weir_rng_of(5);
  float e[BUCKET], got[BUCKET];
  uint8_t message[256];
  for (unsigned bits = 5; bits <= 8; bits++) {
    const double gap = ldexp(1, 5 - (int)bits);
    double lost[BUCKET] = {0}, worst = 0;
    e[0] = 1.0F;
    for (size_t i = 1; i < BUCKET; i++)
      e[i] = (float)(exp2(-13.9 * weir_rng_uniform(&rng)) * (i % 2 ? 1 : -1));
    for (uint64_t seed = 0; seed < TRIES; seed++) {
      decode(message, encode(e, BUCKET, bits, seed, message), BUCKET, got);
      for (size_t i = 0; i < BUCKET; i++) {
        const double off = ((double)got[i] - (double)e[i]) / (double)e[i];
        cr_assert(fabs(off) <= gap && off > -1, "%u bits: %g became %g", bits, (double)e[i],
                  (double)got[i]);
        lost[i] += off * off / TRIES;
      }
    }
    for (size_t i = 0; i < BUCKET; i++) worst = fmax(worst, lost[i]);
    const double bound = gap * gap / (4 + 4 * gap);
    cr_assert(worst < 1.2 * bound && worst > 0.8 * bound, "%u bits: %g of %g", bits, worst, bound);
  }
}

/* Whatever an element's bucket holds, its largest is what it was, at the ends of what floats are,
 * too. */
Test(minifloat, the_largest_stays) {
  weir_rng rng = weir_rng_of(6);
  float e[BUCKET], got[BUCKET];
  uint8_t message[256];
  for (int n = 0; n < 2000; n++) {
    const float most =
        ldexpf(1 + (float)weir_rng_uniform(&rng), (int)weir_rng_below(&rng, 240) - 117);
    const unsigned bits = 5 + (unsigned)n % 4;
    for (size_t i = 0; i < BUCKET; i++) e[i] = most * (float)(2 * weir_rng_uniform(&rng) - 1);
    e[77] = -most;
    decode(message, encode(e, BUCKET, bits, (uint64_t)n, message), BUCKET, got);
    cr_assert_eq(got[77], -most, "%g became %g", (double)-most, (double)got[77]);
  }
}

/* The encoder writes no code above that of 1; from the wire it counts as it. */
Test(minifloat, foreign_codes_and_heads) {
  const size_t offset[] = {0, 8};
  const weir_layout layout = {1, offset};
  const float e[8] = {2.0F, 1.0F};
  uint8_t message[64], bad[64];
  float got[8];
  double peak;
  const size_t bytes = encode(e, 8, 8, 1, message);
  message[HEAD + SCALE + 1] = 0xff;
  decode(message, bytes, 8, got);
  cr_assert_eq(got[1], -2.0F);
  cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_OK);
  cr_assert_float_eq(peak, 2.0, 1e-6);
  static const struct {
    size_t at;
    uint8_t to;
  } wrong[] = {{13, 4}, {13, 9}, {14, 1}, {8, 64}, {15, 1}, {0, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    memcpy(bad, message, bytes);
    bad[wrong[i].at] = wrong[i].to;
    cr_assert_eq(row()->decode(NULL, bad, bytes, &layout, got, WEIR_DECODE_STORE), WEIR_E_PROTOCOL);
    cr_assert_eq(row()->check(bad, bytes, &layout, &peak), WEIR_E_PROTOCOL);
  }
  cr_assert_eq(row()->check(message, bytes - 1, &layout, &peak), WEIR_E_PROTOCOL);
  static const float scales[] = {-1.0F, NAN, INFINITY};
  for (size_t i = 0; i < 3; i++) {
    memcpy(message + HEAD, &scales[i], sizeof scales[i]);
    cr_assert_eq(row()->check(message, bytes, &layout, &peak), WEIR_E_PROTOCOL, "%zu", i);
  }
}
