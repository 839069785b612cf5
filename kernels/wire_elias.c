/* Index lists after Elias and Fano (P. Elias, "Efficient storage and retrieval by content and
 * address of static files", J. ACM 21, 1974; R. Fano, MIT Project MAC memo 61, 1971).
 *
 * The n elements lie in buckets of 2^s.  The first section has, bucket by bucket, a one bit for
 * each index in it and then a zero bit; the second has the low s bits of every index.  Both are
 * least significant bit first and end with a whole byte.  So the length follows from n, k and s,
 * and s from n and k: k (s + 1) + n / 2^s bits, 5.25 k at a density of 0.1 where the entropy is
 * 4.69 k.  No bit of one section says where another lies, so that many indices are read at once:
 * the i-th index lies in the bucket whose number is how many zeros precede the i-th one. */
#include "kernels/elias.h"
#include "kernels/internal.h"

/* --- writing --------------------------------------------------------------------------------- */

/* Each word goes out whenever a bit comes to it: which one is a word's last is not to be guessed.
 * out: all zero. */
static void write_high(const uint32_t *index, size_t k, unsigned shift, uint8_t *out,
                       size_t bytes) {
  uint64_t word = 0;
  uint64_t before = 0; /* where it goes */
  for (size_t i = 0; i < k; i++) {
    uint64_t place = (index[i] >> shift) + (uint64_t)i;
    word = (place / 64 == before ? word : 0) | UINT64_C(1) << place % 64;
    before = place / 64;
    if (8 * before + sizeof word <= bytes) {
      memcpy(out + 8 * before, &word, sizeof word);
    } else {
      out[place / 8] |= (uint8_t)(1U << place % 8);
    }
  }
}

/* Fields of the next few indices, and how many of them fit below the 7 bits that may stand there
 * already. */
#define FEW 4
#define FEW_SHIFT 14U

static void write_low(const uint32_t *index, size_t k, unsigned shift, uint8_t *out) {
  uint64_t low = (UINT64_C(1) << shift) - 1;
  uint64_t word = 0;
  unsigned fill = 0; /* bits in word, below 8 */
  size_t i = 0;
  /* Words are stored whole, and the last of those indices that follow cover what that is too
   * much. */
  for (; shift > 0 && shift <= FEW_SHIFT && i + 64 + FEW <= k; i += FEW) {
    uint64_t fields = 0;
    for (unsigned f = FEW; f-- > 0;) fields = fields << shift | (index[i + f] & low);
    word |= fields << fill;
    fill += FEW * shift;
    memcpy(out, &word, sizeof word);
    out += fill / 8;
    word >>= fill & ~7U;
    fill %= 8;
  }
  for (; i < k; i++) {
    word |= (index[i] & low) << fill;
    for (fill += shift; fill >= 8; fill -= 8, word >>= 8) *out++ = (uint8_t)word;
  }
  if (fill > 0) *out = (uint8_t)word;
}

void weir_elias_write(size_t n, const uint32_t *index, size_t k, unsigned shift, uint8_t *out) {
  size_t high = (size_t)weir_elias_high_bytes(n, k, shift);
  memset(out, 0, high);
  write_high(index, k, shift, out, high);
  write_low(index, k, shift, out + high);
}

/* --- reading --------------------------------------------------------------------------------- */

weir_elias weir_elias_open(const weir_index_reader *reader) {
  unsigned shift = reader->code.shift;
  size_t high = (size_t)weir_elias_high_bytes(reader->n, reader->k, shift);
  return (weir_elias){.high = reader->data,
                      .bits = weir_elias_high_bits(reader->n, reader->k, shift),
                      .low = reader->data + high,
                      .low_bytes = reader->code.bytes - high,
                      .k = reader->k,
                      .shift = shift};
}

/* Places of the next ones among the bits of the first section, at most count: how many. */
static size_t next_ones(weir_index_reader *reader, const weir_elias *list, uint32_t *place,
                        size_t count) {
  uint64_t at = reader->at;
  size_t words = (size_t)((list->bits - at) / 64);
  if (at % 8 == 0 && words > 0 && count >= WEIR_PLACES_ROOM) {
    size_t got = weir_cpu()->places(list->high + at / 8, &words, (uint32_t)at, place, count);
    reader->at = at + 64 * (uint64_t)words;
    return got;
  }
  uint64_t window = weir_elias_window(list, at - at % 8) >> at % 8;
  size_t got = 0;
  for (; window != 0 && got < count; window &= window - 1)
    place[got++] = (uint32_t)(at + (unsigned)__builtin_ctzll(window));
  uint64_t end = at - at % 8 + 64 < list->bits ? at - at % 8 + 64 : list->bits;
  reader->at = window != 0 ? (uint64_t)place[got - 1] + 1 : end;
  return got;
}

bool weir_elias_read(weir_index_reader *reader, uint32_t *index, size_t count) {
  const weir_elias list = weir_elias_open(reader);
  for (size_t got = 0; got < count;) {
    if (reader->at >= list.bits) return false;
    got += next_ones(reader, &list, index + got, count - got);
  }
  if (count == 0) return true;
  bool ascending = weir_cpu()->elias_low(&list, reader->taken, index, count);
  if (!ascending || index[0] < reader->next || index[count - 1] >= reader->n) return false;
  reader->taken += count;
  reader->next = (uint64_t)index[count - 1] + 1;
  return true;
}

bool weir_elias_sealed(const weir_elias *list) {
  uint64_t last = list->bits - 1;
  bool good = list->high[last / 8] >> last % 8 == 0;
  uint64_t used = (uint64_t)list->k * list->shift % 8;
  return good && (used == 0 || list->low[list->low_bytes - 1] >> used == 0);
}

bool weir_elias_done(const weir_index_reader *reader) {
  const weir_elias list = weir_elias_open(reader);
  for (uint64_t at = reader->at; at < list.bits;) {
    if (weir_elias_window(&list, at - at % 8) >> at % 8 != 0) return false;
    at += 64 - at % 8;
  }
  return weir_elias_sealed(&list);
}
