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

/* The parameter of the shortest list of k of n elements.  As lengths grow with n and k for each
 * parameter by itself, so does that of the shortest. */
WEIR_NUMBER unsigned weir_elias_shift(uint64_t n, uint64_t k) {
  unsigned best = 0;
  for (unsigned shift = 1; shift < 32; shift++) {
    best = weir_elias_bytes(n, k, shift) < weir_elias_bytes(n, k, best) ? shift : best;
  }
  return best;
}

#endif
