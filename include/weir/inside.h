/* Weir: looking inside a running job: what the library logs, and what a session is at.
 *
 * The environment sets the rest: WEIR_LOG (how much is logged), WEIR_TRACE and WEIR_TRACE_MB (a
 * trace file), WEIR_STATUS and WEIR_STATUS_DIR (what `weir top` reads).  See docs/guide/inside.md.
 */
#ifndef WEIR_INSIDE_H
#define WEIR_INSIDE_H

#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weir_session;

/* Each level includes those before it. */
typedef enum weir_log_level {
  WEIR_LOG_ERROR = 0, /* the group has ended, or this rank cannot go on */
  WEIR_LOG_WARN = 1,  /* goes on with less: refused strangers, a probe that failed (default) */
  WEIR_LOG_INFO = 2,  /* starts, plans and why, probes, slow and lost ranks */
  WEIR_LOG_DEBUG = 3, /* every step's record */
  WEIR_LOG_TRACE = 4  /* every message */
} weir_log_level;

typedef struct weir_log_line {
  weir_log_level level;
  double time_s;    /* CLOCK_MONOTONIC, the same clock on all ranks of a machine */
  int rank;         /* -1: no session's */
  uint64_t step;    /* steps that count, before the one at hand */
  const char *text; /* without an end of line; valid during the call */
} weir_log_line;
typedef void (*weir_log_fn)(void *user, const weir_log_line *line);

/* Hand all lines of this process to `log` instead of writing them to stderr; NULL: to stderr again.
 * It is called from any thread of the library, from one at a time, and must not call the library.
 * Once this returns the function before is no longer called. */
void weir_log_set(weir_log_fn log, void *user);
/* Log up to this level from now on, whatever WEIR_LOG says.  WEIR_E_INVALID for no level. */
weir_status weir_log_set_level(weir_log_level level);

/* Receives a dump in parts; text ends with 0 and is valid during the call. */
typedef void (*weir_dump_fn)(void *user, const char *text);

/* What a session is at and why, as lines of "key: value" whose keys docs/guide/inside.md lists.
 * write NULL: to stderr.  Unlike all others this may be called from any thread while another one is
 * in a call of the session, but not beside weir_session_free: it reads a block that the session
 * keeps up to date, takes no lock and waits for nobody.  A line of `write` is never half of
 * another's. WEIR_E_INVALID: the session is NULL. */
weir_status weir_dump(const struct weir_session *session, weir_dump_fn write, void *user);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
