/* The report: what a run or a comparison left in its directory, as one self-contained HTML file
 * made of a template that draws its charts itself.  The files are read as untrusted input. */
#ifndef WEIR_LAB_REPORT_H
#define WEIR_LAB_REPORT_H

#include <weir/status.h>

/* Read summary.json, steps.csv and decisions.jsonl of a run (docs/reference/runs.md) and
 * write report.html beside them (temporary name, then renamed).  WEIR_E_IO, WEIR_E_PARSE: the
 * message names file and line. */
weir_status weir_report_write(const char *directory);

/* The same for the compare.json of `weir compare`:
 *   {"target_accuracy": A, "runs": [{"policy", "seed", "status", "final_accuracy", "elapsed_s",
 *    "comm_s", "wire_bytes", "time_to_accuracy_s" (number or null),
 *    "accuracy": [[elapsed_s, step, accuracy], ...]}, ...]}
 * status is "done" for a run that ended well. */
weir_status weir_compare_report_write(const char *directory);

/* The same for the emulate.json of `weir emulate` (docs/reference/runs.md). */
weir_status weir_emulate_report_write(const char *directory);

#endif
