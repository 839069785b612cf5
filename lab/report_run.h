/* What the files of a run's report share. */
#ifndef WEIR_LAB_REPORT_RUN_H
#define WEIR_LAB_REPORT_RUN_H

#include "lab/report_data.h"
#include "lab/report_doc.h"

/* A committed step, and what the trials before it took. */
typedef struct weir_report_row {
  const weir_report_step *step;
  double overhead_ms; /* its own and the trials' */
  double sent_mb;     /* by rank 0 until then, in all */
} weir_report_row;

typedef struct weir_report_rows {
  weir_report_row *row; /* g_free */
  size_t count;
} weir_report_rows;
weir_report_rows weir_report_committed(const weir_report_data *data);

void weir_report_network(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows);
void weir_report_plans(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows);
void weir_report_times(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows);
void weir_report_learning(weir_doc *doc, const weir_report_data *data,
                          const weir_report_rows *rows);
void weir_report_bytes(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows);
void weir_report_use(weir_doc *doc, const weir_report_rows *rows);
void weir_report_reasons(weir_doc *doc, const weir_report_data *data);
void weir_report_decisions(weir_doc *doc, const weir_report_data *data);

/* The names of the collectives that were used, each once; g_ptr_array_free. */
GPtrArray *weir_report_collectives(const weir_report_data *data);

#endif
