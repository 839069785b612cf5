/* The engine's device: its life and memory, and the table of its operations (kernels/device.h). */
#include <sched.h>
#include <time.h>

#include <cstdlib>
#include <new>

#include "kernels/cuda/engine.cuh"

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
  (void)__atomic_add_fetch(&device->waits, 1, __ATOMIC_RELAXED);
  for (unsigned looks = 0;; looks++) {
    cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) return weir_cuda_check(state, "waiting");
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

weir_status weir_device_wait_for_caller(weir_device *device) {
  weir_status status = weir_cuda_check(cudaEventRecord(device->asked, device->caller), "an event");
  return status == WEIR_OK ? weir_device_wait(device, device->asked) : status;
}

weir_status weir_device_wait_for_own(weir_device *device) {
  weir_status status = weir_cuda_check(cudaEventRecord(device->done, device->own), "an event");
  return status == WEIR_OK ? weir_device_wait(device, device->done) : status;
}

/* --- life ------------------------------------------------------------------------------------ */

weir_status weir_device_floats(float **out, size_t n) {
  return weir_cuda_check(cudaMalloc((void **)out, n > 0 ? n * sizeof(float) : 1), "device memory");
}

weir_status weir_device_make_event(cudaEvent_t *out) {
  return weir_cuda_check(cudaEventCreateWithFlags(out, cudaEventDisableTiming), "an event");
}

static weir_status clear_residual(weir_device *device) {
  return weir_cuda_check(
      cudaMemsetAsync(device->residual, 0, device->n * sizeof(float), device->caller),
      "a residual");
}

static weir_status open_residual(weir_device *device) {
  weir_status status = weir_device_floats(&device->residual, device->n);
  return status == WEIR_OK ? clear_residual(device) : status;
}

static weir_status open_device(weir_device *device) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaStreamCreateWithFlags(&device->own, cudaStreamNonBlocking),
                             "making a stream");
  }
  if (status == WEIR_OK) status = weir_device_make_event(&device->asked);
  if (status == WEIR_OK) status = weir_device_make_event(&device->done);
  if (status == WEIR_OK) status = weir_device_floats(&device->e, device->n);
  if (status == WEIR_OK) status = weir_device_floats(&device->sum, device->n);
  if (status == WEIR_OK && device->feedback) status = open_residual(device);
  if (status == WEIR_OK) status = weir_device_open_velocity(device);
  if (status == WEIR_OK) status = weir_device_open_norm(device);
  return status == WEIR_OK ? weir_device_wait_for_caller(device) : status;
}

static void free_units(weir_device_unit *unit, size_t units) {
  for (size_t k = 0; k < units; k++) {
    weir_cuda_free(unit[k].near);
    weir_cuda_free(unit[k].far);
    if (unit[k].ready != NULL) (void)cudaEventDestroy(unit[k].ready);
  }
  free(unit);
}

static void free_device(weir_device *device) {
  if (device == NULL) return;
  (void)cudaSetDevice(device->device);
  free_units(device->unit, device->units);
  if (device->own != NULL) {
    (void)cudaStreamSynchronize(device->own);
    (void)cudaStreamDestroy(device->own);
  }
  if (device->asked != NULL) (void)cudaEventDestroy(device->asked);
  if (device->done != NULL) (void)cudaEventDestroy(device->done);
  (void)cudaFree(device->block);
  (void)cudaFreeHost(device->told_host);
  weir_device_close_norm(device);
  weir_device_close_velocity(device);
  (void)cudaFree(device->kept);
  (void)cudaFree(device->sum);
  (void)cudaFree(device->e);
  (void)cudaFree(device->residual);
  delete device;
}

static weir_status create(int device, void *stream, size_t n, float momentum, bool feedback,
                          double timeout_s, weir_device **out) {
  *out = NULL;
  int devices = weir_cuda_devices();
  if (device < 0 || device >= devices) {
    return weir_fail(devices > 0 ? WEIR_E_INVALID : WEIR_E_UNSUPPORTED,
                     "there is no CUDA device %d, of %d", device, devices);
  }
  weir_device *made = new (std::nothrow) weir_device();
  if (made == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a device");
  made->device = device;
  made->caller = stream != NULL ? (cudaStream_t)stream : cudaStreamLegacy;
  made->n = n;
  made->momentum = momentum;
  made->feedback = feedback;
  made->timeout_s = timeout_s;
  weir_status status = open_device(made);
  if (status != WEIR_OK) {
    free_device(made);
    return status;
  }
  *out = made;
  return WEIR_OK;
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

static weir_status memory(weir_device *device, size_t bytes, void **out) {
  *out = NULL;
  weir_status status = weir_device_enter(device);
  return status == WEIR_OK
             ? weir_cuda_check(cudaMalloc(out, bytes > 0 ? bytes : 1), "device memory")
             : status;
}

static void forget(weir_device *device, void *memory) {
  (void)cudaSetDevice(device->device);
  (void)cudaFree(memory);
}

static weir_status check(weir_device *device, const void *memory) {
  cudaPointerAttributes found = {};
  weir_status status =
      weir_cuda_check(cudaPointerGetAttributes(&found, memory), "asking about memory");
  if (status != WEIR_OK) return status;
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged) {
    return weir_fail(WEIR_E_INVALID, "%p is memory of the host, not of device %d", memory,
                     device->device);
  }
  if (found.type == cudaMemoryTypeDevice && found.device != device->device) {
    return weir_fail(WEIR_E_INVALID, "%p is memory of device %d, not of device %d", memory,
                     found.device, device->device);
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

/* One that was loaded where none is kept has now been sent. */
static void drop_residual(weir_device *device) {
  if (device->residual == NULL) return;
  (void)cudaSetDevice(device->device);
  (void)cudaFree(device->residual);
  device->residual = NULL;
}

__global__ static void add_half(const float *x, size_t n, float *to) {
  WEIR_CUDA_EACH(i, n) { to[i] = fmaxf(fminf(to[i] + 0.5F * x[i], FLT_MAX), -FLT_MAX); }
}

/* Should this fail, the next step says so. */
static void keep_back(weir_device *device) {
  weir_status status = device->residual != NULL ? weir_device_enter(device) : WEIR_E_STATE;
  for (size_t k = 0; k < device->buckets && status == WEIR_OK; k++) {
    const weir_device_bucket *bucket = &device->unit[k].bucket;
    if (!bucket->damped) continue;
    weir_cuda *cuda = device->unit[k].near;
    status = weir_cuda_launch(
        cuda, "keeping back", weir_cuda_grid(cuda, bucket->n, WEIR_CUDA_BLOCK), WEIR_CUDA_BLOCK,
        add_half, device->residual + bucket->at, bucket->n, device->e + bucket->at);
  }
}

static void commit(weir_device *device) {
  keep_back(device);
  float *held = device->residual;
  if (device->feedback) {
    device->residual = device->e;
    device->e = held;
  } else {
    drop_residual(device);
  }
  held = device->u;
  device->u = device->next;
  device->next = held;
}

static weir_status fill(weir_device *device, void *g, size_t bytes, uint8_t byte) {
  weir_status status = weir_device_enter(device);
  return status == WEIR_OK
             ? weir_cuda_check(cudaMemsetAsync(g, byte, bytes, device->caller), "clearing")
             : status;
}

static weir_status keep_room(weir_device *device) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK && device->feedback && device->kept == NULL)
    status = weir_device_floats(&device->kept, device->n);
  if (status == WEIR_OK && device->u != NULL && device->kept_u == NULL)
    status = weir_device_floats(&device->kept_u, device->n);
  return status;
}

static weir_status copy_floats(const weir_device *device, float *to, const float *from) {
  return weir_cuda_check(
      cudaMemcpyAsync(to, from, device->n * sizeof *to, cudaMemcpyDefault, device->caller),
      "a checkpoint");
}

static weir_status keep(weir_device *device, bool restore) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK && device->feedback) {
    status = restore ? copy_floats(device, device->residual, device->kept)
                     : copy_floats(device, device->kept, device->residual);
  }
  if (status != WEIR_OK || device->u == NULL) return status;
  return restore ? copy_floats(device, device->u, device->kept_u)
                 : copy_floats(device, device->kept_u, device->u);
}

/* A copy of pageable memory waits by itself, without a bound: so what it would wait for is waited
 * for before. */
static weir_status save(weir_device *device, float *r, float *u) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_device_wait_for_caller(device);
  if (r != NULL && device->residual == NULL) memset(r, 0, device->n * sizeof *r);
  if (status == WEIR_OK && r != NULL && device->residual != NULL)
    status = copy_floats(device, r, device->residual);
  if (status == WEIR_OK && u != NULL) status = copy_floats(device, u, device->u);
  return status == WEIR_OK ? weir_device_wait_for_caller(device) : status;
}

static weir_status load(weir_device *device, const float *r, const float *u) {
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = weir_device_wait_for_caller(device);
  if (status == WEIR_OK && r != NULL && device->residual == NULL) status = open_residual(device);
  if (status == WEIR_OK && device->residual != NULL)
    status = r != NULL ? copy_floats(device, device->residual, r) : clear_residual(device);
  if (status == WEIR_OK && u != NULL) status = copy_floats(device, device->u, u);
  return status == WEIR_OK ? weir_device_wait_for_caller(device) : status;
}

static weir_status scale(weir_device *device, float factor, bool r) {
  weir_cuda *cuda = device->unit[0].near;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK && r) status = weir_cuda_scale(cuda, device->residual, device->n, factor);
  return status == WEIR_OK && device->u != NULL
             ? weir_cuda_scale(cuda, device->u, device->n, factor)
             : status;
}

/* --- optimizers ------------------------------------------------------------------------------ */

static weir_status squares(weir_device *device, const weir_tensor_piece *pieces, size_t count,
                           const weir_adam *terms, weir_squares *out) {
  return weir_cuda_piece_squares(device->unit[0].near, pieces, count, terms, out);
}

static weir_status move(weir_device *device, const weir_mover *movers, size_t count) {
  return weir_cuda_move(device->unit[0].near, movers, count);
}

static weir_status copy(weir_device *device, void *to, const void *from, size_t bytes) {
  return weir_cuda_copy(device->unit[0].near, to, from, bytes);
}

static uint64_t waits(const weir_device *device) {
  return __atomic_load_n(&device->waits, __ATOMIC_RELAXED);
}

static const weir_device_ops ops = {WEIR_DEVICE_VERSION,
                                    sizeof(weir_device_ops),
                                    weir_last_error,
                                    create,
                                    free_device,
                                    weir_device_reserve,
                                    pin,
                                    unpin,
                                    weir_device_make_room,
                                    weir_device_open_room,
                                    weir_device_close_room,
                                    check,
                                    waits,
                                    weir_device_compress,
                                    weir_device_await,
                                    add_bins,
                                    curve,
                                    weir_device_decode,
                                    weir_device_leave,
                                    weir_device_read,
                                    weir_device_fetch,
                                    weir_device_settle,
                                    weir_device_encode,
                                    weir_device_add,
                                    weir_device_drop,
                                    weir_device_arrive,
                                    weir_device_pick,
                                    weir_device_take,
                                    weir_device_stale,
                                    weir_device_store,
                                    weir_device_project_back,
                                    weir_device_take_off,
                                    weir_device_expand,
                                    weir_device_publish,
                                    weir_device_finish,
                                    commit,
                                    fill,
                                    keep_room,
                                    keep,
                                    save,
                                    load,
                                    scale,
                                    weir_device_measure,
                                    weir_device_clip,
                                    weir_device_norm,
                                    squares,
                                    move,
                                    copy,
                                    weir_device_wait_for_caller,
                                    memory,
                                    forget};

extern "C" __attribute__((visibility("default"))) const weir_device_ops *weir_device_library(void) {
  return &ops;
}
