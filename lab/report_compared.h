/* A comparison as compare.json tells it: its runs, and what those of one policy come to. */
#ifndef WEIR_LAB_REPORT_COMPARED_H
#define WEIR_LAB_REPORT_COMPARED_H

#include "lab/report_data.h"

/* One run of `weir compare`. */
typedef struct weir_report_entry {
  char *policy, *status, *error, *folder;
  double seed, time_to_accuracy_s, final_accuracy, elapsed_s, comm_s, wire_bytes;
  weir_report_point *points;
  size_t point_count;
  size_t bucket; /* number of its policy, in order of first appearance */
} weir_report_entry;

typedef struct weir_report_comparison {
  char *scenario;
  double target;
  weir_report_entry *runs;
  size_t count;
} weir_report_comparison;

/* All seeds of one policy. */
typedef struct weir_report_bucket {
  const char *policy;
  size_t number, runs, done, reached;
  /* Means over the runs that were done; time: NaN unless all were, and got there. */
  double time, final, elapsed, comm, bytes;
} weir_report_bucket;

/* Nothing to free on failure. */
weir_status weir_report_comparison_read(weir_report_comparison *c, const char *directory);
void weir_report_comparison_free(weir_report_comparison *c);

/* One for every policy, soonest at the target first, unreached last; g_free. */
weir_report_bucket *weir_report_buckets(weir_report_comparison *c, size_t *count);

bool weir_report_done(const weir_report_entry *e);
/* Runs whose turn did not come, or that were interrupted: a failed one had its end. */
size_t weir_report_missing(const weir_report_comparison *c);

#endif
