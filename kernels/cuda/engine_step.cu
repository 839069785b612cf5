/* A bucket's way through a step on the device: compress and ship, decode, publish, and the verdict
 * (kernels/device.h). */
#include "kernels/cuda/engine.cuh"

/* --- kernels --------------------------------------------------------------------------------- */

/* As many words as the message has to page-locked memory, with what is told of it: nobody has to
 * learn the length first.  message NULL: it stays where it is. */
__global__ static void ship(const weir_device_told *told, uint64_t bytes, const uint32_t *from,
                            uint32_t *message, weir_device_told *to, uint32_t *fault) {
  if (bytes == 0) bytes = told->bytes;
  WEIR_CUDA_EACH(i, message != NULL ? (bytes + 3) / 4 : 0) { message[i] = from[i]; }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *to = weir_device_told{told->moments, told->other, bytes, *fault};
    *fault = 0;
  }
}

/* Blocks that copy a sample. */
constexpr unsigned SAMPLING = 16;

/* Of e = g + r; r NULL: of zeros. */
__global__ static void sample(const float *g, const float *r, const weir_device_sample *samples) {
  const weir_device_sample mine = samples[blockIdx.x / SAMPLING];
  size_t n = mine.runs.length * mine.runs.count;
  for (size_t i = blockIdx.x % SAMPLING * WEIR_CUDA_BLOCK + threadIdx.x; i < n;
       i += (size_t)SAMPLING * WEIR_CUDA_BLOCK) {
    size_t at = mine.at + weir_run_at(&mine.runs, i / mine.runs.length) + i % mine.runs.length;
    mine.to[i] = g[at] + (r != NULL ? r[at] : 0.0F);
  }
}

__global__ static void halve(const float *x, size_t n, float *to) {
  WEIR_CUDA_EACH(i, n) { to[i] = 0.5F * x[i]; }
}

__global__ static void publish(float *to, const float *sum, size_t n, float share,
                               uint32_t *overflow) {
  bool finite = true;
  WEIR_CUDA_EACH(i, n) {
    float value = sum[i] * share;
    to[i] = value;
    finite = finite && fabsf(value) <= FLT_MAX;
  }
  if (!finite) atomicOr(overflow, 1U);
}

__global__ static void widen(unsigned type, const uint16_t *from, size_t n, float *to) {
  WEIR_CUDA_EACH(i, n) { to[i] = weir_widened(type, from[i]); }
}

/* Rounded once; what would not be finite saturates, which nobody gets to see. */
__global__ static void publish_half(unsigned type, uint16_t *to, const float *sum, size_t n,
                                    float share, uint32_t *overflow) {
  const uint32_t least = type == WEIR_BF16 ? WEIR_BF16_OVERFLOW : WEIR_FP16_OVERFLOW;
  bool finite = true;
  WEIR_CUDA_EACH(i, n) {
    float value = sum[i] * share;
    to[i] = weir_narrowed(type, value);
    finite = finite && weir_magnitude(value) < least;
  }
  if (!finite) atomicOr(overflow, 1U);
}

__global__ static void report(uint32_t *fault, uint32_t *overflow, weir_verdict *to) {
  *to = weir_verdict{*fault, *overflow};
  *fault = 0;
  *overflow = 0;
}

/* Before what is made of a malformed message leaves. */
__global__ static void tell_fault(const uint32_t *fault, weir_verdict *to) { to->fault |= *fault; }

/* --- runs of tensors that follow one another in memory --------------------------------------- */

struct run {
  unsigned char *g;
  size_t at, n; /* of the bucket */
  unsigned type;
};

/* The next run of a bucket's tensors of one type from *t on; false: there is none. */
static bool next_run(const weir_device_bucket *bucket, void *const *g, size_t *t, run *out) {
  const size_t *offset = bucket->layout.offset;
  *out = run{NULL, 0, 0, WEIR_FP32};
  for (; *t < bucket->layout.tensors; ++*t) {
    unsigned char *here = (unsigned char *)g[bucket->tensors_at + *t];
    unsigned type = bucket->types[*t];
    size_t n = offset[*t + 1] - offset[*t];
    if (n == 0) continue;
    if (out->g == NULL) {
      *out = run{here, offset[*t], 0, type};
    } else if (type != out->type || here != out->g + out->n * weir_type_bytes(type)) {
      return true;
    }
    out->n += n;
  }
  return out->g != NULL;
}

/* Is it all of a bucket, as floats? */
static bool is_whole(const weir_device_bucket *bucket, const run *r) {
  return r->n == bucket->n && r->type == WEIR_FP32;
}

static weir_status gather_run(weir_cuda *cuda, const run *r, float *to) {
  if (r->type == WEIR_FP32) return weir_cuda_copy(cuda, to, r->g, r->n * sizeof *to);
  return weir_cuda_launch(cuda, "widening", weir_cuda_grid(cuda, r->n, 4 * WEIR_CUDA_BLOCK),
                          WEIR_CUDA_BLOCK, widen, r->type, (const uint16_t *)(void *)r->g, r->n,
                          to);
}

/* Where a bucket's gradient lies in one piece, as floats: where it is, or brought to where its sum
 * will be. */
static weir_status in_one_piece(weir_device *device, weir_device_unit *unit, void *const *g,
                                const float **out) {
  float *to = device->sum + unit->bucket.at;
  size_t t = 0;
  run r;
  *out = to;
  while (next_run(&unit->bucket, g, &t, &r)) {
    if (is_whole(&unit->bucket, &r)) {
      *out = (const float *)(void *)r.g;
      return WEIR_OK;
    }
    weir_status status = gather_run(unit->near, &r, to + r.at);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

/* --- compressing ----------------------------------------------------------------------------- */

weir_status weir_device_select(weir_device_unit *unit, weir_cuda *cuda, const weir_cuda_fed *fed,
                               const weir_layout *layout, size_t kept, uint64_t seed) {
  const weir_device_bucket *bucket = &unit->bucket;
  size_t n = layout->offset[layout->tensors], k = 0;
  bool rounds = bucket->wire >= WEIR_WIRE_AUTO_BF16;
  weir_status status = weir_cuda_select(cuda, bucket->codec, fed, layout, bucket->cr, seed,
                                        unit->index, unit->value, kept, &k);
  if (status == WEIR_OK && fed->g == NULL && k > 0)
    status = weir_cuda_gather(cuda, fed->e, n, unit->index, k, unit->value, true);
  if (status == WEIR_OK) status = weir_cuda_squares(cuda, unit->value, k, &unit->told->other);
  if (status == WEIR_OK && rounds)
    status = weir_cuda_clear(cuda, unit->error, k * sizeof *unit->error);
  if (status == WEIR_OK) {
    status = weir_cuda_wire_encode(cuda, n, unit->index, unit->value, k, bucket->wire, unit->out,
                                   bucket->stride, &unit->told->bytes, rounds ? unit->error : NULL);
  }
  /* What 16 bits lose of a value stays behind. */
  return status == WEIR_OK && rounds && k > 0
             ? weir_cuda_scatter_add(cuda, fed->e, n, unit->index, unit->error, k)
             : status;
}

/* From e = g + r, or where a histogram of e is wanted first, from e. */
static weir_status select_from(weir_device *device, weir_device_unit *unit,
                               const weir_cuda_fed *fed, uint64_t seed) {
  const weir_device_bucket *bucket = &unit->bucket;
  weir_status status =
      weir_device_select(unit, unit->near, fed, &bucket->layout, bucket->kept, seed);
  return status == WEIR_OK ? weir_device_mask(device, unit, unit->near, unit->index, bucket->kept)
                           : status;
}

static weir_status encode(weir_device_unit *unit, const weir_cuda_fed *fed, uint64_t seed,
                          size_t *bytes) {
  const weir_device_bucket *bucket = &unit->bucket;
  return weir_cuda_ef_encode(unit->near, bucket->codec, fed, &bucket->layout, bucket->cr, seed,
                             unit->out, bucket->stride, bytes, &unit->told->other);
}

/* The root's list of its own largest elements, which stay where they are. */
static weir_status list(weir_device *device, weir_device_unit *unit) {
  const weir_device_bucket *bucket = &unit->bucket;
  const weir_cuda_fed given = {NULL, NULL, device->e + bucket->at, NULL};
  size_t k = 0;
  weir_status status = weir_cuda_select(unit->near, bucket->codec, &given, &bucket->layout,
                                        bucket->cr, 0, unit->index, NULL, bucket->kept, &k);
  return status == WEIR_OK
             ? weir_cuda_wire_encode(unit->near, bucket->n, unit->index, NULL, k, bucket->wire,
                                     unit->out, bucket->stride, &unit->told->bytes, NULL)
             : status;
}

static weir_status histogram(weir_device_unit *unit, const float *e, void *to) {
  weir_status status = weir_cuda_gain_histogram(unit->near, e, unit->bucket.n, unit->bins);
  return status == WEIR_OK ? weir_cuda_copy(unit->near, to, unit->bins, WEIR_DEVICE_BINS) : status;
}

static weir_status prepare(weir_device *device, weir_device_unit *unit, const weir_cuda_fed *fed,
                           const weir_device_task *task, size_t *bytes) {
  switch (unit->bucket.kind) {
    case WEIR_DEVICE_SELECT: return select_from(device, unit, fed, task->seed);
    case WEIR_DEVICE_ENCODE: return encode(unit, fed, task->seed, bytes);
    case WEIR_DEVICE_LIST: return task->message != NULL ? list(device, unit) : WEIR_OK;
    case WEIR_DEVICE_WHOLE:
    case WEIR_DEVICE_SHARE:
      return weir_cuda_copy(unit->near, task->values, fed->e, unit->bucket.n * sizeof(float));
    case WEIR_DEVICE_THIN: return weir_device_project(device, unit, task->values);
    default: return WEIR_OK;
  }
}

weir_status weir_device_ship(weir_device *device, size_t bucket, weir_cuda *cuda, size_t bytes,
                             void *message) {
  const weir_device_unit *unit = &device->unit[bucket];
  size_t words = message != NULL ? unit->bucket.stride / sizeof(uint32_t) : 1;
  return weir_cuda_launch(cuda, "shipping", weir_cuda_grid(cuda, words, 4 * WEIR_CUDA_BLOCK),
                          WEIR_CUDA_BLOCK, ship, unit->told, (uint64_t)bytes,
                          (const uint32_t *)unit->out, (uint32_t *)message,
                          &device->told_host[bucket], cuda->fault);
}

weir_status weir_device_compress(weir_device *device, size_t bucket, const weir_device_task *task) {
  weir_device_unit *unit = &device->unit[bucket];
  weir_cuda *cuda = unit->near;
  size_t at = unit->bucket.at, bytes = 0;
  float *e = unit->bucket.kind == WEIR_DEVICE_PARTS ? device->sum : device->e;
  const float *r = device->residual != NULL ? device->residual + at : NULL;
  weir_cuda_fed fed = {NULL, r, e + at, &unit->told->moments};
  device->verdict[bucket] = weir_verdict{0, 0};
  unit->out = task->stays ? (unsigned char *)task->message : unit->out_here;
  unit->taken.count = 0;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = in_one_piece(device, unit, task->g, &fed.g);
  if (status == WEIR_OK) status = weir_device_correct(device, unit, &fed.g);
  if (status == WEIR_OK) status = weir_cuda_clear(cuda, unit->told, sizeof *unit->told);
  const bool damped = unit->bucket.damped && r != NULL;
  if (status == WEIR_OK && damped) { /* there, as the sum's place may hold g */
    fed.r = device->e + at;
    status =
        weir_cuda_launch(cuda, "halving", weir_cuda_grid(cuda, unit->bucket.n, WEIR_CUDA_BLOCK),
                         WEIR_CUDA_BLOCK, halve, r, unit->bucket.n, device->e + at);
  }
  if (status == WEIR_OK && task->sample_count > 0) {
    status = weir_cuda_launch(cuda, "sampling", task->sample_count * SAMPLING, WEIR_CUDA_BLOCK,
                              sample, fed.g, fed.r, task->samples);
  }
  bool fused =
      (unit->bucket.kind == WEIR_DEVICE_SELECT || unit->bucket.kind == WEIR_DEVICE_ENCODE) &&
      task->bins == NULL && !damped;
  if (status == WEIR_OK && !fused) {
    status = weir_cuda_ef_accumulate(cuda, fed.g, fed.r, fed.e, unit->bucket.n, fed.moments);
    fed.g = fed.r = NULL;
    fed.moments = NULL;
  }
  if (status == WEIR_OK && task->bins != NULL) status = histogram(unit, fed.e, task->bins);
  if (status == WEIR_OK) status = prepare(device, unit, &fed, task, &bytes);
  if (status == WEIR_OK)
    status =
        weir_device_ship(device, bucket, cuda, bytes, task->stays ? task->copy : task->message);
  return status == WEIR_OK ? weir_cuda_check(cudaEventRecord(unit->ready, cuda->stream), "an event")
                           : status;
}

weir_status weir_device_await(weir_device *device, size_t bucket, const weir_device_told **told) {
  *told = &device->told_host[bucket];
  weir_status status = weir_device_enter(device);
  return status != WEIR_OK ? status : weir_device_wait(device, device->unit[bucket].ready);
}

constexpr size_t ALIGNED = 16; /* messages of all ranks */

/* --- what all have sent ---------------------------------------------------------------------- */

/* Encoders' messages, which are of one length, wait until all are there. */
weir_status weir_device_decode(weir_device *device, size_t bucket, const void *message,
                               size_t bytes, bool first) {
  weir_device_unit *unit = &device->unit[bucket];
  const weir_device_bucket *shape = &unit->bucket;
  if (first) {
    device->in_used = 0;
    unit->taken = {device->in, bytes, (bytes + ALIGNED - 1) / ALIGNED * ALIGNED, 0};
  }
  if (bytes > device->in_bytes - device->in_used)
    return weir_fail(WEIR_E_INTERNAL, "no room for a message of %zu bytes on the device", bytes);
  unsigned char *in = device->in + device->in_used;
  device->in_used += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, in, message, bytes);
  if (status != WEIR_OK) return status;
  if (shape->kind == WEIR_DEVICE_SELECT) {
    return weir_cuda_wire_decode_to(unit->far, in, bytes, shape->n, device->sum + shape->at,
                                    !first);
  }
  unit->taken.count++;
  return bytes == unit->taken.bytes
             ? WEIR_OK
             : weir_fail(WEIR_E_PROTOCOL, "malformed message of %zu bytes, not %zu", bytes,
                         unit->taken.bytes);
}

weir_status weir_device_tell_fault(weir_device *device, size_t bucket) {
  weir_cuda *cuda = device->unit[bucket].far;
  return weir_cuda_launch(cuda, "telling of faults", 1, 1, tell_fault, cuda->fault,
                          &device->verdict[bucket]);
}

weir_status weir_device_leave(weir_device *device, size_t bucket, void *room, const void *message,
                              size_t bytes) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(device->unit[bucket].far, room, message, bytes);
  return status == WEIR_OK ? weir_device_wait_for_own(device) : status;
}

weir_status weir_device_read(weir_device *device, size_t bucket, const void *list, size_t bytes) {
  weir_device_unit *unit = &device->unit[bucket];
  const weir_device_bucket *shape = &unit->bucket;
  if (shape->kind != WEIR_DEVICE_LIST || bytes > device->in_bytes)
    return weir_fail(WEIR_E_INTERNAL, "no room for a list of %zu bytes on the device", bytes);
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, device->in, list, bytes);
  if (status == WEIR_OK) {
    status = weir_cuda_wire_read(unit->far, device->in, bytes, shape->n, shape->kept, unit->index);
  }
  return status == WEIR_OK ? weir_device_tell_fault(device, bucket) : status;
}

weir_status weir_device_fetch(weir_device *device, size_t bucket, const uint32_t *index,
                              float *value) {
  weir_device_unit *unit = &device->unit[bucket];
  size_t k = unit->bucket.kept;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK && index != NULL)
    status = weir_cuda_copy(unit->far, unit->index, index, k * sizeof *index);
  if (status == WEIR_OK) {
    status = weir_cuda_gather(unit->far, device->e + unit->bucket.at, unit->bucket.n, unit->index,
                              k, unit->value, true);
  }
  if (status == WEIR_OK) status = weir_device_mask(device, unit, unit->far, unit->index, k);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, value, unit->value, k * sizeof *value);
  if (status == WEIR_OK) status = weir_device_wait_for_own(device);
  return status == WEIR_OK && device->verdict[bucket].fault != 0
             ? weir_fail(WEIR_E_PROTOCOL, "malformed list of indices on its device")
             : status;
}

weir_status weir_device_settle(weir_device *device, size_t bucket, const float *error,
                               const float *value) {
  weir_device_unit *unit = &device->unit[bucket];
  size_t k = unit->bucket.kept, n = unit->bucket.n;
  float *sum = device->sum + unit->bucket.at;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_cuda_copy(unit->far, unit->error, error, k * sizeof *error);
  if (status == WEIR_OK) {
    status = weir_cuda_scatter_add(unit->far, device->e + unit->bucket.at, n, unit->index,
                                   unit->error, k);
  }
  if (status != WEIR_OK || value == NULL) return status;
  status = weir_cuda_copy(unit->far, unit->value, value, k * sizeof *value);
  if (status == WEIR_OK) status = weir_cuda_clear(unit->far, sum, n * sizeof *sum);
  return status == WEIR_OK ? weir_cuda_scatter_add(unit->far, sum, n, unit->index, unit->value, k)
                           : status;
}

weir_status weir_device_store(weir_device *device, size_t bucket, const float *next,
                              const float *sum) {
  weir_device_unit *unit = &device->unit[bucket];
  size_t bytes = unit->bucket.n * sizeof(float);
  float *e = device->e + unit->bucket.at;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK && next != NULL)
    status = weir_cuda_copy(unit->far, e, next, bytes);
  else if (status == WEIR_OK && device->feedback)
    status = weir_cuda_clear(unit->far, e, bytes);
  return status == WEIR_OK && sum != NULL
             ? weir_cuda_copy(unit->far, device->sum + unit->bucket.at, sum, bytes)
             : status;
}

/* What encoders have sent is decoded to where the average goes, if that is floats in one piece;
 * otherwise to where the sum is.  *done: nothing is left to publish. */
static weir_status add_up(weir_device *device, weir_device_unit *unit, void *const *g, float share,
                          bool *done) {
  const weir_device_bucket *shape = &unit->bucket;
  size_t t = 0;
  run r;
  *done = unit->taken.count == 0 || (next_run(shape, g, &t, &r) && is_whole(shape, &r));
  if (unit->taken.count == 0) return WEIR_OK; /* nobody's e is finite: the step will not count */
  return weir_cuda_decode_sum(unit->far, shape->codec, &unit->taken, &shape->layout, shape->cr,
                              *done ? (float *)(void *)r.g : device->sum + shape->at,
                              *done ? share : 1.0F, *done ? unit->overflow : NULL);
}

static weir_status publish_run(weir_device_unit *unit, const run *r, const float *sum,
                               float share) {
  weir_cuda *cuda = unit->far;
  const size_t grid = weir_cuda_grid(cuda, r->n, 4 * WEIR_CUDA_BLOCK);
  return r->type == WEIR_FP32
             ? weir_cuda_launch(cuda, "publishing", grid, WEIR_CUDA_BLOCK, publish,
                                (float *)(void *)r->g, sum, r->n, share, unit->overflow)
             : weir_cuda_launch(cuda, "publishing", grid, WEIR_CUDA_BLOCK, publish_half, r->type,
                                (uint16_t *)(void *)r->g, sum, r->n, share, unit->overflow);
}

weir_status weir_device_publish(weir_device *device, size_t bucket, void *const *g, float share) {
  weir_device_unit *unit = &device->unit[bucket];
  weir_cuda *cuda = unit->far;
  const float *sum = device->sum + unit->bucket.at;
  bool done = false;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK && unit->bucket.kind == WEIR_DEVICE_ENCODE)
    status = add_up(device, unit, g, share, &done);
  size_t t = 0;
  run r;
  while (status == WEIR_OK && !done && next_run(&unit->bucket, g, &t, &r))
    status = publish_run(unit, &r, sum + r.at, share);
  if (status == WEIR_OK && unit->bucket.kind == WEIR_DEVICE_PARTS)
    status = weir_device_lost(device, bucket);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "reporting", 1, 1, report, cuda->fault,
                                              unit->overflow, &device->verdict[bucket])
                           : status;
}

weir_status weir_device_verdict(const weir_device *device) {
  for (size_t k = 0; k < device->buckets; k++) {
    if (device->verdict[k].fault != 0)
      return weir_fail(WEIR_E_PROTOCOL, "the device finds a message of bucket %zu malformed", k);
  }
  return WEIR_OK;
}

weir_status weir_device_finish(weir_device *device, bool *overflow) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK)
    status = weir_cuda_check(cudaEventRecord(device->done, device->own), "an event");
  if (status == WEIR_OK)
    status = weir_cuda_check(cudaStreamWaitEvent(device->caller, device->done, 0), "an event");
  if (status == WEIR_OK) status = weir_device_wait(device, device->done);
  for (size_t k = 0; status == WEIR_OK && k < device->buckets; k++)
    overflow[k] = device->verdict[k].overflow != 0;
  return status == WEIR_OK ? weir_device_verdict(device) : status;
}
