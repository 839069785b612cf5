/* Follows a schedule's messages in the order of time, and tells what the last rank has waited for.
 *
 * The model (cost.h): a machine has one link, and what its ranks send to other machines goes
 * through it in the order in which they send it.  What comes in goes through the receiver's link in
 * the order in which it comes.  Inside of a machine messages take no time.  A rank begins a round
 * when all that the round before brings has come. */
#include "collectives/cost_walk.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "collectives/cost_events.h"

/* One that goes over a link, or waits for those before it. */
typedef struct message {
  int to, round;
  double share;
  long next; /* -1: none */
} message;

/* A machine's link. */
typedef struct port {
  long first, last;  /* the message that goes out, those behind it; -1: none */
  weir_moment clear; /* coming in: when it will have carried what has left for it, but for alpha */
} port;

/* At a machine; or at a rank, in which round. */
enum { SENT, THERE };

/* Rooms of the walk's memory, behind that of its events. */
enum { HOSTS = 1, ROUNDS_AT, PORTS, DUE, HOPS, PLACES, MESSAGES, LOADS };

typedef struct walk {
  weir_events events; /* alpha: a latency; unit: what all bytes of the row take */
  weir_rounds rounds;
  int n, hosts, count; /* ranks of all columns, machines, rounds */
  int *host;           /* of a rank */
  int *at;             /* the round a rank is in */
  int *due;            /* [rank * count + round]: messages still to come */
  weir_hop *hop;       /* of a round */
  weir_rounds_place *place;
  port *port;
  message *message;
  long messages;
  weir_moment looked; /* when all links were brought up to date */
  weir_moment last;
} walk;

/* --- links ------------------------------------------------------------------------------------ */

/* What links have carried since they were looked at has gone on to receivers' links. */
static void bring_up(walk *w, weir_moment now) {
  const weir_moment part = weir_moment_minus(now, w->looked);
  for (int host = 0; host < w->hosts; host++) {
    if (w->port[host].first < 0) continue;
    port *const in = &w->port[w->host[w->message[w->port[host].first].to]];
    in->clear = weir_moment_plus(weir_moment_later(&w->events, in->clear, w->looked), part);
  }
  w->looked = now;
}

static void begin(walk *w, int host, weir_moment now) {
  const weir_moment whole = {0, w->message[w->port[host].first].share};
  weir_events_push(&w->events,
                   (weir_event){.when = weir_moment_plus(now, whole), .kind = SENT, .who = host});
}

static void leave(walk *w, int from, int round, weir_hop hop, weir_moment now) {
  port *const p = &w->port[w->host[from]];
  const long own = w->messages;
  if (w->host[from] == w->host[hop.to]) {
    weir_events_push(&w->events,
                     (weir_event){.when = now, .kind = THERE, .who = hop.to, .round = round});
    return;
  }
  w->message[w->messages++] = (message){hop.to, round, hop.share, -1};
  if (p->first >= 0) {
    w->message[p->last].next = own;
    p->last = own;
    return;
  }
  bring_up(w, now);
  p->first = p->last = own;
  begin(w, w->host[from], now);
}

static void sent(walk *w, int host, weir_moment now) {
  static const weir_moment latency = {1, 0};
  const message *const m = &w->message[w->port[host].first];
  bring_up(w, now);
  const weir_moment through = weir_moment_later(&w->events, w->port[w->host[m->to]].clear, now);
  weir_events_push(&w->events, (weir_event){.when = weir_moment_plus(through, latency),
                                            .kind = THERE,
                                            .who = m->to,
                                            .round = m->round});
  w->port[host].first = m->next;
  if (m->next >= 0) begin(w, host, now);
}

/* --- the schedule ----------------------------------------------------------------------------- */

static int *due(const walk *w, int rank, int round) {
  return &w->due[(size_t)rank * (size_t)w->count + (size_t)round];
}

/* Ranks of a column have the same numbers as in others; here one column's come behind another's. */
static int sends_of(walk *w, int rank, int round) {
  const int size = w->rounds.shape.ranks, first = rank / size * size;
  const int count = weir_rounds_sends(&w->rounds, rank - first, round, w->hop);
  for (int i = 0; i < count; i++) w->hop[i].to += first;
  return count;
}

/* What is for one peer leaves together. */
static void send_round(walk *w, int rank, int round, weir_moment now) {
  const int count = sends_of(w, rank, round);
  for (int first = 0; first < count; first++)
    for (int i = first; i < count && w->hop[first].to >= 0; i++) {
      if (w->hop[i].to != w->hop[first].to) continue;
      leave(w, rank, round, w->hop[i], now);
      if (i > first) w->hop[i].to = -1;
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
  if (e->kind == SENT) {
    sent(w, e->who, e->when);
    return;
  }
  if (--*due(w, e->who, e->round) > 0 || w->at[e->who] != e->round) return;
  w->at[e->who]++;
  go_on(w, e->who, e->when);
}

/* How many messages there are. */
static size_t count_due(walk *w) {
  size_t all = 0;
  for (int rank = 0; rank < w->n; rank++)
    for (int round = 0; round < w->count; round++) {
      const int count = sends_of(w, rank, round);
      for (int i = 0; i < count; i++) ++*due(w, w->hop[i].to, round);
      all += (size_t)count;
    }
  return all;
}

static bool prepare(walk *w) {
  const size_t ranks = (size_t)w->n;
  w->host = weir_events_zeros(&w->events, HOSTS, ranks, sizeof *w->host);
  w->at = weir_events_zeros(&w->events, ROUNDS_AT, ranks, sizeof *w->at);
  w->port = weir_events_zeros(&w->events, PORTS, (size_t)w->hosts, sizeof *w->port);
  w->due = weir_events_zeros(&w->events, DUE, ranks * (size_t)w->count, sizeof *w->due);
  w->hop =
      weir_events_zeros(&w->events, HOPS, (size_t)weir_rounds_most(&w->rounds), sizeof *w->hop);
  if (!w->host || !w->at || !w->port || !w->due || !w->hop) return false;
  if (weir_rounds_placed(&w->rounds)) {
    w->place =
        weir_events_zeros(&w->events, PLACES, 2 * (size_t)w->rounds.shape.ranks, sizeof *w->place);
    w->rounds.place = w->place;
    if (!w->place) return false;
    weir_rounds_find(&w->rounds, w->place);
  }
  w->message = weir_events_zeros(&w->events, MESSAGES, count_due(w), sizeof *w->message);
  for (int r = 0; r < w->n; r++)
    w->host[r] = weir_shape_host(w->rounds.shape, r % w->rounds.shape.ranks);
  for (int h = 0; h < w->hosts; h++) w->port[h].first = -1;
  return w->message != NULL;
}

/* When the last rank is done.  False: out of memory. */
static bool follow(walk *w) {
  weir_events *const events = &w->events;
  weir_events_begin(events);
  const bool ready = prepare(w);
  for (int r = 0; ready && r < w->n && !events->failed; r++) go_on(w, r, (weir_moment){0, 0});
  for (weir_event e; weir_events_next(events, &e);) take(w, &e);
  weir_events_end(events);
  return ready && !events->failed;
}

/* --- what was followed before ----------------------------------------------------------------- */

/* All that a path depends on. */
typedef struct question {
  double alpha, unit, share[WEIR_EXCHANGES_MAX];
  int64_t kind, row, columns, root, chunks, ranks, hosts, largest, order;
} question;

typedef struct answer {
  question to;
  weir_moment last;
} answer;

enum { ANSWERS = 256 };

static size_t slot_of(const question *q) {
  return (size_t)(weir_hash(WEIR_HASH_INIT, q, sizeof *q) % ANSWERS);
}

/* Sets w->last, from this thread's table where its question has been answered before. */
static bool find_last(walk *w) {
  static _Thread_local answer known[ANSWERS]; /* ranks are 0 in those not given yet */
  const weir_rounds *const r = &w->rounds;
  question asked = {w->events.alpha, w->events.unit,   {0},
                    r->kind,         r->row,           r->columns,
                    r->root,         r->chunks,        r->shape.ranks,
                    r->shape.hosts,  r->shape.largest, (int64_t)r->shape.order};
  memcpy(asked.share, r->share, sizeof asked.share);
  answer *const at = &known[slot_of(&asked)];
  if (memcmp(&at->to, &asked, sizeof asked) != 0) {
    if (!follow(w)) return false;
    *at = (answer){asked, w->last};
  }
  w->last = at->last;
  return true;
}

/* In units of what all bytes take or, where that is nothing, of a latency. */
static walk walk_of(const weir_rounds *r, double alpha, double unit) {
  return (walk){.rounds = *r,
                .n = r->columns * r->shape.ranks,
                .hosts = r->shape.hosts,
                .count = weir_rounds_count(r),
                .events = {.alpha = unit > 0 ? alpha / unit : 1.0, .unit = unit > 0 ? 1.0 : 0.0}};
}

static weir_cost_terms walk_by(const weir_rounds *r, double alpha, double unit, double bytes) {
  walk w = walk_of(r, alpha, unit);
  if (!find_last(&w)) return (weir_cost_terms){INFINITY, INFINITY, 0.0}; /* never the cheapest */
  return weir_path_terms(&w.events, w.last, w.count, bytes);
}

weir_cost_terms weir_cost_walk(const weir_rounds *r, const weir_link *link, double bytes) {
  if (link != NULL) return walk_by(r, link->alpha, bytes * link->beta, bytes);
  return (weir_cost_terms){walk_by(r, 1.0, 0.0, bytes).alpha_terms,
                           walk_by(r, 0.0, 1.0, bytes).byte_terms, 0.0};
}

/* --- rounds that all begin together ----------------------------------------------------------- */

/* What goes over the link of the machine that has most of it, in a round; adds to its counts. */
static double most_of(walk *w, int round, double *out, double *in) {
  double most = 0;
  memset(out, 0, (size_t)w->hosts * sizeof *out);
  memset(in, 0, (size_t)w->hosts * sizeof *in);
  for (int rank = 0; rank < w->n; rank++) {
    const int count = sends_of(w, rank, round);
    for (int i = 0; i < count; i++) {
      const int from = w->host[rank], to = w->host[w->hop[i].to];
      if (from == to) continue;
      out[from] += w->hop[i].share;
      in[to] += w->hop[i].share;
      most = fmax(most, fmax(out[from], in[to]));
    }
  }
  return most;
}

weir_cost_terms weir_cost_together(const weir_rounds *r, double bytes) {
  walk w = walk_of(r, 1.0, 1.0);
  weir_events_begin(&w.events);
  double *const loads = weir_events_zeros(&w.events, LOADS, 2 * (size_t)w.hosts, sizeof *loads);
  weir_cost_terms t = {0, 0, 0};
  const bool good = prepare(&w) && loads != NULL;
  for (int round = 0; good && round < w.count; round++) {
    const double most = most_of(&w, round, loads, loads + w.hosts);
    t.alpha_terms += most > 0 ? 1.0 : 0.0;
    t.byte_terms += most * bytes;
  }
  weir_events_end(&w.events);
  return good ? t : (weir_cost_terms){INFINITY, INFINITY, 0.0};
}
