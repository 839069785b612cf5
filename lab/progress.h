/* What a run says while it goes: one line that is rewritten on a terminal, a line an epoch
 * elsewhere.  Writes to stderr; stdout is for results. */
#ifndef WEIR_LAB_PROGRESS_H
#define WEIR_LAB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "lab/channel.h"
#include "lab/scenario.h"

typedef enum weir_progress_style {
  WEIR_PROGRESS_PLAIN, /* a line an epoch */
  WEIR_PROGRESS_LIVE,  /* one line, rewritten twice a second */
  WEIR_PROGRESS_RELAY  /* lines for another runner, which rewrites: live lines begin with a tilde */
} weir_progress_style;

typedef struct weir_progress {
  weir_progress_style style;
  const weir_scenario *scenario;
  uint64_t steps_per_epoch;
  double step_s;   /* smoothed wall time of a step, trials included */
  double last_row; /* when */
  double last_shown;
  double accuracy; /* NaN: none yet */
  bool line_open;  /* a live line stands on the terminal */
} weir_progress;

void weir_progress_begin(weir_progress *progress, weir_progress_style style,
                         const weir_scenario *scenario, uint64_t steps_per_epoch);
void weir_progress_row(weir_progress *progress, const weir_row *row);
/* The live line, in words of the caller's; nothing where there is none. */
void weir_progress_show(weir_progress *progress, const char *line);
/* Take the live line away, since something else is about to be printed. */
void weir_progress_wipe(weir_progress *progress);
/* A line of its own, e.g. what network is used. */
void weir_progress_say(weir_progress *progress, const char *text);
/* Show a line another runner's relay style has made. */
void weir_progress_relay(weir_progress *progress, const char *line);
void weir_progress_end(weir_progress *progress);

/* Live when stderr is a terminal, else plain. */
weir_progress_style weir_progress_style_here(void);

#endif
