/* none: every element travels as fp32; k = n whatever the ratio.  "DenseSGD" in the
 * flexible-communication paper (section 2-A). */
#include "kernels/internal.h"

size_t weir_none_kept(const weir_layout *layout, double cr) {
  (void)cr;
  return layout->offset[layout->tensors];
}
