/* Ring and tree by alpha and beta, and NCCL's table made of it.
 *
 * NCCL's own model never sees what a network is really like: it is computed from the kind of the
 * links once, at a communicator's init.  Its tree is a double binary tree: each rank sends every
 * byte about twice, like in a ring, so that only the latencies differ. */
#include <math.h>

#include "nccl/state.h"

/* Hops that cost alpha are those between machines; on one machine, all. */
static double places(size_t ranks, size_t nodes) {
  return (double)(nodes > 1 && nodes <= ranks ? nodes : ranks);
}

/* 2(n-1) hops; every byte crosses a link 2(n-1)/n times. */
double tuner_ring_us(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes) {
  const double n = places(ranks, nodes);
  if (n < 2.0) return 0.0;
  return 1e6 *
         (2.0 * (n - 1.0) * rule->latency_s + 2.0 * (n - 1.0) / n * (double)bytes * rule->byte_s);
}

/* 2 ceil(log2 n) hops; either tree moves half of the bytes up and down again. */
double tuner_tree_us(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes) {
  const double n = places(ranks, nodes);
  if (n < 2.0) return 0.0;
  return 1e6 * (2.0 * ceil(log2(n)) * rule->latency_s + 2.0 * (double)bytes * rule->byte_s);
}

int tuner_choose(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes) {
  switch (rule->choice) {
    case WEIR_NCCL_RING: return NCCL_RING;
    case WEIR_NCCL_TREE: return NCCL_TREE;
    case WEIR_NCCL_CHEAPEST:
      return tuner_ring_us(rule, ranks, nodes, bytes) <= tuner_tree_us(rule, ranks, nodes, bytes)
                 ? NCCL_RING
                 : NCCL_TREE;
    default: return -1;
  }
}

/* The cheapest protocol of an algorithm by what NCCL says; -1 when none is available. */
static int best_protocol(const tuner_table *table, int algorithm) {
  int best = -1;
  if (algorithm >= table->algorithms) return -1;
  const float *row = table->cost + algorithm * table->protocols;
  for (int p = 0; p < table->protocols; p++)
    if (row[p] >= 0.0f && (best < 0 || row[p] < row[best])) best = p;
  return best;
}

/* An algorithm's row becomes `us` for its best protocol, and more for the others in the proportion
 * in which NCCL has them. */
static void write_row(const tuner_table *table, int algorithm, double us) {
  const int best = best_protocol(table, algorithm);
  if (best < 0) return;
  float *row = table->cost + algorithm * table->protocols;
  const double least = (double)row[best];
  for (int p = 0; p < table->protocols; p++)
    if (row[p] >= 0.0f && p != best)
      row[p] = (float)(least > 0.0 ? us * (double)row[p] / least : us);
  row[best] = (float)us;
}

void tuner_fill(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes,
                const tuner_table *table) {
  const int choice = tuner_choose(rule, ranks, nodes, bytes);
  const int protocol = choice < 0 ? -1 : best_protocol(table, choice);
  if (protocol < 0) return; /* not on offer: better NCCL's own choice than none */
  if (rule->choice == WEIR_NCCL_CHEAPEST) {
    write_row(table, NCCL_RING, tuner_ring_us(rule, ranks, nodes, bytes));
    write_row(table, NCCL_TREE, tuner_tree_us(rule, ranks, nodes, bytes));
  }
  /* Below everything else there may be, such as algorithms of which alpha and beta say nothing. */
  table->cost[choice * table->protocols + protocol] = 0.0f;
}
