/* whitened: elements in units of what each of them usually is, on an even grid, to the nearest.
 *
 * After every step all ranks hold the same average, and so the same mean square of every element's
 * averages of late.  In units of the root of it, to a power of two, all elements of a bucket are
 * alike, and an even grid errs by the same share of each:
 *
 *   value j s,   j = -T..T,  T = 2^(b-1) - 1,  s = the larger of 0.7 2^(4-b) root mean squares of
 *                                                  128 and the bucket's largest / T, in bfloat16
 *
 * That is what an optimizer asks for that divides by the root of a mean square (Adam): how far
 * rounding errs beside the largest elements does not matter to the small ones, whose steps are as
 * long.  Of a normal distribution such codes have an entropy of 2.59 bits with b = 4, and of one
 * more with each bit more, and so they are meant for wire huffman (uniform quantizers with entropy
 * coding: Gish and Pierce, "Asymptotically Efficient Quantizing", 1968).  Scales that follow what
 * sender and receiver both have need not travel ("backward adaptive": Jayant, "Adaptive
 * Quantization with a One-Word Memory", 1973).
 *
 * What is not known yet counts as an eighth of the largest beside it: what is smaller yet comes to
 * be sent, and so known, after a few steps, and what is as large is no more than 8 of its units, by
 * which 4 bits still tell the others from nothing.  A plan that begins in the middle of a training
 * finds all of it unknown, which costs some loss, and so it is followed from the first step on
 * where such a plan may come (weir_engine_config.follows; docs/reference/performance.md, "In units
 * of what elements usually are").
 *
 * To the nearest, without a wider zero: that would take fewer bits yet, and sends everything late.
 *
 * A bucket whose largest is far beyond its root mean square has a step as long as that asks for, so
 * that what comes rarely (an embedding's row) is sent when it comes; and nothing errs by more than
 * half a step, by which residuals stay bounded. */
#include "kernels/whitened.h"

#include <float.h>
#include <math.h>

#include "kernels/encoder.h"
#include "kernels/number.h"

enum { LEAST = 3, MOST = 8, UNIT = 128 };

/* --- units of 128 elements -------------------------------------------------------------------- */

static weir_grid grid_of(const weir_encoded *head, float step) {
  const unsigned top = (1U << (head->bits - 1)) - 1;
  return (weir_grid){.step = step, .zero = (float)top, .top = (uint8_t)(2 * top)};
}

/* A short bucket's missing elements are 0, so that its step is finer, and one element alone is sent
 * as it is.  No step: one that is denormal would have no inverse. */
static float step_over(const weir_encoded *head, const float *x, size_t count) {
  const double root = sqrt(weir_cpu()->sum_square(x, count) / UNIT);
  float low, high;
  weir_cpu()->range(x, count, &low, &high);
  const double most = (double)weir_bucket_largest(low, high), top = (1U << (head->bits - 1)) - 1;
  const double step = fmax(ldexp(0.7, 4 - (int)head->bits) * root, most / top);
  return step >= WEIR_GRID_LEAST ? weir_bf16_nearest((float)fmin(step, FLT_MAX / 256)) : 0.0F;
}

static void encode_bucket(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  (void)key;
  const weir_encoded *head = &format->head;
  *scale = step_over(head, x, count);
  weir_grid grid = grid_of(head, *scale);
  grid.inverse = *scale > 0.0F ? 1.0F / *scale : 0.0F;
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    const size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->quantize_nearest(x + done, part, grid, code);
    weir_codes_write(code, part, head->bits, codes + done / 8 * head->bits);
  }
}

static double reach(const weir_encoded *head, const float *scale) {
  const double top = (1U << (head->bits - 1)) - 1;
  return *scale >= 0.0F ? (double)*scale * top : (double)INFINITY;
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  const weir_grid grid = grid_of(head, *scale);
  if (add)
    weir_cpu()->dequantize_add(code, count, grid, to);
  else
    weir_cpu()->dequantize(code, count, grid, to);
}

static const weir_unit_format any = {.head = {.unit = UNIT, .codec = WEIR_CODEC_WHITENED},
                                     .scales = 1,
                                     .encode = encode_bucket,
                                     .reach = reach,
                                     .decode = decode_piece};

WEIR_WIDTHS_ENCODER(any)

const weir_codec weir_codec_whitened = {
    .id = WEIR_CODEC_WHITENED,
    .name = "whitened",
    .description = "in units of what each element usually is, on an even grid, to the nearest",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {LEAST, MOST},
    .spare_bits = 1.4,
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .short_scales = true,
    .whitened = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 1.5e-9, 0.3e-9, 0},
};

/* --- what elements usually are ---------------------------------------------------------------- */

void weir_squares_follow(uint16_t *square, const float *average, size_t n) {
  weir_cpu()->follow_squares(average, n, square);
}

void weir_whiten(float *x, const uint16_t *square, size_t n) {
  weir_cpu()->whiten(square, n, false, x);
}

void weir_unwhiten(float *x, const uint16_t *square, size_t n) {
  weir_cpu()->whiten(square, n, true, x);
}
