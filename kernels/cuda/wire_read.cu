/* Reading messages of selected elements, as kernels/wire_read.c does; kernels/wire.c has their
 * form. What kind of list a message has is known on the device alone, so the kernels for all kinds
 * are queued, and those of other kinds return at once. */
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/wire.cuh"

/* --- the header ------------------------------------------------------------------------------ */

/* What the host knows of a message. */
struct read_job {
  const uint8_t *message;
  unsigned long long bytes;
  uint32_t n;
  uint32_t capacity;
  bool list; /* of as many indices, without values; otherwise values, of as many at most */
};

/* As code_of in kernels/wire_read.c: false for what no encoder writes. */
__device__ static bool code_of(uint64_t n, uint64_t k, uint32_t kind, uint32_t shift,
                               weir_list_code *code) {
  *code = kind == LIST_U32      ? weir_list_code{LIST_U32, 0, 4 * k}
          : kind == LIST_BITMAP ? weir_list_code{LIST_BITMAP, 0, (n + 7) / 8}
                                : weir_choose_list(n, k, true);
  return kind == code->kind && shift == code->shift;
}

__device__ static bool parse(const read_job &job, weir_read_state *out) {
  if (job.bytes < WEIR_WIRE_HEADER) return false;
  const uint32_t *head = (const uint32_t *)job.message;
  uint32_t kind = head[3] & 0xffU;
  uint32_t values = head[3] >> 8 & 0xffU;
  uint32_t shift = head[3] >> 16 & 0xffU;
  uint64_t k = head[1];
  if (head[0] != WEIR_WIRE_MAGIC || head[3] >> 24 != 0 || head[2] != job.n || k > job.n ||
      k > job.capacity || values > VALUE_FP16 || (values == VALUE_NONE) != job.list ||
      (job.list && k != job.capacity)) {
    return false;
  }
  weir_list_code code;
  uint64_t of_values = k * weir_wire_value_bytes(values);
  if (!code_of(job.n, k, kind, shift, &code) ||
      job.bytes - WEIR_WIRE_HEADER != code.bytes + of_values) {
    return false;
  }
  bool elias = kind == LIST_ELIAS;
  *out = weir_read_state{kind,
                         shift,
                         values,
                         (uint32_t)k,
                         job.n,
                         code.bytes,
                         elias ? weir_elias_high_bytes(job.n, k, shift) : code.bytes,
                         elias ? weir_elias_high_bits(job.n, k, shift) - 1 : job.n};
  return true;
}

/* One thread. */
__global__ static void open_message(read_job job, weir_read_state *state, uint32_t *fault) {
  weir_read_state found = {};
  if (!parse(job, &found)) {
    found = weir_read_state{};
    found.kind = LIST_MALFORMED;
    atomicOr(fault, WEIR_FAULT_MESSAGE);
  }
  *state = found;
}

/* --- lists ----------------------------------------------------------------------------------- */

/* The first section of an Elias-Fano list is shorter than a bitmap would be: tiles of elements are
 * enough tiles of its bits. */
constexpr unsigned TILE_WORDS = WEIR_TILE / 32;

__device__ static inline bool has_bits(const weir_read_state *state) {
  return state->kind == LIST_BITMAP || state->kind == LIST_ELIAS;
}

/* A warp a tile of bits: how many are set, 0 in lists of u32.  The entry after the last tile: 0. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    count_ones(const uint8_t *list, const weir_read_state *state, size_t tiles, uint2 *taken) {
  uint64_t bytes = has_bits(state) ? state->high : 0;
  for (size_t tile = weir_grid_warp(); tile <= tiles; tile += weir_grid_warps()) {
    uint32_t mine = 0;
    for (unsigned w = threadIdx.x % WEIR_WARP; w < TILE_WORDS; w += WEIR_WARP)
      mine += (uint32_t)__popc(weir_list_word(list, bytes, tile * TILE_WORDS + w));
    for (unsigned distance = WEIR_WARP / 2; distance > 0; distance /= 2)
      mine += __shfl_down_sync(WEIR_ALL_LANES, mine, distance);
    if (threadIdx.x % WEIR_WARP == 0) taken[tile] = make_uint2(mine, 0);
  }
}

/* The index whose one bit, the to-th, lies at `at`. */
__device__ static inline uint32_t index_of(const uint8_t *list, const weir_read_state *state,
                                           uint64_t at, uint32_t to) {
  if (state->kind == LIST_BITMAP) return (uint32_t)at;
  uint64_t bit = 8 * state->high + (uint64_t)to * state->shift;
  uint64_t pair = (uint64_t)weir_list_word(list, state->list, bit / 32 + 1) << 32 |
                  weir_list_word(list, state->list, bit / 32);
  uint32_t low = (uint32_t)(pair >> bit % 32) & ((1U << state->shift) - 1);
  return (uint32_t)(at - to) << state->shift | low;
}

/* No bit is set behind the last field. */
__device__ static bool spare_bits_clear(const uint8_t *list, const weir_read_state *state) {
  uint64_t used = (uint64_t)state->k * state->shift % 8;
  return state->kind != LIST_ELIAS || used == 0 || list[state->list - 1] >> used == 0;
}

__device__ static void emit_ones(const uint8_t *list, const weir_read_state *state, size_t tiles,
                                 const uint2 *taken, uint32_t *index, uint32_t *fault) {
  bool good = taken[tiles].x == state->k && spare_bits_clear(list, state);
  for (size_t tile = weir_grid_warp(); good && tile < tiles; tile += weir_grid_warps()) {
    uint32_t at = taken[tile].x;
    for (unsigned round = 0; round < TILE_WORDS / WEIR_WARP; round++) {
      uint64_t w = tile * TILE_WORDS + round * WEIR_WARP + threadIdx.x % WEIR_WARP;
      uint32_t bits = weir_list_word(list, state->high, w);
      uint32_t count = (uint32_t)__popc(bits);
      uint32_t before = weir_lanes_before(count);
      for (uint32_t to = at + before; bits != 0; bits &= bits - 1, to++) {
        uint64_t i = 32 * w + (uint32_t)__ffs((int)bits) - 1;
        index[to] = index_of(list, state, i, to);
        good = good && i < state->reach;
      }
      at += __shfl_sync(WEIR_ALL_LANES, before + count, WEIR_WARP - 1);
    }
    good = !__any_sync(WEIR_ALL_LANES, !good);
  }
  if (!good) atomicOr(fault, WEIR_FAULT_MESSAGE);
}

__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    emit_list(const uint8_t *list, const weir_read_state *state, size_t tiles, const uint2 *taken,
              uint32_t *index, uint32_t *fault) {
  if (has_bits(state)) {
    emit_ones(list, state, tiles, taken, index, fault);
  } else if (state->kind == LIST_U32) {
    WEIR_CUDA_EACH(i, state->k) { index[i] = ((const uint32_t *)list)[i]; }
  }
}

__global__ static void check_order(const weir_read_state *state, const uint32_t *index,
                                   uint32_t *fault) {
  if (*fault != 0) { /* of another number of indices */
    return;
  }
  WEIR_CUDA_EACH(i, state->k) {
    if (index[i] >= state->n || (i > 0 && index[i - 1] >= index[i]))
      atomicOr(fault, WEIR_FAULT_INDEX);
  }
}

/* --- values, and what is done with them ------------------------------------------------------ */

__device__ static inline float value_at(const uint8_t *values, uint32_t kind, size_t i) {
  uint32_t size = weir_wire_value_bytes(kind);
  uint32_t bits = 0;
  for (unsigned b = 0; b < size; b++) bits |= (uint32_t)values[size * i + b] << 8 * b;
  return kind == VALUE_FP32   ? weir_float_of(bits)
         : kind == VALUE_BF16 ? weir_bf16_value((uint16_t)bits)
                              : weir_fp16_value((uint16_t)bits);
}

__global__ static void clear(float *to, size_t n, const uint32_t *fault) {
  if (*fault == 0) {
    WEIR_CUDA_EACH(i, n) { to[i] = 0.0F; }
  }
}

__global__ static void place_values(const uint8_t *message, const weir_read_state *state,
                                    const uint32_t *index, float *to, bool add,
                                    const uint32_t *fault) {
  if (*fault != 0) return;
  const uint8_t *from = message + WEIR_WIRE_HEADER + state->list;
  WEIR_CUDA_EACH(i, state->k) {
    float value = value_at(from, state->values, i);
    uint32_t at = index[i];
    to[at] = add ? to[at] + value : value;
  }
}

/* --- the host's side ------------------------------------------------------------------------- */

/* The message's list into index; what is malformed is in the fault word then. */
static weir_status read_list(weir_cuda *cuda, const read_job &job, uint32_t *index) {
  weir_read_state *state = (weir_read_state *)cuda->search;
  size_t tiles = weir_cuda_tiles(job.n);
  const uint8_t *list = job.message + WEIR_WIRE_HEADER;
  weir_status status =
      weir_cuda_launch(cuda, "opening a message", 1, 1, open_message, job, state, cuda->fault);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "counting indices",
                              weir_cuda_grid(cuda, tiles + 1, WEIR_BLOCK_WARPS), WEIR_CUDA_BLOCK,
                              count_ones, list, state, tiles, cuda->taken);
  }
  if (status == WEIR_OK) status = weir_cuda_scan(cuda, cuda->taken, tiles + 1);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "reading indices",
                              weir_cuda_grid(cuda, tiles + 1, WEIR_BLOCK_WARPS), WEIR_CUDA_BLOCK,
                              emit_list, list, state, tiles, cuda->taken, index, cuda->fault);
  }
  return status == WEIR_OK
             ? weir_cuda_launch(cuda, "checking indices",
                                weir_cuda_grid(cuda, job.capacity, 4 * WEIR_CUDA_BLOCK),
                                WEIR_CUDA_BLOCK, check_order, state, index, cuda->fault)
             : status;
}

static weir_status check(weir_cuda *cuda, const void *message, size_t bytes, size_t n, size_t k) {
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status != WEIR_OK) return status;
  if ((uintptr_t)message % 4 != 0)
    return weir_fail(WEIR_E_INVALID, "a message at %p, not at a multiple of 4", message);
  return bytes >= WEIR_WIRE_HEADER
             ? WEIR_OK
             : weir_fail(WEIR_E_PROTOCOL, "malformed message of indices: %zu bytes", bytes);
}

weir_status weir_cuda_wire_read(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                size_t k, uint32_t *index) {
  const read_job job = {(const uint8_t *)message, bytes, (uint32_t)n, (uint32_t)k, true};
  weir_status status = check(cuda, message, bytes, n, k);
  return status == WEIR_OK ? read_list(cuda, job, index) : status;
}

weir_status weir_cuda_wire_decode_to(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                     float *to, bool add) {
  const size_t capacity = cuda->k < n ? cuda->k : n;
  const read_job job = {(const uint8_t *)message, bytes, (uint32_t)n, (uint32_t)capacity, false};
  weir_status status = check(cuda, message, bytes, n, capacity);
  if (status == WEIR_OK) status = read_list(cuda, job, cuda->read_index);
  if (status == WEIR_OK && !add && n > 0) {
    status = weir_cuda_launch(cuda, "clearing", weir_cuda_grid(cuda, n, 4 * WEIR_CUDA_BLOCK),
                              WEIR_CUDA_BLOCK, clear, to, n, cuda->fault);
  }
  return status == WEIR_OK
             ? weir_cuda_launch(
                   cuda, "placing values", weir_cuda_grid(cuda, job.capacity, 4 * WEIR_CUDA_BLOCK),
                   WEIR_CUDA_BLOCK, place_values, job.message,
                   (const weir_read_state *)cuda->search, cuda->read_index, to, add, cuda->fault)
             : status;
}
