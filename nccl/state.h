/* Inside of the tuner: a communicator, its rules, and what they make of NCCL's cost table. */
#ifndef WEIR_NCCL_STATE_H
#define WEIR_NCCL_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <weir/nccl_tuner.h>

#include "nccl/interface.h"

/* How far a new rule is. */
enum { TUNER_IDLE = 0, TUNER_PENDING = 1, TUNER_TAKING = 2 };

/* NCCL asks for one communicator on one thread at a time, which need not be the thread that
 * switches. `rule` is the asking side's; `next` is the switching side's while idle and the asking
 * side's while it takes it. */
typedef struct tuner_communicator {
  size_t ranks, nodes;
  atomic_uint_fast64_t asked;
  weir_nccl_rule rule;
  weir_nccl_rule next;
  atomic_uint_fast64_t next_from;
  atomic_int state;
  atomic_bool missed; /* the last rule that was taken came too late, and was dropped */
  atomic_bool ended;
} tuner_communicator;

/* NULL when there is no memory. */
tuner_communicator *tuner_open(size_t ranks, size_t nodes);
void tuner_close(tuner_communicator *communicator);
/* An all-reduce is asked for: count it, and tell the rule in force for it. */
weir_nccl_rule tuner_next(tuner_communicator *communicator);

/* What NCCL would have chosen between, and what is preferred. */
typedef struct tuner_table {
  float *cost; /* [algorithms][protocols] */
  int algorithms, protocols;
} tuner_table;
void tuner_fill(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes,
                const tuner_table *table);
/* NCCL_RING or NCCL_TREE; -1: NCCL's own choice. */
int tuner_choose(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes);
/* Microseconds of an all-reduce over so many machines, by alpha and beta. */
double tuner_ring_us(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes);
double tuner_tree_us(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes);

#endif
