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
      uint64_t number = _pext_u64(UINT64_C(0x0706050403020100), byte_lanes(window & 0xff));
      __m256i place =
          _mm256_add_epi32(_mm256_set1_epi32((int)(from + (uint32_t)(64 * word) + 8 * part)),
                           _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)number)));
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
