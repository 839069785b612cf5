/* Copying what is too long to be found in the caches again: stores go past them, so that a line is not
 * read before it is overwritten. */
#include <string.h>

#include "kernels/codec.h"

#if defined(__SSE2__)
#include <emmintrin.h>

#define LINE ((size_t)64)

static void copy_line(unsigned char *to, const unsigned char *from) {
  __m128i part[4];
  for (int i = 0; i < 4; i++) part[i] = _mm_loadu_si128((const __m128i *)(const void *)from + i);
  for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(void *)to + i, part[i]);
}

void weir_copy_past(void *to, const void *from, size_t bytes) {
  unsigned char *t = to;
  const unsigned char *f = from;
  const size_t begin = (LINE - (uintptr_t)t % LINE) % LINE;
  size_t at = begin < bytes ? begin : bytes;
  if (at > 0) memcpy(t, f, at);
  for (; at + LINE <= bytes; at += LINE) copy_line(t + at, f + at);
  if (at < bytes) memcpy(t + at, f + at, bytes - at);
  _mm_sfence(); /* they are not ordered with other stores, by which others will be told */
}
#else
void weir_copy_past(void *to, const void *from, size_t bytes) {
  if (bytes > 0) memcpy(to, from, bytes);
}
#endif
