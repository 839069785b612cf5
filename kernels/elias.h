/* Lengths of Elias-Fano lists (wire_elias.c), for both compilers. */
#ifndef WEIR_KERNELS_ELIAS_H
#define WEIR_KERNELS_ELIAS_H

#include "kernels/number.h"

/* Buckets of 2^shift elements each. */
WEIR_NUMBER uint64_t weir_elias_buckets(uint64_t n, unsigned shift) {
  return (n >> shift) + ((n & ((UINT64_C(1) << shift) - 1)) != 0);
}

/* Bits of the first section, of counts. */
WEIR_NUMBER uint64_t weir_elias_high_bits(uint64_t n, uint64_t k, unsigned shift) {
  return k + weir_elias_buckets(n, shift);
}

WEIR_NUMBER uint64_t weir_elias_high_bytes(uint64_t n, uint64_t k, unsigned shift) {
  return (weir_elias_high_bits(n, k, shift) + 7) / 8;
}

WEIR_NUMBER uint64_t weir_elias_bytes(uint64_t n, uint64_t k, unsigned shift) {
  return weir_elias_high_bytes(n, k, shift) + (k * shift + 7) / 8;
}

/* The parameter of the shortest list of k of n elements, the least of them.  As lengths grow with n
 * and k for each parameter by itself, so does that of the shortest.  It is near log2(n / k): one
 * less takes k bits away from the second section and adds n / 2^shift to the first; how near, for
 * rounding to bytes, is tested (test_kernels_spread.c). */
WEIR_NUMBER unsigned weir_elias_shift(uint64_t n, uint64_t k) {
  unsigned near = 0, end = 32;
  while (k > 0 && near < 31 && k << (near + 1) <= n) near++;
  unsigned best = near > 4 && k > 0 ? near - 4 : 0;
  if (k > 0 && near + 4 < end) end = near + 4;
  for (unsigned shift = best + 1; shift < end; shift++)
    best = weir_elias_bytes(n, k, shift) < weir_elias_bytes(n, k, best) ? shift : best;
  return best;
}

#endif
