/* `weir run`: a scenario, checked, then run over one of three networks. */
#ifndef WEIR_LAB_RUNNER_H
#define WEIR_LAB_RUNNER_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/status.h>

#include "lab/progress.h"

typedef struct weir_run weir_run;

typedef struct weir_run_options {
  const char *scenario;
  const char *out;     /* folder; made when the run begins */
  const char *policy;  /* NULL: the scenario's */
  const char *risk;    /* likewise */
  const char *network; /* "auto", "tc", "uml" or "sim"; NULL: auto */
  const char *clock;   /* "real", "skip-idle" or "free-cpu" (uml.h); NULL: real.  The others are
                          User-Mode Linux's alone */
  int64_t workers;     /* negative: the scenario's */
  bool has_seed;
  uint64_t seed;
  bool inside_uml; /* this is the command that runs inside User-Mode Linux: the network is tc,
                      the summary calls it uml, and the report is left to the host */
  bool relay;      /* progress for another runner */
  bool profile;    /* also write profile.csv, groups.csv (capture.h) and timings-*.csv
                      (timings.h) */
  bool keep;       /* save what it can go on from; options->resume: it goes on */
  bool resume;     /* `out` is the folder of a run that was ended, `run` the number of its record */
  uint64_t run;
  bool launched; /* only one worker of a group runs here, which weir_train() started; network is
                      the transport's name */
  /* A prepared run of the same scenario, which outlives this one: its data are taken, unless they
   * are of another seed.  NULL: they are read. */
  const weir_run *like;
} weir_run_options;

/* Check everything a user can get wrong: scenario, policy, data set, memory, output folder, and
 * the network, which is chosen here: one that is not to be had is found before hours of older
 * results are gone.  Touches nothing.  Any failure is the input's (exit code 2); the message says
 * where. */
weir_status weir_run_prepare(weir_run **out, const weir_run_options *options);
/* Make the output folder, and remove what an older or crashed run left in it.  Also the input's
 * fault when it fails. */
weir_status weir_run_open(weir_run *run);
/* Would results written to `out` replace what the run reads?  Its own folder has been checked.
 * WEIR_E_INVALID. */
weir_status weir_run_spares(const weir_run *run, const char *out);
/* Run, once opened; on WEIR_OK summary.json, decisions.jsonl, steps.csv and report.html are there,
 * otherwise none of them is, but hidden files to go on from where there is a checkpoint or the run
 * was interrupted.  WEIR_E_STATE: interrupted. */
weir_status weir_run_execute(weir_run *run);
uint64_t weir_run_seed(const weir_run *run);
uint64_t weir_run_steps(const weir_run *run); /* of all epochs */
/* "tc", "uml" or "sim". */
const char *weir_run_network(const weir_run *run);
void weir_run_free(weir_run *run);

/* Is it weir, paper, fixed:PLAN or PLAN?  *canonical (free it) is what a session takes. */
weir_status weir_run_policy(const char *text, char **canonical);

#endif
