/* Ring all-reduce: reduce-scatter, then all-gather, 2(N-1) hops of n/N elements each
 * (P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms, 2009).
 *
 * Chunk c is summed in the order of ranks c, c+1, ..., c-1 (mod N): fixed, so that the result is
 * the same bits on all ranks and from run to run.  Headers go round in the all-gather. */
#include "collectives/algorithms/values.h"

typedef struct ring {
  weir_comm *comm;
  weir_values values;
  size_t n;
  weir_headers *headers;
  int rank;
  int size;
  int right;
  int left;
  void *partial; /* the chunk to be added; fp32 only */
} ring;

static weir_chunk chunk_of(const ring *r, int chunk) {
  return weir_ring_chunk(r->n, r->size, chunk);
}

static weir_status reduce_scatter(ring *r) {
  for (int hop = 0; hop < r->size - 1; hop++) {
    const weir_chunk out = chunk_of(r, weir_ring_reduce_send(r->rank, r->size, hop));
    const weir_chunk in = chunk_of(r, weir_ring_reduce_recv(r->rank, r->size, hop));
    void *const room = weir_values_room(&r->values, in, r->partial);
    const weir_send send = {r->right, weir_values_pack(&r->values, out),
                            weir_values_bytes(&r->values, out), (uint32_t)hop};
    weir_recv recv = {r->left, room, weir_values_bytes(&r->values, in), (uint32_t)hop, 0};
    const weir_status status = weir_comm_exchange(r->comm, &send, 1, &recv, 1);
    if (status != WEIR_OK) return status;
    weir_values_take(&r->values, in, room);
  }
  return WEIR_OK;
}

/* One hop of the all-gather: a chunk's bytes and, as a message of its own behind it, a header.
 * Both leave in one system call. */
static weir_status gather_hop(ring *r, int hop, const void *out, size_t out_bytes, void *in,
                              size_t in_bytes) {
  const uint32_t first = (uint32_t)(r->size - 1 + 2 * hop);
  const size_t header = weir_headers_bytes(r->headers);
  const int sent = (r->rank - hop + r->size) % r->size;
  const int taken = (r->left - hop + r->size) % r->size;
  const weir_send send[2] = {{r->right, out, out_bytes, first},
                             {r->right, weir_headers_at(r->headers, sent), header, first + 1}};
  weir_recv recv[2] = {{r->left, in, in_bytes, first, 0},
                       {r->left, weir_headers_at(r->headers, taken), header, first + 1, 0}};
  const size_t messages = header > 0 ? 2 : 1;
  return weir_comm_exchange(r->comm, send, messages, recv, messages);
}

/* The owner rounds its sum once; from then on the same values go round, each chunk in its place. */
static weir_status all_gather(ring *r) {
  (void)weir_values_pack(&r->values, chunk_of(r, weir_ring_owned(r->rank, r->size)));
  for (int hop = 0; hop < r->size - 1; hop++) {
    const weir_chunk out = chunk_of(r, weir_ring_gather_send(r->rank, r->size, hop));
    const weir_chunk in = chunk_of(r, weir_ring_gather_recv(r->rank, r->size, hop));
    const weir_status status =
        gather_hop(r, hop, r->values.x + out.begin, weir_values_bytes(&r->values, out),
                   r->values.x + in.begin, weir_values_bytes(&r->values, in));
    if (status != WEIR_OK) return status;
    weir_values_unpack(&r->values, out);
    if (hop + 2 == r->size) weir_values_unpack(&r->values, in);
  }
  return WEIR_OK;
}

weir_status weir_allreduce_ring(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  ring r = {.comm = comm, .n = n, .headers = headers};
  r.values = weir_values_of(x, error, format);
  r.rank = weir_comm_rank(comm);
  r.size = weir_comm_size(comm);
  if (status != WEIR_OK || r.size == 1) return status;
  r.right = (r.rank + 1) % r.size;
  r.left = (r.rank + r.size - 1) % r.size;
  if (!r.values.bf16)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, weir_values_bytes(&r.values, chunk_of(&r, 0)),
                               &r.partial);
  if (status == WEIR_OK) status = reduce_scatter(&r);
  return status == WEIR_OK ? all_gather(&r) : status;
}
