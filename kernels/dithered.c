/* dithered: an even grid that is shifted at random, by as much where it is read as where it was
 * written (subtractive dither: Roberts, "Picture coding using pseudo-random noise", 1962).
 *
 *   sent    q = round(x / s + u),   u drawn for every element, -1/2 to 1/2
 *   read    (q - u) s,              s = ||v||_2 / (5 2^(b-4)) of a bucket of 128, in bfloat16
 *
 * What that errs by has no bias and is the same whatever x is, s^2 / 12 in the mean square
 * (Schuchman, "Dither signals and their effect on quantization noise", 1964), where a draw between
 * the two values beside x errs by up to s^2 / 4.  So s may be longer by two fifths for the error
 * that qsgd-l2's draws make, 0.43 of the bucket's mean square with b = 4, and codes say less.  What
 * draws follow from travels in the message.
 *
 * Such codes are meant for wire huffman.  Who knows u knows what to expect of q: near 0 it is 0,
 * near 1/2 as likely 1, and hardly ever -1.  That makes codes shorter yet (entropy-coded dithered
 * quantization: Ziv, "On universal quantization", 1985), and without another table for every u:
 *
 *   - codes count towards the side that u lies on: of u < 0 the code is that of -q;
 *   - every pair of elements has one |u| below 1/4 and one above, and the first code of a pair is
 *     that of the first; which of the two elements that is, a bucket's draws say.  As two codes of
 *     4 bits make one symbol (entropy.h), both are coded by what is usual with such u.
 *
 * Of a normal distribution that comes to 1.16 bits with b = 4, where draws with as large an error
 * take 1.62.  With fewer bits residuals would grow: s^2 / 12 would be more than the mean square.
 * A zero is read as a part of s as well, and what that adds is taken back in the next step, by
 * error feedback: what gradients hardly ever touch is better sent by nonzero.  An element alone is
 * not dithered, and read as it was. */
#include <math.h>

#include "kernels/encoder.h"

enum { LEAST = 4, MOST = 8, UNIT = 128 };

static int32_t top_of(const weir_encoded *head) { return (1 << (head->bits - 1)) - 1; }

static weir_dither dither_of(const weir_encoded *head, float step, size_t count) {
  return (weir_dither){.step = step, .top = top_of(head), .spread = count > 1 ? 0x1p-25F : 0.0F};
}

/* No step: one that is denormal would have no inverse. */
static float step_over(const weir_encoded *head, const float *x, size_t count) {
  const double step = sqrt(weir_cpu()->sum_square(x, count)) / ldexp(5, head->bits - 4);
  return step >= (double)WEIR_GRID_LEAST ? weir_bf16_nearest((float)fmin(step, FLT_MAX / 256))
                                         : 0.0F;
}

/* Of every two the one that is shifted by less comes first; and back.  An odd number has one more
 * code. */
static void swap_pairs(uint8_t *code, size_t count, uint32_t key) {
  for (size_t i = 0; key % 2 != 0 && i < count; i += 2) {
    const uint8_t first = code[i];
    code[i] = code[i + 1];
    code[i + 1] = first;
  }
}

static void encode_bucket(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  const weir_encoded *head = &format->head;
  uint8_t code[UNIT];
  *scale = step_over(head, x, count);
  weir_cpu()->dither(x, count, dither_of(head, *scale, count), key, code);
  if (count % 2 != 0) code[count] = 0;
  swap_pairs(code, count, key);
  weir_codes_write(code, count + count % 2, head->bits, codes);
}

static double reach(const weir_encoded *head, const float *scale) {
  return *scale >= 0.0F ? (double)*scale * (top_of(head) + 0.5) : (double)INFINITY;
}

static void decode_bucket(const weir_encoded *head, const float *scale, uint32_t key,
                          const uint8_t *code, size_t count, float *to, bool add) {
  const weir_dither dither = dither_of(head, *scale, count);
  uint8_t ordered[UNIT];
  memcpy(ordered, code, count + count % 2);
  swap_pairs(ordered, count, key);
  if (add)
    weir_cpu()->read_dithered_add(ordered, count, dither, key, to);
  else
    weir_cpu()->read_dithered(ordered, count, dither, key, to);
}

static const weir_unit_format any = {.head = {.unit = UNIT, .codec = WEIR_CODEC_DITHERED},
                                     .scales = 1,
                                     .seeded = true,
                                     .encode = encode_bucket,
                                     .reach = reach,
                                     .decode = decode_bucket};

WEIR_WIDTHS_ENCODER(any)

const weir_codec weir_codec_dithered = {
    .id = WEIR_CODEC_DITHERED,
    .name = "dithered",
    .unbiased = true,
    .description = "on a grid shifted at random, which is taken back where it is read",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {LEAST, MOST},
    .spare_bits = 2.9,
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .short_scales = true,
    .seeded = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 1.2e-9, 0.8e-9, 0},
};
