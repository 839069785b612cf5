/* The table of codecs: one row each, in the order of weir_codec_id. */
#include "kernels/internal.h"

const weir_codec weir_codecs[WEIR_CODEC_COUNT] = {
    {.id = WEIR_CODEC_NONE,
     .name = "none",
     .description = "every element as fp32",
     .dense = true,
     .kept = weir_none_kept},
    {.id = WEIR_CODEC_BF16,
     .name = "bf16",
     .description = "every element as bfloat16, rounding kept in the residual",
     .dense = true,
     .kept = weir_none_kept},
    {.id = WEIR_CODEC_LWTOPK,
     .name = "lwtopk",
     .description = "top-k of each tensor (flexible communication, section 2-C)",
     .kept = weir_lwtopk_kept,
     .select = weir_lwtopk_select},
    {.id = WEIR_CODEC_MSTOPK,
     .name = "mstopk",
     .description = "threshold search over the whole gradient (MSTopK, algorithm 1)",
     .kept = weir_topk_kept,
     .select = weir_mstopk_select},
    {.id = WEIR_CODEC_TOPK,
     .name = "topk",
     .description = "exact top-k of the whole gradient",
     .kept = weir_topk_kept,
     .select = weir_topk_select},
    {.id = WEIR_CODEC_STAR,
     .name = "star",
     .description = "top-k indices of rank step mod N (STAR-Topk, algorithm 1)",
     .shared_indices = true,
     .kept = weir_topk_kept,
     .select = weir_star_select},
    {.id = WEIR_CODEC_VAR,
     .name = "var",
     .description = "top-k indices of the rank of largest variance (VAR-Topk, algorithm 1)",
     .shared_indices = true,
     .kept = weir_topk_kept,
     .select = weir_var_select},
};

const weir_codec *weir_codec_find(uint32_t id) {
  return id < WEIR_CODEC_COUNT ? &weir_codecs[id] : NULL;
}
