/* Log lines: one function, and a check that costs one load where a level is off.
 *
 * A line says its level, the monotonic time, and the rank and step of the session in whose scope
 * the thread is (base/scope.h).  WEIR_LOG sets the level; include/weir/inside.h has the rest. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <weir/inside.h>

#include "base/base.h"

/* The highest level that is logged; above all levels until the environment has been read. */
extern _Atomic int weir_log_most;

/* Might lines of this level be logged?  For callers that would work to make one. */
static inline bool weir_log_on(weir_log_level level) {
  return (int)level <= atomic_load_explicit(&weir_log_most, memory_order_relaxed);
}

/* One line, without its end; dropped where the level is off.  Any thread. */
void weir_log(weir_log_level level, const char *format, ...) WEIR_PRINTF(2, 3);
/* Read WEIR_LOG; what is wrong with it is said, once a process. */
void weir_log_open(void);

#endif
