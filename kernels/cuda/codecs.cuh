/* The rows of the table of codecs on the device (codecs.cu). */
#ifndef WEIR_KERNELS_CUDA_CODECS_CUH
#define WEIR_KERNELS_CUDA_CODECS_CUH

#include "kernels/cuda/select.cuh"

/* What is encoded: x, or x + r (where moments are wanted and there is no r, x + 0, as -0 becomes 0 beside
 * a residual that is zero); and unless e is NULL what encoding has lost goes there (e may be x
 * or r), with sums of that and, unless they are NULL, the moments of what was encoded. */
struct weir_feed {
  const float *x;
  const float *r; /* or NULL */
  float *e;
  weir_moments *moments;
  weir_moments *lost;
};

__device__ static inline float weir_fed(const weir_feed &feed, size_t i) {
  float x = feed.x[i];
  if (feed.r != NULL) return x + feed.r[i];
  return feed.moments != NULL ? x + 0.0F : x;
}

/* Messages of one length, pitch bytes apart, and what becomes of their sum. */
struct weir_intake {
  const uint8_t *first;
  size_t bytes, pitch;
  uint32_t count;
  bool add; /* to what there is; otherwise the first is stored and the others added */
  float *to;
  float share;        /* times the sum */
  uint32_t *overflow; /* becomes 1 where the product is not finite, or NULL */
};

/* An element's part of that: its loss goes to *left. */
__device__ static inline void weir_keep_lost(weir_sums *sums, float e, float sent, float *left) {
  float lost = e - sent;
  *left = lost;
  weir_add_fed(sums, e);
  sums->sum[WEIR_FED_LOST] += (double)lost * (double)lost;
}

/* Whether what is stored of a sum is finite, as far as that is asked; then all that a thread has
 * found. */
__device__ static inline bool weir_publish(const weir_intake &in, float sum, float *to) {
  float value = sum * in.share;
  *to = value;
  return in.overflow == NULL || fabsf(value) <= FLT_MAX;
}

__device__ static inline void weir_report_overflow(const weir_intake &in, bool finite) {
  if (!finite) atomicOr(in.overflow, 1U);
}

typedef weir_status weir_cuda_encode_fn(weir_cuda *cuda, const weir_feed &feed,
                                        const weir_layout *layout, double cr, uint64_t seed,
                                        void *out, size_t capacity, size_t *bytes);
typedef weir_status weir_cuda_decode_fn(weir_cuda *cuda, const weir_intake &in,
                                        const weir_layout *layout, double cr);

struct weir_cuda_codec {
  uint32_t id; /* weir_codec_id */
  /* Selections: from the whole gradient, or where tensors are told apart, from each that is long
   * enough for a sample (the k largest from the others); elements of the workspace beside k. */
  weir_pick_fn *pick;
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

/* qsgd's, with all its options. */
weir_status weir_cuda_qsgd_feed(weir_cuda *cuda, const weir_feed &feed, size_t n,
                                weir_qsgd_options options, uint64_t seed, void *out,
                                size_t capacity, size_t *bytes);
weir_status weir_cuda_qsgd_take(weir_cuda *cuda, const weir_intake &in, size_t n,
                                weir_qsgd_options options);

/* Tensor by tensor (lwtopk.cu): the k largest of the short ones, and what longer() picks from the
 * others. */
weir_status weir_cuda_select_tensors(weir_cuda *cuda, const weir_pick &all,
                                     const weir_layout *layout, double cr, weir_pick_fn *longer);

#endif
