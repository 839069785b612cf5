/* qsgd as a plan uses it: buckets of 128, max-min grids, stochastic rounding; kernels/qsgd.c and
 * kernels/encoder.h have formula and message.  Sixteen threads take a bucket, thread l the elements
 * l, l + 16, ...: the lanes in which the scalar code looks for the range, so that of 0 and -0 the
 * same one is found. */
#include "kernels/cuda/message.cuh"

constexpr unsigned BUCKET = 128;
constexpr unsigned LANES = 16;                        /* threads of a bucket */
constexpr unsigned EACH = BUCKET / LANES;             /* elements of a thread */
constexpr unsigned BUCKETS = WEIR_CUDA_BLOCK / LANES; /* of a block */
constexpr size_t SCALES = 2 * sizeof(float);

__host__ __device__ static inline size_t unit_bytes(unsigned bits) {
  return SCALES + (size_t)LANES * bits;
}

static size_t message_bytes(size_t n, unsigned bits) {
  size_t left = n % BUCKET;
  return WEIR_MESSAGE_HEADER + n / BUCKET * unit_bytes(bits) +
         (left > 0 ? SCALES + (left + 7) / 8 * bits : 0);
}

__device__ static inline weir_header header_of(size_t n, unsigned bits) {
  return weir_header{(uint32_t)n, BUCKET, WEIR_CODEC_QSGD, (uint8_t)bits, 0};
}

/* Smallest and largest of a bucket, in every thread of it. */
__device__ static inline void range(const float *x, unsigned lane, unsigned count, float *low,
                                    float *high) {
  float first = __shfl_sync(WEIR_ALL_LANES, x[0], 0, LANES);
  float least = first;
  float most = first;
  for (unsigned j = 0; j < EACH; j++) {
    if (lane + LANES * j < count) {
      least = x[j] < least ? x[j] : least;
      most = x[j] > most ? x[j] : most;
    }
  }
  for (unsigned width = LANES / 2; width > 0; width /= 2) {
    float far_least = __shfl_down_sync(WEIR_ALL_LANES, least, width, LANES);
    float far_most = __shfl_down_sync(WEIR_ALL_LANES, most, width, LANES);
    least = far_least < least ? far_least : least;
    most = far_most > most ? far_most : most;
  }
  *low = __shfl_sync(WEIR_ALL_LANES, least, 0, LANES);
  *high = __shfl_sync(WEIR_ALL_LANES, most, 0, LANES);
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    encode(const float *e, size_t n, unsigned bits, uint64_t seed, uint8_t *out) {
  __shared__ uint64_t codes[BUCKETS][BUCKET / 8]; /* a byte each */
  unsigned lane = threadIdx.x % LANES;
  size_t unit = (size_t)blockIdx.x * BUCKETS + threadIdx.x / LANES;
  size_t begin = unit * BUCKET;
  unsigned count = begin >= n ? 0 : n - begin < BUCKET ? (unsigned)(n - begin) : BUCKET;
  float x[EACH];
  for (unsigned j = 0; j < EACH; j++) {
    unsigned i = lane + LANES * j;
    x[j] = i < count ? e[begin + i] : 0.0F;
  }
  float low;
  float high;
  range(x, lane, count, &low, &high);
  float base = weir_grid_limit((double)low);
  float width = weir_grid_limit((double)high) - base;
  bool wide = width >= WEIR_GRID_LEAST;
  float top = (float)((1U << bits) - 1);
  float step = wide ? width / top : 0.0F;
  float inverse = wide ? top / width : 0.0F;
  uint32_t key = weir_unit_key(seed, unit + 1);
  uint64_t *group = codes[threadIdx.x / LANES];
  uint8_t *code = (uint8_t *)group;
  for (unsigned j = 0; j < EACH; j++) {
    unsigned i = lane + LANES * j;
    code[i] = i < count ? weir_grid_code(x[j], base, inverse, 0.0F, top, weir_mix32(key + i)) : 0;
  }
  __syncwarp();
  if (unit == 0) {
    out[lane] = weir_header_byte(header_of(n, bits), lane);
  }
  if (count == 0) {
    return;
  }
  bool aligned = (uintptr_t)out % sizeof(float) == 0;
  uint8_t *to = out + WEIR_MESSAGE_HEADER + unit * unit_bytes(bits);
  if (lane < 2) {
    weir_store_float(to + lane * sizeof(float), lane == 0 ? step : base, aligned);
  }
  if (8 * lane < count) {
    uint64_t w = weir_pack8(group[lane], bits);
    uint8_t *place = to + SCALES + lane * bits;
    if (aligned && bits == 4) {
      *(uint32_t *)place = (uint32_t)w;
      return;
    }
    for (unsigned b = 0; b < bits; b++) {
      place[b] = (uint8_t)(w >> 8 * b);
    }
  }
}

/* Header and scales of a message from the wire: nothing is decoded from a bad one. */
__global__ static void check(const uint8_t *message, size_t n, unsigned bits, uint32_t *fault) {
  bool aligned = (uintptr_t)message % sizeof(float) == 0;
  double top = (double)((1U << bits) - 1);
  bool good = true;
  if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER) {
    good = message[threadIdx.x] == weir_header_byte(header_of(n, bits), threadIdx.x);
  }
  size_t units = (n + BUCKET - 1) / BUCKET;
  WEIR_CUDA_EACH(unit, units) {
    const uint8_t *from = message + WEIR_MESSAGE_HEADER + unit * unit_bytes(bits);
    float step = weir_load_float(from, aligned);
    double base = fabs((double)weir_load_float(from + sizeof(float), aligned));
    good = good && step >= 0.0F && (double)step * top + base <= (double)FLT_MAX;
  }
  if (!good) {
    atomicOr(fault, WEIR_FAULT_MESSAGE);
  }
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    decode(const uint8_t *message, size_t n, unsigned bits, float *to, bool add,
           const uint32_t *fault) {
  __shared__ uint64_t codes[BUCKETS][BUCKET / 8]; /* a byte each */
  if (*fault != 0) {
    return;
  }
  unsigned lane = threadIdx.x % LANES;
  size_t unit = (size_t)blockIdx.x * BUCKETS + threadIdx.x / LANES;
  size_t begin = unit * BUCKET;
  unsigned count = begin >= n ? 0 : n - begin < BUCKET ? (unsigned)(n - begin) : BUCKET;
  bool aligned = (uintptr_t)message % sizeof(float) == 0;
  const uint8_t *from = message + WEIR_MESSAGE_HEADER + unit * unit_bytes(bits);
  uint64_t *group = codes[threadIdx.x / LANES];
  if (8 * lane < count) {
    const uint8_t *place = from + SCALES + lane * bits;
    uint64_t w = 0;
    if (aligned && bits == 4) {
      w = *(const uint32_t *)place;
    } else {
      for (unsigned b = 0; b < bits; b++) {
        w |= (uint64_t)place[b] << 8 * b;
      }
    }
    group[lane] = weir_unpack8(w, bits);
  }
  __syncwarp();
  if (count == 0) {
    return;
  }
  const uint8_t *code = (const uint8_t *)group;
  float step = weir_load_float(from, aligned);
  float base = weir_load_float(from + sizeof(float), aligned);
  for (unsigned j = 0; j < EACH; j++) {
    unsigned i = lane + LANES * j;
    if (i < count) {
      float value = base + (float)code[i] * step;
      to[begin + i] = add ? to[begin + i] + value : value;
    }
  }
}

static weir_status ready(size_t n, unsigned bits) {
  if (bits < 2 || bits > 8) {
    return weir_fail(WEIR_E_INVALID, "qsgd takes 2 to 8 bits, not %u", bits);
  }
  return n <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
}

static size_t grid_of(size_t n) { return n / (BUCKET * BUCKETS) + 1; }

weir_status weir_cuda_qsgd_encode(weir_cuda *cuda, const float *e, size_t n, unsigned bits,
                                  uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  *bytes = 0;
  weir_status status = ready(n, bits);
  if (status != WEIR_OK) {
    return status;
  }
  size_t needed = message_bytes(n, bits);
  if (capacity < needed) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", needed,
                     capacity);
  }
  status = weir_cuda_launch(cuda, "qsgd", grid_of(n), WEIR_CUDA_BLOCK, encode, e, n, bits, seed,
                            (uint8_t *)out);
  *bytes = status == WEIR_OK ? needed : 0;
  return status;
}

weir_status weir_cuda_qsgd_decode(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                  unsigned bits, float *to, bool add) {
  weir_status status = ready(n, bits);
  if (status != WEIR_OK) {
    return status;
  }
  if (bytes != message_bytes(n, bits)) {
    return weir_fail(WEIR_E_PROTOCOL, "malformed qsgd message: wrong length");
  }
  const uint8_t *from = (const uint8_t *)message;
  status =
      weir_cuda_launch(cuda, "checking qsgd", weir_cuda_grid(cuda, n / BUCKET, WEIR_CUDA_BLOCK),
                       WEIR_CUDA_BLOCK, check, from, n, bits, cuda->fault);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "qsgd", grid_of(n), WEIR_CUDA_BLOCK, decode,
                                              from, n, bits, to, add, cuda->fault)
                           : status;
}
