/* none: every element travels as fp32; k = n whatever the ratio.  The baseline of every paper
 * cited here ("DenseSGD" in the flexible-communication paper, table of section 2). */
#include "kernels/internal.h"

size_t weir_none_kept(const weir_layout *layout, double cr) {
  (void)cr;
  return layout->offset[layout->tensors];
}
