/* A heap of events, and memory that is kept between walks. */
#include "collectives/cost_events.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { HEAP }; /* the first room */

static weir_walk_memory kept;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

void weir_events_begin(weir_events *e) {
  e->memory = pthread_mutex_trylock(&keeping) == 0 ? &kept : &e->own;
  e->heap = e->memory->room[HEAP];
  e->room = (long)(e->memory->bytes[HEAP] / sizeof *e->heap);
}

void weir_events_end(weir_events *e) {
  if (e->memory == &kept) (void)pthread_mutex_unlock(&keeping);
  for (int r = 0; r < WEIR_WALK_ROOMS; r++) free(e->own.room[r]);
}

/* What is there stays there. */
static bool grow(weir_events *e, int room, size_t bytes) {
  weir_walk_memory *const m = e->memory;
  if (m->bytes[room] >= bytes) return true;
  void *const more = realloc(m->room[room], bytes);
  e->failed = e->failed || more == NULL;
  if (more == NULL) return false;
  m->room[room] = more;
  m->bytes[room] = bytes;
  return true;
}

void *weir_events_zeros(weir_events *e, int room, size_t count, size_t item) {
  const size_t bytes = (count > 0 ? count : 1) * item;
  return grow(e, room, bytes) ? memset(e->memory->room[room], 0, bytes) : NULL;
}

static bool before(const weir_event *a, const weir_event *b) {
  return a->when_s < b->when_s || (a->when_s == b->when_s && a->number < b->number);
}

static bool make_room(weir_events *e) {
  if (e->count < e->room) return true;
  if (!grow(e, HEAP, (size_t)(2 * e->room + 64) * sizeof *e->heap)) return false;
  e->heap = e->memory->room[HEAP];
  e->room = (long)(e->memory->bytes[HEAP] / sizeof *e->heap);
  return true;
}

void weir_events_push(weir_events *e, weir_event event) {
  if (!make_room(e)) return;
  event.when_s = weir_moment_s(e, event.when);
  event.number = e->number++;
  long i = e->count++;
  for (; i > 0 && before(&event, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
    e->heap[i] = e->heap[(i - 1) / 2];
  e->heap[i] = event;
}

bool weir_events_next(weir_events *e, weir_event *first) {
  if (e->count == 0 || e->failed) return false;
  *first = e->heap[0];
  const weir_event last = e->heap[--e->count];
  long i = 0;
  for (long c = 1; c < e->count; c = 2 * i + 1) {
    if (c + 1 < e->count && before(&e->heap[c + 1], &e->heap[c])) c++;
    if (!before(&e->heap[c], &last)) break;
    e->heap[i] = e->heap[c];
    i = c;
  }
  e->heap[i] = last;
  return true;
}

weir_cost_terms weir_path_terms(const weir_events *e, weir_moment last, int rounds, double bytes) {
  const double time = weir_moment_s(e, last);
  const double most = fmin(rounds, e->alpha > 0 ? time / e->alpha : INFINITY);
  const double latencies = fmax(0, fmin(last.latencies, most));
  if (latencies == last.latencies || !(e->unit > 0))
    return (weir_cost_terms){last.latencies, last.bytes * bytes, 0.0};
  return (weir_cost_terms){latencies, (time - latencies * e->alpha) / e->unit * bytes, 0.0};
}
