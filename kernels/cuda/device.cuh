/* What the files of kernels/cuda share; not for other folders. */
#ifndef WEIR_KERNELS_CUDA_DEVICE_CUH
#define WEIR_KERNELS_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <weir/weir.h>

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
#include "base/base.h"
#include "kernels/cuda/cuda.h"
}
#include "kernels/number.h"

/* Bits of the device's fault word; weir_cuda_wait reads and clears it. */
constexpr uint32_t WEIR_FAULT_INDEX = 1;
constexpr uint32_t WEIR_FAULT_MESSAGE = 2;

/* What a search for the k largest knows so far; device memory (select.cu). */
struct weir_search_state;
struct weir_sums;         /* sums.cuh */
struct weir_cuda_tensors; /* tensors.cuh */

struct weir_cuda {
  int device;
  unsigned processors; /* multiprocessors */
  cudaStream_t stream;
  bool owns_stream;
  uint32_t *fault;      /* device */
  uint32_t *fault_host; /* page-locked */
  /* Reserved sizes, and the workspace's parts in one block of device memory. */
  size_t n;
  size_t k;
  size_t candidates;
  size_t scan_bytes;
  void *workspace;
  weir_search_state *search;
  weir_sums *sums;            /* a tile */
  uint2 *listed;              /* a tile: first candidate, candidates */
  uint2 *taken;               /* a tile and one more: elements above the band, inside it */
  float *candidate;           /* value */
  uint32_t *candidate_place;  /* index */
  float *sample;              /* of dgc */
  float *partial;             /* sums of powersgd */
  uint32_t *bitmap;           /* a bit an element (randomk) */
  void *scan;                 /* scratch of weir_cuda_scan */
  uint32_t *read_index;       /* of a message that is read (wire_read.cu) */
  weir_cuda_tensors *tensors; /* NULL before weir_cuda_reserve_tensors */
  uint8_t bucket_log2;        /* of qsgd's messages, as in plans; 0: 128 elements share a scale */
};

/* WEIR_OK, or WEIR_E_INTERNAL with the driver's own words. */
weir_status weir_cuda_check(cudaError_t error, const char *what);
/* What every operation checks first. */
weir_status weir_cuda_ready(const weir_cuda *cuda, size_t n, size_t k);

/* Queue zeros.  As launches do, it makes the device the current one first: of the default stream
 * every device has its own, and what is meant is that of the current one. */
weir_status weir_cuda_clear(weir_cuda *cuda, void *memory, size_t bytes);

/* Floats of powersgd's sums over stripes, for matrices of up to n elements. */
size_t weir_cuda_powersgd_partial(size_t n);

/* Queue a kernel. */
template <typename... P, typename... A>
weir_status weir_cuda_launch(weir_cuda *cuda, const char *what, size_t grid, unsigned block,
                             void (*kernel)(P...), A... arguments) {
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  if (status != WEIR_OK) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)grid);
  config.blockDim = dim3(block);
  config.stream = cuda->stream;
  return weir_cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), what);
}

/* Threads of a block that walks over elements, and blocks enough to fill the device. */
constexpr unsigned WEIR_CUDA_BLOCK = 256;
static inline size_t weir_cuda_grid(const weir_cuda *cuda, size_t items, size_t per_block) {
  size_t blocks = (items + per_block - 1) / per_block;
  size_t most = (size_t)cuda->processors * 16;
  blocks = blocks < most ? blocks : most;
  return blocks > 0 ? blocks : 1;
}

/* For each i in [0, n), spread over the whole grid. */
#define WEIR_CUDA_EACH(i, n)                                              \
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
       i += (size_t)gridDim.x * blockDim.x)

/* Elements of 16 bits: exact, and rounded to nearest with ties to even. */
__device__ static inline float weir_widened(unsigned type, uint16_t half) {
  return type == WEIR_BF16 ? weir_bf16_value(half) : weir_half_value(half);
}
__device__ static inline uint16_t weir_narrowed(unsigned type, float x) {
  return type == WEIR_BF16 ? weir_bf16_bits(x) : weir_fp16_bits(x);
}

#define WEIR_WARP 32U
#define WEIR_ALL_LANES 0xffffffffU

#endif
