/* The engine's device: its life and memory, and the table of its operations (kernels/device.h). */
#include <sched.h>
#include <time.h>

#include <cstdlib>
#include <new>

#include "kernels/cuda/engine.cuh"

constexpr size_t ALIGNED = 256;

weir_status weir_device_enter(const weir_device *device) {
  return weir_cuda_check(cudaSetDevice(device->device), "choosing the device");
}

/* --- waiting --------------------------------------------------------------------------------- */

/* Looked at often at first, then every PAUSE_NS: a device is milliseconds away or the caller's
 * backward pass is still queued. */
constexpr unsigned EAGER = 200;
constexpr long PAUSE_NS = 20000;

weir_status weir_device_wait(weir_device *device, cudaEvent_t event) {
  const double end = weir_now_s() + device->timeout_s;
  const timespec pause = {0, PAUSE_NS};
  device->waits++;
  for (unsigned looks = 0;; looks++) {
    cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) {
      return weir_cuda_check(state, "waiting");
    }
    if (weir_now_s() > end) {
      return weir_fail(WEIR_E_TIMEOUT, "the device has not come so far within %g s",
                       device->timeout_s);
    }
    if (looks < EAGER) {
      (void)sched_yield();
    } else {
      (void)nanosleep(&pause, NULL);
    }
  }
}

/* What was queued on the caller's stream is done. */
static weir_status wait_for_caller(weir_device *device) {
  weir_status status = weir_cuda_check(cudaEventRecord(device->done, device->caller), "an event");
  return status == WEIR_OK ? weir_device_wait(device, device->done) : status;
}

/* --- life ------------------------------------------------------------------------------------ */

static weir_status floats(float **out, size_t n) {
  return weir_cuda_check(cudaMalloc((void **)out, n > 0 ? n * sizeof(float) : 1), "device memory");
}

static weir_status make_event(cudaEvent_t *out) {
  return weir_cuda_check(cudaEventCreateWithFlags(out, cudaEventDisableTiming), "an event");
}

static weir_status open_device(weir_device *device) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaStreamCreateWithFlags(&device->own, cudaStreamNonBlocking),
                             "making a stream");
  }
  if (status == WEIR_OK) {
    status = make_event(&device->done);
  }
  if (status == WEIR_OK) {
    status = floats(&device->residual, device->n);
  }
  if (status == WEIR_OK) {
    status = floats(&device->e, device->n);
  }
  if (status == WEIR_OK) {
    status = floats(&device->sum, device->n);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_check(
        cudaMemsetAsync(device->residual, 0, device->n * sizeof(float), device->caller),
        "a residual");
  }
  return status == WEIR_OK ? wait_for_caller(device) : status;
}

static void free_units(weir_device_unit *unit, size_t units) {
  for (size_t k = 0; k < units; k++) {
    weir_cuda_free(unit[k].near);
    weir_cuda_free(unit[k].far);
    if (unit[k].ready != NULL) {
      (void)cudaEventDestroy(unit[k].ready);
    }
  }
  free(unit);
}

static void free_device(weir_device *device) {
  if (device == NULL) {
    return;
  }
  (void)cudaSetDevice(device->device);
  free_units(device->unit, device->units);
  if (device->own != NULL) {
    (void)cudaStreamSynchronize(device->own);
    (void)cudaStreamDestroy(device->own);
  }
  if (device->done != NULL) {
    (void)cudaEventDestroy(device->done);
  }
  (void)cudaFree(device->block);
  (void)cudaFreeHost(device->told_host);
  (void)cudaFree(device->kept);
  (void)cudaFree(device->sum);
  (void)cudaFree(device->e);
  (void)cudaFree(device->residual);
  delete device;
}

static weir_status create(int device, void *stream, size_t n, double timeout_s, weir_device **out) {
  *out = NULL;
  int devices = weir_cuda_devices();
  if (device < 0 || device >= devices) {
    return weir_fail(devices > 0 ? WEIR_E_INVALID : WEIR_E_UNSUPPORTED,
                     "there is no CUDA device %d, of %d", device, devices);
  }
  weir_device *made = new (std::nothrow) weir_device();
  if (made == NULL) {
    return weir_fail(WEIR_E_NOMEM, "no memory for a device");
  }
  made->device = device;
  made->caller = stream != NULL ? (cudaStream_t)stream : cudaStreamLegacy;
  made->n = n;
  made->timeout_s = timeout_s;
  weir_status status = open_device(made);
  if (status != WEIR_OK) {
    free_device(made);
    return status;
  }
  *out = made;
  return WEIR_OK;
}

/* --- groups ---------------------------------------------------------------------------------- */

/* More contexts; those there are stay. */
static weir_status grow_units(weir_device *device, size_t count) {
  weir_status status = WEIR_OK;
  if (count > device->units) {
    void *grown = realloc(device->unit, count * sizeof *device->unit);
    if (grown == NULL) {
      return weir_fail(WEIR_E_NOMEM, "no memory for %zu groups", count);
    }
    device->unit = (weir_device_unit *)grown;
  }
  for (; status == WEIR_OK && device->units < count; device->units++) {
    weir_device_unit *unit = &device->unit[device->units];
    *unit = weir_device_unit();
    status = weir_cuda_create(device->device, device->caller, &unit->near);
    if (status == WEIR_OK) {
      status = weir_cuda_create(device->device, device->own, &unit->far);
    }
    if (status == WEIR_OK) {
      status = make_event(&unit->ready);
    }
    if (status != WEIR_OK) {
      weir_cuda_free(unit->near);
      weir_cuda_free(unit->far);
      return status;
    }
  }
  return status;
}

/* Codecs that use tables of tensors. */
static bool by_tensor(uint32_t codec) {
  return codec == WEIR_CODEC_LWTOPK || codec == WEIR_CODEC_DGC || codec == WEIR_CODEC_TERNGRAD ||
         codec == WEIR_CODEC_ONEBIT || codec == WEIR_CODEC_EFSIGNSGD;
}

/* Workspaces, with one element more than is kept for mstopk. */
static weir_status reserve_contexts(weir_device_unit *unit, const weir_device_group *group) {
  size_t k = group->kept + 1 < group->n ? group->kept + 1 : group->n;
  weir_status status = weir_cuda_reserve(unit->near, group->n, k);
  if (status == WEIR_OK) {
    status = weir_cuda_reserve(unit->far, group->n, k);
  }
  if (status == WEIR_OK && by_tensor(group->codec)) {
    status = weir_cuda_reserve_tensors(unit->near, &group->layout);
  }
  return status == WEIR_OK && by_tensor(group->codec) && group->kind == WEIR_DEVICE_ENCODE
             ? weir_cuda_reserve_tensors(unit->far, &group->layout)
             : status;
}

template <typename T>
static T *part(unsigned char *block, size_t *at, size_t count) {
  T *begin = block != NULL ? (T *)(void *)(block + *at) : NULL;
  *at += (count * sizeof(T) + ALIGNED - 1) / ALIGNED * ALIGNED;
  return begin;
}

/* The parts of the block; without one, only its size. */
static size_t lay_out(weir_device *device, unsigned char *block, const weir_device_group *groups,
                      size_t count, size_t ranks) {
  size_t at = 0, most = 0;
  for (size_t k = 0; k < count; k++) {
    const weir_device_group *group = &groups[k];
    bool sends = group->kind != WEIR_DEVICE_DRAWN && group->kind != WEIR_DEVICE_WHOLE;
    bool gathers = group->kind == WEIR_DEVICE_SELECT || group->kind == WEIR_DEVICE_ENCODE;
    weir_device_unit unit = block != NULL ? device->unit[k] : weir_device_unit();
    unit.group = *group;
    unit.told = part<weir_device_told>(block, &at, 1);
    unit.overflow = part<uint32_t>(block, &at, 1);
    unit.bins = part<weir_cuda_gain_bin>(block, &at, WEIR_CUDA_GAIN_BINS);
    unit.index = part<uint32_t>(block, &at, group->kept);
    unit.value = part<float>(block, &at, group->kept);
    unit.error = part<float>(block, &at, group->kept);
    unit.out = part<unsigned char>(block, &at, sends ? group->stride : 0);
    size_t all = gathers ? ranks * (group->stride + 16) : 0;
    most = all > most ? all : most;
    if (block != NULL) {
      device->unit[k] = unit;
    }
  }
  device->in = part<unsigned char>(block, &at, most);
  device->in_bytes = most;
  return at;
}

static weir_status make_room(weir_device *device, size_t bytes, size_t count) {
  unsigned char *block = NULL;
  weir_device_told *told = NULL;
  weir_status status =
      weir_cuda_check(cudaMallocHost((void **)&told, count * (sizeof *told + sizeof(weir_verdict))),
                      "page-locked memory");
  if (status == WEIR_OK && bytes > device->block_bytes) {
    status = weir_cuda_check(cudaMalloc((void **)&block, bytes), "device memory");
  }
  if (status != WEIR_OK) {
    (void)cudaFreeHost(told);
    return status;
  }
  (void)cudaFreeHost(device->told_host);
  device->told_host = told;
  device->told_room = count;
  memset(told, 0, count * (sizeof *told + sizeof(weir_verdict)));
  device->verdict = (weir_verdict *)(void *)(told + count);
  if (block != NULL) {
    (void)cudaFree(device->block);
    device->block = block;
    device->block_bytes = bytes;
  }
  return WEIR_OK;
}

static weir_status reserve(weir_device *device, const weir_device_group *groups, size_t count,
                           size_t ranks) {
  const weir_device before = *device;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) {
    status = grow_units(device, count);
  }
  for (size_t k = 0; status == WEIR_OK && k < count; k++) {
    status = reserve_contexts(&device->unit[k], &groups[k]);
  }
  size_t bytes = lay_out(device, NULL, groups, count, ranks);
  if (status == WEIR_OK && (bytes > device->block_bytes || count > device->told_room)) {
    status = make_room(device, bytes, device->units);
  }
  if (status != WEIR_OK) {
    device->in = before.in;
    device->in_bytes = before.in_bytes;
    return status;
  }
  (void)lay_out(device, device->block, groups, count, ranks);
  device->groups = count;
  for (size_t k = 0; status == WEIR_OK && k < count; k++) {
    status = weir_cuda_check(
        cudaMemsetAsync(device->unit[k].overflow, 0, sizeof(uint32_t), device->own), "a flag");
  }
  return status;
}

/* --- memory ---------------------------------------------------------------------------------- */

static weir_status pin(weir_device *device, size_t bytes, void **out) {
  *out = NULL;
  weir_status status = weir_device_enter(device);
  return status == WEIR_OK
             ? weir_cuda_check(cudaMallocHost(out, bytes > 0 ? bytes : 1), "page-locked memory")
             : status;
}

static void unpin(weir_device *device, void *memory) {
  (void)cudaSetDevice(device->device);
  (void)cudaFreeHost(memory);
}

static weir_status check(weir_device *device, const void *memory) {
  cudaPointerAttributes found = {};
  weir_status status =
      weir_cuda_check(cudaPointerGetAttributes(&found, memory), "asking about memory");
  if (status != WEIR_OK) {
    return status;
  }
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged) {
    return weir_fail(WEIR_E_INVALID, "the gradient at %p is memory of the host, not of device %d",
                     memory, device->device);
  }
  if (found.type == cudaMemoryTypeDevice && found.device != device->device) {
    return weir_fail(WEIR_E_INVALID, "the gradient at %p is memory of device %d, not of device %d",
                     memory, found.device, device->device);
  }
  return WEIR_OK;
}

static void add_bins(void *to, const void *bins) {
  weir_cuda_gain_bin *sum = (weir_cuda_gain_bin *)to;
  const weir_cuda_gain_bin *more = (const weir_cuda_gain_bin *)bins;
  for (size_t b = 0; b < WEIR_CUDA_GAIN_BINS; b++) {
    sum[b].high += more[b].high;
    sum[b].low += more[b].low;
    sum[b].count += more[b].count;
  }
}

static weir_status curve(const void *bins, size_t n, weir_gain_curve *out) {
  return weir_cuda_gain_curve((const weir_cuda_gain_bin *)bins, n, out);
}

static void commit(weir_device *device) {
  float *held = device->residual;
  device->residual = device->e;
  device->e = held;
}

static weir_status zero(weir_device *device, float *g, size_t n) {
  weir_status status = weir_device_enter(device);
  return status == WEIR_OK
             ? weir_cuda_check(cudaMemsetAsync(g, 0, n * sizeof *g, device->caller), "clearing")
             : status;
}

static weir_status keep_room(weir_device *device) {
  weir_status status = weir_device_enter(device);
  return status != WEIR_OK || device->kept != NULL ? status : floats(&device->kept, device->n);
}

static weir_status keep(weir_device *device, bool restore) {
  float *to = restore ? device->residual : device->kept;
  const float *from = restore ? device->kept : device->residual;
  return weir_cuda_check(
      cudaMemcpyAsync(to, from, device->n * sizeof *to, cudaMemcpyDefault, device->caller),
      "a checkpoint");
}

static weir_status save(weir_device *device, float *r) {
  weir_status status = weir_cuda_check(cudaMemcpyAsync(r, device->residual, device->n * sizeof *r,
                                                       cudaMemcpyDefault, device->caller),
                                       "a residual");
  return status == WEIR_OK ? wait_for_caller(device) : status;
}

static uint64_t waits(const weir_device *device) { return device->waits; }

static const weir_device_ops ops = {WEIR_DEVICE_VERSION,
                                    sizeof(weir_device_ops),
                                    weir_last_error,
                                    create,
                                    free_device,
                                    reserve,
                                    pin,
                                    unpin,
                                    check,
                                    waits,
                                    weir_device_compress,
                                    weir_device_await,
                                    add_bins,
                                    curve,
                                    weir_device_decode,
                                    weir_device_fetch,
                                    weir_device_settle,
                                    weir_device_store,
                                    weir_device_publish,
                                    weir_device_finish,
                                    commit,
                                    zero,
                                    keep_room,
                                    keep,
                                    save};

extern "C" __attribute__((visibility("default"))) const weir_device_ops *weir_device_library(void) {
  return &ops;
}
