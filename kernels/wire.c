/* Writing wire messages: header, index list, values.  All numbers are little-endian.
 *
 *   bytes 0-3   'W' 'R' 'M' '1'
 *   bytes 4-7   k
 *   bytes 8-11  n
 *   byte  12    index encoding (weir_index_encoding)
 *   byte  13    value encoding: 0 no values, 1 fp32, 2 bf16, 3 fp16 (an exponent of all ones, which
 *               no encoder writes, reads as the next power of two: never Inf or NaN)
 *   byte  14    low bits of an Elias-Fano list, 0 for the other index encodings
 *   byte  15    0
 *   then        the index list, to a whole byte, then the k values
 *
 * The value section's length follows from k, so the index list's length follows from the
 * message's, and both must come out exactly. */
#include "kernels/wire.h"

#include "base/base.h"

static weir_value_encoding values_of(weir_wire_format format) {
  return format == WEIR_WIRE_AUTO_BF16   ? WEIR_VALUES_BF16
         : format == WEIR_WIRE_AUTO_FP16 ? WEIR_VALUES_FP16
                                         : WEIR_VALUES_FP32;
}

size_t weir_wire_bound(size_t n, size_t k, weir_wire_format format) {
  k = k < n ? k : n;
  size_t list = weir_index_choose(n, k, format != WEIR_WIRE_PAPER).bytes;
  return WEIR_WIRE_HEADER + list + k * weir_value_bytes[values_of(format)];
}

double weir_wire_expected(size_t n, size_t k, weir_wire_format format, bool with_values) {
  k = k < n ? k : n;
  size_t values = with_values ? k * weir_value_bytes[values_of(format)] : 0;
  return (double)(WEIR_WIRE_HEADER + weir_index_choose(n, k, format != WEIR_WIRE_PAPER).bytes +
                  values);
}

/* --- encoding -------------------------------------------------------------------------------- */

static weir_status check_list(size_t n, const uint32_t *index, size_t k) {
  if (n > UINT32_MAX)
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than 32-bit indices reach", n);
  if (k > n) return weir_fail(WEIR_E_INVALID, "%zu indices out of %zu elements", k, n);
  uint32_t falls = 0;
  for (size_t i = 1; i < k; i++) falls |= index[i] <= index[i - 1];
  if (falls || (k > 0 && index[k - 1] >= n))
    return weir_fail(WEIR_E_INVALID, "indices are not strictly ascending below %zu", n);
  return WEIR_OK;
}

/* error += what fp16 loses. */
static void encode_fp16(const float *value, size_t count, uint16_t *out, float *error) {
  weir_cpu()->fp16_encode(value, count, (uint8_t *)out);
  for (size_t i = 0; error != NULL && i < count; i++)
    error[i] += value[i] - weir_fp16_value(out[i]);
}

static void write_values(weir_value_encoding encoding, const float *value, size_t k, uint8_t *out,
                         float *error) {
  if (encoding == WEIR_VALUES_FP32) {
    memcpy(out, value, 4 * k);
    return;
  }
  /* Through a small buffer: the place in the message need not be aligned. */
  uint16_t piece[WEIR_WIRE_PIECE];
  for (size_t done = 0; done < k; done += WEIR_WIRE_PIECE) {
    size_t count = k - done < WEIR_WIRE_PIECE ? k - done : WEIR_WIRE_PIECE;
    float *lost = error != NULL ? error + done : NULL;
    if (encoding == WEIR_VALUES_FP16) {
      encode_fp16(value + done, count, piece, lost);
    } else {
      weir_bf16_encode(value + done, count, piece, lost);
    }
    memcpy(out + 2 * done, piece, 2 * count);
  }
}

weir_status weir_wire_encode(size_t n, const uint32_t *index, const float *value, size_t k,
                             weir_wire_format format, void *out, size_t capacity, size_t *bytes,
                             float *error) {
  *bytes = 0;
  if (format >= WEIR_WIRE_LISTS)
    return weir_fail(WEIR_E_INVALID, "unknown wire format %u", (unsigned)format);
  weir_status status = check_list(n, index, k);
  if (status != WEIR_OK) return status;
  weir_index_code code = weir_index_choose(n, k, format != WEIR_WIRE_PAPER);
  weir_value_encoding values = value != NULL ? values_of(format) : WEIR_VALUES_NONE;
  size_t total = WEIR_WIRE_HEADER + code.bytes + k * weir_value_bytes[values];
  if (capacity < total) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", total,
                     capacity);
  }
  weir_wire_header head = {.k = (uint32_t)k,
                           .n = (uint32_t)n,
                           .index_encoding = (uint8_t)code.encoding,
                           .value_encoding = (uint8_t)values,
                           .shift = (uint8_t)code.shift};
  memcpy(head.magic, weir_wire_magic, sizeof head.magic);
  uint8_t *to = out;
  memcpy(to, &head, sizeof head);
  weir_index_write(code, n, index, k, to + sizeof head);
  if (values != WEIR_VALUES_NONE && k > 0)
    write_values(values, value, k, to + sizeof head + code.bytes, error);
  *bytes = total;
  return WEIR_OK;
}
