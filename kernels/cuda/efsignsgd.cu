/* efsignsgd (EF-signSGD, Karimireddy et al. 2019, algorithm 1): per tensor of d elements the signs
 * and ||e||_1 / d; kernels/efsignsgd.c.  One pass over e. */
#include "kernels/cuda/signs.cuh"

namespace {

struct efsignsgd : weir_signs {
  static constexpr uint8_t ID = WEIR_CODEC_EFSIGNSGD;
  static constexpr unsigned SCALES = 1;

  __device__ static inline uint8_t code(float x, float, uint32_t, weir_sums *sums) {
    sums->sum[0] += (double)weir_float_of(weir_magnitude(x));
    return sign(x);
  }
  __device__ static inline void scales(const weir_sums &sums, uint32_t count, float, float *scale) {
    scale[0] = (float)(sums.sum[0] / (double)count);
  }
  __device__ static inline bool sane(const float *scale) {
    return scale[0] >= 0.0F && scale[0] <= FLT_MAX;
  }
  __device__ static inline float value(const float *scale, uint8_t code) {
    return code != 0 ? -scale[0] : scale[0];
  }
};

}  // namespace

WEIR_UNITS_ROW(efsignsgd)
