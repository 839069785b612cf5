/* Streams, events and memory; cuda_runtime.h says what is emulated. */
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "cuda_runtime.h"

/* Places are counted from the first thing ever queued. */
struct weir_emulated_stream {
  std::deque<std::function<void()>> queue;
  uint64_t queued = 0;
  uint64_t done = 0;
};

struct weir_emulated_event {
  cudaStream_t stream = nullptr;
  uint64_t place = 0;
};

namespace {

struct allocation {
  size_t bytes;
  cudaMemoryType type;
};

constexpr int PROCESSORS = 1;

std::recursive_mutex lock;
weir_emulated_stream legacy;
std::set<cudaStream_t> streams;
std::map<const char *, allocation> memory;
uint64_t allocated;

using holding = std::lock_guard<std::recursive_mutex>;

cudaStream_t find(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy ? &legacy : stream;
}

void run_until(cudaStream_t stream, uint64_t place) {
  while (stream->done < place && !stream->queue.empty()) {
    std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    work();
    stream->done++;
  }
}

void run_all() {
  run_until(&legacy, legacy.queued);
  for (cudaStream_t stream : streams) {
    run_until(stream, stream->queued);
  }
}

cudaMemoryType type_of(const void *at) {
  auto after = memory.upper_bound((const char *)at);
  if (after == memory.begin()) {
    return cudaMemoryTypeUnregistered;
  }
  --after;
  return (const char *)at < after->first + after->second.bytes ? after->second.type
                                                               : cudaMemoryTypeUnregistered;
}

cudaError_t take(void **out, size_t bytes, cudaMemoryType type) {
  holding held(lock);
  if (bytes > SIZE_MAX / 2 || posix_memalign(out, 256, bytes) != 0) {
    *out = nullptr;
    return cudaErrorMemoryAllocation;
  }
  std::memset(*out, 0xa5, bytes);
  memory[(const char *)*out] = allocation{bytes, type};
  allocated++;
  return cudaSuccess;
}

}  // namespace

/* For tests that load this (tests/multi/device.h; device_memory.cu is the same of a device): how
 * often memory was allocated, memory, and what a caller's own kernels would do on the default
 * stream. */
#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED int weir_test_devices(void) { return 1; }
EXPORTED uint64_t weir_test_allocated(void) {
  holding held(lock);
  return allocated;
}
EXPORTED void *weir_test_memory(size_t bytes) {
  void *made = nullptr;
  (void)cudaMalloc(&made, bytes);
  return made;
}
EXPORTED void weir_test_forget(void *made) { (void)cudaFree(made); }
EXPORTED void weir_test_put(void *to, const void *from, size_t bytes) {
  std::string held((const char *)from, bytes);
  weir_emulated_queue(nullptr, [=] { std::memcpy(to, held.data(), bytes); });
}
EXPORTED void weir_test_get(void *to, const void *from, size_t bytes) {
  (void)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, nullptr);
}

void weir_emulated_queue(cudaStream_t stream, std::function<void()> work) {
  holding held(lock);
  stream = find(stream);
  stream->queue.push_back(std::move(work));
  stream->queued++;
}

const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "out of memory";
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
  *value = PROCESSORS;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  holding held(lock);
  *stream = new weir_emulated_stream();
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  holding held(lock);
  run_until(stream, stream->queued);
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  holding held(lock);
  stream = find(stream);
  run_until(stream, stream->queued);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = new weir_emulated_event();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  holding held(lock);
  event->stream = find(stream);
  event->place = event->stream->queued;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  holding held(lock);
  if (event->stream != nullptr) {
    run_until(event->stream, event->place);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  holding held(lock);
  cudaStream_t other = event->stream;
  uint64_t place = event->place;
  if (other != nullptr) {
    weir_emulated_queue(stream, [=] { run_until(other, place); });
  }
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *at) {
  holding held(lock);
  *out = cudaPointerAttributes{type_of(at), 0};
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) { return take(out, bytes, cudaMemoryTypeDevice); }

cudaError_t cudaMallocHost(void **out, size_t bytes) {
  return take(out, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFree(void *at) {
  holding held(lock);
  run_all();
  memory.erase((const char *)at);
  std::free(at);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at) { return cudaFree(at); }

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  holding held(lock);
  weir_emulated_queue(stream, [=] { std::memcpy(to, from, bytes); });
  bool pageable =
      type_of(to) == cudaMemoryTypeUnregistered || type_of(from) == cudaMemoryTypeUnregistered;
  return pageable ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  weir_emulated_queue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
