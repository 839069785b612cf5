/* lwtopk (flexible communication, sections 2-C and 2-C3): exact top-k of each tensor; and the frame
 * it shares with dgc.  Short tensors, which are most of a network's, take a block each in one
 * launch, for either codec; the longer ones a search each, one after the other. */
#include <cmath>

#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/tensors.cuh"

constexpr unsigned SHORT_BLOCK = 512;
/* About what a search takes, all of the device on one tensor, and a block for an element of its own
 * tensor, beside the others: an H200, November 2026. */
constexpr double SEARCH_S = 50e-6;
constexpr double BLOCK_ELEMENT_S = 6e-9;

/* The elements kept in the tensors before this block's, in every thread. */
__device__ static inline uint32_t kept_before(const weir_tensor *tensor, double cr) {
  uint32_t mine = 0;
  uint32_t total;
  for (uint32_t t = threadIdx.x; t < blockIdx.x; t += blockDim.x)
    mine += (uint32_t)weir_kept_of(tensor[t].count, cr);
  (void)weir_block_before(mine, &total);
  return total;
}

/* Where a block writes what it keeps. */
struct kept_list {
  uint32_t *index;
  float *value; /* or NULL */
};

/* The k elements of magnitude above kth, and the first that equal it. */
__device__ static void emit_tensor(float *e, const weir_tensor &tensor, uint32_t k, uint32_t kth,
                                   uint32_t above, kept_list list, bool zero) {
  uint32_t quota = k - above;
  uint32_t larger = 0; /* in the stretches before */
  uint32_t equal = 0;
  for (uint32_t begin = 0; begin < tensor.count; begin += SHORT_BLOCK) {
    uint32_t i = begin + threadIdx.x;
    float x = i < tensor.count ? e[tensor.begin + i] : 0.0F;
    bool is_larger = i < tensor.count && weir_magnitude(x) > kth;
    bool is_equal = i < tensor.count && weir_magnitude(x) == kth;
    uint32_t total; /* both counts at once: a block has fewer than 2^16 threads */
    uint32_t before = weir_block_before((uint32_t)is_larger | (uint32_t)is_equal << 16, &total);
    uint32_t ties = equal + (before >> 16);
    if (is_larger || (is_equal && ties < quota)) {
      uint32_t to = larger + (before & 0xffffU) + (ties < quota ? ties : quota);
      list.index[to] = tensor.begin + i;
      if (list.value != NULL) list.value[to] = x;
      if (zero) e[tensor.begin + i] = 0.0F;
    }
    larger += total & 0xffffU;
    equal += total >> 16;
  }
}

/* Tensors of fewer elements take a block each: as many as make the whole fast, whose blocks run
 * side by side while searches wait for each other. */
static size_t longest_block(const weir_layout *layout) {
  size_t best = WEIR_SAMPLED_LEAST;
  double least_s = INFINITY;
  for (size_t limit = WEIR_SAMPLED_LEAST; limit <= (size_t)1 << 22; limit *= 2) {
    size_t longest = 0;
    size_t searches = 0;
    for (size_t t = 0; t < layout->tensors; t++) {
      size_t n = layout->offset[t + 1] - layout->offset[t];
      if (n >= limit) {
        searches++;
      } else {
        longest = n > longest ? n : longest;
      }
    }
    double s = SEARCH_S * (double)searches + BLOCK_ELEMENT_S * (double)longest;
    if (s < least_s) {
      least_s = s;
      best = limit;
    }
  }
  return best;
}

/* A block a tensor; the long ones are left alone. */
__global__ static void __launch_bounds__(SHORT_BLOCK)
    select_short(float *e, const weir_tensor *tensors, size_t limit, double cr, kept_list list,
                 bool zero) {
  __shared__ uint32_t histogram[WEIR_DIGIT_BINS];
  weir_tensor tensor = tensors[blockIdx.x];
  if (tensor.count >= limit) return;
  uint32_t k = (uint32_t)weir_kept_of(tensor.count, cr);
  uint32_t place = kept_before(tensors, cr);
  const float *from = e + tensor.begin;
  uint32_t above;
  uint32_t kth = weir_block_kth([from](uint32_t i) { return weir_magnitude(from[i]); },
                                tensor.count, k, histogram, &above);
  list.index += place;
  list.value = list.value != NULL ? list.value + place : NULL;
  emit_tensor(e, tensor, k, kth, above, list, zero);
}

weir_status weir_cuda_select_tensors(weir_cuda *cuda, const weir_pick &all,
                                     const weir_layout *layout, double cr, weir_pick_fn *longer) {
  /* dgc samples what is no shorter than a sample. */
  const size_t limit = longer == weir_cuda_pick_topk ? longest_block(layout) : WEIR_SAMPLED_LEAST;
  weir_status status = weir_cuda_tensors_ready(cuda, layout);
  if (status == WEIR_OK && all.r != NULL)
    status = weir_cuda_ef_accumulate(cuda, all.g, all.r, all.e, all.n, all.moments);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "selecting in tensors", cuda->tensors->table.tensors,
                              SHORT_BLOCK, select_short, all.e, cuda->tensors->table.tensor, limit,
                              cr, kept_list{all.index, all.value}, all.zero);
  }
  size_t taken = 0;
  for (size_t t = 0; t < layout->tensors && status == WEIR_OK; t++) {
    size_t begin = layout->offset[t];
    size_t n = layout->offset[t + 1] - begin;
    size_t k = weir_kept_of(n, cr);
    if (n >= limit) {
      weir_pick pick = {NULL,
                        NULL,
                        all.e + begin,
                        n,
                        k,
                        (uint32_t)begin,
                        all.index + taken,
                        all.value != NULL ? all.value + taken : NULL,
                        all.zero,
                        NULL,
                        0};
      status = longer(cuda, pick);
    }
    taken += k;
  }
  return status;
}
