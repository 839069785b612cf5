/* The search for the k largest magnitudes, step by step; each step is a kernel or two, queued.
 *
 *   estimate   a sample gives a magnitude somewhat below the k-th largest: the floor
 *   compact    the one pass over all elements: e = g + r if asked for, sums, and the elements that
 *              reach the floor, the candidates, listed tile by tile
 *   digits     three counting passes fix the k-th largest magnitude, 11 + 10 + 10 bits
 *   settle     a codec that has proposed a band (below) gets it, or the k largest instead
 *   emit       each tile counts, a scan over tiles says where it writes, and it writes
 *
 * A band takes all magnitudes >= high, and the first of those in [low, high) up to k.  digits
 * leaves that of the k largest.
 *
 * digits, settle and emit read the candidates.  If these are too many for their room or fewer than
 * k, so that the sample has misled, they read all elements instead; the device sees that
 * by itself. */
#ifndef WEIR_KERNELS_CUDA_SELECT_CUH
#define WEIR_KERNELS_CUDA_SELECT_CUH

#include "kernels/cuda/sums.cuh"

constexpr unsigned WEIR_TILE = 4096;       /* elements */
constexpr unsigned WEIR_TILE_LANE = 16;    /* of them to a thread */
constexpr unsigned WEIR_SAMPLE = 8192;     /* elements that the floor is estimated from */
constexpr unsigned WEIR_DIGIT_BINS = 2048; /* of 11 bits */

struct weir_search_state {
  uint32_t floor;    /* magnitude's bits */
  uint32_t found;    /* elements that reach the floor, listed or not */
  uint32_t prefix;   /* of the k-th largest magnitude, as far as it is known; at last its bits */
  uint32_t above;    /* elements above the prefix */
  uint32_t use_list; /* emit may read the candidates */
  uint32_t high;     /* the band that is emitted */
  uint32_t low;
  uint32_t arrived;       /* blocks that have finished counting */
  uint32_t proposed_high; /* a codec's own band, and how many reach either end of it */
  uint32_t proposed_low;
  uint32_t reach_high;
  uint32_t reach_low;
  uint32_t largest;  /* magnitude's bits, over all elements */
  uint32_t failed;   /* sidco's fit */
  double magnitudes; /* sum of |e| */
  double threshold;  /* of sidco's last stage */
  /* A cache line of its own: blocks read the fields above while others count here. */
  alignas(128) uint32_t histogram[WEIR_DIGIT_BINS];
};

static inline size_t weir_cuda_tiles(size_t n) { return n / WEIR_TILE + (n % WEIR_TILE != 0); }

/* Does a sample help?  For few elements and for large k it does not. */
constexpr size_t WEIR_SAMPLED_LEAST = 4 * (size_t)WEIR_SAMPLE;
static inline bool weir_cuda_sampled(size_t n, size_t k) {
  return n >= WEIR_SAMPLED_LEAST && k <= n / 4;
}

/* Rank in the sample of the floor for keeping k of n, on the low side by four standard deviations;
 * and room for the candidates above it, again by as much. */
size_t weir_cuda_floor_rank(size_t n, size_t k);
size_t weir_cuda_candidates(size_t n, size_t k);

/* What is to be selected from what. */
struct weir_pick {
  const float
      *g; /* with r: e = g + r is stored; both NULL: e is given, and written to by zero alone */
  const float *r;
  float *e;
  size_t n;
  size_t k;
  uint32_t base; /* added to indices */
  uint32_t *index;
  float *value;          /* NULL: not wanted */
  bool zero;             /* e becomes 0 where it is kept */
  weir_moments *moments; /* stored, or NULL; only with g and r */
  uint64_t seed;         /* of what draws */
};

/* The steps.  estimate begins a search for the k largest (k may differ from the pick's). */
weir_status weir_cuda_estimate(weir_cuda *cuda, const weir_pick &pick, size_t k);
/* sums: of every tile, for fold. */
weir_status weir_cuda_compact(weir_cuda *cuda, const weir_pick &pick, bool sums);
/* Fold the tiles' sums into *moments, unless it is NULL, and the search's state. */
weir_status weir_cuda_fold(weir_cuda *cuda, size_t n, weir_moments *moments);
weir_status weir_cuda_digits(weir_cuda *cuda, const float *e, size_t n, size_t k);
weir_status weir_cuda_emit(weir_cuda *cuda, const weir_pick &pick);

/* What becomes of a proposed band. */
enum weir_band_rule {
  WEIR_BAND_SLICE, /* taken unless [low, high) would fill more than 1 % of k (mstopk) */
  WEIR_BAND_FILL   /* taken if fewer than k reach high and k reach low (dgc, sidco) */
};
weir_status weir_cuda_settle(weir_cuda *cuda, const weir_pick &pick, weir_band_rule rule);

/* Whole selections; n, k >= 1 and the workspace have been checked.  dgc takes a given e. */
typedef weir_status weir_pick_fn(weir_cuda *cuda, const weir_pick &pick);
weir_pick_fn weir_cuda_pick_topk;

/* Elements of dgc's sample from n; 0: too few for one. */
size_t weir_cuda_dgc_sampled(size_t n);
/* 32-bit words of a bit for each of n elements (randomk). */
static inline size_t weir_cuda_bitmap_words(size_t n) { return n / 32 + (n % 32 != 0); }

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
  if (threadIdx.x % WEIR_WARP == WEIR_WARP - 1) of_warp[warp] = before + mine;
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
__device__ static inline bool weir_find_bin(const volatile uint32_t *histogram, unsigned bins,
                                            uint32_t rank, uint32_t *bin, uint32_t *above) {
  unsigned each = bins / blockDim.x;
  unsigned top = bins - threadIdx.x * each; /* this thread has the bins just below */
  uint32_t mine = 0;
  for (unsigned i = 1; i <= each; i++) mine += histogram[top - i];
  uint32_t total;
  uint32_t before = weir_block_before(mine, &total);
  if (before >= rank || before + mine < rank) return false;
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

/* A search from its beginning, without candidates; one thread calls it. */
__device__ static inline void weir_begin_search(weir_search_state *state, uint32_t floor) {
  state->floor = floor;
  state->found = state->prefix = state->above = state->use_list = state->arrived = 0;
  state->reach_high = state->reach_low = 0;
}

/* The rank-th largest of magnitude(0), .. magnitude(count - 1), bits each, in every thread; *above:
 * those larger.  histogram: shared memory.  Every thread of the block calls it. */
template <typename MAGNITUDE>
__device__ static inline uint32_t weir_block_kth(MAGNITUDE magnitude, uint32_t count, uint32_t rank,
                                                 uint32_t histogram[WEIR_DIGIT_BINS],
                                                 uint32_t *above) {
  constexpr unsigned AHEAD = 8;
  __shared__ uint32_t prefix;
  __shared__ uint32_t larger;
  if (threadIdx.x == 0) {
    prefix = 0;
    larger = 0;
  }
  for (unsigned level = 0; level < 3; level++) {
    unsigned shift = level == 0 ? 20 : level == 1 ? 10 : 0;
    unsigned width = level == 0 ? 11 : 10;
    for (unsigned i = threadIdx.x; i < WEIR_DIGIT_BINS; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += AHEAD * blockDim.x) {
      uint32_t bits[AHEAD]; /* all on their way before the first is needed */
      for (unsigned q = 0; q < AHEAD; q++) {
        const uint32_t at = i + q * blockDim.x;
        bits[q] = at < count ? magnitude(at) : 0;
      }
      for (unsigned q = 0; q < AHEAD; q++) {
        if (i + q * blockDim.x < count && bits[q] >> (shift + width) == prefix)
          atomicAdd(&histogram[bits[q] >> shift & ((1U << width) - 1)], 1U);
      }
    }
    __syncthreads();
    uint32_t bin;
    uint32_t more;
    bool mine = weir_find_bin(histogram, WEIR_DIGIT_BINS, rank - larger, &bin, &more);
    __syncthreads();
    if (mine) {
      prefix = prefix << width | bin;
      larger += more;
    }
    __syncthreads();
  }
  *above = larger;
  return prefix;
}

#endif
