/* CRC32C: known answers, and all ways to the same one. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "../held.h"
#include "base/base.h"
#include "base/crc32c.h"

/* RFC 3720, appendix B.4, where the bytes of the checksum are shown in order of transmission. */
Test(crc32c, known_answers) {
  unsigned char bytes[48];
  static const unsigned char command[48] = {
      0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
      0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  uint32_t (*const ways[])(uint32_t, const void *, size_t) = {weir_crc32c, weir_crc32c_plain};
  for (int w = 0; w < 2; w++) {
    memset(bytes, 0, 32);
    cr_assert_eq(ways[w](0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    cr_assert_eq(ways[w](0, bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    cr_assert_eq(ways[w](0, bytes, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    cr_assert_eq(ways[w](0, bytes, 32), 0x113fdb5cu);
    cr_assert_eq(ways[w](0, command, 48), 0xd9963a56u);
    cr_assert_eq(ways[w](0, "123456789", 9), 0xe3069283u);
    cr_assert_eq(ways[w](0, bytes, 0), 0u);
  }
}

/* Bit by bit, as the definition has it. */
static uint32_t by_bits(const unsigned char *at, size_t count) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < count; i++) {
    crc ^= at[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

Test(crc32c, any_length_place_and_division) {
  enum { BYTES = 40000 };
  FREED unsigned char *data = malloc(BYTES);
  weir_rng rng = weir_rng_of(3);
  for (size_t i = 0; i < BYTES; i++) data[i] = (unsigned char)weir_rng_next(&rng);
  for (int round = 0; round < 400; round++) {
    const size_t begin = weir_rng_below(&rng, 64);
    const size_t most = round % 4 == 0 ? BYTES - 64 : 2000;
    const size_t count = weir_rng_below(&rng, most), cut = weir_rng_below(&rng, count + 1);
    const uint32_t due = by_bits(data + begin, count);
    cr_assert_eq(weir_crc32c(0, data + begin, count), due, "%zu bytes from %zu", count, begin);
    cr_assert_eq(weir_crc32c_plain(0, data + begin, count), due);
    const uint32_t first = weir_crc32c(0, data + begin, cut);
    cr_assert_eq(weir_crc32c(first, data + begin + cut, count - cut), due);
  }
}
