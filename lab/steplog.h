/* Every executed step of a run, and the files made of them at its end. */
#ifndef WEIR_LAB_STEPLOG_H
#define WEIR_LAB_STEPLOG_H

#include <stddef.h>

#include "lab/channel.h"
#include "lab/scenario.h"

typedef struct weir_steplog {
  weir_row *rows;
  size_t count, room;
  size_t kept; /* of them, on the disk */
} weir_steplog;

weir_status weir_steplog_add(weir_steplog *log, const weir_row *row);
void weir_steplog_free(weir_steplog *log);

/* What a run that goes on after it was killed has of its steps.  Add those that are
 * not there yet, and have the disk take them; run: its number, see run_record.h.  WEIR_E_IO. */
#define WEIR_STEPLOG_KEPT ".weir-steps.log"
weir_status weir_steplog_keep(weir_steplog *log, const char *directory, uint64_t run);
/* The first `rows` of them, into an empty log.  WEIR_E_PARSE: they are not there. */
weir_status weir_steplog_recall(weir_steplog *log, const char *directory, uint64_t run,
                                uint64_t rows);

/* DIR/steps.csv; columns as docs/reference/runs.md says.  Written under another name and
 * renamed. */
weir_status weir_steplog_write(const weir_steplog *log, const char *directory);

typedef struct weir_summary {
  const weir_scenario *scenario;
  const weir_steplog *log;
  const char *network; /* "tc", "uml" or "sim" */
  const char *clock;   /* "real", "skip-idle" or "modelled" */
  const char *policy;
  const char (*weights_sha256)[65]; /* one a rank */
} weir_summary;

/* DIR/summary.json, from the log and DIR/decisions.jsonl.  Written under another name
 * and renamed. */
weir_status weir_summary_write(const weir_summary *summary, const char *directory);

/* How the run answered a phase; exposed for tests.  `decisions` is the text of decisions.jsonl.
 * Steps are counted as executed, trials included, from the first step of the phase to the one at
 * whose end the first decision was taken that knew both latency and bandwidth within 10 % of what
 * was set (a latency within 0.05 ms at least); -1: none. */
int weir_summary_answered(const weir_steplog *log, const char *decisions, uint32_t first_epoch,
                          uint32_t last_epoch);
/* Bytes of rank 0's active probes over what its link, as set, could have carried; NaN where none is
 * set. */
double weir_summary_probe_share(const weir_steplog *log);
/* Median of a measured column over the phase's steps that know it; 0: none does. */
double weir_summary_median(const weir_steplog *log, uint32_t first_epoch, uint32_t last_epoch,
                           bool latency);

#endif
