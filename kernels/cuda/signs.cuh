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

/* What both check of a ratio; cr is the plan's. */
static inline weir_status weir_signs_ready(uint32_t codec, double cr) {
  return cr == 1.0 / 32 ? WEIR_OK
                        : weir_fail(WEIR_E_INVALID, "%s takes 1 bit, ratio 0.03125, not %g",
                                    weir_codec_name(codec), cr);
}

#endif
