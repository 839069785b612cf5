/* The critical path of a schedule of messages among ranks of which several share a machine, and so
 * its one link to the others, as the network's model in cost.h says. */
#ifndef WEIR_COLLECTIVES_COST_WALK_H
#define WEIR_COLLECTIVES_COST_WALK_H

#include "collectives/cost.h"

enum { WEIR_EXCHANGES_MAX = 3 };

/* On which machine a rank is, in a group of such a shape; and the ranks of a machine. */
int weir_shape_host(weir_group_shape shape, int rank);
int weir_shape_members(weir_group_shape shape, int host);

/* A rank in one of the double tree's trees: ranks above and below it, -1 for none. */
typedef struct weir_rounds_place {
  int parent, child[2];
  int height, depth, top[2]; /* top: a child's height */
} weir_rounds_place;

/* A row's messages, round by round: a rank begins a round once all that the one before brings has
 * come.  Its id and all that its messages depend on. */
typedef struct weir_rounds {
  weir_group_shape shape;
  weir_kind kind; /* WEIR_KIND_COUNT: everybody to everybody, in each of several rounds */
  uint32_t row;
  int columns;                      /* groups of such a shape at once, of the same machines */
  int root;                         /* of broadcasts, reduce and gather */
  int chunks;                       /* of pipelined rows; rounds of exchanges */
  double share[WEIR_EXCHANGES_MAX]; /* of all bytes, that goes to each in a round of exchanges */
  const weir_rounds_place *place;   /* of the double tree, [tree * ranks + rank]; else NULL */
} weir_rounds;

/* A message to a rank, of so many times the bytes that the row is for. */
typedef struct weir_hop {
  int to;
  double share;
} weir_hop;

/* cost_schedules.c. */
weir_rounds weir_rounds_of(weir_kind kind, uint32_t row, weir_group_shape shape, double bytes);
int weir_rounds_count(const weir_rounds *r);
/* Has it places?  They are to be found before its messages are asked for. */
bool weir_rounds_placed(const weir_rounds *r);
void weir_rounds_find(const weir_rounds *r, weir_rounds_place *place);
/* What a rank sends in a round, in that order; how many.  out has room for weir_rounds_most(). */
int weir_rounds_sends(const weir_rounds *r, int rank, int round, weir_hop out[]);
int weir_rounds_most(const weir_rounds *r);

/* cost_walk.c.  link NULL: the most latencies and the most bytes, each on a path of its own. */
weir_cost_terms weir_cost_walk(const weir_rounds *r, const weir_link *link, double bytes);
/* As if all ranks began every round together. */
weir_cost_terms weir_cost_together(const weir_rounds *r, double bytes);

#endif
