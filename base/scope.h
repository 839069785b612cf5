/* Where a thread is: in which session's call, which rank and step that is, and what it is at.
 *
 * A session has one scope.  Its calls enter it, and so do the threads that work for it, so that
 * what logs and traces need not be handed the rank from everywhere. */
#ifndef WEIR_BASE_SCOPE_H
#define WEIR_BASE_SCOPE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct weir_tracer;

/* What changes within a step, written without a lock; others read it, from another thread or, where
 * it lies in a mapped file, from another process.  Each field is right by itself; two of them may
 * be of different moments. */
#define WEIR_LIVE_PEERS 4
typedef struct weir_live {
  _Atomic int32_t rank;
  _Atomic uint32_t waits; /* ranks that a message is due from or to; 0: it waits for nobody */
  _Atomic uint64_t step;  /* steps that count, before the one at hand */
  _Atomic uint64_t phase; /* up to 8 characters, of the caller's thread */
  _Atomic uint64_t phase_since_us, wait_since_us; /* CLOCK_MONOTONIC */
  _Atomic int32_t wait_peer[WEIR_LIVE_PEERS];     /* the first of them */
} weir_live;

typedef struct weir_scope {
  weir_live *live; /* `own`, or in a status block */
  weir_live own;
  struct weir_tracer *tracer; /* NULL: no trace file */
  const char *phase;          /* of the caller's thread, which alone uses it */
  _Atomic int32_t threads;    /* that have entered it by name */
} weir_scope;

void weir_scope_open(weir_scope *scope, int rank);
/* Let a scope live elsewhere; what it says is copied. */
void weir_scope_move(weir_scope *scope, weir_live *live);

/* The caller's thread enters a scope (NULL: none), and goes back to where it was when its call
 * returns. */
weir_scope *weir_scope_enter(weir_scope *scope);
void weir_scope_leave(weir_scope *before);
/* A thread of its own enters once, for as long as it runs; what: its name, a string that stays. */
void weir_scope_join(weir_scope *scope, const char *what);
/* Where the calling thread is; NULL: nowhere. */
weir_scope *weir_scope_here(void);
/* The calling thread's number in its scope: 0 for the caller's. */
int weir_scope_thread(void);

void weir_scope_step(weir_scope *scope, uint64_t step);
/* By the caller's thread: it is at this, a string that stays, until told otherwise; and meanwhile
 * at something within it, NULL: no longer. */
void weir_scope_phase(weir_scope *scope, const char *what);
void weir_scope_within(weir_scope *scope, const char *what);
/* The calling thread now waits for `count` ranks, of which these are the first; 0: no longer. */
void weir_scope_wait(weir_scope *scope, const int *peer, size_t count, double now_s);

#endif
