/* All-reduce over two binary trees, each with one half of the elements in chunks (P. Sanders, J.
 * Speck, J. L. Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009):
 * chunks + 2H - 1 rounds, in each of which a rank sends and receives at most four chunks.
 *
 * One transfer a round holds whatever is due in it, so that chunks go up and come down both trees
 * at once.  A place adds a chunk of its children in the order of rounds, the left one first within
 * a round: fixed.  Headers travel with the first chunks of tree 0. */
#include "collectives/algorithms/values.h"

enum { TREES = 2, SIDES = 2 };

/* This rank's place in one tree; peers as ranks, -1 where there is none. */
typedef struct place {
  int v;
  int height;
  int depth;
  int parent;
  int child[SIDES];
  int child_height[SIDES];
  int child_first[SIDES]; /* headers of its subtree; tree 0 only, where place = rank */
  int child_count[SIDES];
  int own_first;
  int own_count;
  weir_chunk half;
} place;

typedef struct trees {
  weir_comm *comm;
  weir_values values;
  weir_headers *headers;
  size_t header;
  int size;
  int chunks;
  int top; /* height of the root */
  place at[TREES];
  unsigned char *in; /* per tree and child, a partial sum; fp32 only */
  size_t slot;
  size_t sends;
  size_t recvs;
} trees;

static place locate(int tree, int rank, int size, size_t n) {
  place p = {.v = weir_double_tree_place(tree, rank, size)};
  const int above = weir_inorder_parent(p.v, size);
  p.height = weir_inorder_height(p.v, size);
  p.depth = weir_inorder_depth(p.v, size);
  p.parent = above < 0 ? -1 : weir_double_tree_rank(tree, above, size);
  p.half = weir_ring_chunk(n, TREES, tree);
  weir_inorder_subtree(p.v, size, &p.own_first, &p.own_count);
  for (int side = 0; side < SIDES; side++) {
    const int below = weir_inorder_child(p.v, size, side);
    p.child[side] = below < 0 ? -1 : weir_double_tree_rank(tree, below, size);
    if (below < 0) continue;
    p.child_height[side] = weir_inorder_height(below, size);
    weir_inorder_subtree(below, size, &p.child_first[side], &p.child_count[side]);
  }
  return p;
}

static bool is_chunk(const trees *t, int c) { return c >= 0 && c < t->chunks; }

static weir_chunk chunk_of(const trees *t, int tree, int c) {
  const weir_chunk half = t->at[tree].half;
  const weir_chunk part = weir_ring_chunk(half.count, t->chunks, c);
  return (weir_chunk){half.begin + part.begin, part.count};
}

/* Where a child's partial sum of a chunk comes in.  What bf16 loses of the chunk is not known
 * before both have been added, and its place is as long as two messages. */
static void *room_of(const trees *t, int tree, int side, int c) {
  const weir_chunk chunk = chunk_of(t, tree, c);
  unsigned char *const room =
      weir_values_room(&t->values, chunk, t->in + (size_t)(tree * SIDES) * t->slot);
  return room + (t->values.bf16 ? weir_values_bytes(&t->values, chunk) : t->slot) * (size_t)side;
}

/* A message's number within the collective: tree, direction, chunk, values or headers. */
static uint32_t hop_of(const trees *t, int tree, int down, int c, int headers) {
  return (uint32_t)(((tree * 2 + down) * t->chunks + c) * 2 + headers);
}

static void add_send(trees *t, int tree, int peer, int down, int c, const void *values,
                     int first_header, int header_count) {
  const size_t bytes = weir_values_bytes(&t->values, chunk_of(t, tree, c));
  t->comm->send[t->sends++] = (weir_send){peer, values, bytes, hop_of(t, tree, down, c, 0)};
  if (tree != 0 || c != 0 || t->header == 0) return;
  t->comm->send[t->sends++] =
      (weir_send){peer, weir_headers_at(t->headers, first_header), (size_t)header_count * t->header,
                  hop_of(t, tree, down, c, 1)};
}

static void add_recv(trees *t, int tree, int peer, int down, int c, void *values, int first_header,
                     int header_count) {
  const size_t bytes = weir_values_bytes(&t->values, chunk_of(t, tree, c));
  t->comm->recv[t->recvs++] = (weir_recv){peer, values, bytes, hop_of(t, tree, down, c, 0), 0};
  if (tree != 0 || c != 0 || t->header == 0) return;
  t->comm->recv[t->recvs++] =
      (weir_recv){peer, weir_headers_at(t->headers, first_header), (size_t)header_count * t->header,
                  hop_of(t, tree, down, c, 1), 0};
}

/* The chunk that comes from a child, goes to the parent, comes from it, goes to the children. */
static int from_child(const place *p, int side, int round) { return round - p->child_height[side]; }
static int to_parent(const place *p, int round) { return round - p->height; }
static int from_parent(const trees *t, const place *p, int round) {
  return round - t->top - (p->depth - 1);
}
static int to_children(const trees *t, const place *p, int round) {
  return round - t->top - p->depth;
}

/* What goes up a tree in a round. */
static void collect_up(trees *t, int tree, int round) {
  const place *p = &t->at[tree];
  for (int side = 0; side < SIDES; side++) {
    const int c = from_child(p, side, round);
    if (p->child[side] >= 0 && is_chunk(t, c))
      add_recv(t, tree, p->child[side], 0, c, room_of(t, tree, side, c), p->child_first[side],
               p->child_count[side]);
  }
  const int up = to_parent(p, round);
  if (p->parent >= 0 && is_chunk(t, up))
    add_send(t, tree, p->parent, 0, up, weir_values_pack(&t->values, chunk_of(t, tree, up)),
             p->own_first, p->own_count);
}

/* What comes down from the parent. */
static void collect_got(trees *t, int tree, int round) {
  const place *p = &t->at[tree];
  const int got = from_parent(t, p, round);
  if (p->parent >= 0 && is_chunk(t, got))
    add_recv(t, tree, p->parent, 1, got, t->values.x + chunk_of(t, tree, got).begin, 0, t->size);
}

/* What goes down to the children of that height. */
static void collect_down(trees *t, int tree, int round, int height) {
  const place *p = &t->at[tree];
  const int down = to_children(t, p, round);
  if (!is_chunk(t, down)) return;
  for (int side = 0; side < SIDES; side++)
    if (p->child[side] >= 0 && p->child_height[side] == height)
      add_send(t, tree, p->child[side], 1, down, t->values.x + chunk_of(t, tree, down).begin, 0,
               t->size);
}

/* All messages of a round, in an order both ends of an edge agree on, which is the order in which
 * they leave: what has the farthest to go first, up before down, and down to the highest subtrees
 * first. */
static void collect(trees *t, int round) {
  const int higher = t->at[1].height > t->at[0].height;
  t->sends = t->recvs = 0;
  for (int tree = 0; tree < TREES; tree++) {
    const place *p = &t->at[tree];
    const int down = to_children(t, p, round);
    collect_up(t, tree, round);
    if (p->parent < 0 && is_chunk(t, down))
      (void)weir_values_pack(&t->values, chunk_of(t, tree, down)); /* charged once, here */
  }
  collect_got(t, higher, round);
  collect_got(t, !higher, round);
  for (int height = t->top - 1; height >= 0; height--)
    for (int tree = 0; tree < TREES; tree++) collect_down(t, tree, round, height);
}

/* A chunk that has come down is left as it travels until it has gone on. */
static void digest(trees *t, int tree, int round) {
  const place *p = &t->at[tree];
  for (int side = 0; side < SIDES; side++) {
    const int c = from_child(p, side, round);
    if (p->child[side] >= 0 && is_chunk(t, c))
      weir_values_take(&t->values, chunk_of(t, tree, c), room_of(t, tree, side, c));
  }
  const int done = p->height == 0 ? from_parent(t, p, round) : to_children(t, p, round);
  if (is_chunk(t, done)) weir_values_unpack(&t->values, chunk_of(t, tree, done));
}

static weir_status prepare(trees *t, size_t n) {
  const int rank = weir_comm_rank(t->comm);
  for (int tree = 0; tree < TREES; tree++) t->at[tree] = locate(tree, rank, t->size, n);
  t->top = weir_inorder_height(0, t->size);
  t->chunks = weir_double_tree_chunks(n * t->values.width);
  const size_t most = weir_ring_chunk(t->at[0].half.count, t->chunks, 0).count;
  t->slot = (most > 0 ? most : 1) * t->values.width;
  void *in = NULL;
  weir_status status = WEIR_OK;
  if (!t->values.bf16)
    status = weir_comm_scratch(t->comm, WEIR_SCRATCH_A, TREES * SIDES * t->slot, &in);
  t->in = in;
  return status;
}

weir_status weir_allreduce_double_tree(weir_comm *comm, float *x, size_t n,
                                       weir_value_format format, float *error,
                                       weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  trees t = {.comm = comm, .headers = headers, .header = weir_headers_bytes(headers)};
  t.values = weir_values_of(x, error, format);
  t.size = weir_comm_size(comm);
  if (status != WEIR_OK || t.size == 1) return status;
  status = prepare(&t, n);
  for (int round = 0; status == WEIR_OK && round < t.chunks + 2 * t.top - 1; round++) {
    collect(&t, round);
    if (t.sends + t.recvs == 0) continue;
    status = weir_comm_exchange(comm, comm->send, t.sends, comm->recv, t.recvs);
    for (int tree = 0; status == WEIR_OK && tree < TREES; tree++) digest(&t, tree, round);
  }
  return status;
}
