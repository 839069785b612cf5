/* Huffman's code: lengths worked out by hand and by another construction, what is too rare for a
 * short code, all that goes there and back, and messages that are not as they should be. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/huffman.h"

enum { LONGEST = 11, SIZES = 12, GUARD = 16, FILL = 0xa5 };

/* Message of n symbols in exactly as much memory as it takes, for sanitizers to see; *bytes its
 * length. */
static uint8_t *encode(const uint8_t *symbol, size_t n, unsigned bits, size_t *bytes) {
  const size_t bound = weir_huffman_bound(n);
  uint8_t *const room = malloc(bound + GUARD);
  memset(room, FILL, bound + GUARD);
  *bytes = weir_huffman_encode(symbol, n, bits, room);
  cr_assert(*bytes > 0 && *bytes <= bound, "%zu bytes of %zu", *bytes, bound);
  for (size_t i = 0; i < GUARD; i++) cr_assert_eq(room[bound + i], FILL);
  uint8_t *const message = malloc(*bytes);
  memcpy(message, room, *bytes);
  free(room);
  uint8_t *const tight = malloc(bound); /* again, where every byte beyond is found */
  cr_assert_eq(weir_huffman_encode(symbol, n, bits, tight), *bytes);
  cr_assert_eq(memcmp(tight, message, *bytes), 0, "another message of the same symbols");
  free(tight);
  return message;
}

/* Decodes into exactly n bytes; what is accepted is below 2^bits. */
static bool decode(const uint8_t *message, size_t bytes, size_t n, unsigned bits, uint8_t *to) {
  uint8_t *const symbol = malloc(n + (n == 0));
  const bool good = weir_huffman_decode(message, bytes, n, bits, symbol);
  for (size_t i = 0; good && i < n; i++) cr_assert(symbol[i] >> bits == 0, "%u", symbol[i]);
  if (good && to != NULL && n > 0) memcpy(to, symbol, n);
  free(symbol);
  return good;
}

static void check_round_trip(const uint8_t *symbol, size_t n, unsigned bits) {
  size_t bytes;
  uint8_t *const message = encode(symbol, n, bits, &bytes), *const got = malloc(n + GUARD);
  memset(got, FILL, n + GUARD);
  cr_assert(weir_huffman_decode(message, bytes, n, bits, got), "%zu of %u bits", n, bits);
  cr_assert_eq(memcmp(got, symbol, n), 0, "%zu of %u bits came back otherwise", n, bits);
  for (size_t i = 0; i < GUARD; i++) cr_assert_eq(got[n + i], FILL);
  cr_assert(decode(message, bytes, n, bits, NULL));
  /* How many symbols there are is not in a message; it is not read beyond its end for more. */
  const bool more = decode(message, bytes, n + 1, bits, NULL);
  const bool less = n > 0 && decode(message, bytes, n - 1, bits, NULL);
  if (message[0] == 0) cr_assert(!more && !less, "%zu of %u bits as others", n, bits);
  free(message);
  free(got);
}

/* --- a message read by other means ------------------------------------------------------------ */

/* Lengths of a coded message's codes; returns where its streams' lengths are. */
static size_t lengths_of(const uint8_t *message, unsigned bits, unsigned *length) {
  size_t field = 2, s = 0; /* in half bytes */
  cr_assert_eq(message[0], 2, "kind %u", message[0]);
  for (; s < (size_t)1 << bits; field++) {
    const unsigned value = field % 2 ? message[field / 2] >> 4 : message[field / 2] & 15;
    if (value <= LONGEST)
      length[s++] = value;
    else
      for (int i = 0; i < 1 << (value - LONGEST); i++, s++) length[s] = length[s - 1];
  }
  cr_assert_eq(s, (size_t)1 << bits);
  return field / 2 + field % 2;
}

static size_t kraft_of(const unsigned *length, unsigned bits) {
  size_t sum = 0;
  for (size_t s = 0; s < (size_t)1 << bits; s++)
    if (length[s] > 0) sum += (size_t)1 << (LONGEST - length[s]);
  return sum;
}

/* Each symbol count[s] times, in an order that looks drawn at random. */
static uint8_t *symbols_of(const size_t *count, size_t symbols, size_t *n) {
  weir_rng rng = weir_rng_of(80);
  *n = 0;
  for (size_t s = 0; s < symbols; s++) *n += count[s];
  uint8_t *const symbol = malloc(*n);
  size_t at = 0;
  for (size_t s = 0; s < symbols; s++)
    for (size_t i = 0; i < count[s]; i++) {
      const size_t place = weir_rng_below(&rng, at + 1);
      symbol[at++] = symbol[place];
      symbol[place] = (uint8_t)s;
    }
  return symbol;
}

static void find_lengths(const size_t *count, unsigned bits, unsigned *length) {
  size_t n, bytes;
  uint8_t *const symbol = symbols_of(count, (size_t)1 << bits, &n);
  uint8_t *const message = encode(symbol, n, bits, &bytes);
  lengths_of(message, bits, length);
  cr_assert_eq(kraft_of(length, bits), 1 << LONGEST, "not a complete code");
  check_round_trip(symbol, n, bits);
  free(message);
  free(symbol);
}

/* Bits of the best code: whatever is joined is written once more, and the two lightest are joined,
 * which are looked for among all. */
static size_t least_bits(const size_t *count, size_t symbols) {
  size_t weight[256], left = 0, sum = 0;
  for (size_t s = 0; s < symbols; s++)
    if (count[s] > 0) weight[left++] = count[s];
  for (; left > 1; left--) {
    for (size_t end = left; end > left - 2; end--)
      for (size_t i = 0; i + 1 < end; i++)
        if (weight[i] < weight[end - 1]) {
          const size_t other = weight[i];
          weight[i] = weight[end - 1];
          weight[end - 1] = other;
        }
    weight[left - 2] += weight[left - 1];
    sum += weight[left - 2];
  }
  return sum;
}

/* --- by hand ---------------------------------------------------------------------------------- */

/* 1 and 1 are joined to 2, with 2 to 4, with 4 to 8, with 8 to 16. */
Test(huffman, lengths_by_hand) {
  static const size_t count[8] = {0, 800, 100, 400, 0, 100, 200, 0};
  static const unsigned want[8] = {0, 1, 4, 2, 0, 4, 3, 0};
  unsigned length[8];
  find_lengths(count, 3, length);
  for (size_t s = 0; s < 8; s++) cr_assert_eq(length[s], want[s], "%zu: %u", s, length[s]);
}

/* 0 occurs 24 times, 1 and 3 eight times each: the codes are 0, 10 and 11, and of the lengths 1, 2,
 * 0, 2 two are in a byte.  In a stream are 0, 1, 0, 3, 0, 0, 1, 0, 3, 0: from the lowest bit up
 * 0 10 0 11 0 0 10 0 11 0, which are the bytes 0xb2 and 0x0c of it in hexadecimal digits, and, as
 * this is 14 bits, two zeros. */
Test(huffman, bytes_by_hand) {
  static const uint8_t stream[10] = {0, 1, 0, 3, 0, 0, 1, 0, 3, 0};
  static const uint8_t want[] = {2, 0x21, 0x20, 2,    0,    0,    0,    2,    0,    0,    0,   2,
                                 0, 0,    0,    0x32, 0x19, 0x32, 0x19, 0x32, 0x19, 0x32, 0x19};
  uint8_t symbol[40];
  for (size_t i = 0; i < sizeof symbol; i++) symbol[i] = stream[i / 4];
  size_t bytes;
  uint8_t *const message = encode(symbol, sizeof symbol, 2, &bytes);
  cr_assert_eq(bytes, sizeof want);
  for (size_t i = 0; i < bytes; i++) cr_assert_eq(message[i], want[i], "%zu: %x", i, message[i]);
  free(message);
}

Test(huffman, short_messages_by_hand) {
  static const uint8_t some[3] = {7, 7, 2};
  size_t bytes;
  uint8_t *message = encode(some, 0, 3, &bytes);
  cr_assert(bytes == 1 && message[0] == 0);
  free(message);
  message = encode(some, 2, 3, &bytes);
  cr_assert(bytes == 2 && message[0] == 1 && message[1] == 7);
  free(message);
  message = encode(some, 3, 3, &bytes);
  cr_assert(bytes == 4 && message[0] == 0 && memcmp(message + 1, some, 3) == 0);
  free(message);
}

/* 128 symbols that occur as often as each other have codes of 7 bits, the other 128 none: both are
 * a field and 127 more, which are 7 times 16, then 8, 4, 2 and 1. */
Test(huffman, equal_lengths_take_runs) {
  static const uint8_t want[12] = {0xf7, 0xff, 0xff, 0xff, 0xde, 0x7c,
                                   0xf0, 0xff, 0xff, 0xff, 0xde, 0x0c};
  size_t count[256] = {0}, n, bytes;
  for (size_t s = 0; s < 128; s++) count[s] = 20;
  uint8_t *const symbol = symbols_of(count, 256, &n);
  uint8_t *const message = encode(symbol, n, 8, &bytes);
  cr_assert_eq(bytes, 1 + sizeof want + SIZES + n * 7 / 8);
  for (size_t i = 0; i < sizeof want; i++)
    cr_assert_eq(message[1 + i], want[i], "%zu: %x", i, message[1 + i]);
  free(message);
  free(symbol);
}

/* --- against the best code -------------------------------------------------------------------- */

static void fill_counts(weir_rng *rng, size_t symbols, int shape, size_t *count) {
  for (size_t s = 0; s < symbols; s++)
    count[s] = shape == 0   ? 20 + weir_rng_below(rng, 200)
               : shape == 1 ? 1 + weir_rng_below(rng, 60)
               : shape == 2 ? (weir_rng_below(rng, 3) == 0 ? 300 + weir_rng_below(rng, 4) : 0)
                            : 40 + (s + 5) * (s + 5) / 8;
  count[0] += 100; /* two at least */
  count[symbols - 1] += 100;
}

/* Streams have the bits of the best code, but for the up to 7 that fill up each of them. */
Test(huffman, streams_are_as_short_as_can_be) {
  weir_rng rng = weir_rng_of(81);
  int compared = 0;
  for (int round = 0; round < 400; round++) {
    const unsigned bits = 2 + (unsigned)round % 7;
    const size_t symbols = (size_t)1 << bits;
    size_t count[256], n, bytes, sum = 0;
    unsigned length[256], longest = 0;
    fill_counts(&rng, symbols, round / 7 % 4, count);
    uint8_t *const symbol = symbols_of(count, symbols, &n);
    uint8_t *const message = encode(symbol, n, bits, &bytes);
    const size_t body = bytes - lengths_of(message, bits, length) - SIZES;
    for (size_t s = 0; s < symbols; s++) {
      cr_assert_eq(length[s] > 0, count[s] > 0);
      sum += count[s] * length[s];
      longest = longest > length[s] ? longest : length[s];
    }
    if (longest < LONGEST) {
      cr_assert_eq(sum, least_bits(count, symbols), "%zu bits", sum);
      compared++;
    }
    cr_assert(body >= (sum + 7) / 8 && body <= sum / 8 + 4, "%zu bytes of %zu bits", body, sum);
    free(message);
    free(symbol);
  }
  cr_assert(compared > 300, "%d", compared);
}

/* Counts that grow as Fibonacci's numbers give a code of n symbols n - 1 bits. */
Test(huffman, no_code_is_longer_than_11_bits) {
  for (size_t used = 12; used <= 23; used++) {
    size_t count[256] = {0}, a = 1, b = 1;
    unsigned length[256], longest = 0;
    for (size_t s = 0; s < used; s++) {
      count[3 + s] = a;
      b += a;
      a = b - a;
    }
    find_lengths(count, 5, length);
    for (size_t s = 0; s < used; s++) {
      cr_assert(length[3 + s] > 0);
      if (s > 0) cr_assert(length[3 + s] <= length[2 + s], "a longer code for what is no rarer");
      longest = longest > length[3 + s] ? longest : length[3 + s];
    }
    cr_assert_eq(longest, LONGEST);
  }
}

/* 255 symbols that occur once, beside one that makes up for them. */
Test(huffman, many_rare_symbols) {
  for (size_t rare = 1; rare <= 255; rare++) {
    size_t count[256] = {0};
    unsigned length[256];
    for (size_t s = 0; s < rare; s++) count[s] = 1;
    count[255] = 100000;
    find_lengths(count, 8, length);
    cr_assert_eq(length[255], 1);
  }
}

/* --- there and back --------------------------------------------------------------------------- */

enum { KINDS = 6 };

static void fill(weir_rng *rng, int kind, unsigned bits, uint8_t *symbol, size_t n) {
  const unsigned symbols = 1U << bits, one = (unsigned)weir_rng_below(rng, symbols);
  for (size_t i = 0; i < n; i++) {
    const uint64_t drawn = weir_rng_next(rng);
    const unsigned zeros = (unsigned)__builtin_ctzll(drawn | UINT64_C(1) << 63);
    const double normal = (1 + 0.2 * weir_rng_normal(rng)) * symbols / 2;
    symbol[i] = (uint8_t)(kind == 0   ? drawn % symbols
                          : kind == 1 ? one
                          : kind == 2 ? (zeros < symbols ? zeros : symbols - 1)
                          : kind == 3 ? (drawn % 5 == 0 ? one : symbols - 1)
                          : kind == 4 ? (normal < 0          ? 0
                                         : normal >= symbols ? symbols - 1
                                                             : normal)
                                      : (i == n / 2 ? 0 : symbols - 1));
  }
}

Test(huffman, all_comes_back) {
  static const size_t sizes[] = {0,  1,  2,  3,  4,  5,   7,   8,    9,    16,    20,
                                 31, 32, 63, 64, 99, 100, 160, 1023, 1024, 16384, 65537};
  weir_rng rng = weir_rng_of(82);
  uint8_t *const symbol = malloc(65537);
  for (unsigned bits = 1; bits <= 8; bits++)
    for (int kind = 0; kind < KINDS; kind++)
      for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *const exact = malloc(sizes[i] + (sizes[i] == 0));
        fill(&rng, kind, bits, symbol, sizes[i]);
        memcpy(exact, symbol, sizes[i]);
        check_round_trip(exact, sizes[i], bits);
        free(exact);
      }
  free(symbol);
}

/* Streams of very different lengths, and every small number of symbols. */
Test(huffman, streams_that_differ) {
  weir_rng rng = weir_rng_of(83);
  uint8_t symbol[700];
  for (size_t n = 0; n <= sizeof symbol; n++) {
    for (size_t i = 0; i < n; i++)
      symbol[i] = (uint8_t)(i % 4 == n % 4 ? weir_rng_below(&rng, 256) : 17);
    check_round_trip(symbol, n, 8);
    for (size_t i = 0; i < n; i++) symbol[i] = (uint8_t)(i % 4 == n % 4 ? i / 4 % 3 : 3);
    check_round_trip(symbol, n, 2);
  }
}

/* --- messages that are not as they should be -------------------------------------------------- */

/* Every byte changed in some ways, every length that is not the message's. */
static void check_changed(const uint8_t *symbol, size_t n, unsigned bits) {
  size_t bytes;
  uint8_t *const message = encode(symbol, n, bits, &bytes), *const got = malloc(n);
  for (size_t i = 0; i < bytes; i++)
    for (unsigned change = 1; change < 256; change = change < 128 ? 2 * change : change + 127) {
      message[i] ^= (uint8_t)change;
      if (decode(message, bytes, n, bits, got))
        cr_assert(memcmp(got, symbol, n) != 0, "two messages of the same symbols, %zu: %x", i,
                  change);
      message[i] ^= (uint8_t)change;
    }
  for (size_t cut = 0; cut < bytes; cut++) {
    uint8_t *const less = malloc(cut + (cut == 0));
    memcpy(less, message, cut);
    cr_assert_not(decode(less, cut, n, bits, NULL), "%zu bytes of %zu", cut, bytes);
    free(less);
  }
  uint8_t *const more = calloc(1, bytes + 9);
  memcpy(more, message, bytes);
  for (size_t beyond = 1; beyond <= 9; beyond++)
    cr_assert_not(decode(more, bytes + beyond, n, bits, NULL), "%zu bytes too many", beyond);
  free(more);
  free(message);
  free(got);
}

Test(huffman, changed_messages) {
  static const size_t sizes[] = {1, 2, 9, 100, 403, 1024};
  weir_rng rng = weir_rng_of(84);
  uint8_t symbol[1024];
  for (unsigned bits = 1; bits <= 8; bits++)
    for (int kind = 0; kind < KINDS; kind++)
      for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(&rng, kind, bits, symbol, sizes[i]);
        check_changed(symbol, sizes[i], bits);
      }
}

/* What begins as a message does and then holds anything: half of them have a whole table. */
Test(huffman, anything) {
  weir_rng rng = weir_rng_of(85);
  uint8_t symbol[600];
  for (int round = 0; round < 40000; round++) {
    const unsigned bits = 1 + (unsigned)round % 8;
    const size_t n = weir_rng_below(&rng, 600);
    size_t bytes = weir_rng_below(&rng, 500), kept = 0;
    uint8_t *message = NULL;
    if (round % 2) {
      unsigned length[256];
      fill(&rng, 2 + (int)weir_rng_below(&rng, 3), bits, symbol, n);
      message = encode(symbol, n, bits, &bytes);
      kept = message[0] == 2 ? lengths_of(message, bits, length) : 0;
      if (round % 4 == 1 && kept > 0) kept += SIZES;
    } else {
      message = malloc(bytes + (bytes == 0));
    }
    for (size_t i = kept; i < bytes; i++) message[i] = (uint8_t)weir_rng_next(&rng);
    if (bytes > 0 && kept == 0) message[0] %= 4;
    (void)decode(message, bytes, n, bits, NULL);
    free(message);
  }
}

static void refuse(const uint8_t *message, size_t bytes, size_t n, unsigned bits,
                   const char *what) {
  cr_assert_not(decode(message, bytes, n, bits, NULL), "%s", what);
}

/* Of 40 symbols of 2 bits, as in bytes_by_hand. */
Test(huffman, foreign_fields) {
  static const struct {
    size_t at;
    uint8_t to;
    const char *what;
  } wrong[] = {{0, 3, "kind"},
               {1, 0x22, "Kraft's sum below 1"},
               {1, 0x11, "Kraft's sum above 1"},
               {1, 0x2c, "a run of nothing"},
               {2, 0xc2, "a run that is too long"},
               {2, 0x00, "no code of two bits"},
               {3, 1, "a stream too short"},
               {3, 3, "a stream too long"},
               {6, 1, "a stream beyond the message"},
               {6, 255, "a stream far beyond the message"},
               {16, 0x59, "bits that fill up"}};
  static const uint8_t good[] = {2, 0x21, 0x20, 2,    0,    0,    0,    2,    0,    0,    0,   2,
                                 0, 0,    0,    0x32, 0x19, 0x32, 0x19, 0x32, 0x19, 0x32, 0x19};
  uint8_t bad[sizeof good];
  cr_assert(decode(good, sizeof good, 40, 2, NULL));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    memcpy(bad, good, sizeof good);
    bad[wrong[i].at] = wrong[i].to;
    refuse(bad, sizeof bad, 40, 2, wrong[i].what);
  }
  refuse((const uint8_t[]){0, 3, 4}, 3, 2, 2, "a stored symbol that is too large");
  refuse((const uint8_t[]){1, 4}, 2, 2, 2, "a symbol that is too large");
  refuse((const uint8_t[]){1, 0}, 2, 0, 2, "nothing, all alike");
  refuse((const uint8_t[]){1}, 1, 2, 2, "no symbol");
  refuse((const uint8_t[]){0, 3, 3}, 3, 2, 2, "stored, but all alike");
  refuse((const uint8_t[]){0, 3}, 2, 1, 2, "stored, but all alike");
}

/* One form each: runs are given as the encoder does.  */
Test(huffman, runs_have_one_form) {
  static const uint8_t fields[][2] = {{0xc2, 0x02}, {0x22, 0x22}, {0xc2, 0x12}};
  static const uint8_t size[] = {2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0};
  uint8_t message[3 + sizeof size + 8] = {2};
  memcpy(message + 3, size, sizeof size);
  memcpy(message + 1, fields[0], 2);
  cr_assert(decode(message, sizeof message, 32, 2, NULL)); /* 2, two more, 2 */
  memcpy(message + 1, fields[1], 2);
  refuse(message, sizeof message, 32, 2, "four times 2");
  memcpy(message + 1, fields[2], 2);
  refuse(message, sizeof message, 32, 2, "a half byte that is left over");
  memcpy(message + 1, fields[0], 2);
  cr_assert(decode(message, sizeof message, 23, 2, NULL));
  refuse(message, sizeof message, 22, 2, "as long as symbols that are stored");
}
