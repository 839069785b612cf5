/* Quantizers' messages, by hand: every field of the header counts, terngrad's clip, and draws that
 * go on where a unit is longer than what is coded at a time. */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/encoder.h"
#include "kernels_data.h"

enum { MOST = 5000 };
static float x[MOST], to[MOST];
static uint8_t message[2 * MOST + 64];

static const struct {
  uint32_t codec;
  double cr;
  int modes; /* that its decoder knows: 0..modes */
} arms[] = {{WEIR_CODEC_FP16, 0.5, 0},         {WEIR_CODEC_QSGD, 4.0 / 32, 3},
            {WEIR_CODEC_QSGD_L2, 8.0 / 32, 3}, {WEIR_CODEC_TERNGRAD, 2.0 / 32, 3},
            {WEIR_CODEC_ONEBIT, 1.0 / 32, 0},  {WEIR_CODEC_EFSIGNSGD, 1.0 / 32, 0}};

/* Refused by decoding in every way and by looking, and nothing is written. */
static void expect_refused(const weir_codec *codec, size_t bytes, const weir_layout *layout,
                           size_t at) {
  const size_t n = layout->offset[layout->tensors];
  double peak = 0;
  for (size_t i = 0; i < n; i++) to[i] = 3.0F;
  for (weir_decoding how = WEIR_DECODE_STORE; how <= WEIR_DECODE_SUBTRACT; how++)
    cr_assert_eq(codec->decode(NULL, message, bytes, layout, to, how), WEIR_E_PROTOCOL,
                 "%s: byte %zu is %u", codec->name, at, message[at]);
  cr_assert_eq(codec->check(message, bytes, layout, &peak), WEIR_E_PROTOCOL);
  for (size_t i = 0; i < n; i++) cr_assert_eq(to[i], 3.0F);
}

Test(kernels_units, every_byte_of_a_header_counts) {
  const size_t offset[3] = {0, 100, 300};
  const weir_layout layout = {2, offset};
  weir_rng rng = weir_rng_of(5);
  fill_shape(&rng, 0, x, 300);
  for (size_t arm = 0; arm < sizeof arms / sizeof *arms; arm++) {
    const weir_codec *codec = weir_codecs[arms[arm].codec];
    size_t bytes = 0;
    cr_assert_eq(codec->encode(NULL, x, &layout, arms[arm].cr, 1, message, sizeof message, &bytes),
                 WEIR_OK);
    for (size_t at = 0; at < 16; at++) {
      const uint8_t good = message[at];
      for (int other = 0; other < 256; other++) {
        /* Other modes, and buckets of which as many are as long together, are qsgd's, too. */
        const bool bucket = at == 8 && arms[arm].modes == 3 && other % 8 == 0 && other > 0;
        if (other == good || bucket || (at == 14 && other <= arms[arm].modes)) continue;
        message[at] = (uint8_t)other;
        expect_refused(codec, bytes, &layout, at);
      }
      message[at] = good;
    }
    cr_assert_eq(codec->decode(NULL, message, bytes, &layout, to, WEIR_DECODE_STORE), WEIR_OK);
  }
}

/* Fifteen ones and a hundred: 2.5 root mean squares are less than the largest, and its scale. */
Test(kernels_units, terngrad_clips_at_two_and_a_half_deviations) {
  const size_t offset[2] = {0, 16};
  size_t bytes = 0;
  float scale;
  for (size_t i = 0; i < 16; i++) x[i] = i == 9 ? -100.0F : 1.0F;
  for (int clip = 0; clip < 2; clip++) {
    const weir_terngrad_options options = {.clip = clip, .unbiased = true};
    cr_assert_eq(weir_terngrad_encode_with(x, &(weir_layout){1, offset}, options, 1, message,
                                           sizeof message, &bytes),
                 WEIR_OK);
    memcpy(&scale, message + 16, sizeof scale);
    const double want = clip ? 2.5 * sqrt((15.0 + 10000.0) / 16) : 100.0;
    cr_assert_float_eq((double)scale, want, 1e-5);
  }
}

static bool up(uint32_t key, size_t i, double fraction) {
  return fraction > (double)(weir_mix32(key + (uint32_t)i) >> 8) * 0x1p-24;
}

/* One unit of several thousand elements: element i's draw is the key's i-th, at every place. */
Test(kernels_units, draws_go_on_through_a_long_unit) {
  enum { N = 4096 + 40, BITS = 3 };
  const weir_layout layout = {1, (const size_t[]){0, N}};
  const uint32_t key = weir_unit_key(77, 1);
  size_t bytes = 0;
  /* On terngrad's grid of -1, 0 and 1. */
  for (size_t i = 0; i < N; i++) x[i] = i == 0 ? 1.0F : (float)(i % 17) / 16.0F - 0.5F;
  cr_assert_eq(weir_terngrad_encode_with(x, &layout, (weir_terngrad_options){.unbiased = true}, 77,
                                         message, sizeof message, &bytes),
               WEIR_OK);
  for (size_t i = 0; i < N; i++) {
    const double place = (double)x[i] + 1, below = floor(place);
    const unsigned code = message[20 + i / 4] >> 2 * (i % 4) & 3;
    cr_assert_eq(code, (unsigned)below + up(key, i, place - below), "terngrad, element %zu", i);
  }
  /* On a grid of 0 to 7, one bucket of 8192 elements that is not full. */
  for (size_t i = 0; i < N; i++) x[i] = i < 2 ? 7.0F * (float)i : (float)(i % 57) / 8.0F;
  const weir_qsgd_options options = {.bits = BITS, .bucket = 8192};
  cr_assert_eq(weir_qsgd_encode_with(x, N, options, 77, message, sizeof message, &bytes), WEIR_OK);
  cr_assert_eq(bytes, 16 + 8 + N / 8 * BITS);
  for (size_t i = 0; i < N; i++) {
    unsigned code = 0;
    for (size_t bit = 0; bit < BITS; bit++)
      code |= (message[24 + (BITS * i + bit) / 8] >> (BITS * i + bit) % 8 & 1U) << bit;
    const double place = (double)x[i], below = floor(place);
    cr_assert_eq(code, (unsigned)below + up(key, i, place - below), "qsgd, element %zu", i);
  }
}

/* The scales of a long unit are of all its elements: the mean of either sign, and of all. */
Test(kernels_units, scales_are_of_the_whole_unit) {
  enum { N = 4096 + 40 };
  const weir_layout layout = {1, (const size_t[]){0, N}};
  double sum[2] = {0, 0}, count[2] = {0, 0};
  size_t bytes = 0;
  for (size_t i = 0; i < N; i++) {
    x[i] = i % 3 == 0 ? -(float)(i + 1) : (float)(i % 100 + 1);
    sum[i % 3 == 0] += (double)x[i];
    count[i % 3 == 0]++;
  }
  const weir_codec *onebit = weir_codecs[WEIR_CODEC_ONEBIT];
  cr_assert_eq(onebit->encode(NULL, x, &layout, 1.0 / 32, 0, message, sizeof message, &bytes), 0);
  cr_assert_eq(onebit->decode(NULL, message, bytes, &layout, to, WEIR_DECODE_STORE), WEIR_OK);
  for (size_t i = 0; i < N; i++)
    cr_assert_eq(to[i], (float)(sum[i % 3 == 0] / count[i % 3 == 0]), "onebit, element %zu", i);
  const weir_codec *sign = weir_codecs[WEIR_CODEC_EFSIGNSGD];
  cr_assert_eq(sign->encode(NULL, x, &layout, 1.0 / 32, 0, message, sizeof message, &bytes), 0);
  cr_assert_eq(sign->decode(NULL, message, bytes, &layout, to, WEIR_DECODE_STORE), WEIR_OK);
  for (size_t i = 0; i < N; i++)
    cr_assert_eq(fabsf(to[i]), (float)((sum[0] - sum[1]) / N), "efsignsgd, element %zu", i);
}

Test(kernels_units, qsgd_refuses_other_bits_and_buckets) {
  static const weir_qsgd_options bad[] = {{.bits = 1, .bucket = 128},
                                          {.bits = 9, .bucket = 128},
                                          {.bits = 4, .bucket = 0},
                                          {.bits = 4, .bucket = 12},
                                          {.bits = 4, .bucket = 65544}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    size_t bytes = 7;
    cr_assert_eq(weir_qsgd_encode_with(x, 300, bad[i], 1, message, sizeof message, &bytes),
                 WEIR_E_INVALID);
    cr_assert_eq(bytes, 0);
  }
}
