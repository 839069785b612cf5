/* Exact top-k, alone and fused with error feedback; what star, var and topk select. */
#include "kernels/cuda/select.cuh"

weir_status weir_cuda_pick_topk(weir_cuda *cuda, const weir_pick &pick) {
  weir_status status = weir_cuda_estimate(cuda, pick, pick.k);
  if (status == WEIR_OK) status = weir_cuda_compact(cuda, pick, pick.moments != NULL);
  if (status == WEIR_OK && pick.moments != NULL)
    status = weir_cuda_fold(cuda, pick.n, pick.moments);
  if (status == WEIR_OK) status = weir_cuda_digits(cuda, pick.e, pick.n, pick.k);
  return status == WEIR_OK ? weir_cuda_emit(cuda, pick) : status;
}

weir_status weir_cuda_ef_topk(weir_cuda *cuda, const float *g, const float *r, float *e, size_t n,
                              size_t k, uint32_t *index, float *value, weir_moments *moments) {
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status != WEIR_OK || k == 0)
    return status != WEIR_OK ? status : weir_cuda_ef_accumulate(cuda, g, r, e, n, moments);
  return weir_cuda_pick_topk(cuda, weir_pick{g, r, e, n, k, 0, index, value, true, moments, 0});
}

weir_status weir_cuda_topk(weir_cuda *cuda, const float *e, size_t n, size_t k, uint32_t *index,
                           float *value) {
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status != WEIR_OK || k == 0) return status;
  float *same = const_cast<float *>(e); /* not written to, as zero is not set */
  return weir_cuda_pick_topk(cuda,
                             weir_pick{NULL, NULL, same, n, k, 0, index, value, false, NULL, 0});
}
