/* efsignsgd: EF-signSGD (Karimireddy et al., "Error feedback fixes SignSGD and other gradient
 * compression schemes", 2019, algorithm 1).  Per tensor of d elements,
 *
 *   decode(encode(e)) = (||e||_1 / d) sign(e),   sign(0) = 1, sign(-0) = -1
 *
 * whose squared error is ||e||^2 - ||e||_1^2 / d.  The residual is the caller's, as always. */

#include "kernels/encoder.h"

static void encode_tensor(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  (void)format;
  (void)key;
  double sum;
  uint32_t bits;
  weir_cpu()->abs_sum_max(x, count, &sum, &bits);
  *scale = (float)(sum / (double)count);
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->signs(x + done, part, code);
    weir_codes_write(code, part, 1, codes + done / 8);
  }
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  (void)head;
  if (add) {
    weir_cpu()->choose_add(code, count, *scale, -*scale, to);
  } else {
    weir_cpu()->choose(code, count, *scale, -*scale, to);
  }
}

static const weir_unit_format format = {.head = {.codec = WEIR_CODEC_EFSIGNSGD, .bits = 1},
                                        .scales = 1,
                                        .encode = encode_tensor,
                                        .reach = weir_scale_reach,
                                        .decode = decode_piece};

WEIR_FIXED_ENCODER(format)

const weir_codec weir_codec_efsignsgd = {
    .id = WEIR_CODEC_EFSIGNSGD,
    .name = "efsignsgd",
    .description = "sign times mean magnitude (EF-signSGD, algorithm 1)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {1, 1},
    .by_tensor = true,
    .rereads = 1,
    .device = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.6e-9, 0.2e-9, 0},
};
