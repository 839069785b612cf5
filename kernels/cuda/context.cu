/* A device, a stream and a workspace: kernels/cuda/cuda.h. */
#include <new>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/tensors.cuh"

weir_status weir_cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return WEIR_OK;
  (void)cudaGetLastError(); /* it is told of here: CUB would take it for a failure of its own */
  weir_status status = error == cudaErrorMemoryAllocation ? WEIR_E_NOMEM : WEIR_E_INTERNAL;
  return weir_fail(status, "CUDA, %s: %s", what, cudaGetErrorString(error));
}

weir_status weir_cuda_ready(const weir_cuda *cuda, size_t n, size_t k) {
  if (n > UINT32_MAX)
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than 32-bit indices reach", n);
  if (k > n) return weir_fail(WEIR_E_INVALID, "%zu of %zu elements cannot be kept", k, n);
  if (n > cuda->n || k > cuda->k) {
    return weir_fail(WEIR_E_STATE,
                     "workspace is reserved for %zu of %zu elements, not for %zu of %zu", cuda->k,
                     cuda->n, k, n);
  }
  return WEIR_OK;
}

int weir_cuda_devices(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

static weir_status open_device(weir_cuda *cuda, void *stream) {
  int processors = 0;
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  if (status == WEIR_OK) {
    status = weir_cuda_check(
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, cuda->device),
        "asking for multiprocessors");
    cuda->processors = (unsigned)processors;
  }
  cuda->stream = (cudaStream_t)stream;
  if (status == WEIR_OK && stream == NULL) {
    status = weir_cuda_check(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                             "making a stream");
    cuda->owns_stream = status == WEIR_OK;
  }
  if (status == WEIR_OK)
    status = weir_cuda_check(cudaMalloc((void **)&cuda->fault, sizeof *cuda->fault), "fault word");
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaMallocHost((void **)&cuda->fault_host, sizeof *cuda->fault_host),
                             "page-locked memory");
  }
  if (status == WEIR_OK) status = weir_cuda_clear(cuda, cuda->fault, sizeof *cuda->fault);
  return status;
}

weir_status weir_cuda_create(int device, void *stream, weir_cuda **out) {
  *out = NULL;
  int devices = weir_cuda_devices();
  if (device < 0 || device >= devices) {
    return weir_fail(devices > 0 ? WEIR_E_INVALID : WEIR_E_UNSUPPORTED,
                     "there is no CUDA device %d, of %d", device, devices);
  }
  weir_cuda *cuda = new (std::nothrow) weir_cuda();
  if (cuda == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a CUDA context");
  cuda->device = device;
  weir_status status = open_device(cuda, stream);
  if (status != WEIR_OK) {
    weir_cuda_free(cuda);
    return status;
  }
  *out = cuda;
  return WEIR_OK;
}

void weir_cuda_free(weir_cuda *cuda) {
  if (cuda == NULL) return;
  /* Nothing useful can be done about an error any more. */
  (void)cudaSetDevice(cuda->device);
  (void)cudaStreamSynchronize(cuda->stream);
  (void)cudaFree(cuda->workspace);
  weir_cuda_tensors_free(cuda->tensors);
  (void)cudaFree(cuda->fault);
  (void)cudaFreeHost(cuda->fault_host);
  if (cuda->owns_stream) (void)cudaStreamDestroy(cuda->stream);
  delete cuda;
}

void *weir_cuda_stream(const weir_cuda *cuda) { return (void *)cuda->stream; }

/* The next part of the workspace: where it begins, with at moved past it.  The first round, without
 * a block, only adds up. */
template <typename T>
static T *part(void *block, size_t *at, size_t count) {
  T *begin = block != NULL ? (T *)((char *)block + *at) : NULL;
  *at += (count * sizeof(T) + 255) / 256 * 256;
  return begin;
}

static size_t lay_out(weir_cuda *cuda, void *block) {
  size_t at = 0;
  size_t tiles = weir_cuda_tiles(cuda->n);
  cuda->search = part<weir_search_state>(block, &at, 1);
  cuda->sums = part<weir_sums>(block, &at, tiles);
  cuda->listed = part<uint2>(block, &at, tiles);
  cuda->taken = part<uint2>(block, &at, tiles + 1);
  cuda->candidate = part<float>(block, &at, cuda->candidates);
  cuda->candidate_place = part<uint32_t>(block, &at, cuda->candidates);
  cuda->sample = part<float>(block, &at, weir_cuda_dgc_sampled(cuda->n));
  cuda->partial = part<float>(block, &at, weir_cuda_powersgd_partial(cuda->n));
  cuda->bitmap = part<uint32_t>(block, &at, weir_cuda_bitmap_words(cuda->n));
  cuda->scan = part<char>(block, &at, cuda->scan_bytes);
  cuda->read_index = part<uint32_t>(block, &at, cuda->k);
  return at;
}

weir_status weir_cuda_reserve(weir_cuda *cuda, size_t n, size_t k) {
  if (n > UINT32_MAX || k > n)
    return weir_fail(WEIR_E_INVALID, "no workspace can be reserved for %zu of %zu elements", k, n);
  if (n <= cuda->n && k <= cuda->k && cuda->workspace != NULL) return WEIR_OK;
  weir_cuda grown = *cuda;
  grown.n = n > cuda->n ? n : cuda->n;
  grown.k = k > cuda->k ? k : cuda->k;
  grown.candidates = weir_cuda_candidates(grown.n, grown.k);
  grown.workspace = NULL;
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  if (status == WEIR_OK)
    status = weir_cuda_scan_bytes(&grown, weir_cuda_tiles(grown.n) + 1, &grown.scan_bytes);
  if (status == WEIR_OK)
    status = weir_cuda_check(cudaMalloc(&grown.workspace, lay_out(&grown, NULL)), "a workspace");
  if (status == WEIR_OK) {
    (void)lay_out(&grown, grown.workspace);
    status = weir_cuda_clear(&grown, grown.search, sizeof *grown.search);
  }
  if (status == WEIR_OK) status = weir_cuda_check(cudaStreamSynchronize(grown.stream), "waiting");
  if (status != WEIR_OK) {
    (void)cudaFree(grown.workspace);
    return status;
  }
  (void)cudaFree(cuda->workspace);
  *cuda = grown;
  return WEIR_OK;
}

weir_status weir_cuda_wait(weir_cuda *cuda) {
  weir_status status = weir_cuda_copy(cuda, cuda->fault_host, cuda->fault, sizeof *cuda->fault);
  if (status == WEIR_OK) status = weir_cuda_clear(cuda, cuda->fault, sizeof *cuda->fault);
  if (status == WEIR_OK) status = weir_cuda_check(cudaStreamSynchronize(cuda->stream), "waiting");
  if (status != WEIR_OK || *cuda->fault_host == 0) return status;
  return weir_fail(WEIR_E_PROTOCOL, "malformed message on the device: %s",
                   *cuda->fault_host & WEIR_FAULT_INDEX
                       ? "indices that do not ascend or are out of range"
                       : "wrong header or scales");
}

weir_status weir_cuda_alloc(weir_cuda *cuda, size_t bytes, void **out) {
  *out = NULL;
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  return status == WEIR_OK
             ? weir_cuda_check(cudaMalloc(out, bytes > 0 ? bytes : 1), "device memory")
             : status;
}

void weir_cuda_release(weir_cuda *cuda, void *memory) {
  (void)cudaSetDevice(cuda->device);
  (void)cudaFree(memory);
}

weir_status weir_cuda_copy(weir_cuda *cuda, void *to, const void *from, size_t bytes) {
  if (bytes == 0) return WEIR_OK;
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  return status == WEIR_OK
             ? weir_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->stream),
                               "a copy")
             : status;
}

weir_status weir_cuda_clear(weir_cuda *cuda, void *memory, size_t bytes) {
  if (bytes == 0) return WEIR_OK;
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  return status == WEIR_OK
             ? weir_cuda_check(cudaMemsetAsync(memory, 0, bytes, cuda->stream), "clearing memory")
             : status;
}
