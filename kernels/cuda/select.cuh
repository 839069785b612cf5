/* The search for the k largest magnitudes, step by step; each step is a kernel or two, queued.
 *
 *   estimate   a sample gives a magnitude somewhat below the k-th largest: the floor
 *   compact    the one pass over all elements: e = g + r if asked for, sums, and the elements that
 *              reach the floor, the candidates, listed tile by tile
 *   digits     three counting passes fix the k-th largest magnitude, 11 + 10 + 10 bits
 *   emit       each tile counts, a scan over tiles says where it writes, and it writes
 *
 * digits and emit read the candidates.  If these are too many for their room or fewer than k, so
 * that the sample has misled, they read all elements instead; the device sees that by itself. */
#ifndef WEIR_KERNELS_CUDA_SELECT_CUH
#define WEIR_KERNELS_CUDA_SELECT_CUH

#include "kernels/cuda/device.cuh"

constexpr unsigned WEIR_TILE = 4096;       /* elements */
constexpr unsigned WEIR_TILE_LANE = 16;    /* of them to a thread */
constexpr unsigned WEIR_SAMPLE = 8192;     /* elements that the floor is estimated from */
constexpr unsigned WEIR_DIGIT_BINS = 2048; /* of 11 bits */

struct weir_search_state {
  uint32_t floor;     /* magnitude's bits */
  uint32_t found;     /* elements that reach the floor, listed or not */
  uint32_t prefix;    /* of the k-th largest magnitude, as far as it is known; at last its bits */
  uint32_t above;     /* elements above the prefix */
  uint32_t use_list;  /* emit may read the candidates */
  uint32_t high;      /* emitted are all magnitudes >= high ... */
  uint32_t low;       /* ... and the first of those in [low, high), up to k */
  uint32_t arrived;   /* blocks that have finished counting */
  double mean_sum;    /* of |e| (mstopk) */
  uint32_t largest;   /* magnitude's bits (mstopk) */
  /* A cache line of its own: blocks read the fields above while others count here. */
  alignas(128) uint32_t histogram[WEIR_DIGIT_BINS];
};

static inline size_t weir_cuda_tiles(size_t n) {
  return n / WEIR_TILE + (n % WEIR_TILE != 0);
}

/* Does a sample help?  For few elements and for large k it does not. */
static inline bool weir_cuda_sampled(size_t n, size_t k) {
  return n >= 4 * (size_t)WEIR_SAMPLE && k <= n / 4;
}

/* Rank in the sample of the floor for keeping k of n, on the low side by four standard deviations;
 * and room for the candidates above it, again by as much. */
size_t weir_cuda_floor_rank(size_t n, size_t k);
size_t weir_cuda_candidates(size_t n, size_t k);

/* What the pass over all elements adds up. */
enum weir_tile_stat {
  WEIR_STAT_NONE,
  WEIR_STAT_MOMENTS, /* of the finite elements, and the number of the others */
  WEIR_STAT_ABSOLUTE /* sum of |e|, and the largest bits as nonfinite */
};

/* g, r NULL: e is given.  e is read or written. */
weir_status weir_cuda_estimate(weir_cuda *cuda, const float *g, const float *r, size_t n, size_t k);
weir_status weir_cuda_compact(weir_cuda *cuda, const float *g, const float *r, float *e, size_t n,
                              weir_tile_stat stat);
/* Fold the tiles' sums into *moments, or with WEIR_STAT_ABSOLUTE into the search's state. */
weir_status weir_cuda_fold(weir_cuda *cuda, size_t n, weir_moments *moments);
weir_status weir_cuda_fold_absolute(weir_cuda *cuda, size_t n);
weir_status weir_cuda_digits(weir_cuda *cuda, const float *e, size_t n, size_t k);
/* Writes the k elements that the state's band takes; zero: they become 0 in e. */
weir_status weir_cuda_emit(weir_cuda *cuda, float *e, size_t n, size_t k, uint32_t *index,
                           float *value, bool zero);

/* to[i] = sum of from[0..i), for both members; count elements, in place or not (scan.cu). */
weir_status weir_cuda_scan_bytes(weir_cuda *cuda, size_t count, size_t *bytes);
weir_status weir_cuda_scan(weir_cuda *cuda, uint2 *table, size_t count);

/* --- inside a block -------------------------------------------------------------------------- */

/* Sum over the lanes before this one. */
__device__ static inline uint32_t weir_lanes_before(uint32_t mine) {
  uint32_t sum = mine;
  unsigned lane = threadIdx.x % WEIR_WARP;
  for (unsigned distance = 1; distance < WEIR_WARP; distance *= 2) {
    uint32_t other = __shfl_up_sync(WEIR_ALL_LANES, sum, distance);
    sum += lane >= distance ? other : 0;
  }
  return sum - mine;
}

/* Sum over the threads before this one, and over all; every thread of the block calls it. */
__device__ static inline uint32_t weir_block_before(uint32_t mine, uint32_t *total) {
  __shared__ uint32_t of_warp[WEIR_WARP];
  unsigned warp = threadIdx.x / WEIR_WARP;
  uint32_t before = weir_lanes_before(mine);
  __syncthreads(); /* of_warp is free again */
  if (threadIdx.x % WEIR_WARP == WEIR_WARP - 1) {
    of_warp[warp] = before + mine;
  }
  __syncthreads();
  *total = 0;
  for (unsigned w = 0; w < blockDim.x / WEIR_WARP; w++) {
    before += w < warp ? of_warp[w] : 0;
    *total += of_warp[w];
  }
  return before;
}

/* Finds the highest bin with `rank` elements in it and above; every thread of the block calls it.
 * One thread sees true, with the bin and the number of elements above it.  bins: a multiple of the
 * block's threads.  Volatile: other blocks may have counted. */
__device__ static inline bool weir_find_bin(const volatile uint32_t *histogram, unsigned bins, uint32_t rank,
                                            uint32_t *bin, uint32_t *above) {
  unsigned each = bins / blockDim.x;
  unsigned top = bins - threadIdx.x * each; /* this thread has the bins just below */
  uint32_t mine = 0;
  for (unsigned i = 1; i <= each; i++) {
    mine += histogram[top - i];
  }
  uint32_t total;
  uint32_t before = weir_block_before(mine, &total);
  if (before >= rank || before + mine < rank) {
    return false;
  }
  for (unsigned i = 1; i <= each; i++) {
    uint32_t count = histogram[top - i];
    if (before + count >= rank) {
      *bin = top - i;
      *above = before;
      return true;
    }
    before += count;
  }
  return false;
}

#endif
