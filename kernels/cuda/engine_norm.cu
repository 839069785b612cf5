/* Sums of squares on the engine's device: of what a message says, and of gradients that are
 * clipped before they are handed in. */
#include "kernels/cuda/engine.cuh"

constexpr size_t EACH = 16 * WEIR_CUDA_BLOCK; /* elements to a block, as far as there are blocks */
constexpr size_t MEASURING = 1024;            /* blocks */

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    squares(const float *x, size_t n, weir_sums *sums) {
  weir_sums mine = {};
  WEIR_CUDA_EACH(i, n) {
    double value = (double)x[i];
    mine.sum[0] += value * value;
  }
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = mine;
  }
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold_moments(const weir_sums *sums, size_t blocks, weir_moments *out) {
  weir_sums all = weir_fold_sums(sums, blocks);
  if (threadIdx.x == 0) {
    *out = weir_moments{0.0, all.sum[0], 0};
  }
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold_norm(const weir_sums *sums, size_t blocks, double *out, bool add) {
  weir_sums all = weir_fold_sums(sums, blocks);
  if (threadIdx.x == 0) {
    *out = (add ? *out : 0.0) + all.sum[0];
  }
}

__global__ static void shorten(float *x, size_t n, const double *sum_square, double limit) {
  float factor = weir_clip_to(*sum_square, limit);
  if (factor == 1.0F) {
    return;
  }
  WEIR_CUDA_EACH(i, n) { x[i] *= factor; }
}

static size_t blocks_for(size_t n, size_t most) {
  size_t blocks = n / EACH + (n % EACH != 0);
  blocks = blocks < most ? blocks : most;
  return blocks > 0 ? blocks : 1;
}

weir_status weir_device_squares(weir_cuda *cuda, const float *x, size_t n, weir_moments *out) {
  size_t blocks = blocks_for(n, (size_t)cuda->processors * 4);
  weir_status status =
      weir_cuda_launch(cuda, "squares", blocks, WEIR_CUDA_BLOCK, squares, x, n, cuda->sums);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "squares", 1, WEIR_CUDA_BLOCK, fold_moments,
                                              cuda->sums, blocks, out)
                           : status;
}

/* --- clipping -------------------------------------------------------------------------------- */

weir_status weir_device_open_norm(weir_device *device) {
  weir_status status = weir_cuda_check(
      cudaMalloc((void **)&device->sums, MEASURING * sizeof *device->sums), "device memory");
  if (status == WEIR_OK) {
    status =
        weir_cuda_check(cudaMalloc((void **)&device->norm, sizeof *device->norm), "device memory");
  }
  return status == WEIR_OK
             ? weir_cuda_check(cudaMallocHost((void **)&device->norm_host, sizeof(double)),
                               "page-locked memory")
             : status;
}

void weir_device_close_norm(weir_device *device) {
  (void)cudaFreeHost(device->norm_host);
  (void)cudaFree(device->norm);
  (void)cudaFree(device->sums);
}

/* There is a group always, and what a context has is the stream. */
weir_status weir_device_measure(weir_device *device, const float *x, size_t n, bool add) {
  weir_cuda *cuda = device->unit[0].near;
  size_t blocks = blocks_for(n, MEASURING);
  weir_status status = weir_cuda_launch(cuda, "measuring a gradient", blocks, WEIR_CUDA_BLOCK,
                                        squares, x, n, device->sums);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "measuring a gradient", 1, WEIR_CUDA_BLOCK,
                                              fold_norm, device->sums, blocks, device->norm, add)
                           : status;
}

weir_status weir_device_clip(weir_device *device, float *x, size_t n, double limit) {
  weir_cuda *cuda = device->unit[0].near;
  return weir_cuda_launch(cuda, "clipping", weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK),
                          WEIR_CUDA_BLOCK, shorten, x, n, device->norm, limit);
}

weir_status weir_device_norm(weir_device *device, double *norm) {
  weir_status status =
      weir_cuda_copy(device->unit[0].near, device->norm_host, device->norm, sizeof(double));
  if (status == WEIR_OK) {
    status = weir_device_wait_for_caller(device);
  }
  *norm = status == WEIR_OK ? sqrt(*device->norm_host) : 0.0;
  return status;
}
