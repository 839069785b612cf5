/* As much of CUDA as kernels/cuda uses, on the processor: what lies in tests/emulate takes the
 * place of the toolkit's header, so that the same .cu files are compiled as plain C++ and run
 * without a device, under the sanitizers too.
 *
 * Blocks run one after the other, in order.  A block's threads are coroutines that switch where
 * they wait for each other (__syncthreads and the warp's exchanges) and take turns in alternating
 * order, so that much of what would be a race gives wrong results.  A wait that can never end
 * aborts the process.  Device memory is host memory, filled with a pattern;
 * pieces of whole shared pages of a device (2 MiB) can be opened by other processes.
 *
 * What is queued on a stream is done as late as can be: when the host waits for it, asks for an
 * event behind it, frees memory or copies pageable memory on that stream, or when another stream
 * that waits for such an event gets there.  So who forgets to wait finds nothing done yet.  There
 * are two devices, with a default stream each, and who queues on a stream or records an event of
 * one that is not the thread's current device is stopped.  Any
 * number of threads may use it, one of them at a time.  What this cannot show: races between
 * blocks, memory order, speed. */
#ifndef WEIR_EMULATE_CUDA_RUNTIME_H
#define WEIR_EMULATE_CUDA_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }

/* --- the device's side ----------------------------------------------------------------------- */

/* Of the thread that runs. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
static inline void __threadfence() {}

/* Every lane of mask gives a value and gets those of all lanes; behind them are the bits of those
 * lanes of mask that have not given 0. */
const uint64_t *weir_emulated_exchange(unsigned mask, uint64_t mine);
static inline unsigned weir_emulated_lane() { return threadIdx.x % 32; }

static inline void __syncwarp(unsigned mask = 0xffffffffU) {
  (void)weir_emulated_exchange(mask, 0);
}
static inline unsigned __ballot_sync(unsigned mask, bool mine) {
  return (unsigned)weir_emulated_exchange(mask, mine)[32];
}
static inline bool __any_sync(unsigned mask, bool mine) { return __ballot_sync(mask, mine) != 0; }

/* The value of lane `from` of the same part of `width` lanes; its own if there is none. */
template <typename T>
T weir_emulated_from(unsigned mask, T mine, int from, int width) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable<T>::value, "");
  uint64_t bits = 0;
  std::memcpy(&bits, &mine, sizeof mine);
  const uint64_t *all = weir_emulated_exchange(mask, bits);
  int base = (int)weir_emulated_lane() / width * width;
  if (from >= 0 && from < width && (mask >> (base + from) & 1U) != 0)
    std::memcpy(&mine, &all[base + from], sizeof mine);
  return mine;
}
template <typename T>
T __shfl_sync(unsigned mask, T mine, int from, int width = 32) {
  return weir_emulated_from(mask, mine, from % width, width);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T mine, unsigned distance, int width = 32) {
  return weir_emulated_from(mask, mine, (int)weir_emulated_lane() % width - (int)distance, width);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T mine, unsigned distance, int width = 32) {
  return weir_emulated_from(mask, mine, (int)weir_emulated_lane() % width + (int)distance, width);
}

template <typename T>
T atomicAdd(T *at, typename std::common_type<T>::type more) {
  T old = *at;
  *at = old + more;
  return old;
}
template <typename T>
T atomicOr(T *at, typename std::common_type<T>::type more) {
  T old = *at;
  *at = old | more;
  return old;
}
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }

/* --- the host's side ------------------------------------------------------------------------- */

typedef enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600
} cudaError_t;
typedef enum cudaMemcpyKind { cudaMemcpyDeviceToHost, cudaMemcpyDefault } cudaMemcpyKind;
typedef enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount } cudaDeviceAttr;
typedef enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged
} cudaMemoryType;
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
typedef struct weir_emulated_stream *cudaStream_t;
typedef struct weir_emulated_event *cudaEvent_t;
#define cudaStreamLegacy ((cudaStream_t)0x1)
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *memory);

/* Memory of another process, opened by its handle; one's own is refused, as a device does. */
struct cudaIpcMemHandle_t {
  char reserved[64];
};
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory);
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *memory);

/* Queue what a stream is to do; a kernel's blocks. */
void weir_emulated_queue(cudaStream_t stream, std::function<void()> work);
void weir_emulated_run(const cudaLaunchConfig_t *config, const std::function<void()> &kernel);
cudaError_t weir_emulated_launch(const cudaLaunchConfig_t *config,
                                 const std::function<void()> &kernel);

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                               A... arguments) {
  return weir_emulated_launch(config, [=] { kernel(arguments...); });
}

#endif
