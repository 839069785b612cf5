/* LARS and LAMB, a piece a block: squares in the lanes and the order of the host's
 * (kernels/cpu/lanes.h), and steps; kernels/adaptive.h. */
#include "kernels/cuda/device.cuh"

constexpr unsigned LANES = 16; /* of a sum */
constexpr unsigned GROUPS = WEIR_CUDA_BLOCK / LANES;
constexpr unsigned AHEAD = 16; /* loads under way */

__device__ static inline double fold_lanes(double mine) {
  for (unsigned distance = LANES / 2; distance > 0; distance /= 2)
    mine += __shfl_down_sync(WEIR_ALL_LANES, mine, distance, LANES);
  return mine;
}

/* A warp a piece: one half adds up the weights' squares, the other the gradient's where they are
 * wanted. */
__global__ static void __launch_bounds__(WEIR_WARP)
    plain_squares(const weir_tensor_piece *pieces, bool gradients, weir_squares *out) {
  const weir_tensor_piece piece = pieces[blockIdx.x];
  const bool weights = threadIdx.x < LANES;
  const float *x = weights ? piece.weight : piece.gradient;
  size_t n = weights || gradients ? piece.n : 0;
  size_t i = threadIdx.x % LANES;
  double mine = 0.0;
  for (; i + (AHEAD - 1) * LANES < n; i += AHEAD * LANES) {
    float next[AHEAD];
    for (unsigned j = 0; j < AHEAD; j++) next[j] = x[i + j * LANES];
    for (unsigned j = 0; j < AHEAD; j++) mine += (double)next[j] * (double)next[j];
  }
  for (; i < n; i += LANES) mine += (double)x[i] * (double)x[i];
  mine = fold_lanes(mine);
  if (threadIdx.x == 0) out[blockIdx.x].weight = mine;
  if (threadIdx.x == LANES && gradients) out[blockIdx.x].step = mine;
}

/* So many windows at a time, each by a group of threads. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    step_squares(const weir_tensor_piece *pieces, weir_adam terms, weir_squares *out) {
  __shared__ double window[GROUPS];
  const weir_tensor_piece piece = pieces[blockIdx.x];
  unsigned lane = threadIdx.x % LANES;
  unsigned group = threadIdx.x / LANES;
  double sum = 0.0;
  for (size_t begin = 0; begin < piece.n; begin += GROUPS * WEIR_ADAPTIVE_WINDOW) {
    size_t from = begin + group * WEIR_ADAPTIVE_WINDOW;
    size_t end = from + WEIR_ADAPTIVE_WINDOW < piece.n ? from + WEIR_ADAPTIVE_WINDOW : piece.n;
    double mine = 0.0;
    for (size_t i = from + lane; i < end; i += LANES) {
      float m = piece.first[i];
      float v = piece.second[i];
      float step = weir_adam_step(&m, &v, piece.gradient[i], piece.weight[i], &terms);
      mine += (double)step * (double)step;
    }
    mine = fold_lanes(mine);
    if (lane == 0) window[group] = mine;
    __syncthreads();
    for (unsigned g = 0; threadIdx.x == 0 && g < GROUPS; g++) sum += window[g];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x].step = sum;
}

weir_status weir_cuda_piece_squares(weir_cuda *cuda, const weir_tensor_piece *pieces, size_t count,
                                    const weir_adam *terms, weir_squares *out) {
  if (count == 0) return WEIR_OK;
  weir_status status = weir_cuda_launch(cuda, "squares of pieces", count, WEIR_WARP, plain_squares,
                                        pieces, terms == NULL, out);
  return status == WEIR_OK && terms != NULL
             ? weir_cuda_launch(cuda, "squares of steps", count, WEIR_CUDA_BLOCK, step_squares,
                                pieces, *terms, out)
             : status;
}

/* Blocks that share a piece. */
constexpr unsigned MOVING = 16;

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK) move(const weir_mover *movers) {
  const weir_mover m = movers[blockIdx.x / MOVING];
  float *w = m.piece.weight;
  const float *g = m.piece.gradient;
  for (size_t i = blockIdx.x % MOVING * WEIR_CUDA_BLOCK + threadIdx.x; i < m.piece.n;
       i += (size_t)MOVING * WEIR_CUDA_BLOCK) {
    float first = m.piece.first[i];
    if (m.adam) {
      float second = m.piece.second[i];
      float step = weir_adam_step(&first, &second, g[i], w[i], &m.terms);
      w[i] -= m.rate * step;
      m.piece.second[i] = second;
    } else {
      w[i] = weir_lars_step_of(&first, g[i], w[i], m.momentum, m.weight_decay, m.rate);
    }
    m.piece.first[i] = first;
  }
}

weir_status weir_cuda_move(weir_cuda *cuda, const weir_mover *movers, size_t count) {
  return count > 0 ? weir_cuda_launch(cuda, "moving", count * MOVING, WEIR_CUDA_BLOCK, move, movers)
                   : WEIR_OK;
}
