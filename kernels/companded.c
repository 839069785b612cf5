/* companded: buckets on a grid of squares, every element to the nearest value of the two beside it.
 *
 *   value j |j| s,   j = -T..T,  T = 2^(b-1) - 1,  s = max / T^2, rounded to bfloat16
 *
 * b is a whole number, or half a bit less than one, with T the largest for which 2 T + 1 values are
 * at most 2^b: 5 of 3.5 bits, 10 of 4.5.  Such codes take as many bits as those of whole ones, and
 * become shorter than these where they travel by how often they occur (wire huffman).
 *
 * max is the bucket's largest magnitude.  The step beside an element of size x is some
 * 2 sqrt(x max) / T: at zero, near which most of a gradient lies, it is T times as fine as that of
 * an even grid from -max to max, and at the ends less than twice as coarse ("companding": Bennett,
 * "Spectra of quantized signals", Bell System Technical Journal 27, 1948; with squares, for an
 * optimizer's state, the "linear square quantization" of Wang et al., "4-bit Shampoo for
 * Memory-Efficient Network Training", 2024).  One scale a bucket suffices where qsgd has two.  What
 * an element leaves is at most half a step, whatever the data, so residuals stay bounded under
 * error feedback, on which this codec depends: it is not unbiased. */
#include <math.h>

#include "kernels/encoder.h"

#define BUCKET WEIR_COMPANDED_BUCKET

static void encode_bucket(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  (void)key;
  const unsigned bits = format->head.bits;
  const int32_t top = weir_companded_top(bits, format->head.mode);
  float low, high;
  weir_cpu()->range(x, count, &low, &high);
  const float most = weir_companded_most(low, high, top);
  *scale = weir_companded_scale(most, top);
  const float inverse = weir_companded_inverse(*scale);
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    const size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->round_to_squares(x + done, part, inverse, top, code);
    weir_codes_write(code, part, bits, codes + done / 8 * bits);
  }
}

static double reach(const weir_encoded *head, const float *scale) {
  const double top = weir_companded_top(head->bits, head->mode);
  return *scale >= 0.0F ? (double)*scale * top * top : (double)INFINITY;
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  const int32_t top = weir_companded_top(head->bits, head->mode);
  if (add)
    weir_cpu()->read_squares_add(code, count, *scale, top, to);
  else
    weir_cpu()->read_squares(code, count, *scale, top, to);
}

static const weir_unit_format any = {.head = {.unit = BUCKET, .codec = WEIR_CODEC_COMPANDED},
                                     .scales = 1,
                                     .encode = encode_bucket,
                                     .reach = reach,
                                     .decode = decode_piece};

weir_unit_format weir_companded_format(unsigned bits) {
  weir_unit_format format = any;
  format.head.bits = (uint8_t)bits;
  return format;
}

WEIR_WIDTHS_ENCODER(any)

const weir_codec weir_codec_companded = {
    .id = WEIR_CODEC_COMPANDED,
    .name = "companded",
    .description = "buckets on a grid of squares, rounding to the nearest value",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {WEIR_COMPANDED_LEAST, WEIR_COMPANDED_MOST, .halves = WEIR_COMPANDED_LEAST},
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .short_scales = true,
    .device = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.5e-9, 0.3e-9, 0},
};
