/* Encoding by qsgd (qsgd.cuh), and what that loses.  A bucket of up to 128 elements stays in
 * registers; a longer one is read twice. */
#include "kernels/cuda/qsgd.cuh"

/* How many buckets, one after the other, each sixteen threads of a block encode: a tile's elements
 * at least, as there is room for a sum of each tile. */
static unsigned rounds_of(const weir_qsgd_form &form) {
  const unsigned at_once = WEIR_QSGD_BUCKETS * form.bucket;
  const unsigned tile = (WEIR_TILE + at_once - 1) / at_once;
  return tile > 2 ? tile : 2;
}

__device__ static inline void load(const weir_feed &feed, const weir_qsgd_bucket &at,
                                   unsigned piece, float x[WEIR_QSGD_EACH]) {
  for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
    uint32_t i = piece * WEIR_QSGD_PIECE + threadIdx.x % WEIR_QSGD_LANES + WEIR_QSGD_LANES * j;
    bool there = i < at.count;
    x[j] = there ? feed.x[at.begin + i] : 0.0F;
  }
  float other[WEIR_QSGD_EACH] = {};
  if (feed.r != NULL) { /* once, so that all loads are on their way together */
    for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
      uint32_t i = piece * WEIR_QSGD_PIECE + threadIdx.x % WEIR_QSGD_LANES + WEIR_QSGD_LANES * j;
      if (i < at.count) other[j] = feed.r[at.begin + i];
    }
  }
  if (feed.r != NULL || feed.moments != NULL)
    for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) x[j] += other[j]; /* weir_fed */
}

/* Smallest and largest of a bucket, in every thread of it; x holds the first piece. */
__device__ static inline void range(const weir_feed &feed, const weir_qsgd_bucket &at,
                                    unsigned pieces, float x[WEIR_QSGD_EACH], float *low,
                                    float *high) {
  unsigned lane = threadIdx.x % WEIR_QSGD_LANES;
  float least = __shfl_sync(WEIR_ALL_LANES, x[0], 0, WEIR_QSGD_LANES);
  float most = least;
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (piece > 0) load(feed, at, piece, x);
    for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
      if (piece * WEIR_QSGD_PIECE + lane + WEIR_QSGD_LANES * j < at.count) {
        least = x[j] < least ? x[j] : least;
        most = x[j] > most ? x[j] : most;
      }
    }
  }
  for (unsigned width = WEIR_QSGD_LANES / 2; width > 0; width /= 2) {
    float far_least = __shfl_down_sync(WEIR_ALL_LANES, least, width, WEIR_QSGD_LANES);
    float far_most = __shfl_down_sync(WEIR_ALL_LANES, most, width, WEIR_QSGD_LANES);
    least = far_least < least ? far_least : least;
    most = far_most > most ? far_most : most;
  }
  *low = __shfl_sync(WEIR_ALL_LANES, least, 0, WEIR_QSGD_LANES);
  *high = __shfl_sync(WEIR_ALL_LANES, most, 0, WEIR_QSGD_LANES);
}

/* The L2 norm of a bucket, likewise; what lies behind its end has been loaded as 0. */
__device__ static inline float norm(const weir_feed &feed, const weir_qsgd_bucket &at,
                                    unsigned pieces, float x[WEIR_QSGD_EACH]) {
  double square = 0.0;
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (piece > 0) load(feed, at, piece, x);
    for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) square += (double)x[j] * (double)x[j];
  }
  for (unsigned width = WEIR_QSGD_LANES / 2; width > 0; width /= 2)
    square += __shfl_down_sync(WEIR_ALL_LANES, square, width, WEIR_QSGD_LANES);
  return weir_grid_limit(sqrt(__shfl_sync(WEIR_ALL_LANES, square, 0, WEIR_QSGD_LANES)));
}

/* A bucket's grid: kernels/qsgd.c, fit(). */
struct qsgd_grid {
  float base, step, inverse, zero, top;
};

template <bool L2>
__device__ static inline qsgd_grid fit(const weir_qsgd_form &form, const weir_feed &feed,
                                       const weir_qsgd_bucket &at, unsigned pieces,
                                       float x[WEIR_QSGD_EACH]) {
  float levels = (float)form.levels;
  float base = 0.0F;
  float width;
  if constexpr (L2) {
    width = norm(feed, at, pieces, x);
  } else {
    float low;
    float high;
    range(feed, at, pieces, x, &low, &high);
    base = weir_grid_limit((double)low);
    width = weir_grid_limit((double)high) - base;
  }
  bool wide = width >= WEIR_GRID_LEAST;
  return qsgd_grid{base, wide ? width / levels : 0.0F, wide ? levels / width : 0.0F,
                   L2 ? levels : 0.0F, L2 ? 2.0F * levels : levels};
}

/* A thread's codes of a piece into shared memory. */
template <bool NEAREST>
__device__ static inline void quantize(const qsgd_grid &grid, const float x[WEIR_QSGD_EACH],
                                       unsigned piece, uint32_t count, uint32_t key,
                                       uint8_t *code) {
  for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
    unsigned in_piece = threadIdx.x % WEIR_QSGD_LANES + WEIR_QSGD_LANES * j;
    uint32_t i = piece * WEIR_QSGD_PIECE + in_piece;
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
  for (unsigned b = 0; b < bits; b++) to[b] = (uint8_t)(w >> 8 * b);
}

/* What the piece's codes, which lie there, have lost. */
__device__ static inline void keep_lost(const qsgd_grid &grid, const float x[WEIR_QSGD_EACH],
                                        const weir_qsgd_bucket &at, unsigned piece,
                                        const uint8_t *code, float *left, weir_sums *sums) {
  for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
    unsigned in_piece = threadIdx.x % WEIR_QSGD_LANES + WEIR_QSGD_LANES * j;
    uint32_t i = piece * WEIR_QSGD_PIECE + in_piece;
    if (i < at.count) {
      float sent = weir_qsgd_value(code[in_piece], grid.base, grid.step, grid.zero);
      weir_keep_lost(sums, x[j], sent, &left[at.begin + i]);
    }
  }
}

/* A bucket, by its sixteen threads. */
template <bool L2, bool NEAREST>
__device__ static inline void encode_bucket(const weir_feed &feed, const weir_qsgd_form &form,
                                            const weir_qsgd_bucket &at, uint64_t seed,
                                            uint64_t *group, uint8_t *out, weir_sums *sums) {
  unsigned lane = threadIdx.x % WEIR_QSGD_LANES;
  unsigned pieces = weir_qsgd_pieces(form);
  float x[WEIR_QSGD_EACH];
  load(feed, at, 0, x);
  qsgd_grid grid = fit<L2>(form, feed, at, pieces, x);
  uint32_t key = weir_unit_key(seed, at.unit + 1);
  bool aligned = weir_qsgd_aligned(form, out);
  uint8_t *to = out + WEIR_MESSAGE_HEADER + at.unit * form.unit_bytes;
  if (at.count > 0 && lane < form.scale_bytes / sizeof(float))
    weir_store_float(to + lane * sizeof(float), lane == 0 ? grid.step : grid.base, aligned);
  for (unsigned piece = 0; piece < pieces; piece++) {
    if (pieces > 1) load(feed, at, piece, x);
    __syncwarp(); /* the last piece's codes have been read */
    quantize<NEAREST>(grid, x, piece, at.count, key, (uint8_t *)group);
    __syncwarp();
    if (piece * WEIR_QSGD_PIECE + 8 * lane < at.count) {
      store_group(group[lane], form.bits, aligned,
                  to + form.scale_bytes + (piece * WEIR_QSGD_LANES + lane) * form.bits);
    }
    if (feed.e != NULL) keep_lost(grid, x, at, piece, (const uint8_t *)group, feed.e, sums);
  }
}

/* sums, of every block: NULL where nothing is wanted of what is lost. */
template <bool L2, bool NEAREST>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    encode(weir_feed feed, weir_qsgd_form form, uint64_t seed, unsigned parts, unsigned rounds,
           uint8_t *out, weir_sums *sums) {
  __shared__ uint64_t codes[WEIR_QSGD_BUCKETS][WEIR_QSGD_PIECE / 8]; /* a byte each */
  const weir_member me = weir_member_of(feed.series, form.n, parts, seed);
  feed.x += me.at;
  if (feed.r != NULL) feed.r += me.at;
  if (feed.e != NULL) feed.e += me.at;
  out += me.number * feed.series.each;
  if (me.part == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
    out[threadIdx.x] = weir_header_byte(weir_qsgd_header(form, me.n), threadIdx.x);
  weir_sums mine = {};
  for (unsigned round = 0; round < rounds; round++) {
    weir_qsgd_bucket at = weir_qsgd_place(form, me.n, (size_t)me.part * rounds + round);
    encode_bucket<L2, NEAREST>(feed, form, at, me.seed, codes[threadIdx.x / WEIR_QSGD_LANES], out,
                               &mine);
  }
  if (sums != NULL) {
    mine = weir_block_sums(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = mine;
  }
}

weir_status weir_cuda_qsgd_feed(weir_cuda *cuda, const weir_feed &feed, size_t n,
                                weir_qsgd_options options, uint64_t seed, void *out,
                                size_t capacity, size_t *bytes) {
  *bytes = 0;
  weir_status status = weir_qsgd_ready(n, options);
  if (status != WEIR_OK) return status;
  weir_qsgd_form form = weir_qsgd_form_of(n, options);
  size_t needed = weir_qsgd_series_bytes(form, feed.series);
  if (capacity < needed) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", needed,
                     capacity);
  }
  auto kernel = options.l2        ? options.nearest ? encode<true, true> : encode<true, false>
                       : options.nearest ? encode<false, true>
                                  : encode<false, false>;
  const unsigned rounds = rounds_of(form);
  const size_t each = (size_t)form.bucket * WEIR_QSGD_BUCKETS * rounds;
  unsigned parts;
  const size_t blocks = weir_series_blocks(feed.series, n, each, &parts);
  weir_sums *sums = feed.e != NULL && n > 0 ? cuda->sums : NULL;
  status = weir_cuda_launch(cuda, "qsgd", blocks, WEIR_CUDA_BLOCK, kernel, feed, form, seed, parts,
                            rounds, (uint8_t *)out, sums);
  if (status == WEIR_OK && feed.e != NULL)
    status = weir_cuda_fold_fed(cuda, cuda->sums, n > 0 ? blocks : 0, feed.moments, feed.lost);
  *bytes = status == WEIR_OK ? needed : 0;
  return status;
}

weir_status weir_cuda_qsgd_encode(weir_cuda *cuda, const float *e, size_t n,
                                  weir_qsgd_options options, uint64_t seed, void *out,
                                  size_t capacity, size_t *bytes) {
  const weir_feed feed = {e, NULL, NULL, NULL, NULL, {}};
  return weir_cuda_qsgd_feed(cuda, feed, n, options, seed, out, capacity, bytes);
}
