/* The rows of the table of codecs on the device (codecs.cu). */
#ifndef WEIR_KERNELS_CUDA_CODECS_CUH
#define WEIR_KERNELS_CUDA_CODECS_CUH

#include "kernels/cuda/select.cuh"

typedef weir_status weir_cuda_encode_fn(weir_cuda *cuda, const float *e, const weir_layout *layout,
                                        double cr, uint64_t seed, void *out, size_t capacity,
                                        size_t *bytes);
typedef weir_status weir_cuda_decode_fn(weir_cuda *cuda, const void *message, size_t bytes,
                                        const weir_layout *layout, double cr, float *to, bool add);

struct weir_cuda_codec {
  uint32_t id; /* weir_codec_id; its index in the table */
  /* Selections: from the whole gradient, or from each tensor that is long enough for a sample (the
   * k largest from the others); elements of the workspace beside k. */
  weir_pick_fn *pick;
  bool tensors;
  size_t spare;
  /* Encoders. */
  weir_cuda_encode_fn *encode;
  weir_cuda_decode_fn *decode;
};

weir_pick_fn weir_cuda_pick_topk, weir_cuda_pick_mstopk, weir_cuda_pick_sidco, weir_cuda_pick_dgc,
    weir_cuda_pick_randomk;
weir_cuda_encode_fn weir_cuda_fp16_encode, weir_cuda_terngrad_encode, weir_cuda_onebit_encode,
    weir_cuda_efsignsgd_encode;
weir_cuda_decode_fn weir_cuda_fp16_decode, weir_cuda_terngrad_decode, weir_cuda_onebit_decode,
    weir_cuda_efsignsgd_decode;

/* Tensor by tensor (lwtopk.cu): the k largest of the short ones, and what longer() picks from the
 * others. */
weir_status weir_cuda_select_tensors(weir_cuda *cuda, const weir_pick &all,
                                     const weir_layout *layout, double cr, weir_pick_fn *longer);

#endif
