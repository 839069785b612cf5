/* All-gather of blocks that lie in several places each, and whose lengths all ranks know. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/told.h"

static void make_all(const weir_places *p, int rank) {
  for (size_t i = p->first[rank]; p->make != NULL && i < p->first[rank + 1]; i++)
    if (p->span[i].bytes > 0) p->make(p->user, i, 0, p->span[i].bytes);
}

/* --- by the transport ------------------------------------------------------------------------- */

static weir_status native(weir_comm *comm, const weir_places *places, weir_headers *headers) {
  weir_transport *t = comm->transport;
  const weir_told told = weir_told_begin(t, NULL, 0, NULL, 0);
  const weir_status status =
      t->ops->allgather(t, &comm->tag, places, headers ? headers->block : NULL,
                        weir_headers_bytes(headers), weir_now_s() + comm->timeout_s);
  weir_told_end(t, &told, NULL, 0, NULL, 0, status);
  return status;
}

/* --- around a ring ---------------------------------------------------------------------------- */

/* Messages of a block: one a span, and the header; each passes a link once, so that its number is
 * that of its span. */
typedef struct messages {
  weir_send *send;
  weir_recv *recv;
} messages;

static size_t send_block(const weir_places *p, int to, int rank, weir_send *send) {
  size_t count = 0;
  for (size_t i = p->first[rank]; i < p->first[rank + 1]; i++)
    send[count++] = (weir_send){to, p->span[i].data, p->span[i].bytes, (uint32_t)i};
  return count;
}

static size_t take_block(const weir_places *p, int from, int rank, weir_recv *recv) {
  size_t count = 0;
  for (size_t i = p->first[rank]; i < p->first[rank + 1]; i++)
    recv[count++] = (weir_recv){from, p->span[i].data, p->span[i].bytes, (uint32_t)i, 0};
  return count;
}

static weir_status pass_on(weir_comm *comm, const weir_places *p, weir_headers *headers, int hop,
                           const messages *m) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const int out = (rank - hop + size) % size, in = (left - hop + size) % size;
  const size_t header = weir_headers_bytes(headers), spans = p->first[size];
  size_t sends = send_block(p, right, out, m->send), recvs = take_block(p, left, in, m->recv);
  if (header > 0) {
    m->send[sends++] =
        (weir_send){right, weir_headers_at(headers, out), header, (uint32_t)(spans + (size_t)out)};
    m->recv[recvs++] =
        (weir_recv){left, weir_headers_at(headers, in), header, (uint32_t)(spans + (size_t)in), 0};
  }
  return weir_comm_exchange(comm, m->send, sends, m->recv, recvs);
}

static weir_status around(weir_comm *comm, const weir_places *p, weir_headers *headers) {
  const int size = weir_comm_size(comm);
  size_t most = 0;
  for (int r = 0; r < size; r++)
    if (p->first[r + 1] - p->first[r] > most) most = p->first[r + 1] - p->first[r];
  const messages m = {calloc(most + 1, sizeof *m.send), calloc(most + 1, sizeof *m.recv)};
  weir_status status = WEIR_OK;
  if (m.send == NULL || m.recv == NULL)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu messages", most);
  for (int hop = 0; status == WEIR_OK && hop < size - 1; hop++)
    status = pass_on(comm, p, headers, hop, &m);
  free(m.recv);
  free(m.send);
  return status;
}

/* --- by another row --------------------------------------------------------------------------- */

static void copy(const weir_places *p, int rank, unsigned char *block, bool in) {
  for (size_t i = p->first[rank]; i < p->first[rank + 1]; i++) {
    const weir_block_part *span = &p->span[i];
    if (span->bytes == 0) continue;
    memcpy(in ? (void *)block : span->data, in ? span->data : (void *)block, span->bytes);
    block += span->bytes;
  }
}

static weir_status refuse(weir_comm *comm, int rank, size_t bytes, size_t due) {
  return weir_comm_refuse(comm, rank,
                          weir_fail(WEIR_E_PROTOCOL, "block of %zu bytes, not %zu", bytes, due));
}

static weir_status packed(weir_comm *comm, const weir_places *p, uint32_t row,
                          weir_headers *headers) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  void *lengths = NULL, *blocks = NULL;
  size_t stride = 1;
  for (int r = 0; r < size; r++)
    stride = weir_places_bytes(p, r) > stride ? weir_places_bytes(p, r) : stride;
  weir_status status = weir_comm_scratch(comm, WEIR_SCRATCH_A, (size_t)size * stride, &blocks);
  lengths = calloc((size_t)size, sizeof(size_t));
  if (status == WEIR_OK && lengths == NULL)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %d lengths", size);
  size_t *const bytes = lengths;
  if (status == WEIR_OK) {
    bytes[rank] = weir_places_bytes(p, rank);
    copy(p, rank, (unsigned char *)blocks + (size_t)rank * stride, true);
    status = weir_allgathers[row].run(comm, blocks, stride, bytes, headers);
  }
  for (int r = 0; status == WEIR_OK && r < size; r++) {
    if (bytes[r] != weir_places_bytes(p, r))
      status = refuse(comm, r, bytes[r], weir_places_bytes(p, r));
    if (status == WEIR_OK && r != rank)
      copy(p, r, (unsigned char *)blocks + (size_t)r * stride, false);
  }
  free(lengths);
  return status;
}

weir_status weir_allgather_places(weir_comm *comm, const weir_places *places, uint32_t row,
                                  weir_headers *headers) {
  const bool own = weir_comm_size(comm) > 1 && comm->transport->ops->allgather != NULL;
  if (!own) make_all(places, weir_comm_rank(comm));
  if (!own && row != WEIR_ALLGATHER_RING) return packed(comm, places, row, headers);
  const weir_status status = weir_comm_begin(comm, headers);
  if (status != WEIR_OK || weir_comm_size(comm) == 1) return status;
  return own ? native(comm, places, headers) : around(comm, places, headers);
}
