/* `weir bench pto`: what its files share. */
#ifndef WEIR_BENCH_PTO_H
#define WEIR_BENCH_PTO_H

#include <glib.h>
#include <pthread.h>
#include <weir/parallel.h>

enum { PTO_RANKS = 128, PTO_REPEATS = 31 };

typedef enum pto_work {
  PTO_LARS, /* scales */
  PTO_LAMB, /* scales */
  PTO_STEP, /* LAMB's step: norms are divided, every rank updates all moments and weights */
  PTO_MOVE, /* the same, all of it divided: each rank updates its share, weights are gathered */
  PTO_WORKS
} pto_work;

/* How it is done: one rank while the others wait; every rank everything; divided. */
typedef enum pto_form { PTO_ALONE, PTO_EVERY, PTO_DIVIDED, PTO_FORMS } pto_form;

typedef struct pto_cell {
  double begin_s[PTO_REPEATS][PTO_RANKS], end_s[PTO_REPEATS][PTO_RANKS];
  double cpu_s[PTO_REPEATS][PTO_RANKS]; /* processor time between the two */
} pto_cell;

typedef struct pto_board { /* shared with the ranks */
  pthread_barrier_t barrier;
  pto_cell cell[PTO_WORKS][PTO_FORMS];
  guint64 digest[PTO_WORKS][PTO_FORMS][PTO_RANKS]; /* of scales, or of weights */
  struct {
    weir_status status;
    char message[256];
  } rank[PTO_RANKS];
} pto_board;

typedef struct pto_plan {
  int ranks, tensors, repeats;
  int work; /* the only one; PTO_WORKS: all */
  gsize elements;
  const char *transport;
  char where[64];
  guint64 job;
  pto_board *board;
} pto_plan;

/* Elements of a tensor: half of all are one tensor's, as an embedding's may be. */
gsize weir_pto_numel(const pto_plan *plan, int tensor);
/* What a forked rank does; its status stands on the board. */
void weir_pto_rank(const pto_plan *plan, int rank);

#endif
