/* All-gather in one hop: every rank sends its block to every other.  One latency, the least there
 * can be, and no more bytes than any other takes. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

weir_status weir_allgather_direct(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                                  weir_headers *headers) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const size_t header = weir_headers_bytes(headers), others = (size_t)size - 1;
  unsigned char *base = all;
  weir_send *send = comm->send;
  weir_recv *recv = comm->recv;
  weir_status status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, headers);
  if (status != WEIR_OK || size == 1) return status;
  for (size_t i = 0; i < others; i++) { /* not all to the same rank first */
    const int to = weir_rotation_to(rank, size, (int)i + 1);
    const int from = weir_rotation_from(rank, size, (int)i + 1);
    send[i] = (weir_send){to, base + (size_t)rank * stride, bytes[rank], 0};
    recv[i] = (weir_recv){from, base + (size_t)from * stride, stride, 0, 0};
    if (header == 0) continue; /* headers lie behind all blocks, where lengths vary */
    send[others + i] = (weir_send){to, weir_headers_at(headers, rank), header, 1};
    recv[others + i] = (weir_recv){from, weir_headers_at(headers, from), header, 1, 0};
  }
  const size_t messages = header > 0 ? 2 * others : others;
  status = weir_comm_transfer(comm, send, messages, recv, messages);
  for (size_t i = 0; status == WEIR_OK && i < others; i++) bytes[recv[i].peer] = recv[i].bytes;
  return status == WEIR_OK ? weir_comm_expect(comm, recv + others, messages - others) : status;
}
