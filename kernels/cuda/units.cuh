/* The quantizers whose unit is a tensor (terngrad, onebit, efsignsgd), but for what is their own: a
 * CODEC has
 *
 *   ID, BITS of a code, SCALES of a unit, MODES the highest mode byte it knows
 *   MEASURED, measure(x, sums), reach(sums, count)
 *                       a pass before encoding, with one float as its result for each tensor
 *   code(x, reach, draw, sums)
 *                       the code of an element, which may add to the sums of the pass
 *   scales(sums, count, reach, scale)
 *                       what goes before the codes of a tensor of count elements
 *   sane(scale)         do scales from the wire give finite values only?
 *   value(scale, code)  of a decoded element
 *
 * A block takes a piece of a tensor, a thread groups of eight elements, whose codes are whole
 * bytes. The scales are written last, by a block a tensor; only then is it known what is lost,
 * which the codes, read again, tell.  Sums over a tensor run in the order of sums.cuh, not in the
 * CPU's. */
#ifndef WEIR_KERNELS_CUDA_UNITS_CUH
#define WEIR_KERNELS_CUDA_UNITS_CUH

#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/message.cuh"
#include "kernels/cuda/tensors.cuh"

/* Where a tensor's scales begin in the message; its codes follow them. */
template <typename CODEC>
__device__ static inline size_t weir_unit_place(const weir_tensor &tensor, uint32_t number) {
  return WEIR_MESSAGE_HEADER + (size_t)number * CODEC::SCALES * sizeof(float) +
         (size_t)tensor.group * CODEC::BITS;
}

/* Where a piece's codes begin. */
template <typename CODEC>
__device__ static inline size_t weir_codes_place(const weir_piece &piece) {
  return weir_unit_place<CODEC>(piece.tensor, piece.number) + CODEC::SCALES * sizeof(float) +
         piece.at / 8 * CODEC::BITS;
}

/* --- encoding -------------------------------------------------------------------------------- */

/* Eight elements of what is encoded, which go to e where they are a sum; zeros beyond the end count
 * for nothing in the moments. */
__device__ static inline void weir_feed8(const weir_feed &feed, size_t begin, uint32_t at,
                                         uint32_t count, float x[8], weir_sums *moments,
                                         weir_stage *stage) {
  weir_load8(feed.x + begin, at, count, x);
  if (feed.r == NULL) return;
  float r[8];
  weir_load8(feed.r + begin, at, count, r);
  for (unsigned q = 0; q < 8; q++) {
    x[q] += r[q];
    weir_add_fed(moments, x[q]);
  }
  weir_store8(feed.e + begin, at, count, x, stage);
}

/* A block's sums, which are those of a piece; every thread calls it. */
__device__ static inline void weir_piece_sums(weir_sums mine, weir_sums *sums) {
  mine = weir_block_sums(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_units_measure(weir_feed feed, weir_tensor_table table) {
  __shared__ weir_stage stage;
  weir_piece piece = weir_piece_of(table, blockIdx.x);
  size_t begin = (size_t)piece.tensor.begin + piece.at;
  weir_sums mine = {};
  weir_sums moments = {};
  WEIR_EACH_EIGHT(at, piece.count) {
    float x[8];
    weir_feed8(feed, begin, at, piece.count, x, &moments, &stage);
    for (unsigned q = 0; q < 8; q++) {
      CODEC::measure(x[q], &mine); /* zeros beyond the end measure nothing */
    }
  }
  weir_piece_sums(mine, table.sums);
  if (feed.r != NULL) weir_piece_sums(moments, table.fed);
}

template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_units_reach(weir_tensor_table table) {
  const weir_tensor &tensor = table.tensor[blockIdx.x];
  uint32_t pieces = table.tensor[blockIdx.x + 1].piece - tensor.piece;
  weir_sums all = weir_fold_sums(table.sums + tensor.piece, pieces);
  if (threadIdx.x == 0) table.reach[blockIdx.x] = CODEC::reach(all, tensor.count);
}

template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_units_encode(weir_feed feed, weir_tensor_table table, uint64_t seed, uint8_t *out) {
  __shared__ weir_stage stage;
  weir_piece piece = weir_piece_of(table, blockIdx.x);
  size_t begin = (size_t)piece.tensor.begin + piece.at;
  uint8_t *codes = out + weir_codes_place<CODEC>(piece);
  uint32_t key = weir_unit_key(seed, (uint64_t)piece.number + 1) + piece.at;
  float reach = CODEC::MEASURED ? table.reach[piece.number] : 0.0F;
  weir_sums mine = {};
  weir_sums moments = {};
  WEIR_EACH_EIGHT(at, piece.count) {
    float x[8];
    weir_feed8(feed, begin, at, piece.count, x, &moments, &stage);
    uint64_t w = 0;
    for (unsigned q = 0; q < 8; q++) {
      if (at + q < piece.count)
        w |= (uint64_t)CODEC::code(x[q], reach, key + at + q, &mine) << 8 * q;
    }
    w = weir_pack8(w, CODEC::BITS);
    for (unsigned b = 0; b < CODEC::BITS && at < piece.count; b++)
      codes[at / 8 * CODEC::BITS + b] = (uint8_t)(w >> 8 * b);
  }
  weir_piece_sums(mine, table.sums);
  if (feed.r != NULL) weir_piece_sums(moments, table.fed);
}

/* Header and scales; one block more than tensors, so that there is one when there are none. */
template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_units_scales(weir_tensor_table table, uint32_t n, uint8_t *out) {
  if (blockIdx.x == table.tensors) {
    weir_header header = {n, 0, CODEC::ID, CODEC::BITS, 0};
    if (threadIdx.x < WEIR_MESSAGE_HEADER) out[threadIdx.x] = weir_header_byte(header, threadIdx.x);
    return;
  }
  const weir_tensor &tensor = table.tensor[blockIdx.x];
  uint32_t pieces = table.tensor[blockIdx.x + 1].piece - tensor.piece;
  weir_sums all = weir_fold_sums(table.sums + tensor.piece, pieces);
  if (threadIdx.x == 0) {
    float scale[CODEC::SCALES];
    CODEC::scales(all, tensor.count, CODEC::MEASURED ? table.reach[blockIdx.x] : 0.0F, scale);
    uint8_t *to = out + weir_unit_place<CODEC>(tensor, blockIdx.x);
    for (unsigned s = 0; s < CODEC::SCALES; s++)
      weir_store_float(to + s * sizeof(float), scale[s], false);
  }
}

/* --- decoding -------------------------------------------------------------------------------- */

template <typename CODEC>
__device__ static inline bool weir_load_scales(const uint8_t *message, const weir_tensor &tensor,
                                               uint32_t number, float scale[CODEC::SCALES]) {
  const uint8_t *from = message + weir_unit_place<CODEC>(tensor, number);
  for (unsigned s = 0; s < CODEC::SCALES; s++)
    scale[s] = weir_load_float(from + s * sizeof(float), false);
  return CODEC::sane(scale);
}

/* The codes of eight elements, a byte each; zeros from count on. */
template <typename CODEC>
__device__ static inline uint64_t weir_load_codes(const uint8_t *codes, uint32_t at,
                                                  uint32_t count) {
  uint64_t w = 0;
  for (unsigned b = 0; b < CODEC::BITS && at < count; b++)
    w |= (uint64_t)codes[at / 8 * CODEC::BITS + b] << 8 * b;
  return weir_unpack8(w, CODEC::BITS);
}

/* e, the message of which has been written, becomes what that has lost. */
template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_units_lose(const uint8_t *message, weir_tensor_table table, float *e) {
  __shared__ weir_stage stage;
  weir_piece piece = weir_piece_of(table, blockIdx.x);
  float *left = e + piece.tensor.begin + piece.at;
  const uint8_t *codes = message + weir_codes_place<CODEC>(piece);
  float scale[CODEC::SCALES];
  (void)weir_load_scales<CODEC>(message, piece.tensor, piece.number, scale);
  weir_sums mine = {};
  WEIR_EACH_EIGHT(at, piece.count) {
    uint64_t w = weir_load_codes<CODEC>(codes, at, piece.count);
    float x[8];
    weir_load8(left, at, piece.count, x);
    for (unsigned q = 0; q < 8 && at + q < piece.count; q++) {
      x[q] -= CODEC::value(scale, (uint8_t)(w >> 8 * q));
      mine.sum[WEIR_FED_LOST] += (double)x[q] * (double)x[q];
    }
    weir_store8(left, at, piece.count, x, &stage);
  }
  weir_piece_sums(mine, table.sums);
}

template <typename CODEC>
__global__ static void weir_units_check(weir_intake in, weir_tensor_table table, uint32_t n,
                                        uint32_t *fault) {
  bool good = true;
  for (uint32_t m = 0; m < in.count; m++) {
    const uint8_t *message = in.first + m * in.pitch;
    if (blockIdx.x == 0 && threadIdx.x < WEIR_MESSAGE_HEADER) {
      weir_header header = {n, 0, CODEC::ID, CODEC::BITS, 0};
      uint8_t byte = message[threadIdx.x];
      good = good &&
             (threadIdx.x == WEIR_MESSAGE_MODE ? byte <= CODEC::MODES
                                               : byte == weir_header_byte(header, threadIdx.x));
    }
    WEIR_CUDA_EACH(t, table.tensors) {
      float scale[CODEC::SCALES];
      good = weir_load_scales<CODEC>(message, table.tensor[t], (uint32_t)t, scale) && good;
    }
  }
  if (!good) atomicOr(fault, WEIR_FAULT_MESSAGE);
}

template <typename CODEC>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    weir_units_decode(weir_intake in, weir_tensor_table table, const uint32_t *fault) {
  __shared__ weir_stage stage;
  if (*fault != 0) return;
  weir_piece piece = weir_piece_of(table, blockIdx.x);
  float *out = in.to + piece.tensor.begin + piece.at;
  bool finite = true;
  WEIR_EACH_EIGHT(at, piece.count) {
    float x[8] = {};
    if (in.add) weir_load8(out, at, piece.count, x);
    for (uint32_t m = 0; m < in.count; m++) {
      const uint8_t *message = in.first + m * in.pitch;
      uint64_t w =
          weir_load_codes<CODEC>(message + weir_codes_place<CODEC>(piece), at, piece.count);
      float scale[CODEC::SCALES];
      (void)weir_load_scales<CODEC>(message, piece.tensor, piece.number, scale);
      for (unsigned q = 0; q < 8; q++) {
        float value = CODEC::value(scale, (uint8_t)(w >> 8 * q));
        x[q] = in.add || m > 0 ? x[q] + value : value;
      }
    }
    for (unsigned q = 0; q < 8; q++) finite = weir_publish(in, x[q], &x[q]) && finite;
    weir_store8(out, at, piece.count, x, &stage);
  }
  weir_report_overflow(in, finite);
}

/* --- the host's side ------------------------------------------------------------------------- */

/* Length of a message; the layout is the context's. */
template <typename CODEC>
static size_t weir_units_bytes(const weir_cuda *cuda) {
  return WEIR_MESSAGE_HEADER +
         (size_t)cuda->tensors->table.tensors * CODEC::SCALES * sizeof(float) +
         cuda->tensors->groups * CODEC::BITS;
}

template <typename CODEC>
static weir_status weir_units_measure_on(weir_cuda *cuda, const weir_feed &feed) {
  const weir_tensor_table &table = cuda->tensors->table;
  if (table.pieces == 0) return WEIR_OK;
  weir_status status = weir_cuda_launch(cuda, "measuring tensors", table.pieces, WEIR_CUDA_BLOCK,
                                        weir_units_measure<CODEC>, feed, table);
  return status == WEIR_OK ? weir_cuda_launch(cuda, "measuring tensors", table.tensors,
                                              WEIR_CUDA_BLOCK, weir_units_reach<CODEC>, table)
                           : status;
}

/* After the message has been written: e becomes what that has lost. */
template <typename CODEC>
static weir_status weir_units_lose_on(weir_cuda *cuda, const weir_feed &feed, const uint8_t *out) {
  const weir_tensor_table &table = cuda->tensors->table;
  weir_status status = WEIR_OK;
  if (feed.moments != NULL)
    status = weir_cuda_fold_fed(cuda, table.fed, table.pieces, feed.moments, NULL);
  if (status == WEIR_OK && table.pieces > 0) {
    status = weir_cuda_launch(cuda, "what is lost", table.pieces, WEIR_CUDA_BLOCK,
                              weir_units_lose<CODEC>, out, table, feed.e);
  }
  return status == WEIR_OK ? weir_cuda_fold_fed(cuda, table.sums, table.pieces, NULL, feed.lost)
                           : status;
}

/* What the codec's row in the table does. */
template <typename CODEC>
static weir_status weir_units_encode_on(weir_cuda *cuda, const weir_feed &feed,
                                        const weir_layout *layout, uint64_t seed, void *out,
                                        size_t capacity, size_t *bytes) {
  weir_status status = weir_cuda_tensors_ready(cuda, layout);
  if (status != WEIR_OK) return status;
  size_t needed = weir_units_bytes<CODEC>(cuda);
  if (capacity < needed) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", needed,
                     capacity);
  }
  const weir_tensor_table &table = cuda->tensors->table;
  uint8_t *to = (uint8_t *)out;
  weir_feed coded = feed;
  if constexpr (CODEC::MEASURED) {
    status = weir_units_measure_on<CODEC>(cuda, feed);
    coded.x = feed.r != NULL ? feed.e : feed.x;
    coded.r = NULL;
  }
  if (status == WEIR_OK && table.pieces > 0) {
    status = weir_cuda_launch(cuda, "encoding tensors", table.pieces, WEIR_CUDA_BLOCK,
                              weir_units_encode<CODEC>, coded, table, seed, to);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "encoding tensors", (size_t)table.tensors + 1, WEIR_CUDA_BLOCK,
                              weir_units_scales<CODEC>, table,
                              (uint32_t)layout->offset[layout->tensors], to);
  }
  if (status == WEIR_OK && feed.e != NULL) status = weir_units_lose_on<CODEC>(cuda, feed, to);
  *bytes = status == WEIR_OK ? needed : 0;
  return status;
}

template <typename CODEC>
static weir_status weir_units_decode_on(weir_cuda *cuda, const weir_intake &in,
                                        const weir_layout *layout) {
  weir_status status = weir_cuda_tensors_ready(cuda, layout);
  if (status != WEIR_OK) return status;
  if (in.bytes != weir_units_bytes<CODEC>(cuda)) {
    return weir_fail(WEIR_E_PROTOCOL, "malformed %s message: wrong length",
                     weir_codec_name(CODEC::ID));
  }
  const weir_tensor_table &table = cuda->tensors->table;
  status = weir_cuda_launch(cuda, "checking a message",
                            weir_cuda_grid(cuda, table.tensors, WEIR_CUDA_BLOCK), WEIR_CUDA_BLOCK,
                            weir_units_check<CODEC>, in, table,
                            (uint32_t)layout->offset[layout->tensors], cuda->fault);
  return status == WEIR_OK && table.pieces > 0
             ? weir_cuda_launch(cuda, "decoding tensors", table.pieces, WEIR_CUDA_BLOCK,
                                weir_units_decode<CODEC>, in, table, cuda->fault)
             : status;
}

/* A series of messages has been refused by then (weir_cuda_encode_series). */
static inline weir_status weir_units_ready(uint32_t codec, unsigned bits, double cr) {
  return cr == bits / 32.0 ? WEIR_OK
                           : weir_fail(WEIR_E_INVALID, "%s takes %u bits, ratio %g, not %g",
                                       weir_codec_name(codec), bits, bits / 32.0, cr);
}

/* The functions of a CODEC's row, weir_cuda_CODEC_encode and _decode; cr is the plan's. */
#define WEIR_UNITS_ROW(CODEC)                                                                 \
  weir_status weir_cuda_##CODEC##_encode(weir_cuda *cuda, const weir_feed &feed,              \
                                         const weir_layout *layout, double cr, uint64_t seed, \
                                         void *out, size_t capacity, size_t *bytes) {         \
    *bytes = 0;                                                                               \
    weir_status status = weir_units_ready(CODEC::ID, CODEC::BITS, cr);                        \
    return status == WEIR_OK                                                                  \
               ? weir_units_encode_on<CODEC>(cuda, feed, layout, seed, out, capacity, bytes)  \
               : status;                                                                      \
  }                                                                                           \
  weir_status weir_cuda_##CODEC##_decode(weir_cuda *cuda, const weir_intake &in,              \
                                         const weir_layout *layout, double cr) {              \
    weir_status status = weir_units_ready(CODEC::ID, CODEC::BITS, cr);                        \
    return status == WEIR_OK ? weir_units_decode_on<CODEC>(cuda, in, layout) : status;        \
  }

#endif
