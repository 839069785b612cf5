/* terngrad: TernGrad (Wen et al., "TernGrad: ternary gradients to reduce communication in
 * distributed deep learning", 2017).  Per tensor, every element becomes t = -1, 0 or 1:
 *
 *   clip    |x| <= 2.5 sigma, sigma the root mean square (the paper takes the mean as zero)
 *   t_i     sign(x_i) with probability |x_i| / s, else 0;  s = max |x_i| after clipping
 *   decode  t_i times a scale
 *
 * The paper's scale is s, which makes the decoded value unbiased.  Under error feedback that scale
 * does harm: its squared error is sum |x|(s - |x|), for Gaussian gradients (0.8 s/sigma - 1)
 * ||x||^2, so that the residual grows until it dwarfs the gradient (measured, 1000 steps: 419 times
 * the gradient's energy when clipped, 564 times when not).  A plan therefore sends the
 * least-squares scale <x, t> / <t, t>, the mean magnitude of the elements that fired, whose error
 * ||x||^2 - <x,t>^2 / <t,t> is below ||x||^2 as soon as one fires (measured: 1.1 times). */
#include <math.h>

#include "kernels/cpu/ahead.h"
#include "kernels/encoder.h"

#define CLIP 2.5

/* head.mode */
#define MODE_UNCLIPPED 1U
#define MODE_UNBIASED 2U

static weir_grid grid_of(float scale) {
  return (weir_grid){.base = 0.0F, .step = scale, .zero = 1.0F, .top = 2};
}

static float largest(const weir_encoded *head, const float *x, size_t count) {
  double sum;
  uint32_t bits;
  weir_cpu()->abs_sum_max(x, count, &sum, &bits);
  double s = (double)weir_float_of(bits);
  if (!(head->mode & MODE_UNCLIPPED))
    s = fmin(s, CLIP * sqrt(weir_cpu()->sum_square(x, count) / (double)count));
  return weir_grid_limit(s);
}

static void encode_tensor(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  float s = largest(&format->head, x, count);
  weir_grid grid = grid_of(s);
  grid.inverse = s >= WEIR_GRID_LEAST ? 1.0F / s : 0.0F;
  size_t fired = 0;
  double sum = 0.0;
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    fetch_all(x + done, WEIR_PIECE, part);
    weir_cpu()->quantize_stochastic(x + done, part, grid, key + (uint32_t)done, code);
    weir_cpu()->ternary_sums(x + done, code, part, &sum, &fired);
    weir_codes_write(code, part, format->head.bits, codes + done / 8 * format->head.bits);
  }
  *scale = format->head.mode & MODE_UNBIASED ? (fired > 0 ? s : 0.0F)
                                             : weir_grid_limit(fired > 0 ? sum / (double)fired : 0);
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  (void)head;
  if (add) {
    weir_cpu()->dequantize_add(code, count, grid_of(*scale), to);
  } else {
    weir_cpu()->dequantize(code, count, grid_of(*scale), to);
  }
}

/* What a plan sends: clipped, with the least-squares scale. */
static const weir_unit_format format = {.head = {.codec = WEIR_CODEC_TERNGRAD, .bits = 2},
                                        .modes = MODE_UNCLIPPED | MODE_UNBIASED,
                                        .scales = 1,
                                        .encode = encode_tensor,
                                        .reach = weir_scale_reach,
                                        .decode = decode_piece};

weir_status weir_terngrad_encode_with(const float *e, const weir_layout *layout,
                                      weir_terngrad_options options, uint64_t seed, void *out,
                                      size_t capacity, size_t *bytes) {
  weir_unit_format other = format;
  other.head.mode = (options.clip ? 0 : MODE_UNCLIPPED) | (options.unbiased ? MODE_UNBIASED : 0);
  return weir_units_encode(NULL, &other, e, layout, seed, out, capacity, bytes);
}

WEIR_FIXED_ENCODER(format)

const weir_codec weir_codec_terngrad = {
    .id = WEIR_CODEC_TERNGRAD,
    .name = "terngrad",
    .description = "-s, 0 or s per element (TernGrad, algorithm 1)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {2, 2},
    .by_tensor = true,
    .rereads = 1, /* its third pass is held up by arithmetic */
    .device = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 1e-9, 0.2e-9, 0},
};
