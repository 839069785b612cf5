/* Direct gather: every rank sends its block to the root, which takes them as they come. */
#include "collectives/comm.h"

weir_status weir_gather_direct(weir_comm *comm, int root, void *all, size_t stride, size_t *bytes) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  unsigned char *base = all;
  weir_status status = weir_comm_root(comm, root);
  if (status == WEIR_OK) status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, NULL);
  if (status != WEIR_OK || size == 1) return status;
  if (rank != root) {
    const weir_send send = {root, base + (size_t)rank * stride, bytes[rank], 0};
    return weir_comm_transfer(comm, &send, 1, NULL, 0);
  }
  size_t recvs = 0;
  for (int r = 0; r < size; r++)
    if (r != root) comm->recv[recvs++] = (weir_recv){r, base + (size_t)r * stride, stride, 0, 0};
  status = weir_comm_transfer(comm, NULL, 0, comm->recv, recvs);
  for (size_t i = 0; status == WEIR_OK && i < recvs; i++)
    bytes[comm->recv[i].peer] = comm->recv[i].bytes;
  return status;
}
