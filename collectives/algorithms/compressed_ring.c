/* Compressed ring all-reduce: partial sums are encoded anew at each of the N-1 hops of the
 * reduce-scatter; in the all-gather the owner's message goes round as it is. */
#include <string.h>

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

static weir_status encode(ring *r, int c, uint32_t draw, size_t *bytes) {
  const weir_chunk chunk = chunk_of(r, c);
  const weir_status status =
      weir_coder_encode(r->coder, r->x, r->error, chunk, r->rank, draw, message_of(r, c), bytes);
  return status == WEIR_OK ? weir_coder_await(r->coder) : status;
}

/* A chunk that comes in is encoded next: until then its part of error[] is free. */
static weir_status reduce_scatter(ring *r) {
  weir_status status = WEIR_OK;
  for (int hop = 0; hop < r->size - 1 && status == WEIR_OK; hop++) {
    const int out = weir_ring_reduce_send(r->rank, r->size, hop);
    const weir_chunk in = chunk_of(r, weir_ring_reduce_recv(r->rank, r->size, hop));
    void *const room =
        r->small ? (void *)(r->small + (size_t)r->size * r->stride) : (void *)(r->error + in.begin);
    size_t bytes = 0;
    status = encode(r, out, (uint32_t)hop, &bytes);
    const weir_send send = {r->right, message_of(r, out), bytes, (uint32_t)hop};
    weir_recv recv = {r->left, room, weir_coder_bound(r->coder, in.count), (uint32_t)hop, 0};
    if (status == WEIR_OK) status = weir_comm_exchange(r->comm, &send, 1, &recv, 1);
    if (status == WEIR_OK)
      status = weir_coder_decode(r->comm, r->coder, r->left, room, r->x, in, WEIR_DECODE_ADD);
  }
  return status;
}

static weir_status all_gather(ring *r) {
  const size_t header = weir_headers_bytes(r->headers);
  size_t bytes = 0;
  weir_status status = encode(r, weir_ring_owned(r->rank, r->size), (uint32_t)r->size, &bytes);
  for (int hop = 0; hop < r->size - 1 && status == WEIR_OK; hop++) {
    const int out = weir_ring_gather_send(r->rank, r->size, hop);
    const int in = weir_ring_gather_recv(r->rank, r->size, hop);
    const uint32_t first = (uint32_t)(r->size + 2 * hop);
    const int sent = (r->rank - hop + r->size) % r->size;
    const int taken = (r->left - hop + r->size) % r->size;
    const weir_send send[2] = {
        {r->right, message_of(r, out), weir_coder_bound(r->coder, chunk_of(r, out).count), first},
        {r->right, weir_headers_at(r->headers, sent), header, first + 1}};
    weir_recv recv[2] = {
        {r->left, message_of(r, in), weir_coder_bound(r->coder, chunk_of(r, in).count), first, 0},
        {r->left, weir_headers_at(r->headers, taken), header, first + 1, 0}};
    const size_t messages = header > 0 ? 2 : 1;
    status = weir_comm_exchange(r->comm, send, messages, recv, messages);
  }
  for (int c = 0; c < r->size && status == WEIR_OK; c++)
    status = weir_coder_decode(r->comm, r->coder, r->left, message_of(r, c), r->x, chunk_of(r, c),
                               WEIR_DECODE_STORE);
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
