/* What encoders of buckets in several widths have in common (minifloat, companded). */
#include <weir/plan.h>

#include "base/base.h"
#include "kernels/encoder.h"

/* Of the width that a ratio asks for; of no bits: there is none. */
static weir_unit_format format_of(const weir_unit_format *any, double cr) {
  const weir_codec *row = weir_codecs[any->head.codec];
  weir_unit_format format = *any;
  format.head.bits =
      (uint8_t)(row->bits.halves > 0
                    ? weir_code_bits_halved(cr, row->bits.least, row->bits.most, &format.head.mode)
                    : weir_code_bits(cr, row->bits.least, row->bits.most));
  return format;
}

size_t weir_widths_bound(const weir_unit_format *any, const weir_layout *layout, double cr) {
  const weir_unit_format format = format_of(any, cr);
  return weir_units_bound(&format, layout);
}

weir_status weir_widths_encode(const weir_unit_format *any, weir_codec_context *context,
                               const float *e, const weir_layout *layout, double cr, uint64_t seed,
                               void *out, size_t capacity, size_t *bytes) {
  const weir_codec *row = weir_codecs[any->head.codec];
  const weir_unit_format format = format_of(any, cr);
  *bytes = 0;
  if (format.head.bits == 0)
    return weir_fail(WEIR_E_INVALID, "%s takes %u to %u bits%s, ratios of such over 32, not %g",
                     row->name, row->bits.least, row->bits.most,
                     row->bits.halves > 0 ? ", whole or half" : "", cr);
  return weir_units_encode(context, &format, e, layout, seed, out, capacity, bytes);
}

weir_status weir_widths_open(const weir_unit_format *any, const void *message, size_t bytes,
                             const weir_layout *layout, weir_unit_format *format) {
  const weir_codec *row = weir_codecs[any->head.codec];
  weir_encoded head;
  const weir_status status =
      weir_encoded_open(row->id, message, bytes, layout->offset[layout->tensors], &head);
  if (status != WEIR_OK) return status;
  const unsigned modes = row->bits.halves > 0 && head.bits > row->bits.halves;
  if (head.bits < row->bits.least || head.bits > row->bits.most || head.unit != any->head.unit ||
      head.mode > modes)
    return weir_encoded_malformed(row->id, "unknown bits, bucket or mode");
  *format = *any;
  format->head.bits = head.bits;
  format->head.mode = head.mode;
  return WEIR_OK;
}
