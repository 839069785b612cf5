/* The form of messages of selected elements, for the files that write and read them; kernels/wire.c
 * describes it. */
#ifndef WEIR_KERNELS_CUDA_WIRE_CUH
#define WEIR_KERNELS_CUDA_WIRE_CUH

#include "kernels/cuda/select.cuh"
#include "kernels/elias.h"

constexpr uint32_t WEIR_WIRE_MAGIC = 'W' | 'R' << 8 | 'M' << 16 | '1' << 24;

/* Numbers that stand in messages. */
enum list_kind : uint32_t { LIST_U32 = 0, LIST_BITMAP = 1, LIST_ELIAS = 2, LIST_MALFORMED = 3 };
enum value_kind : uint32_t { VALUE_NONE = 0, VALUE_FP32 = 1, VALUE_BF16 = 2, VALUE_FP16 = 3 };

__host__ __device__ static inline uint32_t weir_wire_value_bytes(uint32_t kind) {
  return kind == VALUE_NONE ? 0 : kind == VALUE_FP32 ? 4 : 2;
}

/* How a list is written. */
struct weir_list_code {
  uint32_t kind;
  uint32_t shift;
  unsigned long long bytes;
};

/* As weir_index_choose. */
__host__ __device__ static inline weir_list_code weir_choose_list(uint64_t n, uint64_t k,
                                                                  bool automatic) {
  weir_list_code code = {LIST_U32, 0, 4 * k};
  if (!automatic || k == 0) return code;
  if ((n + 7) / 8 < code.bytes) code = weir_list_code{LIST_BITMAP, 0, (n + 7) / 8};
  uint32_t shift = weir_elias_shift(n, k);
  uint64_t elias = weir_elias_bytes(n, k, shift);
  return elias < code.bytes ? weir_list_code{LIST_ELIAS, shift, elias} : code;
}

/* What is known of a message that is read; in the place of the search's state. */
struct weir_read_state {
  uint32_t kind; /* LIST_MALFORMED once the message is known to be malformed */
  uint32_t shift;
  uint32_t values;
  uint32_t k;
  uint32_t n;
  unsigned long long list; /* bytes */
  /* Of a list with a bit an element or a bucket: bytes of the section that has them, and where no
   * one bit may lie any more. */
  unsigned long long high;
  unsigned long long reach;
};
static_assert(sizeof(weir_read_state) <= sizeof(weir_search_state), "its place");

/* Word i of a list of that many bytes, which lies at a multiple of 4; 0 behind its end. */
__device__ static inline uint32_t weir_list_word(const uint8_t *list, uint64_t bytes, uint64_t i) {
  if (4 * i + 4 <= bytes) return ((const uint32_t *)list)[i];
  uint32_t word = 0;
  for (uint64_t b = 4 * i; b < bytes; b++) word |= (uint32_t)list[b] << 8 * (b - 4 * i);
  return word;
}

/* The number of a warp among all, and of all. */
constexpr unsigned WEIR_BLOCK_WARPS = WEIR_CUDA_BLOCK / WEIR_WARP;
__device__ static inline size_t weir_grid_warp() {
  return (size_t)blockIdx.x * WEIR_BLOCK_WARPS + threadIdx.x / WEIR_WARP;
}
__device__ static inline size_t weir_grid_warps() { return (size_t)gridDim.x * WEIR_BLOCK_WARPS; }

#endif
