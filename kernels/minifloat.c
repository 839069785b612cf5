/* minifloat: every element as a float of 5 to 8 bits: sign, 4 of exponent and up to 3 of mantissa,
 * in units of its bucket's largest magnitude, which is 1 and stays what it is.
 *
 *   code e, f     e > 0: 2^(e - 15) (1 + f / 2^m);  e = 0: 2^-14 f / 2^m
 *
 * An element goes to one of the two values beside it, to the larger with the probability of its
 * distance from the other, so that its expectation is the element.  Unlike on qsgd's grids, where
 * what is far smaller than the rest of its bucket is little but noise, the error is in proportion
 * to the element: its mean square is at most 1/8 of the element's with 5 bits, which are powers of
 * two ("Natural compression for distributed deep learning", Horvath et al. 2019, theorem 1), and
 * 4^-m / (4 + 4 2^-m) with m of mantissa (1/24, 1/80, 1/288), down to 2^-14 of the bucket's
 * largest.  So an optimizer that normalises (Adam) sees of every weight nearly what it would see
 * anyway.  What 8 bits do to a training was measured (docs/internals/progress.md), what fewer do
 * was not.  8 bits are E4M3 of "FP8 formats for deep learning" (Micikevicius et al. 2022), section
 * 3, but for codes above 1. */

#include "kernels/encoder.h"

#define BUCKET WEIR_MINIFLOAT_BUCKET
#define MANTISSA WEIR_MINIFLOAT_MANTISSA

static void encode_bucket(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  const unsigned bits = format->head.bits;
  float low, high;
  weir_cpu()->range(x, count, &low, &high);
  *scale = weir_bucket_largest(low, high);
  const float inverse = weir_minifloat_inverse(*scale);
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    const size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->draw_minifloats(x + done, part, inverse, MANTISSA(bits), key + (uint32_t)done,
                                code);
    weir_codes_write(code, part, bits, codes + done / 8 * bits);
  }
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  if (add)
    weir_cpu()->read_minifloats_add(code, count, *scale, MANTISSA(head->bits), to);
  else
    weir_cpu()->read_minifloats(code, count, *scale, MANTISSA(head->bits), to);
}

static const weir_unit_format any = {.head = {.unit = BUCKET, .codec = WEIR_CODEC_MINIFLOAT},
                                     .scales = 1,
                                     .encode = encode_bucket,
                                     .reach = weir_scale_reach,
                                     .decode = decode_piece};

WEIR_WIDTHS_ENCODER(any)

const weir_codec weir_codec_minifloat = {
    .id = WEIR_CODEC_MINIFLOAT,
    .name = "minifloat",
    .unbiased = true,
    .description =
        "buckets in floats of 4 bits of exponent, stochastic rounding (Horvath et al. 2019)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {WEIR_MINIFLOAT_LEAST, WEIR_MINIFLOAT_MOST},
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .device = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.8e-9, 0.4e-9, 0},
};
