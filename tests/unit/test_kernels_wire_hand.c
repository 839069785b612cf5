/* Wire messages written by hand, byte by byte, and harmed. */
#include <criterion/criterion.h>

#include "kernels/codec.h"
#include "kernels_data.h"

/* A message written by hand: indices 1, 2, 6 of 8 as a bitmap, values 1.0 and so on as bf16. */
Test(kernels_wire_hand, reads_a_message_written_by_hand) {
  const uint8_t bytes[] = {'W', 'R', 'M', '1', 3,    0,    0,    0,    8,    0,    0,   0,
                           1,   2,   0,   0,   0x46, 0x80, 0x3f, 0x00, 0xc0, 0x40, 0x40};
  uint32_t index[3];
  float value[3];
  size_t k = 0;
  cr_assert_eq(weir_wire_decode(bytes, sizeof bytes, 8, index, value, 3, &k), WEIR_OK);
  cr_expect(k == 3 && index[0] == 1 && index[1] == 2 && index[2] == 6);
  cr_expect(value[0] == 1.0F && value[1] == -2.0F && value[2] == 3.0F);
}

/* Indices 5, 18 and 59 of 60 in buckets of 16, one each in the buckets 0, 1 and 3: bits 1 0, 1 0, 0
 * and 1 0, and the fields 5, 2 and 11 of 4 bits. */
static const uint8_t buckets[] = {'W', 'R', 'M', '1', 3, 0, 0,    0,    60,  0,
                                  0,   0,   2,   0,   4, 0, 0x25, 0x25, 0x0b};

Test(kernels_wire_hand, reads_buckets_written_by_hand) {
  uint32_t index[3] = {0};
  uint8_t written[sizeof buckets + 4];
  size_t size = 0;
  size_t k = 0;
  cr_assert_eq(weir_wire_decode(buckets, sizeof buckets, 60, index, NULL, 3, &k), WEIR_OK);
  cr_expect(k == 3 && index[0] == 5 && index[1] == 18 && index[2] == 59);
  cr_assert_eq(weir_wire_encode(60, index, NULL, 3, WEIR_WIRE_AUTO_FP32, written, sizeof written,
                                &size, NULL),
               WEIR_OK);
  cr_assert_eq(size, sizeof buckets);
  cr_expect(memcmp(written, buckets, size) == 0);
}

Test(kernels_wire_hand, refuses_malformed_buckets) {
  static const struct {
    uint8_t at, to, also, as;
    const char *what;
  } row[] = {
      {16, 0x23, 0, 'W', "a fall inside of a bucket"},
      {16, 0x23, 17, 0x55, "an index twice"},
      {16, 0xa5, 0, 'W', "a spare bit in the first section"},
      {16, 0x2d, 0, 'W', "four indices"},
      {16, 0x05, 0, 'W', "two"},
      {16, 0x45, 0, 'W', "an index behind the last bucket"},
      {18, 0x0c, 0, 'W', "60 of 60"},
      {18, 0x1b, 0, 'W', "a spare bit in the second section"},
      {14, 3, 0, 'W', "a longer list's parameter"},
      {14, 5, 0, 'W', "another of the same length"},
      {4, 4, 0, 'W', "another k"},
      {12, 1, 0, 'W', "a bitmap"},
  };
  uint32_t index[4];
  size_t k = 0;
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    uint8_t bad[sizeof buckets];
    memcpy(bad, buckets, sizeof bad);
    bad[row[i].at] = row[i].to;
    bad[row[i].also] = row[i].as;
    cr_expect_eq(weir_wire_decode(bad, sizeof bad, 60, index, NULL, 4, &k), WEIR_E_PROTOCOL, "%s",
                 row[i].what);
    cr_expect_eq(k, 0);
  }
}
