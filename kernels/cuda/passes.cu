/* Passes that touch each element once: casts, scaling, gathering and adding at indices. */
#include "kernels/cuda/device.cuh"

static size_t elements_grid(const weir_cuda *cuda, size_t n) {
  return weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK);
}

/* --- indices --------------------------------------------------------------------------------- */

__global__ static void check_indices(const uint32_t *index, size_t k, size_t n, uint32_t *fault) {
  WEIR_CUDA_EACH(i, k) {
    bool good = index[i] < n && (i == 0 || index[i - 1] < index[i]);
    if (!good) atomicOr(fault, WEIR_FAULT_INDEX);
  }
}

__global__ static void gather(float *e, const uint32_t *index, size_t k, float *value, bool zero,
                              const uint32_t *fault) {
  if (*fault != 0) return;
  WEIR_CUDA_EACH(i, k) {
    uint32_t at = index[i];
    if (value != NULL) value[i] = e[at];
    if (zero) e[at] = 0.0F;
  }
}

__global__ static void scatter_add(float *to, const uint32_t *index, const float *value, size_t k,
                                   const uint32_t *fault) {
  if (*fault != 0) return;
  WEIR_CUDA_EACH(i, k) { to[index[i]] += value[i]; }
}

static weir_status check(weir_cuda *cuda, const uint32_t *index, size_t k, size_t n) {
  if (k > n) return weir_fail(WEIR_E_INVALID, "%zu indices out of %zu elements", k, n);
  return weir_cuda_launch(cuda, "checking indices", elements_grid(cuda, k), WEIR_CUDA_BLOCK,
                          check_indices, index, k, n, cuda->fault);
}

weir_status weir_cuda_gather(weir_cuda *cuda, float *e, size_t n, const uint32_t *index, size_t k,
                             float *value, bool zero) {
  if (k == 0) return WEIR_OK;
  weir_status status = check(cuda, index, k, n);
  return status == WEIR_OK
             ? weir_cuda_launch(cuda, "gathering", elements_grid(cuda, k), WEIR_CUDA_BLOCK, gather,
                                e, index, k, value, zero, cuda->fault)
             : status;
}

weir_status weir_cuda_scatter_add(weir_cuda *cuda, float *to, size_t n, const uint32_t *index,
                                  const float *value, size_t k) {
  if (k == 0) return WEIR_OK;
  weir_status status = check(cuda, index, k, n);
  return status == WEIR_OK
             ? weir_cuda_launch(cuda, "adding", elements_grid(cuda, k), WEIR_CUDA_BLOCK,
                                scatter_add, to, index, value, k, cuda->fault)
             : status;
}

/* --- every element --------------------------------------------------------------------------- */

__global__ static void bf16_encode(const float *x, size_t n, uint16_t *out, float *error) {
  WEIR_CUDA_EACH(i, n) {
    float value = x[i];
    uint16_t bits = weir_bf16_bits(value);
    if (error != NULL) error[i] += value - weir_bf16_value(bits);
    out[i] = bits;
  }
}

__global__ static void bf16_decode(const uint16_t *x, size_t n, float *out) {
  WEIR_CUDA_EACH(i, n) { out[i] = weir_bf16_value(x[i]); }
}

template <typename... P, typename... A>
static weir_status over_elements(weir_cuda *cuda, const char *what, size_t n, void (*kernel)(P...),
                                 A... arguments) {
  return n > 0 ? weir_cuda_launch(cuda, what, elements_grid(cuda, n), WEIR_CUDA_BLOCK, kernel,
                                  arguments...)
               : WEIR_OK;
}

__global__ static void hold_finite(float *x, size_t n) {
  WEIR_CUDA_EACH(i, n) {
    float value = x[i];
    if (value > FLT_MAX) x[i] = FLT_MAX;
    if (value < -FLT_MAX) x[i] = -FLT_MAX;
  }
}

weir_status weir_cuda_hold_finite(weir_cuda *cuda, float *x, size_t n) {
  return over_elements(cuda, "holding", n, hold_finite, x, n);
}

weir_status weir_cuda_bf16_encode(weir_cuda *cuda, const float *x, size_t n, uint16_t *out,
                                  float *error) {
  return over_elements(cuda, "bf16", n, bf16_encode, x, n, out, error);
}

weir_status weir_cuda_bf16_decode(weir_cuda *cuda, const uint16_t *x, size_t n, float *out) {
  return over_elements(cuda, "bf16", n, bf16_decode, x, n, out);
}
