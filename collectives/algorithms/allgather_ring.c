/* Ring all-gather: N-1 rounds, in each of which a block goes on to the right neighbour. */
#include "collectives/comm.h"

weir_status weir_allgather_ring(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                                weir_headers *headers) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const size_t header = weir_headers_bytes(headers), messages = header > 0 ? 2 : 1;
  weir_status status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, headers);
  for (int hop = 0; status == WEIR_OK && hop < size - 1; hop++) {
    const int out = (rank - hop + size) % size, in = (left - hop + size) % size;
    const uint32_t number = 2 * (uint32_t)hop;
    unsigned char *base = all;
    const weir_send send[2] = {{right, base + (size_t)out * stride, bytes[out], number},
                               {right, weir_headers_at(headers, out), header, number + 1}};
    weir_recv recv[2] = {{left, base + (size_t)in * stride, stride, number, 0},
                         {left, weir_headers_at(headers, in), header, number + 1, 0}};
    status = weir_comm_transfer(comm, send, messages, recv, messages);
    if (status != WEIR_OK) break;
    bytes[in] = recv[0].bytes;
    status = weir_comm_expect(comm, recv + 1, messages - 1);
  }
  return status;
}
