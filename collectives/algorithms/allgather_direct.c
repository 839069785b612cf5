/* All-gather in one hop: every rank sends its block to every other.  One latency, the least there
 * can be, and no more bytes than any other takes. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

weir_status weir_allgather_direct(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                                  weir_headers *headers) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const size_t others = (size_t)size - 1;
  unsigned char *base = all;
  weir_recv *recv = comm->recv;
  weir_status status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, headers);
  if (status != WEIR_OK || size == 1) return status;
  for (size_t i = 0; i < others; i++) {
    const int from = weir_rotation_from(rank, size, (int)i + 1);
    recv[i] = (weir_recv){from, base + (size_t)from * stride, stride, 0, 0};
  }
  status = weir_comm_to_all(comm, base + (size_t)rank * stride, bytes[rank], 0, headers);
  for (size_t i = 0; status == WEIR_OK && i < others; i++) bytes[recv[i].peer] = recv[i].bytes;
  return status;
}
