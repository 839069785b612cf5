/* minifloat: floats of 5 to 8 bits in units of their bucket's largest magnitude;
 * kernels/minifloat.c.  The arithmetic is the host's (kernels/number.h). */
#include "kernels/cuda/buckets.cuh"

namespace {

/* A CODEC of buckets.cuh. */
struct minifloat {
  static constexpr uint8_t ID = WEIR_CODEC_MINIFLOAT;
  static constexpr unsigned SCALES = 1;

  struct grid {
    float scale, inverse;
    unsigned mantissa;
  };

  __device__ static inline grid fit(const weir_bucket_form &form, const weir_feed &feed,
                                    const weir_bucket_place &at, float x[WEIR_BUCKETS_EACH]) {
    float low;
    float high;
    weir_bucket_range(form, feed, at, x, &low, &high);
    const float scale = weir_bucket_largest(low, high);
    return grid{scale, weir_minifloat_inverse(scale), WEIR_MINIFLOAT_MANTISSA(form.bits)};
  }

  __device__ static inline float scale(const grid &g, unsigned) { return g.scale; }

  __device__ static inline uint8_t code(const grid &g, float x, uint32_t draw) {
    return weir_minifloat_code(x, g.inverse, g.mantissa, weir_mix32(draw));
  }

  __device__ static inline grid grid_of(const weir_bucket_form &form, const float *scale) {
    return grid{scale[0], 0.0F, WEIR_MINIFLOAT_MANTISSA(form.bits)};
  }

  __device__ static inline float value(const grid &g, uint8_t code) {
    return weir_minifloat_value(code, g.scale, g.mantissa);
  }

  __device__ static inline double reach(const weir_bucket_form &, const float *scale) {
    return scale[0] >= 0.0F ? (double)scale[0] : (double)INFINITY;
  }
};

/* Of a plan; what is no whole number of bits gives 0 of them, which is not ready. */
weir_bucket_form form_of(const weir_layout *layout, double cr) {
  const unsigned bits = weir_code_bits(cr, WEIR_MINIFLOAT_LEAST, WEIR_MINIFLOAT_MOST);
  return weir_bucket_form_of(layout->offset[layout->tensors], minifloat::SCALES, bits,
                             WEIR_MINIFLOAT_BUCKET, 0);
}

weir_status ready(const weir_bucket_form &form, double cr) {
  if (form.bits == 0) {
    return weir_fail(WEIR_E_INVALID,
                     "minifloat takes %u to %u bits, ratios of such over 32, not %g",
                     WEIR_MINIFLOAT_LEAST, WEIR_MINIFLOAT_MOST, cr);
  }
  return weir_buckets_ready(form.n);
}

}  // namespace

WEIR_BUCKETS_ROW(minifloat)
