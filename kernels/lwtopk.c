/* lwtopk: LWTopk (flexible communication, sections 2-C and 2-C3), top-k layer by layer: of tensor t
 * with n_t elements the max(1, floor(c*n_t)) of largest magnitude; an empty tensor keeps none.  All
 * tensors' indices count from the start of the whole gradient. */
#include "kernels/internal.h"

size_t weir_lwtopk_kept(const weir_layout *layout, double cr) {
  size_t kept = 0;
  for (size_t t = 0; t < layout->tensors; t++)
    kept += weir_kept_of(layout->offset[t + 1] - layout->offset[t], cr);
  return kept;
}

static weir_status select_each(weir_codec_context *context, const float *e,
                               const weir_layout *layout, double cr, uint32_t *index,
                               size_t capacity, size_t *k) {
  return weir_select_tensors(context, e, layout, cr, index, capacity, k, weir_topk_indices);
}

const weir_codec weir_codec_lwtopk = {
    .id = WEIR_CODEC_LWTOPK,
    .name = "lwtopk",
    .description = "top-k of each tensor (flexible communication, section 2-C)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER),
    .wires = WEIR_WIRES_ALL,
    .by_tensor = true,
    .device = true,
    .kept = weir_lwtopk_kept,
    .select = select_each,
    .prior = {2e-5, 2e-9, 0, 4e-9},
};
