/* Tree all-reduce: binomial reduction to rank 0, then binomial broadcast, 2 ceil(log2 N) hops of
 * all n elements on the critical path.
 *
 * A rank adds its children's sums in ascending order of their distance: fixed.  The headers of a
 * subtree are neighbours in the block, so they go up as one piece; all headers come down. */
#include "collectives/algorithms/values.h"

typedef struct tree {
  weir_comm *comm;
  weir_values values;
  weir_chunk all;
  size_t bytes;  /* of all values on the wire */
  void *partial; /* a child's sum */
  weir_headers *headers;
  int rank;
  int size;
  int level;
} tree;

/* Hops 2j and 2j+1: the values and the headers of one edge in one direction. */
static uint32_t hop_up(int k) { return 2 * (uint32_t)k; }
static uint32_t hop_down(const tree *t, int k) {
  return 2 * (uint32_t)(weir_log2_ceil(t->size) + k);
}

static weir_status send_to(tree *t, int peer, uint32_t hop, int first_header, int headers) {
  const size_t header = weir_headers_bytes(t->headers);
  const weir_send send[2] = {
      {peer, t->values.x, t->bytes, hop},
      {peer, weir_headers_at(t->headers, first_header), (size_t)headers * header, hop + 1}};
  return weir_comm_exchange(t->comm, send, header > 0 ? 2 : 1, NULL, 0);
}

static weir_status receive_from(tree *t, int peer, uint32_t hop, void *values, int first_header,
                                int headers) {
  const size_t header = weir_headers_bytes(t->headers);
  weir_recv recv[2] = {
      {peer, values, t->bytes, hop, 0},
      {peer, weir_headers_at(t->headers, first_header), (size_t)headers * header, hop + 1, 0}};
  return weir_comm_exchange(t->comm, NULL, 0, recv, header > 0 ? 2 : 1);
}

static weir_status reduce(tree *t) {
  for (int k = 0; k < t->level; k++) {
    const int child = weir_binomial_child(t->rank, t->size, k);
    if (child < 0) break;
    const weir_status status =
        receive_from(t, child, hop_up(k), t->partial, child, weir_binomial_subtree(child, t->size));
    if (status != WEIR_OK) return status;
    weir_values_take(&t->values, t->all, t->partial);
  }
  (void)weir_values_pack(&t->values, t->all); /* from here on what is held is what travels */
  if (t->rank == 0) return WEIR_OK;
  return send_to(t, weir_binomial_parent(t->rank, t->size), hop_up(t->level), t->rank,
                 weir_binomial_subtree(t->rank, t->size));
}

static weir_status broadcast(tree *t) {
  if (t->rank != 0) {
    const weir_status status = receive_from(t, weir_binomial_parent(t->rank, t->size),
                                            hop_down(t, t->level), t->values.x, 0, t->size);
    if (status != WEIR_OK) return status;
  }
  for (int k = t->level - 1; k >= 0; k--) {
    const int child = weir_binomial_child(t->rank, t->size, k);
    if (child < 0) continue;
    const weir_status status = send_to(t, child, hop_down(t, k), 0, t->size);
    if (status != WEIR_OK) return status;
  }
  weir_values_unpack(&t->values, t->all);
  return WEIR_OK;
}

weir_status weir_allreduce_tree(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  tree t = {.comm = comm, .all = {0, n}, .headers = headers};
  t.values = weir_values_of(x, error, format);
  t.bytes = weir_values_bytes(&t.values, t.all);
  t.rank = weir_comm_rank(comm);
  t.size = weir_comm_size(comm);
  if (status != WEIR_OK || t.size == 1) return status;
  t.level = weir_binomial_level(t.rank, t.size);
  if (t.level > 0 && !t.values.bf16)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, t.bytes > 0 ? t.bytes : 1, &t.partial);
  t.partial = weir_values_room(&t.values, t.all, t.partial);
  if (status == WEIR_OK) status = reduce(&t);
  return status == WEIR_OK ? broadcast(&t) : status;
}
