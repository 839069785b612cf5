#include "collectives/cost.h"

#include <math.h>

#include "base/ways.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

/* Rounds of a binomial tree, and of Bruck's all-gather, over n ranks: ceil(log2 n). */
static int rounds(int n) {
  int r = 0;
  while (r < 31 && (INT64_C(1) << r) < n) r++;
  return r;
}

/* --- the paper's rows: Table I, equations 4a and 4b ------------------------------------------- */

double weir_cost_paper_star(int n, double alpha, double beta, double bytes) {
  if (n <= 1) return 0.0;
  return 2.0 * alpha + 2.0 * (n - 1) * bytes * beta;
}

double weir_cost_paper_ring(int n, double alpha, double beta, double bytes) {
  if (n <= 1) return 0.0;
  return 2.0 * (n - 1) * alpha + 2.0 * (n - 1) / n * bytes * beta;
}

double weir_cost_paper_tree(int n, double alpha, double beta, double bytes) {
  return 2.0 * rounds(n) * (alpha + bytes * beta);
}

double weir_cost_paper_broadcast(int n, double alpha, double beta, double bytes) {
  return rounds(n) * (alpha + bytes * beta);
}

double weir_cost_paper_allgather(int n, double alpha, double beta, double bytes) {
  if (n <= 1) return 0.0;
  return rounds(n) * alpha + (n - 1.0) * bytes * beta;
}

double weir_cost_paper(uint32_t collective, int n, double alpha, double beta, double bytes,
                       double cr) {
  const double kept = bytes * cr; /* bytes of the kept values; their indices take as many again */
  switch (collective) {
    case WEIR_COLL_DENSE_RING: return weir_cost_paper_ring(n, alpha, beta, bytes);
    case WEIR_COLL_DENSE_TREE: return weir_cost_paper_tree(n, alpha, beta, bytes);
    case WEIR_COLL_AG: return weir_cost_paper_allgather(n, alpha, beta, 2.0 * kept);
    case WEIR_COLL_ART_RING:
      return weir_cost_paper_broadcast(n, alpha, beta, kept) +
             weir_cost_paper_ring(n, alpha, beta, kept);
    case WEIR_COLL_ART_TREE:
      return weir_cost_paper_broadcast(n, alpha, beta, kept) +
             weir_cost_paper_tree(n, alpha, beta, kept);
    default: return INFINITY; /* never the cheapest */
  }
}

/* --- Weir's own algorithms, in true wire bytes ------------------------------------------------ */

/* Rows in which every rank waits for another's message in every round. */
static weir_cost_terms mutual(int n, double rounds, double bytes) {
  return (weir_cost_terms){rounds, bytes, weir_cost_spread(n, rounds, bytes)};
}

/* Reduce-scatter and all-gather around the ring: 2(N-1) messages of a 1/N share each. */
static weir_cost_terms ring(int n, double bytes) {
  return mutual(n, 2.0 * (n - 1), 2.0 * (n - 1) / n * bytes);
}

/* Binomial reduce and binomial broadcast: everything crosses 2L links one after the other. */
static weir_cost_terms tree(int n, double bytes) {
  return (weir_cost_terms){2.0 * rounds(n), 2.0 * rounds(n) * bytes, 0.0};
}

/* The core of 2^k ranks exchanges halves, quarters, ... and back; with ranks left over all bytes go
 * in and out once more. */
static weir_cost_terms halving(int n, double bytes) {
  const int core = weir_halving_place(0, n).core;
  const double fold = core < n ? 2.0 : 0.0;
  return mutual(n, 2.0 * rounds(core) + fold, (2.0 * (core - 1) / core + fold) * bytes);
}

/* Everything in each exchange of the core. */
static weir_cost_terms doubling(int n, double bytes) {
  const int core = weir_halving_place(0, n).core;
  const double hops = rounds(core) + (core < n ? 2.0 : 0.0);
  return mutual(n, hops, hops * bytes);
}

/* Without a link's latency and rate: its most latencies and its most bytes, which may not lie on
 * one path. */
static weir_cost_terms double_tree(int n, double bytes) {
  return (weir_cost_terms){weir_cost_double_tree(n, bytes, 1.0, 0.0, 0.0).alpha_terms,
                           weir_cost_double_tree(n, bytes, 0.0, 1.0, 0.0).byte_terms, 0.0};
}

/* Rings along rows and columns: the bytes of one ring, fewer hops. */
static weir_cost_terms torus(int n, double bytes) {
  const int rows = weir_torus_rows(n), columns = n / rows;
  return mutual(n, 2.0 * (rows + columns - 2), 2.0 * (n - 1) / n * bytes);
}

/* Everything crosses the link of rank 0, in and out. */
static weir_cost_terms star(int n, double bytes) {
  return (weir_cost_terms){2.0, 2.0 * (n - 1) * bytes, 0.0};
}

/* Everything to and from every other rank at once. */
static weir_cost_terms direct(int n, double bytes) {
  return (weir_cost_terms){1.0, (n - 1.0) * bytes, 0.0};
}

/* Open MPI 4.1's without blocking: a binomial tree for fewer than 4 ranks or 64 KiB, else
 * Rabenseifner's halving and doubling. */
static weir_cost_terms native(int n, double bytes) {
  return n < 4 || bytes < 65536.0 ? tree(n, bytes) : halving(n, bytes);
}

weir_cost_terms weir_cost_allreduce(uint32_t algorithm, int n, double bytes) {
  if (n <= 1) return (weir_cost_terms){0.0, 0.0, 0.0};
  switch (algorithm) {
    case WEIR_ALLREDUCE_RING: return ring(n, bytes);
    case WEIR_ALLREDUCE_TREE: return tree(n, bytes);
    case WEIR_ALLREDUCE_HALVING: return halving(n, bytes);
    case WEIR_ALLREDUCE_DOUBLE_TREE: return double_tree(n, bytes);
    case WEIR_ALLREDUCE_TORUS: return torus(n, bytes);
    case WEIR_ALLREDUCE_STAR: return star(n, bytes);
    /* Every rank a machine of its own. */
    case WEIR_ALLREDUCE_HIER_RING: return ring(n, bytes);
    case WEIR_ALLREDUCE_HIER_TREE: return tree(n, bytes);
    case WEIR_ALLREDUCE_HIER_HALVING: return halving(n, bytes);
    case WEIR_ALLREDUCE_HIER_DOUBLE_TREE: return double_tree(n, bytes);
    case WEIR_ALLREDUCE_DOUBLING: return doubling(n, bytes);
    case WEIR_ALLREDUCE_DIRECT: return direct(n, bytes);
    case WEIR_ALLREDUCE_NATIVE: return native(n, bytes);
    default: return (weir_cost_terms){INFINITY, INFINITY, 0.0};
  }
}

static const weir_cost_terms nothing = {0.0, 0.0, 0.0};
static const weir_cost_terms unknown = {INFINITY, INFINITY, 0.0};

weir_cost_terms weir_cost_broadcast(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_BROADCAST_COUNT) return unknown;
  if (n <= 1) return nothing;
  if (algorithm == WEIR_BROADCAST_BINOMIAL)
    return (weir_cost_terms){rounds(n), rounds(n) * bytes, 0.0};
  /* Chunks follow one another without waiting: only a chunk's way down the chain
   * costs latencies. */
  const double chunks = weir_chain_chunks((size_t)bytes);
  return (weir_cost_terms){n - 1.0, (chunks + n - 2.0) * bytes / chunks, 0.0};
}

weir_cost_terms weir_cost_allgather(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_ALLGATHER_COUNT) return unknown;
  if (n <= 1) return nothing;
  if (algorithm == WEIR_ALLGATHER_BRUCK) return mutual(n, rounds(n), (n - 1.0) * bytes);
  if (algorithm == WEIR_ALLGATHER_RING) return mutual(n, n - 1.0, (n - 1.0) * bytes);
  const int core = weir_halving_place(0, n).core, extra = n - core;
  if (extra == 0) return mutual(n, rounds(n), (n - 1.0) * bytes);
  /* A rank left over gives one block before and gets all n after.  In each exchange the larger
   * message counts: the first places of the core stand for two blocks each. */
  double blocks = 1.0 + n;
  for (int distance = 1; distance < core; distance *= 2) {
    int first, most;
    weir_halving_ranks(0, distance, n, &first, &most);
    blocks += most;
  }
  return mutual(n, rounds(core) + 2.0, blocks * bytes);
}

weir_cost_terms weir_cost_reduce_scatter(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_REDUCE_SCATTER_COUNT) return unknown;
  if (n <= 1) return nothing;
  return mutual(n, n - 1.0, (n - 1.0) / n * bytes); /* both of them */
}

weir_cost_terms weir_cost_reduce(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_REDUCE_COUNT) return unknown;
  return (weir_cost_terms){rounds(n), rounds(n) * bytes, 0.0};
}

/* Every block but the root's own crosses its link, whatever the way. */
weir_cost_terms weir_cost_gather(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_GATHER_COUNT) return unknown;
  if (n <= 1) return nothing;
  const double hops = algorithm == WEIR_GATHER_DIRECT ? 1.0 : rounds(n);
  return (weir_cost_terms){hops, (n - 1.0) * bytes, 0.0};
}

weir_cost_terms weir_cost_alltoall(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_ALLTOALL_COUNT) return unknown;
  if (n <= 1) return nothing;
  const double hops = algorithm == WEIR_ALLTOALL_DIRECT ? 1.0 : n - 1.0;
  return (weir_cost_terms){hops, (n - 1.0) * bytes, 0.0};
}

/* ---
 * plans ------------------------------------------------------------------------------------- */

/* Where the ranks of a machine share its link, rows of two levels tell what crosses it.  A
 * pipelined row's critical path depends on the link: this is a usual one. */
static weir_cost_terms between(weir_kind kind, uint32_t row, weir_group_shape shape, double bytes) {
  static const weir_link usual = {
      .alpha = 1e-3, .beta = 1e-8, .inner_alpha = 1e-3, .inner_beta = 1e-8};
  const bool hier = kind == WEIR_KIND_ALLREDUCE && row >= WEIR_ALLREDUCE_HIER_RING &&
                    row <= WEIR_ALLREDUCE_HIER_DOUBLE_TREE;
  if (shape.hosts >= shape.ranks || (shape.hosts == 1 && !hier))
    return kind == WEIR_KIND_ALLREDUCE   ? weir_cost_allreduce(row, shape.ranks, bytes)
           : kind == WEIR_KIND_ALLGATHER ? weir_cost_allgather(row, shape.ranks, bytes)
                                         : weir_cost_broadcast(row, shape.ranks, bytes);
  const weir_cost cost = weir_cost_row(kind, row, shape, &usual, bytes);
  return shape.hosts == 1 ? cost.inner : cost.outer;
}

static weir_cost_terms hitopk(weir_group_shape shape, size_t elements, double cr,
                              weir_wire_format wire) {
  static const weir_link usual = {.alpha = 1e-3, .beta = 1e-8};
  if (shape.hosts == 1) shape.hosts = shape.ranks; /* it is not run there */
  return weir_cost_hitopk(shape, &usual, elements, cr, wire).outer;
}

static weir_cost_terms compressed(const weir_plan *plan, weir_group_shape shape, size_t elements,
                                  size_t kept) {
  const weir_compressed_row *row = weir_compressed_find(weir_ways[plan->collective].algorithm);
  const weir_coder coder = {.codec = weir_codec_find(plan->codec), .cr = plan->cr};
  if (row == NULL || coder.codec == NULL || coder.codec->bound == NULL) return unknown;
  return weir_cost_compressed_between(row->id, shape, &coder, elements, (double)kept);
}

/* The same bytes in so many times as many messages. */
static weir_cost_terms divided(weir_cost_terms t, double parts) {
  return (weir_cost_terms){parts * t.alpha_terms, t.byte_terms, sqrt(parts) * t.spread_terms};
}

/* Values by an all-reduce; where one rank's indices are taken, their broadcast before. */
static weir_cost_terms summed(const weir_plan *plan, weir_group_shape shape, size_t elements,
                              size_t kept) {
  const weir_way_row *way = &weir_ways[plan->collective];
  const weir_wire_format format = (weir_wire_format)plan->wire;
  const bool low_rank = plan->codec == WEIR_CODEC_POWERSGD; /* two sums of `kept` floats in all */
  const double dense_bytes = low_rank
                                 ? 4.0 * (double)kept
                                 : (plan->codec == WEIR_CODEC_BF16 ? 2.0 : 4.0) * (double)elements;
  const double value_bytes = (format >= WEIR_WIRE_AUTO_BF16 ? 2.0 : 4.0) * (double)kept;
  const bool art = way->way == WEIR_WAY_ART;
  const weir_allreduce *row = weir_allreduce_find(way->algorithm);
  if (row == NULL) return unknown;
  weir_cost_terms t = between(WEIR_KIND_ALLREDUCE, row->id, shape, art ? value_bytes : dense_bytes);
  if (low_rank) t = divided(t, 2);
  if (!art || plan->codec == WEIR_CODEC_RANDOMK) return t; /* no indices travel */
  const weir_cost_terms indices = between(WEIR_KIND_BROADCAST, WEIR_BROADCAST_BINOMIAL, shape,
                                          weir_wire_expected(elements, kept, format, false));
  t.alpha_terms += indices.alpha_terms;
  t.byte_terms += indices.byte_terms;
  /* The variances are gathered before the root is known: one more round of small messages, whose
   * few bytes vanish beside their latency. */
  if (plan->codec == WEIR_CODEC_VAR) t.alpha_terms += rounds(shape.ranks);
  return t;
}

double weir_cost_gathered(const weir_plan *plan, size_t elements, size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (plan->collective >= WEIR_COLL_COUNT || weir_ways[plan->collective].way != WEIR_WAY_AG)
    return 0.0;
  return codec->encode != NULL
             ? (double)kept
             : weir_wire_expected(elements, kept, (weir_wire_format)plan->wire, true);
}

weir_cost_terms weir_cost_plan_between(const weir_plan *plan, weir_group_shape shape,
                                       size_t elements, size_t kept) {
  if (shape.ranks <= 1) return nothing;
  if (plan->collective >= WEIR_COLL_COUNT) return unknown; /* never the cheapest */
  switch (weir_ways[plan->collective].way) {
    case WEIR_WAY_AG:
      return between(WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, shape,
                     weir_cost_gathered(plan, elements, kept));
    case WEIR_WAY_COMPRESSED: return compressed(plan, shape, elements, kept);
    case WEIR_WAY_HITOPK: return hitopk(shape, elements, plan->cr, (weir_wire_format)plan->wire);
    default: return summed(plan, shape, elements, kept);
  }
}

weir_cost_terms weir_cost_plan(const weir_plan *plan, int n, size_t elements, size_t kept) {
  return weir_cost_plan_between(plan, (weir_group_shape){n, n, false}, elements, kept);
}

double weir_cost_seconds(const weir_cost_terms *terms, double alpha, double beta) {
  return terms->alpha_terms * alpha + terms->byte_terms * beta;
}

double weir_cost_links(const weir_cost_terms *terms, const weir_link *link) {
  return weir_cost_seconds(terms, link->alpha, link->beta) + terms->spread_terms * link->deviation;
}
