/* What the parity tests share: a context and buffers on the device, and the oracle. */
#ifndef WEIR_TESTS_PARITY_H
#define WEIR_TESTS_PARITY_H

#include <criterion/criterion.h>

#include "kernels/cuda/cuda.h"
#include "kernels/internal.h"
#include "unit/kernels_data.h"

static inline void must(weir_status status) {
  cr_assert_eq(status, WEIR_OK, "%s: %s", weir_status_name(status), weir_last_error());
}

/* A context with room for k of n; the CPU side runs the scalar code. */
static inline weir_cuda *open_cuda(size_t n, size_t k) {
  weir_cpu_force(&weir_cpu_scalar);
  weir_cuda *cuda = NULL;
  must(weir_cuda_create(0, NULL, &cuda));
  must(weir_cuda_reserve(cuda, n, k));
  return cuda;
}

/* Device memory that lies `skew` bytes behind a 256-byte boundary, filled with what is no number
 * of anything: a device's fresh memory is often zero, which hides what was not written. */
typedef struct device_buffer {
  weir_cuda *cuda;
  void *block;
  void *data;
} device_buffer;

/* Before a declaration: the buffer, or the context, goes back when its block ends. */
#define LENT __attribute__((cleanup(give_back)))
#define OPENED __attribute__((cleanup(close_cuda)))

static inline void give_back(const device_buffer *buffer) {
  weir_cuda_release(buffer->cuda, buffer->block);
}

static inline void close_cuda(weir_cuda *const *cuda) { weir_cuda_free(*cuda); }

static inline device_buffer take(weir_cuda *cuda, size_t bytes, size_t skew) {
  device_buffer buffer = {.cuda = cuda};
  FREED void *pattern = malloc(bytes + skew + 1);
  cr_assert_not_null(pattern);
  memset(pattern, 0xa5, bytes + skew);
  must(weir_cuda_alloc(cuda, bytes + skew, &buffer.block));
  must(weir_cuda_copy(cuda, buffer.block, pattern, bytes + skew)); /* pageable: it has been read */
  buffer.data = (char *)buffer.block + skew;
  return buffer;
}

static inline device_buffer put(weir_cuda *cuda, const void *from, size_t bytes, size_t skew) {
  device_buffer buffer = take(cuda, bytes, skew);
  must(weir_cuda_copy(cuda, buffer.data, from, bytes));
  return buffer;
}

/* Waits, too. */
static inline void get(weir_cuda *cuda, void *to, device_buffer from, size_t bytes) {
  must(weir_cuda_copy(cuda, to, from.data, bytes));
  must(weir_cuda_wait(cuda));
}

static inline void *array(size_t count, size_t size) {
  void *memory = calloc(count + 1, size);
  cr_assert_not_null(memory);
  return memory;
}

/* Equal bits, where any NaN is as good as any other. */
static inline void same_floats(const float *got, const float *wanted, size_t n, const char *what) {
  for (size_t i = 0; i < n; i++) {
    bool both_nan = isnan(got[i]) && isnan(wanted[i]);
    cr_assert(both_nan || memcmp(&got[i], &wanted[i], sizeof got[i]) == 0,
              "%s: element %zu of %zu is %a, not %a", what, i, n, (double)got[i],
              (double)wanted[i]);
  }
}

#endif
