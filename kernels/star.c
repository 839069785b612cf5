/* star: STAR-Topk, staleness-based AR-Topk (flexible communication, section 3-B, algorithm 1
 * line 8). Rank step mod N is the root, so that each sends its own best once in N steps; the
 * indices are the exact top-k of the root's own error-fed gradient, and every rank sends its
 * values at those indices through an all-reduce. Selecting is therefore topk's; who selects is
 * the engine's business. */
#include "kernels/internal.h"

weir_status weir_star_select(weir_codec_context *context, const float *e, const weir_layout *layout,
                             double cr, uint32_t *index, size_t capacity, size_t *k) {
  return weir_topk_select(context, e, layout, cr, index, capacity, k);
}
