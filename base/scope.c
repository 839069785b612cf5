/* Where threads are: a pointer a thread, and the few words that others may read meanwhile. */
#include "base/scope.h"

#include <string.h>

#include "base/base.h"
#include "base/trace_file.h"

static _Thread_local weir_scope *here;
static _Thread_local int number;

void weir_scope_open(weir_scope *scope, int rank) {
  memset(scope, 0, sizeof *scope);
  scope->live = &scope->own;
  atomic_store_explicit(&scope->own.rank, rank, memory_order_relaxed);
  weir_scope_phase(scope, "created");
}

void weir_scope_move(weir_scope *scope, weir_live *live) {
  weir_live *from = scope->live;
  if (from == live) return;
  atomic_store(&live->rank, atomic_load(&from->rank));
  atomic_store(&live->step, atomic_load(&from->step));
  atomic_store(&live->phase, atomic_load(&from->phase));
  atomic_store(&live->phase_since_us, atomic_load(&from->phase_since_us));
  scope->live = live;
}

weir_scope *weir_scope_enter(weir_scope *scope) {
  weir_scope *before = here;
  here = scope;
  return before;
}

void weir_scope_leave(weir_scope *before) { here = before; }

void weir_scope_join(weir_scope *scope, const char *what) {
  here = scope;
  if (scope == NULL) return;
  number = atomic_fetch_add(&scope->threads, 1) + 1;
  if (scope->tracer != NULL) weir_tracer_name(scope->tracer, number, what);
}

weir_scope *weir_scope_here(void) { return here; }

int weir_scope_thread(void) { return number; }

static uint64_t now_us(void) { return (uint64_t)(weir_now_s() * 1e6); }

void weir_scope_step(weir_scope *scope, uint64_t step) {
  atomic_store_explicit(&scope->live->step, step, memory_order_relaxed);
}

void weir_scope_phase(weir_scope *scope, const char *what) {
  scope->phase = what;
  weir_scope_within(scope, NULL);
}

void weir_scope_within(weir_scope *scope, const char *within) {
  const char *what = within != NULL ? within : scope->phase;
  uint64_t packed = 0;
  memcpy(&packed, what, strnlen(what, sizeof packed));
  atomic_store_explicit(&scope->live->phase, packed, memory_order_relaxed);
  atomic_store_explicit(&scope->live->phase_since_us, now_us(), memory_order_relaxed);
}

void weir_scope_wait(weir_scope *scope, const int *peer, size_t count, double now_s) {
  weir_live *live = scope->live;
  for (size_t i = 0; i < count && i < WEIR_LIVE_PEERS; i++)
    atomic_store_explicit(&live->wait_peer[i], peer[i], memory_order_relaxed);
  atomic_store_explicit(&live->wait_since_us, (uint64_t)(now_s * 1e6), memory_order_relaxed);
  atomic_store_explicit(&live->waits, (uint32_t)count, memory_order_release);
}
