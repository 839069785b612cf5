/* A run's files, read and checked. */
#ifndef WEIR_LAB_REPORT_DATA_H
#define WEIR_LAB_REPORT_DATA_H

#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <weir/plan.h>
#include <weir/status.h>

/* A line of steps.csv; NAN where the file is silent. */
typedef struct weir_report_step {
  double step, epoch, trial, cr;
  double compute_ms, compress_ms, comm_ms, overhead_ms, predicted_comm_ms;
  double wire_bytes, gain, loss;
  double latency_ms, bandwidth_gbps, set_latency_ms, set_bandwidth_gbps;
  double goodput_gbps;
  double elapsed_s, accuracy, test_loss;
  const char *plan, *codec, *collective; /* interned; plan "": the file does not name it */
} weir_report_step;

typedef struct weir_report_candidate {
  char plan[WEIR_PLAN_TEXT_MAX];
  double t_comp_ms, t_comm_ms, gain, progress_per_s; /* NAN: unknown */
  bool front;
} weir_report_candidate;

/* A line's trial: what was tried and what it showed. */
typedef struct weir_report_trial {
  char plan[WEIR_PLAN_TEXT_MAX]; /* "": none ended with this decision */
  char verdict[8];
  double progress, low, high; /* NAN: not known */
  size_t samples;
  double spent_s, elapsed_s; /* of all trials, and of the run, until then */
} weir_report_trial;

/* A line of decisions.jsonl. */
typedef struct weir_report_decision {
  double step, epoch, latency_ms, bandwidth_gbps, goodput_gbps, predicted_ms, compute_ms;
  double groups; /* buckets of what will run; 0: the gradient as a whole */
  weir_report_trial trial;
  char *trigger, *why;
  bool switched;
  bool divided; /* into another number of buckets than before, whether switched or not */
  weir_report_candidate choice;
  weir_report_candidate *candidates;
  size_t candidate_count;
} weir_report_decision;

typedef struct weir_report_phase {
  double first_epoch, last_epoch, set_latency_ms, set_bandwidth_gbps;
  double measured_latency_ms, measured_bandwidth_gbps, measured_goodput_gbps;
  double answered_in_steps;
} weir_report_phase;

typedef struct weir_report_point {
  double elapsed_s, step, accuracy;
} weir_report_point;

typedef struct weir_report_summary {
  char *network, *clock, *policy, *scenario;
  double workers, final_accuracy, elapsed_s, comm_s, compress_s, compute_s, overhead_s;
  double switches, wire_bytes, steps, trials_s, trial_share;
  gint64 seed; /* -1: not told */
  size_t digests;
  bool digests_told, digests_equal;
  weir_report_phase *phases;
  size_t phase_count;
  weir_report_point *accuracy;
  size_t accuracy_count;
} weir_report_summary;

typedef struct weir_report_data {
  weir_report_summary summary;
  weir_report_step *steps;
  size_t step_count;
  weir_report_decision *decisions;
  size_t decision_count;
} weir_report_data;

/* Frees what it read on failure. */
weir_status weir_report_data_read(weir_report_data *data, const char *directory);
void weir_report_data_free(weir_report_data *data);

/* Does another plan come into force, or the same one in another number of buckets? */
bool weir_report_switches(const weir_report_decision *decision);

/* Parts of it. */
weir_status weir_report_steps_read(weir_report_data *data, const char *directory);
weir_status weir_report_decisions_read(weir_report_data *data, const char *directory);
weir_status weir_report_summary_read(weir_report_data *data, const char *directory);

/* --- shared by the readers -------------------------------------------------------------------- */

/* Where in which file we are; the first error is kept and later ones are not looked at. */
typedef struct weir_report_place {
  const char *file, *directory; /* directory: set by weir_report_slurp */
  size_t line;                  /* 0: the file as a whole */
  weir_status status;
} weir_report_place;

/* The whole file, terminated by a zero byte that is not counted; free with g_free.  NULL: see
 * place->status. */
char *weir_report_slurp(weir_report_place *place, const char *directory, size_t *bytes);
void weir_report_refuse(weir_report_place *place, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* What json-glib must not be given, in words; NULL: nothing.  It recurses, and ends the process
 * where brackets are nested deep enough; and as it takes comments and '...' for JSON, in which they
 * could hide, none may be there. */
const char *weir_json_hostile(const char *text, size_t bytes);
/* The text as one JSON object that outlives nothing but `parser`; NULL on error. */
JsonObject *weir_report_json(weir_report_place *place, JsonParser *parser, const char *text,
                             size_t bytes);
/* The place's whole file, the same way. */
JsonObject *weir_report_load(weir_report_place *place, JsonParser *parser, const char *directory);

typedef enum weir_report_need { WEIR_REQUIRED, WEIR_OPTIONAL } weir_report_need;
/* A finite number, not negative; NAN when optional and missing or null. */
double weir_report_number(weir_report_place *place, JsonObject *object, const char *name,
                          weir_report_need need);
/* The same of a number that may be negative. */
double weir_report_signed(weir_report_place *place, JsonObject *object, const char *name,
                          weir_report_need need);
/* A whole number that a double may be too short for, 0 or more; -1 when optional and missing or
 * null. */
gint64 weir_report_whole(weir_report_place *place, JsonObject *object, const char *name,
                         weir_report_need need);
/* A copy; "" when optional and missing. */
char *weir_report_text(weir_report_place *place, JsonObject *object, const char *name,
                       weir_report_need need);
/* NULL when missing: optional, or an error noted. */
JsonArray *weir_report_array(weir_report_place *place, JsonObject *object, const char *name,
                             weir_report_need need);
JsonObject *weir_report_element(weir_report_place *place, JsonArray *array, const char *name,
                                size_t at);
/* [[elapsed_s, step, accuracy], ...]; g_free. */
weir_report_point *weir_report_points(weir_report_place *place, JsonObject *object,
                                      const char *name, size_t *count);
#endif
