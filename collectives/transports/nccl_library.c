/* NCCL and CUDA are loaded, not linked: Weir runs where they are not. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/base.h"
#include "collectives/transports/nccl.h"

/* Structures change with CUDA's major version: no other will do. */
#define CUDART_MAJOR (CUDART_VERSION / 1000)

typedef struct symbol {
  const char *name;
  void *to; /* a function pointer */
} symbol;

static weir_status find_all(void *library, const char *file, const symbol *symbols, size_t count) {
  for (size_t i = 0; i < count; i++) {
    void *found = dlsym(library, symbols[i].name);
    if (!found) return weir_fail(WEIR_E_UNSUPPORTED, "%s has no %s", file, symbols[i].name);
    *(void **)symbols[i].to = found;
  }
  return WEIR_OK;
}

static weir_status open_library(const char *file, void **library) {
  *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (*library) return WEIR_OK;
  const char *why = dlerror();
  return weir_fail(WEIR_E_UNSUPPORTED, "%s cannot be loaded: %s", file,
                   why ? why : "unknown error");
}

weir_status nct_load_from(nct_library *out, const char *nccl, const char *cudart) {
  const symbol of_nccl[] = {
      {"ncclGetUniqueId", &out->get_unique_id},
      {"ncclCommInitRankConfig", &out->init},
      {"ncclCommGetAsyncError", &out->async_error},
      {"ncclCommFinalize", &out->finalise},
      {"ncclCommDestroy", &out->destroy},
      {"ncclCommAbort", &out->abort},
      {"ncclGroupStart", &out->group_start},
      {"ncclGroupEnd", &out->group_end},
      {"ncclSend", &out->send},
      {"ncclRecv", &out->recv},
      {"ncclAllReduce", &out->all_reduce},
      {"ncclGetErrorString", &out->error_string},
      {"ncclGetLastError", &out->last_error},
  };
  const symbol of_cuda[] = {
      {"cudaGetDeviceCount", &out->device_count},
      {"cudaGetDevice", &out->get_device},
      {"cudaSetDevice", &out->set_device},
      {"cudaStreamCreateWithFlags", &out->stream_create},
      {"cudaStreamDestroy", &out->stream_destroy},
      {"cudaStreamQuery", &out->stream_query},
      {"cudaMalloc", &out->allocate},
      {"cudaFree", &out->release},
      {"cudaMemcpyAsync", &out->copy},
      {"cudaPointerGetAttributes", &out->attributes},
      {"cudaGetLastError", &out->last_cuda_error},
      {"cudaGetErrorString", &out->cuda_error_string},
  };
  void *cuda_handle = NULL, *nccl_handle = NULL;
  weir_status status = open_library(cudart, &cuda_handle);
  if (status != WEIR_OK) return status;
  status = open_library(nccl, &nccl_handle);
  if (status != WEIR_OK) goto no_nccl;
  status = find_all(cuda_handle, cudart, of_cuda, sizeof of_cuda / sizeof *of_cuda);
  if (status == WEIR_OK)
    status = find_all(nccl_handle, nccl, of_nccl, sizeof of_nccl / sizeof *of_nccl);
  if (status == WEIR_OK) return WEIR_OK; /* both stay: NCCL's threads must not lose their code */
  (void)dlclose(nccl_handle);
no_nccl:
  (void)dlclose(cuda_handle);
  return status;
}

static nct_library libraries;
static bool loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

weir_status nct_load(const nct_library **out) {
  char cudart[32];
  (void)snprintf(cudart, sizeof cudart, "libcudart.so.%d", CUDART_MAJOR);
  (void)pthread_mutex_lock(&lock);
  const weir_status status = loaded ? WEIR_OK : nct_load_from(&libraries, "libnccl.so.2", cudart);
  loaded = status == WEIR_OK;
  (void)pthread_mutex_unlock(&lock);
  *out = &libraries;
  return status;
}
