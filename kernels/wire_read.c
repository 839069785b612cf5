/* Reading wire messages; wire.c gives the form.  Nothing in a message is trusted: lengths are
 * checked before a byte behind the header is read, and the list while it is. */
#include "base/base.h"
#include "kernels/wire.h"

weir_status weir_wire_malformed(const char *what) {
  return weir_fail(WEIR_E_PROTOCOL, "malformed message of indices and values: %s", what);
}

/* The code that a header names; an Elias-Fano list is taken where it is the shortest, and with the
 * one parameter that makes it so. */
static bool code_of(const weir_wire_header *head, weir_index_code *code) {
  weir_index_code shortest = weir_index_choose(head->n, head->k, true);
  switch (head->index_encoding) {
    case WEIR_INDEX_U32: *code = (weir_index_code){WEIR_INDEX_U32, 0, 4 * (size_t)head->k}; break;
    case WEIR_INDEX_BITMAP:
      *code = (weir_index_code){WEIR_INDEX_BITMAP, 0, ((size_t)head->n + 7) / 8};
      break;
    default: *code = shortest; break;
  }
  return head->index_encoding == code->encoding && head->shift == code->shift;
}

weir_status weir_wire_parse(const void *message, size_t bytes, size_t expected_n,
                            weir_wire_parts *out) {
  weir_wire_header head;
  if (bytes < sizeof head) return weir_wire_malformed("shorter than its header");
  memcpy(&head, message, sizeof head);
  if (memcmp(head.magic, weir_wire_magic, sizeof head.magic) != 0 || head.zero != 0)
    return weir_wire_malformed("not such a message");
  if (head.n != expected_n || head.k > head.n)
    return weir_wire_malformed("wrong number of elements");
  if (head.index_encoding >= WEIR_INDEX_COUNT || head.value_encoding >= WEIR_VALUES_COUNT)
    return weir_wire_malformed("unknown encoding");
  size_t values = head.k * weir_value_bytes[head.value_encoding];
  if (bytes - sizeof head < values) return weir_wire_malformed("values cut off");
  size_t list = bytes - sizeof head - values;
  weir_index_code code;
  if (!code_of(&head, &code) || list != code.bytes) return weir_wire_malformed("wrong length");
  const uint8_t *data = (const uint8_t *)message + sizeof head;
  out->k = head.k;
  out->encoding = (weir_value_encoding)head.value_encoding;
  out->values = out->encoding != WEIR_VALUES_NONE ? data + list : NULL;
  out->list = (weir_index_reader){.code = code, .data = data, .n = head.n, .k = head.k};
  return WEIR_OK;
}

void weir_wire_values(const weir_wire_parts *message, size_t from, size_t count, float *value) {
  if (message->encoding == WEIR_VALUES_FP32) {
    memcpy(value, message->values + 4 * from, 4 * count);
    return;
  }
  const uint8_t *values = message->values + 2 * from;
  if (message->encoding == WEIR_VALUES_FP16) {
    weir_cpu()->fp16_decode(values, count, value, WEIR_DECODE_STORE);
  } else {
    weir_cpu()->bf16_decode(values, count, value);
  }
}

weir_status weir_wire_decode(const void *message, size_t bytes, size_t expected_n, uint32_t *index,
                             float *value, size_t capacity, size_t *k) {
  *k = 0;
  weir_wire_parts in;
  weir_status status = weir_wire_parse(message, bytes, expected_n, &in);
  if (status != WEIR_OK) return status;
  if ((value != NULL) != (in.values != NULL))
    return weir_wire_malformed(value != NULL ? "values are missing" : "values where none belong");
  if (in.k > capacity) return weir_wire_malformed("more elements than there is room for");
  if (!weir_index_read(&in.list, index, in.k) || !weir_index_done(&in.list))
    return weir_wire_malformed("bad index list");
  if (value != NULL && in.k > 0) weir_wire_values(&in, 0, in.k, value);
  *k = in.k;
  return WEIR_OK;
}
