/* The NCCL transport's memory on the device and for announcements, and copies between. */
#include <stdlib.h>

#include "base/base.h"
#include "collectives/transports/nccl.h"

weir_status nct_cuda(const nct *self, cudaError_t error, const char *doing) {
  if (error == cudaSuccess) return WEIR_OK;
  (void)self->lib->last_cuda_error(); /* or the trainer would find it */
  return weir_fail(error == cudaErrorMemoryAllocation ? WEIR_E_NOMEM : WEIR_E_UNSUPPORTED,
                   "CUDA failed %s: %s", doing, self->lib->cuda_error_string(error));
}

weir_status nct_enter(const nct *self, int *held) {
  *held = self->device;
  weir_status status = nct_cuda(self, self->lib->get_device(held), "to tell the current device");
  if (status == WEIR_OK && *held != self->device)
    status = nct_cuda(self, self->lib->set_device(self->device), "to choose a device");
  return status;
}

void nct_leave(const nct *self, int held) {
  if (held != self->device) (void)self->lib->set_device(held);
}

weir_status nct_reserve(nct *self, size_t bytes) {
  if (bytes <= self->capacity) return WEIR_OK;
  void *memory = NULL;
  if (self->memory) (void)self->lib->release(self->memory);
  self->memory = NULL;
  self->capacity = 0;
  const weir_status status =
      nct_cuda(self, self->lib->allocate(&memory, bytes), "to find room for messages");
  if (status != WEIR_OK) return status;
  self->memory = memory;
  self->capacity = bytes;
  return WEIR_OK;
}

weir_status nct_words(nct *self, size_t bytes) {
  if (bytes <= self->words_capacity) return WEIR_OK;
  free(self->words);
  self->words_capacity = 0;
  self->words = malloc(bytes);
  if (!self->words) return weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes of messages", bytes);
  self->words_capacity = bytes;
  return WEIR_OK;
}

bool nct_on_device(const nct *self, const void *data) {
  struct cudaPointerAttributes about = {.type = cudaMemoryTypeUnregistered};
  if (self->lib->attributes(&about, data) != cudaSuccess) {
    (void)self->lib->last_cuda_error();
    return false;
  }
  return about.type == cudaMemoryTypeDevice || about.type == cudaMemoryTypeManaged;
}

weir_status nct_copy(nct *self, void *to, const void *from, size_t bytes,
                     enum cudaMemcpyKind kind) {
  return nct_cuda(self, self->lib->copy(to, from, bytes, kind, self->stream), "to copy a message");
}
