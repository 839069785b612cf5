/* Clipping on the engine's device: gradients that lie apart are measured one after the other,
 * before they are handed in.  There is a bucket always, and what is taken of its context is the
 * stream. */
#include "kernels/cuda/engine.cuh"

weir_status weir_device_open_norm(weir_device *device) {
  weir_status status =
      weir_cuda_check(cudaMalloc((void **)&device->norm, WEIR_CUDA_MEASURE), "device memory");
  return status == WEIR_OK
             ? weir_cuda_check(cudaMallocHost((void **)&device->norm_host, sizeof(double)),
                               "page-locked memory")
             : status;
}

void weir_device_close_norm(weir_device *device) {
  (void)cudaFreeHost(device->norm_host);
  (void)cudaFree(device->norm);
}

weir_status weir_device_measure(weir_device *device, const void *x, unsigned type, size_t n,
                                bool add) {
  return weir_cuda_measure(device->unit[0].near, x, type, n, add, device->norm);
}

weir_status weir_device_clip(weir_device *device, void *x, unsigned type, size_t n, double limit) {
  return weir_cuda_clip(device->unit[0].near, x, type, n, limit, device->norm);
}

weir_status weir_device_norm(weir_device *device, double *norm) {
  weir_status status =
      weir_cuda_copy(device->unit[0].near, device->norm_host, device->norm, sizeof(double));
  if (status == WEIR_OK) status = weir_device_wait_for_caller(device);
  *norm = status == WEIR_OK ? sqrt(*device->norm_host) : 0.0;
  return status;
}
