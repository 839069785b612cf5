/* Bytes of the quantizers' messages: kernels/encoder.h has their form.  A message may lie at any
 * address. */
#ifndef WEIR_KERNELS_CUDA_MESSAGE_CUH
#define WEIR_KERNELS_CUDA_MESSAGE_CUH

#include "kernels/cuda/device.cuh"

constexpr size_t WEIR_MESSAGE_HEADER = 16;
constexpr unsigned WEIR_MESSAGE_MODE = 14; /* the byte that is the codec's own */

/* Fields of weir_encoded that differ from message to message. */
struct weir_header {
  uint32_t n;
  uint32_t unit;
  uint8_t codec;
  uint8_t bits;
  uint8_t mode;
};

__device__ static inline uint8_t weir_header_byte(const weir_header &header, unsigned i) {
  constexpr uint32_t magic = 'W' | 'R' << 8 | 'E' << 16 | '1' << 24;
  switch (i) {
    case 12: return header.codec;
    case 13: return header.bits;
    case WEIR_MESSAGE_MODE: return header.mode;
    case 15: return 0;
    default: return (uint8_t)((i < 4 ? magic : i < 8 ? header.n : header.unit) >> 8 * (i % 4));
  }
}

/* aligned: the message begins at a multiple of 4 bytes. */
__device__ static inline void weir_store_float(uint8_t *to, float x, bool aligned) {
  if (aligned) {
    *(float *)to = x;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  for (unsigned b = 0; b < 4; b++) to[b] = (uint8_t)(bits >> 8 * b);
}

__device__ static inline float weir_load_float(const uint8_t *from, bool aligned) {
  if (aligned) return *(const float *)from;
  uint32_t bits = 0;
  for (unsigned b = 0; b < 4; b++) bits |= (uint32_t)from[b] << 8 * b;
  return weir_float_of(bits);
}

/* Eight codes, a byte each, drawn together to bits each; and apart: kernels/cpu/quantize.h. */
__device__ static inline uint64_t weir_pack8(uint64_t w, unsigned bits) {
  unsigned gap = 8 - bits;
  w = (w & 0x00ff00ff00ff00ffULL) | (w & 0xff00ff00ff00ff00ULL) >> gap;
  w = (w & 0x0000ffff0000ffffULL) | (w & 0xffff0000ffff0000ULL) >> 2 * gap;
  return (w & 0x00000000ffffffffULL) | (w & 0xffffffff00000000ULL) >> 4 * gap;
}

__device__ static inline uint64_t weir_unpack8(uint64_t w, unsigned bits) {
  unsigned gap = 8 - bits;
  uint64_t quarter = (1ULL << 4 * bits) - 1;
  uint64_t pair = ((1ULL << 2 * bits) - 1) * 0x0000000100000001ULL;
  uint64_t one = ((1ULL << bits) - 1) * 0x0001000100010001ULL;
  w = (w & quarter) | (w & quarter << 4 * bits) << 4 * gap;
  w = (w & pair) | (w & pair << 2 * bits) << 2 * gap;
  return (w & one) | (w & one << bits) << gap;
}

/* Where x lies on a grid of top + 1 codes: grid_place in kernels/cpu/quantize.h. */
__device__ static inline float weir_grid_place(float x, float base, float inverse, float zero,
                                               float top) {
  float t = (x - base) * inverse + zero;
  t = t > 0.0F ? t : 0.0F;
  return t < top ? t : top;
}

/* Rounded by a draw: quantize_stochastic there. */
__device__ static inline uint8_t weir_grid_code(float x, float base, float inverse, float zero,
                                                float top, uint32_t draw) {
  float t = weir_grid_place(x, base, inverse, zero, top);
  int32_t below = (int32_t)t;
  float u = (float)(int32_t)(draw >> 8) * 0x1p-24F;
  return (uint8_t)(below + (t - (float)below > u));
}

/* Rounded to the nearest code, down from the middle: quantize_nearest there. */
__device__ static inline uint8_t weir_grid_nearest(float x, float base, float inverse, float zero,
                                                   float top) {
  float t = weir_grid_place(x, base, inverse, zero, top);
  int32_t below = (int32_t)t;
  return (uint8_t)(below + (t - (float)below > 0.5F));
}

#endif
