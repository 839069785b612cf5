/* Cost rows in seconds: links and processors. */
#include <math.h>

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"

double weir_cost_paper_hitopk(int m, int n, double d, double rho, double alpha_inner,
                              double beta_inner, double alpha_outer, double beta_outer) {
  const double scatter = (n - 1) * alpha_inner + 4.0 * (n - 1) * d / n * beta_inner; /* (7) */
  const double across =
      weir_log2_ceil(m) * alpha_outer + 4.0 * (m - 1) * rho * d / n * beta_outer; /* (9) */
  const double gather =
      weir_log2_ceil(n) * alpha_inner + 4.0 * (n - 1) * rho * d * m / n * beta_inner; /* (10) */
  return scatter + across + gather;
}

typedef struct totals {
  double messages, traffic;
} totals;

static totals allreduce_totals(uint32_t row, int n, double bytes) {
  const double ranks = n, once = 2.0 * (ranks - 1.0) * bytes;
  const weir_halving place = weir_halving_place(0, n);
  const double core = place.core, extra = ranks - core;
  const int rows = weir_torus_rows(n);
  switch (row) {
    case WEIR_ALLREDUCE_RING: return (totals){2.0 * ranks * (ranks - 1.0), once};
    case WEIR_ALLREDUCE_HALVING:
      return (totals){2.0 * core * weir_log2_ceil(place.core) + 2.0 * extra,
                      2.0 * (core - 1.0 + extra) * bytes};
    case WEIR_ALLREDUCE_DOUBLE_TREE:
      return (totals){4.0 * (ranks - 1.0) * weir_double_tree_chunks((size_t)bytes), once};
    case WEIR_ALLREDUCE_DOUBLING: {
      const double messages = core * weir_log2_ceil(place.core) + 2.0 * extra;
      return (totals){messages, messages * bytes};
    }
    case WEIR_ALLREDUCE_TORUS: return (totals){2.0 * ranks * (rows + n / rows - 2.0), once};
    default: return (totals){2.0 * (ranks - 1.0), once}; /* tree, star */
  }
}

static totals allgather_totals(uint32_t row, int n, double bytes) {
  const double ranks = n, traffic = ranks * (ranks - 1.0) * bytes;
  if (row == WEIR_ALLGATHER_RING) return (totals){ranks * (ranks - 1.0), traffic};
  if (row == WEIR_ALLGATHER_BRUCK) return (totals){ranks * weir_log2_ceil(n), traffic};
  const weir_halving place = weir_halving_place(0, n);
  const double extra = ranks - place.core;
  return (totals){(double)place.core * weir_log2_ceil(place.core) + 2.0 * extra,
                  traffic + 2.0 * extra * bytes};
}

/* Every block of a binomial gather travels as many hops as its rank's number has one bits. */
static double binomial_hops(int n) {
  double hops = 0;
  for (int r = 1; r < n; r++)
    for (int bits = r; bits; bits &= bits - 1) hops++;
  return hops;
}

static totals totals_of(weir_kind kind, uint32_t row, int n, double bytes) {
  const double others = n - 1.0;
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return allreduce_totals(row, n, bytes);
    case WEIR_KIND_ALLGATHER: return allgather_totals(row, n, bytes);
    case WEIR_KIND_BROADCAST:
      return (totals){row == WEIR_BROADCAST_CHAIN ? others * weir_chain_chunks((size_t)bytes) : others,
                      others * bytes};
    case WEIR_KIND_REDUCE: return (totals){others, others * bytes};
    case WEIR_KIND_REDUCE_SCATTER: return (totals){n * others, others * bytes};
    case WEIR_KIND_GATHER:
      return (totals){others, (row == WEIR_GATHER_DIRECT ? others : binomial_hops(n)) * bytes};
    default: return (totals){n * others, n * others * bytes}; /* all-to-all */
  }
}

static weir_cost_terms terms_of(weir_kind kind, uint32_t row, int n, const weir_link *link,
                                double bytes) {
  if (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_DOUBLE_TREE)
    return weir_cost_double_tree(n, bytes, link->alpha, link->beta);
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return weir_cost_allreduce(row, n, bytes);
    case WEIR_KIND_BROADCAST: return weir_cost_broadcast(row, n, bytes);
    case WEIR_KIND_ALLGATHER: return weir_cost_allgather(row, n, bytes);
    case WEIR_KIND_REDUCE_SCATTER: return weir_cost_reduce_scatter(row, n, bytes);
    case WEIR_KIND_REDUCE: return weir_cost_reduce(row, n, bytes);
    case WEIR_KIND_GATHER: return weir_cost_gather(row, n, bytes);
    case WEIR_KIND_ALLTOALL: return weir_cost_alltoall(row, n, bytes);
    default: return (weir_cost_terms){INFINITY, INFINITY};
  }
}

/* The ranks of a machine share its link.  Around a ring of neighbours one of them uses it at a time;
 * in any other flat pattern they all may at once. */
static weir_cost flat(weir_kind kind, uint32_t row, weir_group_shape shape, const weir_link *link,
                      double bytes) {
  const totals all = totals_of(kind, row, shape.ranks, bytes);
  weir_cost cost = {.outer = terms_of(kind, row, shape.ranks, link, bytes),
                    .messages = all.messages,
                    .traffic = all.traffic};
  const bool ring = (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_RING) ||
                    (kind == WEIR_KIND_ALLGATHER && row == WEIR_ALLGATHER_RING) ||
                    (kind == WEIR_KIND_REDUCE_SCATTER && row == WEIR_REDUCE_SCATTER_RING) ||
                    (kind == WEIR_KIND_BROADCAST && row == WEIR_BROADCAST_CHAIN);
  if (shape.hosts == 1) {
    cost.inner = cost.outer;
    cost.outer = (weir_cost_terms){0.0, 0.0};
  } else if (!ring) {
    cost.outer.byte_terms *= (double)shape.ranks / shape.hosts;
  }
  return cost;
}

/* Reduce-scatter inside, as many all-reduces at once as a machine has ranks, all-gather inside. */
static weir_cost hierarchical(uint32_t row, weir_group_shape shape, const weir_link *link,
                              double bytes) {
  const uint32_t between = row == WEIR_ALLREDUCE_HIER_RING      ? WEIR_ALLREDUCE_RING
                           : row == WEIR_ALLREDUCE_HIER_TREE    ? WEIR_ALLREDUCE_TREE
                           : row == WEIR_ALLREDUCE_HIER_HALVING ? WEIR_ALLREDUCE_HALVING
                                                                : WEIR_ALLREDUCE_DOUBLE_TREE;
  const bool halving = row == WEIR_ALLREDUCE_HIER_HALVING;
  const uint32_t gather = halving ? WEIR_ALLGATHER_DOUBLING : WEIR_ALLGATHER_RING;
  const int n = (shape.ranks + shape.hosts - 1) / shape.hosts;
  const double share = bytes / n;
  const weir_group_shape inside = {n, 1}, across = {shape.hosts, shape.hosts};
  weir_cost cost = {.messages = 0};
  if (n > 1) {
    cost = weir_cost_sum(
        weir_cost_row(WEIR_KIND_REDUCE_SCATTER, WEIR_REDUCE_SCATTER_RING, inside, link, bytes),
        weir_cost_row(WEIR_KIND_ALLGATHER, gather, inside, link, share));
    cost.messages *= shape.hosts;
    cost.traffic *= shape.hosts;
  }
  weir_cost outer = weir_cost_row(WEIR_KIND_ALLREDUCE, between, across, link, share);
  outer.outer.byte_terms *= n;
  outer.messages *= n;
  outer.traffic *= n;
  return weir_cost_sum(cost, outer);
}

weir_cost weir_cost_row(weir_kind kind, uint32_t row, weir_group_shape shape, const weir_link *link,
                        double bytes) {
  const weir_cost nothing = {.messages = 0}, unknown = {.outer = {INFINITY, INFINITY}};
  if (!isfinite(terms_of(kind, row, 2, link, bytes).alpha_terms)) return unknown;
  if (shape.ranks <= 1 || shape.hosts < 1) return nothing;
  if (kind == WEIR_KIND_ALLREDUCE && row >= WEIR_ALLREDUCE_HIER_RING &&
      row <= WEIR_ALLREDUCE_HIER_DOUBLE_TREE)
    return hierarchical(row, shape, link, bytes);
  return flat(kind, row, shape, link, bytes);
}

static weir_cost_terms add(weir_cost_terms a, weir_cost_terms b) {
  return (weir_cost_terms){a.alpha_terms + b.alpha_terms, a.byte_terms + b.byte_terms};
}

weir_cost weir_cost_sum(weir_cost a, weir_cost b) {
  return (weir_cost){add(a.outer, b.outer), add(a.inner, b.inner), a.messages + b.messages,
                     a.traffic + b.traffic};
}

double weir_cost_predict(const weir_cost *c, const weir_link *link) {
  const double hops = c->outer.alpha_terms + c->inner.alpha_terms;
  const double outer_bytes = fmax(0.0, c->outer.byte_terms - c->outer.alpha_terms * link->burst);
  const double waiting = c->outer.alpha_terms * link->alpha + c->inner.alpha_terms * link->inner_alpha;
  const double moving = outer_bytes * link->beta + c->inner.byte_terms * link->inner_beta;
  const double working = c->traffic * link->byte_s;
  return waiting + fmax(moving, working) +
         fmax(0.0, c->messages - hops) * link->message_s;
}
