#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* bits in reverse */

/* Bytes of each of the three parts that are summed up side by side: the instruction takes three
 * cycles until its result is there, and a new one can begin in every cycle. */
#define LONG 4096
#define SHORT 256

static uint32_t table[8][256];      /* of the bytes 0 to 7 places behind */
static uint32_t past_long[4][256];  /* the checksum's bytes, LONG zero bytes later */
static uint32_t past_short[4][256]; /* ... SHORT */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t past_zeros(uint32_t crc, size_t count) {
  for (size_t i = 0; i < count; i++) crc = table[0][crc & 0xff] ^ crc >> 8;
  return crc;
}

static void fill(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
    table[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (int behind = 1; behind < 8; behind++)
      table[behind][byte] = past_zeros(table[behind - 1][byte], 1);
  for (int at = 0; at < 4; at++)
    for (uint32_t byte = 0; byte < 256; byte++) {
      past_long[at][byte] = past_zeros(byte << 8 * at, LONG);
      past_short[at][byte] = past_zeros(byte << 8 * at, SHORT);
    }
}

static uint64_t load(const unsigned char *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

/* Eight bytes at a time, little-endian. */
static uint32_t plain(uint32_t crc, const unsigned char *at, size_t count) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  for (; count >= 8; at += 8, count -= 8) {
    const uint64_t word = load(at) ^ crc;
    crc = 0;
    for (int i = 0; i < 8; i++) crc ^= table[7 - i][word >> 8 * i & 0xff];
  }
#endif
  for (; count > 0; at++, count--) crc = table[0][(crc ^ *at) & 0xff] ^ crc >> 8;
  return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#include <nmmintrin.h>
#define ABLE __attribute__((target("sse4.2")))
#define STEP(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define STEP_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
static int is_able(void) { return __builtin_cpu_supports("sse4.2"); }
#else
#include <arm_acle.h>
#include <sys/auxv.h>
#define ABLE __attribute__((target("+crc")))
#define STEP(crc, word) __crc32cd((crc), (word))
#define STEP_BYTE(crc, byte) __crc32cb((crc), (byte))
static int is_able(void) { return (getauxval(AT_HWCAP) & 1 << 7) != 0; } /* HWCAP_CRC32 */
#endif

static uint32_t past(uint32_t zeros[4][256], uint32_t crc) {
  return zeros[0][crc & 0xff] ^ zeros[1][crc >> 8 & 0xff] ^ zeros[2][crc >> 16 & 0xff] ^
         zeros[3][crc >> 24];
}

/* Three parts of `part` bytes each, as often as they fit. */
ABLE static uint32_t triples(uint32_t crc, const unsigned char **at, size_t *count, size_t part,
                             uint32_t zeros[4][256]) {
  for (; *count >= 3 * part; *at += 3 * part, *count -= 3 * part) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < part; i += 8) {
      crc = STEP(crc, load(*at + i));
      second = STEP(second, load(*at + part + i));
      third = STEP(third, load(*at + 2 * part + i));
    }
    crc = past(zeros, past(zeros, crc) ^ second) ^ third;
  }
  return crc;
}

ABLE static uint32_t fast(uint32_t crc, const unsigned char *at, size_t count) {
  crc = triples(crc, &at, &count, LONG, past_long);
  crc = triples(crc, &at, &count, SHORT, past_short);
  for (; count >= 8; at += 8, count -= 8) crc = STEP(crc, load(at));
  for (; count > 0; at++, count--) crc = STEP_BYTE(crc, *at);
  return crc;
}
#else
static int is_able(void) { return 0; }
static uint32_t fast(uint32_t crc, const unsigned char *at, size_t count) {
  return plain(crc, at, count);
}
#endif

uint32_t weir_crc32c(uint32_t crc, const void *bytes, size_t count) {
  (void)pthread_once(&once, fill);
  return ~(is_able() ? fast(~crc, bytes, count) : plain(~crc, bytes, count));
}

uint32_t weir_crc32c_plain(uint32_t crc, const void *bytes, size_t count) {
  (void)pthread_once(&once, fill);
  return ~plain(~crc, bytes, count);
}
