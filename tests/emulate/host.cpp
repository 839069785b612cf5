/* Streams, events and memory; cuda_runtime.h says what is emulated. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "cuda_runtime.h"

/* Places are counted from the first thing ever queued. */
struct weir_emulated_stream {
  explicit weir_emulated_stream(int device_) : device(device_) {}
  const int device;
  std::deque<std::function<void()>> queue;
  uint64_t queued = 0;
  uint64_t done = 0;
};

struct weir_emulated_event {
  explicit weir_emulated_event(int device_) : device(device_) {}
  const int device;
  cudaStream_t stream = nullptr;
  uint64_t place = 0;
};

namespace {

struct allocation {
  size_t bytes;
  cudaMemoryType type;
  int device;
  int file; /* that others can map; -1: none */
};

/* What a handle holds. */
struct opening {
  char magic[8];
  pid_t process;
  int file;
  size_t bytes;
};
constexpr char MAGIC[8] = "emulate";
constexpr size_t SHARED_PAGE = (size_t)2 << 20;

constexpr int PROCESSORS = 1;
constexpr int DEVICES = 2;
thread_local int current;

std::recursive_mutex lock;
weir_emulated_stream legacy[DEVICES] = {weir_emulated_stream(0), weir_emulated_stream(1)};
std::set<cudaStream_t> streams;
std::map<const char *, allocation> memory;
uint64_t allocated;
bool adopts; /* memory that nobody has asked for here counts as the first device's */

using holding = std::lock_guard<std::recursive_mutex>;

cudaStream_t find(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy ? &legacy[current] : stream;
}

/* Only copies may be queued on a stream of another device than the thread's current one. */
void must_be_current(int device, const char *what) {
  if (device != current) {
    std::fprintf(stderr, "emulated device: %s of device %d, while %d is current\n", what, device,
                 current);
    std::abort();
  }
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
  for (weir_emulated_stream &stream : legacy) {
    run_until(&stream, stream.queued);
  }
  for (cudaStream_t stream : streams) {
    run_until(stream, stream->queued);
  }
}

allocation found(const void *at) {
  const allocation none = {0, cudaMemoryTypeUnregistered, 0, -1};
  auto after = memory.upper_bound((const char *)at);
  if (after == memory.begin()) {
    return none;
  }
  --after;
  return (const char *)at < after->first + after->second.bytes ? after->second : none;
}

cudaMemoryType type_of(const void *at) { return found(at).type; }

/* nullptr: it cannot be. */
void *map(int file, size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

/* What the calling thread's last call failed with, which the runtime keeps until it is asked. */
thread_local cudaError_t last_error;

cudaError_t failed(cudaError_t error) { return last_error = error; }

cudaError_t take(void **out, size_t bytes, cudaMemoryType type) {
  holding held(lock);
  int file = -1;
  *out = nullptr;
  if (type == cudaMemoryTypeDevice && bytes > 0 && bytes % SHARED_PAGE == 0) {
    file = memfd_create("emulated device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0 || (*out = map(file, bytes)) == nullptr) {
      (void)close(file);
      return failed(cudaErrorMemoryAllocation);
    }
  } else if (bytes > SIZE_MAX / 2 || posix_memalign(out, 256, bytes) != 0) {
    *out = nullptr;
    return failed(cudaErrorMemoryAllocation);
  }
  std::memset(*out, 0xa5, bytes);
  memory[(const char *)*out] = allocation{bytes, type, current, file};
  allocated++;
  return cudaSuccess;
}

}  // namespace

/* For tests that load this (tests/multi/device.h; device_memory.cu is the same of a device): how
 * often memory was allocated, memory, and what a caller's own kernels would do on the default
 * stream. */
#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED int weir_test_devices(void) { return DEVICES; }
EXPORTED uint64_t weir_test_allocated(void) {
  holding held(lock);
  return allocated;
}
/* Bytes of the devices' memory that are in use; those of another process's count there. */
EXPORTED uint64_t weir_test_held(void) {
  holding held(lock);
  uint64_t bytes = 0;
  for (const auto &piece : memory)
    if (piece.second.type == cudaMemoryTypeDevice) bytes += piece.second.bytes;
  return bytes;
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

/* For python/tests, whose tensors are memory of the process. */
EXPORTED void weir_test_adopt(void) { adopts = true; }
EXPORTED void *weir_test_stream(void) {
  cudaStream_t made = nullptr;
  (void)cudaStreamCreateWithFlags(&made, 0);
  return made;
}
EXPORTED void weir_test_drain(void *stream) { (void)cudaStreamSynchronize((cudaStream_t)stream); }

void weir_emulated_queue(cudaStream_t stream, std::function<void()> work) {
  holding held(lock);
  stream = find(stream);
  stream->queue.push_back(std::move(work));
  stream->queued++;
}

cudaError_t weir_emulated_launch(const cudaLaunchConfig_t *config,
                                 const std::function<void()> &kernel) {
  const cudaLaunchConfig_t held = *config;
  must_be_current(find(held.stream)->device, "a stream");
  weir_emulated_queue(held.stream, [=] { weir_emulated_run(&held, kernel); });
  return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    default: return "invalid argument";
  }
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
  const cudaError_t last = last_error;
  last_error = cudaSuccess;
  return last;
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = DEVICES;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  current = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
  *value = PROCESSORS;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  holding held(lock);
  *stream = new weir_emulated_stream(current);
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
  *event = new weir_emulated_event(current);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  holding held(lock);
  event->stream = find(stream);
  must_be_current(event->device, "an event");
  must_be_current(event->stream->device, "an event's stream");
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
  const allocation where = found(at);
  *out = cudaPointerAttributes{where.type, where.device};
  if (adopts && where.type == cudaMemoryTypeUnregistered) out->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *at) {
  holding held(lock);
  const auto there = memory.find((const char *)at);
  if (there == memory.end() || there->second.file < 0) return failed(cudaErrorInvalidValue);
  opening mine = {};
  std::memcpy(mine.magic, MAGIC, sizeof MAGIC);
  mine.process = getpid();
  mine.file = there->second.file;
  mine.bytes = there->second.bytes;
  *handle = cudaIpcMemHandle_t{};
  std::memcpy(handle, &mine, sizeof mine);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned) {
  holding held(lock);
  opening asked;
  std::memcpy(&asked, &handle, sizeof asked);
  *out = nullptr;
  if (std::memcmp(asked.magic, MAGIC, sizeof MAGIC) != 0 || asked.process == getpid()) {
    return failed(cudaErrorInvalidResourceHandle);
  }
  const std::string path =
      "/proc/" + std::to_string(asked.process) + "/fd/" + std::to_string(asked.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  *out = file >= 0 ? map(file, asked.bytes) : nullptr;
  if (*out == nullptr) {
    (void)close(file);
    return failed(cudaErrorInvalidResourceHandle);
  }
  memory[(const char *)*out] = allocation{asked.bytes, cudaMemoryTypeDevice, current, file};
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *at) { return cudaFree(at); }

cudaError_t cudaMalloc(void **out, size_t bytes) { return take(out, bytes, cudaMemoryTypeDevice); }

cudaError_t cudaMallocHost(void **out, size_t bytes) {
  return take(out, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFree(void *at) {
  holding held(lock);
  run_all();
  const allocation freed = found(at);
  memory.erase((const char *)at);
  if (freed.file < 0) {
    std::free(at);
    return cudaSuccess;
  }
  (void)munmap(at, freed.bytes);
  (void)close(freed.file);
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
  must_be_current(find(stream)->device, "a stream");
  weir_emulated_queue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
