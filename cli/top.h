/* What the parts of `weir top` share: the status blocks of one job, as found in this machine's
 * status folder. */
#ifndef WEIR_CLI_TOP_H
#define WEIR_CLI_TOP_H

#include <glib.h>

#include "session/status.h"

/* A rank that runs on this machine. */
typedef struct top_here {
  weir_status_block *block;
  weir_status_facts facts;
  int rank;
  char phase[9];
  double phase_s, waits_s; /* for how long */
  guint waits;             /* ranks it waits for */
  int peer[WEIR_LIVE_PEERS];
} top_here;

typedef struct top_job {
  guint64 run, job_id;
  GArray *here;           /* of top_here, by rank */
  const top_here *teller; /* whose facts are shown: rank 0, if it is here */
  weir_status_rank *row;  /* of all ranks, as the teller has them */
  size_t rows;
  int held_by; /* the rank at the end of the chain of those who wait; -1: none */
} top_job;

typedef enum top_found { TOP_ONE, TOP_NONE, TOP_MANY, TOP_ERROR } top_found;

/* The job that `wanted` names: a job id, a run's folder, NULL if there is but one.  Not TOP_ONE:
 * *why says what there is instead, to be freed. */
top_found top_find(const char *wanted, top_job *job, char **why);
void top_forget(top_job *job);
/* NULL: the rank is not on this machine. */
const top_here *top_rank(const top_job *job, int rank);

void top_print_json(const top_job *job);
void top_print_table(const top_job *job);

#endif
