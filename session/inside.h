/* What a session lets be seen of itself: log lines, its trace file, its status block. */
#ifndef WEIR_SESSION_INSIDE_H
#define WEIR_SESSION_INSIDE_H

#include <weir/weir.h>

#include "base/scope.h"
#include "engine/engine.h"
#include "netmon/netmon.h"
#include "session/slow.h"
#include "session/status.h"

typedef struct weir_inside {
  weir_scope scope;
  weir_status_file status;
  weir_status_facts facts; /* as last published */
  weir_status_rank *rows;
  weir_slow slow;
  uint64_t seen_plan;                   /* digest of the plan last seen in force */
  double begun_s, computing_s, ended_s; /* the step at hand; the one before */
} weir_inside;

/* With the session's options in scope. */
weir_status weir_inside_open(weir_session *session);
/* The group has met, is measured and has its first plan; and again after a loss. */
void weir_inside_started(weir_session *session);
/* What this rank's monitor knows, before each step's telemetry. */
void weir_inside_network(weir_session *session, const weir_snapshot *now);
/* Around the engine's step; info NULL: it has not begun. */
void weir_inside_begin(weir_session *session);
void weir_inside_begun(weir_session *session, const weir_step_info *info);
void weir_inside_end(weir_session *session);
void weir_inside_ended(weir_session *session, const weir_step_info *info, weir_status status);
/* After every exchange. */
void weir_inside_observe(weir_session *session, const weir_header *headers, int ranks,
                         const weir_step_record *record);
/* The group has ended. */
void weir_inside_failed(weir_session *session);
void weir_inside_close(weir_session *session);

#endif
