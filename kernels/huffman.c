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
  WORD = 8,  /* bytes that are read and written at once */
  GROUP = 4, /* symbols of a stream in a word: 44 bits after up to 7, and the next one's 11 */
  TAKEN = 6, /* bytes that a group takes at most */
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
 * before, so both the leaves and the joined lie in order, and the lightest are first of the one or
 * the other; of equals the leaf, which keeps codes short.  parent[i]: of the i-th joined.  Nothing
 * here is a branch on counts, which no processor would guess. */
static void join(const leaves *l, uint8_t *parent) {
  uint32_t leaf[SYMBOLS + 2], joined[SYMBOLS + 1];
  for (size_t i = 0; i < l->count; i++) leaf[i] = (uint32_t)(l->key[i] >> 8);
  leaf[l->count] = leaf[l->count + 1] = UINT32_MAX;
  memset(joined, 0xff, sizeof joined);
  size_t next = 0, inner = 0;
  for (size_t made = 0; made + 1 < l->count; made++) {
    const uint32_t a = leaf[next], b = leaf[next + 1], c = joined[inner], d = joined[inner + 1];
    const bool leaves_only = b <= c, joined_only = d < a;
    parent[inner] = parent[inner + 1] = (uint8_t)made; /* written again unless they are taken */
    joined[made] = leaves_only ? a + b : joined_only ? c + d : a + c;
    next += 1U + leaves_only - joined_only;
    inner += 1U + joined_only - leaves_only;
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

/* length[]: of every symbol's code; number[d]: how many of them are d bits.  At least two symbols
 * occur. */
static void find_lengths(const uint32_t *count, uint8_t *length, size_t *number) {
  leaves l;
  uint8_t parent[SYMBOLS + 1];
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

/* Lengths of a complete code, in the form that the encoder gives them: the bytes they take, or 0
 * where they are not. */
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
static void code_words(const uint8_t *length, size_t symbols, const size_t *number,
                       uint64_t *word) {
  unsigned next[LONGEST + 1];
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

/* How many groups can be read or written a word at a time in what is left of a stream. */
static size_t groups_in(size_t room) { return room < WORD ? 0 : (room - WORD) / TAKEN + 1; }

/* A stream: its next byte, and the bits that wait for a whole byte, below 8 of them, in the highest
 * bits of word.  What is below them is not part of the stream. */
typedef struct sink {
  uint8_t *at;
  uint64_t word;
  unsigned fill;
} sink;

static inline uint64_t appended(uint64_t word, uint64_t code) { return word >> code % 64 | code; }

/* The codes are put together before they go to the stream, so that the next group need not wait.
 * Lengths add up in the lowest byte of a sum of codes. */
static inline void write_group(sink *to, const uint64_t *code, const uint8_t *symbol) {
  const uint64_t a = code[symbol[0]], b = code[symbol[STREAMS]];
  const uint64_t c = code[symbol[2 * STREAMS]], d = code[symbol[3 * STREAMS]];
  const unsigned added = (uint8_t)(a + b + c + d);
  to->word = to->word >> added | appended(appended(appended(a, b), c), d);
  to->fill += added;
  const uint64_t bits = to->word >> (64 - to->fill);
  memcpy(to->at, &bits, WORD);
  to->at += to->fill / 8;
  to->fill %= 8;
}

/* The last ones, which must not write beyond the message. */
static void write_symbol(sink *to, uint64_t code) {
  to->word = appended(to->word, code);
  to->fill += (uint8_t)code;
  for (; to->fill >= 8; to->fill -= 8) *to->at++ = (uint8_t)(to->word >> (64 - to->fill));
}

/* Every fourth of n symbols.  Streams are written one after the other, so that words may reach
 * beyond them, but not beyond `end`.  Returns where the stream ends. */
static uint8_t *write_stream(const uint64_t *code, const uint8_t *symbol, size_t n, uint8_t *out,
                             const uint8_t *end) {
  sink to = {.at = out};
  size_t i = 0;
  for (size_t left = 1; left > 0;) {
    left = least(groups_in((size_t)(end - to.at)), (n - i) / (STREAMS * GROUP));
    for (size_t g = 0; g < left; g++, i += STREAMS * GROUP) write_group(&to, code, symbol + i);
  }
  for (; i < n; i += STREAMS) write_symbol(&to, code[symbol[i]]);
  if (to.fill > 0) *to.at++ = (uint8_t)(to.word >> (64 - to.fill));
  return to.at;
}

/* Streams after the lengths of all but the last; returns where they end. */
static uint8_t *write_streams(const uint64_t *code, const uint8_t *symbol, size_t n, uint8_t *out,
                              const uint8_t *end) {
  uint8_t *at = out + SIZES;
  for (size_t s = 0; s < STREAMS; s++) {
    uint8_t *const begin = at;
    at = write_stream(code, symbol + s, n - s, begin, end);
    const uint32_t size = (uint32_t)(at - begin);
    if (s + 1 < STREAMS) memcpy(out + s * sizeof size, &size, sizeof size);
  }
  return at;
}

/* --- encoding --------------------------------------------------------------------------------- */

static void count_symbols(const uint8_t *symbol, size_t n, uint32_t *all) {
  uint32_t count[COUNTERS][SYMBOLS] = {{0}};
  size_t i = 0;
  for (; i + COUNTERS <= n; i += COUNTERS)
    for (size_t c = 0; c < COUNTERS; c++) count[c][symbol[i + c]]++;
  for (; i < n; i++) count[0][symbol[i]]++;
  memset(all, 0, sizeof count[0]);
  for (size_t c = 0; c < COUNTERS; c++)
    for (size_t s = 0; s < SYMBOLS; s++) all[s] += count[c][s];
}

/* Bytes of all streams at most, each of which ends with a whole byte. */
static size_t most_bytes(const uint32_t *count, const uint8_t *length) {
  uint64_t bits = 0;
  for (size_t s = 0; s < SYMBOLS; s++) bits += (uint64_t)count[s] * length[s];
  return (size_t)(bits / 8) + STREAMS;
}

static size_t store(const uint8_t *symbol, size_t n, uint8_t *out) {
  out[0] = STORED;
  if (n > 0) memcpy(out + 1, symbol, n);
  return 1 + n;
}

/* Two symbols at least occur.  What is coded is longer than the sizes, so no stream is empty. */
static size_t encode_coded(const uint8_t *symbol, size_t n, size_t symbols, const uint32_t *count,
                           uint8_t *out) {
  uint8_t length[SYMBOLS], fields[SYMBOLS / 2];
  size_t number[LONGEST + 1];
  uint64_t code[SYMBOLS];
  find_lengths(count, length, number);
  const size_t taken = write_lengths(length, symbols, fields);
  const size_t most = 1 + taken + SIZES + most_bytes(count, length);
  if (most > n) return store(symbol, n, out);
  out[0] = CODED;
  memcpy(out + 1, fields, taken);
  code_words(length, symbols, number, code);
  return (size_t)(write_streams(code, symbol, n, out + 1 + taken, out + most) - out);
}

size_t weir_huffman_bound(size_t n) { return 1 + n; /* where codes do not pay, a byte a symbol */ }

size_t weir_huffman_encode(const uint8_t *symbol, size_t n, unsigned bits, uint8_t *out) {
  uint32_t count[SYMBOLS];
  if (n == 0 || n >= UINT32_MAX) return store(symbol, n, out); /* counts and sizes have 32 bits */
  count_symbols(symbol, n, count);
  if (count[symbol[0]] < n) return encode_coded(symbol, n, (size_t)1 << bits, count, out);
  out[0] = ALIKE;
  out[1] = symbol[0];
  return 2;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A stream: its next byte, of which `used` bits are read, below 8, and its end. */
typedef struct source {
  const uint8_t *at;
  const uint8_t *end;
  unsigned used;
} source;

static inline uint64_t next_word(const source *from) {
  uint64_t word;
  memcpy(&word, from->at, WORD);
  return word >> from->used;
}

/* e: the entry of the first.  Returns that of the first of the next group, which is looked up in
 * this group's word, so that it need not wait for the next one. */
static inline unsigned read_group(source *from, unsigned e, const uint16_t *entry,
                                  uint8_t *symbol) {
  uint64_t word = next_word(from);
  unsigned used = from->used;
  for (size_t i = 0; i < GROUP; i++) {
    word >>= e % 64;
    symbol[i * STREAMS] = (uint8_t)(e >> 8);
    used += e; /* lengths add up in the lower byte */
    e = entry[word % ENTRIES];
  }
  used = (uint8_t)used;
  from->at += used / 8;
  from->used = used % 8;
  return e;
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

/* Groups of all streams, all of which have room for so many. */
static void read_groups(source *from, const uint16_t *entry, uint8_t *symbol, size_t groups) {
  source a = from[0], b = from[1], c = from[2], d = from[3];
  unsigned of_a = entry[next_word(&a) % ENTRIES], of_b = entry[next_word(&b) % ENTRIES];
  unsigned of_c = entry[next_word(&c) % ENTRIES], of_d = entry[next_word(&d) % ENTRIES];
  for (; groups > 0; groups--, symbol += STREAMS * GROUP) {
    of_a = read_group(&a, of_a, entry, symbol);
    of_b = read_group(&b, of_b, entry, symbol + 1);
    of_c = read_group(&c, of_c, entry, symbol + 2);
    of_d = read_group(&d, of_d, entry, symbol + 3);
  }
  from[0] = a, from[1] = b, from[2] = c, from[3] = d;
}

/* Symbols read while all streams have whole words left. */
static size_t read_most(source *from, const uint16_t *entry, uint8_t *symbol, size_t n) {
  size_t done = 0;
  for (;;) {
    size_t groups = (n - done) / (STREAMS * GROUP);
    for (size_t s = 0; s < STREAMS; s++)
      groups = least(groups, groups_in((size_t)(from[s].end - from[s].at)));
    if (groups == 0) return done;
    read_groups(from, entry, symbol + done, groups);
    done += groups * STREAMS * GROUP;
  }
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
