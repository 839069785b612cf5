/* randomk (Stich, Cordonnier and Jaggi 2018): the set that kernels/randomk.c draws, drawn by all
 * threads together.  There, draws go on until as many different elements are marked as are wanted;
 * whatever has been marked, as many more draws as are still missing will all be needed.  So a pass
 * makes just these, which leaves the elements drawn twice as missing, and a few passes later a
 * single block makes the rest. */
#include "kernels/cuda/codecs.cuh"

constexpr unsigned PASSES = 8;

/* Fields of the search's state, which the draws need not beside. */
struct draws {
  unsigned long long made; /* before this pass */
  uint32_t missing;
  uint32_t marked;  /* in this pass */
  uint32_t arrived; /* blocks */
};

/* Marks an element: 1, or 0 when it was marked already. */
__device__ static inline uint32_t mark_draw(uint32_t *bitmap, uint64_t start, uint64_t number,
                                            uint32_t n) {
  uint32_t at = weir_draw_below(start, number, n);
  uint32_t bit = 1U << at % 32;
  return (atomicOr(&bitmap[at / 32], bit) & bit) == 0;
}

__global__ static void begin_draws(draws *state, uint32_t count) { *state = draws{0, count, 0, 0}; }

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    draw_pass(uint32_t *bitmap, uint64_t start, uint32_t n, draws *state) {
  uint32_t missing = state->missing;
  unsigned long long made = state->made;
  uint32_t mine = 0;
  WEIR_CUDA_EACH(i, missing) { mine += mark_draw(bitmap, start, made + i, n); }
  uint32_t total;
  (void)weir_block_before(mine, &total);
  if (threadIdx.x != 0) return;
  atomicAdd(&state->marked, total);
  __threadfence();
  if (atomicAdd(&state->arrived, 1U) + 1 == gridDim.x) { /* the last block */
    __threadfence();
    uint32_t marked = atomicAdd(&state->marked, 0U);
    *state = draws{made + missing, missing - marked, 0, 0};
  }
}

/* One block, until nothing is missing. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    draw_rest(uint32_t *bitmap, uint64_t start, uint32_t n, const draws *state) {
  uint32_t missing = state->missing;
  unsigned long long made = state->made;
  while (missing > 0) {
    uint32_t mine = 0;
    for (uint32_t i = threadIdx.x; i < missing; i += WEIR_CUDA_BLOCK)
      mine += mark_draw(bitmap, start, made + i, n);
    uint32_t total;
    (void)weir_block_before(mine, &total);
    made += missing;
    missing -= total;
  }
}

/* --- from a bitmap to indices ----------------------------------------------------------------- */

constexpr unsigned TILE_WORDS = WEIR_TILE / 32;

/* A word of the bitmap; out: of what is not marked. */
__device__ static inline uint32_t bitmap_of(const uint32_t *bitmap, size_t word, size_t n,
                                            bool out) {
  if (32 * word >= n) return 0;
  uint32_t bits = out ? ~bitmap[word] : bitmap[word];
  size_t left = n - 32 * word;
  return left < 32 ? bits & ((1U << left) - 1) : bits;
}

/* A warp a tile, and one more for the end. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    count_bitmap(const uint32_t *bitmap, size_t n, size_t tiles, bool out, uint2 *taken) {
  size_t tile = ((size_t)blockIdx.x * WEIR_CUDA_BLOCK + threadIdx.x) / WEIR_WARP;
  unsigned lane = threadIdx.x % WEIR_WARP;
  uint32_t count = 0;
  for (unsigned w = lane; w < TILE_WORDS; w += WEIR_WARP)
    count += (uint32_t)__popc(bitmap_of(bitmap, tile * TILE_WORDS + w, n, out));
  for (unsigned distance = WEIR_WARP / 2; distance > 0; distance /= 2)
    count += __shfl_down_sync(WEIR_ALL_LANES, count, distance);
  if (lane == 0 && tile <= tiles) taken[tile] = make_uint2(count, 0);
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    emit_bitmap(const uint32_t *bitmap, size_t n, bool out, size_t tiles, const uint2 *taken,
                float *e, uint32_t *index, float *value, bool zero) {
  size_t tile = ((size_t)blockIdx.x * WEIR_CUDA_BLOCK + threadIdx.x) / WEIR_WARP;
  if (tile >= tiles) return;
  uint32_t to = taken[tile].x;
  for (unsigned w = threadIdx.x % WEIR_WARP; w < TILE_WORDS; w += WEIR_WARP) {
    size_t word = tile * TILE_WORDS + w;
    uint32_t bits = bitmap_of(bitmap, word, n, out);
    uint32_t count = (uint32_t)__popc(bits);
    uint32_t before = weir_lanes_before(count);
    uint32_t all = __shfl_sync(WEIR_ALL_LANES, before + count, WEIR_WARP - 1);
    for (uint32_t i = to + before; bits != 0; bits &= bits - 1, i++) {
      uint32_t at = (uint32_t)(32 * word) + (uint32_t)__popc((bits & (0U - bits)) - 1);
      index[i] = at;
      if (value != NULL) value[i] = e[at];
      if (zero) e[at] = 0.0F;
    }
    to += all;
  }
}

static weir_status draw(weir_cuda *cuda, size_t n, size_t count, uint64_t seed) {
  static_assert(sizeof(draws) <= sizeof(weir_search_state), "draws use its place");
  draws *state = (draws *)cuda->search;
  uint64_t start = weir_draw_start(seed);
  weir_status status =
      weir_cuda_clear(cuda, cuda->bitmap, weir_cuda_bitmap_words(n) * sizeof *cuda->bitmap);
  if (status == WEIR_OK)
    status = weir_cuda_launch(cuda, "drawing", 1, 1, begin_draws, state, (uint32_t)count);
  for (unsigned pass = 0; pass < PASSES && status == WEIR_OK; pass++) {
    status = weir_cuda_launch(cuda, "drawing", weir_cuda_grid(cuda, count >> pass, WEIR_CUDA_BLOCK),
                              WEIR_CUDA_BLOCK, draw_pass, cuda->bitmap, start, (uint32_t)n, state);
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "drawing", 1, WEIR_CUDA_BLOCK, draw_rest,
                                              cuda->bitmap, start, (uint32_t)n, state)
                           : status;
}

weir_status weir_cuda_pick_randomk(weir_cuda *cuda, const weir_pick &pick) {
  /* The smaller part is drawn, kept or left out. */
  bool out = pick.k > pick.n / 2;
  size_t tiles = weir_cuda_tiles(pick.n);
  size_t warps = WEIR_CUDA_BLOCK / WEIR_WARP;
  weir_status status = WEIR_OK;
  if (pick.r != NULL)
    status = weir_cuda_ef_accumulate(cuda, pick.g, pick.r, pick.e, pick.n, pick.moments);
  if (status == WEIR_OK) status = draw(cuda, pick.n, out ? pick.n - pick.k : pick.k, pick.seed);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "counting a bitmap", tiles / warps + 1, WEIR_CUDA_BLOCK,
                              count_bitmap, cuda->bitmap, pick.n, tiles, out, cuda->taken);
  }
  if (status == WEIR_OK) status = weir_cuda_scan(cuda, cuda->taken, tiles + 1);
  return status == WEIR_OK
             ? weir_cuda_launch(cuda, "writing what is drawn", (tiles + warps - 1) / warps,
                                WEIR_CUDA_BLOCK, emit_bitmap, cuda->bitmap, pick.n, out, tiles,
                                cuda->taken, pick.e, pick.index, pick.value, pick.zero)
             : status;
}
