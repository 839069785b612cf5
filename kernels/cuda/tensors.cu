/* Making the tables of tensors.cuh. */
#include <cstdlib>

#include "kernels/cuda/tensors.cuh"

/* Bytes of an array in the block, each array at a multiple of 256. */
static size_t room(size_t count, size_t size) { return (count * size + 255) / 256 * 256; }

static size_t pieces_of(size_t count) {
  return count / WEIR_TENSOR_PIECE + (count % WEIR_TENSOR_PIECE != 0);
}

/* tensor and owner on the host; NULL: only the numbers in *out. */
static void fill(const weir_layout *layout, weir_cuda_tensors *out, weir_tensor *tensor,
                 uint32_t *owner) {
  uint32_t tensors = 0;
  uint32_t pieces = 0;
  size_t groups = 0;
  for (size_t t = 0; t < layout->tensors; t++) {
    size_t begin = layout->offset[t];
    size_t count = layout->offset[t + 1] - begin;
    if (count == 0) continue;
    if (tensor != NULL)
      tensor[tensors] = weir_tensor{(uint32_t)begin, (uint32_t)count, pieces, (uint32_t)groups};
    for (size_t p = 0; p < pieces_of(count); p++, pieces++) {
      if (owner != NULL) owner[pieces] = tensors;
    }
    tensors++;
    groups += count / 8 + (count % 8 != 0);
  }
  if (tensor != NULL) {
    tensor[tensors] =
        weir_tensor{(uint32_t)layout->offset[layout->tensors], 0, pieces, (uint32_t)groups};
  }
  out->table.tensors = tensors;
  out->table.pieces = pieces;
  out->groups = groups;
}

static weir_status upload(weir_cuda *cuda, const weir_layout *layout, weir_cuda_tensors *made) {
  size_t tensors = made->table.tensors;
  size_t pieces = made->table.pieces;
  size_t owners = room(tensors + 1, sizeof(weir_tensor));
  size_t sums = owners + room(pieces, sizeof(uint32_t));
  size_t fed = sums + room(pieces, sizeof(weir_sums));
  size_t reach = fed + room(pieces, sizeof(weir_sums));
  char *host = (char *)calloc(1, sums);
  if (host == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for the places of %zu tensors", tensors);
  fill(layout, made, (weir_tensor *)host, (uint32_t *)(host + owners));
  weir_status status = weir_cuda_check(cudaSetDevice(cuda->device), "choosing the device");
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaMalloc(&made->block, reach + room(tensors + 1, sizeof(float))),
                             "the places of tensors");
  }
  char *block = (char *)made->block;
  if (status == WEIR_OK) status = weir_cuda_copy(cuda, block, host, sums);
  if (status == WEIR_OK) status = weir_cuda_check(cudaStreamSynchronize(cuda->stream), "waiting");
  if (status == WEIR_OK) {
    made->table.tensor = (weir_tensor *)block;
    made->table.owner = (uint32_t *)(block + owners);
    made->table.sums = (weir_sums *)(block + sums);
    made->table.fed = (weir_sums *)(block + fed);
    made->table.reach = (float *)(block + reach);
  }
  free(host);
  return status;
}

static bool same(const weir_cuda_tensors *tensors, const weir_layout *layout) {
  return tensors->entries == layout->tensors + 1 &&
         memcmp(tensors->offset, layout->offset, tensors->entries * sizeof *tensors->offset) == 0;
}

weir_status weir_cuda_reserve_tensors(weir_cuda *cuda, const weir_layout *layout) {
  if (cuda->tensors != NULL && same(cuda->tensors, layout)) return WEIR_OK;
  size_t n = layout->offset[layout->tensors];
  if (n > UINT32_MAX) return weir_fail(WEIR_E_INVALID, "no tables can be made for %zu elements", n);
  weir_cuda_tensors *made = (weir_cuda_tensors *)calloc(1, sizeof *made);
  size_t entries = layout->tensors + 1;
  size_t *offset = (size_t *)malloc(entries * sizeof *offset);
  if (made == NULL || offset == NULL) {
    free(made);
    free(offset);
    return weir_fail(WEIR_E_NOMEM, "no memory for the places of %zu tensors", layout->tensors);
  }
  memcpy(offset, layout->offset, entries * sizeof *offset);
  made->offset = offset;
  made->entries = entries;
  fill(layout, made, NULL, NULL);
  weir_status status = upload(cuda, layout, made);
  if (status != WEIR_OK) {
    weir_cuda_tensors_free(made);
    return status;
  }
  weir_cuda_tensors_free(cuda->tensors); /* nothing that is queued uses it: upload has waited */
  cuda->tensors = made;
  return WEIR_OK;
}

weir_status weir_cuda_tensors_ready(const weir_cuda *cuda, const weir_layout *layout) {
  return cuda->tensors != NULL && same(cuda->tensors, layout)
             ? WEIR_OK
             : weir_fail(WEIR_E_STATE, "no tables are reserved for these %zu tensors",
                         layout->tensors);
}

void weir_cuda_tensors_free(weir_cuda_tensors *tensors) {
  if (tensors == NULL) return;
  (void)cudaFree(tensors->block);
  free(tensors->offset);
  free(tensors);
}
