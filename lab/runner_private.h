/* What the runner's files share. */
#ifndef WEIR_LAB_RUNNER_PRIVATE_H
#define WEIR_LAB_RUNNER_PRIVATE_H

#include "lab/out.h"
#include "lab/runner.h"
#include "lab/savepoint.h"
#include "lab/schedule.h"
#include "lab/supervisor.h"
#include "lab/trace.h"
#include "lab/trainer.h"
#include "lab/uml.h"
#include "lab/worker.h"

typedef enum weir_network_kind {
  WEIR_NETWORK_AUTO,
  WEIR_NETWORK_TC,
  WEIR_NETWORK_UML,
  WEIR_NETWORK_SIM
} weir_network_kind;

struct weir_run {
  weir_run_options options;
  weir_scenario scenario;
  weir_dataset data; /* options.like's, where it `borrows` them */
  bool borrows;
  weir_trace trace;
  char *out, *policy, *journal; /* journal: where decisions are written while the run lasts */
  weir_network_kind network;    /* once prepared the one there is, never auto */
  char *lacks;                  /* why not those before it; NULL: nothing to say */
  weir_uml_clock clock;
  uint64_t job_id;
  uint64_t memory_bytes; /* that all workers need, estimated */
  weir_progress progress;
  bool goes_on; /* from a checkpoint */
  weir_savepoint from;
  int lock; /* on the output folder; -1: none */
};

/* Bodies of weir_stage_run, each in a process of its own; user: the run.  They leave steps.csv,
 * decisions.jsonl and summary.json. */
weir_status weir_run_tc(void *run);
weir_status weir_run_sim(void *run);
/* Boots and runs the same command inside; in the caller's process. */
weir_status weir_run_uml(weir_run *run);

/* What the supervisor begins with: the rows until now, where the run goes on; and the epoch of its
 * next step. */
weir_status weir_run_recall(const weir_run *run, weir_steplog *log);
uint32_t weir_run_epoch(const weir_run *run);

weir_schedule weir_run_schedule(const weir_run *run);

/* Can namespaces and htb be had here, and netem if that is needed?  Tries in a process of its own.
 */
weir_status weir_tc_probe(bool netem);

/* Can the buckets that the policy names be made of the scenario's model?  Its data are loaded. */
weir_status weir_run_check_buckets(const weir_run *run);

/* After all workers have trained to the end: the files. */
weir_status weir_run_write(const weir_run *run, const weir_steplog *log,
                           const char (*weights_sha256)[65]);
/* The report of files that were written; should it fail, they stay. */
weir_status weir_run_report(const weir_run *run);
/* The same under another description of the scenario. */
weir_status weir_run_write_as(const weir_run *run, const weir_scenario *scenario,
                              const weir_steplog *log, const char (*weights_sha256)[65]);

#endif
