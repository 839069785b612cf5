/* HiTopKComm on the device (collectives/compressed.h): the host has summed a share of e inside of a
 * machine, the device selects from that and adds up what machines send. */
#include "kernels/cuda/engine.cuh"

static weir_status check(const weir_device_unit *unit, size_t at, size_t count) {
  const weir_device_bucket *shape = &unit->bucket;
  return shape->kind == WEIR_DEVICE_SHARE && at <= shape->n && count <= shape->n - at
             ? WEIR_OK
             : weir_fail(WEIR_E_INTERNAL, "no share of elements %zu to %zu", at, at + count);
}

/* e and the sum as they are to be before anything is selected. */
static weir_status put_share(weir_device *device, weir_device_unit *unit, size_t at, size_t count,
                             const float *x) {
  size_t bytes = unit->bucket.n * sizeof(float);
  float *e = device->e + unit->bucket.at;
  weir_status status = weir_cuda_clear(unit->far, e, bytes);
  if (status == WEIR_OK) status = weir_cuda_clear(unit->far, device->sum + unit->bucket.at, bytes);
  if (status == WEIR_OK && count > 0)
    status = weir_cuda_copy(unit->far, e + at, x, count * sizeof *e);
  if (status == WEIR_OK) status = weir_cuda_clear(unit->far, unit->told, sizeof *unit->told);
  return status == WEIR_OK ? weir_cuda_squares(unit->far, e + at, count, &unit->told->moments)
                           : status;
}

weir_status weir_device_pick(weir_device *device, size_t bucket, size_t at, size_t count, size_t k,
                             const float *x, void *message, const weir_device_told **told) {
  weir_device_unit *unit = &device->unit[bucket];
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const weir_cuda_fed given = {NULL, NULL, device->e + unit->bucket.at + at, NULL};
  *told = &device->told_host[bucket];
  weir_status status = check(unit, at, count);
  if (status == WEIR_OK) status = weir_device_enter(device);
  if (status == WEIR_OK) status = put_share(device, unit, at, count, x);
  if (status == WEIR_OK) status = weir_device_select(unit, unit->far, &given, &layout, k, 0);
  if (status == WEIR_OK) status = weir_device_ship(device, bucket, unit->far, 0, message);
  return status == WEIR_OK ? weir_device_arrive(device) : status;
}

weir_status weir_device_take(weir_device *device, size_t bucket, size_t at, size_t count,
                             const void *message, size_t bytes) {
  weir_device_unit *unit = &device->unit[bucket];
  weir_status status = check(unit, at, count);
  if (status == WEIR_OK && bytes > device->in_bytes)
    status = weir_fail(WEIR_E_INTERNAL, "no room for a message of %zu bytes on the device", bytes);
  if (status == WEIR_OK) status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, device->in, message, bytes);
  return status == WEIR_OK ? weir_cuda_wire_decode_to(unit->far, device->in, bytes, count,
                                                      device->sum + unit->bucket.at + at, true)
                           : status;
}
