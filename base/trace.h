/* Phases: what a thread is at.  Announced here once, they go to all who watch: profilers (NVTX:
 * Nsight Systems and others, trace_nvtx.c), the session's trace file (WEIR_TRACE, trace_file.c) and
 * its scope (scope.h), from which weir_dump and `weir top` tell it.
 *
 * Any thread; every begin has its end in the same thread, last begun first ended.  Without anybody
 * watching a phase costs a few comparisons. */
#ifndef WEIR_BASE_TRACE_H
#define WEIR_BASE_TRACE_H

#include <stdint.h>

/* what: a string that stays; number: shown beside it (a group's). */
void weir_trace_begin(const char *what, uint64_t number);
void weir_trace_end(void);

#endif
