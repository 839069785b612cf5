/* Bits as bytes, with BMI2.  Included by the files of the AVX2 version; the including file defines
 * TARGET. */
#ifndef WEIR_CPU_BYTE_LANES_H
#define WEIR_CPU_BYTE_LANES_H

/* The low 8 bits as bytes of ones. */
TARGET static inline uint64_t byte_lanes(uint64_t bits) {
  return _pdep_u64(bits, UINT64_C(0x0101010101010101)) * 0xff;
}

#endif
