/* Pipelined chain broadcast: each rank hands a chunk on while it receives the next; chunks + N - 2
 * rounds of bytes/chunks.  The length goes ahead of the first chunk, in the same system call. */
#include <endian.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

enum { HOP_LENGTH = 0, HOP_CHUNKS = 1 };

typedef struct chain {
  weir_comm *comm;
  unsigned char *data;
  size_t bytes;
  int chunks;
  int before;      /* rank; -1: the root */
  int behind;      /* rank; -1: the last */
  uint64_t length; /* little-endian */
} chain;

static weir_status learn_length(chain *c, size_t capacity) {
  weir_recv recv = {c->before, &c->length, sizeof c->length, HOP_LENGTH, 0};
  const weir_status status = weir_comm_exchange(c->comm, NULL, 0, &recv, 1);
  if (status != WEIR_OK) return status;
  const uint64_t bytes = le64toh(c->length);
  if (bytes > capacity) {
    c->comm->transport->ops->abort(c->comm->transport, c->before);
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sends %llu bytes where at most %zu were due",
                     c->before, (unsigned long long)bytes, capacity);
  }
  c->bytes = (size_t)bytes;
  return WEIR_OK;
}

/* Receive chunk `in` and send chunk `in` - 1 (the root: nothing, and `in` - 1). */
static weir_status round_of(chain *c, int in) {
  weir_send send[2];
  weir_recv recv[1];
  size_t sends = 0, recvs = 0;
  const int out = in - 1;
  if (c->behind >= 0 && out >= 0) {
    const weir_chunk part = weir_ring_chunk(c->bytes, c->chunks, out);
    if (out == 0) send[sends++] = (weir_send){c->behind, &c->length, sizeof c->length, HOP_LENGTH};
    send[sends++] =
        (weir_send){c->behind, c->data + part.begin, part.count, HOP_CHUNKS + (uint32_t)out};
  }
  if (c->before >= 0 && in < c->chunks) {
    const weir_chunk part = weir_ring_chunk(c->bytes, c->chunks, in);
    recv[recvs++] =
        (weir_recv){c->before, c->data + part.begin, part.count, HOP_CHUNKS + (uint32_t)in, 0};
  }
  if (sends + recvs == 0) return WEIR_OK;
  return weir_comm_exchange(c->comm, send, sends, recv, recvs);
}

weir_status weir_broadcast_chain(weir_comm *comm, int root, void *data, size_t capacity,
                                 size_t *bytes) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  weir_status status = weir_comm_root(comm, root);
  if (status == WEIR_OK && rank == root) status = weir_comm_block(*bytes, capacity);
  if (status == WEIR_OK) status = weir_comm_begin(comm, NULL);
  if (status != WEIR_OK || size == 1) return status;
  chain c = {.comm = comm, .data = data, .bytes = *bytes, .before = -1, .behind = -1};
  if (rank != root) c.before = (rank + size - 1) % size;
  if ((rank + 1) % size != root) c.behind = (rank + 1) % size;
  c.length = htole64((uint64_t)c.bytes);
  if (c.before >= 0) status = learn_length(&c, capacity);
  c.chunks = weir_chain_chunks(c.bytes);
  for (int in = 0; status == WEIR_OK && in <= c.chunks; in++) status = round_of(&c, in);
  if (status == WEIR_OK) *bytes = c.bytes;
  return status;
}
