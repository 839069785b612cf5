/* fp16: every element as IEEE 754 half precision (Micikevicius et al., "Mixed precision training",
 * 2018), rounded to nearest even: a multiple of 2^(E-10) for 2^E <= |x| < 2^(E+1), of 2^-24 below
 * 2^-14.  Finite values saturate at 65504; what rounding, saturation and underflow (below 2^-25)
 * take away is the residual's.  It goes through an all-gather: an all-reduce whose partial sums
 * travel as fp16 would be another wire format of the collectives, as bf16 is. */
#include "base/base.h"
#include "kernels/encoder.h"

#define LARGEST 65504.0

static size_t bound(const weir_layout *layout, double cr) {
  (void)cr;
  return sizeof(weir_encoded) + 2 * layout->offset[layout->tensors];
}

static weir_status encode(weir_codec_context *context, const float *e, const weir_layout *layout,
                          double cr, uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  (void)context;
  (void)seed;
  static const weir_encoded head = {.codec = WEIR_CODEC_FP16, .bits = 16};
  size_t n = layout->offset[layout->tensors];
  *bytes = 0;
  if (cr != 0.5) return weir_fail(WEIR_E_INVALID, "fp16 takes 16 bits, ratio 0.5, not %g", cr);
  weir_status status = weir_encoded_begin(&head, n, bound(layout, cr), out, capacity);
  if (status != WEIR_OK) return status;
  weir_cpu()->fp16_encode(e, n, (uint8_t *)out + sizeof head);
  *bytes = sizeof head + 2 * n;
  return WEIR_OK;
}

static weir_status check(const void *message, size_t bytes, const weir_layout *layout,
                         double *peak) {
  weir_encoded head;
  size_t n = layout->offset[layout->tensors];
  weir_status status = weir_encoded_open(WEIR_CODEC_FP16, message, bytes, n, &head);
  *peak = LARGEST;
  if (status != WEIR_OK) return status;
  if (head.bits != 16 || head.unit != 0 || head.mode != 0 || bytes != sizeof head + 2 * n)
    return weir_encoded_malformed(WEIR_CODEC_FP16, "wrong header or length");
  return weir_cpu()->fp16_finite((const uint8_t *)message + sizeof head, n)
             ? WEIR_OK
             : weir_encoded_malformed(WEIR_CODEC_FP16, "a value that is not finite");
}

static weir_status decode(weir_codec_context *context, const void *message, size_t bytes,
                          const weir_layout *layout, float *to, weir_decoding how) {
  (void)context;
  size_t n = layout->offset[layout->tensors];
  double peak;
  weir_status status = check(message, bytes, layout, &peak);
  if (status != WEIR_OK) return status;
  weir_cpu()->fp16_decode((const uint8_t *)message + sizeof(weir_encoded), n, to, how);
  return WEIR_OK;
}

const weir_codec weir_codec_fp16 = {
    .id = WEIR_CODEC_FP16,
    .name = "fp16",
    .unbiased = true,
    .description = "every element as IEEE half precision",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {16, 16},
    .device = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.6e-9, 0.4e-9, 0},
};
