/* Quantizers' messages with their codes coded: what comes back is what went in, to the bit, and
 * lengths are those of Huffman's code by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../held.h"
#include "base/base.h"
#include "kernels/entropy.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { HEAD = 16, FRONT = 8 };

typedef struct message {
  const weir_codec *codec;
  size_t n, bytes;
  uint8_t *at, *room, *out, *back;
} message;

static message made(uint32_t codec, unsigned bits, const float *x, size_t n) {
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  message m = {.codec = weir_codec_find(codec), .n = n};
  m.bytes = m.codec->bound(&layout, bits / 32.0);
  m.at = malloc(m.bytes);
  m.out = malloc(m.bytes);
  m.back = malloc(m.bytes);
  m.room = malloc(weir_entropy_room(m.bytes));
  cr_assert_eq(m.codec->encode(NULL, x, &layout, bits / 32.0, 5, m.at, m.bytes, &m.bytes), WEIR_OK);
  return m;
}

static void done(message *m) {
  free(m->at);
  free(m->out);
  free(m->back);
  free(m->room);
}

static size_t shorten(message *m) {
  return weir_entropy_shorten(m->codec, m->at, m->bytes, m->room, m->out);
}

static bool restore(message *m, const uint8_t *from, size_t length) {
  return weir_entropy_restore(m->codec, from, length, m->n, m->room, m->back, m->bytes);
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
} rows[] = {{WEIR_CODEC_COMPANDED, 3, 8},
            {WEIR_CODEC_QSGD, 2, 8},
            {WEIR_CODEC_QSGD_NEAREST, 2, 8},
            {WEIR_CODEC_QSGD_L2, 4, 8},
            {WEIR_CODEC_MINIFLOAT, 5, 8}};

Test(entropy, comes_back_to_the_bit_and_is_never_longer) {
  static const size_t lengths[] = {0, 1, 2, 7, 8, 9, 127, 128, 129, 1000, 8192, 32768, 40961};
  for (size_t r = 0; r < COUNT(rows); r++)
    for (unsigned bits = rows[r].least; bits <= rows[r].most; bits++)
      for (size_t l = 0; l < COUNT(lengths); l++)
        for (int power = 1; power <= 9; power += 4) {
          float *x = normal(lengths[l], power);
          message m = made(rows[r].codec, bits, x, lengths[l]);
          const size_t length = shorten(&m);
          cr_assert_leq(length, m.bytes - FRONT);
          cr_assert(restore(&m, m.out, length));
          cr_assert_eq(memcmp(m.at, m.back, m.bytes), 0, "%s %u bits n %zu", m.codec->name, bits,
                       m.n);
          memcpy(m.back, m.at, m.bytes); /* in its own place, too */
          cr_assert_eq(weir_entropy_shorten(m.codec, m.back, m.bytes, m.room, m.back), length);
          cr_assert_eq(memcmp(m.back, m.out, length), 0);
          done(&m);
          free(x);
        }
}

/* 4096 elements, of each bucket of 128 one is 1 and all others 0: with 3 bits of companded codes
 * are 3 + 3 and 3, in pairs of which 63 in 64 are (3, 3) and one is (6, 3) or (3, 6).  Two symbols
 * take a bit each: 2048 bits, where plain codes take 12288. */
Test(entropy, pairs_of_codes_take_a_bit_where_there_are_two) {
  enum { N = 4096, UNITS = N / 128 };
  float x[N] = {0};
  for (size_t u = 0; u < UNITS; u++) x[u * 128] = 1.0F;
  message m = made(WEIR_CODEC_COMPANDED, 3, x, N);
  cr_assert_eq(m.bytes, HEAD + UNITS * (4 + 48));
  const size_t length = shorten(&m), codes = N / 2 / 8;
  cr_assert_geq(length, HEAD - FRONT + UNITS * 4 + codes);
  cr_assert_leq(length, HEAD - FRONT + UNITS * 4 + codes + 48); /* lengths of codes and streams */
  cr_assert_eq(m.out[7], 1);                                    /* byte 15 of the header */
  cr_assert_eq(memcmp(m.out + FRONT, m.at + HEAD, 4), 0);       /* the first scale */
  cr_assert(restore(&m, m.out, length));
  cr_assert_eq(memcmp(m.at, m.back, m.bytes), 0);
  done(&m);
}

/* Codes that all occur alike stay as they are: all but the header's first 8 bytes. */
Test(entropy, what_cannot_be_shortened_travels_as_it_is) {
  enum { N = 1024 };
  float *x = normal(N, 1.0); /* uniform, on an even grid */
  message m = made(WEIR_CODEC_QSGD, 8, x, N);
  const size_t length = shorten(&m);
  cr_assert_eq(length, m.bytes - FRONT);
  cr_assert_eq(m.out[7], 0);
  cr_assert_eq(memcmp(m.out, m.at + FRONT, length), 0);
  done(&m);
  free(x);
}

/* Bytes that are no such message are refused, or restored to one of the right length, which the
 * codec looks at: nothing is read or written elsewhere. */
Test(entropy, any_bytes_are_held) {
  weir_rng rng = weir_rng_of(77);
  for (size_t r = 0; r < COUNT(rows); r++) {
    const size_t n = 2000;
    const size_t offset[2] = {0, n};
    const weir_layout layout = {1, offset};
    float *x = normal(n, 5.0), to[2000];
    message m = made(rows[r].codec, rows[r].least, x, n);
    const size_t length = shorten(&m);
    for (int i = 0; i < 3000; i++) {
      const size_t cut = i % 3 == 0 ? (size_t)(weir_rng_uniform(&rng) * (double)length) : length;
      uint8_t *bad = malloc(cut + 1);
      memcpy(bad, m.out, cut);
      if (i % 3 != 0 && cut > 0)
        bad[(size_t)(weir_rng_uniform(&rng) * (double)(i % 3 == 1 ? FRONT + 40 : cut)) % cut] ^=
            (uint8_t)(1 + (int)(weir_rng_uniform(&rng) * 255.0));
      uint8_t *exact = malloc(cut > 0 ? cut : 1);
      memcpy(exact, bad, cut);
      if (restore(&m, exact, cut))
        (void)m.codec->decode(NULL, m.back, m.bytes, &layout, to, WEIR_DECODE_STORE);
      else
        cr_assert(cut < length || memcmp(exact, m.out, length) != 0);
      free(exact);
      free(bad);
    }
    cr_assert_not(restore(&m, m.out, 0));
    cr_assert_not(restore(&m, m.out, length - 1));
    done(&m);
    free(x);
  }
}
