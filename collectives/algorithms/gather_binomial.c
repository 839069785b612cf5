/* Binomial gather: a rank hands the blocks of its whole subtree to its parent, each as a message of
 * its own, all together; ceil(log2 N) hops. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

weir_status weir_gather_binomial(weir_comm *comm, int root, void *all, size_t stride,
                                 size_t *bytes) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  unsigned char *base = all;
  weir_status status = weir_comm_root(comm, root);
  if (status == WEIR_OK) status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, NULL);
  if (status != WEIR_OK || size == 1) return status;
  const int v = (rank - root + size) % size;
  for (int k = 0; k < weir_binomial_level(v, size); k++) {
    const int child = weir_binomial_child(v, size, k);
    if (child < 0) break;
    const int blocks = weir_binomial_subtree(child, size);
    for (int i = 0; i < blocks; i++)
      comm->recv[i] =
          (weir_recv){(child + root) % size, base + (size_t)((child + i + root) % size) * stride,
                      stride, (uint32_t)(child + i), 0};
    status = weir_comm_transfer(comm, NULL, 0, comm->recv, (size_t)blocks);
    if (status != WEIR_OK) return status;
    for (int i = 0; i < blocks; i++) bytes[(child + i + root) % size] = comm->recv[i].bytes;
  }
  if (v == 0) return WEIR_OK;
  const int blocks = weir_binomial_subtree(v, size);
  const int parent = (weir_binomial_parent(v, size) + root) % size;
  for (int i = 0; i < blocks; i++) {
    const int from = (v + i + root) % size;
    comm->send[i] =
        (weir_send){parent, base + (size_t)from * stride, bytes[from], (uint32_t)(v + i)};
  }
  return weir_comm_transfer(comm, comm->send, (size_t)blocks, NULL, 0);
}
