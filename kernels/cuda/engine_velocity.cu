/* Momentum correction in a step on the device (kernels/decorate.h has what it is): a step reads u
 * and writes `next`, in all of its buckets; a commit lets the two change places. */
#include "kernels/cuda/engine.cuh"

weir_status weir_device_open_velocity(weir_device *device) {
  if (device->momentum == 0.0F) {
    return WEIR_OK;
  }
  weir_status status = weir_device_floats(&device->u, device->n);
  if (status == WEIR_OK) {
    status = weir_device_floats(&device->next, device->n);
  }
  return status == WEIR_OK
             ? weir_cuda_check(
                   cudaMemsetAsync(device->u, 0, device->n * sizeof(float), device->caller),
                   "a velocity")
             : status;
}

void weir_device_close_velocity(weir_device *device) {
  (void)cudaFree(device->kept_u);
  (void)cudaFree(device->next);
  (void)cudaFree(device->u);
}

/* Where a sum will be there is room until messages are decoded. */
weir_status weir_device_correct(weir_device *device, weir_device_unit *unit, bool told,
                                const float **g) {
  size_t at = unit->bucket.at, n = unit->bucket.n;
  if (device->u == NULL || n == 0) {
    return WEIR_OK;
  }
  float *next = device->next + at;
  float *v = told ? device->sum + at : next;
  const float *from = *g;
  *g = v;
  return weir_cuda_momentum_correct(unit->near, from, device->u + at,
                                    told ? device->residual + at : NULL, v, next, n,
                                    device->momentum);
}

/* Momentum that was sent is stale. */
weir_status weir_device_mask(weir_device *device, weir_device_unit *unit, weir_cuda *cuda,
                             const uint32_t *index, size_t k) {
  return device->u != NULL ? weir_cuda_gather(cuda, device->next + unit->bucket.at, unit->bucket.n,
                                              index, k, NULL, true)
                           : WEIR_OK;
}
