/* Momentum correction, sums of squares and clipping; kernels/decorate.h. */
#include "kernels/cuda/select.cuh"

static size_t elements_grid(const weir_cuda *cuda, size_t n) {
  return weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK);
}

__global__ static void correct(const float *g, const float *u, float *next, size_t n, float m) {
  WEIR_CUDA_EACH(i, n) {
    float kept = m * u[i];
    next[i] = kept + g[i];
  }
}

weir_status weir_cuda_momentum_correct(weir_cuda *cuda, const float *g, const float *u, float *next,
                                       size_t n, float m) {
  return n > 0 ? weir_cuda_launch(cuda, "momentum", elements_grid(cuda, n), WEIR_CUDA_BLOCK,
                                  correct, g, u, next, n, m)
               : WEIR_OK;
}

__global__ static void scale(float *x, size_t n, float factor) {
  WEIR_CUDA_EACH(i, n) { x[i] *= factor; }
}

weir_status weir_cuda_scale(weir_cuda *cuda, float *x, size_t n, float factor) {
  return n > 0 ? weir_cuda_launch(cuda, "scaling", elements_grid(cuda, n), WEIR_CUDA_BLOCK, scale,
                                  x, n, factor)
               : WEIR_OK;
}

/* --- sums of squares -------------------------------------------------------------------------- */

constexpr size_t MEASURING =
    (WEIR_CUDA_MEASURE - sizeof(weir_sums)) / sizeof(weir_sums); /* blocks */

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    squares(const float *x, size_t n, weir_sums *sums) {
  weir_sums mine = {};
  WEIR_CUDA_EACH(i, n) {
    double value = (double)x[i];
    mine.sum[0] += value * value;
  }
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    half_squares(unsigned type, const uint16_t *x, size_t n, weir_sums *sums) {
  weir_sums mine = {};
  WEIR_CUDA_EACH(i, n) {
    double value = (double)weir_widened(type, x[i]);
    mine.sum[0] += value * value;
  }
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold_moments(const weir_sums *sums, size_t blocks, weir_moments *out) {
  weir_sums all = weir_fold_sums(sums, blocks);
  if (threadIdx.x == 0) *out = weir_moments{0.0, all.sum[0], 0};
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold_square(const weir_sums *sums, size_t blocks, double *out, bool add) {
  weir_sums all = weir_fold_sums(sums, blocks);
  if (threadIdx.x == 0) *out = (add ? *out : 0.0) + all.sum[0];
}

/* A block a tile, as far as there are blocks. */
static size_t blocks_for(size_t n, size_t most) {
  size_t blocks = weir_cuda_tiles(n);
  blocks = blocks < most ? blocks : most;
  return blocks > 0 ? blocks : 1;
}

weir_status weir_cuda_squares(weir_cuda *cuda, const float *x, size_t n, weir_moments *out) {
  size_t blocks = blocks_for(n, (size_t)cuda->processors * 4);
  weir_status status =
      weir_cuda_launch(cuda, "squares", blocks, WEIR_CUDA_BLOCK, squares, x, n, cuda->sums);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "squares", 1, WEIR_CUDA_BLOCK, fold_moments,
                                              cuda->sums, blocks, out)
                           : status;
}

/* --- clipping -------------------------------------------------------------------------------- */

/* The room begins with the sum; those of the blocks follow. */
weir_status weir_cuda_measure(weir_cuda *cuda, const void *x, unsigned type, size_t n, bool add,
                              void *room) {
  size_t blocks = blocks_for(n, MEASURING);
  weir_sums *sums = (weir_sums *)room + 1;
  weir_status status = type == WEIR_FP32
                           ? weir_cuda_launch(cuda, "measuring a gradient", blocks, WEIR_CUDA_BLOCK,
                                              squares, (const float *)x, n, sums)
                           : weir_cuda_launch(cuda, "measuring a gradient", blocks, WEIR_CUDA_BLOCK,
                                              half_squares, type, (const uint16_t *)x, n, sums);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "measuring a gradient", 1, WEIR_CUDA_BLOCK,
                                              fold_square, sums, blocks, (double *)room, add)
                           : status;
}

__global__ static void clip(float *x, size_t n, const double *sum_square, double limit) {
  float factor = weir_clip_to(*sum_square, limit);
  if (factor == 1.0F) return;
  WEIR_CUDA_EACH(i, n) { x[i] *= factor; }
}

__global__ static void half_clip(unsigned type, uint16_t *x, size_t n, const double *sum_square,
                                 double limit) {
  float factor = weir_clip_to(*sum_square, limit);
  if (factor == 1.0F) return;
  WEIR_CUDA_EACH(i, n) { x[i] = weir_narrowed(type, weir_widened(type, x[i]) * factor); }
}

weir_status weir_cuda_clip(weir_cuda *cuda, void *x, unsigned type, size_t n, double limit,
                           const void *room) {
  const double *square = (const double *)room;
  size_t grid = elements_grid(cuda, n);
  if (n == 0) return WEIR_OK;
  return type == WEIR_FP32 ? weir_cuda_launch(cuda, "clipping", grid, WEIR_CUDA_BLOCK, clip,
                                              (float *)x, n, square, limit)
                           : weir_cuda_launch(cuda, "clipping", grid, WEIR_CUDA_BLOCK, half_clip,
                                              type, (uint16_t *)x, n, square, limit);
}
