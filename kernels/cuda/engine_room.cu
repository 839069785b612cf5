/* Room for a plan's buckets on the engine's device: contexts, and one block of memory for all of
 * them. */
#include <cstdlib>

#include "kernels/cuda/engine.cuh"

constexpr size_t ALIGNED = 256;

/* More contexts; those there are stay. */
static weir_status grow_units(weir_device *device, size_t count) {
  weir_status status = WEIR_OK;
  if (count > device->units) {
    void *grown = realloc(device->unit, count * sizeof *device->unit);
    if (grown == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", count);
    device->unit = (weir_device_unit *)grown;
  }
  for (; status == WEIR_OK && device->units < count; device->units++) {
    weir_device_unit *unit = &device->unit[device->units];
    *unit = weir_device_unit();
    status = weir_cuda_create(device->device, device->caller, &unit->near);
    if (status == WEIR_OK) status = weir_cuda_create(device->device, device->own, &unit->far);
    if (status == WEIR_OK) status = weir_device_make_event(&unit->ready);
    if (status != WEIR_OK) {
      weir_cuda_free(unit->near);
      weir_cuda_free(unit->far);
      return status;
    }
  }
  return status;
}

/* Workspaces, with one element more than is kept for mstopk, and tables of tensors. */
static weir_status reserve_contexts(weir_device_unit *unit, const weir_device_bucket *bucket) {
  size_t kept = bucket->kind == WEIR_DEVICE_THIN ? 0 : bucket->kept;
  const bool by_tensor = weir_codecs[bucket->codec]->by_tensor;
  size_t k = kept + 1 < bucket->n ? kept + 1 : bucket->n;
  unit->near->bucket_log2 = unit->far->bucket_log2 = bucket->bucket_log2;
  weir_status status = weir_cuda_reserve(unit->near, bucket->n, k);
  if (status == WEIR_OK) status = weir_cuda_reserve(unit->far, bucket->n, k);
  if (status == WEIR_OK && by_tensor)
    status = weir_cuda_reserve_tensors(unit->near, &bucket->layout);
  return status == WEIR_OK && by_tensor && bucket->kind == WEIR_DEVICE_ENCODE
             ? weir_cuda_reserve_tensors(unit->far, &bucket->layout)
             : status;
}

template <typename T>
static T *part(unsigned char *block, size_t *at, size_t count) {
  T *begin = block != NULL ? (T *)(void *)(block + *at) : NULL;
  *at += (count * sizeof(T) + ALIGNED - 1) / ALIGNED * ALIGNED;
  return begin;
}

/* The parts of the block; without one, only its size. */
static size_t lay_out(weir_device *device, unsigned char *block, const weir_device_bucket *buckets,
                      size_t count, size_t ranks) {
  size_t at = 0, most = 0;
  for (size_t k = 0; k < count; k++) {
    const weir_device_bucket *bucket = &buckets[k];
    bool gathers = bucket->kind == WEIR_DEVICE_SELECT || bucket->kind == WEIR_DEVICE_ENCODE;
    bool parts = bucket->kind == WEIR_DEVICE_PARTS;
    bool share = bucket->kind == WEIR_DEVICE_SHARE;
    bool lists = bucket->kind == WEIR_DEVICE_LIST;
    bool sends = gathers || parts || share || lists;
    size_t indices = bucket->kind == WEIR_DEVICE_THIN ? 0 : bucket->kept;
    weir_device_unit unit = block != NULL ? device->unit[k] : weir_device_unit();
    unit.bucket = *bucket;
    unit.told = part<weir_device_told>(block, &at, 1);
    unit.overflow = part<uint32_t>(block, &at, 1);
    unit.bins = part<weir_cuda_gain_bin>(block, &at, WEIR_CUDA_GAIN_BINS);
    unit.index = part<uint32_t>(block, &at, indices);
    unit.value = part<float>(block, &at, bucket->kept);
    unit.error = part<float>(block, &at, indices);
    unit.out = unit.out_here = part<unsigned char>(block, &at, sends ? bucket->stride : 0);
    size_t all = gathers ? ranks * (bucket->stride + 16) : sends ? bucket->stride : 0;
    most = all > most ? all : most;
    if (block != NULL) device->unit[k] = unit;
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
    /* Messages are shipped by whole words, whose last bytes nobody writes. */
    if (status == WEIR_OK) status = weir_cuda_clear(device->unit[0].near, block, bytes);
  }
  if (status != WEIR_OK) {
    (void)cudaFreeHost(told);
    (void)cudaFree(block);
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

weir_status weir_device_reserve(weir_device *device, const weir_device_bucket *buckets,
                                size_t count, size_t ranks) {
  const weir_device before = *device;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = grow_units(device, count);
  for (size_t k = 0; status == WEIR_OK && k < count; k++)
    status = reserve_contexts(&device->unit[k], &buckets[k]);
  size_t bytes = lay_out(device, NULL, buckets, count, ranks);
  if (status == WEIR_OK && (bytes > device->block_bytes || count > device->told_room))
    status = make_room(device, bytes, device->units);
  if (status != WEIR_OK) {
    device->in = before.in;
    device->in_bytes = before.in_bytes;
    return status;
  }
  (void)lay_out(device, device->block, buckets, count, ranks);
  device->buckets = count;
  for (size_t k = 0; status == WEIR_OK && k < count; k++) {
    status = weir_cuda_check(
        cudaMemsetAsync(device->unit[k].overflow, 0, sizeof(uint32_t), device->own), "a flag");
  }
  return status;
}
