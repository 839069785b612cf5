/* `weir bench grid`: what its files share. */
#ifndef WEIR_BENCH_GRID_H
#define WEIR_BENCH_GRID_H

#include <glib.h>
#include <pthread.h>

#include "collectives/cost.h"
#include "lab/topology.h"
#include "netmon/shaper.h"

enum { GRID_RANKS = 16, GRID_OPS = 160, GRID_SHAPES = 16, GRID_WORKERS = 4, GRID_REPEATS = 3,
       GRID_PARTS = 2 };

/* One thing to measure: one or two collectives one after the other. */
typedef struct grid_part {
  weir_kind kind;
  guint32 row;
  gsize bytes; /* as for cost rows */
} grid_part;

typedef struct grid_op {
  const char *name; /* rows of one name, gradient and ratio are alternatives of one another */
  gsize gradient;   /* bytes of fp32 */
  double cr;        /* 1: dense */
  int parts;
  grid_part part[GRID_PARTS];
} grid_op;

/* Shared with the ranks. */
typedef struct grid_cell {
  int repeats;
  double begin_s[GRID_REPEATS][GRID_RANKS], end_s[GRID_REPEATS][GRID_RANKS];
} grid_cell;

typedef struct grid_board { /* of one shape and number of workers */
  pthread_barrier_t barrier;
  weir_link link;
  struct {
    weir_status status;
    char message[256];
  } rank[GRID_RANKS];
  grid_cell cell[GRID_OPS];
} grid_board;

typedef struct grid_plan {
  int workers, ops;
  grid_op op[GRID_OPS];
  grid_board *board;
  guint64 job;
  guint8 secret[16]; /* of this run alone */
} grid_plan;

typedef struct grid {
  int worker_counts, shapes;
  int workers[GRID_WORKERS];
  weir_shape shape[GRID_SHAPES];
  grid_plan *plan; /* [worker count * shapes + shape], in shared memory */
  gboolean json;
} grid;

/* Fill in the operations for a link of so many bytes/s. */
void weir_grid_operations(grid_plan *plan, int workers, double rate);
double weir_grid_predict(const grid_plan *plan, const grid_op *op);
/* What a forked rank does, inside of its namespace. */
weir_status weir_grid_rank(const grid_plan *plan, int rank);

void weir_grid_report_text(const grid *g);
void weir_grid_report_json(const grid *g);

/* A row of `weir bench`. */
int weir_bench_grid(int argc, char **argv);

#endif
