/* Reading a Rice list (kernels/wire_index.c) with many threads at a time.  Where a chunk of bits
 * begins inside of a code is one of shift + 1 states: how many low bits are still to come (0:
 * zeros, or the one bit).  A warp reads its chunk from every state, a lane each: in which state the
 * chunk ends, how many codes end in it, and what they and parts of codes add to the sum of gaps.
 * Such tables are composed chunk by chunk within groups, then group by group from state 0, which
 * the list begins with; after that every chunk's first state, index and code number are known, and
 * a thread a chunk writes the indices. */
#include "kernels/cuda/wire.cuh"

constexpr unsigned CHUNK_WORDS = 32; /* of 32 bits: one for each lane */
constexpr unsigned CHUNK_BITS = 32 * CHUNK_WORDS;
constexpr unsigned CHUNK_BYTES = CHUNK_BITS / 8;
constexpr unsigned GROUP = 64; /* chunks */
constexpr unsigned STATES = 32;

/* --- Rice codes ------------------------------------------------------------------------------ */

/* What reading a chunk, or several, from one state gives: the state after it (5 bits), codes ended
 * (17), and what is added to the sum of gaps (42), no more than the largest that fits: it is then
 * out of range whatever follows. */
constexpr uint64_t GAPS_MOST = (1ULL << 42) - 1;
struct rice_run {
  uint32_t state;
  uint32_t codes;
  uint64_t gaps;
};
__device__ static inline uint64_t pack(const rice_run &run) {
  return (run.gaps < GAPS_MOST ? run.gaps : GAPS_MOST) << 22 | (uint64_t)run.codes << 5 | run.state;
}
__device__ static inline rice_run unpack(uint64_t bits) {
  return rice_run{(uint32_t)bits & 31U, (uint32_t)(bits >> 5) & 0x1ffffU, bits >> 22};
}

__device__ static inline uint32_t low_bits(uint32_t word, uint32_t count) {
  return count < 32 ? word & ((1U << count) - 1) : word;
}

/* Reads the bits [0, end) of a chunk, from a state on.  bits(at): 32 bits from bit `at` on, of
 * which those from end on may be anything.  ended(run, at) for every code that ends, before bit
 * `at`. */
template <typename BITS, typename ENDED>
__device__ static inline rice_run read_chunk(BITS bits, uint32_t end, uint32_t shift,
                                             uint32_t state, ENDED ended) {
  rice_run run = {state, 0, 0};
  uint32_t at = 0;
  uint32_t from = shift - state; /* of the low bits the next is this one */
  while (at < end) {
    if (run.state == 0) {
      uint32_t left = end - at < 32 ? end - at : 32;
      uint32_t window = low_bits(bits(at), left);
      uint32_t zeros = window != 0 ? (uint32_t)__ffs((int)window) - 1 : left;
      run.gaps += (uint64_t)zeros << shift;
      at += zeros + (window != 0);
      if (window == 0) {
        continue;
      }
      run.state = shift;
      from = 0;
    }
    uint32_t take = run.state < end - at ? run.state : end - at;
    if (take > 0) {
      run.gaps += (uint64_t)low_bits(bits(at), take) << from;
      at += take;
      run.state -= take;
    }
    if (run.state == 0) {
      ended(run, at);
      run.codes++;
    }
  }
  return run;
}

/* Bits of chunk number `chunk` that belong to the list. */
__device__ static inline uint32_t chunk_end(const weir_read_state *state, uint64_t chunk) {
  uint64_t left = 8 * state->list - chunk * CHUNK_BITS;
  return left < CHUNK_BITS ? (uint32_t)left : CHUNK_BITS;
}

__device__ static inline uint64_t chunks_of(const weir_read_state *state) {
  return state->kind == LIST_RICE ? (state->list + CHUNK_BYTES - 1) / CHUNK_BYTES : 0;
}

/* A warp a chunk, a lane a state. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    read_chunks(const uint8_t *list, const weir_read_state *state, uint64_t *table) {
  __shared__ uint32_t words[WEIR_BLOCK_WARPS][CHUNK_WORDS + 1];
  uint32_t *mine = words[threadIdx.x / WEIR_WARP];
  unsigned lane = threadIdx.x % WEIR_WARP;
  uint64_t chunks = chunks_of(state);
  uint32_t shift = state->shift;
  for (uint64_t chunk = weir_grid_warp(); chunk < chunks; chunk += weir_grid_warps()) {
    __syncwarp();
    mine[lane] = weir_list_word(list, state->list, chunk * CHUNK_WORDS + lane);
    if (lane == 0) {
      mine[CHUNK_WORDS] = 0;
    }
    __syncwarp();
    auto bits = [mine](uint32_t at) {
      uint64_t pair = (uint64_t)mine[at / 32 + 1] << 32 | mine[at / 32];
      return (uint32_t)(pair >> at % 32);
    };
    if (lane <= shift) {
      rice_run run =
          read_chunk(bits, chunk_end(state, chunk), shift, lane, [](const rice_run &, uint32_t) {});
      table[chunk * STATES + lane] = pack(run);
    }
  }
}

/* The run that follows another, found among its chunk's, a lane each. */
__device__ static inline rice_run follow(const rice_run &run, uint64_t of_lane) {
  rice_run more = unpack(__shfl_sync(WEIR_ALL_LANES, of_lane, (int)run.state));
  return rice_run{more.state, run.codes + more.codes, run.gaps + more.gaps};
}

/* A warp a group of chunks, a lane a state of the group's begin: instead of a chunk's own table,
 * what comes before it in the group; and in of_group what the whole group gives. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    compose_groups(const weir_read_state *state, uint64_t *table, uint64_t *of_group) {
  unsigned lane = threadIdx.x % WEIR_WARP;
  uint64_t chunks = chunks_of(state);
  bool used = lane <= state->shift;
  for (uint64_t group = weir_grid_warp(); group * GROUP < chunks; group += weir_grid_warps()) {
    rice_run run = {used ? lane : 0, 0, 0};
    for (uint64_t c = group * GROUP; c < chunks && c < (group + 1) * GROUP; c++) {
      uint64_t *row = table + c * STATES;
      uint64_t of_lane = used ? row[lane] : 0;
      if (used) {
        row[lane] = pack(run);
      }
      run = follow(run, of_lane);
    }
    if (used) {
      of_group[group * STATES + lane] = pack(run);
    }
  }
}

/* One warp: where every group begins, and whether the whole list gives k codes and no part of one
 * more. */
__global__ static void walk_groups(const weir_read_state *state, const uint64_t *of_group,
                                   weir_rice_start *start, uint32_t *fault) {
  unsigned lane = threadIdx.x;
  uint64_t chunks = chunks_of(state);
  uint64_t groups = (chunks + GROUP - 1) / GROUP;
  weir_rice_start at = {0, 0, 0};
  for (uint64_t group = 0; group < groups; group++) {
    if (lane == 0) {
      start[group] = at;
    }
    uint64_t of_lane = lane <= state->shift ? of_group[group * STATES + lane] : 0;
    rice_run more = follow(rice_run{at.state, 0, 0}, of_lane);
    at.codes += more.codes;
    at.gaps += more.gaps;
    at.gaps = at.gaps < GAPS_MOST ? at.gaps : GAPS_MOST;
    at.state = more.state;
  }
  if (lane == 0 && state->kind == LIST_RICE && (at.codes != state->k || at.state != 0)) {
    atomicOr(fault, WEIR_FAULT_MESSAGE);
  }
}

/* A thread a chunk. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    emit_rice(const uint8_t *list, const weir_read_state *state, const uint64_t *table,
              const weir_rice_start *start, uint32_t *index, uint32_t *fault) {
  if (*fault != 0) { /* of another number of codes */
    return;
  }
  WEIR_CUDA_EACH(chunk, chunks_of(state)) {
    weir_rice_start group = start[chunk / GROUP];
    rice_run before = unpack(table[chunk * STATES + group.state]);
    uint64_t number = group.codes + before.codes;
    uint64_t gaps = group.gaps + before.gaps;
    bool good = true;
    auto bits = [list, state, chunk](uint32_t at) {
      uint64_t word = chunk * CHUNK_WORDS + at / 32;
      uint64_t pair = (uint64_t)weir_list_word(list, state->list, word + 1) << 32 |
                      weir_list_word(list, state->list, word);
      return (uint32_t)(pair >> at % 32);
    };
    (void)read_chunk(bits, chunk_end(state, chunk), state->shift, before.state,
                     [&](const rice_run &run, uint32_t at) {
                       uint64_t i = number + run.codes;
                       uint64_t place = gaps + run.gaps + i;
                       /* The last one ends in the last byte. */
                       good =
                           good && place < state->n &&
                           (i + 1 < state->k || (chunk * CHUNK_BITS + at + 7) / 8 == state->list);
                       index[i] = (uint32_t)place;
                     });
    if (!good) {
      atomicOr(fault, WEIR_FAULT_MESSAGE);
    }
  }
}

/* --- the host's side ------------------------------------------------------------------------- */

size_t weir_cuda_rice_chunks(size_t n, size_t k) {
  /* A Rice list is written where it is shorter than the other two. */
  size_t bitmap = n / 8 + 1;
  return (4 * k < bitmap ? 4 * k : bitmap) / CHUNK_BYTES + 1;
}
size_t weir_cuda_rice_groups(size_t chunks) { return (chunks + GROUP - 1) / GROUP; }
size_t weir_cuda_rice_bytes(const weir_cuda *cuda) { return cuda->rice_chunks * CHUNK_BYTES; }
size_t weir_cuda_rice_table(size_t chunks) { return chunks * STATES; }

weir_status weir_cuda_rice_read(weir_cuda *cuda, const uint8_t *list, size_t bytes,
                                const weir_read_state *state, uint32_t *index) {
  size_t chunks = bytes / CHUNK_BYTES + 1;
  chunks = chunks < cuda->rice_chunks ? chunks : cuda->rice_chunks;
  weir_status status =
      weir_cuda_launch(cuda, "reading a list", weir_cuda_grid(cuda, chunks, WEIR_BLOCK_WARPS),
                       WEIR_CUDA_BLOCK, read_chunks, list, state, cuda->rice);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "reading a list",
                              weir_cuda_grid(cuda, weir_cuda_rice_groups(chunks), WEIR_BLOCK_WARPS),
                              WEIR_CUDA_BLOCK, compose_groups, state, cuda->rice, cuda->rice_group);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "reading a list", 1, WEIR_WARP, walk_groups, state,
                              cuda->rice_group, cuda->rice_start, cuda->fault);
  }
  return status == WEIR_OK ? weir_cuda_launch(cuda, "reading a list",
                                              weir_cuda_grid(cuda, chunks, WEIR_CUDA_BLOCK),
                                              WEIR_CUDA_BLOCK, emit_rice, list, state, cuda->rice,
                                              cuda->rice_start, index, cuda->fault)
                           : status;
}
