/* What a rank of a run goes on from after everything was killed: weights, moments, the order of
 * samples and the session's state, in one file.  There are two generations of it,
 * DIR/.weir-rank-R.0 and .1: while one is written, the other is there on all ranks. */
#ifndef WEIR_LAB_SAVEPOINT_H
#define WEIR_LAB_SAVEPOINT_H

#include "lab/trainer.h"

typedef struct weir_savepoint {
  uint64_t run; /* drawn when the run began, the same of all its files */
  uint32_t rank, workers;
  uint64_t committed; /* steps that count */
  uint64_t executed;  /* steps, trials' too */
  double elapsed_s;   /* of this rank, evaluation excluded */
  double virtual_s;   /* the clock, in a run without a network */
  uint32_t slot;      /* which generation it is, 0 or 1 */
  uint32_t reserved;  /* 0 */
} weir_savepoint;

/* Written under another name, synchronised, and renamed: the older generation of that slot stays
 * until this one is whole.  Between steps.  WEIR_E_IO. */
weir_status weir_savepoint_write(const char *out, const weir_savepoint *at, weir_trainer *trainer,
                                 weir_session *session);
/* After everything is registered, before weir_session_start.  WEIR_E_PARSE or WEIR_E_MISMATCH: it
 * is not what `at` says. */
weir_status weir_savepoint_load(const char *out, const weir_savepoint *at, weir_trainer *trainer,
                                weir_session *session);
/* The newest generation that all ranks have whole, as of rank 0; false: there is none. */
bool weir_savepoint_find(const char *out, uint64_t run, uint32_t workers, weir_savepoint *at);

#endif
