/* dithered: its messages read by hand, what it errs by, and how short its codes become. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec.h"
#include "kernels/entropy.h"
#include "kernels_data.h"

enum { HEAD = 16, SEED = 4, BUCKET = 128, MANY = 512 * BUCKET };

static uint8_t message[HEAD + SEED + MANY / BUCKET * (4 + BUCKET)];
static float x[MANY], back[MANY];

static uint64_t state = 1;
/* From -1 to 1. */
static double drawn(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(state >> 11) / 0x1p52 - 1;
}

/* Box and Muller. */
static void fill_normal(size_t n) {
  for (size_t i = 0; i < n; i += 2) {
    const double r = sqrt(-2 * log((drawn() + 1 + 1e-12) / 2)), a = 3.14159265358979 * drawn();
    x[i] = (float)(r * cos(a));
    x[i + 1] = (float)(r * sin(a));
  }
}

/* x[0..n) -> message -> back[0..n); the message's length. */
static size_t there_and_back(size_t n, unsigned bits, uint64_t seed) {
  const size_t offset[] = {0, n};
  const weir_layout layout = {1, offset};
  const weir_codec *codec = weir_codec_find(WEIR_CODEC_DITHERED);
  size_t bytes;
  cr_assert_eq(codec->encode(NULL, x, &layout, bits / 32.0, seed, message, sizeof message, &bytes),
               WEIR_OK);
  cr_assert_eq(codec->decode(NULL, message, bytes, &layout, back, WEIR_DECODE_STORE), WEIR_OK);
  return bytes;
}

static float step_of(size_t bucket, unsigned bits) {
  float step;
  memcpy(&step, message + HEAD + SEED + bucket * (4 + BUCKET / 8 * bits), sizeof step);
  return step;
}

/* lowbias32 and splitmix64, as their authors publish them. */
static uint32_t mixed(uint32_t v) {
  v ^= v >> 16;
  v *= 0x7feb352dU;
  v ^= v >> 15;
  v *= 0x846ca68bU;
  v ^= v >> 16;
  return v;
}

static uint32_t key_of(uint64_t seed, uint64_t bucket) {
  uint64_t z = seed + (bucket + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* Nibbles, the lower one first; of every pair the one whose shift is below a quarter comes first,
 * and counts are turned where the shift is negative. */
Test(dithered, a_message_by_hand) {
  fill_normal(3 * BUCKET);
  const size_t n = 3 * BUCKET - 51; /* an odd bucket is last */
  cr_assert_eq(there_and_back(n, 4, 9), HEAD + SEED + 2 * (4 + 64) + 4 + (77 + 7) / 8 * 4);
  uint32_t seed;
  memcpy(&seed, message + HEAD, sizeof seed);
  for (size_t i = 0; i < n; i++) {
    const size_t bucket = i / BUCKET, in = i % BUCKET;
    const uint32_t key = key_of(seed, bucket), draw = mixed(key + (uint32_t)in);
    const size_t place = key % 2 == 0 ? in : in % 2 == 0 ? in + 1 : in - 1;
    const uint8_t *const codes = message + HEAD + SEED + bucket * (4 + 64) + 4;
    const int code = codes[place / 2] >> place % 2 * 4 & 15;
    const double size = (place % 2 + (draw >> 8 & 0x7fffff) / 0x1p23) / 4;
    const double u = draw >> 31 ? -size : size, q = draw >> 31 ? 7 - code : code - 7;
    cr_assert_float_eq(back[i], (q - u) * (double)step_of(bucket, 4), 1e-6, "%zu", i);
  }
}

/* A bucket of equals, half of them negative: of norm sqrt(128), a fifth of it is 2.26; in 8 bits
 * 2.265625. */
Test(dithered, steps_by_hand) {
  for (size_t i = 0; i < BUCKET; i++) x[i] = i % 2 == 0 ? 1.0F : -1.0F;
  for (unsigned bits = 4; bits <= 8; bits++) {
    (void)there_and_back(BUCKET, bits, 1);
    cr_assert_eq(step_of(0, bits), ldexpf(2.265625F, 4 - (int)bits));
  }
}

Test(dithered, what_is_alone_or_nothing) {
  x[0] = -3.0F;
  (void)there_and_back(1, 4, 5);
  cr_assert_float_eq(back[0], -3.0F, 3.0F / 256);
  memset(x, 0, sizeof x);
  for (unsigned bits = 4; bits <= 8; bits++) {
    (void)there_and_back(BUCKET + 7, bits, 5);
    for (size_t i = 0; i < BUCKET + 7; i++) cr_assert(back[i] == 0.0F && signbit(back[i]) == 0);
  }
}

Test(dithered, nothing_errs_by_more_than_half_a_step) {
  for (unsigned turn = 0; turn < 600; turn++) {
    const double spread = ldexp(1, (int)(turn % 60) * 4 - 120);
    const unsigned bits = 4 + turn % 5;
    double square = 0;
    for (size_t i = 0; i < BUCKET; i++) {
      x[i] = (float)(spread * pow(drawn(), 1 + 2 * (double)(turn % 5)));
      square += (double)x[i] * x[i];
    }
    (void)there_and_back(BUCKET, bits, turn);
    const double step = sqrt(square) / ldexp(5, (int)bits - 4), told = (double)step_of(0, bits);
    if (step < 1e-35) continue; /* there is no step of so little */
    cr_assert_leq(fabs(told - step), step / 256, "turn %u: %g, not %g", turn, told, step);
    for (size_t i = 0; i < BUCKET; i++)
      cr_assert_leq(fabs((double)x[i] - (double)back[i]), 0.50001 * told, "turn %u", turn);
  }
}

/* The error of x is uniform from -1/2 to 1/2 of a step, whatever x is: mean 0, mean square 1/12.
 * Standard errors of 4096 such: 0.0045 and 0.0012. */
Test(dithered, errors_do_not_depend_on_what_is_sent) {
  enum { TURNS = 4096, TRIED = 16 };
  double sum[TRIED] = {0}, square[TRIED] = {0}, beside = 0;
  for (size_t i = 0; i < BUCKET; i++) x[i] = (float)i / BUCKET;
  for (size_t turn = 0; turn < TURNS; turn++) {
    (void)there_and_back(BUCKET, 4, turn);
    for (size_t i = 0; i < TRIED; i++) {
      const double error = (double)(back[8 * i] - x[8 * i]) / (double)step_of(0, 4);
      sum[i] += error / TURNS;
      square[i] += error * error / TURNS;
    }
    beside += (double)(back[64] - x[64]) * (double)(back[65] - x[65]) / TURNS;
  }
  for (size_t i = 0; i < TRIED; i++) {
    cr_assert_float_eq(sum[i], 0, 0.022, "%zu: %g", i, sum[i]);
    cr_assert_float_eq(square[i], 1 / 12.0, 0.006, "%zu: %g", i, square[i]);
  }
  const double step = (double)step_of(0, 4);
  cr_assert_float_eq(beside / (step * step), 0, 0.02, "%g", beside);
}

/* P(x / s + u rounds to q), u from a to a + 1/4 or from -a - 1/4 to -a, counted towards u: the mean
 * of Phi over shifts. */
static double chance(double q, double a, double s) {
  enum { PARTS = 400 };
  double p = 0;
  for (int i = 0; i < PARTS; i++) {
    const double u = a + (i + 0.5) / (4 * PARTS);
    p += (erf((q + 0.5 - u) * s / sqrt(2)) - erf((q - 0.5 - u) * s / sqrt(2))) / (2 * PARTS);
  }
  return p;
}

/* Huffman's code of pairs takes no less than their entropy, and at most 3 % and a table more. */
Test(dithered, codes_of_what_is_normal_are_coded_by_the_shift) {
  const double s = sqrt(BUCKET) / 5;
  double entropy = 0;
  for (int part = 0; part < 2; part++)
    for (int q = -5; q <= 5; q++) {
      const double p = chance(q, part / 4.0, s);
      if (p > 1e-12) entropy -= p * log2(p) / 2;
    }
  cr_assert_float_eq(entropy, 1.15, 0.02, "%g", entropy);
  fill_normal(MANY);
  const size_t bytes = there_and_back(MANY, 4, 3);
  void *const room = malloc(weir_entropy_room());
  const weir_codec *codec = weir_codec_find(WEIR_CODEC_DITHERED);
  const size_t coded = weir_entropy_shorten(codec, message, bytes, room);
  const double bits = 8.0 * (double)coded / MANY;
  cr_expect_geq(bits, entropy + 0.07);
  cr_expect_leq(bits, entropy * 1.03 + 0.12, "%g bits, entropy %g", bits, entropy);
  cr_assert_eq(weir_entropy_restore(codec, message, coded, MANY, bytes, room), bytes);
  static float again[MANY];
  const size_t offset[] = {0, MANY};
  cr_assert_eq(
      codec->decode(NULL, message, bytes, &(weir_layout){1, offset}, again, WEIR_DECODE_STORE),
      WEIR_OK);
  cr_assert_eq(memcmp(again, back, sizeof back), 0);
  free(room);
}

/* What one version writes, all of them read alike, and write. */
Test(dithered, all_versions_alike) {
  static uint8_t first[sizeof message];
  static float read[MANY];
  for (size_t n = 1; n < 300; n += 7) {
    fill_normal(n + n % 2);
    for (int v = 0; v < VERSIONS; v++) {
      if (version(v) == NULL) continue;
      weir_cpu_force(version(v));
      const size_t bytes = there_and_back(n, 4 + n % 5, n);
      if (v == 0) {
        memcpy(first, message, bytes);
        memcpy(read, back, n * sizeof *back);
      }
      cr_assert_eq(memcmp(first, message, bytes), 0, "%s", version(v)->name);
      cr_assert_eq(memcmp(read, back, n * sizeof *back), 0, "%s", version(v)->name);
    }
  }
  weir_cpu_force(NULL);
}
