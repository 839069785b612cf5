/* fp16: messages of halves, nearest and ties to even; kernels/fp16.c. */
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/message.cuh"

static size_t message_bytes(size_t n, const weir_series &series) {
  const size_t before = weir_series_count(series, n) - 1;
  return before * series.each + WEIR_MESSAGE_HEADER + 2 * (n - before * series.block);
}

__device__ static inline weir_header header_of(size_t n) {
  return weir_header{(uint32_t)n, 0, WEIR_CODEC_FP16, 16, 0};
}

/* A block a tile.  A value's place in the message may be odd. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    encode(weir_feed feed, size_t n, unsigned parts, bool aligned, uint8_t *out, weir_sums *sums) {
  const weir_member me = weir_member_of(feed.series, n, parts, 0);
  n = me.n;
  feed.x += me.at;
  if (feed.r != NULL) feed.r += me.at;
  if (feed.e != NULL) feed.e += me.at;
  out += me.number * feed.series.each;
  if (me.part == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
    out[threadIdx.x] = weir_header_byte(header_of(n), threadIdx.x);
  uint8_t *to = out + WEIR_MESSAGE_HEADER;
  weir_sums mine = {};
  size_t begin = (size_t)me.part * WEIR_TILE;
  size_t end = n - begin < WEIR_TILE ? n : begin + WEIR_TILE;
  for (size_t i = begin + threadIdx.x; i < end; i += WEIR_CUDA_BLOCK) {
    float e = weir_fed(feed, i);
    uint16_t half = weir_fp16_bits(e);
    if (aligned) {
      ((uint16_t *)to)[i] = half;
    } else {
      to[2 * i] = (uint8_t)half;
      to[2 * i + 1] = (uint8_t)(half >> 8);
    }
    if (feed.e != NULL) weir_keep_lost(&mine, e, weir_fp16_value(half), &feed.e[i]);
  }
  if (sums != NULL) {
    mine = weir_block_sums(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = mine;
  }
}

__device__ static inline uint16_t half_at(const uint8_t *values, size_t i, bool aligned) {
  return aligned ? ((const uint16_t *)values)[i]
                 : (uint16_t)(values[2 * i] | values[2 * i + 1] << 8);
}

/* For each i in [0, me.n), spread over the blocks of the message. */
#define EACH_OF(me, parts, i)                                               \
  for (size_t i = (size_t)(me).part * blockDim.x + threadIdx.x; i < (me).n; \
       i += (size_t)(parts)*blockDim.x)

__global__ static void check(weir_intake in, size_t n, unsigned parts, bool aligned,
                             uint32_t *fault) {
  const weir_member me = weir_member_of(in.series, n, parts, 0);
  bool good = true;
  for (uint32_t m = 0; m < in.count; m++) {
    const uint8_t *message = in.first + m * in.pitch + me.number * in.series.each;
    if (me.part == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
      good = good && message[threadIdx.x] == weir_header_byte(header_of(me.n), threadIdx.x);
    EACH_OF(me, parts, i) {
      good = good && (half_at(message + WEIR_MESSAGE_HEADER, i, aligned) & 0x7c00U) != 0x7c00U;
    }
  }
  if (!good) atomicOr(fault, WEIR_FAULT_MESSAGE);
}

__global__ static void decode(weir_intake in, size_t n, unsigned parts, bool aligned,
                              const uint32_t *fault) {
  if (*fault != 0) return;
  const weir_member me = weir_member_of(in.series, n, parts, 0);
  bool finite = true;
  in.to += me.at;
  in.first += me.number * in.series.each;
  EACH_OF(me, parts, i) {
    float sum = in.add ? in.to[i] : 0.0F;
    for (uint32_t m = 0; m < in.count; m++) {
      const uint8_t *values = in.first + m * in.pitch + WEIR_MESSAGE_HEADER;
      float value = weir_fp16_value(half_at(values, i, aligned));
      sum = in.add || m > 0 ? sum + value : value;
    }
    finite = weir_publish(in, sum, &in.to[i]) && finite;
  }
  weir_report_overflow(in, finite);
}

static weir_status ready(size_t n, double cr) {
  if (cr != 0.5) return weir_fail(WEIR_E_INVALID, "fp16 takes 16 bits, ratio 0.5, not %g", cr);
  return n <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
}

weir_status weir_cuda_fp16_encode(weir_cuda *cuda, const weir_feed &feed, const weir_layout *layout,
                                  double cr, uint64_t seed, void *out, size_t capacity,
                                  size_t *bytes) {
  (void)seed;
  size_t n = layout->offset[layout->tensors];
  *bytes = 0;
  weir_status status = ready(n, cr);
  const size_t needed = message_bytes(n, feed.series);
  if (status == WEIR_OK && capacity < needed) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", needed,
                     capacity);
  }
  unsigned parts;
  const size_t blocks = weir_series_blocks(feed.series, n, WEIR_TILE, &parts);
  const bool aligned = (uintptr_t)out % 2 == 0 && feed.series.each % 2 == 0;
  bool sums = feed.e != NULL && n > 0;
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "fp16", blocks, WEIR_CUDA_BLOCK, encode, feed, n, parts,
                              aligned, (uint8_t *)out, sums ? cuda->sums : NULL);
  }
  if (status == WEIR_OK && feed.e != NULL)
    status = weir_cuda_fold_fed(cuda, cuda->sums, n > 0 ? blocks : 0, feed.moments, feed.lost);
  *bytes = status == WEIR_OK ? needed : 0;
  return status;
}

weir_status weir_cuda_fp16_decode(weir_cuda *cuda, const weir_intake &in, const weir_layout *layout,
                                  double cr) {
  size_t n = layout->offset[layout->tensors];
  weir_status status = ready(n, cr);
  if (status == WEIR_OK && in.bytes != message_bytes(n, in.series))
    return weir_fail(WEIR_E_PROTOCOL, "malformed fp16 message: wrong length");
  bool aligned = (uintptr_t)in.first % 2 == 0 && in.pitch % 2 == 0 && in.series.each % 2 == 0;
  const size_t parts = weir_cuda_grid(cuda, weir_series_block(in.series, n), 4 * WEIR_CUDA_BLOCK);
  const size_t blocks = parts * weir_series_count(in.series, n);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "checking fp16", blocks, WEIR_CUDA_BLOCK, check, in, n,
                              (unsigned)parts, aligned, cuda->fault);
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "fp16", blocks, WEIR_CUDA_BLOCK, decode, in, n,
                                              (unsigned)parts, aligned, cuda->fault)
                           : status;
}
