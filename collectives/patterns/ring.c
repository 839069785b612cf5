/* Which chunk goes round a ring at which hop. */
#include "collectives/patterns/patterns.h"

static int wrap(int value, int size) { return ((value % size) + size) % size; }

weir_chunk weir_ring_chunk(size_t n, int size, int chunk) {
  const size_t base = n / (size_t)size;
  const size_t longer = n % (size_t)size;
  const size_t i = (size_t)chunk;
  return (weir_chunk){.begin = i * base + (i < longer ? i : longer),
                      .count = base + (i < longer ? 1 : 0)};
}

int weir_ring_reduce_send(int rank, int size, int hop) { return wrap(rank - hop, size); }
int weir_ring_reduce_recv(int rank, int size, int hop) { return wrap(rank - hop - 1, size); }
int weir_ring_owned(int rank, int size) { return wrap(rank + 1, size); }
int weir_ring_gather_send(int rank, int size, int hop) { return wrap(rank + 1 - hop, size); }
int weir_ring_gather_recv(int rank, int size, int hop) { return wrap(rank - hop, size); }
