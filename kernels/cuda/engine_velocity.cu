/* Momentum correction in a step on the device (kernels/decorate.h has what it is): a step reads u
 * and writes `next`, in all of its buckets; a commit lets the two change places. */
#include "kernels/cuda/engine.cuh"

weir_status weir_device_open_velocity(weir_device *device) {
  if (device->momentum == 0.0F) return WEIR_OK;
  weir_status status = weir_device_floats(&device->u, device->n);
  if (status == WEIR_OK) status = weir_device_floats(&device->next, device->n);
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

weir_status weir_device_correct(weir_device *device, weir_device_unit *unit, const float **g) {
  const size_t at = unit->bucket.at, n = unit->bucket.n;
  if (device->u == NULL || n == 0) return WEIR_OK;
  const float *from = *g;
  *g = device->next + at;
  return weir_cuda_momentum_correct(unit->near, from, device->u + at, device->next + at, n,
                                    device->momentum);
}

weir_status weir_device_stale(weir_device *device, size_t bucket, const uint32_t *index, size_t k) {
  weir_device_unit *unit = &device->unit[bucket];
  if (k > unit->bucket.kept)
    return weir_fail(WEIR_E_INTERNAL, "no room for %zu indices on the device", k);
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, unit->index, index, k * sizeof *index);
  return status == WEIR_OK ? weir_device_mask(device, unit, unit->far, unit->index, k) : status;
}

/* Momentum that was sent is stale. */
weir_status weir_device_mask(weir_device *device, weir_device_unit *unit, weir_cuda *cuda,
                             const uint32_t *index, size_t k) {
  return device->u != NULL ? weir_cuda_gather(cuda, device->next + unit->bucket.at, unit->bucket.n,
                                              index, k, NULL, true)
                           : WEIR_OK;
}
