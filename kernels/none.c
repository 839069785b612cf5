/* none: every element travels as fp32; k = n whatever the ratio.  "DenseSGD" in the
 * flexible-communication paper (section 2-A). */
#include "kernels/internal.h"

size_t weir_none_kept(const weir_layout *layout, double cr) {
  (void)cr;
  return layout->offset[layout->tensors];
}

const weir_codec weir_codec_none = {
    .id = WEIR_CODEC_NONE,
    .name = "none",
    .unbiased = true,
    .description = "every element as fp32",
    .schemes = WEIR_WITH(WEIR_SCHEME_DENSE) | WEIR_WITH(WEIR_SCHEME_PATH),
    .usual = WEIR_WITH(WEIR_SCHEME_DENSE),
    .dense = true,
    .device = true,
    .kept = weir_none_kept,
    .prior = {5e-6, 0.3e-9, 0, 0},
};
