/* `weir bench collectives`: what its two files share. */
#ifndef WEIR_BENCH_COLLECTIVES_H
#define WEIR_BENCH_COLLECTIVES_H

#include <glib.h>

#include "collectives/collective.h"

enum { RANKS_MAX = 16, SIZES_MAX = 32, REPEATS_MAX = 101 };

/* One algorithm at one size. */
typedef struct cell {
  double seconds[REPEATS_MAX][RANKS_MAX]; /* of one operation */
  guint64 wire[RANKS_MAX];                /* bytes a rank sends in one operation */
  guint64 wrong[RANKS_MAX];               /* elements that are not the sum */
} cell;

typedef struct board { /* in memory shared with the ranks */
  struct {
    weir_status status;
    char message[256];
  } rank[RANKS_MAX];
  cell cells[]; /* [algorithm * sizes + size] */
} board;

typedef struct bench_plan {
  const char *transport;
  char where[64];
  guint64 job;
  int ranks;
  int repeats;
  gsize sizes;
  gsize elements[SIZES_MAX];
  gboolean algorithm[WEIR_ALLREDUCE_COUNT];
  weir_value_format format;
  board *board;
  gsize board_bytes;
} bench_plan;

/* What a forked rank does: every algorithm at every size, into the board. */
weir_status weir_bench_rank(const bench_plan *p, int rank);

/* A row of `weir bench`. */
int weir_bench_collectives(int argc, char **argv);

#endif
