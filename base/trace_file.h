/* A trace of one rank in Chrome's trace event format (the array form), which Perfetto and
 * chrome://tracing open: "X" events with pid = rank, tid = thread, times in microseconds of
 * CLOCK_MONOTONIC, so that files of several ranks of a machine go together.
 *
 * One event a line.  The file is valid at every moment in which the format permits a missing "]":
 * whole events are written, at each step's end or when 64 KiB have come together, and none is
 * followed by a comma before the next one comes. */
#ifndef WEIR_BASE_TRACE_FILE_H
#define WEIR_BASE_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#include "base/base.h"

typedef struct weir_tracer weir_tracer;

/* What WEIR_TRACE and WEIR_TRACE_MB ask for; *out is NULL where nothing is to be traced.  %r in the
 * file's name is the rank; without it rank 0 alone has a trace.  WEIR_E_INVALID and WEIR_E_IO say
 * what is wrong. */
weir_status weir_tracer_open(weir_tracer **out, int rank);
void weir_tracer_close(weir_tracer *tracer); /* NULL is allowed */

/* Tracks stand for threads: 0 is the caller's. */
void weir_tracer_name(weir_tracer *tracer, int track, const char *what);

/* format: members of "args", JSON, all of whose texts are harmless. */
void weir_tracer_span(weir_tracer *tracer, int track, const char *what, double begin_s,
                      double end_s, const char *format, ...) WEIR_PRINTF(6, 7);
/* A message to or from a rank, on a track of its own; from one thread at a time. */
void weir_tracer_message(weir_tracer *tracer, bool received, int peer, size_t bytes, uint64_t step,
                         double begin_s, double end_s);
/* Write what has come together. */
void weir_tracer_flush(weir_tracer *tracer);

#endif
