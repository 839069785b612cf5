/* Schedules as pure arithmetic: who sends what to whom, and in which order.  No state, no wire.
 *
 * size is the number of ranks N >= 1, rank in [0, size), any N (powers of two are not special). */
#ifndef WEIR_COLLECTIVES_PATTERNS_H
#define WEIR_COLLECTIVES_PATTERNS_H

#include <stddef.h>

/* ceil(log2 size); 0 for one rank. */
int weir_log2_ceil(int size);

/* --- ring ----------------------------------------------------------------------------------- */

/* n elements fall into `size` consecutive chunks whose lengths differ by at most one; the first
 * n mod size are the longer ones. */
typedef struct weir_chunk {
  size_t begin;
  size_t count;
} weir_chunk;
weir_chunk weir_ring_chunk(size_t n, int size, int chunk);

/* Hops 0 .. size-2 of reduce-scatter, then of all-gather; each sends to rank + 1 and receives from
 * rank - 1.  After reduce-scatter a rank owns the sum of chunk weir_ring_owned().  A chunk that a
 * rank receives in hop h is the one it sends in hop h + 1. */
int weir_ring_reduce_send(int rank, int size, int hop);
int weir_ring_reduce_recv(int rank, int size, int hop);
int weir_ring_owned(int rank, int size);
int weir_ring_gather_send(int rank, int size, int hop);
int weir_ring_gather_recv(int rank, int size, int hop);

/* --- binomial tree -------------------------------------------------------------------------- */

/* Over ranks relative to the root, v = (rank - root) mod size.  v's level is the number of its
 * trailing zero bits (ceil(log2 size) for the root): its parent is v - 2^level, its children are
 * v + 2^k for k < level, where below size.  The subtree of v is the run [v, v + subtree).
 * A reduction takes child k in round k, ascending; a broadcast serves child k descending. */
int weir_binomial_level(int v, int size);
int weir_binomial_parent(int v, int size);       /* -1 for the root */
int weir_binomial_child(int v, int size, int k); /* -1 where there is none; k < level */
int weir_binomial_subtree(int v, int size);

/* --- Bruck ---------------------------------------------------------------------------------- */

/* In round k every rank sends `count` blocks, those of ranks first_sent, first_sent + 1, ... (mod
 * size), to rank `to` and receives as many from rank `from`, those of first_received, ...
 * (J. Bruck et al., Efficient algorithms for all-to-all communications, 1997.) */
typedef struct weir_bruck_round {
  int to;
  int from;
  int count;
  int first_sent;
  int first_received;
} weir_bruck_round;
weir_bruck_round weir_bruck(int rank, int size, int round); /* round < weir_log2_ceil(size) */

#endif
