/* The selections: exact top-k, alone and fused with error feedback, and mstopk. */
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

/* --- mstopk ---------------------------------------------------------------------------------- */

constexpr int ROUNDS = 30;

/* One thread: kernels/mstopk.c's bisection.  The state holds the bits of the (k+1)-th largest
 * magnitude. */
__global__ static void bisect(weir_search_state *state, size_t n) {
  uint32_t border = state->prefix;
  double mean = state->mean_sum / (double)n;
  double largest = (double)weir_float_of(state->largest);
  uint32_t high = border < WEIR_INF_BITS ? WEIR_INF_BITS : border + 1;
  uint32_t low = 0;
  double l = 0.0;
  double r = 1.0;
  for (int round = 0; round < ROUNDS; round++) {
    double ratio = l + (r - l) / 2.0;
    uint32_t bits = weir_bits_reaching(mean + ratio * (largest - mean));
    if (border < bits) {
      r = ratio;
      high = bits;
    } else {
      l = ratio;
      low = bits;
    }
  }
  state->high = high;
  state->low = low;
  /* The list holds everything from the floor up. */
  state->use_list = state->use_list != 0 && low >= state->floor;
}

weir_status weir_cuda_mstopk(weir_cuda *cuda, const float *e, size_t n, size_t k, uint32_t *index,
                             float *value) {
  if (k >= n) {
    return weir_cuda_topk(cuda, e, n, k, index, value);
  }
  weir_status status = weir_cuda_ready(cuda, n, k + 1);
  if (status != WEIR_OK || k == 0) {
    return status;
  }
  float *same = const_cast<float *>(e); /* not written to, as in weir_cuda_topk */
  status = weir_cuda_estimate(cuda, e, NULL, n, k + 1);
  if (status == WEIR_OK) {
    status = weir_cuda_compact(cuda, NULL, NULL, same, n, WEIR_STAT_ABSOLUTE);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_fold_absolute(cuda, n);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_digits(cuda, e, n, k + 1);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "bisecting", 1, 1, bisect, cuda->search, n);
  }
  return status == WEIR_OK ? weir_cuda_emit(cuda, same, n, k, index, value, false) : status;
}
