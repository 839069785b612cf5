/* The double tree's critical path, from its schedule: closed forms do not tell which of its links
 * wait for one another.  Events in the order of time, as they happen with TCP: a rank begins a
 * round when all that the round before brings has come; its chunks leave one after the other; what
 * comes in from several sides at once shares the receiver's link packet by packet, so that none of
 * it is there until nearly all of it is, and holds up the rounds of whom it is for.
 *
 * A link is a token bucket: one that was idle may be ahead of its rate by as much as fits the
 * bucket, and is once it has been idle for as long as that takes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"

/* A time as what it is made of. */
typedef struct moment {
  double latencies, chunks;
} moment;

typedef enum event_kind {
  BEGINS, /* to come in at a rank's link, were that link free */
  ENDS,
  THERE
} event_kind;

/* Of a message. */
typedef struct event {
  moment when;
  moment lump; /* BEGINS: what comes at once, out of the sender's bucket */
  double when_s;
  long number; /* those of one time stay in this order */
  event_kind kind;
  int to, round;
} event;

/* A rank's incoming link. */
typedef struct gate {
  int coming;    /* messages */
  moment looked; /* when that began */
  moment clear;  /* when the link's rate will have carried what had come until then */
} gate;

typedef struct tree_place {
  int parent, child[2]; /* -1: none */
  int height, depth;
} tree_place;

/* Steps are predicted while they run, so groups of usual size need no allocation. */
typedef struct desk {
  _Alignas(16) unsigned char space[48 * 1024];
  size_t used;
} desk;

typedef struct walk {
  desk *desk;
  int n, chunks, top, rounds;
  double alpha, chunk_s;
  double bucket; /* chunks */
  tree_place *place;
  moment *out; /* when a rank's outgoing link will have carried what was sent, by its rate */
  gate *in;    /* of a rank */
  int *at;     /* the round a rank is in */
  int *due;    /* [rank * rounds + round]: messages still to come */
  event *heap; /* the earliest first */
  long events, room, number;
  bool failed; /* out of memory */
  moment last;
} walk;

static double seconds(const walk *w, moment m) {
  return m.latencies * w->alpha + m.chunks * w->chunk_s;
}

static moment later(const walk *w, moment a, moment b) {
  return seconds(w, a) >= seconds(w, b) ? a : b;
}

static moment minus(moment a, moment b) {
  return (moment){a.latencies - b.latencies, a.chunks - b.chunks};
}

/* A link that is idle now, or still busy; by its rate. */
static moment ready(const walk *w, moment busy, moment now) {
  now.chunks -= w->bucket;
  return later(w, busy, now);
}

/* --- memory --------------------------------------------------------------------------------- */

static bool on_desk(const desk *d, const void *memory) {
  const uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)d->space;
  return at >= begin && at < begin + sizeof d->space;
}

/* count items, all 0; put_away() afterwards. */
static void *lay_out(desk *d, size_t count, size_t item) {
  const size_t bytes = (count * item + 15) / 16 * 16;
  if (bytes > sizeof d->space - d->used) return calloc(count, item);
  void *memory = d->space + d->used;
  d->used += bytes;
  return memset(memory, 0, bytes);
}

static void put_away(const desk *d, void *memory) {
  if (!on_desk(d, memory)) free(memory);
}

/* --- the heap ------------------------------------------------------------------------------- */

static bool before(const event *a, const event *b) {
  return a->when_s < b->when_s || (a->when_s == b->when_s && a->number < b->number);
}

static void push(walk *w, event e) {
  if (w->events == w->room) {
    const long room = 2 * w->room + 64;
    event *heap = lay_out(w->desk, (size_t)room, sizeof *heap);
    if (!heap) {
      w->failed = true;
      return;
    }
    if (w->events > 0) memcpy(heap, w->heap, (size_t)w->events * sizeof *heap);
    put_away(w->desk, w->heap);
    w->heap = heap;
    w->room = room;
  }
  e.when.latencies += e.kind == THERE ? 0 : 1;
  e.when_s = seconds(w, e.when);
  e.number = w->number++;
  long i = w->events++;
  for (; i > 0 && before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
    w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = e;
}

static event pop(walk *w) {
  const event first = w->heap[0], e = w->heap[--w->events];
  long i = 0;
  for (long c = 1; c < w->events; c = 2 * i + 1) {
    if (c + 1 < w->events && before(&w->heap[c + 1], &w->heap[c])) c++;
    if (!before(&w->heap[c], &e)) break;
    w->heap[i] = w->heap[c];
    i = c;
  }
  w->heap[i] = e;
  return first;
}

/* --- the schedule --------------------------------------------------------------------------- */

static bool is_chunk(const walk *w, int c) { return c >= 0 && c < w->chunks; }

static void leave(walk *w, int from, int to, int round, moment now) {
  const moment begin = ready(w, w->out[from], now), none = {0, 0}, whole = {0, 1};
  const moment end = {begin.latencies, begin.chunks + 1};
  moment lump = minus(now, begin);
  if (seconds(w, lump) <= 0) lump = none;
  if (seconds(w, lump) >= seconds(w, whole)) lump = whole;
  push(w, (event){later(w, begin, now), lump, .kind = BEGINS, .to = to, .round = round});
  push(w, (event){later(w, end, now), none, .kind = ENDS, .to = to, .round = round});
  w->out[from] = end;
}

/* In the order of the algorithm: up, then down to the highest subtrees first.  What is for one peer
 * leaves together. */
enum { MESSAGES = 6 };
static int order_round(const walk *w, int rank, int round, int to[MESSAGES]) {
  int count = 0;
  for (int tree = 0; tree < 2; tree++) {
    const tree_place *p = &w->place[weir_double_tree_place(tree, rank, w->n)];
    if (p->parent >= 0 && is_chunk(w, round - p->height))
      to[count++] = weir_double_tree_rank(tree, p->parent, w->n);
  }
  for (int height = w->top - 1; height >= 0; height--)
    for (int tree = 0; tree < 2; tree++) {
      const tree_place *p = &w->place[weir_double_tree_place(tree, rank, w->n)];
      for (int side = 0; side < 2 && is_chunk(w, round - w->top - p->depth); side++)
        if (p->child[side] >= 0 && w->place[p->child[side]].height == height)
          to[count++] = weir_double_tree_rank(tree, p->child[side], w->n);
    }
  return count;
}

static void send_round(walk *w, int rank, int round, moment now) {
  int to[MESSAGES];
  const int count = order_round(w, rank, round, to);
  for (int first = 0; first < count; first++)
    for (int i = first; i < count && to[first] >= 0; i++) {
      if (to[i] != to[first]) continue;
      leave(w, rank, to[i], round, now);
      if (i > first) to[i] = -1;
    }
}

static int *due(walk *w, int rank, int round) {
  return &w->due[(size_t)rank * (size_t)w->rounds + (size_t)round];
}

static void count_due(walk *w) {
  for (int tree = 0; tree < 2; tree++)
    for (int v = 1; v < w->n; v++) { /* the edge to its parent */
      const tree_place *p = &w->place[v];
      const int low = weir_double_tree_rank(tree, v, w->n);
      const int high = weir_double_tree_rank(tree, p->parent, w->n);
      for (int c = 0; c < w->chunks; c++) {
        ++*due(w, high, c + p->height);
        ++*due(w, low, c + w->top + p->depth - 1);
      }
    }
}

/* A rank goes on for as long as nothing is missing. */
static void go_on(walk *w, int rank, moment now) {
  w->last = later(w, w->last, now);
  for (; w->at[rank] < w->rounds; w->at[rank]++) {
    send_round(w, rank, w->at[rank], now);
    if (*due(w, rank, w->at[rank]) > 0) return;
  }
}

static void take(walk *w, const event *e) {
  gate *g = &w->in[e->to];
  if (e->kind == THERE) {
    if (--*due(w, e->to, e->round) > 0 || w->at[e->to] != e->round) return;
    w->at[e->to]++;
    go_on(w, e->to, e->when);
    return;
  }
  const moment since = minus(e->when, g->looked);
  g->clear.latencies += g->coming * since.latencies;
  g->clear.chunks += g->coming * since.chunks;
  g->clear = ready(w, g->clear, e->when);
  g->clear.latencies += e->lump.latencies;
  g->clear.chunks += e->lump.chunks;
  g->looked = e->when;
  g->coming += e->kind == BEGINS ? 1 : -1;
  if (e->kind == ENDS)
    push(w, (event){later(w, g->clear, e->when), .kind = THERE, .to = e->to, .round = e->round});
}

static void find_places(walk *w) {
  for (int v = 0; v < w->n; v++)
    w->place[v] = (tree_place){weir_inorder_parent(v, w->n),
                               {weir_inorder_child(v, w->n, 0), weir_inorder_child(v, w->n, 1)},
                               weir_inorder_height(v, w->n),
                               weir_inorder_depth(v, w->n)};
}

/* *last: when the last rank is done.  False: out of memory. */
static bool follow(walk *w, moment *last) {
  desk d;
  d.used = 0;
  w->desk = &d;
  const size_t ranks = (size_t)w->n;
  w->place = lay_out(&d, ranks, sizeof *w->place);
  w->out = lay_out(&d, ranks, sizeof *w->out);
  w->in = lay_out(&d, ranks, sizeof *w->in);
  w->at = lay_out(&d, ranks, sizeof *w->at);
  w->failed = !w->place || !w->out || !w->in || !w->at;
  if (!w->failed) {
    find_places(w);
    w->due = lay_out(&d, ranks * (size_t)w->rounds, sizeof *w->due);
    w->failed = !w->due;
  }
  if (!w->failed) {
    count_due(w);
    for (int r = 0; r < w->n; r++) { /* long idle */
      w->out[r].chunks = -w->bucket;
      w->in[r].clear.chunks = -w->bucket;
    }
    for (int r = 0; r < w->n; r++) go_on(w, r, (moment){0, 0});
    while (w->events > 0 && !w->failed) {
      const event e = pop(w);
      take(w, &e);
    }
  }
  put_away(&d, w->heap);
  put_away(&d, w->due);
  put_away(&d, w->at);
  put_away(&d, w->in);
  put_away(&d, w->out);
  put_away(&d, w->place);
  *last = w->last;
  return !w->failed;
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
  moment last;
} answer;

enum { ANSWERS = 128 };

static size_t slot_of(const question *q) {
  return (size_t)(weir_hash(WEIR_HASH_INIT, q, sizeof *q) % ANSWERS);
}

/* Sets w->last, from this thread's table where its question has been answered before.  False: out
 * of memory. */
static bool find_last(walk *w) {
  static _Thread_local answer known[ANSWERS]; /* n is 0 in those not given yet */
  const question asked = {w->alpha, w->chunk_s, w->bucket, w->n, w->chunks};
  answer *at = &known[slot_of(&asked)];
  w->top = weir_inorder_height(0, w->n);
  w->rounds = w->chunks + 2 * w->top - 1;
  if (memcmp(&at->to, &asked, sizeof asked) != 0) {
    answer found = {.to = asked};
    if (!follow(w, &found.last)) return false;
    *at = found;
  }
  w->last = at->last;
  return true;
}

/* The path's time.  Where one wait was taken off another, what is left of latencies or of bytes
 * alone may be nothing that a path could have: then as many latencies as it has rounds, or none. */
static weir_cost_terms terms_of(const walk *w, double chunk) {
  const double most = fmin(w->rounds, w->alpha > 0 ? seconds(w, w->last) / w->alpha : INFINITY);
  const double latencies = fmax(0, fmin(w->last.latencies, most));
  if (latencies == w->last.latencies || !(w->chunk_s > 0))
    return (weir_cost_terms){w->last.latencies, w->last.chunks * chunk, 0.0};
  return (weir_cost_terms){latencies,
                           (seconds(w, w->last) - latencies * w->alpha) / w->chunk_s * chunk, 0.0};
}

/* Times are in units of what one chunk takes or, where that is nothing, of alpha. */
weir_cost_terms weir_cost_double_tree(int n, double bytes, double alpha, double beta,
                                      double burst) {
  const int chunks = weir_double_tree_chunks((size_t)bytes);
  const double chunk = bytes / (2.0 * chunks), chunk_s = chunk * beta;
  walk w = {.n = n,
            .chunks = chunks,
            .alpha = chunk_s > 0 ? alpha / chunk_s : 1.0,
            .chunk_s = chunk_s > 0 ? 1.0 : 0.0,
            .bucket = chunk > 0 ? burst / chunk : 0};
  if (!find_last(&w)) return (weir_cost_terms){INFINITY, INFINITY, 0.0}; /* never the cheapest */
  return terms_of(&w, chunk);
}
