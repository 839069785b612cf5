/* Clipping and momentum correction; kernels/decorate.h. */
#include "kernels/cuda/select.cuh"

static size_t elements_grid(const weir_cuda *cuda, size_t n) {
  return weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK);
}

__global__ static void momentum(const float *g, const float *u, float *next, size_t n, float m) {
  WEIR_CUDA_EACH(i, n) {
    float kept = m * u[i];
    next[i] = kept + g[i];
  }
}

weir_status weir_cuda_momentum_correct(weir_cuda *cuda, const float *g, const float *u, float *next,
                                       size_t n, float m) {
  return n > 0 ? weir_cuda_launch(cuda, "momentum", elements_grid(cuda, n), WEIR_CUDA_BLOCK,
                                  momentum, g, u, next, n, m)
               : WEIR_OK;
}

/* A block a tile. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    square_tiles(const float *x, size_t n, weir_sums *sums) {
  weir_sums mine = {};
  for (uint32_t i = threadIdx.x; i < WEIR_TILE; i += WEIR_CUDA_BLOCK) {
    size_t at = (size_t)blockIdx.x * WEIR_TILE + i;
    double value = at < n ? (double)x[at] : 0.0;
    mine.sum[0] += value * value;
  }
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = mine;
  }
}

/* One block: the sum of squares, in the place that a search has for another sum. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold_squares(const weir_sums *sums, size_t tiles, weir_search_state *state) {
  weir_sums all = weir_fold_sums(sums, tiles);
  if (threadIdx.x == 0) {
    state->magnitudes = all.sum[0];
  }
}

__global__ static void clip(float *x, size_t n, const weir_search_state *state, double limit) {
  float factor = weir_clip_to(state->magnitudes, limit);
  if (factor == 1.0F) {
    return;
  }
  WEIR_CUDA_EACH(i, n) { x[i] *= factor; }
}

weir_status weir_cuda_clip(weir_cuda *cuda, float *x, size_t n, double limit) {
  weir_status status = weir_cuda_ready(cuda, n, 0);
  if (status != WEIR_OK || n == 0) {
    return status;
  }
  size_t tiles = weir_cuda_tiles(n);
  status = weir_cuda_launch(cuda, "measuring a gradient", tiles, WEIR_CUDA_BLOCK, square_tiles, x,
                            n, cuda->sums);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "measuring a gradient", 1, WEIR_CUDA_BLOCK, fold_squares,
                              cuda->sums, tiles, cuda->search);
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "clipping", elements_grid(cuda, n),
                                              WEIR_CUDA_BLOCK, clip, x, n, cuda->search, limit)
                           : status;
}
