/* Compressed ring all-reduce: partial sums are encoded anew at each of the N-1 hops of the
 * reduce-scatter; in the all-gather the owner's message goes round as it is. */
#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

typedef struct ring {
  weir_comm *comm;
  const weir_coder *coder;
  float *x, *error;
  size_t n, stride;
  int rank, size, left, right;
  unsigned char *out, *in;
  float *staging;
  weir_notes *notes;
} ring;

static size_t bytes_of(const ring *r, weir_chunk c) {
  return c.count > 0 ? weir_coder_bound(r->coder, c.count) : 0;
}

static weir_status encode(ring *r, weir_chunk c, uint32_t draw, size_t *bytes) {
  *bytes = 0;
  if (c.count == 0) return WEIR_OK;
  return weir_coder_encode(r->coder, r->x + c.begin, c.count, r->rank, draw, r->error + c.begin,
                           r->out, r->stride, bytes, r->staging);
}

static weir_status reduce_scatter(ring *r) {
  weir_status status = WEIR_OK;
  for (int hop = 0; hop < r->size - 1 && status == WEIR_OK; hop++) {
    const weir_chunk out =
        weir_ring_chunk(r->n, r->size, weir_ring_reduce_send(r->rank, r->size, hop));
    const weir_chunk in =
        weir_ring_chunk(r->n, r->size, weir_ring_reduce_recv(r->rank, r->size, hop));
    size_t bytes = 0;
    status = encode(r, out, (uint32_t)hop, &bytes);
    const weir_send send = {r->right, r->out, bytes, (uint32_t)hop};
    weir_recv recv = {r->left, r->in, bytes_of(r, in), (uint32_t)hop, 0};
    if (status == WEIR_OK) status = weir_comm_exchange(r->comm, &send, 1, &recv, 1);
    if (status == WEIR_OK && in.count > 0)
      status = weir_coder_decode(r->comm, r->coder, r->left, r->in, recv.bytes, r->x + in.begin,
                                 in.count, true);
  }
  return status;
}

static weir_status all_gather(ring *r) {
  size_t bytes = 0;
  const weir_chunk own = weir_ring_chunk(r->n, r->size, weir_ring_owned(r->rank, r->size));
  weir_status status = encode(r, own, (uint32_t)r->size, &bytes);
  const size_t note = weir_notes_bytes(r->notes);
  for (int hop = 0; hop < r->size - 1 && status == WEIR_OK; hop++) {
    const weir_chunk in =
        weir_ring_chunk(r->n, r->size, weir_ring_gather_recv(r->rank, r->size, hop));
    const uint32_t first = (uint32_t)(r->size + 2 * hop);
    const int sent = (r->rank - hop + r->size) % r->size;
    const int taken = (r->left - hop + r->size) % r->size;
    const weir_send send[2] = {{r->right, r->out, bytes, first},
                               {r->right, weir_notes_at(r->notes, sent), note, first + 1}};
    weir_recv recv[2] = {{r->left, r->in, bytes_of(r, in), first, 0},
                         {r->left, weir_notes_at(r->notes, taken), note, first + 1, 0}};
    const size_t messages = note > 0 ? 2 : 1;
    status = weir_comm_exchange(r->comm, send, messages, recv, messages);
    if (status == WEIR_OK && in.count > 0)
      status = weir_coder_decode(r->comm, r->coder, r->left, r->in, recv[0].bytes, r->x + in.begin,
                                 in.count, false);
    bytes = recv[0].bytes;
    unsigned char *next = r->in;
    r->in = r->out;
    r->out = next;
  }
  return status;
}

weir_status weir_compressed_ring(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                 float *error, weir_notes *notes) {
  weir_status status = weir_comm_begin(comm, notes);
  ring r = {.comm = comm, .coder = coder, .x = x, .error = error, .n = n, .notes = notes};
  r.rank = weir_comm_rank(comm);
  r.size = weir_comm_size(comm);
  if (status != WEIR_OK || r.size == 1) return status;
  r.right = (r.rank + 1) % r.size;
  r.left = (r.rank + r.size - 1) % r.size;
  const size_t share = weir_ring_chunk(n, r.size, 0).count;
  r.stride = weir_coder_bound(coder, share);
  void *blocks = NULL, *staging = NULL;
  status = weir_comm_scratch(comm, WEIR_SCRATCH_A, 2 * r.stride + 1, &blocks);
  if (status == WEIR_OK)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_B, share * sizeof(float) + 1, &staging);
  if (status != WEIR_OK) return status;
  r.out = blocks;
  r.in = r.out + r.stride;
  r.staging = staging;
  status = reduce_scatter(&r);
  return status == WEIR_OK ? all_gather(&r) : status;
}
