/* Quantizers whose unit is a bucket of so many elements: one pass makes a message and says what it
 * has lost, one checks messages and one decodes as many as there are.  kernels/encoder.h has the
 * message.  Sixteen threads take a bucket, thread l the elements l, l + 16, ...: the lanes in which
 * the scalar code looks for the range, so that of 0 and -0 the same one is found, and in which it
 * adds up squares, so that a norm has the same bits.  A bucket of up to 128 elements stays in
 * registers; a longer one is read twice.
 *
 * What happens to one bucket says a type CODEC:
 *
 *   ID               whose messages they are
 *   SCALES           floats in front of a bucket's codes
 *   grid             what elements and codes of a bucket are made of each other by
 *   fit()            the grid of a bucket, whose first piece is in x, by all its threads
 *   scale()          a float of it that goes into the message
 *   code()           of an element; weir_mix32(draw) is its random number
 *   grid_of()        from the message's floats
 *   value()          of a code
 *   reach()          no value that these floats, from the wire, give is larger in magnitude; more
 *                    than FLT_MAX, or NaN: they are refused */
#ifndef WEIR_KERNELS_CUDA_BUCKETS_CUH
#define WEIR_KERNELS_CUDA_BUCKETS_CUH

#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/message.cuh"

constexpr unsigned WEIR_BUCKETS_PIECE = 128; /* elements at a time */
constexpr unsigned WEIR_BUCKETS_LANES = 16;  /* threads of a bucket */
/* Elements of a thread, and buckets of a block. */
constexpr unsigned WEIR_BUCKETS_EACH = WEIR_BUCKETS_PIECE / WEIR_BUCKETS_LANES;
constexpr unsigned WEIR_BUCKETS_AT_ONCE = WEIR_CUDA_BLOCK / WEIR_BUCKETS_LANES;

/* A message's form; what follows from n, bits, bucket and the codec. */
struct weir_bucket_form {
  size_t n;
  uint32_t bucket;
  uint32_t unit_bytes;  /* of a whole bucket: scales and codes */
  uint32_t scale_bytes; /* in front of its codes */
  uint8_t bits, mode;
};

static inline weir_bucket_form weir_bucket_form_of(size_t n, unsigned scales, unsigned bits,
                                                   uint32_t bucket, uint8_t mode) {
  const uint32_t scale_bytes = scales * (uint32_t)sizeof(float);
  return weir_bucket_form{n,           bucket,        scale_bytes + bucket / 8 * bits,
                          scale_bytes, (uint8_t)bits, mode};
}

static inline size_t weir_buckets_bytes(const weir_bucket_form &form) {
  size_t left = form.n % form.bucket;
  return WEIR_MESSAGE_HEADER + form.n / form.bucket * form.unit_bytes +
         (left > 0 ? form.scale_bytes + (left + 7) / 8 * form.bits : 0);
}

static inline size_t weir_buckets_series_bytes(const weir_bucket_form &form,
                                               const weir_series &series) {
  const size_t before = weir_series_count(series, form.n) - 1;
  weir_bucket_form last = form;
  last.n = form.n - before * series.block;
  return before * series.each + weir_buckets_bytes(last);
}

template <typename CODEC>
__device__ static inline weir_header weir_buckets_header(const weir_bucket_form &form, size_t n) {
  return weir_header{(uint32_t)n, form.bucket, CODEC::ID, form.bits, form.mode};
}

/* Whether all scales of the message lie at multiples of 4 bytes. */
__device__ static inline bool weir_buckets_aligned(const weir_bucket_form &form,
                                                   const uint8_t *message) {
  return (uintptr_t)message % sizeof(float) == 0 && form.unit_bytes % sizeof(float) == 0;
}

/* The bucket of a thread, and where it lies in a message of n elements. */
struct weir_bucket_place {
  size_t unit;
  size_t begin;
  uint32_t count; /* elements, 0 behind the last bucket */
};

__device__ static inline weir_bucket_place weir_bucket_place_of(const weir_bucket_form &form,
                                                                size_t n, size_t set) {
  size_t unit = set * WEIR_BUCKETS_AT_ONCE + threadIdx.x / WEIR_BUCKETS_LANES;
  size_t begin = unit * form.bucket;
  size_t left = begin < n ? n - begin : 0;
  return weir_bucket_place{unit, begin, left < form.bucket ? (uint32_t)left : form.bucket};
}

__device__ static inline unsigned weir_bucket_pieces(const weir_bucket_form &form) {
  return (form.bucket + WEIR_BUCKETS_PIECE - 1) / WEIR_BUCKETS_PIECE;
}

/* --- encoding -------------------------------------------------------------------------------- */

__device__ static inline void weir_bucket_load(const weir_feed &feed, const weir_bucket_place &at,
                                               unsigned piece, float x[WEIR_BUCKETS_EACH]) {
  const unsigned first = piece * WEIR_BUCKETS_PIECE + threadIdx.x % WEIR_BUCKETS_LANES;
  for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
    uint32_t i = first + WEIR_BUCKETS_LANES * j;
    bool there = i < at.count;
    x[j] = there ? feed.x[at.begin + i] : 0.0F;
  }
  float other[WEIR_BUCKETS_EACH] = {};
  if (feed.r != NULL) { /* once, so that all loads are on their way together */
    for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
      uint32_t i = first + WEIR_BUCKETS_LANES * j;
      if (i < at.count) other[j] = feed.r[at.begin + i];
    }
  }
  if (feed.r != NULL || feed.moments != NULL)
    for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) x[j] += other[j]; /* weir_fed */
}

/* Smallest and largest of a bucket, in every thread of it; x holds the first piece. */
__device__ static inline void weir_bucket_range(const weir_bucket_form &form, const weir_feed &feed,
                                                const weir_bucket_place &at,
                                                float x[WEIR_BUCKETS_EACH], float *low,
                                                float *high) {
  unsigned lane = threadIdx.x % WEIR_BUCKETS_LANES;
  float least = __shfl_sync(WEIR_ALL_LANES, x[0], 0, WEIR_BUCKETS_LANES);
  float most = least;
  for (unsigned piece = 0; piece < weir_bucket_pieces(form); piece++) {
    if (piece > 0) weir_bucket_load(feed, at, piece, x);
    for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
      if (piece * WEIR_BUCKETS_PIECE + lane + WEIR_BUCKETS_LANES * j < at.count) {
        least = x[j] < least ? x[j] : least;
        most = x[j] > most ? x[j] : most;
      }
    }
  }
  for (unsigned width = WEIR_BUCKETS_LANES / 2; width > 0; width /= 2) {
    float far_least = __shfl_down_sync(WEIR_ALL_LANES, least, width, WEIR_BUCKETS_LANES);
    float far_most = __shfl_down_sync(WEIR_ALL_LANES, most, width, WEIR_BUCKETS_LANES);
    least = far_least < least ? far_least : least;
    most = far_most > most ? far_most : most;
  }
  *low = __shfl_sync(WEIR_ALL_LANES, least, 0, WEIR_BUCKETS_LANES);
  *high = __shfl_sync(WEIR_ALL_LANES, most, 0, WEIR_BUCKETS_LANES);
}

/* The L2 norm of a bucket, likewise; what lies behind its end has been loaded as 0. */
__device__ static inline float weir_bucket_norm(const weir_bucket_form &form, const weir_feed &feed,
                                                const weir_bucket_place &at,
                                                float x[WEIR_BUCKETS_EACH]) {
  double square = 0.0;
  for (unsigned piece = 0; piece < weir_bucket_pieces(form); piece++) {
    if (piece > 0) weir_bucket_load(feed, at, piece, x);
    for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) square += (double)x[j] * (double)x[j];
  }
  for (unsigned width = WEIR_BUCKETS_LANES / 2; width > 0; width /= 2)
    square += __shfl_down_sync(WEIR_ALL_LANES, square, width, WEIR_BUCKETS_LANES);
  return weir_grid_limit(sqrt(__shfl_sync(WEIR_ALL_LANES, square, 0, WEIR_BUCKETS_LANES)));
}

/* A thread's codes of a piece into shared memory. */
template <typename CODEC>
__device__ static inline void weir_bucket_quantize(const typename CODEC::grid &grid,
                                                   const float x[WEIR_BUCKETS_EACH], unsigned piece,
                                                   uint32_t count, uint32_t key, uint8_t *code) {
  for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
    unsigned in_piece = threadIdx.x % WEIR_BUCKETS_LANES + WEIR_BUCKETS_LANES * j;
    uint32_t i = piece * WEIR_BUCKETS_PIECE + in_piece;
    uint8_t chosen = CODEC::code(grid, x[j], key + i);
    code[in_piece] = i < count ? chosen : 0;
  }
}

/* Eight codes, a byte each, as bits bytes; four bytes at a time where that comes out. */
__device__ static inline void weir_bucket_store(uint64_t codes, unsigned bits, bool aligned,
                                                uint8_t *to) {
  uint64_t w = weir_pack8(codes, bits);
  if (aligned && bits % 4 == 0) {
    ((uint32_t *)to)[0] = (uint32_t)w;
    if (bits == 8) ((uint32_t *)to)[1] = (uint32_t)(w >> 32);
    return;
  }
  for (unsigned b = 0; b < bits; b++) to[b] = (uint8_t)(w >> 8 * b);
}

/* What the piece's codes, which lie there, have lost. */
template <typename CODEC>
__device__ static inline void weir_bucket_keep_lost(const typename CODEC::grid &grid,
                                                    const float x[WEIR_BUCKETS_EACH],
                                                    const weir_bucket_place &at, unsigned piece,
                                                    const uint8_t *code, float *left,
                                                    weir_sums *sums) {
  for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
    unsigned in_piece = threadIdx.x % WEIR_BUCKETS_LANES + WEIR_BUCKETS_LANES * j;
    uint32_t i = piece * WEIR_BUCKETS_PIECE + in_piece;
    if (i < at.count)
      weir_keep_lost(sums, x[j], CODEC::value(grid, code[in_piece]), &left[at.begin + i]);
  }
}

/* A bucket, by its sixteen threads. */
template <typename CODEC>
__device__ static inline void weir_bucket_encode(const weir_feed &feed,
                                                 const weir_bucket_form &form,
                                                 const weir_bucket_place &at, uint64_t seed,
                                                 uint64_t *group, uint8_t *out, weir_sums *sums) {
  unsigned lane = threadIdx.x % WEIR_BUCKETS_LANES;
  unsigned pieces = weir_bucket_pieces(form);
  float x[WEIR_BUCKETS_EACH];
  weir_bucket_load(feed, at, 0, x);
  const typename CODEC::grid grid = CODEC::fit(form, feed, at, x);
  uint32_t key = weir_unit_key(seed, at.unit + 1);
  bool aligned = weir_buckets_aligned(form, out);
  uint8_t *to = out + WEIR_MESSAGE_HEADER + at.unit * form.unit_bytes;
  if (at.count > 0 && lane < CODEC::SCALES)
    weir_store_float(to + lane * sizeof(float), CODEC::scale(grid, lane), aligned);
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (pieces > 1) weir_bucket_load(feed, at, piece, x);
    __syncwarp(); /* the last piece's codes have been read */
    weir_bucket_quantize<CODEC>(grid, x, piece, at.count, key, (uint8_t *)group);
    __syncwarp();
    if (piece * WEIR_BUCKETS_PIECE + 8 * lane < at.count) {
      weir_bucket_store(group[lane], form.bits, aligned,
                        to + form.scale_bytes + (piece * WEIR_BUCKETS_LANES + lane) * form.bits);
    }
    if (feed.e != NULL)
      weir_bucket_keep_lost<CODEC>(grid, x, at, piece, (const uint8_t *)group, feed.e, sums);
  }
}

/* sums, of every block: NULL where nothing is wanted of what is lost. */
template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_buckets_encode(weir_feed feed, weir_bucket_form form, uint64_t seed, unsigned parts,
                        unsigned rounds, uint8_t *out, weir_sums *sums) {
  __shared__ uint64_t codes[WEIR_BUCKETS_AT_ONCE][WEIR_BUCKETS_PIECE / 8]; /* a byte each */
  const weir_member me = weir_member_of(feed.series, form.n, parts, seed);
  feed.x += me.at;
  if (feed.r != NULL) feed.r += me.at;
  if (feed.e != NULL) feed.e += me.at;
  out += me.number * feed.series.each;
  if (me.part == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
    out[threadIdx.x] = weir_header_byte(weir_buckets_header<CODEC>(form, me.n), threadIdx.x);
  weir_sums mine = {};
  for (unsigned round = 0; round < rounds; round++) {
    const weir_bucket_place at = weir_bucket_place_of(form, me.n, (size_t)me.part * rounds + round);
    weir_bucket_encode<CODEC>(feed, form, at, me.seed, codes[threadIdx.x / WEIR_BUCKETS_LANES], out,
                              &mine);
  }
  if (sums != NULL) {
    mine = weir_block_sums(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = mine;
  }
}

/* --- decoding -------------------------------------------------------------------------------- */

/* Where a bucket lies in a message, and its scales; zeros behind the last bucket. */
template <typename CODEC>
__device__ static inline const uint8_t *weir_bucket_scales(const weir_bucket_form &form,
                                                           const uint8_t *message, size_t unit,
                                                           bool there, bool aligned,
                                                           float scale[CODEC::SCALES]) {
  const uint8_t *from = message + WEIR_MESSAGE_HEADER + unit * form.unit_bytes;
  for (unsigned s = 0; s < CODEC::SCALES; s++)
    scale[s] = there ? weir_load_float(from + s * sizeof(float), aligned) : 0.0F;
  return from;
}

/* Header and scales of messages from the wire: nothing is decoded from a bad one. */
template <typename CODEC>
__global__ static void weir_buckets_check(weir_intake in, weir_bucket_form form, unsigned parts,
                                          uint32_t *fault) {
  bool good = true;
  const weir_member me = weir_member_of(in.series, form.n, parts, 0);
  const size_t step_by = (size_t)parts * blockDim.x;
  size_t units = (me.n + form.bucket - 1) / form.bucket;
  for (uint32_t m = 0; m < in.count; m++) {
    const uint8_t *message = in.first + m * in.pitch + me.number * in.series.each;
    bool aligned = weir_buckets_aligned(form, message);
    if (me.part == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
      good = good && message[threadIdx.x] ==
                         weir_header_byte(weir_buckets_header<CODEC>(form, me.n), threadIdx.x);
    for (size_t unit = (size_t)me.part * blockDim.x + threadIdx.x; unit < units; unit += step_by) {
      float scale[CODEC::SCALES];
      (void)weir_bucket_scales<CODEC>(form, message, unit, true, aligned, scale);
      good = good && CODEC::reach(form, scale) <= (double)FLT_MAX;
    }
  }
  if (!good) atomicOr(fault, WEIR_FAULT_MESSAGE);
}

__device__ static inline uint64_t weir_bucket_group(const uint8_t *from, unsigned bits,
                                                    bool aligned) {
  uint64_t w = 0;
  if (aligned && bits % 4 == 0) {
    w = ((const uint32_t *)from)[0];
    if (bits == 8) w |= (uint64_t)((const uint32_t *)from)[1] << 32;
  } else {
    for (unsigned b = 0; b < bits; b++) w |= (uint64_t)from[b] << 8 * b;
  }
  return weir_unpack8(w, bits);
}

/* A thread's elements of a piece of a message, stored or added to sum. */
template <typename CODEC>
__device__ static inline void weir_bucket_add(const weir_bucket_form &form,
                                              const weir_bucket_place &at, const uint8_t *message,
                                              unsigned piece, uint64_t *group, bool add,
                                              float sum[WEIR_BUCKETS_EACH]) {
  unsigned lane = threadIdx.x % WEIR_BUCKETS_LANES;
  bool aligned = weir_buckets_aligned(form, message);
  float scale[CODEC::SCALES];
  const uint8_t *from =
      weir_bucket_scales<CODEC>(form, message, at.unit, at.count > 0, aligned, scale);
  const typename CODEC::grid grid = CODEC::grid_of(form, scale);
  __syncwarp(); /* the last piece's codes have been read */
  if (piece * WEIR_BUCKETS_PIECE + 8 * lane < at.count) {
    group[lane] =
        weir_bucket_group(from + form.scale_bytes + (piece * WEIR_BUCKETS_LANES + lane) * form.bits,
                          form.bits, aligned);
  }
  __syncwarp();
  for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
    unsigned in_piece = lane + WEIR_BUCKETS_LANES * j;
    if (piece * WEIR_BUCKETS_PIECE + in_piece < at.count) {
      float value = CODEC::value(grid, ((const uint8_t *)group)[in_piece]);
      sum[j] = add ? sum[j] + value : value;
    }
  }
}

/* Five blocks of a multiprocessor at a time, as encoding comes to: left to itself the compiler
 * makes room for eight, and registers run out. */
template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK, 5)
    weir_buckets_decode(weir_intake in, weir_bucket_form form, unsigned parts,
                        const uint32_t *fault) {
  __shared__ uint64_t codes[WEIR_BUCKETS_AT_ONCE][WEIR_BUCKETS_PIECE / 8]; /* a byte each */
  if (*fault != 0) return;
  const weir_member me = weir_member_of(in.series, form.n, parts, 0);
  in.to += me.at;
  in.first += me.number * in.series.each;
  const weir_bucket_place at = weir_bucket_place_of(form, me.n, me.part);
  float *to = in.to + at.begin;
  bool finite = true;
  for (unsigned piece = 0; piece < weir_bucket_pieces(form); piece++) {
    const unsigned first = piece * WEIR_BUCKETS_PIECE + threadIdx.x % WEIR_BUCKETS_LANES;
    float sum[WEIR_BUCKETS_EACH];
    for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
      uint32_t i = first + WEIR_BUCKETS_LANES * j;
      sum[j] = in.add && i < at.count ? to[i] : 0.0F;
    }
    for (uint32_t m = 0; m < in.count; m++) {
      weir_bucket_add<CODEC>(form, at, in.first + m * in.pitch, piece,
                             codes[threadIdx.x / WEIR_BUCKETS_LANES], in.add || m > 0, sum);
    }
    for (unsigned j = 0; j < WEIR_BUCKETS_EACH; j++) {
      uint32_t i = first + WEIR_BUCKETS_LANES * j;
      if (i < at.count) finite = weir_publish(in, sum[j], &to[i]) && finite;
    }
  }
  weir_report_overflow(in, finite);
}

/* --- the host's side ------------------------------------------------------------------------- */

static inline weir_status weir_buckets_ready(size_t n) {
  return n <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
}

/* How many buckets, one after the other, each sixteen threads of a block encode: a tile's elements
 * at least, as there is room for a sum of each tile. */
static inline unsigned weir_buckets_rounds(const weir_bucket_form &form) {
  const unsigned at_once = WEIR_BUCKETS_AT_ONCE * form.bucket;
  const unsigned tile = (WEIR_TILE + at_once - 1) / at_once;
  return tile > 2 ? tile : 2;
}

template <typename CODEC>
static weir_status weir_buckets_encode_on(weir_cuda *cuda, const weir_feed &feed,
                                          const weir_bucket_form &form, uint64_t seed, void *out,
                                          size_t capacity, size_t *bytes) {
  const size_t needed = weir_buckets_series_bytes(form, feed.series);
  if (capacity < needed) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", needed,
                     capacity);
  }
  const unsigned rounds = weir_buckets_rounds(form);
  const size_t each = (size_t)form.bucket * WEIR_BUCKETS_AT_ONCE * rounds;
  unsigned parts;
  const size_t blocks = weir_series_blocks(feed.series, form.n, each, &parts);
  weir_sums *sums = feed.e != NULL && form.n > 0 ? cuda->sums : NULL;
  weir_status status = weir_cuda_launch(cuda, "encoding buckets", blocks, WEIR_CUDA_BLOCK,
                                        weir_buckets_encode<CODEC>, feed, form, seed, parts, rounds,
                                        (uint8_t *)out, sums);
  if (status == WEIR_OK && feed.e != NULL)
    status = weir_cuda_fold_fed(cuda, cuda->sums, form.n > 0 ? blocks : 0, feed.moments, feed.lost);
  *bytes = status == WEIR_OK ? needed : 0;
  return status;
}

template <typename CODEC>
static weir_status weir_buckets_decode_on(weir_cuda *cuda, const weir_intake &in,
                                          const weir_bucket_form &form) {
  if (in.bytes != weir_buckets_series_bytes(form, in.series)) {
    return weir_fail(WEIR_E_PROTOCOL, "malformed %s message: wrong length",
                     weir_codec_name(CODEC::ID));
  }
  const size_t count = weir_series_count(in.series, form.n);
  const size_t buckets = weir_series_block(in.series, form.n) / form.bucket + 1;
  const size_t checked = weir_cuda_grid(cuda, buckets, WEIR_CUDA_BLOCK);
  const weir_status status =
      weir_cuda_launch(cuda, "checking buckets", count * checked, WEIR_CUDA_BLOCK,
                       weir_buckets_check<CODEC>, in, form, (unsigned)checked, cuda->fault);
  const size_t parts = (buckets + WEIR_BUCKETS_AT_ONCE - 1) / WEIR_BUCKETS_AT_ONCE;
  return status == WEIR_OK
             ? weir_cuda_launch(cuda, "decoding buckets", count * parts, WEIR_CUDA_BLOCK,
                                weir_buckets_decode<CODEC>, in, form, (unsigned)parts, cuda->fault)
             : status;
}

/* The functions of a CODEC's row, weir_cuda_CODEC_encode and _decode; cr is the plan's, of which
 * its file has form_of(layout, cr), and ready(form, cr): whether there is such a form. */
#define WEIR_BUCKETS_ROW(CODEC)                                                               \
  weir_status weir_cuda_##CODEC##_encode(weir_cuda *cuda, const weir_feed &feed,              \
                                         const weir_layout *layout, double cr, uint64_t seed, \
                                         void *out, size_t capacity, size_t *bytes) {         \
    const weir_bucket_form form = form_of(layout, cr);                                        \
    *bytes = 0;                                                                               \
    const weir_status status = ready(form, cr);                                               \
    return status == WEIR_OK                                                                  \
               ? weir_buckets_encode_on<CODEC>(cuda, feed, form, seed, out, capacity, bytes)  \
               : status;                                                                      \
  }                                                                                           \
  weir_status weir_cuda_##CODEC##_decode(weir_cuda *cuda, const weir_intake &in,              \
                                         const weir_layout *layout, double cr) {              \
    const weir_bucket_form form = form_of(layout, cr);                                        \
    const weir_status status = ready(form, cr);                                               \
    return status == WEIR_OK ? weir_buckets_decode_on<CODEC>(cuda, in, form) : status;        \
  }

#endif
