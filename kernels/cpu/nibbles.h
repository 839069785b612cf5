/* Packing and unpacking with codes of 4 bits, the width most used, done 32 codes at a time with the
 * 128-bit instructions that every x86 version has; other widths as plain C does them.  The
 * including file defines TARGET. */
#ifndef TARGET
#error "define TARGET first"
#endif
#include "kernels/cpu/quantize.h"

/* Pairs of codes become low + 16 * high. */
TARGET static void pack(const uint8_t *code, size_t groups, unsigned bits, uint8_t *out) {
  size_t done = 0;
  for (; bits == 4 && done + 4 <= groups; done += 4) {
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(code + 8 * done));
    __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(code + 8 * done + 16));
    __m128i weights = _mm_set1_epi16(0x1001);
    __m128i bytes =
        _mm_packus_epi16(_mm_maddubs_epi16(first, weights), _mm_maddubs_epi16(second, weights));
    _mm_storeu_si128((__m128i *)(void *)(out + 4 * done), bytes);
  }
  plain_pack(code + 8 * done, groups - done, bits, out + bits * done);
}

TARGET static void unpack(const uint8_t *in, size_t groups, unsigned bits, uint8_t *code) {
  size_t done = 0;
  for (; bits == 4 && done + 4 <= groups; done += 4) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(in + 4 * done));
    __m128i mask = _mm_set1_epi8(0x0f);
    __m128i low = _mm_and_si128(bytes, mask);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    _mm_storeu_si128((__m128i *)(void *)(code + 8 * done), _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128((__m128i *)(void *)(code + 8 * done + 16), _mm_unpackhi_epi8(low, high));
  }
  plain_unpack(in + bits * done, groups - done, bits, code + 8 * done);
}
