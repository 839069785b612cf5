/* What rows take between machines of several ranks, by the model in cost.h: closed forms where
 * there are some, the walk along the schedule elsewhere (cost_walk.h). */
#include <math.h>

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "collectives/cost_walk.h"
#include "collectives/patterns/patterns.h"

/* Walks go over so many ranks at the most, and over so many pairs of ranks; of larger groups rounds
 * count as if all ranks began each together, which hides no latency behind bytes. */
#define WALKED_RANKS 128
#define WALKED_PAIRS 64

static bool is_even(weir_group_shape s) { return s.ranks % s.hosts == 0 && weir_shape_even(s); }

static int most_members(weir_group_shape s) {
  int most = 0;
  for (int host = 0; host < s.hosts; host++)
    if (weir_shape_members(s, host) > most) most = weir_shape_members(s, host);
  return most;
}

/* --- everybody to everybody ------------------------------------------------------------------- */

/* Pairs that cross one machine's link, of the machine where they are most. */
static double pairs(weir_group_shape s) {
  double most = 0;
  for (int host = 0; host < s.hosts; host++) {
    const double members = weir_shape_members(s, host);
    most = fmax(most, members * (s.ranks - members));
  }
  return most;
}

static bool is_shared(weir_group_shape s) { return s.hosts > 1 && s.hosts < s.ranks; }

weir_cost_terms weir_cost_exchanges(weir_group_shape shape, int columns, const weir_link *link,
                                    const double *bytes, int count) {
  weir_rounds r = {.shape = shape, .kind = WEIR_KIND_COUNT, .columns = columns, .chunks = count};
  weir_cost_terms t = {count, 0, 0};
  double all = 0;
  for (int i = 0; i < count; i++) all += bytes[i];
  for (int i = 0; i < count && all > 0; i++) r.share[i] = bytes[i] / all;
  const double links = shape.hosts > 1 ? pairs(shape) : shape.ranks - 1.0;
  t.byte_terms = columns * links * all;
  const bool one = !is_shared(shape) && columns == 1; /* a rank's link is its own */
  if (!one && count > 1 && columns * shape.ranks <= WALKED_PAIRS) t = weir_cost_walk(&r, link, all);
  const double alone = (double)shape.hosts / (columns * shape.ranks); /* of a link's, a rank's */
  t.spread_terms = weir_cost_spread(shape.ranks, t.alpha_terms, alone * t.byte_terms);
  return t;
}

/* --- rings ------------------------------------------------------------------------------------ */

/* The fewest hops of a way around the ring, machine by machine, that crosses a border `crossings`
 * times after the first. */
static int least_hops(weir_group_shape s, int crossings) {
  const int rounds = crossings / s.hosts, rest = crossings % s.hosts;
  int least = s.ranks;
  if (is_even(s)) return crossings * (s.ranks / s.hosts);
  for (int first = 0; first < s.hosts; first++) {
    int hops = 0;
    for (int k = 0; k < rest; k++) hops += weir_shape_members(s, (first + k) % s.hosts);
    if (hops < least) least = hops;
  }
  return rounds * s.ranks + least;
}

/* The one of two paths that takes longer on the link; without one the most of both. */
static weir_cost_terms longer(weir_cost_terms a, weir_cost_terms b, const weir_link *link) {
  if (link == NULL)
    return (weir_cost_terms){fmax(a.alpha_terms, b.alpha_terms), fmax(a.byte_terms, b.byte_terms),
                             0.0};
  const bool first = weir_cost_seconds(&a, link->alpha, link->beta) >=
                     weir_cost_seconds(&b, link->alpha, link->beta);
  return first ? a : b;
}

/* Machine by machine: a machine's link carries one message in every hop.  The last one over a
 * border has waited for those before it on the same link, or for what it is made of, which came
 * over another border with a latency: of a way that changes c times from a border to the next one,
 * each change takes as many hops as the machine between has ranks, and the link carries one message
 * in place of these:
 *
 *   (c + 1) latencies, and hops - (least_hops(c) - c) messages. */
static weir_cost_terms in_blocks(weir_group_shape s, const weir_link *link, int hops,
                                 double bytes) {
  weir_cost_terms best = {1.0, hops * bytes, 0.0};
  for (int c = 1; least_hops(s, c) < hops; c++) {
    const weir_cost_terms t = {c + 1, (hops - least_hops(s, c) + c) * bytes, 0.0};
    best = longer(best, t, link);
  }
  return best;
}

/* Every hop goes to another machine, and so many ranks of each send at once, one behind the other:
 * either the link is busy all the time, or a hop takes its message and a latency, and the last rank
 * has begun as much later as the others' messages take. */
static weir_cost_terms in_turn(int flows, const weir_link *link, int hops, double bytes) {
  const weir_cost_terms busy = {1.0, (double)hops * flows * bytes, 0.0},
                        waits = {hops, (hops + flows - 1.0) * bytes, 0.0};
  return longer(busy, waits, link);
}

static bool is_ring(weir_kind kind, uint32_t row) {
  return (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_RING) ||
         (kind == WEIR_KIND_ALLGATHER && row == WEIR_ALLGATHER_RING) ||
         (kind == WEIR_KIND_REDUCE_SCATTER && row == WEIR_REDUCE_SCATTER_RING);
}

/* --- rows ------------------------------------------------------------------------------------- */

static bool is_known(weir_kind kind, uint32_t row) {
  static const uint32_t rows[WEIR_KIND_COUNT] = {
      [WEIR_KIND_ALLREDUCE] = WEIR_ALLREDUCE_COUNT,
      [WEIR_KIND_BROADCAST] = WEIR_BROADCAST_COUNT,
      [WEIR_KIND_ALLGATHER] = WEIR_ALLGATHER_COUNT,
      [WEIR_KIND_REDUCE_SCATTER] = WEIR_REDUCE_SCATTER_COUNT,
      [WEIR_KIND_REDUCE] = WEIR_REDUCE_COUNT,
      [WEIR_KIND_GATHER] = WEIR_GATHER_COUNT};
  return kind < WEIR_KIND_COUNT && row < rows[kind];
}

static int hops_of(weir_kind kind, uint32_t row, weir_group_shape s) {
  const weir_rounds r = weir_rounds_of(kind, row, s, 0);
  return weir_rounds_count(&r);
}

/* Rows whose every message leaves at once, from or to a root or all: nothing waits for another. */
static bool is_at_once(weir_kind kind, uint32_t row) {
  return (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_DIRECT) ||
         (kind == WEIR_KIND_ALLGATHER && row == WEIR_ALLGATHER_DIRECT) ||
         (kind == WEIR_KIND_BROADCAST && row == WEIR_BROADCAST_DIRECT) || kind == WEIR_KIND_GATHER;
}

static weir_cost_terms at_once(weir_kind kind, weir_group_shape s, int root, double bytes) {
  const double others = s.ranks - weir_shape_members(s, weir_shape_host(s, root));
  const bool rooted = kind == WEIR_KIND_BROADCAST || kind == WEIR_KIND_GATHER;
  return (weir_cost_terms){1.0, (rooted ? others : pairs(s)) * bytes, 0.0};
}

static bool is_double_tree(weir_kind kind, uint32_t row) {
  return kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_DOUBLE_TREE;
}

static bool is_pairwise(weir_kind kind, uint32_t row) {
  return kind == WEIR_KIND_REDUCE_SCATTER && row == WEIR_REDUCE_SCATTER_PAIRWISE;
}

/* Of machines' links, as if each were a rank's: of ranks machine by machine, whose subtrees are
 * runs of ranks, and of columns, each of which has a part of its machine's link. */
static weir_cost_terms tree_of_machines(int hosts, int columns, const weir_link *link,
                                        double bytes) {
  if (link == NULL) return weir_cost_allreduce(WEIR_ALLREDUCE_DOUBLE_TREE, hosts, columns * bytes);
  weir_cost_terms t = weir_cost_double_tree(hosts, bytes, link->alpha, columns * link->beta, 0.0);
  t.byte_terms *= columns;
  return t;
}

static weir_cost_terms walked(weir_kind kind, uint32_t row, weir_group_shape s, int columns,
                              const weir_link *link, double bytes, int root) {
  const int ranks = columns * s.ranks;
  weir_rounds r = weir_rounds_of(kind, row, s, bytes);
  r.columns = columns;
  r.root = root;
  if (ranks > WALKED_RANKS && is_double_tree(kind, row) && s.order == 0)
    return tree_of_machines(s.hosts, columns, link, bytes);
  return ranks > (is_pairwise(kind, row) || is_ring(kind, row) ? WALKED_PAIRS : WALKED_RANKS)
             ? weir_cost_together(&r, bytes)
             : weir_cost_walk(&r, link, bytes);
}

static weir_cost_terms ring(weir_kind kind, uint32_t row, weir_group_shape s, const weir_link *link,
                            double bytes) {
  const int hops = hops_of(kind, row, s);
  const double message = kind == WEIR_KIND_ALLGATHER ? bytes : bytes / s.ranks;
  if (s.order == 0) return in_blocks(s, link, hops, message);
  if (s.order != WEIR_ORDER_CYCLIC || (!is_even(s) && s.ranks <= WALKED_PAIRS))
    return walked(kind, row, s, 1, link, bytes, 0);
  return in_turn(most_members(s), link, hops, message);
}

/* Those in which every rank waits for another's message in every round wait for the slower of two,
 * where messages take times that differ. */
static bool is_mutual(weir_kind kind, uint32_t row) {
  if (kind == WEIR_KIND_ALLREDUCE)
    return row == WEIR_ALLREDUCE_RING || row == WEIR_ALLREDUCE_HALVING ||
           row == WEIR_ALLREDUCE_TORUS || row == WEIR_ALLREDUCE_DOUBLING;
  return (kind == WEIR_KIND_ALLGATHER && row != WEIR_ALLGATHER_DIRECT) ||
         kind == WEIR_KIND_REDUCE_SCATTER;
}

weir_cost_terms weir_cost_machines(weir_kind kind, uint32_t row, weir_group_shape shape,
                                   const weir_link *link, double bytes, int root) {
  if (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_NATIVE)
    row = shape.ranks < 4 || bytes < 65536.0 ? WEIR_ALLREDUCE_TREE : WEIR_ALLREDUCE_HALVING;
  if (!is_known(kind, row)) return (weir_cost_terms){INFINITY, INFINITY, 0.0};
  weir_cost_terms t = is_ring(kind, row)      ? ring(kind, row, shape, link, bytes)
                      : is_at_once(kind, row) ? at_once(kind, shape, root, bytes)
                                              : walked(kind, row, shape, 1, link, bytes, root);
  /* Of messages of one rank each; in a ring machine by machine one has the link to itself. */
  const double alone =
      is_ring(kind, row) && shape.order == 0 ? 1.0 : (double)shape.hosts / shape.ranks;
  if (is_mutual(kind, row))
    t.spread_terms = weir_cost_spread(shape.ranks, t.alpha_terms, alone * t.byte_terms);
  return t;
}

weir_cost_terms weir_cost_columns(weir_kind kind, uint32_t row, int hosts, int columns,
                                  const weir_link *link, double bytes) {
  const weir_group_shape across = {.ranks = hosts, .hosts = hosts};
  if (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_NATIVE)
    row = hosts < 4 || bytes < 65536.0 ? WEIR_ALLREDUCE_TREE : WEIR_ALLREDUCE_HALVING;
  if (!is_known(kind, row)) return (weir_cost_terms){INFINITY, INFINITY, 0.0};
  const double message = kind == WEIR_KIND_ALLGATHER ? bytes : bytes / hosts;
  weir_cost_terms t =
      is_ring(kind, row)      ? in_turn(columns, link, hops_of(kind, row, across), message)
      : is_at_once(kind, row) ? (weir_cost_terms){1.0, columns * (hosts - 1.0) * bytes, 0.0}
                              : walked(kind, row, across, columns, link, bytes, 0);
  if (is_mutual(kind, row))
    t.spread_terms = weir_cost_spread(hosts, t.alpha_terms, t.byte_terms / columns);
  return t;
}

/* Roots at the same place of even machines are alike, and of ranks that go round them all are. */
weir_cost_terms weir_cost_lists(uint32_t row, weir_group_shape shape, const weir_link *link,
                                double bytes) {
  if (shape.hosts <= 1 || shape.hosts >= shape.ranks)
    return weir_cost_broadcast(row, shape.ranks, bytes);
  const bool alike = is_even(shape) && shape.order <= WEIR_ORDER_CYCLIC;
  const int each = shape.ranks / shape.hosts;
  const int roots = !alike ? shape.ranks : shape.order == WEIR_ORDER_CYCLIC ? 1 : each;
  weir_cost_terms mean = {0, 0, 0};
  for (int root = 0; root < roots; root++) {
    const weir_cost_terms one =
        weir_cost_machines(WEIR_KIND_BROADCAST, row, shape, link, bytes, root);
    mean.alpha_terms += one.alpha_terms / roots;
    mean.byte_terms += one.byte_terms / roots;
  }
  return mean;
}
