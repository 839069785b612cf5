/* Binomial broadcast: ceil(log2 N) hops on the critical path. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

weir_status weir_broadcast(weir_comm *comm, int root, void *data, size_t capacity, size_t *bytes) {
  const int rank = weir_comm_rank(comm);
  const int size = weir_comm_size(comm);
  weir_status status = weir_comm_root(comm, root);
  if (status == WEIR_OK && rank == root) status = weir_comm_block(*bytes, capacity);
  if (status == WEIR_OK) status = weir_comm_begin(comm, NULL);
  if (status != WEIR_OK || size == 1) return status;
  const int v = (rank - root + size) % size;
  const int level = weir_binomial_level(v, size);
  if (v != 0) {
    const int parent = (weir_binomial_parent(v, size) + root) % size;
    weir_recv recv = {parent, data, capacity, (uint32_t)level, 0};
    status = weir_comm_transfer(comm, NULL, 0, &recv, 1);
    if (status != WEIR_OK) return status;
    *bytes = recv.bytes;
  }
  for (int k = level - 1; k >= 0; k--) {
    const int child = weir_binomial_child(v, size, k);
    if (child < 0) continue;
    const weir_send send = {(child + root) % size, data, *bytes, (uint32_t)k};
    status = weir_comm_transfer(comm, &send, 1, NULL, 0);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}
