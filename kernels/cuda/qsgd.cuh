/* What the files of qsgd share: a message's form, and where a bucket lies.  All modes: max-min or
 * L2 grids, stochastic or nearest rounding, buckets of any size; kernels/qsgd.c and
 * kernels/encoder.h have formulas and message.  Sixteen threads take a bucket, thread l the
 * elements l, l + 16, ...: the lanes in which the scalar code looks for the range, so that of 0 and
 * -0 the same one is found, and in which it adds up squares, so that an L2 scale has the same bits.
 */
#ifndef WEIR_KERNELS_CUDA_QSGD_CUH
#define WEIR_KERNELS_CUDA_QSGD_CUH

#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/message.cuh"

constexpr unsigned WEIR_QSGD_PIECE = 128;                                 /* elements at a time */
constexpr unsigned WEIR_QSGD_LANES = 16;                                  /* threads of a bucket */
constexpr unsigned WEIR_QSGD_EACH = WEIR_QSGD_PIECE / WEIR_QSGD_LANES;    /* elements of a thread */
constexpr unsigned WEIR_QSGD_BUCKETS = WEIR_CUDA_BLOCK / WEIR_QSGD_LANES; /* of a block */
constexpr uint32_t WEIR_QSGD_MOST = 65536;

/* weir_encoded's mode. */
constexpr uint8_t WEIR_QSGD_L2 = 1;
constexpr uint8_t WEIR_QSGD_NEAREST = 2;

/* A message's form; what follows from n, bits, bucket and mode. */
struct weir_qsgd_form {
  size_t n;
  uint32_t bucket;
  uint32_t unit_bytes;  /* of a whole bucket: scales and codes */
  uint32_t scale_bytes; /* in front of its codes */
  uint8_t bits, mode;
  uint8_t levels; /* s, or 2^bits - 1 */
};

static inline weir_qsgd_form weir_qsgd_form_of(size_t n, const weir_qsgd_options &options) {
  uint8_t mode =
      (uint8_t)((options.l2 ? WEIR_QSGD_L2 : 0) | (options.nearest ? WEIR_QSGD_NEAREST : 0));
  uint32_t scales = (uint32_t)sizeof(float) * (options.l2 ? 1 : 2);
  unsigned levels = options.l2 ? (1U << (options.bits - 1)) - 1 : (1U << options.bits) - 1;
  return weir_qsgd_form{n,
                        options.bucket,
                        scales + options.bucket / 8 * options.bits,
                        scales,
                        (uint8_t)options.bits,
                        mode,
                        (uint8_t)levels};
}

static inline size_t weir_qsgd_bytes(const weir_qsgd_form &form) {
  size_t left = form.n % form.bucket;
  return WEIR_MESSAGE_HEADER + form.n / form.bucket * form.unit_bytes +
         (left > 0 ? form.scale_bytes + (left + 7) / 8 * form.bits : 0);
}

static inline size_t weir_qsgd_series_bytes(const weir_qsgd_form &form, const weir_series &series) {
  const size_t before = weir_series_count(series, form.n) - 1;
  weir_qsgd_form last = form;
  last.n = form.n - before * series.block;
  return before * series.each + weir_qsgd_bytes(last);
}

__device__ static inline weir_header weir_qsgd_header(const weir_qsgd_form &form, size_t n) {
  return weir_header{(uint32_t)n, form.bucket, WEIR_CODEC_QSGD, form.bits, form.mode};
}

/* Whether all scales of the message lie at multiples of 4 bytes. */
__device__ static inline bool weir_qsgd_aligned(const weir_qsgd_form &form,
                                                const uint8_t *message) {
  return (uintptr_t)message % sizeof(float) == 0 && form.unit_bytes % sizeof(float) == 0;
}

/* The bucket of a thread, and where it lies in a message of n elements. */
struct weir_qsgd_bucket {
  size_t unit;
  size_t begin;
  uint32_t count; /* elements, 0 behind the last bucket */
};

__device__ static inline weir_qsgd_bucket weir_qsgd_place(const weir_qsgd_form &form, size_t n,
                                                          size_t set) {
  size_t unit = set * WEIR_QSGD_BUCKETS + threadIdx.x / WEIR_QSGD_LANES;
  size_t begin = unit * form.bucket;
  size_t left = begin < n ? n - begin : 0;
  return weir_qsgd_bucket{unit, begin, left < form.bucket ? (uint32_t)left : form.bucket};
}

__device__ static inline unsigned weir_qsgd_pieces(const weir_qsgd_form &form) {
  return (form.bucket + WEIR_QSGD_PIECE - 1) / WEIR_QSGD_PIECE;
}

/* What a code is decoded to. */
__device__ static inline float weir_qsgd_value(unsigned code, float base, float step, float zero) {
  return base + ((float)code - zero) * step;
}

static inline weir_status weir_qsgd_ready(size_t n, const weir_qsgd_options &options) {
  if (options.bits < 2 || options.bits > 8 || options.bucket < 8 ||
      options.bucket > WEIR_QSGD_MOST || options.bucket % 8 != 0) {
    return weir_fail(WEIR_E_INVALID,
                     "qsgd takes 2 to 8 bits and buckets of 8 to %u by 8, not %u, %u",
                     WEIR_QSGD_MOST, options.bits, options.bucket);
  }
  return n <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
}

#endif
