/* Direct broadcast: the root sends everything to everybody at once.  One latency, for N - 1 times
 * the bytes on the root's link: for short lists between ranks that are far from each other. */
#include "collectives/comm.h"

weir_status weir_broadcast_direct(weir_comm *comm, int root, void *data, size_t capacity,
                                  size_t *bytes) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  size_t sends = 0;
  weir_status status = weir_comm_root(comm, root);
  if (status == WEIR_OK && rank == root) status = weir_comm_block(*bytes, capacity);
  if (status == WEIR_OK) status = weir_comm_begin(comm, NULL);
  if (status != WEIR_OK || size == 1) return status;
  if (rank != root) {
    weir_recv recv = {root, data, capacity, 0, 0};
    status = weir_comm_transfer(comm, NULL, 0, &recv, 1);
    if (status == WEIR_OK) *bytes = recv.bytes;
    return status;
  }
  for (int r = 0; r < size; r++)
    if (r != root) comm->send[sends++] = (weir_send){r, data, *bytes, 0};
  return weir_comm_transfer(comm, comm->send, sends, NULL, 0);
}
