/* Announces a thread's phases to all who watch.  The phases that a thread is in lie on a stack of
 * its own; the trace file gets each when it ends. */
#include "base/trace.h"

#include "base/base.h"
#include "base/scope.h"
#include "base/trace_file.h"
#include "base/trace_nvtx.h"

enum { DEEPEST = 16 }; /* phases within phases */
typedef struct phase {
  const char *what;
  uint64_t number;
  double begin_s;
} phase;

static _Thread_local phase stack[DEEPEST];
static _Thread_local unsigned depth;

/* Others see what the caller's thread is at; its helpers' phases overlap with it. */
static void show(weir_scope *scope) {
  if (weir_scope_thread() == 0 && depth <= DEEPEST)
    weir_scope_within(scope, depth > 0 ? stack[depth - 1].what : NULL);
}

void weir_trace_begin(const char *what, uint64_t number) {
  weir_scope *scope = weir_scope_here();
  weir_nvtx_begin(what, number);
  if (depth < DEEPEST) stack[depth] = (phase){what, number, scope != NULL ? weir_now_s() : 0};
  depth++;
  if (scope != NULL) show(scope);
}

static void write_phase(const weir_scope *scope, const phase *ended) {
  weir_tracer_span(
      scope->tracer, weir_scope_thread(), ended->what, ended->begin_s, weir_now_s(),
      "\"step\":%llu,\"group\":%llu",
      (unsigned long long)atomic_load_explicit(&scope->live->step, memory_order_relaxed),
      (unsigned long long)ended->number);
}

void weir_trace_end(void) {
  weir_scope *scope = weir_scope_here();
  weir_nvtx_end();
  if (depth == 0) return;
  depth--;
  if (scope == NULL) return;
  if (scope->tracer != NULL && depth < DEEPEST) write_phase(scope, &stack[depth]);
  show(scope);
}
