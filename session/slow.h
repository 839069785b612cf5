/* Which rank holds the others up: the one whose computing, or whose link, stands out from all
 * others' over the last steps.  From telemetry alone, so every rank comes to the same verdict. */
#ifndef WEIR_SESSION_SLOW_H
#define WEIR_SESSION_SLOW_H

#include "engine/engine.h"
#include "session/status.h"

enum { WEIR_SLOW_STEPS = 5, WEIR_SLOW_LEAST = 3 }; /* looked at; needed */

typedef struct weir_slow {
  double *compute; /* [rank][WEIR_SLOW_STEPS], the newest steps' in turn */
  double *value;   /* room for one a rank, twice */
  int ranks;
  uint64_t steps;
  weir_slow_verdict verdict, told;
  double since_s; /* that it is another than was told last */
} weir_slow;

weir_status weir_slow_open(weir_slow *slow, int ranks);
void weir_slow_close(weir_slow *slow);
/* Take a step's headers in, at this time; true when there is something to tell: the verdict's rank
 * or kind has been another than was told last for a while. */
bool weir_slow_update(weir_slow *slow, const weir_header *headers, int ranks, double now_s);
/* "rank 2 computes 3.1 x the median of the others (155 ms, 50 ms)". */
void weir_slow_say(const weir_slow_verdict *verdict, char *text, size_t room);

#endif
