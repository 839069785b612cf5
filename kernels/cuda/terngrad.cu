/* terngrad (TernGrad, Wen et al. 2017, algorithm 1) as a plan uses it: per tensor clipped at 2.5
 * root mean squares, fired with probability |x| / s, and the least-squares scale <x, t> / <t, t>;
 * kernels/terngrad.c.  Two passes over e. */
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/units.cuh"

namespace {

constexpr double CLIP = 2.5;

struct terngrad {
  static constexpr uint8_t ID = WEIR_CODEC_TERNGRAD;
  static constexpr unsigned BITS = 2;
  static constexpr unsigned SCALES = 1;
  static constexpr unsigned MODES = 3;
  static constexpr bool MEASURED = true;

  __device__ static inline void measure(float x, weir_sums *sums) {
    uint32_t bits = weir_magnitude(x);
    sums->sum[0] += (double)x * (double)x;
    sums->largest = bits > sums->largest ? bits : sums->largest;
  }
  __device__ static inline float reach(const weir_sums &sums, uint32_t count) {
    double s = (double)weir_float_of(sums.largest);
    return weir_grid_limit(fmin(s, CLIP * sqrt(sums.sum[0] / (double)count)));
  }
  __device__ static inline uint8_t code(float x, float s, uint32_t draw, weir_sums *sums) {
    float inverse = s >= WEIR_GRID_LEAST ? 1.0F / s : 0.0F;
    uint8_t code = weir_grid_code(x, 0.0F, inverse, 1.0F, 2.0F, weir_mix32(draw));
    sums->sum[0] += (double)(x * (float)((int32_t)code - 1));
    sums->count += code != 1;
    return code;
  }
  __device__ static inline void scales(const weir_sums &sums, uint32_t, float, float *scale) {
    scale[0] = sums.count > 0 ? weir_grid_limit(sums.sum[0] / (double)sums.count) : 0.0F;
  }
  __device__ static inline bool sane(const float *scale) {
    return scale[0] >= 0.0F && scale[0] <= FLT_MAX;
  }
  __device__ static inline float value(const float *scale, uint8_t code) {
    return 0.0F + ((float)(code < 2 ? code : 2) - 1.0F) * scale[0];
  }
};

}  // namespace

WEIR_UNITS_ROW(terngrad)
