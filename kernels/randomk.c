/* randomk: k elements drawn at random (Stich, Cordonnier and Jaggi, "Sparsified SGD with memory",
 * 2018).  k = max(1, floor(c*n)), and every set of k indices is equally likely.  All ranks draw
 * from the same seed and hence the same set, so that values go through an all-reduce and no index
 * ever travels. */
#include "kernels/internal.h"

/* Mark count different elements out of n >= 2 count: a draw that hits a mark is drawn again, twice
 * on average at the most. */
static void draw_bitmap(uint64_t *bitmap, size_t n, size_t count, uint64_t seed) {
  uint64_t start = weir_draw_start(seed);
  size_t drawn = 0;
  for (uint64_t number = 0; drawn < count; number++) {
    uint64_t i = weir_draw_below(start, number, n);
    uint64_t bit = UINT64_C(1) << i % 64;
    drawn += (bitmap[i / 64] & bit) == 0;
    bitmap[i / 64] |= bit;
  }
}

static weir_status draw(weir_codec_context *context, const weir_layout *layout, double cr,
                        uint64_t seed, uint32_t *index, size_t capacity, size_t *k) {
  size_t n = layout->offset[layout->tensors];
  size_t kept = weir_topk_kept(layout, cr);
  size_t words = n / 64 + (n % 64 != 0);
  *k = 0;
  weir_status status = weir_select_check(layout, cr, kept, capacity);
  const bool lent = context->lent != NULL && words * sizeof(uint64_t) <= context->lent_bytes &&
                    (uintptr_t)context->lent % _Alignof(uint64_t) == 0;
  if (status == WEIR_OK && !lent) status = weir_context_bitmap(context, words);
  if (status != WEIR_OK) return status;
  uint64_t *bitmap = lent ? context->lent : context->bitmap;
  /* The smaller part is drawn, kept or left out. */
  bool out = kept > n / 2;
  memset(bitmap, 0, words * sizeof *bitmap);
  draw_bitmap(bitmap, n, out ? n - kept : kept, seed);
  size_t taken = 0;
  for (size_t w = 0; w < words; w++) {
    uint64_t left = out ? ~bitmap[w] : bitmap[w];
    if (w == n / 64) left &= (UINT64_C(1) << n % 64) - 1;
    for (; left != 0; left &= left - 1)
      index[taken++] = (uint32_t)(64 * w + (uint64_t)__builtin_ctzll(left));
  }
  *k = taken;
  return WEIR_OK;
}

const weir_codec weir_codec_randomk = {
    .id = WEIR_CODEC_RANDOMK,
    .name = "randomk",
    .description = "elements drawn from a seed all ranks share (Random-k)",
    .schemes = WEIR_WITH(WEIR_SCHEME_SHARED),
    .wires = WEIR_WIRES_SUMMED,
    .shared_indices = true,
    .device = true,
    .kept = weir_topk_kept,
    .draw = draw,
    .prior = {5e-6, 0.5e-9, 0, 4e-9},
};
