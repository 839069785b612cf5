/* Copying what is too long to be found in the caches again: stores go past them, so that a line is
 * not read before it is overwritten. */
#include "kernels/cpu/cpu.h"

#define LINE ((size_t)64)

void weir_copy_past(void *to, const void *from, size_t bytes) {
  const weir_cpu_ops *cpu = weir_cpu();
  unsigned char *t = to;
  const unsigned char *f = from;
  const size_t lead = (LINE - (uintptr_t)t % LINE) % LINE, begin = lead < bytes ? lead : bytes;
  const size_t lines = (bytes - begin) / LINE, end = begin + lines * LINE;
  if (begin > 0) memcpy(t, f, begin);
  if (lines > 0) cpu->copy_past(t + begin, f + begin, lines);
  if (end < bytes) memcpy(t + end, f + end, bytes - end);
  cpu->drain(); /* they are not ordered with other stores, by which others will be told */
}
