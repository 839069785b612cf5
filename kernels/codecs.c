/* The table of codecs: one line each, in the order of weir_codec_id.  Their rows are in their
 * files. */
#include "kernels/codec.h"

extern const weir_codec weir_codec_none, weir_codec_bf16, weir_codec_lwtopk, weir_codec_mstopk,
    weir_codec_topk, weir_codec_star, weir_codec_var, weir_codec_fp16, weir_codec_qsgd,
    weir_codec_terngrad, weir_codec_onebit, weir_codec_efsignsgd, weir_codec_dgc, weir_codec_sidco,
    weir_codec_randomk, weir_codec_powersgd, weir_codec_qsgd_nearest, weir_codec_qsgd_l2,
    weir_codec_qsgd_l2_nearest, weir_codec_nonzero, weir_codec_nonzero_bf16, weir_codec_minifloat,
    weir_codec_companded, weir_codec_bilateral, weir_codec_whitened, weir_codec_dithered;

const weir_codec *const weir_codecs[WEIR_CODEC_COUNT] = {
    [WEIR_CODEC_NONE] = &weir_codec_none,
    [WEIR_CODEC_BF16] = &weir_codec_bf16,
    [WEIR_CODEC_LWTOPK] = &weir_codec_lwtopk,
    [WEIR_CODEC_MSTOPK] = &weir_codec_mstopk,
    [WEIR_CODEC_TOPK] = &weir_codec_topk,
    [WEIR_CODEC_STAR] = &weir_codec_star,
    [WEIR_CODEC_VAR] = &weir_codec_var,
    [WEIR_CODEC_FP16] = &weir_codec_fp16,
    [WEIR_CODEC_QSGD] = &weir_codec_qsgd,
    [WEIR_CODEC_TERNGRAD] = &weir_codec_terngrad,
    [WEIR_CODEC_ONEBIT] = &weir_codec_onebit,
    [WEIR_CODEC_EFSIGNSGD] = &weir_codec_efsignsgd,
    [WEIR_CODEC_DGC] = &weir_codec_dgc,
    [WEIR_CODEC_SIDCO] = &weir_codec_sidco,
    [WEIR_CODEC_RANDOMK] = &weir_codec_randomk,
    [WEIR_CODEC_POWERSGD] = &weir_codec_powersgd,
    [WEIR_CODEC_QSGD_NEAREST] = &weir_codec_qsgd_nearest,
    [WEIR_CODEC_QSGD_L2] = &weir_codec_qsgd_l2,
    [WEIR_CODEC_QSGD_L2_NEAREST] = &weir_codec_qsgd_l2_nearest,
    [WEIR_CODEC_NONZERO] = &weir_codec_nonzero,
    [WEIR_CODEC_NONZERO_BF16] = &weir_codec_nonzero_bf16,
    [WEIR_CODEC_MINIFLOAT] = &weir_codec_minifloat,
    [WEIR_CODEC_COMPANDED] = &weir_codec_companded,
    [WEIR_CODEC_BILATERAL] = &weir_codec_bilateral,
    [WEIR_CODEC_WHITENED] = &weir_codec_whitened,
    [WEIR_CODEC_DITHERED] = &weir_codec_dithered,
};

const weir_codec *weir_codec_find(uint32_t id) {
  return id < WEIR_CODEC_COUNT ? weir_codecs[id] : NULL;
}

const weir_codec *weir_codec_usual(uint32_t scheme) {
  uint32_t id = 0;
  while (id < WEIR_CODEC_COUNT && (weir_codecs[id]->usual >> scheme & 1) == 0) id++;
  return weir_codec_find(id);
}
