/* Headers of ranks, for tests: what each says in its own, and whether all have come. */
#ifndef WEIR_TESTS_SAID_HEADERS_H
#define WEIR_TESTS_SAID_HEADERS_H

#include <string.h>

#include "collectives/collective.h"

#define HEADER 24

static inline unsigned char header_byte(int rank, int i) {
  return (unsigned char)(rank * 31 + i * 7 + 1);
}

/* A block for so many ranks in which this one has said its own. */
static inline weir_headers headers_of(unsigned char *block, int rank, int ranks) {
  memset(block, 0, (size_t)ranks * HEADER);
  for (int i = 0; i < HEADER; i++) block[rank * HEADER + i] = header_byte(rank, i);
  return (weir_headers){block, HEADER};
}

/* The first rank whose header is not what it said; -1: there is none. */
static inline int header_missing(const unsigned char *block, int ranks) {
  for (int r = 0; r < ranks; r++)
    for (int i = 0; i < HEADER; i++)
      if (block[r * HEADER + i] != header_byte(r, i)) return r;
  return -1;
}

#endif
