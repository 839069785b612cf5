/* `weir compare`: one scenario under several policies, the same seeds, judged by time
 * to accuracy. */
#ifndef WEIR_LAB_COMPARE_H
#define WEIR_LAB_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

typedef enum weir_compared_state {
  WEIR_COMPARED_NOT_RUN = 0, /* its turn did not come */
  WEIR_COMPARED_DONE,
  WEIR_COMPARED_FAILED,
  WEIR_COMPARED_INTERRUPTED /* in its midst */
} weir_compared_state;

/* One run, as its summary.json tells. */
typedef struct weir_compared {
  char *policy; /* as asked for */
  char *folder; /* below the comparison's */
  uint64_t seed;
  weir_compared_state state;
  char *trouble; /* why it failed; else NULL */
  char network[8];
  double final_accuracy, elapsed_s, comm_s, wire_bytes;
  double time_to_accuracy_s; /* NaN: not reached */
  double (*accuracy)[3];     /* elapsed_s, step, accuracy */
  size_t accuracies;
} weir_compared;

typedef struct weir_comparison {
  weir_compared *runs;
  size_t count;
  double target; /* accuracy, fraction; NaN until known */
} weir_comparison;

/* Policies x seeds, in this order; seeds count at least one.  Folder names are the policy's with
 * '-' for ':', and "-seedS" when there are several seeds. */
void weir_comparison_plan(weir_comparison *comparison, char **policies, const uint64_t *seeds,
                          size_t seed_count);
void weir_comparison_free(weir_comparison *comparison);

/* Has every run had its turn, and its end? */
bool weir_comparison_complete(const weir_comparison *comparison);

/* Read what a run that ended well has left in its folder; it is then done. */
weir_status weir_compared_read(weir_compared *run, const char *directory);

/* Settle the target (a fraction; NaN: mean final accuracy of the dense-ring runs less 0.01, without
 * them the best run's less 0.01; no less than 0), and when each run first had it at an
 * evaluation. */
void weir_comparison_judge(weir_comparison *comparison, double target);

/* DIR/compare.json, written under another name and renamed; *text (free it) when not NULL. */
weir_status weir_comparison_write(const weir_comparison *comparison, const char *scenario,
                                  const char *directory, char **text);

/* The table on stdout. */
void weir_comparison_print(const weir_comparison *comparison);

#endif
