/* dgc (Deep Gradient Compression, Lin et al. 2018, section 3.3): a threshold from a sample, the
 * largest of what reaches it, and a second threshold for when that is too little; kernels/dgc.c
 * says it step by step, and the sample is the same here.  It lies in the workspace and is searched
 * as a gradient is; the pass over all elements lists what reaches the second threshold. */
#include "kernels/cuda/codecs.cuh"

constexpr size_t SHARE = 100; /* one in so many elements is sampled, and no fewer than ... */
constexpr size_t SAMPLE_LEAST = 8192;

size_t weir_cuda_dgc_sampled(size_t n) {
  if (n < WEIR_SAMPLED_LEAST) return 0;
  return n / SHARE > SAMPLE_LEAST ? n / SHARE : SAMPLE_LEAST;
}

/* The sample's generator after so many steps from 1: squares of the step, as the bits of
 * steps say. */
__device__ static inline uint64_t state_after(uint64_t steps) {
  uint64_t state = 1;
  uint64_t factor = WEIR_SAMPLE_FACTOR;
  uint64_t increment = WEIR_SAMPLE_INCREMENT;
  for (; steps > 0; steps >>= 1) {
    state = (steps & 1) != 0 ? state * factor + increment : state;
    increment *= factor + 1;
    factor *= factor;
  }
  return state;
}

/* As weir_sample. */
__global__ static void take_sample(const float *e, size_t n, size_t count, float *sample) {
  size_t stretch = n / count;
  WEIR_CUDA_EACH(i, count) {
    sample[i] = e[i * stretch + (size_t)(((state_after(i + 1) >> 32) * stretch) >> 32)];
  }
}

/* What a search over the sample is for. */
enum turn { FIRST, HIGH, LOW };

/* One thread: keep what the last search has found, and begin the next. */
__global__ static void next_search(weir_search_state *state, turn after) {
  uint32_t found = state->prefix;
  if (after == HIGH) {
    state->proposed_high = found;
  } else if (after == LOW) {
    state->proposed_low = found;
  }
  weir_begin_search(state, after == LOW ? found : UINT32_MAX);
}

/* Searches for the rank-th largest of the sample. */
static weir_status search_sample(weir_cuda *cuda, size_t sampled, double rank, turn what) {
  weir_status status = weir_cuda_digits(cuda, cuda->sample, sampled, (size_t)rank);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "dgc", 1, 1, next_search, cuda->search, what)
                           : status;
}

weir_status weir_cuda_pick_dgc(weir_cuda *cuda, const weir_pick &pick) {
  if (!weir_cuda_sampled(pick.n, pick.k)) return weir_cuda_pick_topk(cuda, pick);
  size_t sampled = weir_cuda_dgc_sampled(pick.n);
  double share = (double)pick.k / (double)pick.n * (double)sampled;
  weir_status status = weir_cuda_launch(cuda, "dgc", 1, 1, next_search, cuda->search, FIRST);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "sampling", weir_cuda_grid(cuda, sampled, WEIR_CUDA_BLOCK),
                              WEIR_CUDA_BLOCK, take_sample, pick.e, pick.n, sampled, cuda->sample);
  }
  if (status == WEIR_OK) status = search_sample(cuda, sampled, ceil(share), HIGH);
  if (status == WEIR_OK)
    status = search_sample(cuda, sampled, ceil(share + 4.0 * sqrt(share) + 8.0), LOW);
  if (status == WEIR_OK) status = weir_cuda_compact(cuda, pick, false);
  if (status == WEIR_OK) status = weir_cuda_digits(cuda, pick.e, pick.n, pick.k);
  if (status == WEIR_OK) status = weir_cuda_settle(cuda, pick, WEIR_BAND_FILL);
  return status == WEIR_OK ? weir_cuda_emit(cuda, pick) : status;
}
