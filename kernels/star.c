/* star: STAR-Topk, staleness-based AR-Topk (flexible communication, section 3-B, algorithm 1
 * line 8). Rank step mod N is the root, so that each sends its own best once in N steps; the
 * indices are the exact top-k of the root's own error-fed gradient, and every rank sends its
 * values at those indices through an all-reduce. Selecting is therefore topk's; who selects is
 * the engine's business. */
#include "kernels/internal.h"

const weir_codec weir_codec_star = {
    .id = WEIR_CODEC_STAR,
    .name = "star",
    .description = "top-k indices of rank step mod N (STAR-Topk, algorithm 1)",
    .schemes = WEIR_WITH(WEIR_SCHEME_SHARED),
    .usual = WEIR_WITH(WEIR_SCHEME_SHARED),
    .wires = WEIR_WIRES_SUMMED,
    .shared_indices = true,
    .ahead = true,
    .device = true,
    .kept = weir_topk_kept,
    .select = weir_topk_select,
    .prior = {2e-5, 2e-9, 0, 4e-9},
};
