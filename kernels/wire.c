/* Wire messages: header, index list, values.  All numbers are little-endian.
 *
 *   bytes 0-3   'W' 'R' 'M' '1'
 *   bytes 4-7   k
 *   bytes 8-11  n
 *   byte  12    index encoding (weir_index_encoding)
 *   byte  13    value encoding: 0 no values, 1 fp32, 2 bf16, 3 fp16 (an exponent of all ones, which
 *               no encoder writes, reads as the next power of two: never Inf or NaN)
 *   byte  14    Rice parameter, 0 for the other index encodings
 *   byte  15    0
 *   then        the index list, to a whole byte, then the k values
 *
 * The value section's length follows from k, so the index list's length follows from the
 * message's, and both must come out exactly. */
#include <assert.h>

#include "base/base.h"
#include "kernels/internal.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "messages are little-endian and written as they lie in memory"
#endif

typedef enum value_encoding {
  VALUE_NONE = 0,
  VALUE_FP32 = 1,
  VALUE_BF16 = 2,
  VALUE_FP16 = 3,
  VALUE_COUNT = 4
} value_encoding;

static const size_t value_bytes[VALUE_COUNT] = {0, 4, 2, 2};
static const uint8_t magic[4] = {'W', 'R', 'M', '1'};

typedef struct header {
  uint8_t magic[4];
  uint32_t k;
  uint32_t n;
  uint8_t index_encoding;
  uint8_t value_encoding;
  uint8_t shift;
  uint8_t zero;
} header;
static_assert(sizeof(header) == WEIR_WIRE_HEADER, "the header goes out as it lies in memory");

#define PIECE 512 /* indices decoded at a time */

static value_encoding values_of(weir_wire_format format) {
  return format == WEIR_WIRE_AUTO_BF16   ? VALUE_BF16
         : format == WEIR_WIRE_AUTO_FP16 ? VALUE_FP16
                                         : VALUE_FP32;
}

size_t weir_wire_bound(size_t n, size_t k, weir_wire_format format) {
  k = k < n ? k : n;
  size_t list = format == WEIR_WIRE_PAPER ? 4 * k : weir_index_bound(n, k);
  return WEIR_WIRE_HEADER + list + k * value_bytes[values_of(format)];
}

double weir_wire_expected(size_t n, size_t k, weir_wire_format format, bool with_values) {
  k = k < n ? k : n;
  double list = format == WEIR_WIRE_PAPER ? 4.0 * (double)k : weir_index_expected(n, k);
  double values = with_values ? (double)(k * value_bytes[values_of(format)]) : 0.0;
  return WEIR_WIRE_HEADER + list + values;
}

/* --- encoding -------------------------------------------------------------------------------- */

static weir_status check_list(size_t n, const uint32_t *index, size_t k) {
  if (n > UINT32_MAX) {
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than 32-bit indices reach", n);
  }
  if (k > n) {
    return weir_fail(WEIR_E_INVALID, "%zu indices out of %zu elements", k, n);
  }
  uint64_t next = 0;
  bool ascending = true;
  for (size_t i = 0; i < k; i++) {
    ascending &= index[i] >= next;
    next = (uint64_t)index[i] + 1;
  }
  if (!ascending || next > n) {
    return weir_fail(WEIR_E_INVALID, "indices are not strictly ascending below %zu", n);
  }
  return WEIR_OK;
}

/* error += what fp16 loses. */
static void encode_fp16(const float *value, size_t count, uint16_t *out, float *error) {
  weir_cpu()->fp16_encode(value, count, out);
  for (size_t i = 0; error != NULL && i < count; i++) {
    error[i] += value[i] - weir_fp16_value(out[i]);
  }
}

static void write_values(value_encoding encoding, const float *value, size_t k, uint8_t *out,
                         float *error) {
  if (encoding == VALUE_FP32) {
    memcpy(out, value, 4 * k);
    return;
  }
  /* Through a small buffer: the place in the message need not be aligned. */
  uint16_t piece[PIECE];
  for (size_t done = 0; done < k; done += PIECE) {
    size_t count = k - done < PIECE ? k - done : PIECE;
    float *lost = error != NULL ? error + done : NULL;
    if (encoding == VALUE_FP16) {
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
  if (format >= WEIR_WIRE_COUNT) {
    return weir_fail(WEIR_E_INVALID, "unknown wire format %u", (unsigned)format);
  }
  weir_status status = check_list(n, index, k);
  if (status != WEIR_OK) {
    return status;
  }
  weir_index_code code = weir_index_choose(n, index, k, format != WEIR_WIRE_PAPER);
  value_encoding values = value != NULL ? values_of(format) : VALUE_NONE;
  size_t total = WEIR_WIRE_HEADER + code.bytes + k * value_bytes[values];
  if (capacity < total) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", total,
                     capacity);
  }
  header head = {.k = (uint32_t)k,
                 .n = (uint32_t)n,
                 .index_encoding = (uint8_t)code.encoding,
                 .value_encoding = (uint8_t)values,
                 .shift = (uint8_t)code.shift};
  memcpy(head.magic, magic, sizeof magic);
  uint8_t *to = out;
  memcpy(to, &head, sizeof head);
  weir_index_write(code, index, k, to + sizeof head);
  if (values != VALUE_NONE && k > 0) {
    write_values(values, value, k, to + sizeof head + code.bytes, error);
  }
  *bytes = total;
  return WEIR_OK;
}

/* --- decoding -------------------------------------------------------------------------------- */

/* An untrusted message taken apart; values == NULL when it carries none. */
typedef struct parsed {
  size_t k;
  weir_index_reader reader;
  value_encoding encoding;
  const uint8_t *values;
} parsed;

static weir_status malformed(const char *what) {
  return weir_fail(WEIR_E_PROTOCOL, "malformed message of indices and values: %s", what);
}

static weir_status parse_header(const void *message, size_t bytes, size_t expected_n,
                                parsed *out) {
  header head;
  if (bytes < sizeof head) {
    return malformed("shorter than its header");
  }
  memcpy(&head, message, sizeof head);
  if (memcmp(head.magic, magic, sizeof magic) != 0 || head.zero != 0) {
    return malformed("not such a message");
  }
  if (head.n != expected_n || head.k > head.n) {
    return malformed("wrong number of elements");
  }
  bool rice = head.index_encoding == WEIR_INDEX_RICE;
  if (head.index_encoding >= WEIR_INDEX_COUNT || head.value_encoding >= VALUE_COUNT ||
      head.shift > (rice ? 31 : 0)) {
    return malformed("unknown encoding");
  }
  size_t values = head.k * value_bytes[head.value_encoding];
  if (bytes - sizeof head < values) {
    return malformed("values cut off");
  }
  size_t list = bytes - sizeof head - values;
  bool bitmap = head.index_encoding == WEIR_INDEX_BITMAP;
  if ((head.index_encoding == WEIR_INDEX_U32 && list != 4 * (size_t)head.k) ||
      (bitmap && list != ((size_t)head.n + 7) / 8)) {
    return malformed("wrong length");
  }
  const uint8_t *data = (const uint8_t *)message + sizeof head;
  out->k = head.k;
  out->encoding = (value_encoding)head.value_encoding;
  out->values = out->encoding != VALUE_NONE ? data + list : NULL;
  out->reader = (weir_index_reader){
      .code = {(weir_index_encoding)head.index_encoding, head.shift, list},
      .data = data,
      .n = head.n};
  return WEIR_OK;
}

/* Walk the whole list, so that what is read again after it is known to be good. */
static weir_status check_indices(const parsed *in) {
  weir_index_reader reader = in->reader;
  uint32_t piece[PIECE];
  for (size_t done = 0; done < in->k; done += PIECE) {
    size_t count = in->k - done < PIECE ? in->k - done : PIECE;
    if (!weir_index_read(&reader, piece, count)) {
      return malformed("bad index list");
    }
  }
  return weir_index_done(&reader) ? WEIR_OK : malformed("bad end of the index list");
}

static void read_values(const parsed *message, size_t from, size_t count, float *value) {
  if (message->encoding == VALUE_FP32) {
    memcpy(value, message->values + 4 * from, 4 * count);
    return;
  }
  uint16_t piece[PIECE];
  for (size_t done = 0; done < count; done += PIECE) {
    size_t part = count - done < PIECE ? count - done : PIECE;
    memcpy(piece, message->values + 2 * (from + done), 2 * part);
    if (message->encoding == VALUE_FP16) {
      weir_cpu()->fp16_decode(piece, part, value + done);
    } else {
      weir_bf16_decode(piece, part, value + done);
    }
  }
}

weir_status weir_wire_decode(const void *message, size_t bytes, size_t expected_n, uint32_t *index,
                             float *value, size_t capacity, size_t *k) {
  *k = 0;
  parsed in;
  weir_status status = parse_header(message, bytes, expected_n, &in);
  if (status != WEIR_OK) {
    return status;
  }
  if ((value != NULL) != (in.values != NULL)) {
    return malformed(value != NULL ? "values are missing" : "values where none belong");
  }
  if (in.k > capacity) {
    return malformed("more elements than there is room for");
  }
  if (!weir_index_read(&in.reader, index, in.k) || !weir_index_done(&in.reader)) {
    return malformed("bad index list");
  }
  if (value != NULL && in.k > 0) {
    read_values(&in, 0, in.k, value);
  }
  *k = in.k;
  return WEIR_OK;
}

weir_status weir_wire_decode_add(const void *message, size_t bytes, size_t expected_n, float *to) {
  parsed in;
  weir_status status = parse_header(message, bytes, expected_n, &in);
  if (status != WEIR_OK) {
    return status;
  }
  if (in.values == NULL) {
    return malformed("values are missing");
  }
  status = check_indices(&in);
  if (status != WEIR_OK) {
    return status;
  }
  uint32_t index[PIECE];
  float value[PIECE];
  for (size_t done = 0; done < in.k; done += PIECE) {
    size_t count = in.k - done < PIECE ? in.k - done : PIECE;
    if (!weir_index_read(&in.reader, index, count)) {
      return malformed("bad index list");
    }
    read_values(&in, done, count, value);
    weir_scatter_add(to, index, value, count);
  }
  return WEIR_OK;
}
