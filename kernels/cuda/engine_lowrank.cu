/* Low rank in a step on the device: the products with a gradient are made here, and the thin
 * matrices travel through page-locked memory.  What is done to those alone, columns that are made
 * orthogonal or of length 1, is the host's: so all ranks do it alike. */
#include "kernels/cuda/engine.cuh"

/* Columns to start from were put where Q will be. */
weir_status weir_device_project(weir_device *device, weir_device_unit *unit, float *values) {
  const weir_device_bucket *bucket = &unit->bucket;
  weir_cuda *cuda = unit->near;
  size_t first = bucket->first_sum;
  float *e = device->e + bucket->at;
  weir_status status = weir_cuda_copy(cuda, unit->value + first, values + first,
                                      (bucket->kept - first) * sizeof *values);
  for (size_t t = 0; t < bucket->layout.tensors && status == WEIR_OK; t++) {
    const weir_thin *thin = &bucket->thin[t];
    float *p = unit->value + thin->p;
    if (!thin->whole) {
      status = weir_cuda_powersgd_project(cuda, e + thin->at, thin->rows, thin->columns,
                                          unit->value + thin->q, thin->columns, bucket->rank, p);
    } else if (thin->n > 0) {
      size_t bytes = thin->n * sizeof *e;
      status = weir_cuda_copy(cuda, p, e + thin->at, bytes);
      if (status == WEIR_OK) status = weir_cuda_clear(cuda, e + thin->at, bytes);
    }
  }
  return status == WEIR_OK ? weir_cuda_copy(cuda, values, unit->value, first * sizeof *values)
                           : status;
}

/* Off e of one matrix what its Q sends. */
static weir_status take_away(weir_device *device, weir_device_unit *unit, const weir_thin *thin) {
  float *m = device->e + unit->bucket.at + thin->at;
  return weir_cuda_powersgd_expand(unit->far, unit->value + thin->p, thin->rows,
                                   unit->value + thin->q, thin->columns, unit->bucket.rank, m,
                                   true);
}

/* This rank's Q of one matrix.  Where sums lose nothing, what that sends is taken off e at once; of
 * what travels whole e becomes what its sum has lost. */
static weir_status answer(weir_device *device, weir_device_unit *unit, const weir_thin *thin,
                          const float *lost) {
  float *m = device->e + unit->bucket.at + thin->at;
  if (thin->whole)
    return lost != NULL ? weir_cuda_copy(unit->far, m, lost + thin->p, thin->n * sizeof *m)
                        : WEIR_OK;
  weir_status status = weir_cuda_powersgd_project_back(unit->far, m, thin->rows, thin->columns,
                                                       unit->value + thin->p, unit->bucket.rank,
                                                       unit->value + thin->q);
  return status == WEIR_OK && lost == NULL ? take_away(device, unit, thin) : status;
}

/* The squares of what is left of e. */
static weir_status tell_left(weir_device *device, size_t bucket) {
  weir_device_unit *unit = &device->unit[bucket];
  const weir_device_bucket *shape = &unit->bucket;
  weir_status status =
      weir_cuda_squares(unit->far, device->e + shape->at, shape->n, &unit->told->other);
  return status == WEIR_OK ? weir_cuda_copy(unit->far, &device->told_host[bucket].other,
                                            &unit->told->other, sizeof unit->told->other)
                           : status;
}

weir_status weir_device_project_back(weir_device *device, size_t bucket, float *values,
                                     const float *lost) {
  weir_device_unit *unit = &device->unit[bucket];
  const weir_device_bucket *shape = &unit->bucket;
  weir_cuda *cuda = unit->far;
  size_t first = shape->first_sum;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(cuda, unit->value, values, first * sizeof *values);
  for (size_t t = 0; t < shape->layout.tensors && status == WEIR_OK; t++)
    status = answer(device, unit, &shape->thin[t], lost);
  if (status == WEIR_OK && lost == NULL) status = tell_left(device, bucket);
  if (status == WEIR_OK) {
    status = weir_cuda_copy(cuda, values + first, unit->value + first,
                            (shape->kept - first) * sizeof *values);
  }
  return status == WEIR_OK ? weir_device_wait_for_own(device) : status;
}

weir_status weir_device_take_off(weir_device *device, size_t bucket, const float *q) {
  weir_device_unit *unit = &device->unit[bucket];
  const weir_device_bucket *shape = &unit->bucket;
  size_t first = shape->first_sum;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK)
    status = weir_cuda_copy(unit->far, unit->value + first, q, (shape->kept - first) * sizeof *q);
  for (size_t t = 0; t < shape->layout.tensors && status == WEIR_OK; t++) {
    if (!shape->thin[t].whole) status = take_away(device, unit, &shape->thin[t]);
  }
  return status == WEIR_OK ? tell_left(device, bucket) : status;
}

weir_status weir_device_expand(weir_device *device, size_t bucket, const float *values) {
  weir_device_unit *unit = &device->unit[bucket];
  const weir_device_bucket *shape = &unit->bucket;
  weir_cuda *cuda = unit->far;
  size_t first = shape->first_sum;
  float *sum = device->sum + shape->at;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) {
    status = weir_cuda_copy(cuda, unit->value + first, values + first,
                            (shape->kept - first) * sizeof *values);
  }
  for (size_t t = 0; t < shape->layout.tensors && status == WEIR_OK; t++) {
    const weir_thin *thin = &shape->thin[t];
    const float *p = unit->value + thin->p;
    status = thin->whole
                 ? weir_cuda_copy(cuda, sum + thin->at, p, thin->n * sizeof *sum)
                 : weir_cuda_powersgd_expand(cuda, p, thin->rows, unit->value + thin->q,
                                             thin->columns, shape->rank, sum + thin->at, false);
  }
  return status;
}
