/* Passes of the quantizers, written once in plain C and compiled once per version: the including
 * file defines TARGET (its target attribute), and the compiler vectorises for it.  Those named
 * plain_ do not vectorise well by themselves: the vector versions have their own, and end with
 * these.  Element by element there is nothing but single IEEE operations and integers, and sums run
 * in WEIR_LANES lanes by the contract of cpu.h, so every version gives the same bits. */
#ifndef WEIR_KERNELS_CPU_QUANTIZE_H
#define WEIR_KERNELS_CPU_QUANTIZE_H
#ifndef TARGET
#error "define TARGET first"
#endif

/* Position on the grid, from 0 to top; the comparisons also turn what overflowed into an end. */
TARGET static inline float grid_place(weir_grid grid, float top, float x) {
  float t = (x - grid.base) * grid.inverse + grid.zero;
  t = t > 0.0F ? t : 0.0F;
  return t < top ? t : top;
}

TARGET static void plain_quantize_nearest(const float *x, size_t n, weir_grid grid, uint8_t *code) {
  float top = (float)grid.top;
  for (size_t i = 0; i < n; i++) {
    float t = grid_place(grid, top, x[i]);
    int32_t below = (int32_t)t;
    code[i] = (uint8_t)(below + (t - (float)below > 0.5F));
  }
}

/* Up with the probability of the fraction, which is exact: a value on the grid stays there. */
TARGET static void plain_quantize_stochastic(const float *x, size_t n, weir_grid grid, uint32_t key,
                                             uint8_t *code) {
  float top = (float)grid.top;
  for (size_t i = 0; i < n; i++) {
    float t = grid_place(grid, top, x[i]);
    int32_t below = (int32_t)t;
    float u = (float)(int32_t)(weir_mix32(key + (uint32_t)i) >> 8) * 0x1p-24F;
    code[i] = (uint8_t)(below + (t - (float)below > u));
  }
}

TARGET static inline float spread_of_draw(weir_grid grid, float top, float x) {
  float t = grid_place(grid, top, x);
  float f = t - (float)(int32_t)t;
  return f * (1.0F - f);
}

TARGET static double spread_of_draws(const float *x, size_t n, weir_grid grid) {
  float top = (float)grid.top;
  float lanes[WEIR_LANES] = {0};
  double sums[WEIR_LANES];
  size_t i = 0;
  for (; i + WEIR_LANES <= n; i += WEIR_LANES) {
    for (size_t lane = 0; lane < WEIR_LANES; lane++)
      lanes[lane] += spread_of_draw(grid, top, x[i + lane]);
  }
  for (size_t lane = 0; i < n; i++, lane++) lanes[lane] += spread_of_draw(grid, top, x[i]);
  for (size_t lane = 0; lane < WEIR_LANES; lane++) sums[lane] = (double)lanes[lane];
  return weir_fold_lanes(sums);
}

TARGET static void plain_dequantize(const uint8_t *code, size_t n, weir_grid grid, float *to) {
  for (size_t i = 0; i < n; i++) {
    int32_t c = code[i] < grid.top ? code[i] : (int32_t)grid.top;
    to[i] = grid.base + ((float)c - grid.zero) * grid.step;
  }
}

TARGET static void plain_dequantize_add(const uint8_t *code, size_t n, weir_grid grid, float *to) {
  for (size_t i = 0; i < n; i++) {
    int32_t c = code[i] < grid.top ? code[i] : (int32_t)grid.top;
    to[i] += grid.base + ((float)c - grid.zero) * grid.step;
  }
}

TARGET static void draw_minifloats(const float *x, size_t n, float inverse, unsigned mantissa,
                                   uint32_t key, uint8_t *code) {
  for (size_t i = 0; i < n; i++)
    code[i] = weir_minifloat_code(x[i], inverse, mantissa, weir_mix32(key + (uint32_t)i));
}

TARGET static void read_minifloats(const uint8_t *code, size_t n, float scale, unsigned mantissa,
                                   float *to) {
  for (size_t i = 0; i < n; i++) to[i] = weir_minifloat_value(code[i], scale, mantissa);
}

TARGET static void read_minifloats_add(const uint8_t *code, size_t n, float scale,
                                       unsigned mantissa, float *to) {
  for (size_t i = 0; i < n; i++) to[i] += weir_minifloat_value(code[i], scale, mantissa);
}

TARGET static void round_to_squares(const float *x, size_t n, float inverse, int32_t top,
                                    uint8_t *code) {
  for (size_t i = 0; i < n; i++) code[i] = weir_companded_code(x[i], inverse, top);
}

TARGET static void read_squares(const uint8_t *code, size_t n, float scale, int32_t top,
                                float *to) {
  for (size_t i = 0; i < n; i++) to[i] = weir_companded_value(code[i], scale, top);
}

TARGET static void read_squares_add(const uint8_t *code, size_t n, float scale, int32_t top,
                                    float *to) {
  for (size_t i = 0; i < n; i++) to[i] += weir_companded_value(code[i], scale, top);
}

/* --- dithered (kernels/dithered.c) ------------------------------------------------------------ */

/* Of element i: which way the grid is shifted, as the sign bit of a float, and by how much: by 24
 * bits, of which the first says which one of its pair it is. */
TARGET static inline float shift_of(weir_dither grid, uint32_t key, size_t i, uint32_t *sign) {
  const uint32_t draw = weir_mix32(key + (uint32_t)i), outer = ((uint32_t)i ^ key) & 1;
  *sign = draw & UINT32_C(0x80000000);
  return (float)(int32_t)((draw >> 8 & 0x7fffff) | outer << 23) * grid.spread;
}

TARGET static inline float turned(float x, uint32_t sign) {
  return weir_float_of(weir_bits_of(x) ^ sign);
}

TARGET static void dither(const float *x, size_t n, weir_dither grid, uint32_t key, uint8_t *code) {
  const float inverse = grid.step > 0.0F ? 1.0F / grid.step : 0.0F, top = (float)grid.top;
  for (size_t i = 0; i < n; i++) {
    uint32_t sign;
    const float shift = shift_of(grid, key, i, &sign);
    float t = turned(x[i], sign) * inverse + shift;
    t = t > -top ? t : -top; /* of NaN, too */
    t = t < top ? t : top;
    code[i] = (uint8_t)(int32_t)(t + (top + 0.5F));
  }
}

TARGET static inline float dithered_value(uint8_t code, weir_dither grid, uint32_t key, size_t i) {
  uint32_t sign;
  const float shift = shift_of(grid, key, i, &sign);
  const int32_t q = code < 2 * grid.top ? code : 2 * grid.top;
  return turned(((float)(q - grid.top) - shift) * grid.step, sign) + 0.0F; /* no -0 */
}

TARGET static void read_dithered(const uint8_t *code, size_t n, weir_dither grid, uint32_t key,
                                 float *to) {
  for (size_t i = 0; i < n; i++) to[i] = dithered_value(code[i], grid, key, i);
}

TARGET static void read_dithered_add(const uint8_t *code, size_t n, weir_dither grid, uint32_t key,
                                     float *to) {
  for (size_t i = 0; i < n; i++) to[i] += dithered_value(code[i], grid, key, i);
}

/* --- whitened (kernels/whitened.h) ------------------------------------------------------------ */

/* Squares in units of 2^-40: those of what is below 1e-25 are 0, and those above 1e13 all alike.
 * Of late: of 16 steps.  They begin with 0, all alike, so that their shares of one another are
 * right from the first step on. */
TARGET static void follow_squares(const float *average, size_t n, uint16_t *square) {
  for (size_t i = 0; i < n; i++) {
    const float x = average[i] * 0x1p20F, before = weir_float_of((uint32_t)square[i] << 16);
    const uint32_t bits = weir_bits_of(before + (x * x - before) * 0.0625F);
    const uint32_t half = (bits + 0x7fffU + (bits >> 16 & 1)) >> 16; /* to the nearest */
    square[i] = (uint16_t)(half < WEIR_SQUARE_MOST ? half : WEIR_SQUARE_MOST);
  }
}

/* A square's exponent, halved, is its root's to the nearest, but for a constant; and how far it is
 * below that of the largest of the block, as a binary logarithm, 8 at the most, and 3 where nothing
 * is known. */
TARGET static inline uint32_t below_most(uint16_t square, uint32_t top) {
  const uint32_t below = top - (square >> 8), known = square > 0 ? below : 3;
  return known < 8 ? known : 8;
}

TARGET static void whiten_block(const uint16_t *square, size_t n, bool back, float *x) {
  uint16_t most = 0;
  for (size_t i = 0; i < n; i++) most = square[i] > most ? square[i] : most;
  const uint32_t top = most >> 8;
  if (!back) {
    for (size_t i = 0; i < n; i++)
      x[i] *= weir_float_of((127 - 8 + below_most(square[i], top)) << 23);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    float y = x[i] * weir_float_of((127 + 8 - below_most(square[i], top)) << 23);
    y = y < FLT_MAX ? y : FLT_MAX;
    x[i] = y > -FLT_MAX ? y : -FLT_MAX;
  }
}

TARGET static void whiten(const uint16_t *square, size_t n, bool back, float *x) {
  size_t at = 0;
  for (; at + WEIR_WHITENED_BLOCK <= n; at += WEIR_WHITENED_BLOCK)
    whiten_block(square + at, WEIR_WHITENED_BLOCK, back, x + at);
  whiten_block(square + at, n - at, back, x + at);
}

/* 1 for a negative element (by its sign bit), else 0. */
TARGET static void signs(const float *x, size_t n, uint8_t *code) {
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    code[i] = (uint8_t)(bits >> 31);
  }
}

TARGET static void halves(const float *x, size_t n, float *restrict plus, float *restrict minus) {
  for (size_t i = 0; i < n; i++) {
    plus[i] = x[i] > 0.0F ? x[i] : 0.0F;
    minus[i] = x[i] < 0.0F ? x[i] : 0.0F;
  }
}

TARGET static void ternary_sums(const float *x, const uint8_t *code, size_t n, double *sum,
                                size_t *fired) {
  double lanes[WEIR_LANES] = {0};
  uint32_t hits = 0;
  size_t i = 0;
  for (; i + WEIR_LANES <= n; i += WEIR_LANES) {
    for (size_t lane = 0; lane < WEIR_LANES; lane++)
      lanes[lane] += (double)(x[i + lane] * (float)((int32_t)code[i + lane] - 1));
  }
  for (size_t lane = 0; i < n; i++, lane++)
    lanes[lane] += (double)(x[i] * (float)((int32_t)code[i] - 1));
  for (i = 0; i < n; i++) hits += code[i] != 1;
  *sum += weir_fold_lanes(lanes);
  *fired += hits;
}

TARGET static void choose(const uint8_t *code, size_t n, float zero, float one, float *to) {
  for (size_t i = 0; i < n; i++) to[i] = code[i] != 0 ? one : zero;
}

TARGET static void choose_add(const uint8_t *code, size_t n, float zero, float one, float *to) {
  for (size_t i = 0; i < n; i++) to[i] += code[i] != 0 ? one : zero;
}

/* Eight codes of 8 bits, the first in the lowest byte, drawn together to bits each: neighbours in
 * pairs, pairs in fours, fours in eights. */
TARGET static inline uint64_t draw_together(uint64_t w, unsigned bits) {
  unsigned gap = 8 - bits;
  w = (w & UINT64_C(0x00ff00ff00ff00ff)) | (w & UINT64_C(0xff00ff00ff00ff00)) >> gap;
  w = (w & UINT64_C(0x0000ffff0000ffff)) | (w & UINT64_C(0xffff0000ffff0000)) >> 2 * gap;
  return (w & UINT64_C(0x00000000ffffffff)) | (w & UINT64_C(0xffffffff00000000)) >> 4 * gap;
}

/* And apart again; what lies above the eight codes in w is dropped. */
TARGET static inline uint64_t draw_apart(uint64_t w, unsigned bits) {
  unsigned gap = 8 - bits;
  uint64_t quarter = (UINT64_C(1) << 4 * bits) - 1;
  uint64_t pair = ((UINT64_C(1) << 2 * bits) - 1) * UINT64_C(0x0000000100000001);
  uint64_t one = ((UINT64_C(1) << bits) - 1) * UINT64_C(0x0001000100010001);
  w = (w & quarter) | (w & quarter << 4 * bits) << 4 * gap;
  w = (w & pair) | (w & pair << 2 * bits) << 2 * gap;
  return (w & one) | (w & one << bits) << gap;
}

/* Of these first groups whole words may be written or read: they end within the packed side. */
static inline size_t in_words(size_t groups, unsigned bits) {
  size_t last = (8 + bits - 1) / bits - 1;
  return groups > last ? groups - last : 0;
}

/* Whole words go out, each over the end of the one before; the last groups byte by byte. */
TARGET static void plain_pack(const uint8_t *code, size_t groups, unsigned bits, uint8_t *out) {
  size_t words = in_words(groups, bits);
  uint64_t w;
  for (size_t g = 0; g < words; g++) {
    memcpy(&w, code + 8 * g, sizeof w);
    w = draw_together(w, bits);
    memcpy(out + bits * g, &w, sizeof w);
  }
  for (size_t g = words; g < groups; g++) {
    memcpy(&w, code + 8 * g, sizeof w);
    w = draw_together(w, bits);
    for (size_t byte = 0; byte < bits; byte++) out[bits * g + byte] = (uint8_t)(w >> 8 * byte);
  }
}

TARGET static void plain_unpack(const uint8_t *in, size_t groups, unsigned bits, uint8_t *code) {
  size_t words = in_words(groups, bits);
  uint64_t w;
  for (size_t g = 0; g < words; g++) {
    memcpy(&w, in + bits * g, sizeof w);
    w = draw_apart(w, bits);
    memcpy(code + 8 * g, &w, sizeof w);
  }
  for (size_t g = words; g < groups; g++) {
    w = 0;
    for (size_t byte = 0; byte < bits; byte++) w |= (uint64_t)in[bits * g + byte] << 8 * byte;
    w = draw_apart(w, bits);
    memcpy(code + 8 * g, &w, sizeof w);
  }
}

TARGET static void plain_fp16_encode(const float *x, size_t n, uint8_t *out) {
  for (size_t i = 0; i < n; i++) {
    uint16_t half = weir_fp16_bits(x[i]);
    memcpy(out + 2 * i, &half, sizeof half);
  }
}

TARGET static inline uint16_t half_at(const uint8_t *x, size_t i) {
  uint16_t half;
  memcpy(&half, x + 2 * i, sizeof half);
  return half;
}

TARGET static void plain_fp16_decode(const uint8_t *x, size_t n, float *to, weir_decoding how) {
  for (size_t i = 0; how == WEIR_DECODE_STORE && i < n; i++) to[i] = weir_fp16_value(half_at(x, i));
  for (size_t i = 0; how == WEIR_DECODE_ADD && i < n; i++) to[i] += weir_fp16_value(half_at(x, i));
  for (size_t i = 0; how == WEIR_DECODE_SUBTRACT && i < n; i++)
    to[i] -= weir_fp16_value(half_at(x, i));
}

TARGET static bool fp16_finite(const uint8_t *x, size_t n) {
  enum { BLOCK = 4096 };
  uint16_t special = 0;
  for (size_t at = 0; at < n && special == 0; at += BLOCK) {
    size_t part = n - at < BLOCK ? n - at : BLOCK;
    for (size_t i = at; i < at + part; i++) special |= (half_at(x, i) & 0x7c00U) == 0x7c00U;
  }
  return special == 0;
}

#define WEIR_QUANTIZER_OPS                                                                  \
  .signs = signs, .halves = halves, .ternary_sums = ternary_sums,                           \
  .spread_of_draws = spread_of_draws, .choose = choose, .choose_add = choose_add,           \
  .fp16_finite = fp16_finite, .draw_minifloats = draw_minifloats,                           \
  .read_minifloats = read_minifloats, .read_minifloats_add = read_minifloats_add,           \
  .round_to_squares = round_to_squares, .read_squares = read_squares,                       \
  .read_squares_add = read_squares_add, .follow_squares = follow_squares, .whiten = whiten, \
  .dither = dither, .read_dithered = read_dithered, .read_dithered_add = read_dithered_add

#endif
