/* What encoders of one width have in common (terngrad, onebit, efsignsgd). */
#include <weir/plan.h>

#include "base/base.h"
#include "kernels/encoder.h"

weir_status weir_fixed_encode(const weir_unit_format *format, const float *e,
                              const weir_layout *layout, double cr, uint64_t seed, void *out,
                              size_t capacity, size_t *bytes) {
  const unsigned bits = format->head.bits;
  *bytes = 0;
  if (cr != bits / 32.0)
    return weir_fail(WEIR_E_INVALID, "%s takes %u bit%s an element, ratio %g, not %g",
                     weir_codec_name(format->head.codec), bits, bits > 1 ? "s" : "", bits / 32.0,
                     cr);
  return weir_units_encode(NULL, format, e, layout, seed, out, capacity, bytes);
}

/* Is this such a message, of n elements? */
static weir_status open_message(const weir_unit_format *format, const void *message, size_t bytes,
                                size_t n) {
  weir_encoded head;
  const weir_status status = weir_encoded_open(format->head.codec, message, bytes, n, &head);
  if (status != WEIR_OK) return status;
  if (head.bits != format->head.bits || head.unit != 0 || head.mode > format->modes)
    return weir_encoded_malformed(format->head.codec, "unknown bits, unit or mode");
  return WEIR_OK;
}

weir_status weir_fixed_decode(const weir_unit_format *format, const void *message, size_t bytes,
                              const weir_layout *layout, float *to, weir_decoding how) {
  const weir_status status = open_message(format, message, bytes, layout->offset[layout->tensors]);
  return status ? status : weir_units_decode(NULL, format, message, bytes, layout, to, how);
}

weir_status weir_fixed_check(const weir_unit_format *format, const void *message, size_t bytes,
                             const weir_layout *layout, double *peak) {
  const weir_status status = open_message(format, message, bytes, layout->offset[layout->tensors]);
  return status ? status : weir_units_check(format, message, bytes, layout, peak);
}
