/* `weir bench grid`: what its files share. */
#ifndef WEIR_BENCH_GRID_H
#define WEIR_BENCH_GRID_H

#include <glib.h>
#include <pthread.h>

#include "collectives/select.h"
#include "lab/shaper.h"
#include "lab/topology.h"
#include "lab/uml.h"

enum {
  GRID_RANKS = 16,
  GRID_OPS = 160,
  GRID_SHAPES = 16,
  GRID_WORKERS = 4,
  GRID_REPEATS = 9,
  GRID_PARTS = 2,
  GRID_PLANS = 256
};

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
  double measured_s, least_s; /* the median and the least of the repeats; 0: left out */
} grid_op;

/* Shared with the ranks. */
typedef struct grid_cell {
  int repeats;
  double begin_s[GRID_REPEATS][GRID_RANKS], end_s[GRID_REPEATS][GRID_RANKS];
} grid_cell;

typedef struct grid_board { /* of one shape and number of workers */
  pthread_barrier_t barrier;
  struct {
    weir_status status;
    char message[256];
  } rank[GRID_RANKS];
  grid_cell cell[GRID_OPS];
} grid_board;

/* A shape and a number of workers: what to measure, and what was found. */
typedef struct grid_plan {
  int workers, ops;
  weir_shape shape;
  weir_uml_clock clock; /* that was measured by */
  double budget_s;      /* for measuring */
  weir_link link;
  grid_op op[GRID_OPS];
  grid_board *board; /* NULL: read from a file */
  guint64 job;
  guint8 secret[16]; /* of this run alone */
} grid_plan;

/* Fill in the operations for the plan's workers and shape. */
void weir_grid_operations(grid_plan *plan);
/* A name that operations have, as the table has it; NULL: none of them. */
const char *weir_grid_name(const char *text);
/* How often to measure each operation within the budget: the longest are measured once, or left out
 * (0).  Every rank comes to the same. */
void weir_grid_allot(const grid_plan *plan, const weir_link *link, int repeats[GRID_OPS]);
/* Seconds by the cost rows. */
double weir_grid_predict(int workers, const weir_link *link, const grid_op *op);

/* What a forked rank does, inside of its namespace. */
weir_status weir_grid_rank(grid_plan *plan, int rank);
/* From the board to the operations. */
void weir_grid_collect(grid_plan *plan);

/* One line of JSON a plan; and back.  Reading: TRUE, or FALSE with what was expected in *error. */
void weir_grid_print(const grid_plan *plan);
gboolean weir_grid_read(const char *path, grid_plan *plan, int room, int *count, char **error);

void weir_grid_report(const grid_plan *plan, int plans);

#endif
