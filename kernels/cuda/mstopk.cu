/* mstopk: the thresholds of kernels/mstopk.c, found on the device. */
#include "kernels/cuda/select.cuh"

constexpr int ROUNDS = 30;
constexpr double SLICE = 0.01;

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
  state->above = 0;
}

/* Counts what reaches the upper threshold.  The last block that arrives settles the band: were the
 * slice below that threshold more than SLICE of what is kept, it is that of exact top-k instead. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    settle(const float *e, size_t n, const float *candidate, uint32_t k,
           weir_search_state *state) {
  bool listed = state->use_list != 0; /* a list holds all that reaches high, for high > border */
  const float *from = listed ? candidate : e;
  size_t count = listed ? state->found : n;
  uint32_t high = state->high;
  uint32_t reach = 0;
  WEIR_CUDA_EACH(i, count) {
    reach += weir_magnitude(from[i]) >= high;
  }
  uint32_t total;
  (void)weir_block_before(reach, &total);
  if (threadIdx.x != 0) {
    return;
  }
  atomicAdd(&state->above, total);
  __threadfence();
  if (atomicAdd(&state->arrived, 1U) + 1 != gridDim.x) {
    return;
  }
  __threadfence();
  uint32_t slice = k - atomicAdd(&state->above, 0U);
  state->arrived = 0;
  if ((double)slice > SLICE * (double)k) {
    state->high = state->prefix + 1;
    state->low = state->prefix;
  } else {
    state->use_list = listed && state->low >= state->floor;
  }
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
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "settling the band",
                              weir_cuda_grid(cuda, n, 16 * WEIR_CUDA_BLOCK), WEIR_CUDA_BLOCK, settle,
                              e, n, cuda->candidate, (uint32_t)k, cuda->search);
  }
  return status == WEIR_OK ? weir_cuda_emit(cuda, same, n, k, index, value, false) : status;
}
