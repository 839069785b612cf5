/* Pairwise reduce-scatter: in round s a rank sends rank + s its share and adds what rank - s sends,
 * so that nothing is passed on and each value is rounded at most once. */
#include "collectives/algorithms/values.h"

weir_status weir_reduce_scatter_pairwise(weir_comm *comm, float *x, size_t n,
                                         weir_value_format format, float *error) {
  weir_status status = weir_comm_begin(comm, NULL);
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  if (status != WEIR_OK || size == 1) return status;
  const weir_values values = weir_values_of(x, error, format);
  const weir_chunk own = weir_ring_chunk(n, size, rank);
  const size_t most = weir_ring_chunk(n, size, 0).count;
  void *scratch = NULL;
  if (!values.bf16)
    status =
        weir_comm_scratch(comm, WEIR_SCRATCH_A, (most > 0 ? most : 1) * sizeof(float), &scratch);
  for (int s = 1; status == WEIR_OK && s < size; s++) {
    const int to = weir_rotation_to(rank, size, s), from = weir_rotation_from(rank, size, s);
    const weir_chunk sent = weir_ring_chunk(n, size, to);
    const weir_send send = {to, weir_values_pack(&values, sent), weir_values_bytes(&values, sent),
                            (uint32_t)s};
    void *const room = weir_values_room(&values, own, scratch);
    weir_recv recv = {from, room, weir_values_bytes(&values, own), (uint32_t)s, 0};
    status = weir_comm_exchange(comm, &send, 1, &recv, 1);
    if (status == WEIR_OK) weir_values_take(&values, own, room);
  }
  return status;
}
