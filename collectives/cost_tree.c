/* The double tree's critical path, from its schedule: closed forms do not tell which of its links
 * wait for one another. */
#include <math.h>
#include <stdlib.h>

#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"

/* A time as what it is made of. */
typedef struct moment {
  double latencies, chunks;
} moment;

/* On its way to a rank, out of its sender's link. */
typedef struct message {
  int to;
  moment sent;
  double at_s;
} message;

typedef struct walk {
  int n, chunks, top;
  double alpha, chunk_s;
  moment *before, *after; /* when each rank is done with a round: the one before, this one */
  moment *out, *in;       /* until when its outgoing and its incoming link are busy */
  message *flying;        /* of this round */
  size_t count;
} walk;

static double seconds(const walk *w, moment m) {
  return m.latencies * w->alpha + m.chunks * w->chunk_s;
}

static moment later(const walk *w, moment a, moment b) {
  return seconds(w, a) >= seconds(w, b) ? a : b;
}

/* A chunk leaves when its sender has begun the round and its link is free. */
static void leave(walk *w, int from, int to) {
  moment sent = later(w, w->out[from], w->before[from]);
  sent.chunks += 1;
  w->out[from] = sent;
  sent.latencies += 1;
  w->flying[w->count++] = (message){to, sent, seconds(w, sent)};
}

static int earlier(const void *pa, const void *pb) {
  const message *a = pa, *b = pb;
  return (a->at_s > b->at_s) - (a->at_s < b->at_s);
}

/* What comes in from several sides comes in one after the other. */
static void arrive(walk *w, const message *m) {
  moment got = w->in[m->to];
  got.chunks += 1;
  got = later(w, m->sent, got);
  w->in[m->to] = got;
  w->after[m->to] = later(w, w->after[m->to], got);
}

static bool is_chunk(const walk *w, int c) { return c >= 0 && c < w->chunks; }

static void walk_round(walk *w, int round) {
  w->count = 0;
  for (int tree = 0; tree < 2; tree++)
    for (int v = 1; v < w->n; v++) { /* the edge to its parent */
      const int parent = weir_inorder_parent(v, w->n);
      const int low = weir_double_tree_rank(tree, v, w->n);
      const int high = weir_double_tree_rank(tree, parent, w->n);
      if (is_chunk(w, round - weir_inorder_height(v, w->n))) leave(w, low, high);
      if (is_chunk(w, round - w->top - weir_inorder_depth(parent, w->n))) leave(w, high, low);
    }
  qsort(w->flying, w->count, sizeof *w->flying, earlier);
  for (int r = 0; r < w->n; r++) w->after[r] = w->before[r];
  for (size_t i = 0; i < w->count; i++) arrive(w, &w->flying[i]);
  for (int r = 0; r < w->n; r++) w->before[r] = w->after[r];
}

weir_cost_terms weir_cost_double_tree(int n, double bytes, double alpha, double beta) {
  walk w = {.n = n, .chunks = weir_double_tree_chunks((size_t)bytes), .alpha = alpha};
  const double chunk = bytes / (2.0 * w.chunks);
  moment *memory = calloc(4 * (size_t)n, sizeof *memory);
  w.flying = calloc(4 * (size_t)n, sizeof *w.flying);
  moment last = {INFINITY, INFINITY}; /* never the cheapest */
  if (memory && w.flying) {
    w.before = memory;
    w.after = memory + n;
    w.out = memory + 2 * n;
    w.in = memory + 3 * n;
    w.chunk_s = chunk * beta;
    w.top = weir_inorder_height(0, n);
    last = (moment){0, 0};
    for (int round = 0; round < w.chunks + 2 * w.top - 1; round++) walk_round(&w, round);
    for (int r = 0; r < n; r++) last = later(&w, w.before[r], last);
  }
  free(w.flying);
  free(memory);
  return (weir_cost_terms){last.latencies, last.chunks * chunk};
}
