/* Bruck's all-gather: who sends how many blocks to whom in a round. */
#include "collectives/patterns/patterns.h"

weir_bruck_round weir_bruck(int rank, int size, int round) {
  const int distance = 1 << round;
  const int missing = size - distance;
  const int from = (rank + distance) % size;
  return (weir_bruck_round){.to = (rank - distance + size) % size,
                            .from = from,
                            .count = distance < missing ? distance : missing,
                            .first_sent = rank,
                            .first_received = from};
}
