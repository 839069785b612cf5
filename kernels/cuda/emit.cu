/* The steps of select.cuh that end a search: the k-th largest magnitude, digit by digit, settling a
 * band, and writing what is kept. */
#include "kernels/cuda/select.cuh"

/* --- digits ---------------------------------------------------------------------------------- */

/* Counts in shared memory, gathering runs of equal digits first: ties in bulk do not queue up. */
struct run {
  uint32_t bin;
  uint32_t length;
};

__device__ static inline void count_bits(uint32_t *histogram, run *r, uint32_t bits, unsigned shift,
                                         unsigned width, uint32_t prefix) {
  if (bits >> (shift + width) != prefix) return;
  uint32_t bin = bits >> shift & ((1U << width) - 1);
  if (bin != r->bin) {
    if (r->length > 0) atomicAdd(&histogram[r->bin], r->length);
    *r = run{bin, 0};
  }
  r->length++;
}

/* The last block that arrives has all counts: it picks the digit and leaves the state ready for the
 * next level, or after the last level for emit. */
__device__ static void pick(weir_search_state *state, uint32_t k, unsigned shift, unsigned width,
                            bool listed) {
  uint32_t bin;
  uint32_t above;
  bool mine = weir_find_bin(state->histogram, WEIR_DIGIT_BINS, k - state->above, &bin, &above);
  __syncthreads();
  if (mine) {
    uint32_t prefix = state->prefix << width | bin;
    state->prefix = prefix;
    state->above += above;
    state->arrived = 0;
    if (shift == 0) {
      state->use_list = listed;
      state->low = prefix;
      state->high = prefix + 1;
    }
  }
  for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += blockDim.x) state->histogram[i] = 0;
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    digits(const float *e, size_t n, const float *candidate, size_t room, uint32_t k,
           unsigned shift, unsigned width, weir_search_state *state) {
  __shared__ uint32_t histogram[WEIR_DIGIT_BINS];
  __shared__ uint32_t arrived;
  for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += WEIR_CUDA_BLOCK) histogram[i] = 0;
  __syncthreads();
  uint32_t found = state->found;
  uint32_t prefix = state->prefix;
  bool listed = found >= k && found <= room;
  const float *from = listed ? candidate : e;
  size_t count = listed ? found : n;
  run r = {0, 0};
  /* A block takes whole stretches, four at a time for a thread: several loads are under way. */
  for (size_t begin = (size_t)blockIdx.x * 4 * WEIR_CUDA_BLOCK; begin < count;
       begin += (size_t)gridDim.x * 4 * WEIR_CUDA_BLOCK) {
    uint32_t bits[4];
    size_t at = begin + threadIdx.x;
    for (unsigned q = 0; q < 4; q++) {
      size_t i = at + q * WEIR_CUDA_BLOCK;
      bits[q] = i < count ? weir_magnitude(from[i]) : UINT32_MAX;
    }
    for (unsigned q = 0; q < 4; q++) {
      if (bits[q] != UINT32_MAX) count_bits(histogram, &r, bits[q], shift, width, prefix);
    }
  }
  if (r.length > 0) atomicAdd(&histogram[r.bin], r.length);
  __syncthreads();
  for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += WEIR_CUDA_BLOCK) {
    if (histogram[i] > 0) atomicAdd(&state->histogram[i], histogram[i]);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(&state->arrived, 1U) + 1;
  __syncthreads();
  if (arrived == gridDim.x) {
    __threadfence();
    pick(state, k, shift, width, listed);
  }
}

weir_status weir_cuda_digits(weir_cuda *cuda, const float *e, size_t n, size_t k) {
  size_t grid = weir_cuda_grid(cuda, n, 16 * WEIR_CUDA_BLOCK);
  static const struct { unsigned shift, width; } level[3] = {{20, 11}, {10, 10}, {0, 10}};
  weir_status status = WEIR_OK;
  for (unsigned l = 0; l < 3 && status == WEIR_OK; l++) {
    status = weir_cuda_launch(cuda, "counting digits", grid, WEIR_CUDA_BLOCK, digits, e, n,
                              cuda->candidate, cuda->candidates, (uint32_t)k, level[l].shift,
                              level[l].width, cuda->search);
  }
  return status;
}

/* --- a band ---------------------------------------------------------------------------------- */

constexpr double SLICE = 0.01;

/* One thread: whether the proposed band is taken.  Where a list was counted in which all reach an
 * end, at least k do, which is all that the rules ask. */
__device__ static void decide(weir_search_state *state, uint32_t k, weir_band_rule rule,
                              bool listed) {
  uint32_t high = atomicAdd(&state->reach_high, 0U);
  bool low_is_met = atomicAdd(&state->reach_low, 0U) >= k;
  bool few = high < k;
  bool taken =
      rule == WEIR_BAND_SLICE ? (double)(k - high) <= SLICE * (double)k : few && low_is_met;
  state->arrived = 0;
  if (taken) {
    uint32_t low = state->proposed_low;
    state->high = state->proposed_high;
    state->low = low;
    state->use_list = listed && low >= state->floor;
  }
}

/* Counts what reaches the proposed band's ends; the last block that arrives decides. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    settle(const float *e, size_t n, const float *candidate, uint32_t k, weir_band_rule rule,
           weir_search_state *state) {
  bool listed = state->use_list != 0;
  const float *from = listed ? candidate : e;
  size_t count = listed ? state->found : n;
  uint32_t high = state->proposed_high;
  uint32_t low = state->proposed_low;
  uint32_t reach_high = 0;
  uint32_t reach_low = 0;
  WEIR_CUDA_EACH(i, count) {
    uint32_t bits = weir_magnitude(from[i]);
    reach_high += bits >= high;
    reach_low += bits >= low;
  }
  uint32_t all_high;
  uint32_t all_low;
  (void)weir_block_before(reach_high, &all_high);
  (void)weir_block_before(reach_low, &all_low);
  if (threadIdx.x != 0) return;
  atomicAdd(&state->reach_high, all_high);
  atomicAdd(&state->reach_low, all_low);
  __threadfence();
  if (atomicAdd(&state->arrived, 1U) + 1 == gridDim.x) {
    __threadfence();
    decide(state, k, rule, listed);
  }
}

weir_status weir_cuda_settle(weir_cuda *cuda, const weir_pick &pick, weir_band_rule rule) {
  return weir_cuda_launch(cuda, "settling the band",
                          weir_cuda_grid(cuda, pick.n, 16 * WEIR_CUDA_BLOCK), WEIR_CUDA_BLOCK,
                          settle, pick.e, pick.n, cuda->candidate, (uint32_t)pick.k, rule,
                          cuda->search);
}

/* --- emitting -------------------------------------------------------------------------------- */

/* What a tile's warp walks over. */
struct tile_items {
  const float *value;
  const uint32_t *place; /* NULL: the items are neighbours from begin on */
  size_t begin;
  uint32_t count;
};

__device__ static inline tile_items items_of(size_t tile, const weir_search_state *state,
                                             const float *e, size_t n, const uint2 *listed,
                                             const float *candidate, const uint32_t *place) {
  if (state->use_list != 0) {
    uint2 part = listed[tile];
    return tile_items{candidate + part.x, place + part.x, 0, part.y};
  }
  size_t begin = tile * WEIR_TILE;
  size_t left = n - begin;
  return tile_items{e + begin, NULL, begin, (uint32_t)(left < WEIR_TILE ? left : WEIR_TILE)};
}

__device__ static inline uint32_t bits_of_item(tile_items items, uint32_t i) {
  return i < items.count ? weir_magnitude(items.value[i]) : 0;
}

/* A warp a tile: elements above the band, and inside it. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    count_tiles(const float *e, size_t n, size_t tiles, const weir_search_state *state,
                const uint2 *listed, const float *candidate, const uint32_t *place, uint2 *taken) {
  size_t tile = ((size_t)blockIdx.x * WEIR_CUDA_BLOCK + threadIdx.x) / WEIR_WARP;
  unsigned lane = threadIdx.x % WEIR_WARP;
  if (tile > tiles) return;
  uint32_t above = 0;
  uint32_t inside = 0;
  if (tile < tiles) {
    tile_items items = items_of(tile, state, e, n, listed, candidate, place);
    for (uint32_t i = lane; i < items.count; i += WEIR_WARP) {
      uint32_t bits = bits_of_item(items, i);
      above += bits >= state->high;
      inside += bits < state->high && bits >= state->low;
    }
  }
  for (unsigned distance = WEIR_WARP / 2; distance > 0; distance /= 2) {
    above += __shfl_down_sync(WEIR_ALL_LANES, above, distance);
    inside += __shfl_down_sync(WEIR_ALL_LANES, inside, distance);
  }
  if (lane == 0) {
    taken[tile] = make_uint2(above, inside); /* the one after the last: 0, and the scan's total */
  }
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    emit(float *e, size_t n, size_t tiles, uint32_t k, const weir_search_state *state,
         const uint2 *listed, const float *candidate, const uint32_t *place, const uint2 *taken,
         uint32_t base, uint32_t *index, float *value, bool zero) {
  size_t tile = ((size_t)blockIdx.x * WEIR_CUDA_BLOCK + threadIdx.x) / WEIR_WARP;
  unsigned lane = threadIdx.x % WEIR_WARP;
  if (tile >= tiles) return;
  uint32_t lanes_before = (1U << lane) - 1;
  uint32_t quota = k - taken[tiles].x;
  uint2 before = taken[tile];
  tile_items items = items_of(tile, state, e, n, listed, candidate, place);
  for (uint32_t i = lane; i - lane < items.count; i += WEIR_WARP) {
    uint32_t bits = bits_of_item(items, i);
    bool is_above = i < items.count && bits >= state->high;
    bool is_inside = i < items.count && bits < state->high && bits >= state->low;
    uint32_t above = __ballot_sync(WEIR_ALL_LANES, is_above);
    uint32_t inside = __ballot_sync(WEIR_ALL_LANES, is_inside);
    uint32_t a = before.x + (uint32_t)__popc(above & lanes_before);
    uint32_t t = before.y + (uint32_t)__popc(inside & lanes_before);
    if (is_above || (is_inside && t < quota)) {
      uint32_t to = a + (t < quota ? t : quota);
      uint32_t at = items.place != NULL ? items.place[i] : (uint32_t)(items.begin + i);
      index[to] = base + at;
      if (value != NULL) value[to] = items.value[i];
      if (zero) e[at] = 0.0F;
    }
    before.x += (uint32_t)__popc(above);
    before.y += (uint32_t)__popc(inside);
  }
}

weir_status weir_cuda_emit(weir_cuda *cuda, const weir_pick &pick) {
  size_t tiles = weir_cuda_tiles(pick.n);
  size_t warps = WEIR_CUDA_BLOCK / WEIR_WARP;
  weir_status status = weir_cuda_launch(
      cuda, "counting tiles", tiles / warps + 1, WEIR_CUDA_BLOCK, count_tiles, pick.e, pick.n,
      tiles, cuda->search, cuda->listed, cuda->candidate, cuda->candidate_place, cuda->taken);
  if (status == WEIR_OK) status = weir_cuda_scan(cuda, cuda->taken, tiles + 1);
  return status == WEIR_OK
             ? weir_cuda_launch(cuda, "writing what is kept", (tiles + warps - 1) / warps,
                                WEIR_CUDA_BLOCK, emit, pick.e, pick.n, tiles, (uint32_t)pick.k,
                                cuda->search, cuda->listed, cuda->candidate, cuda->candidate_place,
                                cuda->taken, pick.base, pick.index, pick.value, pick.zero)
             : status;
}
