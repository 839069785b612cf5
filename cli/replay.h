/* Reading back what a run left behind, for `weir replay`. */
#ifndef WEIR_CLI_REPLAY_H
#define WEIR_CLI_REPLAY_H

#include <glib.h>
#include <json-glib/json-glib.h>

#include "controller/decide.h"

/* One line of decisions.jsonl and what deciding again made of it. */
typedef struct replay_line {
  weir_decision_input input;
  weir_plan choice;    /* as logged */
  gboolean switched;   /* as logged */
  double predicted_ms; /* as logged */
  weir_decision again;
  gboolean otherwise; /* widths of policy bits, or a trial's verdict, come out otherwise */
  gboolean same;
  double regret; /* best candidate's progress/s over the choice's, less 1; at least 0 */
  const weir_candidate *best;
  guint steps;        /* of steps.csv that ran under the choice */
  double measured_ms; /* their mean; 0 without any */
} replay_line;

/* Both print FILE:LINE and what was expected, and return FALSE. */
gboolean replay_read_decisions(const char *path, GArray *lines);
/* A line's "bits"; FALSE when it is not what the journal writes.  Prints nothing. */
gboolean replay_bits(JsonObject *bits, gboolean *same);
/* Likewise a line's "trial". */
gboolean replay_trial(JsonObject *trial, gboolean *same);
gboolean replay_read_steps(const char *path, GArray *lines);

#endif
