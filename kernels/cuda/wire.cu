/* Messages of selected elements, the bytes of kernels/wire.c and kernels/wire_index.c: header,
 * index list (u32, bitmap or Rice-coded gaps, the shortest), values.  How long a Rice list is for
 * each of its parameters follows from how often each bit is set in a gap: the sum of gap >> s is
 * that of the counts of the bits b >= s times 2^(b - s).  So one pass over the indices tells all
 * lengths, one thread chooses, and the passes that follow write what was chosen. */
#include "kernels/cuda/message.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/wire.cuh"

extern "C" {
/* kernels/internal.h, which is C alone. */
size_t weir_index_bound(size_t n, size_t k);
}

constexpr unsigned SHIFTS = 32;

/* In the place of the search's state. */
struct wire_state {
  unsigned long long set[SHIFTS]; /* gaps with that bit */
  uint32_t kind;
  uint32_t shift;
  unsigned long long list; /* bytes */
};
static_assert(sizeof(wire_state) <= sizeof(weir_search_state), "its place");

/* What is sent. */
struct wire_pairs {
  const uint32_t *index;
  const float *value; /* or NULL */
  uint32_t k;
  uint32_t n;
};

__device__ static inline uint32_t gap_of(const wire_pairs &pairs, uint32_t i) {
  return pairs.index[i] - (i > 0 ? pairs.index[i - 1] + 1 : 0);
}

/* Counts bits, and checks that indices ascend: what follows writes where they say.  Lane b of a
 * warp keeps the count of bit b. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    count_bits(wire_pairs pairs, wire_state *state, uint32_t *fault) {
  unsigned lane = threadIdx.x % WEIR_WARP;
  uint32_t mine = 0;
  for (size_t warp = ((size_t)blockIdx.x * WEIR_CUDA_BLOCK + threadIdx.x) / WEIR_WARP;
       warp * WEIR_WARP < pairs.k; warp += (size_t)gridDim.x * (WEIR_CUDA_BLOCK / WEIR_WARP)) {
    size_t i = warp * WEIR_WARP + lane;
    bool there = i < pairs.k;
    bool good = !there || pairs.index[i] < pairs.n;
    good = good && (!there || i == 0 || pairs.index[i - 1] < pairs.index[i]);
    uint32_t gap = there && good ? gap_of(pairs, (uint32_t)i) : 0;
    if (!good) {
      atomicOr(fault, WEIR_FAULT_INDEX);
    }
    for (unsigned b = 0; b < SHIFTS; b++) {
      uint32_t with = (uint32_t)__popc(__ballot_sync(WEIR_ALL_LANES, gap >> b & 1U));
      mine += lane == b ? with : 0;
    }
  }
  if (mine > 0) {
    atomicAdd(&state->set[lane], (unsigned long long)mine);
  }
}

/* As weir_index_choose: the first parameter, from the guess down, that the next one does
 * not beat. */
__device__ static uint32_t best_shift(const wire_state *state, uint64_t n, uint64_t k,
                                      uint64_t *bits) {
  uint64_t length[SHIFTS];
  uint64_t zeros = 0;
  uint32_t best = 0;
  for (unsigned s = SHIFTS;
       s-- > 0;) { /* gap >> s is twice gap >> (s + 1), and 1 where bit s is set */
    zeros = 2 * zeros + state->set[s];
    length[s] = k * (s + 1) + zeros;
  }
  while (best < SHIFTS - 1 && n >> (best + 1) >= k) {
    best++;
  }
  while (best > 0 && length[best - 1] < length[best]) {
    best--;
  }
  *bits = length[best];
  return best;
}

/* One thread: chooses the list and writes the header. */
__global__ static void choose(wire_pairs pairs, bool automatic, uint32_t values, wire_state *state,
                              uint8_t *out, unsigned long long *bytes) {
  uint64_t n = pairs.n;
  uint64_t k = pairs.k;
  uint64_t list = 4 * k;
  uint32_t kind = LIST_U32;
  uint32_t shift = 0;
  if (automatic && k > 0) {
    uint64_t bits;
    uint32_t best = best_shift(state, n, k, &bits);
    if ((n + 7) / 8 < list) {
      kind = LIST_BITMAP;
      list = (n + 7) / 8;
    }
    if ((bits + 7) / 8 < list) {
      kind = LIST_RICE;
      list = (bits + 7) / 8;
      shift = best;
    }
  }
  state->kind = kind;
  state->shift = shift;
  state->list = list;
  const uint32_t head[4] = {WEIR_WIRE_MAGIC, pairs.k, pairs.n, kind | values << 8 | shift << 16};
  for (unsigned i = 0; i < WEIR_WIRE_HEADER; i++) {
    out[i] = (uint8_t)(head[i / 4] >> 8 * (i % 4));
  }
  *bytes = WEIR_WIRE_HEADER + list + k * weir_wire_value_bytes(values);
}

/* --- the list -------------------------------------------------------------------------------- */

/* A block a tile of indices: the zeros that its gaps take. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    count_zeros(wire_pairs pairs, const wire_state *state, const uint32_t *fault, uint2 *taken) {
  uint32_t zeros = 0;
  if (state->kind == LIST_RICE && *fault == 0) {
    for (uint32_t i = threadIdx.x; i < WEIR_TILE; i += WEIR_CUDA_BLOCK) {
      size_t at = (size_t)blockIdx.x * WEIR_TILE + i;
      zeros += at < pairs.k ? gap_of(pairs, (uint32_t)at) >> state->shift : 0;
    }
  }
  uint32_t total;
  (void)weir_block_before(zeros, &total);
  if (threadIdx.x == 0) {
    taken[blockIdx.x] = make_uint2(total, 0);
  }
}

/* Sets the bits of code (at most 32 of them) from bit number `at` on, in words that are 0 there. */
__device__ static inline void set_bits(uint32_t *word, uint64_t at, uint64_t code) {
  uint64_t bits = code << at % 32;
  atomicOr(&word[at / 32], (uint32_t)bits);
  if (bits >> 32 != 0) {
    atomicOr(&word[at / 32 + 1], (uint32_t)(bits >> 32));
  }
}

/* A block a tile of indices; list: all zero, aligned to words. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    write_list(wire_pairs pairs, const wire_state *state, const uint32_t *fault, const uint2 *taken,
               uint32_t *list) {
  if (*fault != 0) {
    return;
  }
  uint32_t kind = state->kind;
  uint32_t shift = state->shift;
  uint32_t zeros = taken[blockIdx.x].x; /* of all gaps before */
  for (uint32_t i = threadIdx.x; i < WEIR_TILE; i += WEIR_CUDA_BLOCK) {
    size_t at = (size_t)blockIdx.x * WEIR_TILE + i;
    bool there = at < pairs.k;
    uint32_t index = there ? pairs.index[at] : 0;
    if (there && kind == LIST_U32) {
      list[at] = index;
    } else if (there && kind == LIST_BITMAP) {
      set_bits(list, index, 1);
    }
    if (kind == LIST_RICE) { /* the same for all threads, who wait for each other */
      uint32_t gap = there ? gap_of(pairs, (uint32_t)at) : 0;
      uint32_t total;
      uint32_t before = weir_block_before(gap >> shift, &total);
      uint64_t place = at * (shift + 1) + zeros + before + (gap >> shift);
      if (there) {
        set_bits(list, place, 1 | (uint64_t)(gap & ((1U << shift) - 1)) << 1);
      }
      zeros += total;
    }
  }
}

/* --- values ---------------------------------------------------------------------------------- */

/* The list's length decides whether they lie aligned. */
__global__ static void write_values(wire_pairs pairs, uint32_t values, const wire_state *state,
                                    const uint32_t *fault, uint8_t *out, float *error) {
  if (*fault != 0) {
    return;
  }
  uint8_t *to = out + WEIR_WIRE_HEADER + state->list;
  unsigned size = weir_wire_value_bytes(values);
  WEIR_CUDA_EACH(i, pairs.k) {
    float x = pairs.value[i];
    uint32_t bits = values == VALUE_BF16 ? weir_bf16_bits(x) : weir_fp16_bits(x);
    float sent =
        values == VALUE_BF16 ? weir_bf16_value((uint16_t)bits) : weir_fp16_value((uint16_t)bits);
    if (values == VALUE_FP32) {
      memcpy(&bits, &x, sizeof bits);
    } else if (error != NULL) {
      error[i] += x - sent;
    }
    for (unsigned b = 0; b < size; b++) {
      to[size * i + b] = (uint8_t)(bits >> 8 * b);
    }
  }
}

/* --- the host's side ------------------------------------------------------------------------- */

static weir_status queue(weir_cuda *cuda, const wire_pairs &pairs, bool automatic, uint32_t values,
                         uint8_t *out, unsigned long long *bytes, float *error) {
  wire_state *state = (wire_state *)cuda->search;
  size_t tiles = weir_cuda_tiles(pairs.k);
  size_t grid = weir_cuda_grid(cuda, pairs.k, 4 * WEIR_CUDA_BLOCK);
  weir_status status = weir_cuda_launch(cuda, "counting gaps", grid, WEIR_CUDA_BLOCK, count_bits,
                                        pairs, state, cuda->fault);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "choosing a list", 1, 1, choose, pairs, automatic, values,
                              state, out, bytes);
  }
  if (status == WEIR_OK && tiles > 0) {
    status = weir_cuda_launch(cuda, "counting zeros", tiles, WEIR_CUDA_BLOCK, count_zeros, pairs,
                              state, cuda->fault, cuda->taken);
  }
  if (status == WEIR_OK && tiles > 0) {
    status = weir_cuda_scan(cuda, cuda->taken, tiles);
  }
  if (status == WEIR_OK && tiles > 0) {
    status =
        weir_cuda_launch(cuda, "writing a list", tiles, WEIR_CUDA_BLOCK, write_list, pairs, state,
                         cuda->fault, cuda->taken, (uint32_t *)(out + WEIR_WIRE_HEADER));
  }
  return status == WEIR_OK && values != VALUE_NONE && tiles > 0
             ? weir_cuda_launch(cuda, "writing values", grid, WEIR_CUDA_BLOCK, write_values, pairs,
                                values, state, cuda->fault, out, error)
             : status;
}

size_t weir_cuda_wire_bound(size_t n, size_t k, weir_wire_format format) {
  return (weir_wire_bound(n, k, format) + 3) / 4 * 4;
}

weir_status weir_cuda_wire_encode(weir_cuda *cuda, size_t n, const uint32_t *index,
                                  const float *value, size_t k, weir_wire_format format, void *out,
                                  size_t capacity, uint64_t *bytes, float *error) {
  if (format >= WEIR_WIRE_COUNT || (uintptr_t)out % 4 != 0) {
    return weir_fail(WEIR_E_INVALID, "wire format %u into a message at %p", (unsigned)format, out);
  }
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status == WEIR_OK && capacity < weir_cuda_wire_bound(n, k, format)) {
    return weir_fail(WEIR_E_CAPACITY, "a message of up to %zu bytes does not fit into %zu",
                     weir_cuda_wire_bound(n, k, format), capacity);
  }
  bool automatic = format != WEIR_WIRE_PAPER;
  size_t list = automatic ? (weir_index_bound(n, k) + 3) / 4 * 4 : 4 * k;
  uint32_t values = value == NULL                   ? VALUE_NONE
                    : format == WEIR_WIRE_AUTO_BF16 ? VALUE_BF16
                    : format == WEIR_WIRE_AUTO_FP16 ? VALUE_FP16
                                                    : VALUE_FP32;
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaMemsetAsync(cuda->search, 0, sizeof(wire_state), cuda->stream),
                             "counting gaps");
  }
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaMemsetAsync((char *)out + WEIR_WIRE_HEADER, 0, list, cuda->stream),
                             "an index list");
  }
  wire_pairs pairs = {index, value, (uint32_t)k, (uint32_t)n};
  return status == WEIR_OK ? queue(cuda, pairs, automatic, values, (uint8_t *)out,
                                   (unsigned long long *)bytes, error)
                           : status;
}
