/* companded: buckets on a grid of squares; kernels/companded.c.  The arithmetic is the host's
 * (kernels/number.h). */
#include "kernels/cuda/buckets.cuh"

namespace {

/* A CODEC of buckets.cuh. */
struct companded {
  static constexpr uint8_t ID = WEIR_CODEC_COMPANDED;
  static constexpr unsigned SCALES = 1;

  struct grid {
    float scale, inverse;
    int32_t top;
  };

  __device__ static inline grid fit(const weir_bucket_form &form, const weir_feed &feed,
                                    const weir_bucket_place &at, float x[WEIR_BUCKETS_EACH]) {
    const int32_t top = weir_companded_top(form.bits, form.mode);
    float low;
    float high;
    weir_bucket_range(form, feed, at, x, &low, &high);
    const float scale = weir_companded_scale(weir_companded_most(low, high, top), top);
    return grid{scale, weir_companded_inverse(scale), top};
  }

  __device__ static inline float scale(const grid &g, unsigned) { return g.scale; }

  __device__ static inline uint8_t code(const grid &g, float x, uint32_t) {
    return weir_companded_code(x, g.inverse, g.top);
  }

  __device__ static inline grid grid_of(const weir_bucket_form &form, const float *scale) {
    return grid{scale[0], 0.0F, weir_companded_top(form.bits, form.mode)};
  }

  __device__ static inline float value(const grid &g, uint8_t code) {
    return weir_companded_value(code, g.scale, g.top);
  }

  __device__ static inline double reach(const weir_bucket_form &form, const float *scale) {
    const double top = weir_companded_top(form.bits, form.mode);
    return scale[0] >= 0.0F ? (double)scale[0] * top * top : (double)INFINITY;
  }
};

/* Of a plan; what is no number of bits gives 0 of them, which is not ready. */
weir_bucket_form form_of(const weir_layout *layout, double cr) {
  uint8_t half;
  const unsigned bits = weir_code_bits_halved(cr, WEIR_COMPANDED_LEAST, WEIR_COMPANDED_MOST, &half);
  return weir_bucket_form_of(layout->offset[layout->tensors], companded::SCALES, bits,
                             WEIR_COMPANDED_BUCKET, half);
}

weir_status ready(const weir_bucket_form &form, double cr) {
  if (form.bits == 0) {
    return weir_fail(WEIR_E_INVALID,
                     "companded takes %u to %u bits, whole or half, ratios of such over 32, not %g",
                     WEIR_COMPANDED_LEAST, WEIR_COMPANDED_MOST, cr);
  }
  return weir_buckets_ready(form.n);
}

}  // namespace

WEIR_BUCKETS_ROW(companded)
