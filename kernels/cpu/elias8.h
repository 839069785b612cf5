/* Reading Elias-Fano lists with AVX2 and BMI2.  Included by avx2.c. */
#include "kernels/cpu/byte_lanes.h"

#define FIELD_LANES 8
#include "kernels/cpu/elias.h"

TARGET static size_t places(const uint8_t *bits, size_t *words, uint32_t from, uint32_t *to,
                            size_t room) {
  size_t got = 0;
  size_t word = 0;
  for (; word < *words && room - got >= WEIR_PLACES_ROOM; word++) {
    uint64_t window;
    memcpy(&window, bits + 8 * word, sizeof window);
    for (unsigned part = 0; part < 8; part++, window >>= 8) {
      __m256i place =
          _mm256_add_epi32(_mm256_set1_epi32((int)(from + (uint32_t)(64 * word) + 8 * part)),
                           byte_row(byte_places, window));
      _mm256_storeu_si256((void *)(to + got), place);
      got += (size_t)__builtin_popcount((unsigned)(window & 0xff));
    }
  }
  *words = word;
  return got;
}

TARGET static bool elias_low(const weir_elias *list, uint64_t first, uint32_t *index,
                             size_t count) {
  unsigned shift = list->shift;
  size_t at = 0;
  __m256i good = _mm256_set1_epi32(-1);
  if (shift <= WEIR_FIELD_MOST && count > 8) {
    /* The first stands alone: each of the others is compared with the one before it. */
    (void)elias_low_from(list, first, index, 0, 1);
    const field_lanes f = find_fields((unsigned)((first + 1) * shift % 8), shift);
    size_t begin = (size_t)((first + 1) * shift / 8);
    __m256i pick = _mm256_loadu_si256((const void *)f.pick);
    __m256i by = _mm256_loadu_si256((const void *)f.by);
    __m256i low = _mm256_set1_epi32((int)((1U << shift) - 1));
    __m256i number = _mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)(first + 1)),
                                      _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i flip = _mm256_set1_epi32(INT32_MIN); /* unsigned as signed */
    const __m256i turn = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
    __m256i last = _mm256_xor_si256(_mm256_set1_epi32((int)index[0]), flip);
    for (at = 1; at + 8 <= count && begin + f.from[1] + 16 <= list->low_bytes; at += 8) {
      __m256i fields = _mm256_loadu2_m128i((const void *)(list->low + begin + f.from[1]),
                                           (const void *)(list->low + begin + f.from[0]));
      fields = _mm256_srlv_epi32(_mm256_shuffle_epi8(fields, pick), by);
      __m256i x = _mm256_sub_epi32(_mm256_loadu_si256((const void *)(index + at)), number);
      x = _mm256_sll_epi32(x, _mm_cvtsi32_si128((int)shift));
      x = _mm256_or_si256(x, _mm256_and_si256(fields, low));
      _mm256_storeu_si256((void *)(index + at), x);
      x = _mm256_xor_si256(x, flip);
      __m256i turned = _mm256_permutevar8x32_epi32(x, turn);
      good = _mm256_and_si256(good, _mm256_cmpgt_epi32(x, _mm256_blend_epi32(turned, last, 1)));
      last = turned;
      begin += shift;
      number = _mm256_add_epi32(number, _mm256_set1_epi32(8));
    }
  }
  return elias_low_from(list, first, index, at, count) && _mm256_movemask_epi8(good) == -1;
}

/* --- masks, 64 bits of the first section at a time, half by half ----------------------------- */

/* Bytes moved up by so many places; what comes in is zero, or the end of `before`. */
#define UP(x, by) _mm256_alignr_epi8(x, _mm256_permute2x128_si256(x, x, 0x08), 16 - (by))
#define UP_BEHIND(before, x, by) \
  _mm256_alignr_epi8(x, _mm256_permute2x128_si256(before, x, 0x21), 16 - (by))

/* What the second section says of 16 bits of the first, from its at-th bit on: three bits for each
 * that is set, in four of their own. */
TARGET static inline uint64_t find_fours(const uint8_t *low, uint64_t at, uint32_t bits) {
  uint64_t window;
  memcpy(&window, low + at / 8, sizeof window);
  return _pdep_u64(window >> at % 8, _pdep_u64(bits, UINT64_C(0x1111111111111111)) * 7);
}

/* The same of 32 bits as bytes; zeros where they are not set. */
TARGET static inline __m256i find_low(const weir_elias *list, uint64_t taken, uint32_t bits) {
  uint8_t few[24];
  uint64_t at = 3 * taken;
  const uint8_t *from = list->low + at / 8;
  if (at / 8 + sizeof few > list->low_bytes) { /* the end of the list */
    memset(few, 0, sizeof few);
    if (at / 8 < list->low_bytes) memcpy(few, from, (size_t)(list->low_bytes - at / 8));
    from = few;
  }
  const uint64_t next = at % 8 + 3 * (uint64_t)__builtin_popcount(bits & 0xffff);
  const __m128i fours = _mm_set_epi64x((long long)find_fours(from, next, bits >> 16),
                                       (long long)find_fours(from, at % 8, bits & 0xffff));
  const __m128i even = _mm_and_si128(fours, _mm_set1_epi8(7));
  const __m128i odd = _mm_and_si128(_mm_srli_epi64(fours, 4), _mm_set1_epi8(7));
  return _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
}

/* The buckets whose zeros are here, each with all of it before that, and the first with what was
 * begun before. */
TARGET static inline uint8_t *put_buckets(__m256i zeros, __m256i whole, uint8_t begun,
                                          uint8_t *to) {
  uint64_t at[4], bytes[4];
  _mm256_storeu_si256((void *)at, zeros);
  _mm256_storeu_si256((void *)bytes, whole);
  bytes[0] |= (at[0] & (0 - at[0])) * begun;
  for (unsigned part = 0; part < 4; part++) {
    uint64_t out = _pext_u64(bytes[part], at[part]);
    memcpy(to, &out, sizeof out);
    to += (size_t)__builtin_popcountll(at[part]) / 8;
  }
  return to;
}

/* As in elias16.h. */
TARGET static inline void take_half(weir_elias_masks *m, const weir_elias *list, uint32_t bits,
                                    __m256i *last, __m256i *bad) {
  const __m256i eight = _mm256_set1_epi64x((long long)UINT64_C(0x8040201008040201));
  const __m256i bytes =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit =
      _mm256_and_si256(eight, _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), bytes));
  const __m256i zeros = _mm256_cmpeq_epi8(bit, _mm256_setzero_si256());
  const __m256i hot =
      _mm256_andnot_si256(zeros, _mm256_shuffle_epi8(eight, find_low(list, m->taken, bits)));
  const __m256i below = UP_BEHIND(*last, hot, 1);
  const __m256i lower = _mm256_cmpeq_epi8(_mm256_min_epu8(hot, below), hot);
  *bad = _mm256_or_si256(*bad, _mm256_andnot_si256(zeros, lower));
  const __m256i ones = _mm256_cmpeq_epi8(bit, eight);
  const __m256i two = _mm256_and_si256(ones, UP(ones, 1));
  const __m256i three = _mm256_and_si256(two, UP(two, 1));
  const __m256i five = _mm256_and_si256(three, UP(three, 2));
  __m256i sum = _mm256_or_si256(hot, _mm256_and_si256(two, below));
  sum = _mm256_or_si256(sum, _mm256_and_si256(three, UP(sum, 2)));
  sum = _mm256_or_si256(sum, _mm256_and_si256(five, UP(sum, 4)));
  m->to = put_buckets(zeros, UP(sum, 1), m->sum, m->to);
  m->sum = (uint8_t)(_mm256_extract_epi8(sum, 31) | (bits != UINT32_MAX ? 0 : m->sum));
  m->taken += (uint64_t)__builtin_popcount(bits);
  *last = hot;
}

TARGET static void elias_masks(weir_elias_masks *masks, const uint8_t *end) {
  weir_elias_masks m = *masks;
  const weir_elias list = *m.list; /* no store here changes it */
  __m256i last = _mm256_set1_epi8((char)m.last), bad = _mm256_setzero_si256();
  while (m.to < end) {
    const uint64_t bits = weir_elias_window(&list, m.at);
    take_half(&m, &list, (uint32_t)bits, &last, &bad);
    take_half(&m, &list, (uint32_t)(bits >> 32), &last, &bad);
    m.at += 64;
  }
  m.last = (uint8_t)_mm256_extract_epi8(last, 31);
  m.good = m.good && _mm256_testz_si256(bad, bad);
  *masks = m;
}

static bool elias_masks_able(void) { return true; }

#undef UP
#undef UP_BEHIND
