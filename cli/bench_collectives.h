/* `weir bench collectives`: what its two files share. */
#ifndef WEIR_BENCH_COLLECTIVES_H
#define WEIR_BENCH_COLLECTIVES_H

#include <glib.h>

#include "collectives/collective.h"

enum { RANKS_MAX = 16, SIZES_MAX = 32, REPEATS_MAX = 101, ROWS_MAX = WEIR_ALLREDUCE_COUNT };

typedef enum bench_kind {
  BENCH_ALLREDUCE,
  BENCH_BROADCAST,
  BENCH_ALLGATHER,
  BENCH_REDUCE_SCATTER,
  BENCH_REDUCE,
  BENCH_GATHER,
  BENCH_ALLTOALL,
  BENCH_KINDS
} bench_kind;
extern const char *const bench_kind_names[BENCH_KINDS];
/* An algorithm's name; NULL behind the last row of the table. */
const char *weir_bench_row_name(bench_kind kind, guint32 row);

/* One algorithm at one size. */
typedef struct cell {
  double seconds[REPEATS_MAX][RANKS_MAX]; /* of one operation */
  guint64 wire[RANKS_MAX];                /* bytes a rank sends in one operation */
  guint64 wrong[RANKS_MAX];               /* elements that are not what they should be */
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
  gsize elements[SIZES_MAX]; /* of all ranks' blocks together, where there are blocks */
  bench_kind kind;
  gboolean algorithm[ROWS_MAX];
  weir_value_format format;
  board *board;
  gsize board_bytes;
} bench_plan;

/* What a forked rank does: every algorithm at every size, into the board. */
weir_status weir_bench_rank(const bench_plan *p, int rank);

/* A row of `weir bench`. */
int weir_bench_collectives(int argc, char **argv);

#endif
