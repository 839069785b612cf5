/* bf16: every element travels as bfloat16 (Kalamkar et al., "A study of BFLOAT16 for deep learning
 * training", 2019), k = n.  bfloat16 is the upper half of a float; rounding
 * is to nearest, ties to even: (u + 0x7fff + bit 16 of u) >> 16.  What rounding takes away goes to
 * the residual, error += x - bf16(x), which is exact in fp32 (both share the exponent range and the
 * difference has at most 16 significant bits).  Its row keeps like "none". */
#include "kernels/internal.h"

void weir_bf16_encode(const float *x, size_t n, uint16_t *out, float *error) {
  weir_cpu()->bf16_encode(x, n, out, error);
}

void weir_bf16_decode(const uint16_t *x, size_t n, float *out) {
  weir_cpu()->bf16_decode((const uint8_t *)x, n, out);
}

const weir_codec weir_codec_bf16 = {
    .id = WEIR_CODEC_BF16,
    .name = "bf16",
    .unbiased = true,
    .description = "every element as bfloat16, rounding kept in the residual",
    .schemes = WEIR_WITH(WEIR_SCHEME_DENSE),
    .dense = true,
    .rounds = true,
    .device = true,
    .kept = weir_none_kept,
    .prior = {5e-6, 0.6e-9, 0, 0},
};
