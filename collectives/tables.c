/* The tables of all collectives but all-reduce, whose table is in comm.c. */

#include "base/base.h"
#include "base/schemes.h"
#include "collectives/comm.h"

const weir_broadcast_row weir_broadcasts[WEIR_BROADCAST_COUNT] = {
    {WEIR_BROADCAST_BINOMIAL, "binomial", "ceil(log2 N) hops of everything", weir_broadcast},
    {WEIR_BROADCAST_CHAIN, "chain", "from rank to rank in chunks, every link busy at once",
     weir_broadcast_chain},
    {WEIR_BROADCAST_DIRECT, "direct", "the root to everybody at once: 1 hop",
     weir_broadcast_direct},
};

const weir_allgather_row weir_allgathers[WEIR_ALLGATHER_COUNT] = {
    {WEIR_ALLGATHER_BRUCK, "bruck", "ceil(log2 N) rounds for any N", weir_allgather},
    {WEIR_ALLGATHER_RING, "ring", "N-1 rounds of one block, to a neighbour", weir_allgather_ring},
    {WEIR_ALLGATHER_DOUBLING, "doubling",
     "log2 N exchanges of 1, 2, 4, ... blocks; odd ranks out are folded in",
     weir_allgather_doubling},
    {WEIR_ALLGATHER_DIRECT, "direct", "every block from its rank to every other at once: 1 hop",
     weir_allgather_direct},
};

const weir_reduce_scatter_row weir_reduce_scatters[WEIR_REDUCE_SCATTER_COUNT] = {
    {WEIR_REDUCE_SCATTER_RING, "ring", "N-1 hops of n/N, partial sums to a neighbour",
     weir_reduce_scatter_ring},
    {WEIR_REDUCE_SCATTER_PAIRWISE, "pairwise", "N-1 hops of n/N, each rank's share straight to it",
     weir_reduce_scatter_pairwise},
};

const weir_reduce_row weir_reduces[WEIR_REDUCE_COUNT] = {
    {WEIR_REDUCE_BINOMIAL, "binomial", "ceil(log2 N) hops of everything", weir_reduce_binomial},
};

const weir_gather_row weir_gathers[WEIR_GATHER_COUNT] = {
    {WEIR_GATHER_DIRECT, "direct", "every rank to the root at once", weir_gather_direct},
};

/* --- what plans name ------------------------------------------------------------------------ */

bool weir_sum_of(const weir_plan *plan, weir_sum *sum) {
  const char *name = weir_algorithm_name(plan->algorithm);
  const weir_allreduce *row = name != NULL ? weir_allreduce_find(name) : NULL;
  const bool pairwise = plan->inside == WEIR_ALGORITHM_PAIRWISE;
  if (row == NULL) return false;
  *sum = (weir_sum){
      .row = plan->inside == WEIR_ALGORITHM_ANY ? row : NULL,
      .choice = {.scatter = pairwise ? WEIR_REDUCE_SCATTER_PAIRWISE : WEIR_REDUCE_SCATTER_RING,
                 .between = row->id,
                 .gather = pairwise ? WEIR_ALLGATHER_DOUBLING : WEIR_ALLGATHER_RING,
                 .native = weir_sums_inside_natively(plan)}};
  return true;
}

weir_status weir_sum_run(const weir_sum *sum, weir_comm *comm, float *x, size_t n,
                         weir_value_format format, float *error, weir_headers *headers) {
  return sum->row != NULL ? sum->row->run(comm, x, n, format, error, headers)
                          : weir_allreduce_hier(comm, &sum->choice, x, n, format, error, headers);
}

uint32_t weir_list_broadcast(const weir_plan *plan) {
  return plan->broadcast == WEIR_ALGORITHM_CHAIN    ? WEIR_BROADCAST_CHAIN
         : plan->broadcast == WEIR_ALGORITHM_DIRECT ? WEIR_BROADCAST_DIRECT
                                                    : WEIR_BROADCAST_BINOMIAL;
}

uint32_t weir_gather_row_of(const weir_plan *plan) {
  return plan->algorithm == WEIR_ALGORITHM_RING       ? WEIR_ALLGATHER_RING
         : plan->algorithm == WEIR_ALGORITHM_DOUBLING ? WEIR_ALLGATHER_DOUBLING
         : plan->algorithm == WEIR_ALGORITHM_DIRECT   ? WEIR_ALLGATHER_DIRECT
                                                      : WEIR_ALLGATHER_BRUCK;
}

weir_status weir_comm_root(const weir_comm *comm, int root) {
  const int size = weir_comm_size(comm);
  if (root >= 0 && root < size) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "root %d is not a rank of a group of %d", root, size);
}

weir_status weir_comm_block(size_t bytes, size_t stride) {
  if (bytes <= stride) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "a block of %zu bytes is longer than its place of %zu", bytes,
                   stride);
}
