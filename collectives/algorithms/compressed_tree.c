/* Compressed tree all-reduce: binomial reduction, encoded anew on every level, and a broadcast of
 * the root's message as it is.
 *
 * Where messages stay (coder->stays) they are read from the child's room and the root's, and what
 * is handed on is empty: it says that the message is there. */

#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

typedef struct tree {
  weir_comm *comm;
  const weir_coder *coder;
  float *x, *error;
  size_t n, bytes; /* that are handed on */
  int rank, size, level;
  void *message; /* that is sent: in the place of x */
  void *room;    /* for what comes in before this rank encodes: in that of error */
  weir_headers *headers;
} tree;

static weir_status hand(tree *t, int peer, uint32_t hop, int first_header, int headers) {
  const size_t header = weir_headers_bytes(t->headers);
  const weir_send send[2] = {
      {peer, t->message, t->bytes, hop},
      {peer, weir_headers_at(t->headers, first_header), (size_t)headers * header, hop + 1}};
  return weir_comm_exchange(t->comm, send, header > 0 ? 2 : 1, NULL, 0);
}

static weir_status take(tree *t, void *to, int peer, uint32_t hop, int first_header, int headers) {
  const size_t header = weir_headers_bytes(t->headers);
  weir_recv recv[2] = {
      {peer, to, t->bytes, hop, 0},
      {peer, weir_headers_at(t->headers, first_header), (size_t)headers * header, hop + 1, 0}};
  return weir_comm_exchange(t->comm, NULL, 0, recv, header > 0 ? 2 : 1);
}

/* A rank's message, which has come to `in`. */
static const void *message_of(const tree *t, int rank, const void *in) {
  return t->coder->stays ? t->coder->ops->room_of(t->coder->user, rank) : in;
}

static weir_status reduce(tree *t) {
  const weir_chunk all = {0, t->n};
  weir_status status = WEIR_OK;
  for (int k = 0; k < t->level && status == WEIR_OK; k++) {
    const int child = weir_binomial_child(t->rank, t->size, k);
    if (child < 0) break;
    if (k > 0 && !t->coder->stays) status = weir_coder_await(t->coder); /* the room is free again */
    if (status != WEIR_OK) break;
    status = take(t, t->room, child, 2 * (uint32_t)k, child, weir_binomial_subtree(child, t->size));
    if (status == WEIR_OK)
      status = weir_coder_decode(t->comm, t->coder, child, message_of(t, child, t->room), t->x, all,
                                 WEIR_DECODE_ADD);
  }
  size_t bytes = 0;
  if (status == WEIR_OK)
    status = weir_coder_encode(t->coder, t->x, t->error, all, t->rank, 0, t->message, &bytes);
  if (status == WEIR_OK) status = weir_coder_await(t->coder);
  if (status != WEIR_OK || t->rank == 0) return status;
  return hand(t, weir_binomial_parent(t->rank, t->size), 2 * (uint32_t)t->level, t->rank,
              weir_binomial_subtree(t->rank, t->size));
}

static weir_status broadcast(tree *t) {
  const uint32_t down = 2 * (uint32_t)weir_log2_ceil(t->size);
  const int parent = t->rank != 0 ? weir_binomial_parent(t->rank, t->size) : 0;
  weir_status status = WEIR_OK;
  if (t->rank != 0) status = take(t, t->message, parent, down + 2 * (uint32_t)t->level, 0, t->size);
  for (int k = t->level - 1; k >= 0 && status == WEIR_OK; k--) {
    const int child = weir_binomial_child(t->rank, t->size, k);
    if (child >= 0) status = hand(t, child, down + 2 * (uint32_t)k, 0, t->size);
  }
  if (status != WEIR_OK) return status;
  return weir_coder_decode(t->comm, t->coder, parent, message_of(t, 0, t->message), t->x,
                           (weir_chunk){0, t->n}, WEIR_DECODE_STORE);
}

weir_status weir_compressed_tree(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                 float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  tree t = {.comm = comm, .coder = coder, .x = x, .error = error, .n = n, .headers = headers};
  t.rank = weir_comm_rank(comm);
  t.size = weir_comm_size(comm);
  if (status == WEIR_OK && t.size == 1) return weir_coder_alone(coder, error, n);
  if (status != WEIR_OK || t.size == 1) return status;
  t.level = weir_binomial_level(t.rank, t.size);
  t.bytes = coder->stays ? 0 : weir_coder_bound(coder, n);
  t.message = x;
  t.room = error;
  if (coder->stays) {
    t.message = t.room = coder->ops->room_of(coder->user, t.rank);
  } else if (coder->ops != NULL || !weir_coder_fits(coder, 1, n, n)) {
    t.message = coder->room;
    if (coder->ops == NULL)
      status = weir_comm_scratch(comm, WEIR_SCRATCH_A, 2 * t.bytes + 1, &t.message);
    if (status != WEIR_OK) return status;
    t.room = (unsigned char *)t.message + t.bytes;
  }
  status = reduce(&t);
  return status == WEIR_OK ? broadcast(&t) : status;
}
