/* Recursive halving and doubling, for any number of ranks. */
#include "collectives/patterns/patterns.h"

static int core_of(int size) {
  int core = 1;
  while (2 * core <= size) core *= 2;
  return core;
}

weir_halving weir_halving_place(int rank, int size) {
  const int core = core_of(size), extra = size - core;
  if (rank >= 2 * extra) return (weir_halving){core, rank - extra, -1};
  if (rank % 2 == 0) return (weir_halving){core, -1, rank + 1};
  return (weir_halving){core, rank / 2, rank - 1};
}

int weir_halving_rank(int v, int size) {
  const int extra = size - core_of(size);
  return v < extra ? 2 * v + 1 : v + extra;
}

/* The first rank that place v stands for. */
static int first_rank(int v, int extra) { return v < extra ? 2 * v : v + extra; }

void weir_halving_ranks(int first, int count, int size, int *begin, int *ranks) {
  const int extra = size - core_of(size);
  *begin = first_rank(first, extra);
  *ranks = first_rank(first + count, extra) - *begin;
}

weir_chunk weir_halving_range(size_t n, int core, int first, int count) {
  const weir_chunk low = weir_ring_chunk(n, core, first);
  const weir_chunk high = weir_ring_chunk(n, core, first + count - 1);
  return (weir_chunk){low.begin, high.begin + high.count - low.begin};
}
