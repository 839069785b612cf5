/* onebit (1-bit SGD, Seide et al. 2014): per tensor the sign bits, and the mean of the elements of
 * either sign; kernels/onebit.c.  One pass over e. */
#include "kernels/cuda/signs.cuh"

namespace {

struct onebit : weir_signs {
  static constexpr uint8_t ID = WEIR_CODEC_ONEBIT;
  static constexpr unsigned SCALES = 2;

  __device__ static inline uint8_t code(float x, float, uint32_t, weir_sums *sums) {
    uint8_t negative = sign(x);
    sums->sum[0] += x > 0.0F ? (double)x : 0.0;
    sums->sum[1] += x < 0.0F ? (double)x : 0.0;
    sums->count += negative;
    return negative;
  }
  __device__ static inline void scales(const weir_sums &sums, uint32_t count, float, float *scale) {
    uint32_t negative = (uint32_t)sums.count;
    scale[0] = negative < count ? (float)(sums.sum[0] / (double)(count - negative)) : 0.0F;
    scale[1] = negative > 0 ? (float)(sums.sum[1] / (double)negative) : 0.0F;
  }
  __device__ static inline bool sane(const float *scale) {
    return weir_magnitude(scale[0]) < WEIR_INF_BITS && weir_magnitude(scale[1]) < WEIR_INF_BITS;
  }
  __device__ static inline float value(const float *scale, uint8_t code) {
    return scale[code != 0];
  }
};

}  // namespace

WEIR_UNITS_ROW(onebit)
