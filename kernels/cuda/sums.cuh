/* Sums over many elements in an order that follows from their number alone: a thread's elements, a
 * warp's lanes in halves, a block's warps in turn, and blocks again in the same way. */
#ifndef WEIR_KERNELS_CUDA_SUMS_CUH
#define WEIR_KERNELS_CUDA_SUMS_CUH

#include "kernels/cuda/device.cuh"

/* What a pass adds up; which is which is the pass's business. */
struct weir_sums {
  double sum[3];
  unsigned long long count;
  uint32_t largest;
};

__device__ static inline void weir_add_sums(weir_sums *to, const weir_sums &more) {
  for (unsigned i = 0; i < 3; i++) to->sum[i] += more.sum[i];
  to->count += more.count;
  to->largest = more.largest > to->largest ? more.largest : to->largest;
}

/* Those of the whole block, for its first thread; every thread calls it. */
__device__ static inline weir_sums weir_block_sums(weir_sums mine) {
  __shared__ weir_sums of_warp[WEIR_WARP];
  for (unsigned distance = WEIR_WARP / 2; distance > 0; distance /= 2) {
    weir_sums far;
    for (unsigned i = 0; i < 3; i++)
      far.sum[i] = __shfl_down_sync(WEIR_ALL_LANES, mine.sum[i], distance);
    far.count = __shfl_down_sync(WEIR_ALL_LANES, mine.count, distance);
    far.largest = __shfl_down_sync(WEIR_ALL_LANES, mine.largest, distance);
    weir_add_sums(&mine, far);
  }
  __syncthreads(); /* of_warp is free again */
  if (threadIdx.x % WEIR_WARP == 0) of_warp[threadIdx.x / WEIR_WARP] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < blockDim.x / WEIR_WARP; w++) weir_add_sums(&mine, of_warp[w]);
  }
  return mine;
}

/* The same of what count blocks have left in sums[]. */
__device__ static inline weir_sums weir_fold_sums(const weir_sums *sums, size_t count) {
  weir_sums mine = {};
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) weir_add_sums(&mine, sums[i]);
  return weir_block_sums(mine);
}

/* Of what is encoded: the moments of e, of its finite elements and the number of the others; and
 * the square of what encoding has lost. */
constexpr unsigned WEIR_FED_SUM = 0, WEIR_FED_SQUARE = 1, WEIR_FED_LOST = 2;

__device__ static inline void weir_add_fed(weir_sums *to, float x) {
  bool finite = fabsf(x) <= FLT_MAX;
  double d = finite ? (double)x : 0.0;
  to->sum[WEIR_FED_SUM] += d;
  to->sum[WEIR_FED_SQUARE] += d * d;
  to->count += !finite;
}

/* Fold such sums of `count` blocks; either may be NULL (codecs.cu). */
weir_status weir_cuda_fold_fed(weir_cuda *cuda, const weir_sums *sums, size_t count,
                               weir_moments *moments, weir_moments *lost);

/* The sum of squares of x, at n elements of the workspace at the most (decorate.cu); the other
 * moments are 0. */
weir_status weir_cuda_squares(weir_cuda *cuda, const float *x, size_t n, weir_moments *out);

#endif
