/* The tensors of a gradient, for what treats each by itself: tables on the device that
 * weir_cuda_reserve_tensors makes once, so that one launch goes over all tensors.  Empty tensors
 * are not in them. */
#ifndef WEIR_KERNELS_CUDA_TENSORS_CUH
#define WEIR_KERNELS_CUDA_TENSORS_CUH

#include "kernels/cuda/sums.cuh"

/* Elements of a piece, which never reaches over a tensor's end; a multiple of 8. */
constexpr unsigned WEIR_TENSOR_PIECE = 4096;

struct weir_tensor {
  uint32_t begin, count; /* elements */
  uint32_t piece;        /* its first; those of the tensor that follows begin where its own end */
  uint32_t group;        /* eights of elements in the tensors before, each of them rounded up */
};

/* Device memory. */
struct weir_tensor_table {
  const weir_tensor *tensor; /* tensors and one more, for the ends */
  const uint32_t *owner;     /* a piece: its tensor */
  weir_sums *sums;           /* a piece */
  weir_sums *fed;            /* a piece: moments of what is encoded */
  float *reach;              /* a tensor: for a codec's own use between its passes */
  uint32_t tensors;
  uint32_t pieces;
};

struct weir_cuda_tensors {
  weir_tensor_table table;
  void *block;    /* device memory of the table */
  size_t *offset; /* the layout, on the host */
  size_t entries; /* of offset */
  size_t groups;  /* eights of elements in all */
};

/* WEIR_E_STATE unless the tables are this layout's. */
weir_status weir_cuda_tensors_ready(const weir_cuda *cuda, const weir_layout *layout);
void weir_cuda_tensors_free(weir_cuda_tensors *tensors);

/* What a block works on when it takes a piece. */
struct weir_piece {
  weir_tensor tensor;
  uint32_t number; /* of the tensor, from 0 */
  uint32_t at;     /* first element, from the tensor's first */
  uint32_t count;
};

__device__ static inline weir_piece weir_piece_of(const weir_tensor_table &table, uint32_t piece) {
  weir_piece out;
  out.number = table.owner[piece];
  out.tensor = table.tensor[out.number];
  out.at = (piece - out.tensor.piece) * WEIR_TENSOR_PIECE;
  uint32_t left = out.tensor.count - out.at;
  out.count = left < WEIR_TENSOR_PIECE ? left : WEIR_TENSOR_PIECE;
  return out;
}

/* Eight floats from x[at] on; 0 from count on. */
__device__ static inline void weir_load8(const float *x, uint32_t at, uint32_t count,
                                         float out[8]) {
  const float *from = x + at;
  if (at + 8 <= count && (uintptr_t)from % sizeof(float4) == 0) {
    for (unsigned half = 0; half < 2; half++) {
      float4 four = ((const float4 *)from)[half];
      out[4 * half] = four.x;
      out[4 * half + 1] = four.y;
      out[4 * half + 2] = four.z;
      out[4 * half + 3] = four.w;
    }
    return;
  }
  for (unsigned q = 0; q < 8; q++) out[q] = at + q < count ? from[q] : 0.0F;
}

/* What a warp's threads store together passes through here: a thread's own eight neighbours would
 * reach memory as parts of its sectors, which takes four times as long. */
struct weir_stage {
  alignas(sizeof(float4)) float warp[WEIR_CUDA_BLOCK / WEIR_WARP][8 * WEIR_WARP];
};

/* Eight floats of each thread to x[at] on, none from count on.  All threads of a warp call it, each
 * with the at that follows the one of the thread before by eight. */
__device__ static inline void weir_store8(float *x, uint32_t at, uint32_t count, const float in[8],
                                          weir_stage *stage) {
  const unsigned lane = threadIdx.x % WEIR_WARP;
  float *mine = stage->warp[threadIdx.x / WEIR_WARP];
  __syncwarp(); /* what was staged before has been stored */
  ((float4 *)mine)[2 * lane] = make_float4(in[0], in[1], in[2], in[3]);
  ((float4 *)mine)[2 * lane + 1] = make_float4(in[4], in[5], in[6], in[7]);
  __syncwarp();
  const uint32_t first = at - 8 * lane;
  for (unsigned i = lane; i < 8 * WEIR_WARP && first + i < count; i += WEIR_WARP)
    x[first + i] = mine[i];
}

/* Over a piece of count elements, at being where a thread's eight begin: a warp's threads go on
 * together, as weir_store8 asks for, and some may be beyond the end. */
#define WEIR_EACH_EIGHT(at, count)                                                  \
  for (uint32_t at = 8 * threadIdx.x; at - 8 * (threadIdx.x % WEIR_WARP) < (count); \
       at += 8 * WEIR_CUDA_BLOCK)

#endif
