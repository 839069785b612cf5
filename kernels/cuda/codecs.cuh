/* The rows of the table of codecs on the device (codecs.cu). */
#ifndef WEIR_KERNELS_CUDA_CODECS_CUH
#define WEIR_KERNELS_CUDA_CODECS_CUH

#include "kernels/cuda/select.cuh"

/* Messages one behind the other, each of `block` elements and `each` bytes, the last of what is
 * left, whose draws follow from their places (weir_member_of); block 0: one message of all
 * elements. */
struct weir_series {
  size_t block, each;
};

static inline size_t weir_series_count(const weir_series &series, size_t n) {
  return series.block == 0 || n == 0 ? 1 : n / series.block + (n % series.block != 0);
}

/* Elements of all messages but the last, or of the only one. */
static inline size_t weir_series_block(const weir_series &series, size_t n) {
  return series.block == 0 || series.block > n ? n : series.block;
}

/* Blocks for all messages where each takes `per` elements of one; of a whole message, *parts. */
static inline size_t weir_series_blocks(const weir_series &series, size_t n, size_t per,
                                        unsigned *parts) {
  const size_t block = weir_series_block(series, n), before = weir_series_count(series, n) - 1;
  const size_t all = before * ((block + per - 1) / per) + (n - before * block + per - 1) / per;
  *parts = block > 0 ? (unsigned)((block + per - 1) / per) : 1;
  return all > 0 ? all : 1;
}

/* The message that a block works on, one of `parts` blocks that do. */
struct weir_member {
  size_t number, at, n; /* which; its first element; how many */
  unsigned part;        /* of these blocks, from 0 */
  uint64_t seed;
};

/* seed: a message's own, or with a series what comes before where it begins, as weir_hash has
 * it. */
__device__ static inline weir_member weir_member_of(const weir_series &series, size_t n,
                                                    unsigned parts, uint64_t seed) {
  if (series.block == 0) return weir_member{0, 0, n, blockIdx.x, seed};
  const size_t number = blockIdx.x / parts, at = number * series.block;
  for (unsigned b = 0; b < 64; b += 8) seed = (seed ^ (at >> b & 0xff)) * 0x100000001b3ULL;
  return weir_member{number, at, n - at < series.block ? n - at : series.block, blockIdx.x % parts,
                     seed};
}

/* What is encoded: x, or x + r (where moments are wanted and there is no r, x + 0, as -0 becomes 0
 * beside a residual that is zero); and unless e is NULL what encoding has lost goes there (e may be
 * x or r), with sums of that and, unless they are NULL, the moments of what was encoded. */
struct weir_feed {
  const float *x;
  const float *r; /* or NULL */
  float *e;
  weir_moments *moments;
  weir_moments *lost;
  weir_series series;
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
  weir_series series; /* of each of them */
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
    weir_cuda_efsignsgd_encode, weir_cuda_minifloat_encode, weir_cuda_companded_encode;
weir_cuda_decode_fn weir_cuda_fp16_decode, weir_cuda_terngrad_decode, weir_cuda_onebit_decode,
    weir_cuda_efsignsgd_decode, weir_cuda_minifloat_decode, weir_cuda_companded_decode;

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
