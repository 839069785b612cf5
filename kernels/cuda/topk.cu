/* Exact top-k, alone and fused with error feedback. */
#include "kernels/cuda/select.cuh"

weir_status weir_cuda_ef_topk(weir_cuda *cuda, const float *g, const float *r, float *e, size_t n,
                              size_t k, uint32_t *index, float *value, weir_moments *moments) {
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status != WEIR_OK || k == 0) {
    return status != WEIR_OK ? status : weir_cuda_ef_accumulate(cuda, g, r, e, n, moments);
  }
  status = weir_cuda_estimate(cuda, g, r, n, k);
  if (status == WEIR_OK) {
    status = weir_cuda_compact(cuda, g, r, e, n,
                               moments != NULL ? WEIR_STAT_MOMENTS : WEIR_STAT_NONE);
  }
  if (status == WEIR_OK && moments != NULL) {
    status = weir_cuda_fold(cuda, n, moments);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_digits(cuda, e, n, k);
  }
  return status == WEIR_OK ? weir_cuda_emit(cuda, e, n, k, index, value, true) : status;
}

weir_status weir_cuda_topk(weir_cuda *cuda, const float *e, size_t n, size_t k, uint32_t *index,
                           float *value) {
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status != WEIR_OK || k == 0) {
    return status;
  }
  status = weir_cuda_estimate(cuda, e, NULL, n, k);
  /* Neither step writes to e: it is read when r is NULL, and zero is not set. */
  float *same = const_cast<float *>(e);
  if (status == WEIR_OK) {
    status = weir_cuda_compact(cuda, NULL, NULL, same, n, WEIR_STAT_NONE);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_digits(cuda, e, n, k);
  }
  return status == WEIR_OK ? weir_cuda_emit(cuda, same, n, k, index, value, false) : status;
}
