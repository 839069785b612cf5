/* mstopk (MSTopK, algorithm 1): the thresholds of kernels/mstopk.c, found on the device. */
#include "kernels/cuda/codecs.cuh"

/* One thread: kernels/mstopk.c's bisection.  The state holds the bits of the (k+1)-th largest
 * magnitude. */
__global__ static void bisect(weir_search_state *state, size_t n) {
  uint32_t border = state->prefix;
  double mean = state->magnitudes / (double)n;
  double largest = (double)weir_float_of(state->largest);
  uint32_t high = border < WEIR_INF_BITS ? WEIR_INF_BITS : border + 1;
  uint32_t low = 0;
  double l = 0.0;
  double r = 1.0;
  for (int round = 0; round < WEIR_MSTOPK_ROUNDS; round++) {
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
  state->proposed_high = high;
  state->proposed_low = low;
}

weir_status weir_cuda_pick_mstopk(weir_cuda *cuda, const weir_pick &pick) {
  if (pick.k == pick.n) return weir_cuda_pick_topk(cuda, pick);
  weir_status status = weir_cuda_estimate(cuda, pick, pick.k + 1);
  if (status == WEIR_OK) status = weir_cuda_compact(cuda, pick, true);
  if (status == WEIR_OK) status = weir_cuda_fold(cuda, pick.n, pick.moments);
  if (status == WEIR_OK) status = weir_cuda_digits(cuda, pick.e, pick.n, pick.k + 1);
  if (status == WEIR_OK)
    status = weir_cuda_launch(cuda, "bisecting", 1, 1, bisect, cuda->search, pick.n);
  if (status == WEIR_OK) status = weir_cuda_settle(cuda, pick, WEIR_BAND_SLICE);
  return status == WEIR_OK ? weir_cuda_emit(cuda, pick) : status;
}
