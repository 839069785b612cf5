/* Quantizers' messages with their codes coded: what comes back is what went in, to the bit, and
 * lengths are those of Huffman's code by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../held.h"
#include "../sampled.h"
#include "base/base.h"
#include "kernels/entropy.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { HEAD = 16, LENGTH = 4 };

typedef struct message {
  const weir_codec *codec;
  size_t n, bytes, most;    /* of the longest, for which there is room */
  uint8_t *at, *room, *out; /* as it is; to work in; shortened, or restored */
} message;

static message made(uint32_t codec, unsigned bits, const float *x, size_t n) {
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  message m = {.codec = weir_codec_find(codec), .n = n};
  m.bytes = m.most = m.codec->bound(&layout, bits / 32.0);
  m.at = malloc(m.bytes);
  m.out = malloc(m.bytes);
  m.room = malloc(weir_entropy_room());
  cr_assert_eq(m.codec->encode(NULL, x, &layout, bits / 32.0, 5, m.at, m.bytes, &m.bytes), WEIR_OK);
  return m;
}

static void done(message *m) {
  free(m->at);
  free(m->out);
  free(m->room);
}

static size_t shorten(message *m) {
  memcpy(m->out, m->at, m->bytes);
  return weir_entropy_shorten(m->codec, m->out, m->bytes, m->room);
}

static size_t restore(message *m, size_t length) {
  return weir_entropy_restore(m->codec, m->out, length, m->n, m->most, m->room);
}

static void expect_back(message *m, size_t length) {
  cr_assert_eq(restore(m, length), m->bytes);
  cr_assert_eq(memcmp(m->at, m->out, m->bytes), 0, "%s n %zu of %zu", m->codec->name, m->n, length);
}

static float *normal(size_t n, double power) {
  weir_rng rng = weir_rng_of(n + 3);
  float *x = malloc(n * sizeof *x + 1);
  for (size_t i = 0; i < n; i++) {
    const double u = 2.0 * weir_rng_uniform(&rng) - 1.0;
    x[i] = (float)(copysign(pow(fabs(u), power), u));
  }
  return x;
}

static const struct {
  uint32_t codec;
  unsigned least, most;
} rows[] = {{WEIR_CODEC_COMPANDED, 3, 8},       {WEIR_CODEC_QSGD, 2, 8},
            {WEIR_CODEC_QSGD_NEAREST, 2, 8},    {WEIR_CODEC_QSGD_L2, 4, 8},
            {WEIR_CODEC_QSGD_L2_NEAREST, 4, 8}, {WEIR_CODEC_MINIFLOAT, 5, 8},
            {WEIR_CODEC_NONZERO, 2, 8},         {WEIR_CODEC_DITHERED, 4, 8}};

Test(entropy, comes_back_to_the_bit_and_is_never_longer) {
  static const size_t lengths[] = {0,    1,    2,     7,     8,     9,     127,   128,   129,
                                   1000, 8192, 32768, 40961, 65535, 65536, 65537, 98304, 200001};
  for (size_t r = 0; r < COUNT(rows); r++)
    for (unsigned bits = rows[r].least; bits <= rows[r].most; bits++)
      for (size_t l = 0; l < COUNT(lengths); l++)
        for (int power = 1; power <= 9; power += 4) {
          if (!sampled(4)) continue;
          float *x = normal(lengths[l], power);
          message m = made(rows[r].codec, bits, x, lengths[l]);
          const size_t length = shorten(&m);
          cr_assert_leq(length, m.bytes);
          if (power == 9 && lengths[l] >= 8192)
            cr_assert_lt((double)length, 0.95 * (double)m.bytes, "%s %u bits: %zu of %zu",
                         m.codec->name, bits, length, m.bytes);
          expect_back(&m, length);
          done(&m);
          free(x);
        }
}

/* 4096 elements, of each bucket of 128 one is 1 and all others 0: with 3 bits of companded codes
 * are 6 for the ones and 3 for zeros, in pairs of which 63 in 64 are (3, 3) and one is (6, 3).  Two
 * symbols take a bit each: 2048 bits, where plain codes take 12288. */
Test(entropy, pairs_of_codes_take_a_bit_where_there_are_two) {
  enum { N = 4096, UNITS = N / 128 };
  float x[N] = {0};
  for (size_t u = 0; u < UNITS; u++) x[u * 128] = 1.0F;
  message m = made(WEIR_CODEC_COMPANDED, 3, x, N);
  cr_assert_eq(m.bytes, HEAD + UNITS * (4 + 48));
  /* The scales are a ninth: 0x3de38e39, of which the upper half travels, rounded, its lower bytes
   * as they are and its upper ones, which are all alike, in 2 bytes, whose length is at the end. */
  const size_t length = shorten(&m), codes = N / 2 / 8, scales = UNITS + 2 + 2;
  cr_assert_geq(length, HEAD + scales + codes + LENGTH);
  cr_assert_leq(length, HEAD + scales + codes + LENGTH + 48); /* lengths of codes and streams */
  cr_assert_eq(m.out[HEAD - 1], 1);
  cr_assert_eq(memcmp(m.out, m.at, HEAD - 1), 0);
  for (size_t u = 0; u < UNITS; u++) cr_assert_eq(m.out[HEAD + u], 0xe4);
  static const uint8_t uppers[] = {1, 0x3d}, upper_length[] = {2, 0};
  cr_assert_eq(memcmp(m.out + HEAD + UNITS, uppers, 2), 0);
  cr_assert_eq(memcmp(m.out + length - LENGTH - 2, upper_length, 2), 0);
  expect_back(&m, length);
  done(&m);
}

/* 8192 elements in runs of 16, a gap of 48 between them: of 2048 values half are 1 and half 0.1, 49
 * and 4 in units of a 49th, so that pairs of codes of 4 bits, 14 and 9, are all alike, and travel
 * in 2 bytes.  What goes before them stays as it is: 16 of header, 8 of counts, and the list of 128
 * runs, of a byte each, behind their number in 2 and what they are multiples of in 1. */
Test(entropy, of_nonzero_the_list_stays_and_values_are_coded) {
  enum {
    N = 8192,
    VALUES = N / 4,
    UNITS = VALUES / 128,
    LIST = 2 + 1 + 128,
    START = HEAD + 8 + LIST
  };
  float x[N] = {0};
  for (size_t i = 0; i < N; i++)
    if (i % 64 < 16) x[i] = i % 2 ? 0.1F : 1.0F;
  message m = made(WEIR_CODEC_NONZERO, 4, x, N);
  cr_assert_eq(m.bytes, START + UNITS * (4 + 64));
  const size_t length = shorten(&m);
  cr_assert_eq(length, START + UNITS + 2 + 2 + 2 + LENGTH);
  cr_assert_eq(m.out[HEAD - 1], 1);
  cr_assert_eq(memcmp(m.out, m.at, HEAD - 1), 0);
  cr_assert_eq(memcmp(m.out + HEAD, m.at + HEAD, START - HEAD), 0);
  expect_back(&m, length);
  /* A list that is longer than all there is, and more values than elements. */
  for (size_t at = HEAD; at < HEAD + 8; at += 4) {
    (void)shorten(&m);
    m.out[at + 2] = 0xff;
    cr_assert_eq(restore(&m, length), 0);
  }
  done(&m);
}

/* A piece whose codes all occur alike leaves the message as it is, also where others come before
 * it, which have been shortened by then. */
Test(entropy, what_cannot_be_shortened_travels_as_it_is) {
  enum { N = 3 * 32768 };
  float *x = normal(N, 1.0); /* uniform, on an even grid */
  message m = made(WEIR_CODEC_QSGD, 8, x, N);
  cr_assert_eq(shorten(&m), m.bytes);
  cr_assert_eq(memcmp(m.out, m.at, m.bytes), 0);
  expect_back(&m, m.bytes);
  done(&m);
  memset(x, 0, 32768 * sizeof *x);
  x[5] = 1.0F;
  m = made(WEIR_CODEC_QSGD, 8, x, N);
  cr_assert_eq(shorten(&m), m.bytes);
  cr_assert_eq(memcmp(m.out, m.at, m.bytes), 0);
  done(&m);
  m = made(WEIR_CODEC_QSGD, 8, x, 32768);
  cr_assert_lt(shorten(&m), m.bytes / 4);
  done(&m);
  free(x);
}

/* Scales that no bfloat16s are, which no encoder of ours writes: nothing would bring them back. */
Test(entropy, other_scales_than_bfloat16s_travel_as_they_are) {
  enum { N = 70000 };
  float *x = normal(N, 5.0);
  message m = made(WEIR_CODEC_COMPANDED, 4, x, N);
  cr_assert_lt(shorten(&m), m.bytes);
  for (size_t byte = 0; byte < 2; byte++)
    for (size_t unit = 0; unit < N / 128; unit += N / 128 - 1) {
      const size_t at = HEAD + unit * (4 + 64) + byte;
      m.at[at] = 1;
      cr_assert_eq(shorten(&m), m.bytes);
      cr_assert_eq(memcmp(m.out, m.at, m.bytes), 0);
      m.at[at] = 0;
    }
  done(&m);
  free(x);
}

/* Buckets of 481 elements take as many bytes as the ones of 256 that the length is of, and their
 * codes, of 61 eights each, more than a piece has room for. */
Test(entropy, buckets_that_are_no_whole_eights_are_refused) {
  enum { N = 64608, BYTES = HEAD + N / 256 * (8 + 256) + 8 + 96, UNITS = 135 };
  weir_encoded head = {{'W', 'R', 'E', '1'}, N, 481, WEIR_CODEC_QSGD, 8, 0, 0};
  cr_assert_eq(BYTES, HEAD + (N / 481) * (8 + 61 * 8) + 8 + (N % 481 + 7) / 8 * 8);
  cr_assert_eq(UNITS, (N + 480) / 481);
  message m = {.codec = weir_codec_find(WEIR_CODEC_QSGD), .n = N, .bytes = BYTES, .most = BYTES};
  m.at = calloc(BYTES, 1);
  m.out = malloc(BYTES);
  m.room = malloc(weir_entropy_room());
  memcpy(m.at, &head, sizeof head);
  cr_assert_eq(shorten(&m), m.bytes); /* all alike, and yet no shorter */
  /* A piece of scales that are 0, and of codes that are all 0. */
  const uint32_t length = UNITS * 8 + 2;
  memset(m.out, 0, BYTES);
  head.zero = 1;
  memcpy(m.out, &head, sizeof head);
  m.out[HEAD + UNITS * 8] = 1;
  memcpy(m.out + HEAD + length, &length, sizeof length);
  cr_assert_eq(restore(&m, HEAD + length + LENGTH), 0);
  done(&m);
}

/* Bytes that are no such message are refused, or restored to one of the right length, which the
 * codec looks at: nothing is read or written elsewhere. */
Test(entropy, any_bytes_are_held) {
  static const size_t counts[] = {2000, 70000};
  weir_rng rng = weir_rng_of(77);
  for (size_t r = 0; r < COUNT(rows); r++)
    for (size_t c = 0; c < COUNT(counts); c++) {
      const size_t n = counts[c], offset[2] = {0, n};
      const weir_layout layout = {1, offset};
      float *x = normal(n, 5.0), *to = malloc(n * sizeof *to);
      message m = made(rows[r].codec, rows[r].least, x, n);
      for (int i = 0; i < (c == 0 ? 600 : 20); i++) {
        const size_t length = shorten(&m);
        const size_t cut = i % 3 == 0 ? weir_rng_below(&rng, length) : length;
        if (i % 3 != 0)
          m.out[weir_rng_below(&rng, i % 3 == 1 ? HEAD + 40 : cut)] ^=
              (uint8_t)(1 + weir_rng_below(&rng, 255));
        const size_t whole = restore(&m, cut);
        cr_assert_leq(whole, m.most);
        if (whole > 0) (void)m.codec->decode(NULL, m.out, whole, &layout, to, WEIR_DECODE_STORE);
      }
      for (size_t short_by = 1; short_by < 20; short_by++)
        cr_assert_eq(restore(&m, shorten(&m) - short_by), 0);
      (void)shorten(&m);
      cr_assert_eq(restore(&m, 0), 0);
      done(&m);
      free(to);
      free(x);
    }
}
