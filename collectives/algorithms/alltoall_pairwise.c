/* Pairwise all-to-all: in round s a rank sends to rank + s and receives from rank - s, so that no
 * rank's link is shared by two senders. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

weir_status weir_alltoall_pairwise(weir_comm *comm, const void *out, const size_t *out_bytes,
                                   void *in, size_t *in_bytes, size_t stride) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const unsigned char *from = out;
  unsigned char *to = in;
  weir_status status = weir_alltoall_begin(comm, out, out_bytes, in, in_bytes, stride);
  if (status != WEIR_OK) return status;
  for (int s = 1; status == WEIR_OK && s < size; s++) {
    const int target = weir_rotation_to(rank, size, s), source = weir_rotation_from(rank, size, s);
    const weir_send send = {target, from + (size_t)target * stride, out_bytes[target], (uint32_t)s};
    weir_recv recv = {source, to + (size_t)source * stride, stride, (uint32_t)s, 0};
    status = weir_comm_transfer(comm, &send, 1, &recv, 1);
    in_bytes[source] = recv.bytes;
  }
  return status;
}
