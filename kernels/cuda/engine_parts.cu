/* Sums of messages on the device (collectives/compressed.h): parts of a bucket are encoded, and
 * what others have sent is added to them, as the host's algorithm asks for it.  e is where the sum
 * will be, and what encoding loses is the next e. */
#include "kernels/cuda/engine.cuh"

static weir_status check(const weir_device_unit *unit, const weir_device_part *part) {
  const weir_device_bucket *shape = &unit->bucket;
  if (shape->kind == WEIR_DEVICE_PARTS && part->at <= shape->n &&
      part->count <= shape->n - part->at && part->block > 0 && part->bytes <= shape->stride)
    return WEIR_OK;
  return weir_fail(WEIR_E_INTERNAL, "no room for a message of %zu bytes, elements %zu to %zu",
                   part->bytes, part->at, part->at + part->count);
}

static weir_cuda_series series_of(const weir_device_part *part) {
  return weir_cuda_series{part->block, part->each, part->draws};
}

static weir_status encode(weir_device_unit *unit, const weir_device_part *part, const float *x,
                          float *left) {
  const weir_cuda_series series = series_of(part);
  size_t bytes = 0;
  weir_status status = weir_cuda_encode_series(unit->far, unit->bucket.codec, x, part->count,
                                               &series, unit->bucket.cr, unit->out, part->bytes,
                                               &bytes, left, &unit->told->other);
  if (status == WEIR_OK && bytes != part->bytes)
    status = weir_fail(WEIR_E_INTERNAL, "messages of %zu bytes, not %zu", bytes, part->bytes);
  return status;
}

weir_status weir_device_encode(weir_device *device, size_t bucket, const weir_device_part *part,
                               void *to) {
  weir_device_unit *unit = &device->unit[bucket];
  float *x = device->sum + unit->bucket.at + part->at;
  float *left = device->e + unit->bucket.at + part->at;
  weir_status status = check(unit, part);
  if (status == WEIR_OK) status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_hold_finite(unit->far, x, part->count);
  if (status == WEIR_OK) status = encode(unit, part, x, left);
  if (status == WEIR_OK) status = weir_cuda_hold_finite(unit->far, left, part->count);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, to, unit->out, part->bytes);
  return status == WEIR_OK ? weir_device_tell_fault(device, bucket) : status;
}

weir_status weir_device_add(weir_device *device, size_t bucket, const weir_device_part *part,
                            const void *from, bool add) {
  weir_device_unit *unit = &device->unit[bucket];
  float *x = device->sum + unit->bucket.at + part->at;
  weir_status status = check(unit, part);
  if (status == WEIR_OK) status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, device->in, from, part->bytes);
  const weir_cuda_series series = series_of(part);
  return status == WEIR_OK
             ? weir_cuda_decode_series(unit->far, unit->bucket.codec, device->in, part->bytes,
                                       part->count, &series, unit->bucket.cr, x, add)
             : status;
}

weir_status weir_device_drop(weir_device *device, size_t bucket) {
  weir_device_unit *unit = &device->unit[bucket];
  weir_status status = weir_device_enter(device);
  return status == WEIR_OK ? weir_cuda_clear(unit->far, device->sum + unit->bucket.at,
                                             unit->bucket.n * sizeof(float))
                           : status;
}

weir_status weir_device_arrive(weir_device *device) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_device_wait_for_own(device);
  return status == WEIR_OK ? weir_device_verdict(device) : status;
}

weir_status weir_device_lost(weir_device *device, size_t bucket) {
  weir_device_unit *unit = &device->unit[bucket];
  weir_moments *lost = &unit->told->other;
  weir_status status =
      weir_cuda_squares(unit->far, device->e + unit->bucket.at, unit->bucket.n, lost);
  return status == WEIR_OK
             ? weir_cuda_copy(unit->far, &device->told_host[bucket].other, lost, sizeof *lost)
             : status;
}
