#include "collectives/cost.h"

#include <math.h>

#include "collectives/collective.h"
#include "collectives/patterns/patterns.h"

/* Rounds of a binomial tree, and of Bruck's all-gather, over n ranks: ceil(log2 n). */
static int rounds(int n) {
  int r = 0;
  while (r < 31 && (INT64_C(1) << r) < n) r++;
  return r;
}

/* --- the paper's rows: Table I, equations 4a and 4b ------------------------------------------- */

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

double weir_cost_paper(const weir_plan *plan, int n, double alpha, double beta, double bytes) {
  const double kept = bytes * plan->cr; /* of the values; their indices take as many again */
  double (*const sum)(int, double, double, double) =
      plan->algorithm == WEIR_ALGORITHM_RING   ? weir_cost_paper_ring
      : plan->algorithm == WEIR_ALGORITHM_TREE ? weir_cost_paper_tree
                                               : NULL;
  if (plan->scheme == WEIR_SCHEME_GATHER)
    return weir_cost_paper_allgather(n, alpha, beta, 2.0 * kept);
  if (sum == NULL || plan->inside != WEIR_ALGORITHM_ANY) return INFINITY; /* never the cheapest */
  if (plan->scheme == WEIR_SCHEME_DENSE) return sum(n, alpha, beta, bytes);
  if (plan->scheme != WEIR_SCHEME_SHARED) return INFINITY;
  return weir_cost_paper_broadcast(n, alpha, beta, kept) + sum(n, alpha, beta, kept);
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

/* Hops of a binomial tree's deepest rank: one fewer than the root has messages where n is no power
 * of two, and all of those are on their way at once. */
static int depth(int n) { return rounds(weir_halving_place(0, n).core); }

/* Once up or down: the root's link has everything as often as it has children. */
static weir_cost_terms binomial(int n, double bytes) {
  return (weir_cost_terms){depth(n), rounds(n) * bytes, 0.0};
}

/* Binomial reduce and binomial broadcast. */
static weir_cost_terms tree(int n, double bytes) {
  return (weir_cost_terms){2.0 * depth(n), 2.0 * rounds(n) * bytes, 0.0};
}

/* The core of 2^k ranks exchanges halves, quarters, ... and back; with ranks left over all bytes go
 * in and out once more. */
static weir_cost_terms halving(int n, double bytes) {
  const int core = weir_halving_place(0, n).core;
  const double fold = core < n ? 2.0 : 0.0;
  return mutual(n, 2.0 * rounds(core) + fold, (2.0 * (core - 1) / core + fold) * bytes);
}

/* In `exchanges` rounds, two of them for ranks left over.  Who waits for one of those is a latency
 * late, and so is whom it tells; but as long as they are in one half of the core alone, what the
 * other half sends them in the last exchange is there by then. */
static weir_cost_terms doubled(int n, double exchanges, double bytes) {
  const int core = weir_halving_place(0, n).core, extra = n - core;
  weir_cost_terms t = mutual(n, exchanges, bytes);
  t.alpha_terms -= extra > 0 && 2 * extra <= core ? 1.0 : 0.0;
  return t;
}

/* Everything in each exchange of the core. */
static weir_cost_terms doubling(int n, double bytes) {
  const int core = weir_halving_place(0, n).core;
  const double hops = rounds(core) + (core < n ? 2.0 : 0.0);
  return doubled(n, hops, hops * bytes);
}

/* Without a link's latency and rate: its most latencies and its most bytes, which may not lie on
 * one path. */
static weir_cost_terms double_tree(int n, double bytes) {
  return (weir_cost_terms){weir_cost_double_tree(n, bytes, 1.0, 0.0, 0.0).alpha_terms,
                           weir_cost_double_tree(n, bytes, 0.0, 1.0, 0.0).byte_terms, 0.0};
}

/* Rings along rows and columns: the bytes of one ring, fewer hops. */
static weir_cost_terms torus(int n, double bytes) {
  const int rows = weir_torus_rows(n, n), columns = n / rows;
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

/* NCCL's two trees carry half of the bytes each, up and down again, in small pieces: every rank
 * sends them about twice, as around the ring, and only hops differ. */
static weir_cost_terms native_tree(int n, double bytes) {
  return (weir_cost_terms){2.0 * rounds(n), 2.0 * bytes, 0.0};
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
    case WEIR_ALLREDUCE_DOUBLING: return doubling(n, bytes);
    case WEIR_ALLREDUCE_DIRECT: return direct(n, bytes);
    case WEIR_ALLREDUCE_NATIVE: return native(n, bytes);
    case WEIR_ALLREDUCE_NATIVE_RING: return ring(n, bytes);
    case WEIR_ALLREDUCE_NATIVE_TREE: return native_tree(n, bytes);
    default: return (weir_cost_terms){INFINITY, INFINITY, 0.0};
  }
}

static const weir_cost_terms nothing = {0.0, 0.0, 0.0};
static const weir_cost_terms unknown = {INFINITY, INFINITY, 0.0};

weir_cost_terms weir_cost_broadcast(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_BROADCAST_COUNT) return unknown;
  if (n <= 1) return nothing;
  if (algorithm == WEIR_BROADCAST_BINOMIAL) return binomial(n, bytes);
  if (algorithm == WEIR_BROADCAST_DIRECT)
    return (weir_cost_terms){1.0, (n - 1.0) * bytes, 0.0}; /* across the root's link */
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
  if (algorithm == WEIR_ALLGATHER_DIRECT) return weir_cost_exchange(n, 1, bytes);
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
  return doubled(n, rounds(core) + 2.0, blocks * bytes);
}

weir_cost_terms weir_cost_reduce_scatter(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_REDUCE_SCATTER_COUNT) return unknown;
  if (n <= 1) return nothing;
  return mutual(n, n - 1.0, (n - 1.0) / n * bytes); /* both of them */
}

weir_cost_terms weir_cost_reduce(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_REDUCE_COUNT) return unknown;
  return binomial(n, bytes);
}

/* Every block but the root's own crosses its link. */
weir_cost_terms weir_cost_gather(uint32_t algorithm, int n, double bytes) {
  if (algorithm >= WEIR_GATHER_COUNT) return unknown;
  if (n <= 1) return nothing;
  return (weir_cost_terms){1.0, (n - 1.0) * bytes, 0.0};
}

weir_cost_terms weir_cost_exchange(int n, int rounds, double bytes) {
  return n <= 1 ? nothing : (weir_cost_terms){rounds, (n - 1.0) * bytes, 0.0};
}

double weir_cost_seconds(const weir_cost_terms *terms, double alpha, double beta) {
  return terms->alpha_terms * alpha + terms->byte_terms * beta;
}

void weir_cost_scale(weir_cost_terms *terms, double bytes) {
  terms->byte_terms *= bytes;
  terms->spread_terms *= sqrt(bytes);
}

double weir_cost_links(const weir_cost_terms *terms, const weir_link *link) {
  return weir_cost_seconds(terms, link->alpha, link->beta) + terms->spread_terms * link->deviation;
}
