/* The double tree's critical path, from its schedule: closed forms do not tell which of its links
 * wait for one another.  Events in the order of time, as they happen with TCP: a rank begins a
 * round when all that the round before brings has come; its chunks leave one after the other; what
 * comes in from several sides at once shares the receiver's link packet by packet, so that none of
 * it is there until nearly all of it is, and holds up the rounds of whom it is for.
 *
 * A link is a token bucket: one that was idle may be ahead of its rate by as much as fits the
 * bucket, and is once it has been idle for as long as that takes. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/cost_events.h"
#include "collectives/cost_walk.h"

/* Of a message: to come in at a rank's link, were that link free, with what comes of it at once out
 * of the sender's bucket (weir_event.more); gone out; and there. */
enum { BEGINS, ENDS, THERE };

/* A rank's incoming link. */
typedef struct gate {
  int coming;         /* messages */
  weir_moment looked; /* when that began */
  weir_moment clear;  /* when the link's rate will have carried what had come until then */
} gate;

/* Rooms of the walk's memory, behind that of its events. */
enum { PLACES = 1, OUT, IN, ROUNDS_AT, DUE, HOPS };

typedef struct walk {
  weir_events events; /* alpha: a latency; unit: what a chunk takes */
  weir_rounds rounds;
  int n, count;     /* ranks, rounds */
  double bucket;    /* chunks */
  weir_moment *out; /* when a rank's outgoing link will have carried what was sent, by its rate */
  gate *in;         /* of a rank */
  int *at;          /* the round a rank is in */
  int *due;         /* [rank * count + round]: messages still to come */
  weir_hop *hop;    /* of a round */
  weir_moment last;
} walk;

/* A link that is idle now, or still busy; by its rate. */
static weir_moment ready(const walk *w, weir_moment busy, weir_moment now) {
  now.bytes -= w->bucket;
  return weir_moment_later(&w->events, busy, now);
}

/* Times but those of what is there are of what has left, and so a latency earlier. */
static void push(walk *w, weir_event e) {
  e.when.latencies += e.kind == THERE ? 0 : 1;
  weir_events_push(&w->events, e);
}

/* --- the schedule --------------------------------------------------------------------------- */

static void leave(walk *w, int from, int to, int round, weir_moment now) {
  const weir_moment begin = ready(w, w->out[from], now), none = {0, 0}, whole = {0, 1};
  const weir_moment end = {begin.latencies, begin.bytes + 1};
  weir_moment lump = weir_moment_minus(now, begin);
  if (weir_moment_s(&w->events, lump) <= 0) lump = none;
  if (weir_moment_s(&w->events, lump) >= weir_moment_s(&w->events, whole)) lump = whole;
  push(w, (weir_event){.when = weir_moment_later(&w->events, begin, now),
                       .more = lump,
                       .kind = BEGINS,
                       .who = to,
                       .round = round});
  push(w, (weir_event){.when = weir_moment_later(&w->events, end, now),
                       .kind = ENDS,
                       .who = to,
                       .round = round});
  w->out[from] = end;
}

/* What is for one peer leaves together. */
static void send_round(walk *w, int rank, int round, weir_moment now) {
  const int count = weir_rounds_sends(&w->rounds, rank, round, w->hop);
  for (int first = 0; first < count; first++)
    for (int i = first; i < count && w->hop[first].to >= 0; i++) {
      if (w->hop[i].to != w->hop[first].to) continue;
      leave(w, rank, w->hop[i].to, round, now);
      if (i > first) w->hop[i].to = -1;
    }
}

static int *due(walk *w, int rank, int round) {
  return &w->due[(size_t)rank * (size_t)w->count + (size_t)round];
}

static void count_due(walk *w) {
  for (int rank = 0; rank < w->n; rank++)
    for (int round = 0; round < w->count; round++) {
      const int count = weir_rounds_sends(&w->rounds, rank, round, w->hop);
      for (int i = 0; i < count; i++) ++*due(w, w->hop[i].to, round);
    }
}

/* A rank goes on for as long as nothing is missing. */
static void go_on(walk *w, int rank, weir_moment now) {
  w->last = weir_moment_later(&w->events, w->last, now);
  for (; w->at[rank] < w->count; w->at[rank]++) {
    send_round(w, rank, w->at[rank], now);
    if (*due(w, rank, w->at[rank]) > 0) return;
  }
}

static void take(walk *w, const weir_event *e) {
  gate *g = &w->in[e->who];
  if (e->kind == THERE) {
    if (--*due(w, e->who, e->round) > 0 || w->at[e->who] != e->round) return;
    w->at[e->who]++;
    go_on(w, e->who, e->when);
    return;
  }
  const weir_moment since = weir_moment_minus(e->when, g->looked);
  g->clear.latencies += g->coming * since.latencies;
  g->clear.bytes += g->coming * since.bytes;
  g->clear = ready(w, g->clear, e->when);
  g->clear = weir_moment_plus(g->clear, e->more);
  g->looked = e->when;
  g->coming += e->kind == BEGINS ? 1 : -1;
  if (e->kind == ENDS)
    push(w, (weir_event){.when = weir_moment_later(&w->events, g->clear, e->when),
                         .kind = THERE,
                         .who = e->who,
                         .round = e->round});
}

static bool prepare(walk *w) {
  const size_t ranks = (size_t)w->n;
  weir_events *const e = &w->events;
  weir_rounds_place *const place = weir_events_zeros(e, PLACES, 2 * ranks, sizeof *place);
  w->out = weir_events_zeros(e, OUT, ranks, sizeof *w->out);
  w->in = weir_events_zeros(e, IN, ranks, sizeof *w->in);
  w->at = weir_events_zeros(e, ROUNDS_AT, ranks, sizeof *w->at);
  w->due = weir_events_zeros(e, DUE, ranks * (size_t)w->count, sizeof *w->due);
  w->hop = weir_events_zeros(e, HOPS, (size_t)weir_rounds_most(&w->rounds), sizeof *w->hop);
  if (e->failed) return false;
  weir_rounds_find(&w->rounds, place);
  w->rounds.place = place;
  count_due(w);
  for (int r = 0; r < w->n; r++) { /* long idle */
    w->out[r].bytes = -w->bucket;
    w->in[r].clear.bytes = -w->bucket;
  }
  return true;
}

/* When the last rank is done.  False: out of memory. */
static bool follow(walk *w) {
  weir_events *const events = &w->events;
  weir_events_begin(events);
  const bool good = prepare(w);
  for (int r = 0; good && r < w->n && !events->failed; r++) go_on(w, r, (weir_moment){0, 0});
  for (weir_event e; weir_events_next(events, &e);) take(w, &e);
  weir_events_end(events);
  return good && !events->failed;
}

/* --- what was followed before ---------------------------------------------------------------- */

/* All that a path depends on.  A decision asks for many sizes on one link, and of its latencies and
 * bytes apart, which are the same for all sizes of as many chunks. */
typedef struct question {
  double alpha, chunk_s, bucket;
  int64_t n, chunks;
} question;

typedef struct answer {
  question to;
  weir_moment last;
} answer;

enum { ANSWERS = 128 };

static size_t slot_of(const question *q) {
  return (size_t)(weir_hash(WEIR_HASH_INIT, q, sizeof *q) % ANSWERS);
}

/* Sets w->last, from this thread's table where its question has been answered before.  False: out
 * of memory. */
static bool find_last(walk *w) {
  static _Thread_local answer known[ANSWERS]; /* n is 0 in those not given yet */
  const question asked = {w->events.alpha, w->events.unit, w->bucket, w->n, w->rounds.chunks};
  answer *at = &known[slot_of(&asked)];
  if (memcmp(&at->to, &asked, sizeof asked) != 0) {
    if (!follow(w)) return false;
    *at = (answer){asked, w->last};
  }
  w->last = at->last;
  return true;
}

/* Times are in units of what one chunk takes or, where that is nothing, of alpha. */
weir_cost_terms weir_cost_double_tree(int n, double bytes, double alpha, double beta,
                                      double burst) {
  const weir_rounds rounds = weir_rounds_of(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_DOUBLE_TREE,
                                            (weir_group_shape){.ranks = n, .hosts = n}, bytes);
  const double chunk = bytes / (2.0 * rounds.chunks), chunk_s = chunk * beta;
  walk w = {
      .n = n,
      .rounds = rounds,
      .count = weir_rounds_count(&rounds),
      .events = {.alpha = chunk_s > 0 ? alpha / chunk_s : 1.0, .unit = chunk_s > 0 ? 1.0 : 0.0},
      .bucket = chunk > 0 ? burst / chunk : 0};
  if (!find_last(&w)) return (weir_cost_terms){INFINITY, INFINITY, 0.0}; /* never the cheapest */
  return weir_path_terms(&w.events, w.last, w.count, chunk);
}
