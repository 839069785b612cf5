/* The steps of select.cuh: estimating a floor, the pass over all elements, counting digits. */
#include "kernels/cuda/select.cuh"

#include <cmath>

size_t weir_cuda_floor_rank(size_t n, size_t k) {
  double share = (double)k / (double)n * WEIR_SAMPLE;
  double rank = ceil(share + 4.0 * sqrt(share) + 8.0);
  return rank < WEIR_SAMPLE ? (size_t)rank : (size_t)WEIR_SAMPLE;
}

size_t weir_cuda_candidates(size_t n, size_t k) {
  if (n < 4 * (size_t)WEIR_SAMPLE) {
    return 0;
  }
  double rank = (double)weir_cuda_floor_rank(n, k < n / 4 ? k : n / 4);
  double most = (rank + 4.0 * sqrt(rank) + 8.0) / WEIR_SAMPLE * (double)n;
  return most < (double)n ? (size_t)most : n;
}

/* --- the floor ------------------------------------------------------------------------------- */

constexpr unsigned ESTIMATE_BLOCK = 1024;

/* Count one digit of those sample magnitudes whose upper bits are prefix. */
__device__ static void count_sample(const uint32_t *sample, uint32_t *histogram, unsigned shift,
                                    unsigned width, uint32_t prefix) {
  for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += blockDim.x) {
    histogram[i] = 0;
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < WEIR_SAMPLE; i += blockDim.x) {
    uint32_t bits = sample[i];
    if (bits >> (shift + width) == prefix) {
      atomicAdd(&histogram[bits >> shift & ((1U << width) - 1)], 1U);
    }
  }
  __syncthreads();
}

/* One block: resets the state; the floor is the rank-th largest magnitude of a sample with one
 * element of each of WEIR_SAMPLE equal stretches, at a place that varies.  rank 0: no floor. */
__global__ static void __launch_bounds__(ESTIMATE_BLOCK)
    estimate(const float *g, const float *r, size_t n, uint32_t rank, weir_search_state *state) {
  __shared__ uint32_t sample[WEIR_SAMPLE];
  __shared__ uint32_t histogram[WEIR_DIGIT_BINS];
  __shared__ uint32_t prefix;
  __shared__ uint32_t left;
  for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += blockDim.x) {
    state->histogram[i] = 0;
  }
  if (threadIdx.x == 0) {
    state->floor = UINT32_MAX;
    state->found = state->prefix = state->above = state->use_list = state->arrived = 0;
    prefix = 0;
    left = rank;
  }
  if (rank == 0) {
    return;
  }
  size_t stretch = n / WEIR_SAMPLE;
  for (unsigned i = threadIdx.x; i < WEIR_SAMPLE; i += blockDim.x) {
    size_t at = i * stretch + (size_t)(((uint64_t)weir_mix32(i) * stretch) >> 32);
    sample[i] = weir_magnitude(r != NULL ? g[at] + r[at] : g[at]);
  }
  __syncthreads();
  for (unsigned level = 0; level < 3; level++) {
    unsigned shift = level == 0 ? 20 : level == 1 ? 10 : 0;
    unsigned width = level == 0 ? 11 : 10;
    uint32_t bin;
    uint32_t above;
    count_sample(sample, histogram, shift, width, prefix);
    bool mine = weir_find_bin(histogram, WEIR_DIGIT_BINS, left, &bin, &above);
    __syncthreads();
    if (mine) {
      prefix = prefix << width | bin;
      left -= above;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    state->floor = prefix;
  }
}

weir_status weir_cuda_estimate(weir_cuda *cuda, const float *g, const float *r, size_t n,
                               size_t k) {
  uint32_t rank = weir_cuda_sampled(n, k) ? (uint32_t)weir_cuda_floor_rank(n, k) : 0;
  return weir_cuda_launch(cuda, "estimating", 1, ESTIMATE_BLOCK, estimate, g, r, n, rank,
                          cuda->search);
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
  for (unsigned q = 0; q < 4; q++) {
    out[q] = at + q < n ? x[at + q] : 0.0F;
  }
}

template <bool WIDE>
__device__ static inline void store4(float *x, size_t at, size_t n, const float in[4]) {
  if (WIDE && at + 4 <= n) {
    *(float4 *)(x + at) = make_float4(in[0], in[1], in[2], in[3]);
    return;
  }
  for (unsigned q = 0; q < 4; q++) {
    if (at + q < n) {
      x[at + q] = in[q];
    }
  }
}

/* Sums of a tile, in a fixed order: a thread's elements, lanes in halves, warps in turn. */
template <weir_tile_stat STAT>
__device__ static void add_up(const float *x, weir_tile_sums *out) {
  __shared__ weir_tile_sums of_warp[WEIR_CUDA_BLOCK / WEIR_WARP];
  double sum = 0.0;
  double square = 0.0;
  uint32_t other = 0;
  for (unsigned i = 0; i < WEIR_TILE_LANE; i++) {
    uint32_t bits = weir_magnitude(x[i]);
    bool finite = bits < WEIR_INF_BITS;
    if (STAT == WEIR_STAT_MOMENTS) {
      double d = finite ? (double)x[i] : 0.0;
      sum += d;
      square += d * d;
      other += !finite;
    } else {
      sum += (double)weir_float_of(bits);
      other = bits > other ? bits : other;
    }
  }
  for (unsigned distance = WEIR_WARP / 2; distance > 0; distance /= 2) {
    sum += __shfl_down_sync(WEIR_ALL_LANES, sum, distance);
    uint32_t far = __shfl_down_sync(WEIR_ALL_LANES, other, distance);
    if (STAT == WEIR_STAT_MOMENTS) {
      square += __shfl_down_sync(WEIR_ALL_LANES, square, distance);
      other += far;
    } else {
      other = far > other ? far : other;
    }
  }
  if (threadIdx.x % WEIR_WARP == 0) {
    of_warp[threadIdx.x / WEIR_WARP] = weir_tile_sums{sum, square, other};
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  weir_tile_sums total = of_warp[0];
  for (unsigned w = 1; w < WEIR_CUDA_BLOCK / WEIR_WARP; w++) {
    total.sum += of_warp[w].sum;
    total.square += of_warp[w].square;
    if (STAT == WEIR_STAT_MOMENTS) {
      total.nonfinite += of_warp[w].nonfinite;
    } else if (of_warp[w].nonfinite > total.nonfinite) {
      total.nonfinite = of_warp[w].nonfinite;
    }
  }
  *out = total;
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

template <bool FUSED, bool WIDE, weir_tile_stat STAT, bool LIST>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    compact(const float *g, const float *r, float *e, size_t n, weir_tile_sums *sums,
            weir_search_state *state, uint2 *listed, float *candidate, uint32_t *place,
            size_t room) {
  float x[WEIR_TILE_LANE];
  for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++) {
    size_t at = lane_begin(round);
    load4<WIDE>(FUSED ? g : e, at, n, x + 4 * round);
    if (FUSED) {
      float other[4];
      load4<WIDE>(r, at, n, other);
      for (unsigned q = 0; q < 4; q++) {
        x[4 * round + q] += other[q];
      }
    }
  }
  if (FUSED) {
    for (unsigned round = 0; round < WEIR_TILE_LANE / 4; round++) {
      store4<WIDE>(e, lane_begin(round), n, x + 4 * round);
    }
  }
  if (STAT != WEIR_STAT_NONE) {
    add_up<STAT>(x, &sums[blockIdx.x]);
  }
  if (LIST) {
    list(x, n, state, listed, candidate, place, room);
  }
}

template <bool FUSED, weir_tile_stat STAT, bool LIST>
static weir_status queue_compact(weir_cuda *cuda, const float *g, const float *r, float *e,
                                 size_t n) {
  bool wide = ((uintptr_t)g | (uintptr_t)r | (uintptr_t)e) % sizeof(float4) == 0;
  return weir_cuda_launch(cuda, "compacting", weir_cuda_tiles(n), WEIR_CUDA_BLOCK,
                          wide ? compact<FUSED, true, STAT, LIST> : compact<FUSED, false, STAT, LIST>,
                          g, r, e, n, cuda->sums, cuda->search, cuda->listed, cuda->candidate,
                          cuda->candidate_place, cuda->candidates);
}

weir_status weir_cuda_compact(weir_cuda *cuda, const float *g, const float *r, float *e, size_t n,
                              weir_tile_stat stat) {
  if (r != NULL) {
    return stat == WEIR_STAT_NONE
               ? queue_compact<true, WEIR_STAT_NONE, true>(cuda, g, r, e, n)
               : queue_compact<true, WEIR_STAT_MOMENTS, true>(cuda, g, r, e, n);
  }
  return stat == WEIR_STAT_NONE ? queue_compact<false, WEIR_STAT_NONE, true>(cuda, g, r, e, n)
                                : queue_compact<false, WEIR_STAT_ABSOLUTE, true>(cuda, g, r, e, n);
}

weir_status weir_cuda_ef_accumulate(weir_cuda *cuda, const float *g, const float *r, float *e,
                                    size_t n, weir_moments *moments) {
  weir_status status = weir_cuda_ready(cuda, n, 0);
  if (status == WEIR_OK && n > 0) {
    status = moments != NULL ? queue_compact<true, WEIR_STAT_MOMENTS, false>(cuda, g, r, e, n)
                             : queue_compact<true, WEIR_STAT_NONE, false>(cuda, g, r, e, n);
  }
  return status == WEIR_OK && moments != NULL ? weir_cuda_fold(cuda, n, moments) : status;
}

/* --- sums over tiles ------------------------------------------------------------------------- */

/* One block adds up the tiles' sums, again in a fixed order.  Exactly one of the two is not NULL. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold(const weir_tile_sums *sums, size_t tiles, weir_moments *moments,
         weir_search_state *state) {
  __shared__ weir_tile_sums part[WEIR_CUDA_BLOCK];
  weir_tile_sums mine = {0.0, 0.0, 0};
  bool largest = state != NULL;
  for (size_t t = threadIdx.x; t < tiles; t += WEIR_CUDA_BLOCK) {
    mine.sum += sums[t].sum;
    mine.square += sums[t].square;
    unsigned long long other = sums[t].nonfinite;
    mine.nonfinite = !largest ? mine.nonfinite + other
                              : other > mine.nonfinite ? other : mine.nonfinite;
  }
  part[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned width = WEIR_CUDA_BLOCK / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) {
      const weir_tile_sums &far = part[threadIdx.x + width];
      mine.sum += far.sum;
      mine.square += far.square;
      mine.nonfinite = !largest ? mine.nonfinite + far.nonfinite
                                : far.nonfinite > mine.nonfinite ? far.nonfinite : mine.nonfinite;
      part[threadIdx.x] = mine;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0 && moments != NULL) {
    *moments = weir_moments{mine.sum, mine.square, (size_t)mine.nonfinite};
  }
  if (threadIdx.x == 0 && state != NULL) {
    state->mean_sum = mine.sum;
    state->largest = (uint32_t)mine.nonfinite;
  }
}

weir_status weir_cuda_fold(weir_cuda *cuda, size_t n, weir_moments *moments) {
  return weir_cuda_launch(cuda, "adding up", 1, WEIR_CUDA_BLOCK, fold, cuda->sums,
                          weir_cuda_tiles(n), moments, (weir_search_state *)NULL);
}

weir_status weir_cuda_fold_absolute(weir_cuda *cuda, size_t n) {
  return weir_cuda_launch(cuda, "adding up", 1, WEIR_CUDA_BLOCK, fold, cuda->sums,
                          weir_cuda_tiles(n), (weir_moments *)NULL, cuda->search);
}
