/* The steps of select.cuh: estimating a floor, the pass over all elements, counting digits. */
#include <cmath>

#include "kernels/cuda/select.cuh"

size_t weir_cuda_floor_rank(size_t n, size_t k) {
  double share = (double)k / (double)n * WEIR_SAMPLE;
  double rank = ceil(share + 4.0 * sqrt(share) + 8.0);
  return rank < WEIR_SAMPLE ? (size_t)rank : (size_t)WEIR_SAMPLE;
}

size_t weir_cuda_candidates(size_t n, size_t k) {
  if (n < WEIR_SAMPLED_LEAST) return 0;
  double rank = (double)weir_cuda_floor_rank(n, k < n / 4 ? k : n / 4);
  double most = (rank + 4.0 * sqrt(rank) + 8.0) / WEIR_SAMPLE * (double)n;
  return most < (double)n ? (size_t)most : n;
}

/* --- the floor ------------------------------------------------------------------------------- */

constexpr unsigned ESTIMATE_BLOCK = 1024;

/* One block: resets the state; the floor is the rank-th largest magnitude of a sample with one
 * element of each of WEIR_SAMPLE equal stretches, at a place that varies.  rank 0: no floor. */
__global__ static void __launch_bounds__(ESTIMATE_BLOCK)
    estimate(const float *g, const float *r, size_t n, uint32_t rank, weir_search_state *state) {
  __shared__ uint32_t sample[WEIR_SAMPLE];
  __shared__ uint32_t histogram[WEIR_DIGIT_BINS];
  for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += blockDim.x) state->histogram[i] = 0;
  if (threadIdx.x == 0) weir_begin_search(state, UINT32_MAX);
  if (rank == 0) return;
  size_t stretch = n / WEIR_SAMPLE;
  for (unsigned i = threadIdx.x; i < WEIR_SAMPLE; i += blockDim.x) {
    size_t at = i * stretch + (size_t)(((uint64_t)weir_mix32(i) * stretch) >> 32);
    sample[i] = weir_magnitude(r != NULL ? g[at] + r[at] : g[at]);
  }
  __syncthreads();
  uint32_t above;
  const uint32_t *bits = sample;
  uint32_t kth =
      weir_block_kth([bits](uint32_t i) { return bits[i]; }, WEIR_SAMPLE, rank, histogram, &above);
  if (threadIdx.x == 0) state->floor = kth;
}

weir_status weir_cuda_estimate(weir_cuda *cuda, const weir_pick &pick, size_t k) {
  uint32_t rank = weir_cuda_sampled(pick.n, k) ? (uint32_t)weir_cuda_floor_rank(pick.n, k) : 0;
  return weir_cuda_launch(cuda, "estimating", 1, ESTIMATE_BLOCK, estimate,
                          pick.r != NULL ? pick.g : pick.e, pick.r, pick.n, rank, cuda->search);
}

/* --- the pass over all elements -------------------------------------------------------------- */

/* A thread's part of a tile: of the warp's 512 neighbours, four times four. */
__device__ static inline size_t lane_begin(unsigned round) {
  return (size_t)blockIdx.x * WEIR_TILE + threadIdx.x / WEIR_WARP * (WEIR_WARP * WEIR_TILE_LANE) +
         round * (4 * WEIR_WARP) + threadIdx.x % WEIR_WARP * 4;
}

template <bool WIDE>
__device__ static inline void load4(const float *x, size_t at, size_t n, float out[4]) {
  if (WIDE && at + 4 <= n) {
    float4 all = *(const float4 *)(x + at);
    out[0] = all.x;
    out[1] = all.y;
    out[2] = all.z;
    out[3] = all.w;
    return;
  }
  for (unsigned q = 0; q < 4; q++) out[q] = at + q < n ? x[at + q] : 0.0F;
}

template <bool WIDE>
__device__ static inline void store4(float *x, size_t at, size_t n, const float in[4]) {
  if (WIDE && at + 4 <= n) {
    *(float4 *)(x + at) = make_float4(in[0], in[1], in[2], in[3]);
    return;
  }
  for (unsigned q = 0; q < 4; q++) {
    if (at + q < n) x[at + q] = in[q];
  }
}

/* Moments of the finite elements of a tile, the number of the others, and the magnitudes of all. */
constexpr unsigned SUM = 0, SQUARE = 1, MAGNITUDE = 2;

__device__ static inline void add_up(const float *x, weir_sums *out) {
  weir_sums mine = {};
  for (unsigned i = 0; i < WEIR_TILE_LANE; i++) {
    uint32_t bits = weir_magnitude(x[i]);
    bool finite = bits < WEIR_INF_BITS;
    double d = finite ? (double)x[i] : 0.0;
    mine.sum[SUM] += d;
    mine.sum[SQUARE] += d * d;
    mine.sum[MAGNITUDE] += (double)weir_float_of(bits);
    mine.count += !finite;
    mine.largest = bits > mine.largest ? bits : mine.largest;
  }
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) *out = mine;
}

/* List the elements of this tile that reach the floor, in order. */
__device__ static void list(const float *x, size_t n, weir_search_state *state, uint2 *listed,
                            float *candidate, uint32_t *place, size_t room) {
  __shared__ uint32_t first;
  uint32_t floor = state->floor;
  uint32_t hits = 0; /* bit i: element i of this thread */
  for (unsigned i = 0; i < WEIR_TILE_LANE; i++) {
    bool there = lane_begin(i / 4) + i % 4 < n;
    hits |= (uint32_t)(there && weir_magnitude(x[i]) >= floor) << i;
  }
  /* Before this thread: the rounds of its warp before, the warps before. */
  uint32_t in_warp = 0;
  uint32_t before[WEIR_TILE_LANE / 4];
  for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++) {
    uint32_t mine = (uint32_t)__popc(hits >> 4 * round & 15U);
    before[round] = in_warp;
    if (__any_sync(WEIR_ALL_LANES, mine != 0)) {
      uint32_t lanes = weir_lanes_before(mine);
      before[round] += lanes;
      in_warp += __shfl_sync(WEIR_ALL_LANES, lanes + mine, WEIR_WARP - 1);
    }
  }
  bool last_lane = threadIdx.x % WEIR_WARP == WEIR_WARP - 1;
  uint32_t total;
  uint32_t warps = weir_block_before(last_lane ? in_warp : 0, &total);
  if (threadIdx.x == 0) {
    first = total > 0 ? atomicAdd(&state->found, total) : 0;
    listed[blockIdx.x] = make_uint2(first, total);
  }
  __syncthreads();
  for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++) {
    size_t at = (size_t)first + warps + before[round];
    for (unsigned q = 0; q < 4; q++) {
      if ((hits >> (4 * round + q) & 1U) != 0 && at < room) {
        candidate[at] = x[4 * round + q];
        place[at] = (uint32_t)(lane_begin(round) + q);
        at++;
      }
    }
  }
}

template <bool FUSED, bool WIDE, bool SUMS, bool LIST>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    compact(const float *g, const float *r, float *e, size_t n, weir_sums *sums,
            weir_search_state *state, uint2 *listed, float *candidate, uint32_t *place,
            size_t room) {
  float x[WEIR_TILE_LANE];
  for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++) {
    size_t at = lane_begin(round);
    load4<WIDE>(FUSED ? g : e, at, n, x + 4 * round);
  }
  if (FUSED) {
    float other[WEIR_TILE_LANE] = {};
    if (r != NULL) { /* once, so that all loads are on their way together */
      for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++)
        load4<WIDE>(r, lane_begin(round), n, other + 4 * round);
    }
    for (unsigned i = 0; i < WEIR_TILE_LANE; i++) x[i] += other[i];
    for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++)
      store4<WIDE>(e, lane_begin(round), n, x + 4 * round);
  }
  if (SUMS) add_up(x, &sums[blockIdx.x]);
  if (LIST) list(x, n, state, listed, candidate, place, room);
}

template <bool FUSED, bool SUMS, bool LIST>
static weir_status queue_compact(weir_cuda *cuda, const float *g, const float *r, float *e,
                                 size_t n) {
  bool wide = ((uintptr_t)g | (uintptr_t)r | (uintptr_t)e) % sizeof(float4) == 0;
  return weir_cuda_launch(
      cuda, "compacting", weir_cuda_tiles(n), WEIR_CUDA_BLOCK,
      wide ? compact<FUSED, true, SUMS, LIST> : compact<FUSED, false, SUMS, LIST>, g, r, e, n,
      cuda->sums, cuda->search, cuda->listed, cuda->candidate, cuda->candidate_place,
      cuda->candidates);
}

weir_status weir_cuda_compact(weir_cuda *cuda, const weir_pick &pick, bool sums) {
  if (pick.r != NULL) {
    return sums ? queue_compact<true, true, true>(cuda, pick.g, pick.r, pick.e, pick.n)
                : queue_compact<true, false, true>(cuda, pick.g, pick.r, pick.e, pick.n);
  }
  return sums ? queue_compact<false, true, true>(cuda, NULL, NULL, pick.e, pick.n)
              : queue_compact<false, false, true>(cuda, NULL, NULL, pick.e, pick.n);
}

weir_status weir_cuda_ef_accumulate(weir_cuda *cuda, const float *g, const float *r, float *e,
                                    size_t n, weir_moments *moments) {
  weir_status status = weir_cuda_ready(cuda, n, 0);
  if (status == WEIR_OK && n > 0) {
    status = moments != NULL ? queue_compact<true, true, false>(cuda, g, r, e, n)
                             : queue_compact<true, false, false>(cuda, g, r, e, n);
  }
  return status == WEIR_OK && moments != NULL ? weir_cuda_fold(cuda, n, moments) : status;
}

/* --- sums over tiles ------------------------------------------------------------------------- */

/* One block; moments and state may be NULL. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold(const weir_sums *sums, size_t tiles, weir_moments *moments, weir_search_state *state) {
  weir_sums all = weir_fold_sums(sums, tiles);
  if (threadIdx.x != 0) return;
  if (moments != NULL) *moments = weir_moments{all.sum[SUM], all.sum[SQUARE], (size_t)all.count};
  if (state != NULL) {
    state->magnitudes = all.sum[MAGNITUDE];
    state->largest = all.largest;
  }
}

weir_status weir_cuda_fold(weir_cuda *cuda, size_t n, weir_moments *moments) {
  return weir_cuda_launch(cuda, "adding up", 1, WEIR_CUDA_BLOCK, fold, cuda->sums,
                          weir_cuda_tiles(n), moments, n > 0 ? cuda->search : NULL);
}
