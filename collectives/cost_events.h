/* Events of a schedule in the order of time, for the walks along its critical path (cost_tree.c,
 * cost_walk.c), and the memory that they work in. */
#ifndef WEIR_COLLECTIVES_COST_EVENTS_H
#define WEIR_COLLECTIVES_COST_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/cost.h"

/* A time as what it is made of: latencies, and bytes, which cost_walk.c counts in those of its row
 * and cost_tree.c in chunks. */
typedef struct weir_moment {
  double latencies, bytes;
} weir_moment;

/* Something that happens in a walk, which gives kind, who (a rank or a machine) and round their
 * meaning. */
typedef struct weir_event {
  weir_moment when, more; /* more: what the walk adds to its own reckoning by it */
  double when_s;
  long number; /* those of one time stay in the order in which they were pushed */
  int kind, who, round;
} weir_event;

/* What a walk works in: rooms by number, kept from one walk to the next, so that those who ask
 * again and again take no memory for it. */
enum { WEIR_WALK_ROOMS = 9 };

typedef struct weir_walk_memory {
  void *room[WEIR_WALK_ROOMS];
  size_t bytes[WEIR_WALK_ROOMS];
} weir_walk_memory;

typedef struct weir_events {
  double alpha, unit; /* what a latency takes, and what a byte does */
  weir_event *heap;   /* the earliest first */
  long count, room, number;
  bool failed;              /* out of memory */
  weir_walk_memory *memory; /* kept, or own where another thread walks */
  weir_walk_memory own;
} weir_events;

static inline double weir_moment_s(const weir_events *e, weir_moment m) {
  return m.latencies * e->alpha + m.bytes * e->unit;
}

static inline weir_moment weir_moment_later(const weir_events *e, weir_moment a, weir_moment b) {
  return weir_moment_s(e, a) >= weir_moment_s(e, b) ? a : b;
}

static inline weir_moment weir_moment_plus(weir_moment a, weir_moment b) {
  return (weir_moment){a.latencies + b.latencies, a.bytes + b.bytes};
}

static inline weir_moment weir_moment_minus(weir_moment a, weir_moment b) {
  return (weir_moment){a.latencies - b.latencies, a.bytes - b.bytes};
}

/* Before and after a walk; between them rooms are its own. */
void weir_events_begin(weir_events *e);
void weir_events_end(weir_events *e);
/* Zeros in a room but the first, at least one; NULL: out of memory, and e->failed. */
void *weir_events_zeros(weir_events *e, int room, size_t count, size_t item);
/* when_s and number are set here. */
void weir_events_push(weir_events *e, weir_event event);
/* Takes the earliest out.  False: there is none, or no memory. */
bool weir_events_next(weir_events *e, weir_event *first);

/* What a path of so many rounds takes that ends with `last`, whose bytes count so many each.  Where
 * one wait was taken off another, what is left of latencies or of bytes alone may be nothing that a
 * path could have: then as many latencies as it has rounds, or none. */
weir_cost_terms weir_path_terms(const weir_events *e, weir_moment last, int rounds, double bytes);

#endif
