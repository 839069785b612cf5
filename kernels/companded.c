/* companded: buckets on a grid of squares, every element to the nearest value of the two beside it.
 *
 *   value j |j| max / T^2,   j = -T..T,  T = 2^(b-1) - 1
 *
 * b is a whole number, or half a bit less than one, with T the largest for which 2 T + 1 values are
 * at most 2^b: 5 of 3.5 bits, 10 of 4.5.  Such codes take as many bits as those of whole ones, and
 * become shorter than these where they travel by how often they occur (wire huffman).
 *
 * max is the bucket's largest magnitude.  The step beside an element of size x is some
 * 2 sqrt(x max) / T: at zero, near which most of a gradient lies, it is T times as fine as that of
 * an even grid from -max to max, and at the ends less than twice as coarse ("companding": Bennett,
 * "Spectra of quantized signals", Bell System Technical Journal 27, 1948; with squares, for an
 * optimizer's state, the "linear square quantization" of Wang et al., "4-bit Shampoo for
 * Memory-Efficient Network Training", 2024).  One scale a bucket suffices where qsgd has two.  What
 * an element leaves is at most half a step, whatever the data, so residuals stay bounded under
 * error feedback, on which this codec depends: it is not unbiased. */
#include <math.h>

#include "base/base.h"
#include "kernels/encoder.h"

#define BUCKET WEIR_COMPANDED_BUCKET

static void encode_bucket(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  (void)key;
  const unsigned bits = format->head.bits;
  const int32_t top = weir_companded_top(bits, format->head.mode);
  float low, high;
  weir_cpu()->range(x, count, &low, &high);
  const float most = weir_companded_most(low, high, top);
  *scale = weir_companded_scale(most, top);
  const float inverse = weir_companded_inverse(most, top);
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    const size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->round_to_squares(x + done, part, inverse, top, code);
    weir_codes_write(code, part, bits, codes + done / 8 * bits);
  }
}

static double reach(const weir_encoded *head, const float *scale) {
  const double top = weir_companded_top(head->bits, head->mode);
  return *scale >= 0.0F ? (double)*scale * top * top : (double)INFINITY;
}

static void decode_piece(const weir_encoded *head, const float *scale, const uint8_t *code,
                         size_t count, float *to, bool add) {
  const int32_t top = weir_companded_top(head->bits, head->mode);
  if (add)
    weir_cpu()->read_squares_add(code, count, *scale, top, to);
  else
    weir_cpu()->read_squares(code, count, *scale, top, to);
}

weir_unit_format weir_companded_format(unsigned bits, unsigned half) {
  return (weir_unit_format){.head = {.unit = BUCKET,
                                     .codec = WEIR_CODEC_COMPANDED,
                                     .bits = (uint8_t)bits,
                                     .mode = (uint8_t)half},
                            .scales = 1,
                            .encode = encode_bucket,
                            .reach = reach,
                            .decode = decode_piece};
}

/* Of no bits: there is no such ratio. */
static weir_unit_format format_of(double cr) {
  uint8_t half;
  const unsigned bits = weir_companded_bits(cr, &half);
  return weir_companded_format(bits, half);
}

static size_t bound(const weir_layout *layout, double cr) {
  const weir_unit_format format = format_of(cr);
  return weir_units_bound(&format, layout);
}

static weir_status encode(weir_codec_context *context, const float *e, const weir_layout *layout,
                          double cr, uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  const weir_unit_format format = format_of(cr);
  *bytes = 0;
  if (format.head.bits == 0)
    return weir_fail(WEIR_E_INVALID,
                     "companded takes %u to %u bits, whole or half, ratios of such over 32, not %g",
                     WEIR_COMPANDED_LEAST, WEIR_COMPANDED_MOST, cr);
  return weir_units_encode(context, &format, e, layout, seed, out, capacity, bytes);
}

static weir_status open_message(const void *message, size_t bytes, const weir_layout *layout,
                                weir_unit_format *format) {
  weir_encoded head;
  const weir_status status = weir_encoded_open(WEIR_CODEC_COMPANDED, message, bytes,
                                               layout->offset[layout->tensors], &head);
  if (status != WEIR_OK) return status;
  if (head.bits < WEIR_COMPANDED_LEAST || head.bits > WEIR_COMPANDED_MOST || head.unit != BUCKET ||
      head.mode > (head.bits > WEIR_COMPANDED_LEAST))
    return weir_encoded_malformed(WEIR_CODEC_COMPANDED, "unknown bits, bucket or mode");
  *format = weir_companded_format(head.bits, head.mode);
  return WEIR_OK;
}

WEIR_UNITS_READER(open_message)

const weir_codec weir_codec_companded = {
    .id = WEIR_CODEC_COMPANDED,
    .name = "companded",
    .description = "buckets on a grid of squares, rounding to the nearest value",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {WEIR_COMPANDED_LEAST, WEIR_COMPANDED_MOST, .halves = true},
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .device = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.5e-9, 0.3e-9, 0},
};
