/* Binomial reduction: ceil(log2 N) hops of everything on the critical path; a rank adds its
 * children's sums in ascending order of their distance. */
#include "collectives/algorithms/values.h"

weir_status weir_reduce_binomial(weir_comm *comm, int root, float *x, size_t n,
                                 weir_value_format format, float *error) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  weir_status status = weir_comm_root(comm, root);
  if (status == WEIR_OK) status = weir_comm_begin(comm, NULL);
  if (status != WEIR_OK || size == 1) return status;
  const weir_values values = weir_values_of(x, error, format);
  const weir_chunk all = {0, n};
  const size_t bytes = weir_values_bytes(&values, all);
  const int v = (rank - root + size) % size, level = weir_binomial_level(v, size);
  void *scratch = NULL;
  if (level > 0 && !values.bf16)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, bytes > 0 ? bytes : 1, &scratch);
  void *const room = weir_values_room(&values, all, scratch);
  for (int k = 0; status == WEIR_OK && k < level; k++) {
    const int child = weir_binomial_child(v, size, k);
    if (child < 0) break;
    weir_recv recv = {(child + root) % size, room, bytes, (uint32_t)k, 0};
    status = weir_comm_exchange(comm, NULL, 0, &recv, 1);
    if (status == WEIR_OK) weir_values_take(&values, all, room);
  }
  if (status != WEIR_OK || v == 0) return status;
  const int parent = (weir_binomial_parent(v, size) + root) % size;
  const weir_send send = {parent, weir_values_pack(&values, all), bytes, (uint32_t)level};
  return weir_comm_exchange(comm, &send, 1, NULL, 0);
}
