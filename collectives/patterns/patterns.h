/* Schedules as pure arithmetic: who sends what to whom, and in which order.  No state, no wire.
 *
 * size is the number of ranks N >= 1, rank in [0, size), any N (powers of two are not special). */
#ifndef WEIR_COLLECTIVES_PATTERNS_H
#define WEIR_COLLECTIVES_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* --- halving and doubling ------------------------------------------------------------------- */

/* A core of the largest power of two of ranks exchanges halves with partners at distances core/2,
 * core/4, .. 1 and back (R. Rabenseifner, Optimization of collective reduction operations, 2004).
 * The ranks left over, the even ones among the first 2 (size - core), hand their values to the odd
 * rank next to them before, and get the result from it afterwards. */
typedef struct weir_halving {
  int core; /* ranks of the core */
  int v;    /* place in the core; -1: not in it */
  int fold; /* the rank to hand values to (v < 0) or to take them from; -1: none */
} weir_halving;
weir_halving weir_halving_place(int rank, int size);
int weir_halving_rank(int v, int size); /* the rank at place v of the core */
/* Places [first, first + count) of the core stand for ranks [*begin, *begin + *ranks). */
void weir_halving_ranks(int first, int count, int size, int *begin, int *ranks);
/* The elements of places [first, first + count) of a core. */
weir_chunk weir_halving_range(size_t n, int core, int first, int count);

/* --- double binary tree --------------------------------------------------------------------- */

/* Two trees over the same ranks, each for one half of the elements, so that a rank that passes
 * data on in one is (for an even number of ranks) a leaf in the other and both directions of every
 * link are used (P. Sanders, J. Speck, J. L. Traff, Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan, 2009).
 *
 * Both are the same tree over places v in [0, size) in search order: an odd place is a leaf, a
 * place with l trailing zero bits has its children at distance 2^(l-1) on either side (nearer on
 * the right where the tree is cut off), the root is place 0 and has the rest to its right.  A
 * subtree is a run of places. */
int weir_inorder_parent(int v, int size);          /* -1 for the root */
int weir_inorder_child(int v, int size, int side); /* side 0: left, 1: right; -1: none */
int weir_inorder_height(int v, int size);          /* 0 for a leaf */
int weir_inorder_depth(int v, int size);           /* 0 for the root */
void weir_inorder_subtree(int v, int size, int *first, int *count);
/* tree 0: rank r at place r.  tree 1: mirrored (even size) or shifted by one (odd size). */
int weir_double_tree_place(int tree, int rank, int size);
int weir_double_tree_rank(int tree, int place, int size);
/* Into how many chunks each half of `bytes` is cut: of 64 KiB or more, at most 16. */
int weir_double_tree_chunks(size_t bytes);

/* In round t a place of height h sends chunk t - h to its parent; the root of height H sends chunk
 * t - H to its children, a place of depth d chunk t - H - d.  Numbers outside [0, chunks): nothing.
 * chunks + 2H - 1 rounds in all. */

/* --- rotation ------------------------------------------------------------------------------- */

/* Everybody to everybody: in round 1 .. size-1 a rank sends to the one so many places behind it and
 * receives from the one so many before, so that nobody is sent to twice in a round. */
int weir_rotation_to(int rank, int size, int round);
int weir_rotation_from(int rank, int size, int round);

/* --- torus ---------------------------------------------------------------------------------- */

/* Rows lie inside of machines and columns between them, where every machine has as many ranks and
 * more than one: row h is machine h, its ranks in ascending order, so that only what a rank owns of
 * its machine's sum crosses links between machines.  Otherwise (machines of different sizes, one
 * machine, or one a rank) rank = row * columns + column on the squarest grid: its rows are the
 * largest divisor of size that is at most its root. */
int weir_torus_rows(int size, int hosts); /* machines count as equal where hosts divides size */

typedef struct weir_torus {
  int rows, columns;
  const int *host; /* borrowed; NULL: ranks in order */
} weir_torus;
/* host[size], as weir_hosts_group() fills it in; NULL: every rank is a machine of its own. */
weir_torus weir_torus_grid(const int *host, int size, int hosts);
int weir_torus_rank(const weir_torus *grid, int row, int column);
void weir_torus_place(const weir_torus *grid, int rank, int *row, int *column);

/* --- chain ---------------------------------------------------------------------------------- */

/* Into how many chunks a pipelined chain cuts `bytes`: of 64 KiB or more, at most 32.  Position p
 * of the chain (the root is position 0) sends chunk c in round c + p. */
int weir_chain_chunks(size_t bytes);

/* --- hosts ---------------------------------------------------------------------------------- */

/* Ranks of equal identity share a host.  Hosts are numbered in the order of their lowest ranks, so
 * that all ranks number them alike; host[size] is filled in, and the number of hosts returned. */
int weir_hosts_group(const uint64_t *identity, int size, int *host);
/* The ranks of a host, ascending; and the ranks at one place of every host that has so many, in the
 * order of hosts.  member has room for size; how many is returned. */
int weir_hosts_members(const int *host, int size, int which, int *member);
int weir_hosts_column(const int *host, int size, int hosts, int place, int *member);
/* How many ranks of its host stand before a rank. */
int weir_hosts_place(const int *host, int rank);
/* How many ranks the largest host has; has every host as many? */
int weir_hosts_largest(const int *host, int size, int hosts);
bool weir_hosts_even(const int *host, int size, int hosts);

#endif
