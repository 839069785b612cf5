/* topk: the k = max(1, floor(c*n)) elements of largest |e| over the whole gradient, exactly; of
 * equal magnitudes the lower index is kept.  The Top-k of the flexible-communication paper (section
 * 2-C) over the fused gradient, travelling through an all-gather. */
#include "kernels/internal.h"

size_t weir_topk_kept(const weir_layout *layout, double cr) {
  return weir_kept_of(layout->offset[layout->tensors], cr);
}

weir_status weir_topk_select(weir_codec_context *context, const float *e, const weir_layout *layout,
                             double cr, uint32_t *index, size_t capacity, size_t *k) {
  return weir_select_whole(context, e, layout, cr, index, capacity, k, weir_topk_indices);
}

const weir_codec weir_codec_topk = {
    .id = WEIR_CODEC_TOPK,
    .name = "topk",
    .description = "exact top-k of the whole gradient",
    .schemes =
        WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_HITOPK) | WEIR_WITH(WEIR_SCHEME_PATH),
    .usual = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_HITOPK),
    .wires = WEIR_WIRES_ALL,
    .ahead = true,
    .device = true,
    .kept = weir_topk_kept,
    .select = weir_topk_select,
    .prior = {2e-5, 2e-9, 0, 4e-9},
};
