/* Direct all-to-all: all blocks in one transfer; one latency, and the network sorts out who is
 * first. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

weir_status weir_alltoall_direct(weir_comm *comm, const void *out, const size_t *out_bytes,
                                 void *in, size_t *in_bytes, size_t stride) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const unsigned char *from = out;
  unsigned char *to = in;
  weir_status status = weir_alltoall_begin(comm, out, out_bytes, in, in_bytes, stride);
  if (status != WEIR_OK) return status;
  const size_t others = (size_t)size - 1;
  if (others == 0) return WEIR_OK;
  for (size_t i = 0; i < others; i++) { /* nearest first, so that not all begin with rank 0 */
    const int target = weir_rotation_to(rank, size, 1 + (int)i);
    const int source = weir_rotation_from(rank, size, 1 + (int)i);
    comm->send[i] = (weir_send){target, from + (size_t)target * stride, out_bytes[target], 0};
    comm->recv[i] = (weir_recv){source, to + (size_t)source * stride, stride, 0, 0};
  }
  status = weir_comm_transfer(comm, comm->send, others, comm->recv, others);
  for (size_t i = 0; status == WEIR_OK && i < others; i++)
    in_bytes[comm->recv[i].peer] = comm->recv[i].bytes;
  return status;
}
