/* Wire messages written by hand, byte by byte, and harmed. */
#include <criterion/criterion.h>

#include "kernels/cpu/cpu.h"
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

/* The last of three elements of 7 is said to be the eighth: as many bits as there should be. */
Test(kernels_wire_hand, a_bit_beyond_the_last_element_is_found) {
  uint8_t bytes[] = {'W', 'R', 'M', '1', 3,    0,    0,    0,    7,    0,    0,   0,
                     1,   2,   0,   0,   0x46, 0x80, 0x3f, 0x00, 0xc0, 0x40, 0x40};
  SCOPED weir_codec_context *const context = open_context();
  uint32_t index[3];
  float value[3], to[8] = {0};
  size_t k = 0;
  double peak = 0;
  for (int bad = 0; bad < 2; bad++) {
    const weir_status want = bad ? WEIR_E_PROTOCOL : WEIR_OK;
    bytes[16] = bad ? 0x86 : 0x46;
    cr_expect_eq(weir_wire_decode(bytes, sizeof bytes, 7, index, value, 3, &k), want);
    cr_expect_eq(weir_wire_check(NULL, bytes, sizeof bytes, 7, &peak), want);
    cr_expect_eq(weir_wire_decode_dense(NULL, bytes, sizeof bytes, 7, to), want);
    memset(to, 0, sizeof to);
    cr_expect_eq(weir_wire_decode_add(NULL, bytes, sizeof bytes, 7, to), want);
    cr_expect_eq(weir_wire_decode_add(context, bytes, sizeof bytes, 7, to), want);
    cr_expect(to[1] == (bad ? 0.0F : 2.0F) && to[6] == (bad ? 0.0F : 6.0F) && to[7] == 0.0F);
  }
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

/* --- the shortest list ------------------------------------------------------------------------ */

static size_t eights(size_t bits) { return (bits + 7) / 8; }

/* Bytes of each list of k of n indices as wire.h describes them; Elias-Fano's with its best
 * buckets. */
static void list_bytes(size_t n, size_t k, size_t bytes[3]) {
  bytes[0] = 4 * k;
  bytes[1] = eights(n);
  bytes[2] = SIZE_MAX;
  for (unsigned s = 0; s < 32; s++) {
    const size_t bucket = (size_t)1 << s;
    const size_t here = eights(k + (n + bucket - 1) / bucket) + eights(k * s);
    if (here < bytes[2]) bytes[2] = here;
  }
}

/* At every density the message has the least of the three lists: k of n for small n, and from one
 * index to all of a large gradient.  Each of them is the least somewhere. */
Test(kernels_wire_hand, the_least_of_three_lists_is_sent) {
  static uint32_t index[400];
  static float value[400];
  static uint8_t bytes[16 + 8 * 400];
  size_t sent[3] = {0, 0, 0};
  weir_rng rng = weir_rng_of(19);
  for (size_t n = 1; n <= 400; n += n < 100 ? 1 : 37)
    for (size_t k = 1; k <= n; k++) {
      size_t list[3], size = 0;
      list_bytes(n, k, list);
      const size_t two = list[0] < list[1] ? list[0] : list[1];
      const size_t least = two < list[2] ? two : list[2];
      random_indices(&rng, n, k, index);
      cr_assert_eq(weir_wire_encode(n, index, value, k, WEIR_WIRE_AUTO_FP32, bytes, sizeof bytes,
                                    &size, NULL),
                   WEIR_OK);
      cr_assert_eq(size, 16 + least + 4 * k, "%zu of %zu: %zu bytes", k, n, size);
      cr_assert(bytes[12] < 3 && list[bytes[12]] == least);
      sent[bytes[12]]++;
    }
  cr_assert(sent[1] > 0 && sent[2] > 0, "%zu, %zu", sent[1], sent[2]);
  /* One of as many as there can be: buckets would take 3 bits and 31, in whole bytes 5. */
  size_t size = 0;
  cr_assert_eq(weir_wire_encode(UINT32_MAX, (const uint32_t[]){77}, NULL, 1, WEIR_WIRE_AUTO_FP32,
                                bytes, sizeof bytes, &size, NULL),
               WEIR_OK);
  cr_assert(size == 16 + 4 && bytes[12] == 0);
  const size_t n = 100000007;
  for (size_t k = 1; k < n; k += 1 + k / 3) {
    size_t list[3];
    list_bytes(n, k, list);
    const size_t two = list[0] < list[1] ? list[0] : list[1];
    cr_assert_eq(weir_wire_bound(n, k, WEIR_WIRE_AUTO_BF16),
                 16 + (two < list[2] ? two : list[2]) + 2 * k, "%zu", k);
  }
}

/* Too little room is refused, whatever it is, and nothing is written. */
Test(kernels_wire_hand, too_little_room_is_left_alone) {
  static const uint32_t index[5] = {2, 3, 17, 40, 41};
  static const float value[5] = {1, -2, 3, -4, 5};
  for (weir_wire_format f = WEIR_WIRE_PAPER; f < WEIR_WIRE_LISTS; f++) {
    uint8_t bytes[64];
    float error[5] = {0};
    const size_t whole = weir_wire_bound(64, 5, f);
    size_t size = 9;
    cr_assert_leq(whole, sizeof bytes);
    memset(bytes, 0xa5, sizeof bytes);
    for (size_t room = 0; room < whole; room++) {
      cr_assert_eq(weir_wire_encode(64, index, value, 5, f, bytes, room, &size, error),
                   WEIR_E_CAPACITY);
      cr_assert_eq(size, 0);
    }
    for (size_t i = 0; i < sizeof bytes; i++) cr_assert_eq(bytes[i], 0xa5);
    cr_assert_eq(weir_wire_encode(64, index, value, 5, f, bytes, whole, &size, error), WEIR_OK);
    for (size_t i = whole; i < sizeof bytes; i++) cr_assert_eq(bytes[i], 0xa5);
  }
}

/* --- lists read piece by piece ---------------------------------------------------------------- */

/* Two indices in a bucket, the second of which begins a piece of 512 (looking, adding), are
 * made equal: everyone who reads the list finds it. */
static void expect_twice_found(size_t place, const uint8_t *bytes, size_t size, size_t n) {
  static float to[8192];
  static uint32_t index[600];
  static float value[600];
  size_t k = 0;
  double peak = 0;
  memset(to, 0, sizeof to);
  cr_expect_eq(weir_wire_decode(bytes, size, n, index, value, 600, &k), WEIR_E_PROTOCOL);
  cr_expect_eq(weir_wire_check(NULL, bytes, size, n, &peak), WEIR_E_PROTOCOL, "%zu", place);
  cr_expect_eq(weir_wire_decode_add(NULL, bytes, size, n, to), WEIR_E_PROTOCOL, "%zu", place);
  for (size_t i = 0; i < n; i++) cr_assert_eq(to[i], 0.0F);
  cr_expect_eq(weir_wire_decode_dense(NULL, bytes, size, n, to), WEIR_E_PROTOCOL, "%zu", place);
}

Test(kernels_wire_hand, an_index_twice_is_found_between_pieces) {
  enum { N = 7400, K = 600, SHIFT = 3 };
  static uint32_t index[K];
  static float value[K];
  static uint8_t bytes[16 + 8 * K];
  for (size_t place = 64; place <= 512; place *= 8) {
    size_t size = 0;
    for (uint32_t i = 0; i < K; i++) index[i] = 12 * i;
    index[place - 1] = 12 * (uint32_t)place; /* a multiple of 8: a bucket's first */
    index[place] = index[place - 1] + 1;
    cr_assert_eq(
        weir_wire_encode(N, index, value, K, WEIR_WIRE_AUTO_FP32, bytes, sizeof bytes, &size, NULL),
        WEIR_OK, "%s", weir_last_error());
    cr_assert(bytes[12] == 2 && bytes[14] == SHIFT);
    /* In the second section the lowest bit of the second's entry says which it is. */
    const size_t bit = SHIFT * place;
    bytes[16 + (K + (N + 7) / 8 + 7) / 8 + bit / 8] ^= (uint8_t)(1U << bit % 8);
    for (int v = 0; v < VERSIONS; v++) {
      if (version(v) == NULL) continue;
      weir_cpu_force(version(v));
      expect_twice_found(place, bytes, size, N);
    }
    weir_cpu_force(NULL);
  }
}
