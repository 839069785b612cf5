/* A device's memory for tests/multi/device.h: what tests/emulate exports beside its runtime. */
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define EXPORTED extern "C" __attribute__((visibility("default")))

static void must(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::abort();
  }
}

EXPORTED int weir_test_devices(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
/* The driver does not tell. */
EXPORTED uint64_t weir_test_allocated(void) { return 0; }
EXPORTED uint64_t weir_test_held(void) { return 0; }
EXPORTED void *weir_test_memory(size_t bytes) {
  void *made = NULL;
  must(cudaMalloc(&made, bytes > 0 ? bytes : 1));
  return made;
}
EXPORTED void weir_test_forget(void *made) { must(cudaFree(made)); }
EXPORTED void weir_test_put(void *to, const void *from, size_t bytes) {
  must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cudaStreamLegacy));
}
EXPORTED void weir_test_get(void *to, const void *from, size_t bytes) {
  must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}
