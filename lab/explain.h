/* Why a run's plans were chosen, in plain sentences: what was measured, what was tried, what was
 * believed, what came of it, and the regret afterwards. */
#ifndef WEIR_LAB_EXPLAIN_H
#define WEIR_LAB_EXPLAIN_H

#include <glib.h>

#include "lab/report_data.h"

/* One switch of the plan, or a trial that led to none. */
typedef struct weir_reason {
  double step;
  bool switched;
  char *title;                       /* "from A to B" or "A was tried" */
  char *measured, *tried, *believed; /* sentences */
  char *came;                        /* "" of a trial that led to no switch */
  double regret;                     /* as the last of *came says it; NAN: not known */
} weir_reason;

/* Of all decisions, in their order; data->steps may be missing, then nothing is said of what came
 * of them.  g_ptr_array_unref frees it. */
GPtrArray *weir_explain(const weir_report_data *data);
/* One sentence on the run as a whole; g_free. */
char *weir_explain_whole(const weir_report_data *data, const GPtrArray *reasons);
/* What weir_explain needs of a folder: decisions.jsonl, and steps.csv if there is one. */
weir_status weir_explain_read(weir_report_data *data, const char *directory);

#endif
