/* Messages of selected elements, the bytes of kernels/wire.c: header, index list (u32, bitmap or
 * Elias-Fano, the shortest), values.  Which list it is and how long follows from n and k, and so
 * does where each index goes. */
#include "kernels/cuda/message.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/wire.cuh"

/* What is sent. */
struct wire_pairs {
  const uint32_t *index;
  const float *value; /* or NULL */
  uint32_t k;
  uint32_t n;
};

/* One thread. */
__global__ static void write_header(wire_pairs pairs, weir_list_code code, uint32_t values,
                                    uint8_t *out, unsigned long long *bytes) {
  const uint32_t head[4] = {WEIR_WIRE_MAGIC, pairs.k, pairs.n,
                            code.kind | values << 8 | code.shift << 16};
  for (unsigned i = 0; i < WEIR_WIRE_HEADER; i++) out[i] = (uint8_t)(head[i / 4] >> 8 * (i % 4));
  *bytes =
      WEIR_WIRE_HEADER + code.bytes + (unsigned long long)pairs.k * weir_wire_value_bytes(values);
}

/* What follows writes where indices say. */
__global__ static void check_indices(wire_pairs pairs, uint32_t *fault) {
  WEIR_CUDA_EACH(i, pairs.k) {
    if (pairs.index[i] >= pairs.n || (i > 0 && pairs.index[i - 1] >= pairs.index[i]))
      atomicOr(fault, WEIR_FAULT_INDEX);
  }
}

/* Sets the bits of code (at most 32 of them) from bit number `at` on, in words that are 0 there. */
__device__ static inline void set_bits(uint32_t *word, uint64_t at, uint64_t code) {
  uint64_t bits = code << at % 32;
  if ((uint32_t)bits != 0) atomicOr(&word[at / 32], (uint32_t)bits);
  if (bits >> 32 != 0) atomicOr(&word[at / 32 + 1], (uint32_t)(bits >> 32));
}

/* list: all zero, aligned to words. */
__global__ static void write_list(wire_pairs pairs, weir_list_code code, const uint32_t *fault,
                                  uint32_t *list) {
  if (*fault != 0) return;
  uint64_t low = 8 * weir_elias_high_bytes(pairs.n, pairs.k, code.shift);
  WEIR_CUDA_EACH(i, pairs.k) {
    uint32_t index = pairs.index[i];
    if (code.kind == LIST_U32) {
      list[i] = index;
    } else if (code.kind == LIST_BITMAP) {
      set_bits(list, index, 1);
    } else {
      set_bits(list, (index >> code.shift) + (uint64_t)i, 1);
      set_bits(list, low + (uint64_t)i * code.shift, index & ((1U << code.shift) - 1));
    }
  }
}

/* --- values ---------------------------------------------------------------------------------- */

/* The list's length, in bytes, decides whether they lie aligned. */
__global__ static void write_values(wire_pairs pairs, uint32_t values, unsigned long long list,
                                    const uint32_t *fault, uint8_t *out, float *error) {
  if (*fault != 0) return;
  uint8_t *to = out + WEIR_WIRE_HEADER + list;
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
    for (unsigned b = 0; b < size; b++) to[size * i + b] = (uint8_t)(bits >> 8 * b);
  }
}

/* --- the host's side ------------------------------------------------------------------------- */

static weir_status queue(weir_cuda *cuda, const wire_pairs &pairs, weir_list_code code,
                         uint32_t values, uint8_t *out, unsigned long long *bytes, float *error) {
  size_t grid = weir_cuda_grid(cuda, pairs.k, 4 * WEIR_CUDA_BLOCK);
  weir_status status = weir_cuda_launch(cuda, "checking indices", grid, WEIR_CUDA_BLOCK,
                                        check_indices, pairs, cuda->fault);
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "writing a header", 1, 1, write_header, pairs, code, values,
                              out, bytes);
  }
  if (status == WEIR_OK) {
    status = weir_cuda_launch(cuda, "writing a list", grid, WEIR_CUDA_BLOCK, write_list, pairs,
                              code, cuda->fault, (uint32_t *)(out + WEIR_WIRE_HEADER));
  }
  return status == WEIR_OK && values != VALUE_NONE
             ? weir_cuda_launch(cuda, "writing values", grid, WEIR_CUDA_BLOCK, write_values, pairs,
                                values, code.bytes, cuda->fault, out, error)
             : status;
}

size_t weir_cuda_wire_bound(size_t n, size_t k, weir_wire_format format) {
  return (weir_wire_bound(n, k, format) + 3) / 4 * 4;
}

weir_status weir_cuda_wire_encode(weir_cuda *cuda, size_t n, const uint32_t *index,
                                  const float *value, size_t k, weir_wire_format format, void *out,
                                  size_t capacity, uint64_t *bytes, float *error) {
  if (format >= WEIR_WIRE_LISTS || (uintptr_t)out % 4 != 0)
    return weir_fail(WEIR_E_INVALID, "wire format %u into a message at %p", (unsigned)format, out);
  weir_status status = weir_cuda_ready(cuda, n, k);
  if (status == WEIR_OK && capacity < weir_cuda_wire_bound(n, k, format)) {
    return weir_fail(WEIR_E_CAPACITY, "a message of up to %zu bytes does not fit into %zu",
                     weir_cuda_wire_bound(n, k, format), capacity);
  }
  weir_list_code code = weir_choose_list(n, k, format != WEIR_WIRE_PAPER);
  uint32_t values = value == NULL                   ? VALUE_NONE
                    : format == WEIR_WIRE_AUTO_BF16 ? VALUE_BF16
                    : format == WEIR_WIRE_AUTO_FP16 ? VALUE_FP16
                                                    : VALUE_FP32;
  if (status == WEIR_OK)
    status = weir_cuda_clear(cuda, (char *)out + WEIR_WIRE_HEADER, (code.bytes + 3) / 4 * 4);
  wire_pairs pairs = {index, value, (uint32_t)k, (uint32_t)n};
  return status == WEIR_OK
             ? queue(cuda, pairs, code, values, (uint8_t *)out, (unsigned long long *)bytes, error)
             : status;
}
