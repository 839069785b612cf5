/* What the files of qsgd share: a bucket's grid (buckets.cuh).  All modes: max-min or L2 grids,
 * stochastic or nearest rounding, buckets of any size; kernels/qsgd.c has the formulas. */
#ifndef WEIR_KERNELS_CUDA_QSGD_CUH
#define WEIR_KERNELS_CUDA_QSGD_CUH

#include "kernels/cuda/buckets.cuh"

constexpr uint32_t WEIR_QSGD_MOST = 65536;

/* weir_encoded's mode. */
constexpr uint8_t WEIR_QSGD_L2 = 1;
constexpr uint8_t WEIR_QSGD_NEAREST = 2;

/* A CODEC of buckets.cuh.  Messages of either rounding are read alike. */
template <bool L2, bool NEAREST>
struct weir_qsgd {
  static constexpr uint8_t ID = WEIR_CODEC_QSGD;
  static constexpr unsigned SCALES = L2 ? 1 : 2;

  struct grid {
    float base, step, inverse, zero, top;
  };

  __device__ static inline float levels(const weir_bucket_form &form) {
    return (float)(L2 ? (1U << (form.bits - 1)) - 1 : (1U << form.bits) - 1);
  }

  __device__ static inline grid fit(const weir_bucket_form &form, const weir_feed &feed,
                                    const weir_bucket_place &at, float x[WEIR_BUCKETS_EACH]) {
    const float s = levels(form);
    float base = 0.0F;
    float width;
    if constexpr (L2) {
      width = weir_bucket_norm(form, feed, at, x);
    } else {
      float low;
      float high;
      weir_bucket_range(form, feed, at, x, &low, &high);
      base = weir_grid_limit((double)low);
      width = weir_grid_limit((double)high) - base;
    }
    bool wide = width >= WEIR_GRID_LEAST;
    const float exact = wide ? width / s : 0.0F, step = L2 ? weir_bf16_nearest(exact) : exact;
    const float inverse = !wide ? 0.0F : L2 ? 1.0F / step : s / width;
    return grid{base, step, inverse, L2 ? s : 0.0F, L2 ? 2.0F * s : s};
  }

  __device__ static inline float scale(const grid &g, unsigned s) {
    return s == 0 ? g.step : g.base;
  }

  __device__ static inline uint8_t code(const grid &g, float x, uint32_t draw) {
    if constexpr (NEAREST)
      return weir_grid_nearest(x, g.base, g.inverse, g.zero, g.top);
    else
      return weir_grid_code(x, g.base, g.inverse, g.zero, g.top, weir_mix32(draw));
  }

  __device__ static inline grid grid_of(const weir_bucket_form &form, const float *scale) {
    const float s = levels(form);
    return grid{L2 ? 0.0F : scale[SCALES - 1], scale[0], 0.0F, L2 ? s : 0.0F, L2 ? 2.0F * s : s};
  }

  __device__ static inline float value(const grid &g, uint8_t code) {
    const float c = (float)code;
    return g.base + ((c < g.top ? c : g.top) - g.zero) * g.step;
  }

  __device__ static inline double reach(const weir_bucket_form &form, const float *scale) {
    const double base = L2 ? 0.0 : fabs((double)scale[SCALES - 1]);
    return scale[0] >= 0.0F ? (double)scale[0] * (double)levels(form) + base : (double)INFINITY;
  }
};

static inline weir_bucket_form weir_qsgd_form(size_t n, const weir_qsgd_options &options) {
  const uint8_t mode =
      (uint8_t)((options.l2 ? WEIR_QSGD_L2 : 0) | (options.nearest ? WEIR_QSGD_NEAREST : 0));
  return weir_bucket_form_of(n, options.l2 ? 1 : 2, options.bits, options.bucket, mode);
}

static inline weir_status weir_qsgd_ready(size_t n, const weir_qsgd_options &options) {
  if (options.bits < 2 || options.bits > 8 || options.bucket < 8 ||
      options.bucket > WEIR_QSGD_MOST || options.bucket % 8 != 0) {
    return weir_fail(WEIR_E_INVALID,
                     "qsgd takes 2 to 8 bits and buckets of 8 to %u by 8, not %u, %u",
                     WEIR_QSGD_MOST, options.bits, options.bucket);
  }
  return weir_buckets_ready(n);
}

#endif
