/* Trace-driven links: packet slots recorded on a real (here: cellular) link, turned into a rate per
 * interval. */
#ifndef WEIR_LAB_TRACE_H
#define WEIR_LAB_TRACE_H

#include <stddef.h>
#include <weir/status.h>

#include "lab/scenario.h"

typedef struct weir_trace {
  double *rate_bytes_s; /* per interval, before bandwidth_scale; never 0 */
  size_t intervals;
  double interval_s;
} weir_trace;

/* Read the trace: millisecond stamps, never descending, one slot of slot_bytes each.  The rate of
 * interval i is that of the slots in [i*interval, i*interval + window), and never less than one
 * slot a window.  Errors: WEIR_E_IO, WEIR_E_PARSE ("file:line: ..."). */
weir_status weir_trace_read(weir_trace *trace, const weir_trace_config *config);
/* A scenario's, which its errors then name, too; without one it is empty. */
weir_status weir_trace_of(weir_trace *trace, const weir_scenario *scenario);
/* The rate at a time since the begin; the trace repeats. */
double weir_trace_rate(const weir_trace *trace, double time_s);
/* Seconds that so many bytes take from a time on, at scale times the trace's rates. */
double weir_trace_seconds(const weir_trace *trace, double scale, double time_s, double bytes);
void weir_trace_free(weir_trace *trace);

#endif
