/* Cost rows: seconds a collective takes, from latency and bandwidth.
 *
 * Symbols as in docs/architecture.md: N workers, L = ceil(log2 N), alpha one-way latency in
 * seconds, beta seconds per byte, M dense bytes, c compression ratio, m = M*c. */
#ifndef WEIR_COLLECTIVES_COST_H
#define WEIR_COLLECTIVES_COST_H

#include <stddef.h>
#include <stdint.h>

#include <weir/plan.h>

/* Rows of the paper's model: Tables I and equations 4a, 4b of "Flexible Communication for Optimal
 * Distributed Learning over Unpredictable Networks".  Values kept are fp32 and indices u32. */
double weir_cost_paper_star(int n, double alpha, double beta, double bytes);
double weir_cost_paper_ring(int n, double alpha, double beta, double bytes);
double weir_cost_paper_tree(int n, double alpha, double beta, double bytes);
double weir_cost_paper_broadcast(int n, double alpha, double beta, double bytes);
double weir_cost_paper_allgather(int n, double alpha, double beta, double bytes);
/* By weir_collective_id, for M dense bytes at ratio c (dense rows ignore c). */
double weir_cost_paper(uint32_t collective, int n, double alpha, double beta, double bytes,
                       double cr);

/* What a plan puts on the critical path: T = alpha_terms * alpha + byte_terms * beta, with true
 * wire bytes of the plan's codec and format.  elements is the gradient's length; kept is what the
 * codec keeps of it, for an encoder the bytes of its message (bound()), for low rank the floats of both
 * sums. */
typedef struct weir_cost_terms {
  double alpha_terms;
  double byte_terms;
} weir_cost_terms;
weir_cost_terms weir_cost_plan(const weir_plan *plan, int n, size_t elements, size_t kept);
double weir_cost_seconds(const weir_cost_terms *terms, double alpha, double beta);

/* Rows of the algorithms themselves, by the ids of their tables.  `bytes`, as they travel, are: all
 * elements for all-reduce, reduce and reduce-scatter; the message for broadcast; one rank's block
 * for all-gather, gather and all-to-all (to each other rank as much).  Unknown ids: infinity; one
 * rank: nothing. */
weir_cost_terms weir_cost_allreduce(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_broadcast(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_allgather(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_reduce_scatter(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_reduce(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_gather(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_alltoall(uint32_t algorithm, int n, double bytes);

#endif
