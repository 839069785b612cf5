/* lwtopk: LWTopk (flexible communication, sections 2-C and 2-C3), top-k layer by layer: of tensor t with n_t elements the max(1, floor(c*n_t)) of largest magnitude; an
 * empty tensor keeps none. All tensors' indices count from the start of the whole gradient. */
#include "kernels/internal.h"

size_t weir_lwtopk_kept(const weir_layout *layout, double cr) {
  size_t kept = 0;
  for (size_t t = 0; t < layout->tensors; t++) {
    kept += weir_kept_of(layout->offset[t + 1] - layout->offset[t], cr);
  }
  return kept;
}

weir_status weir_lwtopk_select(weir_codec_context *context, const float *e,
                               const weir_layout *layout, double cr, uint32_t *index,
                               size_t capacity, size_t *k) {
  size_t taken = 0;
  weir_status status = weir_select_check(layout, cr, weir_lwtopk_kept(layout, cr), capacity);
  for (size_t t = 0; status == WEIR_OK && t < layout->tensors; t++) {
    size_t offset = layout->offset[t];
    size_t numel = layout->offset[t + 1] - offset;
    size_t kept = weir_kept_of(numel, cr);
    status = weir_topk_indices(context, e + offset, numel, kept, (uint32_t)offset, index + taken);
    taken += kept;
  }
  *k = status == WEIR_OK ? taken : 0;
  return status;
}
