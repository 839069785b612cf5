/* sidco (SIDCo-E, Abdelmoniem et al. 2021): the threshold of an exponential tail fitted in stages;
 * kernels/sidco.c.  The first stage adds up on the way of the pass over all elements; each further
 * one reads them again and adds up what exceeds the threshold before. */
#include "kernels/cuda/codecs.cuh"

constexpr double STAGE_SHARE = 0.25;

/* What a stage adds up: by how much magnitudes exceed the threshold, and how many reach it. */
constexpr unsigned EXCESS = 0;

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    add_excess(const float *e, size_t n, const weir_search_state *state, weir_sums *sums) {
  double base = state->threshold;
  uint32_t least = state->proposed_high;
  size_t begin = (size_t)blockIdx.x * WEIR_TILE;
  size_t end = begin + WEIR_TILE < n ? begin + WEIR_TILE : n;
  weir_sums mine = {};
  for (size_t i = begin + threadIdx.x; i < end; i += WEIR_CUDA_BLOCK) {
    uint32_t bits = weir_magnitude(e[i]);
    if (bits >= least) {
      mine.sum[EXCESS] += (double)weir_float_of(bits) - base;
      mine.count++;
    }
  }
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

/* One thread: the next stage's threshold, base - mean ln(share).  The state's proposed_high holds a
 * stage's threshold, proposed_low that of the stage before. */
__device__ static void fit(weir_search_state *state, double base, double mean, double log_share) {
  double threshold = base + -mean * log_share;
  bool usable = threshold > 0.0 && threshold < (double)FLT_MAX;
  state->failed |= !usable;
  state->proposed_low = state->proposed_high;
  state->threshold = threshold;
  state->proposed_high = usable ? weir_bits_reaching(threshold) : 0;
}

__global__ static void first_stage(weir_search_state *state, size_t n, double log_share) {
  state->failed = 0;
  state->proposed_high = 0;
  fit(state, 0.0, state->magnitudes / (double)n, log_share);
}

/* One block: adds the tiles up.  A stage that fewer than k or more than `most` reach has failed. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    next_stage(weir_search_state *state, const weir_sums *sums, size_t tiles, size_t k, size_t most,
               double log_share) {
  weir_sums all = weir_fold_sums(sums, tiles);
  if (threadIdx.x == 0) {
    state->failed |= all.count < k || all.count > most;
    fit(state, state->threshold, all.sum[EXCESS] / (double)all.count, log_share);
  }
}

/* One thread: the band that the stages propose.  With a single one, the same fit's threshold for
 * twice as many stands for the stage before. */
__global__ static void propose(weir_search_state *state, bool single, double log_share,
                               double log_twice) {
  if (single)
    state->proposed_low = weir_bits_reaching(fmax(state->threshold * log_twice / log_share, 0.0));
  if (state->failed != 0) {
    state->proposed_high = 0; /* which all reach: the k largest are taken */
  }
}

/* The stages of a threshold for k of n, after the pass over all elements. */
static weir_status stages(weir_cuda *cuda, const weir_pick &pick) {
  size_t tiles = weir_cuda_tiles(pick.n);
  double left = (double)pick.k / (double)pick.n;
  const bool single = left > STAGE_SHARE * STAGE_SHARE;
  bool last = single;
  double log_share = log(last ? left : STAGE_SHARE);
  weir_status status =
      weir_cuda_launch(cuda, "sidco", 1, 1, first_stage, cuda->search, pick.n, log_share);
  for (size_t most = pick.n / 2; !last && status == WEIR_OK; most = pick.n) {
    left /= STAGE_SHARE;
    last = left > STAGE_SHARE * STAGE_SHARE;
    log_share = log(last ? left : STAGE_SHARE);
    status = weir_cuda_launch(cuda, "adding up excesses", tiles, WEIR_CUDA_BLOCK, add_excess,
                              pick.e, pick.n, cuda->search, cuda->sums);
    if (status == WEIR_OK) {
      status = weir_cuda_launch(cuda, "sidco", 1, WEIR_CUDA_BLOCK, next_stage, cuda->search,
                                cuda->sums, tiles, pick.k, most, log_share);
    }
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "sidco", 1, 1, propose, cuda->search, single,
                                              log_share, log(2.0 * left))
                           : status;
}

weir_status weir_cuda_pick_sidco(weir_cuda *cuda, const weir_pick &pick) {
  if (pick.k == pick.n) return weir_cuda_pick_topk(cuda, pick);
  weir_status status = weir_cuda_estimate(cuda, pick, pick.k);
  if (status == WEIR_OK) status = weir_cuda_compact(cuda, pick, true);
  if (status == WEIR_OK) status = weir_cuda_fold(cuda, pick.n, pick.moments);
  if (status == WEIR_OK) status = stages(cuda, pick);
  if (status == WEIR_OK) status = weir_cuda_digits(cuda, pick.e, pick.n, pick.k);
  if (status == WEIR_OK) status = weir_cuda_settle(cuda, pick, WEIR_BAND_FILL);
  return status == WEIR_OK ? weir_cuda_emit(cuda, pick) : status;
}
