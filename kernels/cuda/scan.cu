/* Prefix sums over tiles: CUB's. */
#include <cub/device/device_scan.cuh>

#include "kernels/cuda/select.cuh"

struct add_both {
  __host__ __device__ uint2 operator()(uint2 a, uint2 b) const {
    return make_uint2(a.x + b.x, a.y + b.y);
  }
};

weir_status weir_cuda_scan_bytes(weir_cuda *cuda, size_t count, size_t *bytes) {
  uint2 *table = NULL;
  return weir_cuda_check(
      cub::DeviceScan::ExclusiveScan(NULL, *bytes, table, table, add_both(), make_uint2(0, 0),
                                     (uint32_t)count, cuda->stream),
      "asking for a scan's scratch");
}

weir_status weir_cuda_scan(weir_cuda *cuda, uint2 *table, size_t count) {
  size_t bytes = cuda->scan_bytes;
  return weir_cuda_check(
      cub::DeviceScan::ExclusiveScan(cuda->scan, bytes, table, table, add_both(), make_uint2(0, 0),
                                     (uint32_t)count, cuda->stream),
      "a scan");
}
