/* All-gather by recursive doubling: log2 N exchanges of 1, 2, 4, ... blocks between ranks at that
 * distance.  Of N not a power of two the ranks left over hand their block to a neighbour first and
 * get all from it afterwards.
 *
 * Every block is a message of its own, as in Bruck's. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

typedef struct doubling {
  weir_comm *comm;
  unsigned char *all;
  size_t stride;
  size_t *bytes;
  weir_headers *headers;
  int size;
} doubling;

/* A run of ranks, and the number of the first message. */
typedef struct run {
  int first;
  int count;
  uint32_t hop;
} run;

static size_t add_sends(doubling *d, int peer, const run *r) {
  const size_t header = weir_headers_bytes(d->headers);
  size_t sends = 0;
  for (int i = 0; i < r->count; i++) {
    const size_t at = (size_t)(r->first + i);
    d->comm->send[sends++] =
        (weir_send){peer, d->all + at * d->stride, d->bytes[at], r->hop + (uint32_t)i};
  }
  if (header > 0 && r->count > 0)
    d->comm->send[sends++] = (weir_send){peer, weir_headers_at(d->headers, r->first),
                                         (size_t)r->count * header, r->hop + (uint32_t)d->size};
  return sends;
}

static size_t add_recvs(doubling *d, int peer, const run *r) {
  const size_t header = weir_headers_bytes(d->headers);
  size_t recvs = 0;
  for (int i = 0; i < r->count; i++)
    d->comm->recv[recvs++] = (weir_recv){peer, d->all + (size_t)(r->first + i) * d->stride,
                                         d->stride, r->hop + (uint32_t)i, 0};
  if (header > 0 && r->count > 0)
    d->comm->recv[recvs++] = (weir_recv){peer, weir_headers_at(d->headers, r->first),
                                         (size_t)r->count * header, r->hop + (uint32_t)d->size, 0};
  return recvs;
}

/* Send blocks and headers of one run of ranks and receive those of another; either may be empty. */
static weir_status swap(doubling *d, int peer, run out, run in) {
  const size_t sends = add_sends(d, peer, &out), recvs = add_recvs(d, peer, &in);
  const weir_status status =
      weir_comm_transfer(d->comm, d->comm->send, sends, d->comm->recv, recvs);
  if (status != WEIR_OK) return status;
  for (int i = 0; i < in.count; i++) d->bytes[in.first + i] = d->comm->recv[i].bytes;
  return weir_comm_expect(d->comm, d->comm->recv + in.count, recvs - (size_t)in.count);
}

weir_status weir_allgather_doubling(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                                    weir_headers *headers) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  doubling d = {comm, all, stride, bytes, headers, size};
  weir_status status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, headers);
  if (status != WEIR_OK || size == 1) return status;
  const weir_halving place = weir_halving_place(rank, size);
  const uint32_t span = (uint32_t)size + 1; /* numbers a round uses */
  const uint32_t back = span * (uint32_t)(1 + weir_log2_ceil(place.core));
  const run none = {0, 0, 0};
  if (place.v < 0) {
    status = swap(&d, place.fold, (run){rank, 1, 0}, none);
    return status == WEIR_OK ? swap(&d, place.fold, none, (run){0, size, back}) : status;
  }
  if (place.fold >= 0) status = swap(&d, place.fold, none, (run){place.fold, 1, 0});
  for (int k = 0; status == WEIR_OK && 1 << k < place.core; k++) {
    const int distance = 1 << k, own = place.v & ~(distance - 1);
    run out = {.hop = span * (uint32_t)(1 + k)}, in = out;
    weir_halving_ranks(own, distance, size, &out.first, &out.count);
    weir_halving_ranks(own ^ distance, distance, size, &in.first, &in.count);
    status = swap(&d, weir_halving_rank(place.v ^ distance, size), out, in);
  }
  if (status == WEIR_OK && place.fold >= 0)
    status = swap(&d, place.fold, (run){0, size, back}, none);
  return status;
}
