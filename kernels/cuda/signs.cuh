/* What onebit and efsignsgd share: the code of an element is its sign bit. */
#ifndef WEIR_KERNELS_CUDA_SIGNS_CUH
#define WEIR_KERNELS_CUDA_SIGNS_CUH

#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/units.cuh"

struct weir_signs {
  static constexpr unsigned BITS = 1;
  static constexpr unsigned MODES = 0;
  static constexpr bool MEASURED = false;

  __device__ static inline uint8_t sign(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint8_t)(bits >> 31);
  }
};

#endif
