/* Cost rows in seconds: links and processors. */
#include <math.h>

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"

#define TWO_PACKETS 2896.0 /* TCP's payload of two Ethernet frames */

/* What a row is beside its critical path. */
typedef struct work {
  double messages, traffic; /* of all ranks */
  double summed, sums;
  double rounds; /* 0: as many as latencies */
  bool one_way;  /* links carry bytes in one direction at a time */
} work;

/* Chunks that a rank adds up while others are on their way hold nothing up but the last. */
static work allreduce_work(uint32_t row, int n, double bytes) {
  const double ranks = n, others = ranks - 1.0, once = 2.0 * others * bytes;
  const weir_halving place = weir_halving_place(0, n);
  const double core = place.core, extra = ranks - core;
  const int rows = weir_torus_rows(n, n), chunks = weir_double_tree_chunks((size_t)bytes);
  work w = {.messages = 2.0 * others, .traffic = once, .sums = others * bytes};
  w.summed = w.sums / ranks;
  switch (row) {
    case WEIR_ALLREDUCE_RING: w.messages = 2.0 * ranks * others; break;
    case WEIR_ALLREDUCE_TORUS: w.messages = 2.0 * ranks * (rows + n / rows - 2.0); break;
    case WEIR_ALLREDUCE_HALVING:
      w.messages = 2.0 * core * weir_log2_ceil(place.core) + 2.0 * extra;
      w.traffic = 2.0 * (core - 1.0 + extra) * bytes;
      w.summed = ((core - 1.0) / core + (extra > 0 ? 1.0 : 0.0)) * bytes;
      break;
    case WEIR_ALLREDUCE_DOUBLE_TREE:
      w.messages = 4.0 * others * chunks;
      w.summed = bytes;
      w.rounds = chunks + 2.0 * weir_inorder_height(0, n) - 1.0;
      w.one_way = chunks == 1; /* goes up and comes down, over links that are idle before */
      break;
    case WEIR_ALLREDUCE_DOUBLING:
      w.messages = core * weir_log2_ceil(place.core) + 2.0 * extra;
      w.traffic = w.messages * bytes;
      w.summed = (weir_log2_ceil(place.core) + (extra > 0 ? 1.0 : 0.0)) * bytes;
      w.sums = (core * weir_log2_ceil(place.core) + extra) * bytes;
      break;
    case WEIR_ALLREDUCE_DIRECT:
      w.messages = ranks * others;
      w.traffic = w.sums = w.messages * bytes;
      w.summed = others * bytes;
      break;
    case WEIR_ALLREDUCE_STAR:
      w.summed = bytes;
      w.one_way = true;
      break;
    default: /* tree */ w.summed = weir_log2_ceil(n) * bytes; w.one_way = true;
  }
  return w;
}

static work allgather_work(uint32_t row, int n, double bytes) {
  const double ranks = n, traffic = ranks * (ranks - 1.0) * bytes;
  if (row == WEIR_ALLGATHER_RING || row == WEIR_ALLGATHER_DIRECT)
    return (work){.messages = ranks * (ranks - 1.0), .traffic = traffic};
  if (row == WEIR_ALLGATHER_BRUCK)
    return (work){.messages = ranks * weir_log2_ceil(n), .traffic = traffic};
  const weir_halving place = weir_halving_place(0, n);
  const double extra = ranks - place.core;
  return (work){.messages = (double)place.core * weir_log2_ceil(place.core) + 2.0 * extra,
                .traffic = traffic + extra * bytes}; /* these get their own back, too */
}

static work work_of(weir_kind kind, uint32_t row, int n, double bytes) {
  const double others = n - 1.0, all = others * bytes;
  const double chunks = weir_chain_chunks((size_t)bytes);
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return allreduce_work(row, n, bytes);
    case WEIR_KIND_ALLGATHER: return allgather_work(row, n, bytes);
    case WEIR_KIND_BROADCAST:
      if (row != WEIR_BROADCAST_CHAIN)
        return (work){.messages = others, .traffic = all, .one_way = true};
      return (work){
          .messages = others * chunks, .traffic = all, .rounds = chunks + n - 2.0, .one_way = true};
    case WEIR_KIND_REDUCE:
      return (work){.messages = others,
                    .traffic = all,
                    .summed = weir_log2_ceil(n) * bytes,
                    .sums = all,
                    .one_way = true};
    case WEIR_KIND_REDUCE_SCATTER:
      return (work){.messages = n * others, .traffic = all, .summed = all / n, .sums = all};
    default: return (work){.messages = others, .traffic = all, .one_way = true}; /* gather */
  }
}

static weir_cost_terms terms_of(weir_kind kind, uint32_t row, int n, const weir_link *link,
                                double bytes) {
  if (kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_DOUBLE_TREE && link != NULL)
    return weir_cost_double_tree(n, bytes, link->alpha, link->beta, link->burst);
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return weir_cost_allreduce(row, n, bytes);
    case WEIR_KIND_BROADCAST: return weir_cost_broadcast(row, n, bytes);
    case WEIR_KIND_ALLGATHER: return weir_cost_allgather(row, n, bytes);
    case WEIR_KIND_REDUCE_SCATTER: return weir_cost_reduce_scatter(row, n, bytes);
    case WEIR_KIND_REDUCE: return weir_cost_reduce(row, n, bytes);
    case WEIR_KIND_GATHER: return weir_cost_gather(row, n, bytes);
    default: return (weir_cost_terms){INFINITY, INFINITY, 0.0};
  }
}

/* What NCCL's ring or tree takes: hops between machines, or, on one machine, all; devices add up,
 * and messages are none of the processors'. */
static weir_cost told(uint32_t row, weir_group_shape shape, double bytes) {
  weir_cost cost = {.duplex = true};
  *(shape.hosts > 1 ? &cost.outer : &cost.inner) =
      weir_cost_allreduce(row, shape.hosts > 1 ? shape.hosts : shape.ranks, bytes);
  return cost;
}

static bool is_told(weir_kind kind, uint32_t row) {
  return kind == WEIR_KIND_ALLREDUCE &&
         (row == WEIR_ALLREDUCE_NATIVE_RING || row == WEIR_ALLREDUCE_NATIVE_TREE);
}

/* Among all ranks, whatever machines they are on. */
static weir_cost flat(weir_kind kind, uint32_t row, weir_group_shape shape, const weir_link *link,
                      double bytes) {
  const work all = work_of(kind, row, shape.ranks, bytes);
  const bool trees = kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_DOUBLE_TREE;
  const bool shared = shape.hosts > 1 && shape.hosts < shape.ranks;
  weir_cost cost = {.outer = shared ? weir_cost_machines(kind, row, shape, link, bytes, 0)
                                    : terms_of(kind, row, shape.ranks, link, bytes),
                    .duplex = !all.one_way,
                    .burst_off = trees && !shared,
                    .rounds = all.rounds,
                    .messages = all.messages,
                    .traffic = all.traffic,
                    .summed = all.summed,
                    .sums = all.sums};
  if (cost.rounds == 0) cost.rounds = terms_of(kind, row, shape.ranks, link, bytes).alpha_terms;
  if (shape.hosts == 1) {
    cost.inner = cost.outer;
    cost.outer = (weir_cost_terms){0.0, 0.0, 0.0};
  }
  return cost;
}

bool weir_shape_even(weir_group_shape shape) {
  if (shape.hosts < 1 || shape.ranks % shape.hosts != 0) return false;
  return shape.largest == 0 || shape.largest * shape.hosts == shape.ranks;
}

/* Where machines are uneven: everything to the first rank of each, an all-reduce among these, and
 * back.  The largest machine's are the most hops; all together have a message each way for every
 * rank that is no first one. */
static weir_cost leaders(const weir_hier_choice *choice, weir_group_shape shape,
                         const weir_link *link, double bytes) {
  const weir_group_shape inside = {shape.largest, 1, false, 1, 0},
                         across = {shape.hosts, shape.hosts, false, 1, 0};
  const double all = (double)(shape.ranks - shape.hosts) / (shape.largest - 1);
  const weir_cost sum =
      choice->native ? told(WEIR_ALLREDUCE_NATIVE_RING, inside, bytes)
                     : weir_cost_row(WEIR_KIND_REDUCE, WEIR_REDUCE_BINOMIAL, inside, link, bytes);
  weir_cost cost = weir_cost_sum(
      sum, weir_cost_row(WEIR_KIND_BROADCAST, WEIR_BROADCAST_BINOMIAL, inside, link, bytes));
  cost.messages *= all;
  cost.traffic *= all;
  cost.sums *= all;
  return weir_cost_sum(cost,
                       weir_cost_row(WEIR_KIND_ALLREDUCE, choice->between, across, link, bytes));
}

/* Reduce-scatter inside, as many all-reduces at once as a machine has ranks, all-gather inside.
 * NCCL, where it sums inside, is taken to do so around a ring. */
weir_cost weir_cost_hier(const weir_hier_choice *choice, weir_group_shape shape,
                         const weir_link *link, double bytes) {
  if (shape.ranks <= 1 || shape.hosts < 1) return (weir_cost){.messages = 0};
  if (shape.largest > 1 && !weir_shape_even(shape)) return leaders(choice, shape, link, bytes);
  const int n = (shape.ranks + shape.hosts - 1) / shape.hosts;
  const double share = bytes / n;
  const weir_group_shape inside = {n, 1, false, 0, 0},
                         across = {shape.hosts, shape.hosts, false, 0, 0};
  weir_cost cost = {.messages = 0};
  if (n > 1) {
    const weir_cost sum = choice->native ? told(WEIR_ALLREDUCE_NATIVE_RING, inside, bytes)
                                         : weir_cost_row(WEIR_KIND_REDUCE_SCATTER, choice->scatter,
                                                         inside, link, bytes);
    cost =
        weir_cost_sum(sum, weir_cost_row(WEIR_KIND_ALLGATHER, choice->gather, inside, link, share));
    cost.messages *= shape.hosts;
    cost.traffic *= shape.hosts;
    cost.sums *= shape.hosts;
  }
  weir_cost outer = weir_cost_row(WEIR_KIND_ALLREDUCE, choice->between, across, link, share);
  outer.outer.byte_terms *= n; /* which share the machine's link */
  if (n > 1 && shape.hosts > 1 && !is_told(WEIR_KIND_ALLREDUCE, choice->between)) {
    outer.outer =
        weir_cost_columns(WEIR_KIND_ALLREDUCE, choice->between, shape.hosts, n, link, share);
    outer.burst_off = false;
  }
  outer.messages *= n;
  outer.traffic *= n;
  outer.sums *= n;
  return weir_cost_sum(cost, outer);
}

/* Rows lie inside of machines, and columns between them. */
static bool is_aligned(weir_kind kind, uint32_t row, weir_group_shape shape) {
  return kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_TORUS && shape.hosts > 1 &&
         shape.hosts < shape.ranks && weir_shape_even(shape);
}

weir_cost weir_cost_row(weir_kind kind, uint32_t row, weir_group_shape shape, const weir_link *link,
                        double bytes) {
  const weir_cost nothing = {.messages = 0}, unknown = {.outer = {INFINITY, INFINITY}};
  if (!isfinite(terms_of(kind, row, 2, link, bytes).alpha_terms)) return unknown;
  if (shape.ranks <= 1 || shape.hosts < 1) return nothing;
  static const weir_hier_choice rings = {WEIR_REDUCE_SCATTER_RING, WEIR_ALLREDUCE_RING,
                                         WEIR_ALLGATHER_RING, false};
  if (is_told(kind, row)) return told(row, shape, bytes);
  if (is_aligned(kind, row, shape)) return weir_cost_hier(&rings, shape, link, bytes);
  return flat(kind, row, shape, link, bytes);
}

static weir_cost_terms add(weir_cost_terms a, weir_cost_terms b) {
  return (weir_cost_terms){a.alpha_terms + b.alpha_terms, a.byte_terms + b.byte_terms,
                           a.spread_terms + b.spread_terms};
}

weir_cost weir_cost_sum(weir_cost a, weir_cost b) {
  return (weir_cost){.outer = add(a.outer, b.outer),
                     .inner = add(a.inner, b.inner),
                     .duplex = a.duplex || b.duplex,
                     .burst_off = a.burst_off || b.burst_off,
                     .rounds = a.rounds + b.rounds,
                     .messages = a.messages + b.messages,
                     .traffic = a.traffic + b.traffic,
                     .summed = a.summed + b.summed,
                     .sums = a.sums + b.sums};
}

/* Bytes that token buckets let through at once. */
static double at_once(const weir_cost *c, const weir_link *link) {
  if (c->burst_off) return 0.0;
  const double hops = c->outer.alpha_terms;
  const double back = link->beta > 0 ? fmin(link->burst, link->alpha / link->beta) : 0.0;
  if (!c->duplex) return hops * link->burst;
  return hops < 1.0 ? hops * link->burst : link->burst + (hops - 1.0) * back;
}

double weir_cost_predict(const weir_cost *c, const weir_link *link) {
  const double beta = c->duplex ? fmax(link->beta, link->duplex_beta) : link->beta;
  const double bytes = fmax(0.0, c->outer.byte_terms - at_once(c, link));
  const double waiting =
      c->outer.alpha_terms * link->alpha + c->inner.alpha_terms * link->inner_alpha;
  const double apart = (c->outer.spread_terms + c->inner.spread_terms) * link->deviation;
  const double moving = bytes * beta + c->inner.byte_terms * link->inner_beta;
  const double working = c->traffic * link->byte_s;
  const double adding = c->duplex ? c->sums * link->sums_s : c->summed * link->sum_s;
  const bool answered = c->messages > 0 && c->traffic / c->messages > TWO_PACKETS;
  const double others =
      fmax(0.0, c->messages - c->rounds) * (link->message_s + (answered ? link->answer_s : 0.0));
  return waiting + apart + fmax(moving, working + others) + adding;
}
