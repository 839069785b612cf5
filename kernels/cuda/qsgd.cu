/* qsgd in all its modes: max-min or L2 grids, stochastic or nearest rounding, buckets of any size;
 * kernels/qsgd.c and kernels/encoder.h have formulas and message.  Sixteen threads take a bucket,
 * thread l the elements l, l + 16, ...: the lanes in which the scalar code looks for the range, so
 * that of 0 and -0 the same one is found, and in which it adds up squares, so that an L2 scale has
 * the same bits.  A bucket of up to 128 elements stays in registers; a longer one is read twice. */
#include "kernels/cuda/message.cuh"

constexpr unsigned PIECE = 128;                       /* elements at a time */
constexpr unsigned LANES = 16;                        /* threads of a bucket */
constexpr unsigned EACH = PIECE / LANES;              /* elements of a thread */
constexpr unsigned BUCKETS = WEIR_CUDA_BLOCK / LANES; /* of a block */
constexpr uint32_t BUCKET_MOST = 65536;

/* weir_encoded's mode. */
constexpr uint8_t MODE_L2 = 1;
constexpr uint8_t MODE_NEAREST = 2;

/* A message's form; what follows from n, bits, bucket and mode. */
struct qsgd_form {
  size_t n;
  uint32_t bucket;
  uint32_t unit_bytes;  /* of a whole bucket: scales and codes */
  uint32_t scale_bytes; /* in front of its codes */
  uint8_t bits, mode;
  uint8_t levels; /* s, or 2^bits - 1 */
};

static qsgd_form form_of(size_t n, const weir_qsgd_options &options) {
  uint8_t mode = (uint8_t)((options.l2 ? MODE_L2 : 0) | (options.nearest ? MODE_NEAREST : 0));
  uint32_t scales = (uint32_t)sizeof(float) * (options.l2 ? 1 : 2);
  unsigned levels = options.l2 ? (1U << (options.bits - 1)) - 1 : (1U << options.bits) - 1;
  return qsgd_form{n,
                   options.bucket,
                   scales + options.bucket / 8 * options.bits,
                   scales,
                   (uint8_t)options.bits,
                   mode,
                   (uint8_t)levels};
}

static size_t message_bytes(const qsgd_form &form) {
  size_t left = form.n % form.bucket;
  return WEIR_MESSAGE_HEADER + form.n / form.bucket * form.unit_bytes +
         (left > 0 ? form.scale_bytes + (left + 7) / 8 * form.bits : 0);
}

__device__ static inline weir_header header_of(const qsgd_form &form) {
  return weir_header{(uint32_t)form.n, form.bucket, WEIR_CODEC_QSGD, form.bits, form.mode};
}

/* Whether all scales of the message lie at multiples of 4 bytes. */
__device__ static inline bool is_aligned(const qsgd_form &form, const uint8_t *message) {
  return (uintptr_t)message % sizeof(float) == 0 && form.unit_bytes % sizeof(float) == 0;
}

/* The bucket of a thread, and where it lies. */
struct bucket_place {
  size_t unit;
  size_t begin;
  uint32_t count; /* elements, 0 behind the last bucket */
};

__device__ static inline bucket_place place_of(const qsgd_form &form) {
  size_t unit = (size_t)blockIdx.x * BUCKETS + threadIdx.x / LANES;
  size_t begin = unit * form.bucket;
  size_t left = begin < form.n ? form.n - begin : 0;
  return bucket_place{unit, begin, left < form.bucket ? (uint32_t)left : form.bucket};
}

__device__ static inline unsigned pieces_of(const qsgd_form &form) {
  return (form.bucket + PIECE - 1) / PIECE;
}

/* --- encoding -------------------------------------------------------------------------------- */

__device__ static inline void load(const float *e, const bucket_place &at, unsigned piece,
                                   float x[EACH]) {
  for (unsigned j = 0; j < EACH; j++) {
    uint32_t i = piece * PIECE + threadIdx.x % LANES + LANES * j;
    x[j] = i < at.count ? e[at.begin + i] : 0.0F;
  }
}

/* Smallest and largest of a bucket, in every thread of it; x holds the first piece. */
__device__ static inline void range(const float *e, const bucket_place &at, unsigned pieces,
                                    float x[EACH], float *low, float *high) {
  unsigned lane = threadIdx.x % LANES;
  float least = __shfl_sync(WEIR_ALL_LANES, x[0], 0, LANES);
  float most = least;
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (piece > 0) {
      load(e, at, piece, x);
    }
    for (unsigned j = 0; j < EACH; j++) {
      if (piece * PIECE + lane + LANES * j < at.count) {
        least = x[j] < least ? x[j] : least;
        most = x[j] > most ? x[j] : most;
      }
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

/* The L2 norm of a bucket, likewise; what lies behind its end has been loaded as 0. */
__device__ static inline float norm(const float *e, const bucket_place &at, unsigned pieces,
                                    float x[EACH]) {
  double square = 0.0;
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (piece > 0) {
      load(e, at, piece, x);
    }
    for (unsigned j = 0; j < EACH; j++) {
      square += (double)x[j] * (double)x[j];
    }
  }
  for (unsigned width = LANES / 2; width > 0; width /= 2) {
    square += __shfl_down_sync(WEIR_ALL_LANES, square, width, LANES);
  }
  return weir_grid_limit(sqrt(__shfl_sync(WEIR_ALL_LANES, square, 0, LANES)));
}

/* A bucket's grid: kernels/qsgd.c, fit(). */
struct qsgd_grid {
  float base, step, inverse, zero, top;
};

template <bool L2>
__device__ static inline qsgd_grid fit(const qsgd_form &form, const float *e,
                                       const bucket_place &at, unsigned pieces, float x[EACH]) {
  float levels = (float)form.levels;
  float base = 0.0F;
  float width;
  if constexpr (L2) {
    width = norm(e, at, pieces, x);
  } else {
    float low;
    float high;
    range(e, at, pieces, x, &low, &high);
    base = weir_grid_limit((double)low);
    width = weir_grid_limit((double)high) - base;
  }
  bool wide = width >= WEIR_GRID_LEAST;
  return qsgd_grid{base, wide ? width / levels : 0.0F, wide ? levels / width : 0.0F,
                   L2 ? levels : 0.0F, L2 ? 2.0F * levels : levels};
}

/* A thread's codes of a piece into shared memory. */
template <bool NEAREST>
__device__ static inline void quantize(const qsgd_grid &grid, const float x[EACH], unsigned piece,
                                       uint32_t count, uint32_t key, uint8_t *code) {
  for (unsigned j = 0; j < EACH; j++) {
    unsigned in_piece = threadIdx.x % LANES + LANES * j;
    uint32_t i = piece * PIECE + in_piece;
    uint8_t chosen;
    if constexpr (NEAREST) {
      chosen = weir_grid_nearest(x[j], grid.base, grid.inverse, grid.zero, grid.top);
    } else {
      chosen =
          weir_grid_code(x[j], grid.base, grid.inverse, grid.zero, grid.top, weir_mix32(key + i));
    }
    code[in_piece] = i < count ? chosen : 0;
  }
}

/* Eight codes, a byte each, as bits bytes. */
__device__ static inline void store_group(uint64_t codes, unsigned bits, bool aligned,
                                          uint8_t *to) {
  uint64_t w = weir_pack8(codes, bits);
  if (aligned && bits == 4) {
    *(uint32_t *)to = (uint32_t)w;
    return;
  }
  for (unsigned b = 0; b < bits; b++) {
    to[b] = (uint8_t)(w >> 8 * b);
  }
}

template <bool L2, bool NEAREST>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    encode(const float *e, qsgd_form form, uint64_t seed, uint8_t *out) {
  __shared__ uint64_t codes[BUCKETS][PIECE / 8]; /* a byte each */
  unsigned lane = threadIdx.x % LANES;
  unsigned pieces = pieces_of(form);
  bucket_place at = place_of(form);
  float x[EACH];
  load(e, at, 0, x);
  qsgd_grid grid = fit<L2>(form, e, at, pieces, x);
  uint32_t key = weir_unit_key(seed, at.unit + 1);
  uint64_t *group = codes[threadIdx.x / LANES];
  bool aligned = is_aligned(form, out);
  uint8_t *to = out + WEIR_MESSAGE_HEADER + at.unit * form.unit_bytes;
  if (at.unit == 0) {
    out[lane] = weir_header_byte(header_of(form), lane);
  }
  if (at.count > 0 && lane < form.scale_bytes / sizeof(float)) {
    weir_store_float(to + lane * sizeof(float), lane == 0 ? grid.step : grid.base, aligned);
  }
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (pieces > 1) {
      load(e, at, piece, x);
    }
    __syncwarp(); /* the last piece's codes have been read */
    quantize<NEAREST>(grid, x, piece, at.count, key, (uint8_t *)group);
    __syncwarp();
    if (piece * PIECE + 8 * lane < at.count) {
      store_group(group[lane], form.bits, aligned,
                  to + form.scale_bytes + (piece * LANES + lane) * form.bits);
    }
  }
}

/* --- decoding -------------------------------------------------------------------------------- */

/* Header and scales of a message from the wire: nothing is decoded from a bad one. */
__global__ static void check(const uint8_t *message, qsgd_form form, uint32_t *fault) {
  bool aligned = is_aligned(form, message);
  bool l2 = (form.mode & MODE_L2) != 0;
  bool good = true;
  if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER) {
    good = message[threadIdx.x] == weir_header_byte(header_of(form), threadIdx.x);
  }
  size_t units = (form.n + form.bucket - 1) / form.bucket;
  WEIR_CUDA_EACH(unit, units) {
    const uint8_t *from = message + WEIR_MESSAGE_HEADER + unit * form.unit_bytes;
    float step = weir_load_float(from, aligned);
    double base = l2 ? 0.0 : fabs((double)weir_load_float(from + sizeof(float), aligned));
    good = good && step >= 0.0F && (double)step * form.levels + base <= (double)FLT_MAX;
  }
  if (!good) {
    atomicOr(fault, WEIR_FAULT_MESSAGE);
  }
}

__device__ static inline uint64_t load_group(const uint8_t *from, unsigned bits, bool aligned) {
  uint64_t w = 0;
  if (aligned && bits == 4) {
    w = *(const uint32_t *)from;
  } else {
    for (unsigned b = 0; b < bits; b++) {
      w |= (uint64_t)from[b] << 8 * b;
    }
  }
  return weir_unpack8(w, bits);
}

template <bool L2>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    decode(const uint8_t *message, qsgd_form form, float *to, bool add, const uint32_t *fault) {
  __shared__ uint64_t codes[BUCKETS][PIECE / 8]; /* a byte each */
  if (*fault != 0) {
    return;
  }
  unsigned lane = threadIdx.x % LANES;
  unsigned pieces = pieces_of(form);
  bucket_place at = place_of(form);
  bool aligned = is_aligned(form, message);
  const uint8_t *from = message + WEIR_MESSAGE_HEADER + at.unit * form.unit_bytes;
  uint64_t *group = codes[threadIdx.x / LANES];
  float step = at.count > 0 ? weir_load_float(from, aligned) : 0.0F;
  float base = !L2 && at.count > 0 ? weir_load_float(from + sizeof(float), aligned) : 0.0F;
  unsigned top = L2 ? 2U * form.levels : form.levels;
  float zero = L2 ? (float)form.levels : 0.0F;
  for (unsigned piece = 0; piece < pieces; piece++) {
    __syncwarp(); /* the last piece's codes have been read */
    if (piece * PIECE + 8 * lane < at.count) {
      group[lane] = load_group(from + form.scale_bytes + (piece * LANES + lane) * form.bits,
                               form.bits, aligned);
    }
    __syncwarp();
    for (unsigned j = 0; j < EACH; j++) {
      unsigned in_piece = lane + LANES * j;
      uint32_t i = piece * PIECE + in_piece;
      if (i < at.count) {
        unsigned code = ((const uint8_t *)group)[in_piece];
        float value = base + ((float)(code < top ? code : top) - zero) * step;
        to[at.begin + i] = add ? to[at.begin + i] + value : value;
      }
    }
  }
}

/* --- the host's side ------------------------------------------------------------------------- */

static weir_status ready(size_t n, const weir_qsgd_options &options) {
  if (options.bits < 2 || options.bits > 8 || options.bucket < 8 || options.bucket > BUCKET_MOST ||
      options.bucket % 8 != 0) {
    return weir_fail(WEIR_E_INVALID,
                     "qsgd takes 2 to 8 bits and buckets of 8 to %u by 8, not %u, %u", BUCKET_MOST,
                     options.bits, options.bucket);
  }
  return n <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
}

static size_t grid_of(const qsgd_form &form) {
  return form.n / ((size_t)form.bucket * BUCKETS) + 1;
}

weir_status weir_cuda_qsgd_encode(weir_cuda *cuda, const float *e, size_t n,
                                  weir_qsgd_options options, uint64_t seed, void *out,
                                  size_t capacity, size_t *bytes) {
  *bytes = 0;
  weir_status status = ready(n, options);
  if (status != WEIR_OK) {
    return status;
  }
  qsgd_form form = form_of(n, options);
  size_t needed = message_bytes(form);
  if (capacity < needed) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", needed,
                     capacity);
  }
  auto kernel = options.l2        ? options.nearest ? encode<true, true> : encode<true, false>
                       : options.nearest ? encode<false, true>
                                  : encode<false, false>;
  status = weir_cuda_launch(cuda, "qsgd", grid_of(form), WEIR_CUDA_BLOCK, kernel, e, form, seed,
                            (uint8_t *)out);
  *bytes = status == WEIR_OK ? needed : 0;
  return status;
}

weir_status weir_cuda_qsgd_decode(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                  weir_qsgd_options options, float *to, bool add) {
  weir_status status = ready(n, options);
  if (status != WEIR_OK) {
    return status;
  }
  qsgd_form form = form_of(n, options);
  if (bytes != message_bytes(form)) {
    return weir_fail(WEIR_E_PROTOCOL, "malformed qsgd message: wrong length");
  }
  const uint8_t *from = (const uint8_t *)message;
  status = weir_cuda_launch(cuda, "checking qsgd",
                            weir_cuda_grid(cuda, n / form.bucket, WEIR_CUDA_BLOCK), WEIR_CUDA_BLOCK,
                            check, from, form, cuda->fault);
  auto kernel = options.l2 ? decode<true> : decode<false>;
  return status == WEIR_OK ? weir_cuda_launch(cuda, "qsgd", grid_of(form), WEIR_CUDA_BLOCK, kernel,
                                              from, form, to, add, cuda->fault)
                           : status;
}
