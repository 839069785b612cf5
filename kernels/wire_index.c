/* Index encodings: u32, bitmap, and Elias-Fano (wire_elias.c). */
#include "kernels/elias.h"
#include "kernels/internal.h"

static uint64_t load64(const uint8_t *data, size_t bytes, size_t from) {
  uint64_t window = 0;
  size_t left = from < bytes ? bytes - from : 0;
  memcpy(&window, data + (left > 0 ? from : 0), left < sizeof window ? left : sizeof window);
  return window;
}

weir_index_code weir_index_choose(size_t n, size_t k, bool automatic) {
  weir_index_code code = {WEIR_INDEX_U32, 0, 4 * k};
  if (!automatic || k == 0) return code;
  size_t bitmap = (n + 7) / 8;
  if (bitmap < code.bytes) code = (weir_index_code){WEIR_INDEX_BITMAP, 0, bitmap};
  unsigned shift = weir_elias_shift(n, k);
  size_t elias = (size_t)weir_elias_bytes(n, k, shift);
  if (elias < code.bytes) code = (weir_index_code){WEIR_INDEX_ELIAS, shift, elias};
  return code;
}

/* --- writing --------------------------------------------------------------------------------- */

static void write_bitmap(const uint32_t *index, size_t k, uint8_t *out, size_t bytes) {
  memset(out, 0, bytes);
  for (size_t i = 0; i < k; i++) out[index[i] / 8] |= (uint8_t)(1U << (index[i] % 8));
}

void weir_index_write(weir_index_code code, size_t n, const uint32_t *index, size_t k,
                      uint8_t *out) {
  switch (code.encoding) {
    case WEIR_INDEX_U32:
      if (k > 0) memcpy(out, index, 4 * k);
      break;
    case WEIR_INDEX_BITMAP: write_bitmap(index, k, out, code.bytes); break;
    default: weir_elias_write(n, index, k, code.shift, out); break;
  }
}

/* --- reading --------------------------------------------------------------------------------- */

static bool read_u32(weir_index_reader *reader, uint32_t *index, size_t count) {
  memcpy(index, reader->data + reader->at, 4 * count);
  reader->at += 4 * count;
  for (size_t i = 0; i < count; i++) {
    if (index[i] < reader->next || index[i] >= reader->n) return false;
    reader->next = (uint64_t)index[i] + 1;
  }
  return true;
}

static bool read_bitmap(weir_index_reader *reader, uint32_t *index, size_t count) {
  uint64_t at = reader->at;
  size_t got = 0;
  while (got < count) {
    if (at >= reader->n) return false;
    uint64_t window = load64(reader->data, reader->code.bytes, (size_t)(at / 8)) >> (at % 8);
    uint64_t reach = 64 - at % 8; /* elements that the window shows */
    while (window != 0 && got < count) {
      uint64_t bit = (uint64_t)__builtin_ctzll(window);
      if (at + bit >= reader->n) return false;
      index[got++] = (uint32_t)(at + bit);
      window &= window - 1;
    }
    at = got == count && count > 0 ? (uint64_t)index[got - 1] + 1 : at + reach;
  }
  reader->at = at;
  reader->next = at;
  return true;
}

bool weir_index_read(weir_index_reader *reader, uint32_t *index, size_t count) {
  switch (reader->code.encoding) {
    case WEIR_INDEX_U32: return read_u32(reader, index, count);
    case WEIR_INDEX_BITMAP: return read_bitmap(reader, index, count);
    default: return weir_elias_read(reader, index, count);
  }
}

static bool rest_is_zero(const weir_index_reader *reader) {
  size_t byte = (size_t)(reader->at / 8);
  if (reader->at % 8 != 0) {
    if (reader->data[byte] >> (reader->at % 8) != 0) return false;
    byte++;
  }
  for (; byte < reader->code.bytes; byte++) {
    if (reader->data[byte] != 0) return false;
  }
  return true;
}

bool weir_index_done(const weir_index_reader *reader) {
  switch (reader->code.encoding) {
    case WEIR_INDEX_U32: return true;
    case WEIR_INDEX_BITMAP: return rest_is_zero(reader);
    default: return weir_elias_done(reader);
  }
}
