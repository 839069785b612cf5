/* What a scenario's network is at which epoch or time.  bandwidth_scale is applied. */
#ifndef WEIR_LAB_SCHEDULE_H
#define WEIR_LAB_SCHEDULE_H

#include "lab/scenario.h"
#include "lab/trace.h"

typedef struct weir_schedule {
  const weir_scenario *scenario;
  const weir_trace *trace; /* looked at where the scenario has no phases */
} weir_schedule;

/* In an epoch, or, of a trace, at a time since the begin. */
void weir_schedule_shape(const weir_schedule *schedule, uint32_t epoch, double time_s,
                         weir_shape *shape);
/* Bytes in flight that fill the fattest link of the schedule: rate times the way there and back. */
double weir_schedule_window(const weir_schedule *schedule);
/* Can the kernel be set to all of it, and link so many workers?  WEIR_E_INVALID with the scenario's
 * line: so it is found before anything begins, and not hours later when it is due. */
weir_status weir_schedule_check(const weir_schedule *schedule);
/* Is there any phase that only netem can give? */
bool weir_schedule_needs_netem(const weir_schedule *schedule);

#endif
