/* The double tree's critical path, from its schedule: closed forms do not tell which of its links wait
 * for one another. */
#include <math.h>
#include <stdlib.h>

#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"

/* A time as what it is made of. */
typedef struct moment {
  double latencies, chunks;
} moment;

typedef struct walk {
  int n, chunks, top;
  double alpha, chunk_s;
  moment *before, *after; /* when each rank is done with a round: the one before, this one */
  moment *out;            /* until when its outgoing link is busy */
} walk;

static double seconds(const walk *w, moment m) {
  return m.latencies * w->alpha + m.chunks * w->chunk_s;
}

static moment later(const walk *w, moment a, moment b) {
  return seconds(w, a) >= seconds(w, b) ? a : b;
}

/* A chunk leaves when its sender has begun the round and its link is free.  (What comes in from several
 * sides is less than what goes out to several.) */
static void message(walk *w, int from, int to) {
  moment sent = later(w, w->out[from], w->before[from]);
  sent.chunks += 1;
  w->out[from] = sent;
  moment got = sent;
  got.latencies += 1;
  w->after[to] = later(w, w->after[to], got);
}

static bool is_chunk(const walk *w, int c) { return c >= 0 && c < w->chunks; }

static void walk_round(walk *w, int round) {
  for (int r = 0; r < w->n; r++) w->after[r] = w->before[r];
  for (int tree = 0; tree < 2; tree++)
    for (int v = 1; v < w->n; v++) { /* the edge to its parent */
      const int parent = weir_inorder_parent(v, w->n);
      const int low = weir_double_tree_rank(tree, v, w->n);
      const int high = weir_double_tree_rank(tree, parent, w->n);
      if (is_chunk(w, round - weir_inorder_height(v, w->n))) message(w, low, high);
      if (is_chunk(w, round - w->top - weir_inorder_depth(parent, w->n))) message(w, high, low);
    }
  for (int r = 0; r < w->n; r++) w->before[r] = w->after[r];
}

weir_cost_terms weir_cost_double_tree(int n, double bytes, double alpha, double beta) {
  walk w = {.n = n, .chunks = weir_double_tree_chunks((size_t)bytes), .alpha = alpha};
  const double chunk = bytes / (2.0 * w.chunks);
  moment *memory = calloc(3 * (size_t)n, sizeof *memory);
  if (!memory) return (weir_cost_terms){INFINITY, INFINITY}; /* never the cheapest */
  w.before = memory;
  w.after = memory + n;
  w.out = memory + 2 * n;
  w.chunk_s = chunk * beta;
  w.top = weir_inorder_height(0, n);
  for (int round = 0; round < w.chunks + 2 * w.top - 1; round++) walk_round(&w, round);
  moment last = {0, 0};
  for (int r = 0; r < n; r++) last = later(&w, w.before[r], last);
  free(memory);
  return (weir_cost_terms){last.latencies, last.chunks * chunk};
}
