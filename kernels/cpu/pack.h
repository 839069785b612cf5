/* Packing and unpacking codes on x86: of 4 bits, the width most used, 32 at a time with the 128-bit
 * instructions that every version has, of other widths 8 at a time with BMI2.  The including file
 * defines TARGET. */
#ifndef TARGET
#error "define TARGET first"
#endif
#include "kernels/cpu/quantize.h"

/* Where eight codes' bits lie in eight bytes. */
static inline uint64_t code_bits(unsigned bits) {
  return ((UINT64_C(1) << bits) - 1) * UINT64_C(0x0101010101010101);
}

/* Pairs of codes become low + 16 * high.  Returns how many groups that makes. */
TARGET static inline size_t pack_nibbles(const uint8_t *code, size_t groups, uint8_t *out) {
  size_t done = 0;
  for (; done + 4 <= groups; done += 4) {
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(code + 8 * done));
    __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(code + 8 * done + 16));
    __m128i weights = _mm_set1_epi16(0x1001);
    __m128i bytes =
        _mm_packus_epi16(_mm_maddubs_epi16(first, weights), _mm_maddubs_epi16(second, weights));
    _mm_storeu_si128((__m128i *)(void *)(out + 4 * done), bytes);
  }
  return done;
}

TARGET static inline size_t unpack_nibbles(const uint8_t *in, size_t groups, uint8_t *code) {
  size_t done = 0;
  for (; done + 4 <= groups; done += 4) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(in + 4 * done));
    __m128i mask = _mm_set1_epi8(0x0f);
    __m128i low = _mm_and_si128(bytes, mask);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    _mm_storeu_si128((__m128i *)(void *)(code + 8 * done), _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128((__m128i *)(void *)(code + 8 * done + 16), _mm_unpackhi_epi8(low, high));
  }
  return done;
}

/* Whole words go out, as in plain_pack(). */
TARGET static void pack(const uint8_t *code, size_t groups, unsigned bits, uint8_t *out) {
  size_t done = 0;
  if (bits == 8) {
    memcpy(out, code, 8 * groups);
    return;
  }
  if (bits == 4) {
    done = pack_nibbles(code, groups, out);
  } else {
    const uint64_t where = code_bits(bits);
    for (const size_t words = in_words(groups, bits); done < words; done++) {
      uint64_t w;
      memcpy(&w, code + 8 * done, sizeof w);
      w = _pext_u64(w, where);
      memcpy(out + bits * done, &w, sizeof w);
    }
  }
  plain_pack(code + 8 * done, groups - done, bits, out + bits * done);
}

TARGET static void unpack(const uint8_t *in, size_t groups, unsigned bits, uint8_t *code) {
  size_t done = 0;
  if (bits == 8) {
    memcpy(code, in, 8 * groups);
    return;
  }
  if (bits == 4) {
    done = unpack_nibbles(in, groups, code);
  } else {
    const uint64_t where = code_bits(bits);
    for (const size_t words = in_words(groups, bits); done < words; done++) {
      uint64_t w;
      memcpy(&w, in + bits * done, sizeof w);
      w = _pdep_u64(w, where);
      memcpy(code + 8 * done, &w, sizeof w);
    }
  }
  plain_unpack(in + bits * done, groups - done, bits, code + 8 * done);
}
