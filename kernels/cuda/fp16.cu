/* fp16: messages of halves, nearest and ties to even; kernels/fp16.c. */
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/message.cuh"

static size_t message_bytes(size_t n) { return WEIR_MESSAGE_HEADER + 2 * n; }

__device__ static inline weir_header header_of(size_t n) {
  return weir_header{(uint32_t)n, 0, WEIR_CODEC_FP16, 16, 0};
}

/* A value's place in the message may be odd. */
__global__ static void encode(const float *e, size_t n, bool aligned, uint8_t *out) {
  if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER) {
    out[threadIdx.x] = weir_header_byte(header_of(n), threadIdx.x);
  }
  uint8_t *to = out + WEIR_MESSAGE_HEADER;
  WEIR_CUDA_EACH(i, n) {
    uint16_t half = weir_fp16_bits(e[i]);
    if (aligned) {
      ((uint16_t *)to)[i] = half;
    } else {
      to[2 * i] = (uint8_t)half;
      to[2 * i + 1] = (uint8_t)(half >> 8);
    }
  }
}

__device__ static inline uint16_t half_at(const uint8_t *values, size_t i, bool aligned) {
  return aligned ? ((const uint16_t *)values)[i]
                 : (uint16_t)(values[2 * i] | values[2 * i + 1] << 8);
}

__global__ static void check(const uint8_t *message, size_t n, bool aligned, uint32_t *fault) {
  bool good = true;
  if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER) {
    good = message[threadIdx.x] == weir_header_byte(header_of(n), threadIdx.x);
  }
  WEIR_CUDA_EACH(i, n) {
    good = good && (half_at(message + WEIR_MESSAGE_HEADER, i, aligned) & 0x7c00U) != 0x7c00U;
  }
  if (!good) {
    atomicOr(fault, WEIR_FAULT_MESSAGE);
  }
}

__global__ static void decode(const uint8_t *message, size_t n, bool aligned, float *to, bool add,
                              const uint32_t *fault) {
  if (*fault != 0) {
    return;
  }
  WEIR_CUDA_EACH(i, n) {
    float value = weir_fp16_value(half_at(message + WEIR_MESSAGE_HEADER, i, aligned));
    to[i] = add ? to[i] + value : value;
  }
}

static weir_status ready(size_t n, double cr) {
  if (cr != 0.5) {
    return weir_fail(WEIR_E_INVALID, "fp16 takes 16 bits, ratio 0.5, not %g", cr);
  }
  return n <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
}

weir_status weir_cuda_fp16_encode(weir_cuda *cuda, const float *e, const weir_layout *layout,
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
  if (status == WEIR_OK) {
    status =
        weir_cuda_launch(cuda, "fp16", weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK),
                         WEIR_CUDA_BLOCK, encode, e, n, (uintptr_t)out % 2 == 0, (uint8_t *)out);
  }
  *bytes = status == WEIR_OK ? message_bytes(n) : 0;
  return status;
}

weir_status weir_cuda_fp16_decode(weir_cuda *cuda, const void *message, size_t bytes,
                                  const weir_layout *layout, double cr, float *to, bool add) {
  size_t n = layout->offset[layout->tensors];
  weir_status status = ready(n, cr);
  if (status == WEIR_OK && bytes != message_bytes(n)) {
    return weir_fail(WEIR_E_PROTOCOL, "malformed fp16 message: wrong length");
  }
  const uint8_t *from = (const uint8_t *)message;
  bool aligned = (uintptr_t)message % 2 == 0;
  size_t grid = weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "checking fp16", grid, WEIR_CUDA_BLOCK, check, from, n, aligned,
                              cuda->fault);
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "fp16", grid, WEIR_CUDA_BLOCK, decode, from, n,
                                              aligned, to, add, cuda->fault)
                           : status;
}
