/* Huffman's code for short symbols: counting, lengths, and streams that are written and read four
 * at a time. */
#include "kernels/huffman.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "streams are little-endian");

enum {
  STREAMS = 4,
  COUNTERS = 8, /* symbols in a row count in different tables: no sum waits for the one before */
  SYMBOLS = 256,
  LONGEST = 11, /* bits of a code: the decoder's table fits into the first cache */
  ENTRIES = 1 << LONGEST,
  WORD = 8,    /* bytes that are read and written at once */
  WRITTEN = 4, /* symbols to a word, of at most 44 bits, after up to 7 that are left over */
  READ = 5,    /* likewise when reading, where a word may be full: 7 + 55 bits */
  SIZES = (STREAMS - 1) * (int)sizeof(uint32_t)
};

enum { STORED, ALIKE, CODED };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* --- lengths of codes ------------------------------------------------------------------------- */

/* A symbol that occurs: how often in the upper bits, so that order is that of counts. */
typedef struct leaves {
  uint64_t key[SYMBOLS];
  size_t count;
} leaves;

#define DIGIT 6U /* counts of some 16 thousand symbols have two or three such digits */

static void sort_by_digit(const uint64_t *from, size_t count, unsigned shift, uint64_t *to) {
  uint16_t place[(1 << DIGIT) + 1] = {0};
  for (size_t i = 0; i < count; i++) place[(from[i] >> shift) % (1 << DIGIT) + 1]++;
  for (size_t d = 1; d < 1 << DIGIT; d++) place[d] = (uint16_t)(place[d] + place[d - 1]);
  for (size_t i = 0; i < count; i++) to[place[(from[i] >> shift) % (1 << DIGIT)]++] = from[i];
}

/* By count, and by symbol where counts are the same: the sort is stable. */
static void sort(leaves *l, uint32_t most) {
  uint64_t other[SYMBOLS];
  for (unsigned shift = 8; shift < 40 && most >> (shift - 8) > 0; shift += DIGIT) {
    sort_by_digit(l->key, l->count, shift, other);
    memcpy(l->key, other, l->count * sizeof *other);
  }
}

static void gather(const uint32_t *count, leaves *l) {
  uint32_t most = 0;
  l->count = 0;
  for (size_t s = 0; s < SYMBOLS; s++) {
    l->key[l->count] = (uint64_t)count[s] << 8 | s;
    l->count += count[s] > 0;
    most = most > count[s] ? most : count[s];
  }
  sort(l, most);
}

/* Join the two lightest until one is left.  Whatever is joined is no lighter than what was joined
 * before, so both the leaves and the joined lie in order, and the lightest is first of the one or
 * the other; of equals the leaf, which keeps codes short.  parent[i]: of the i-th joined.  Nothing
 * here is a branch on counts, which no processor would guess. */
static void join(const leaves *l, uint8_t *parent) {
  uint32_t leaf[SYMBOLS + 1], joined[SYMBOLS + 1];
  for (size_t i = 0; i < l->count; i++) leaf[i] = (uint32_t)(l->key[i] >> 8);
  leaf[l->count] = UINT32_MAX;
  joined[0] = UINT32_MAX;
  size_t next[2] = {0, 0};
  for (size_t made = 0; made + 1 < l->count; made++) {
    uint32_t sum = 0;
    for (int child = 0; child < 2; child++) {
      const uint32_t a = leaf[next[0]], b = joined[next[1]];
      const bool inner = b < a;
      parent[next[1]] = (uint8_t)made; /* stays if it is taken, and is written again if not */
      sum += inner ? b : a;
      next[0] += !inner;
      next[1] += inner;
    }
    joined[made] = sum;
    joined[made + 1] = UINT32_MAX;
  }
}

/* number[d]: leaves at depth d, those beyond LONGEST at LONGEST. */
static void count_depths(const uint8_t *parent, size_t leaf_count, size_t *number) {
  uint8_t depth[SYMBOLS];
  size_t inner[SYMBOLS] = {0}, left = leaf_count;
  for (size_t i = leaf_count - 1; i-- > 0;) {
    depth[i] = i + 2 == leaf_count ? 0 : (uint8_t)(depth[parent[i]] + 1);
    inner[depth[i]]++;
  }
  number[0] = 0;
  for (size_t d = 1; d < LONGEST; d++) {
    number[d] = 2 * inner[d - 1] - inner[d];
    left -= number[d];
  }
  number[LONGEST] = left;
}

/* Kraft's sum in units of 2^-LONGEST; ENTRIES for a complete code. */
static size_t kraft(const size_t *number) {
  size_t sum = 0;
  for (size_t d = 1; d <= LONGEST; d++) sum += number[d] << (LONGEST - d);
  return sum;
}

/* Leaves that were cut back to LONGEST are too many there by Kraft's sum.  A leaf above them that
 * becomes the parent of itself and of one of those leaves the sum one unit smaller, so it ends at
 * 1 exactly.  The lowest leaf for which there is room below costs least.  More are cut back than
 * there are units too many, and 256 leaves at LONGEST have a sum below 1: both are always found. */
static void limit(size_t *number) {
  for (size_t excess = kraft(number) - ENTRIES; excess > 0; excess--) {
    size_t d = LONGEST - 1;
    while (number[d] == 0) d--;
    number[d]--;
    number[d + 1] += 2;
    number[LONGEST]--;
  }
}

/* length[]: of every symbol's code; at least two symbols occur. */
static void find_lengths(const uint32_t *count, uint8_t *length) {
  leaves l;
  uint8_t parent[SYMBOLS];
  size_t number[LONGEST + 1];
  gather(count, &l);
  join(&l, parent);
  count_depths(parent, l.count, number);
  limit(number);
  memset(length, 0, SYMBOLS);
  for (size_t d = 1; d <= LONGEST; d++)
    for (size_t i = 0; i < number[d]; i++) length[l.key[--l.count] % SYMBOLS] = (uint8_t)d;
}

/* --- lengths in a message --------------------------------------------------------------------- */

static void put_field(uint8_t *out, size_t *at, unsigned value) {
  out[*at / 2] = (uint8_t)(*at % 2 == 0 ? value : out[*at / 2] | value << 4);
  ++*at;
}

/* Bytes written: at most one for two symbols. */
static size_t write_lengths(const uint8_t *length, size_t symbols, uint8_t *out) {
  size_t at = 0;
  for (size_t s = 0; s < symbols;) {
    const unsigned value = length[s];
    put_field(out, &at, value);
    size_t more = 0;
    while (++s < symbols && length[s] == value) more++;
    for (unsigned power = 4; more > 0; more -= (size_t)1 << power) {
      while (more >> power == 0) power--;
      put_field(out, &at, power == 0 ? value : LONGEST + power);
    }
  }
  return (at + 1) / 2;
}

/* Bytes read; 0: they are no lengths. */
static size_t read_lengths(const uint8_t *from, size_t bytes, size_t symbols, uint8_t *length) {
  size_t at = 0;
  for (size_t s = 0; s < symbols; at++) {
    if (at / 2 >= bytes) return 0;
    const unsigned value = from[at / 2] >> at % 2 * 4 & 15;
    const size_t count = value <= LONGEST ? 1 : (size_t)1 << (value - LONGEST);
    if (count > symbols - s || (value > LONGEST && s == 0)) return 0;
    memset(length + s, value <= LONGEST ? (int)value : length[s - 1], count);
    s += count;
  }
  return (at + 1) / 2;
}

/* Lengths of a complete code, in the form that the encoder gives them: the bytes they take, or 0. */
static size_t open_lengths(const uint8_t *from, size_t bytes, size_t symbols, uint8_t *length,
                           size_t *number) {
  uint8_t again[SYMBOLS / 2];
  const size_t taken = read_lengths(from, bytes, symbols, length);
  if (taken == 0 || write_lengths(length, symbols, again) != taken ||
      memcmp(from, again, taken) != 0)
    return 0;
  memset(number, 0, (LONGEST + 1) * sizeof *number);
  for (size_t s = 0; s < symbols; s++) number[length[s]]++;
  return kraft(number) == ENTRIES ? taken : 0;
}

/* --- codes ------------------------------------------------------------------------------------ */

/* The lowest of `length` bits last. */
static unsigned reversed(unsigned code, unsigned length) {
  code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
  code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
  code = (code & 0x0f0f) << 4 | (code >> 4 & 0x0f0f);
  code = (code & 0x00ff) << 8 | code >> 8;
  return code >> (16 - length);
}

/* next[d]: the first code of d bits. */
static void first_codes(const size_t *number, unsigned *next) {
  unsigned code = 0;
  for (size_t d = 1; d <= LONGEST; d++) {
    next[d] = code;
    code = (code + (unsigned)number[d]) << 1;
  }
}

/* For the encoder: a symbol's code in the highest bits of a word, and its length in the lowest. */
static void code_words(const uint8_t *length, size_t symbols, uint64_t *word) {
  size_t number[LONGEST + 1] = {0};
  unsigned next[LONGEST + 1];
  for (size_t s = 0; s < symbols; s++) number[length[s]]++;
  first_codes(number, next);
  for (size_t s = 0; s < symbols; s++) {
    const unsigned d = length[s];
    if (d > 0) word[s] = (uint64_t)reversed(next[d]++, d) << (64 - d) | d;
  }
}

/* For the decoder: what LONGEST bits of a stream begin with, the symbol in the upper byte and the
 * length of its code in the lower one. */
static void entries(const uint8_t *length, size_t symbols, const size_t *number, uint16_t *entry) {
  unsigned next[LONGEST + 1];
  first_codes(number, next);
  for (size_t s = 0; s < symbols; s++) {
    const unsigned d = length[s];
    if (d == 0) continue;
    const uint16_t value = (uint16_t)(s << 8 | d);
    for (size_t i = reversed(next[d]++, d); i < ENTRIES; i += (size_t)1 << d) entry[i] = value;
  }
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A stream: its next byte and its end, and the bits that wait for a whole byte, below 8 of them, in
 * the highest bits of word.  What is below them is not part of the stream. */
typedef struct sink {
  uint8_t *at;
  uint8_t *end;
  uint64_t word;
  unsigned fill;
} sink;

static inline uint64_t appended(uint64_t word, uint64_t code) { return word >> code % 64 | code; }

/* Lengths add up in the lowest byte of a sum of codes. */
static inline void write_symbols(sink *to, const uint64_t *code, const uint8_t *symbol) {
  const uint64_t a = code[symbol[0]], b = code[symbol[STREAMS]];
  const uint64_t c = code[symbol[2 * STREAMS]], d = code[symbol[3 * STREAMS]];
  to->word = appended(appended(appended(appended(to->word, a), b), c), d);
  const unsigned fill = to->fill + (uint8_t)(a + b + c + d);
  const uint64_t bits = to->word >> (64 - fill);
  memcpy(to->at, &bits, WORD);
  to->at += fill / 8;
  to->fill = fill % 8;
}

/* The last ones, which must not write beyond the stream. */
static void write_symbol(sink *to, uint64_t code) {
  to->word = appended(to->word, code);
  to->fill += (uint8_t)code;
  for (; to->fill >= 8; to->fill -= 8) *to->at++ = (uint8_t)(to->word >> (64 - to->fill));
}

/* How often a word fits into every one of the streams, of which each time takes up to `taken`
 * bytes. */
static size_t times(const size_t *room, size_t taken) {
  size_t smallest = room[0];
  for (size_t s = 1; s < STREAMS; s++) smallest = least(smallest, room[s]);
  return smallest < WORD ? 0 : (smallest - WORD) / taken + 1;
}

/* Symbols written while all streams have room for whole words. */
static size_t write_most(sink *to, const uint64_t *code, const uint8_t *symbol, size_t n) {
  sink a = to[0], b = to[1], c = to[2], d = to[3];
  const uint8_t *const begin = symbol, *const end =
                                           symbol + n / (STREAMS * WRITTEN) * (STREAMS * WRITTEN);
  for (;;) {
    const size_t room[STREAMS] = {(size_t)(a.end - a.at), (size_t)(b.end - b.at),
                                  (size_t)(c.end - c.at), (size_t)(d.end - d.at)};
    size_t left = least(times(room, 6), (size_t)(end - symbol) / (STREAMS * WRITTEN));
    if (left == 0) break;
    for (; left > 0; left--, symbol += STREAMS * WRITTEN) {
      write_symbols(&a, code, symbol);
      write_symbols(&b, code, symbol + 1);
      write_symbols(&c, code, symbol + 2);
      write_symbols(&d, code, symbol + 3);
    }
  }
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
  return (size_t)(symbol - begin);
}

static void write_streams(sink *to, const uint64_t *code, const uint8_t *symbol, size_t n) {
  for (size_t i = write_most(to, code, symbol, n); i < n; i++)
    write_symbol(&to[i % STREAMS], code[symbol[i]]);
  for (size_t s = 0; s < STREAMS; s++)
    if (to[s].fill > 0) *to[s].at = (uint8_t)(to[s].word >> (64 - to[s].fill));
}

/* --- encoding --------------------------------------------------------------------------------- */

static void count_symbols(const uint8_t *symbol, size_t n, uint32_t count[COUNTERS][SYMBOLS]) {
  size_t i = 0;
  memset(count, 0, COUNTERS * sizeof *count);
  for (; i + COUNTERS <= n; i += COUNTERS)
    for (size_t c = 0; c < COUNTERS; c++) count[c][symbol[i + c]]++;
  for (; i < n; i++) count[i % COUNTERS][symbol[i]]++;
}

/* Counts of each stream's symbols, into the first tables, and of all of them. */
static void add_counts(uint32_t count[COUNTERS][SYMBOLS], uint32_t *all) {
  for (size_t s = 0; s < SYMBOLS; s++) {
    for (size_t c = STREAMS; c < COUNTERS; c++) count[c - STREAMS][s] += count[c][s];
    all[s] = count[0][s] + count[1][s] + count[2][s] + count[3][s];
  }
}

static size_t stream_bytes(const uint32_t *count, const uint8_t *length) {
  uint64_t bits = 0;
  for (size_t s = 0; s < SYMBOLS; s++) bits += (uint64_t)count[s] * length[s];
  return (size_t)((bits + 7) / 8);
}

static size_t store(const uint8_t *symbol, size_t n, uint8_t *out) {
  out[0] = STORED;
  if (n > 0) memcpy(out + 1, symbol, n);
  return 1 + n;
}

/* Streams after the lengths of all but the last. */
static void write_body(const size_t *bytes, const uint8_t *length, const uint8_t *symbol, size_t n,
                       size_t symbols, uint8_t *out) {
  uint64_t code[SYMBOLS];
  sink to[STREAMS];
  uint8_t *at = out + SIZES;
  for (size_t s = 0; s < STREAMS; at += bytes[s++]) {
    const uint32_t size = (uint32_t)bytes[s];
    to[s] = (sink){.at = at, .end = at + bytes[s]};
    if (s + 1 < STREAMS) memcpy(out + s * sizeof size, &size, sizeof size);
  }
  code_words(length, symbols, code);
  write_streams(to, code, symbol, n);
}

size_t weir_huffman_bound(size_t n, unsigned bits) {
  (void)bits;
  return 1 + n;
}

size_t weir_huffman_encode(const uint8_t *symbol, size_t n, unsigned bits, uint8_t *out) {
  uint32_t count[COUNTERS][SYMBOLS], all[SYMBOLS];
  uint8_t length[SYMBOLS], fields[SYMBOLS / 2];
  if (n == 0 || n >= UINT32_MAX) return store(symbol, n, out); /* counts and sizes have 32 bits */
  count_symbols(symbol, n, count);
  add_counts(count, all);
  if (all[symbol[0]] == n) {
    out[0] = ALIKE;
    out[1] = symbol[0];
    return 2;
  }
  find_lengths(all, length);
  const size_t taken = write_lengths(length, (size_t)1 << bits, fields);
  size_t bytes[STREAMS], total = 1 + taken + SIZES;
  for (size_t s = 0; s < STREAMS; s++) total += bytes[s] = stream_bytes(count[s], length);
  if (total >= 1 + n) return store(symbol, n, out);
  out[0] = CODED;
  memcpy(out + 1, fields, taken);
  write_body(bytes, length, symbol, n, (size_t)1 << bits, out + 1 + taken);
  return total;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A stream: its next byte, of which `used` bits are read, below 8, and its end. */
typedef struct source {
  const uint8_t *at;
  const uint8_t *end;
  unsigned used;
} source;

static inline void read_symbols(source *from, const uint16_t *entry, uint8_t *symbol) {
  uint64_t word;
  unsigned used = from->used;
  memcpy(&word, from->at, WORD);
  word >>= used;
  for (size_t i = 0; i < READ; i++) {
    const unsigned e = entry[word % ENTRIES];
    word >>= e % 64;
    symbol[i * STREAMS] = (uint8_t)(e >> 8);
    used += (uint8_t)e;
  }
  from->at += used / 8;
  from->used = used % 8;
}

/* The last ones, next to a stream's end.  False: the stream ends within the code. */
static bool read_symbol(source *from, const uint16_t *entry, uint8_t *symbol) {
  const size_t left = least((size_t)(from->end - from->at), 3);
  uint32_t word = 0;
  for (size_t i = 0; i < left; i++) word |= (uint32_t)from->at[i] << 8 * i;
  const unsigned e = entry[(word >> from->used) % ENTRIES];
  const unsigned used = from->used + (uint8_t)e;
  *symbol = (uint8_t)(e >> 8);
  if (used > 8 * left) return false;
  from->at += used / 8;
  from->used = used % 8;
  return true;
}

/* Symbols read while all streams have whole words left. */
static size_t read_most(source *from, const uint16_t *entry, uint8_t *symbol, size_t n) {
  source a = from[0], b = from[1], c = from[2], d = from[3];
  uint8_t *const begin = symbol, *const end = symbol + n / (STREAMS * READ) * (STREAMS * READ);
  for (;;) {
    const size_t room[STREAMS] = {(size_t)(a.end - a.at), (size_t)(b.end - b.at),
                                  (size_t)(c.end - c.at), (size_t)(d.end - d.at)};
    size_t left = least(times(room, 7), (size_t)(end - symbol) / (STREAMS * READ));
    if (left == 0) break;
    for (; left > 0; left--, symbol += STREAMS * READ) {
      read_symbols(&a, entry, symbol);
      read_symbols(&b, entry, symbol + 1);
      read_symbols(&c, entry, symbol + 2);
      read_symbols(&d, entry, symbol + 3);
    }
  }
  from[0] = a, from[1] = b, from[2] = c, from[3] = d;
  return (size_t)(symbol - begin);
}

/* Nothing but zeros is left, of less than a byte. */
static bool is_done(const source *from) {
  if (from->used == 0) return from->at == from->end;
  return from->at + 1 == from->end && *from->at >> from->used == 0;
}

static bool read_streams(source *from, const uint16_t *entry, uint8_t *symbol, size_t n) {
  for (size_t i = read_most(from, entry, symbol, n); i < n; i++)
    if (!read_symbol(&from[i % STREAMS], entry, symbol + i)) return false;
  return is_done(&from[0]) && is_done(&from[1]) && is_done(&from[2]) && is_done(&from[3]);
}

/* --- decoding --------------------------------------------------------------------------------- */

/* Where streams lie, whose lengths come first.  False: that is beyond the message. */
static bool open_streams(const uint8_t *at, size_t bytes, source *from) {
  if (bytes < SIZES) return false;
  const uint8_t *const sizes = at, *const end = at + bytes;
  at += SIZES;
  for (size_t s = 0; s < STREAMS; s++) {
    uint32_t size = 0;
    if (s + 1 < STREAMS) memcpy(&size, sizes + s * sizeof size, sizeof size);
    if (size > (size_t)(end - at)) return false;
    from[s] = (source){.at = at, .end = s + 1 < STREAMS ? at + size : end};
    at += size;
  }
  return true;
}

static bool decode_coded(const uint8_t *from, size_t bytes, size_t n, size_t symbols,
                         uint8_t *symbol) {
  uint16_t entry[ENTRIES];
  uint8_t length[SYMBOLS];
  size_t number[LONGEST + 1];
  source stream[STREAMS];
  if (bytes >= n) return false; /* it would have been stored */
  const size_t taken = open_lengths(from, bytes, symbols, length, number);
  if (taken == 0 || !open_streams(from + taken, bytes - taken, stream)) return false;
  entries(length, symbols, number, entry);
  return read_streams(stream, entry, symbol, n);
}

static bool decode_stored(const uint8_t *from, size_t bytes, size_t n, size_t symbols,
                          uint8_t *symbol) {
  unsigned all = 0, differing = n == 0;
  if (bytes != n) return false;
  for (size_t i = 0; i < n; i++) {
    symbol[i] = from[i];
    all |= from[i];
    differing |= from[i] ^ from[0];
  }
  return all < symbols && differing != 0; /* such as are all alike have a form of their own */
}

static bool decode_alike(const uint8_t *from, size_t bytes, size_t n, size_t symbols,
                         uint8_t *symbol) {
  if (bytes != 1 || n == 0 || *from >= symbols) return false;
  memset(symbol, *from, n);
  return true;
}

bool weir_huffman_decode(const uint8_t *from, size_t bytes, size_t n, unsigned bits,
                         uint8_t *symbol) {
  const size_t symbols = (size_t)1 << bits;
  if (bytes == 0) return false;
  switch (from[0]) {
    case STORED: return decode_stored(from + 1, bytes - 1, n, symbols, symbol);
    case ALIKE: return decode_alike(from + 1, bytes - 1, n, symbols, symbol);
    case CODED: return decode_coded(from + 1, bytes - 1, n, symbols, symbol);
    default: return false;
  }
}
