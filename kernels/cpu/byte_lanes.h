/* What eight bits say of eight lanes, in tables: two kilobytes each, which stay in the first cache,
 * and a load where BMI2 would take three dependent instructions.  Included by the files of the AVX2
 * version; the including file defines TARGET. */
#ifndef WEIR_CPU_BYTE_LANES_H
#define WEIR_CPU_BYTE_LANES_H

/* Bits set below lane j and up to it. */
#define BELOW(b, j) __builtin_popcount((b) & ((1U << (j)) - 1))
#define UP_TO(b, j) __builtin_popcount((b) & ((2U << (j)) - 1))

/* How many lanes there are before the one of the k-th bit set. */
#define PLACE(b, k)                                                                            \
  ((UP_TO(b, 0) <= (k)) + (UP_TO(b, 1) <= (k)) + (UP_TO(b, 2) <= (k)) + (UP_TO(b, 3) <= (k)) + \
   (UP_TO(b, 4) <= (k)) + (UP_TO(b, 5) <= (k)) + (UP_TO(b, 6) <= (k)) + (UP_TO(b, 7) <= (k)))
#define RANK(b, j) (BELOW(b, j) - ((b) >> (j)&1 ? 0 : 128))

#define EIGHT(of, b) \
  { of(b, 0), of(b, 1), of(b, 2), of(b, 3), of(b, 4), of(b, 5), of(b, 6), of(b, 7) }
#define ROWS_4(of, b) EIGHT(of, b), EIGHT(of, (b) + 1), EIGHT(of, (b) + 2), EIGHT(of, (b) + 3)
#define ROWS_16(of, b) ROWS_4(of, b), ROWS_4(of, (b) + 4), ROWS_4(of, (b) + 8), ROWS_4(of, (b) + 12)
#define ROWS_64(of, b) \
  ROWS_16(of, b), ROWS_16(of, (b) + 16), ROWS_16(of, (b) + 32), ROWS_16(of, (b) + 48)
#define ROWS(of) ROWS_64(of, 0U), ROWS_64(of, 64U), ROWS_64(of, 128U), ROWS_64(of, 192U)

/* The lanes that are set, in order; then 8, which a permutation takes as 0. */
static const int8_t byte_places[256][8] = {ROWS(PLACE)};
/* How many lanes below each are set, less 128 where it is not set itself. */
static const int8_t byte_ranks[256][8] = {ROWS(RANK)};

#undef BELOW
#undef UP_TO
#undef PLACE
#undef RANK
#undef EIGHT
#undef ROWS_4
#undef ROWS_16
#undef ROWS_64
#undef ROWS

/* A row of a table, a lane each. */
TARGET static inline __m256i byte_row(const int8_t table[256][8], uint64_t bits) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)table[bits & 0xff]));
}

#endif
