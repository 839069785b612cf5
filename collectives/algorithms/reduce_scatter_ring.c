/* Ring reduce-scatter: the first half of the ring all-reduce, turned by one rank so that rank r
 * ends with chunk r.  Chunk c is summed in the order of ranks c+1, c+2, ..., c (mod N). */
#include "collectives/algorithms/values.h"

weir_status weir_reduce_scatter_ring(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                     float *error) {
  weir_status status = weir_comm_begin(comm, NULL);
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  if (status != WEIR_OK || size == 1) return status;
  const weir_values values = weir_values_of(x, error, format);
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const size_t most = weir_ring_chunk(n, size, 0).count;
  void *scratch = NULL;
  if (!values.bf16)
    status =
        weir_comm_scratch(comm, WEIR_SCRATCH_A, (most > 0 ? most : 1) * sizeof(float), &scratch);
  for (uint32_t hop = 0; status == WEIR_OK && hop < (uint32_t)size - 1; hop++) {
    const weir_chunk sent = weir_ring_chunk(n, size, weir_ring_reduce_send(left, size, (int)hop));
    const weir_chunk got = weir_ring_chunk(n, size, weir_ring_reduce_recv(left, size, (int)hop));
    const weir_send send = {right, weir_values_pack(&values, sent),
                            weir_values_bytes(&values, sent), hop};
    void *const room = weir_values_room(&values, got, scratch);
    weir_recv recv = {left, room, weir_values_bytes(&values, got), hop, 0};
    status = weir_comm_exchange(comm, &send, 1, &recv, 1);
    if (status == WEIR_OK) weir_values_take(&values, got, room);
  }
  return status;
}
