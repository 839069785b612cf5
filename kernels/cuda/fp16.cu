/* fp16: messages of halves, nearest and ties to even; kernels/fp16.c. */
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/message.cuh"

static size_t message_bytes(size_t n) { return WEIR_MESSAGE_HEADER + 2 * n; }

__device__ static inline weir_header header_of(size_t n) {
  return weir_header{(uint32_t)n, 0, WEIR_CODEC_FP16, 16, 0};
}

/* A block a tile.  A value's place in the message may be odd. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    encode(weir_feed feed, size_t n, bool aligned, uint8_t *out, weir_sums *sums) {
  if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
    out[threadIdx.x] = weir_header_byte(header_of(n), threadIdx.x);
  uint8_t *to = out + WEIR_MESSAGE_HEADER;
  weir_sums mine = {};
  size_t begin = (size_t)blockIdx.x * WEIR_TILE;
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

__global__ static void check(weir_intake in, size_t n, bool aligned, uint32_t *fault) {
  bool good = true;
  for (uint32_t m = 0; m < in.count; m++) {
    const uint8_t *message = in.first + m * in.pitch;
    if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
      good = good && message[threadIdx.x] == weir_header_byte(header_of(n), threadIdx.x);
    WEIR_CUDA_EACH(i, n) {
      good = good && (half_at(message + WEIR_MESSAGE_HEADER, i, aligned) & 0x7c00U) != 0x7c00U;
    }
  }
  if (!good) atomicOr(fault, WEIR_FAULT_MESSAGE);
}

__global__ static void decode(weir_intake in, size_t n, bool aligned, const uint32_t *fault) {
  if (*fault != 0) return;
  bool finite = true;
  WEIR_CUDA_EACH(i, n) {
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
  if (status == WEIR_OK && capacity < message_bytes(n)) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu",
                     message_bytes(n), capacity);
  }
  size_t tiles = weir_cuda_tiles(n);
  bool sums = feed.e != NULL && n > 0;
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "fp16", tiles > 0 ? tiles : 1, WEIR_CUDA_BLOCK, encode, feed, n,
                              (uintptr_t)out % 2 == 0, (uint8_t *)out, sums ? cuda->sums : NULL);
  }
  if (status == WEIR_OK && feed.e != NULL)
    status = weir_cuda_fold_fed(cuda, cuda->sums, tiles, feed.moments, feed.lost);
  *bytes = status == WEIR_OK ? message_bytes(n) : 0;
  return status;
}

weir_status weir_cuda_fp16_decode(weir_cuda *cuda, const weir_intake &in, const weir_layout *layout,
                                  double cr) {
  size_t n = layout->offset[layout->tensors];
  weir_status status = ready(n, cr);
  if (status == WEIR_OK && in.bytes != message_bytes(n))
    return weir_fail(WEIR_E_PROTOCOL, "malformed fp16 message: wrong length");
  bool aligned = (uintptr_t)in.first % 2 == 0 && in.pitch % 2 == 0;
  size_t grid = weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "checking fp16", grid, WEIR_CUDA_BLOCK, check, in, n, aligned,
                              cuda->fault);
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "fp16", grid, WEIR_CUDA_BLOCK, decode, in, n,
                                              aligned, cuda->fault)
                           : status;
}
