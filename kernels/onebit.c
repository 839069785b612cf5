/* onebit: 1-bit SGD (Seide et al., "1-bit stochastic gradient descent and its application to
 * data-parallel distributed training of speech DNNs", 2014).  Per tensor, every element travels as
 * its sign bit and is decoded to the mean of the elements of that sign, which is the value of
 * least squared error for each of the two halves.  The paper takes the means per column of a
 * weight matrix; Weir does not know shapes and takes them per tensor. */
#include <math.h>

#include "kernels/encoder.h"

/* sum[0] += the positive elements, sum[1] += the negative ones. */
static void add_sums(const float *x, size_t count, double sum[2]) {
  float plus[WEIR_PIECE];
  float minus[WEIR_PIECE];
  double part;
  uint32_t largest;
  weir_cpu()->halves(x, count, plus, minus);
  weir_cpu()->abs_sum_max(plus, count, &part, &largest);
  sum[0] += part;
  weir_cpu()->abs_sum_max(minus, count, &part, &largest);
  sum[1] -= part;
}

static void encode_tensor(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  (void)format;
  (void)key;
  double sum[2] = {0.0, 0.0};
  size_t negative = 0;
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->signs(x + done, part, code);
    add_sums(x + done, part, sum);
    for (size_t i = 0; i < part; i++) negative += code[i];
    weir_codes_write(code, part, 1, codes + done / 8);
  }
  scale[0] = negative < count ? (float)(sum[0] / (double)(count - negative)) : 0.0F;
  scale[1] = negative > 0 ? (float)(sum[1] / (double)negative) : 0.0F;
}

static double reach(const weir_encoded *head, const float *scale) {
  (void)head;
  double plus = fabs((double)scale[0]);
  double minus = fabs((double)scale[1]);
  return plus > minus || isnan(plus) ? plus : minus;
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  (void)head;
  if (add) {
    weir_cpu()->choose_add(code, count, scale[0], scale[1], to);
  } else {
    weir_cpu()->choose(code, count, scale[0], scale[1], to);
  }
}

static const weir_unit_format format = {.head = {.codec = WEIR_CODEC_ONEBIT, .bits = 1},
                                        .scales = 2,
                                        .encode = encode_tensor,
                                        .reach = reach,
                                        .decode = decode_piece};

WEIR_FIXED_ENCODER(format)

const weir_codec weir_codec_onebit = {
    .id = WEIR_CODEC_ONEBIT,
    .name = "onebit",
    .description = "sign and the mean of either sign (1-bit SGD, Seide et al. 2014)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {1, 1},
    .by_tensor = true,
    .device = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.7e-9, 0.2e-9, 0},
};
