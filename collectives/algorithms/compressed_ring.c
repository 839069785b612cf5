/* Compressed ring all-reduce: partial sums are encoded anew at each of the N-1 hops of the
 * reduce-scatter; in the all-gather the owner's message goes round as it is.
 *
 * Where messages stay (coder->stays) each has a place of its own in its rank's room, and what goes
 * round is empty: it says that the message is there. */

#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

typedef struct ring {
  weir_comm *comm;
  const weir_coder *coder;
  float *x, *error;
  size_t n, stride;
  int rank, size, left, right;
  unsigned char *small; /* for chunks shorter than their messages: those, and what comes in */
  weir_headers *headers;
} ring;

static weir_chunk chunk_of(const ring *r, int c) { return weir_ring_chunk(r->n, r->size, c); }

/* The message of a chunk, in the place of its values. */
static unsigned char *message_of(const ring *r, int c) {
  return r->small ? r->small + (size_t)c * r->stride
                  : (unsigned char *)(r->x + chunk_of(r, c).begin);
}

/* Where messages stay: a rank's of this hop, or behind those of all hops that of the sum it owns.
 */
static unsigned char *left_by(const ring *r, int rank, int hop) {
  return r->coder->ops->room_of(r->coder->user, rank) + (size_t)hop * r->stride;
}

/* Bytes of a chunk that go to the next rank. */
static size_t travels(const ring *r, int c) {
  return r->coder->stays ? 0 : weir_coder_bound(r->coder, chunk_of(r, c).count);
}

static weir_status encode(ring *r, int c, int hop, uint32_t draw) {
  const weir_chunk chunk = chunk_of(r, c);
  unsigned char *const out = r->coder->stays ? left_by(r, r->rank, hop) : message_of(r, c);
  size_t bytes = 0;
  const weir_status status =
      weir_coder_encode(r->coder, r->x, r->error, chunk, r->rank, draw, out, &bytes);
  return status == WEIR_OK ? weir_coder_await(r->coder) : status;
}

/* Where a chunk of this hop comes in. */
static void *in_of(const ring *r, weir_chunk in, int hop) {
  if (r->coder->stays) return left_by(r, r->left, hop);
  return r->small ? (void *)(r->small + (size_t)r->size * r->stride)
                  : (void *)(r->error + in.begin);
}

/* A chunk that comes in is encoded next: until then its part of error[] is free. */
static weir_status reduce_scatter(ring *r) {
  weir_status status = WEIR_OK;
  for (int hop = 0; hop < r->size - 1 && status == WEIR_OK; hop++) {
    const int out = weir_ring_reduce_send(r->rank, r->size, hop);
    const int taken = weir_ring_reduce_recv(r->rank, r->size, hop);
    const weir_chunk in = chunk_of(r, taken);
    void *const room = in_of(r, in, hop);
    status = encode(r, out, hop, (uint32_t)hop);
    const weir_send send = {r->right, message_of(r, out), travels(r, out), (uint32_t)hop};
    weir_recv recv = {r->left, room, travels(r, taken), (uint32_t)hop, 0};
    if (status == WEIR_OK) status = weir_comm_exchange(r->comm, &send, 1, &recv, 1);
    if (status == WEIR_OK)
      status = weir_coder_decode(r->comm, r->coder, r->left, room, r->x, in, WEIR_DECODE_ADD);
  }
  return status;
}

static weir_status all_gather(ring *r) {
  const size_t header = weir_headers_bytes(r->headers);
  const int last = r->size - 1;
  weir_status status = encode(r, weir_ring_owned(r->rank, r->size), last, (uint32_t)r->size);
  for (int hop = 0; hop < r->size - 1 && status == WEIR_OK; hop++) {
    const int out = weir_ring_gather_send(r->rank, r->size, hop);
    const int in = weir_ring_gather_recv(r->rank, r->size, hop);
    const uint32_t first = (uint32_t)(r->size + 2 * hop);
    const int sent = (r->rank - hop + r->size) % r->size;
    const int taken = (r->left - hop + r->size) % r->size;
    const weir_send send[2] = {{r->right, message_of(r, out), travels(r, out), first},
                               {r->right, weir_headers_at(r->headers, sent), header, first + 1}};
    weir_recv recv[2] = {{r->left, message_of(r, in), travels(r, in), first, 0},
                         {r->left, weir_headers_at(r->headers, taken), header, first + 1, 0}};
    const size_t messages = header > 0 ? 2 : 1;
    status = weir_comm_exchange(r->comm, send, messages, recv, messages);
  }
  for (int owner = 0; owner < r->size && status == WEIR_OK; owner++) {
    const int c = weir_ring_owned(owner, r->size);
    const void *message = r->coder->stays ? left_by(r, owner, last) : message_of(r, c);
    status = weir_coder_decode(r->comm, r->coder, r->left, message, r->x, chunk_of(r, c),
                               WEIR_DECODE_STORE);
  }
  return status;
}

weir_status weir_compressed_ring(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                 float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  ring r = {.comm = comm, .coder = coder, .x = x, .error = error, .n = n, .headers = headers};
  r.rank = weir_comm_rank(comm);
  r.size = weir_comm_size(comm);
  if (status == WEIR_OK && r.size == 1) return weir_coder_alone(coder, error, n);
  if (status != WEIR_OK || r.size == 1) return status;
  r.right = (r.rank + 1) % r.size;
  r.left = (r.rank + r.size - 1) % r.size;
  const size_t most = chunk_of(&r, 0).count, least = chunk_of(&r, r.size - 1).count;
  r.stride = weir_coder_bound(coder, most);
  void *small = coder->room;
  if (coder->ops == NULL &&
      (!weir_coder_fits(coder, 1, least, least) || !weir_coder_fits(coder, 1, most, most)))
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, ((size_t)r.size + 1) * r.stride + 1, &small);
  if (status != WEIR_OK) return status;
  r.small = small;
  status = reduce_scatter(&r);
  return status == WEIR_OK ? all_gather(&r) : status;
}
