/* Schedules of rows, round by round, for the walk that finds their critical paths (cost_walk.h). */
#include "collectives/collective.h"
#include "collectives/cost_walk.h"
#include "collectives/patterns/patterns.h"

/* --- machines --------------------------------------------------------------------------------- */

static int first_members(weir_group_shape s) {
  const int even = (s.ranks + s.hosts - 1) / s.hosts;
  return s.largest > even ? s.largest : even;
}

static int told_host(weir_group_shape s, int rank) {
  return rank < WEIR_ORDER_RANKS ? (int)(s.order >> (4 * rank) & 15) % s.hosts : 0;
}

int weir_shape_members(weir_group_shape s, int host) {
  const bool blocks = s.order == 0;
  int members = 0;
  for (int r = 0; r < s.ranks && s.order > WEIR_ORDER_CYCLIC; r++)
    members += told_host(s, r) == host;
  if (s.order > WEIR_ORDER_CYCLIC) return members;
  const int first = blocks ? first_members(s) : 0, hosts = blocks ? s.hosts - 1 : s.hosts;
  if (blocks && host == 0) return first;
  const int at = blocks ? host - 1 : host, left = s.ranks - first;
  return left / hosts + (at < left % hosts ? 1 : 0);
}

int weir_shape_host(weir_group_shape s, int rank) {
  if (s.order == WEIR_ORDER_CYCLIC) return rank % s.hosts;
  if (s.order > WEIR_ORDER_CYCLIC) return told_host(s, rank);
  int host = 0;
  for (int end = first_members(s); rank >= end; end += weir_shape_members(s, host)) host++;
  return host;
}

static bool lies_so(weir_group_shape s, const int *host) {
  for (int r = 0; r < s.ranks; r++)
    if (weir_shape_host(s, r) != host[r]) return false;
  return true;
}

weir_group_shape weir_shape_of(const int *host, int ranks, int hosts) {
  weir_group_shape s = {
      .ranks = ranks, .hosts = hosts, .largest = weir_hosts_largest(host, ranks, hosts)};
  if (hosts == 1 || hosts == ranks || lies_so(s, host)) return s;
  s.order = WEIR_ORDER_CYCLIC;
  if (lies_so(s, host)) return s;
  s.order = 0;
  for (int r = 0; r < ranks && ranks <= WEIR_ORDER_RANKS; r++)
    s.order |= (uint64_t)host[r] << (4 * r);
  return s;
}

/* --- rows ------------------------------------------------------------------------------------- */

weir_rounds weir_rounds_of(weir_kind kind, uint32_t row, weir_group_shape shape, double bytes) {
  const bool trees = kind == WEIR_KIND_ALLREDUCE && row == WEIR_ALLREDUCE_DOUBLE_TREE;
  const bool chain = kind == WEIR_KIND_BROADCAST && row == WEIR_BROADCAST_CHAIN;
  return (weir_rounds){.shape = shape,
                       .kind = kind,
                       .row = row,
                       .columns = 1,
                       .chunks = trees   ? weir_double_tree_chunks((size_t)bytes)
                                 : chain ? weir_chain_chunks((size_t)bytes)
                                         : 1};
}

static int doublings(int n) { return weir_log2_ceil(weir_halving_place(0, n).core); }

static int torus_hops(int n) {
  const int rows = weir_torus_rows(n, n);
  return 2 * (rows + n / rows - 2);
}

static int allreduce_rounds(const weir_rounds *r) {
  const int n = r->shape.ranks;
  switch (r->row) {
    case WEIR_ALLREDUCE_RING: return 2 * (n - 1);
    case WEIR_ALLREDUCE_TREE: return 2 * weir_log2_ceil(n);
    case WEIR_ALLREDUCE_HALVING: return 2 * doublings(n) + 2;
    case WEIR_ALLREDUCE_DOUBLING: return doublings(n) + 2;
    case WEIR_ALLREDUCE_TORUS: return torus_hops(n);
    case WEIR_ALLREDUCE_DOUBLE_TREE: return r->chunks + 2 * weir_inorder_height(0, n) - 1;
    case WEIR_ALLREDUCE_STAR: return 2;
    default: return 1;
  }
}

int weir_rounds_count(const weir_rounds *r) {
  const int n = r->shape.ranks, levels = weir_log2_ceil(n);
  switch (r->kind) {
    case WEIR_KIND_ALLREDUCE: return allreduce_rounds(r);
    case WEIR_KIND_BROADCAST:
      return r->row == WEIR_BROADCAST_BINOMIAL ? levels
             : r->row == WEIR_BROADCAST_CHAIN  ? r->chunks + n - 2
                                               : 1;
    case WEIR_KIND_ALLGATHER:
      return r->row == WEIR_ALLGATHER_BRUCK      ? levels
             : r->row == WEIR_ALLGATHER_RING     ? n - 1
             : r->row == WEIR_ALLGATHER_DOUBLING ? doublings(n) + 2
                                                 : 1;
    case WEIR_KIND_REDUCE_SCATTER: return n - 1;
    case WEIR_KIND_REDUCE: return levels;
    case WEIR_KIND_GATHER: return 1;
    default: return r->chunks;
  }
}

int weir_rounds_most(const weir_rounds *r) {
  enum { TREES = 6 }; /* a parent and two children in each of two */
  return r->shape.ranks > TREES ? r->shape.ranks : TREES;
}

static int one(weir_hop out[], int to, double share) {
  out[0] = (weir_hop){to, share};
  return 1;
}

static int around(const weir_rounds *r, int rank, double share, weir_hop out[]) {
  return one(out, (rank + 1) % r->shape.ranks, share);
}

static int to_all(const weir_rounds *r, int rank, double share, weir_hop out[]) {
  const int n = r->shape.ranks;
  for (int i = 1; i < n; i++) out[i - 1] = (weir_hop){weir_rotation_to(rank, n, i), share};
  return n - 1;
}

static int from_root(const weir_rounds *r, int rank, weir_hop out[]) {
  return rank == r->root ? to_all(r, rank, 1.0, out) : 0;
}

static int to_root(const weir_rounds *r, int rank, weir_hop out[]) {
  return rank == r->root ? 0 : one(out, r->root, 1.0);
}

static int up(const weir_rounds *r, int rank, int k, weir_hop out[]) {
  const int n = r->shape.ranks, v = (rank + n - r->root) % n;
  if (v == 0 || weir_binomial_level(v, n) != k) return 0;
  return one(out, (weir_binomial_parent(v, n) + r->root) % n, 1.0);
}

static int down(const weir_rounds *r, int rank, int k, weir_hop out[]) {
  const int n = r->shape.ranks, v = (rank + n - r->root) % n;
  const int child = k < weir_binomial_level(v, n) ? weir_binomial_child(v, n, k) : -1;
  return child < 0 ? 0 : one(out, (child + r->root) % n, 1.0);
}

static int tree(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const int levels = weir_log2_ceil(r->shape.ranks);
  return round < levels ? up(r, rank, round, out) : down(r, rank, 2 * levels - 1 - round, out);
}

/* The first round is of ranks left over, who hand in `in`, and the last is for them, of `back`. */
typedef struct fold {
  double in, back;
} fold;

/* Places that exchange at a distance; 0: this rank sends to nobody but who is left over. */
static int core_hop(const weir_rounds *r, int rank, int round, fold f, int *distance,
                    weir_hop out[]) {
  const int n = r->shape.ranks, last = weir_rounds_count(r) - 1;
  const weir_halving place = weir_halving_place(rank, n);
  if (round == 0) return place.v < 0 ? one(out, place.fold, f.in) : 0;
  if (place.v < 0) return 0;
  if (round == last) return place.fold >= 0 ? one(out, place.fold, f.back) : 0;
  const int levels = doublings(n), back = last - 1 - levels; /* halving comes first, if at all */
  *distance = round <= back ? place.core >> round : 1 << (round - back - 1);
  return one(out, weir_halving_rank(place.v ^ *distance, n), 0.0);
}

static int halving(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  int distance = 0;
  const int count = core_hop(r, rank, round, (fold){1.0, 1.0}, &distance, out);
  if (distance > 0) out[0].share = (double)distance / weir_halving_place(0, r->shape.ranks).core;
  return count;
}

static int doubling(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  int distance = 0;
  const int count = core_hop(r, rank, round, (fold){1.0, 1.0}, &distance, out);
  if (distance > 0) out[0].share = 1.0;
  return count;
}

static int gather_doubling(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const int n = r->shape.ranks;
  int distance = 0, first, blocks;
  const int count = core_hop(r, rank, round, (fold){1.0, n}, &distance, out);
  if (distance == 0) return count;
  weir_halving_ranks(weir_halving_place(rank, n).v & ~(distance - 1), distance, n, &first, &blocks);
  out[0].share = blocks;
  return count;
}

/* Along the rows, along the columns and back, and along the rows again. */
static int torus(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const int n = r->shape.ranks, rows = weir_torus_rows(n, n), columns = n / rows;
  const int row = rank / columns, column = rank % columns;
  const bool along = round < columns - 1 || round >= columns - 1 + 2 * (rows - 1);
  return along ? one(out, row * columns + (column + 1) % columns, 1.0 / columns)
               : one(out, (row + 1) % rows * columns + column, 1.0 / n);
}

bool weir_rounds_placed(const weir_rounds *r) {
  return r->kind == WEIR_KIND_ALLREDUCE && r->row == WEIR_ALLREDUCE_DOUBLE_TREE;
}

void weir_rounds_find(const weir_rounds *r, weir_rounds_place *place) {
  const int n = r->shape.ranks;
  for (int tree = 0; tree < 2; tree++)
    for (int rank = 0; rank < n; rank++, place++) {
      const int v = weir_double_tree_place(tree, rank, n), parent = weir_inorder_parent(v, n);
      place->parent = parent < 0 ? -1 : weir_double_tree_rank(tree, parent, n);
      place->height = weir_inorder_height(v, n);
      place->depth = weir_inorder_depth(v, n);
      for (int side = 0; side < 2; side++) {
        const int child = weir_inorder_child(v, n, side);
        place->child[side] = child < 0 ? -1 : weir_double_tree_rank(tree, child, n);
        place->top[side] = child < 0 ? -1 : weir_inorder_height(child, n);
      }
    }
}

static bool is_chunk(const weir_rounds *r, int c) { return c >= 0 && c < r->chunks; }

/* Up, then down to the highest subtrees first. */
static int double_tree(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const int n = r->shape.ranks, top = r->place[0].height; /* rank 0 is the first tree's root */
  const double share = 0.5 / r->chunks;
  int count = 0;
  for (int tree = 0; tree < 2; tree++) {
    const weir_rounds_place *p = &r->place[tree * n + rank];
    if (p->parent >= 0 && is_chunk(r, round - p->height))
      out[count++] = (weir_hop){p->parent, share};
  }
  for (int height = top - 1; height >= 0; height--)
    for (int tree = 0; tree < 2; tree++) {
      const weir_rounds_place *p = &r->place[tree * n + rank];
      for (int side = 0; side < 2 && is_chunk(r, round - top - p->depth); side++)
        if (p->top[side] == height) out[count++] = (weir_hop){p->child[side], share};
    }
  return count;
}

static int chain(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const int n = r->shape.ranks, place = (rank + n - r->root) % n;
  if (place == n - 1 || !is_chunk(r, round - place)) return 0;
  return around(r, rank, 1.0 / r->chunks, out);
}

static int bruck(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const weir_bruck_round b = weir_bruck(rank, r->shape.ranks, round);
  return one(out, b.to, b.count);
}

static int allreduce_sends(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  switch (r->row) {
    case WEIR_ALLREDUCE_RING: return around(r, rank, 1.0 / r->shape.ranks, out);
    case WEIR_ALLREDUCE_TREE: return tree(r, rank, round, out);
    case WEIR_ALLREDUCE_HALVING: return halving(r, rank, round, out);
    case WEIR_ALLREDUCE_DOUBLING: return doubling(r, rank, round, out);
    case WEIR_ALLREDUCE_TORUS: return torus(r, rank, round, out);
    case WEIR_ALLREDUCE_STAR: return round == 0 ? to_root(r, rank, out) : from_root(r, rank, out);
    case WEIR_ALLREDUCE_DOUBLE_TREE: return double_tree(r, rank, round, out);
    default: return to_all(r, rank, 1.0, out);
  }
}

static int broadcast_sends(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  if (r->row == WEIR_BROADCAST_CHAIN) return chain(r, rank, round, out);
  if (r->row == WEIR_BROADCAST_DIRECT) return from_root(r, rank, out);
  return down(r, rank, weir_log2_ceil(r->shape.ranks) - 1 - round, out);
}

static int gather_sends(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  switch (r->row) {
    case WEIR_ALLGATHER_BRUCK: return bruck(r, rank, round, out);
    case WEIR_ALLGATHER_RING: return around(r, rank, 1.0, out);
    case WEIR_ALLGATHER_DOUBLING: return gather_doubling(r, rank, round, out);
    default: return to_all(r, rank, 1.0, out);
  }
}

int weir_rounds_sends(const weir_rounds *r, int rank, int round, weir_hop out[]) {
  const int n = r->shape.ranks;
  switch (r->kind) {
    case WEIR_KIND_ALLREDUCE: return allreduce_sends(r, rank, round, out);
    case WEIR_KIND_BROADCAST: return broadcast_sends(r, rank, round, out);
    case WEIR_KIND_ALLGATHER: return gather_sends(r, rank, round, out);
    case WEIR_KIND_REDUCE_SCATTER:
      return r->row == WEIR_REDUCE_SCATTER_RING
                 ? around(r, rank, 1.0 / n, out)
                 : one(out, weir_rotation_to(rank, n, round + 1), 1.0 / n);
    case WEIR_KIND_REDUCE: return up(r, rank, round, out);
    case WEIR_KIND_GATHER: return to_root(r, rank, out);
    default: return to_all(r, rank, r->share[round], out);
  }
}
