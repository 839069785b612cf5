/* Reading Elias-Fano lists with AVX-512.  Included by avx512.c. */
#define FIELD_LANES 16
#include "kernels/cpu/elias.h"

TARGET static size_t places(const uint8_t *bits, size_t *words, uint32_t from, uint32_t *to,
                            size_t room) {
  size_t got = 0;
  size_t word = 0;
  __m512i place =
      _mm512_add_epi32(_mm512_set1_epi32((int)from),
                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  for (; word < *words && room - got >= WEIR_PLACES_ROOM; word++) {
    uint64_t window;
    memcpy(&window, bits + 8 * word, sizeof window);
    for (unsigned quarter = 0; quarter < 4; quarter++, window >>= 16) {
      __m512i some = _mm512_maskz_compress_epi32((__mmask16)window, place);
      _mm512_storeu_si512(to + got, some);
      got += (size_t)__builtin_popcount((unsigned)(window & 0xffff));
      place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
    }
  }
  *words = word;
  return got;
}

TARGET static inline __m512i load_quarters(const uint8_t *data, const size_t from[4]) {
  __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(data + from[0])));
  x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(data + from[1])), 1);
  x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(data + from[2])), 2);
  return _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(data + from[3])), 3);
}

TARGET static bool elias_low(const weir_elias *list, uint64_t first, uint32_t *index,
                             size_t count) {
  unsigned shift = list->shift;
  size_t at = 0;
  __mmask16 bad = 0;
  if (shift <= WEIR_FIELD_MOST && count >= 16) {
    const field_lanes f = find_fields((unsigned)(first * shift % 8), shift);
    size_t begin = (size_t)(first * shift / 8);
    __m512i pick = _mm512_loadu_si512(f.pick), by = _mm512_loadu_si512(f.by);
    __m512i low = _mm512_set1_epi32((int)((1U << shift) - 1));
    __m512i number =
        _mm512_add_epi32(_mm512_set1_epi32((int)(uint32_t)first),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __m512i before = _mm512_setzero_si512();
    __mmask16 compared = 0xfffe; /* nothing comes before the first */
    for (; at + 16 <= count && begin + f.from[3] + 16 <= list->low_bytes; at += 16) {
      __m512i fields = _mm512_shuffle_epi8(load_quarters(list->low + begin, f.from), pick);
      fields = _mm512_and_si512(_mm512_srlv_epi32(fields, by), low);
      __m512i x = _mm512_sub_epi32(_mm512_loadu_si512(index + at), number);
      x = _mm512_or_si512(_mm512_sll_epi32(x, _mm_cvtsi32_si128((int)shift)), fields);
      _mm512_storeu_si512(index + at, x);
      __m512i lower = _mm512_alignr_epi32(x, before, 15);
      bad |= _mm512_mask_cmple_epu32_mask(compared, x, lower);
      before = x;
      compared = 0xffff;
      begin += 2 * (size_t)shift;
      number = _mm512_add_epi32(number, _mm512_set1_epi32(16));
    }
  }
  return elias_low_from(list, first, index, at, count) && bad == 0;
}

/* --- masks, 64 bits of the first section at a time ------------------------------------------- */

#define TARGET_BYTES \
  __attribute__((    \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))

/* Bytes, one of which is set, of the next 64 indices. */
TARGET_BYTES static inline __m512i hot_bytes(const weir_elias *list, uint64_t taken) {
  uint64_t bit = 3 * taken;
  uint8_t few[32] = {0};
  const uint8_t *from = list->low + bit / 8;
  if (bit / 8 + sizeof few > list->low_bytes) { /* the end of the list */
    if (bit / 8 < list->low_bytes) memcpy(few, from, (size_t)(list->low_bytes - bit / 8));
    from = few;
  }
  const __m512i eights = _mm512_setr_epi64(
      0x0706050403020100, 0x0a09080706050403, 0x0d0c0b0a09080706, 0x100f0e0d0c0b0a09,
      0x131211100f0e0d0c, 0x161514131211100f, 0x1918171615141312, 0x1c1b1a1918171615);
  __m512i raw = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)from));
  __m512i place =
      _mm512_add_epi8(_mm512_set1_epi64(0x15120f0c09060300), _mm512_set1_epi8((char)(bit % 8)));
  __m512i field = _mm512_multishift_epi64_epi8(place, _mm512_permutexvar_epi8(eights, raw));
  const __m512i hot = _mm512_set1_epi64((long long)0x8040201008040201);
  return _mm512_shuffle_epi8(hot, _mm512_and_si512(field, _mm512_set1_epi8(7)));
}

TARGET_BYTES static void elias_masks(weir_elias_masks *masks, const uint8_t *end) {
  weir_elias_masks m = *masks;
  const weir_elias list = *m.list; /* no store here changes it */
  uint8_t numbers[64];
  for (unsigned i = 0; i < 64; i++) numbers[i] = (uint8_t)i;
  const __m512i number = _mm512_loadu_si512(numbers);
  const __m512i up1 = _mm512_sub_epi8(number, _mm512_set1_epi8(1)); /* 0: byte 63 of the other */
  const __m512i up2 = _mm512_sub_epi8(number, _mm512_set1_epi8(2));
  const __m512i up4 = _mm512_sub_epi8(number, _mm512_set1_epi8(4));
  __m512i last = _mm512_set1_epi8((char)m.last);
  uint64_t bad = 0;
  while (m.to < end) {
    uint64_t ones = weir_elias_window(&list, m.at);
    __m512i hot = _mm512_maskz_expand_epi8(ones, hot_bytes(&list, m.taken));
    __m512i below = _mm512_permutex2var_epi8(hot, up1, last);
    bad |= _mm512_mask_cmple_epu8_mask(ones, hot, below);
    /* Each byte or-ed with those before it in its bucket, of which 8 are the most. */
    uint64_t two = ones & ones << 1, three = two & two << 1, five = three & three << 2;
    __m512i sum = _mm512_or_si512(hot, _mm512_maskz_mov_epi8(two, below));
    sum = _mm512_or_si512(sum, _mm512_maskz_permutexvar_epi8(three, up2, sum));
    sum = _mm512_or_si512(sum, _mm512_maskz_permutexvar_epi8(five, up4, sum));
    /* A bucket's zero bit has all of it before itself. */
    __m512i whole = _mm512_maskz_permutexvar_epi8(~UINT64_C(1), up1, sum);
    __m512i out = _mm512_maskz_compress_epi8(~ones, whole);
    out = _mm512_or_si512(out, _mm512_zextsi128_si512(_mm_cvtsi32_si128(m.sum)));
    _mm512_storeu_si512(m.to, out);
    unsigned top = (unsigned)_mm_extract_epi8(_mm512_extracti32x4_epi32(sum, 3), 15);
    size_t taken = (size_t)__builtin_popcountll(ones);
    m.sum = (uint8_t)(top | (taken < 64 ? 0 : m.sum));
    m.to += 64 - taken;
    m.taken += taken;
    m.at += 64;
    last = hot;
  }
  m.last = (uint8_t)_mm_extract_epi8(_mm512_extracti32x4_epi32(last, 3), 15);
  m.good = m.good && bad == 0;
  *masks = m;
}

static bool elias_masks_able(void) {
  return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}

#undef TARGET_BYTES
