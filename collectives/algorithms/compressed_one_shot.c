/* One-shot: every rank encodes its values once and sends them straight to all others, and each adds
 * all messages, its own too, in the order of ranks.  One latency, the least there can be, and one
 * encoding on any value's way, for N - 1 messages of all elements a rank: for sums so short, or
 * links so far, that bytes do not matter.
 *
 * With coder->huffman the message is shortened where it lies before it is sent, and those of
 * others are restored where they came in. */
#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

typedef struct one_shot {
  weir_comm *comm;
  const weir_coder *coder;
  float *x;
  weir_chunk all;
  size_t stride; /* of messages, one a rank */
  unsigned char *messages;
  int rank, size;
} one_shot;

static unsigned char *message_of(const one_shot *s, int rank) {
  return s->messages + (size_t)rank * s->stride;
}

/* All messages, shortened or exactly as long as they are. */
static weir_status take(const one_shot *s, const weir_recv *recv) {
  if (!s->coder->huffman) return weir_comm_expect(s->comm, recv, 1);
  return weir_coder_restore(s->comm, s->coder, recv->peer, recv->data, s->all.count, recv->bytes);
}

/* Of this rank's message `bytes` travel. */
static weir_status exchange(one_shot *s, size_t bytes, weir_headers *headers) {
  const size_t header = weir_headers_bytes(headers);
  weir_send *send = s->comm->send;
  weir_recv *recv = s->comm->recv;
  size_t messages = 0;
  for (int i = 1; i < s->size; i++) { /* all begin elsewhere */
    const int to = weir_rotation_to(s->rank, s->size, i);
    const int from = weir_rotation_from(s->rank, s->size, i);
    send[messages] = (weir_send){to, message_of(s, s->rank), bytes, 0};
    recv[messages++] = (weir_recv){from, message_of(s, from), s->stride, 0, 0};
    if (header == 0) continue;
    send[messages] = (weir_send){to, weir_headers_at(headers, s->rank), header, 1};
    recv[messages++] = (weir_recv){from, weir_headers_at(headers, from), header, 1, 0};
  }
  weir_status status = weir_comm_transfer(s->comm, send, messages, recv, messages);
  for (size_t i = 0; i < messages && status == WEIR_OK; i++)
    status = recv[i].hop == 0 ? take(s, &recv[i]) : weir_comm_expect(s->comm, &recv[i], 1);
  return status;
}

/* Shortened for the others, and restored for this rank. */
static weir_status exchange_shortened(one_shot *s, size_t bytes, weir_headers *headers) {
  unsigned char *const own = message_of(s, s->rank);
  const size_t count = s->all.count;
  weir_status status = weir_coder_shorten(s->comm, s->coder, own, count, &bytes);
  if (status == WEIR_OK) status = exchange(s, bytes, headers);
  return status == WEIR_OK ? weir_coder_restore(s->comm, s->coder, s->rank, own, count, bytes)
                           : status;
}

weir_status weir_compressed_one_shot(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                     float *error, weir_headers *headers) {
  one_shot s = {.comm = comm, .coder = coder, .x = x, .all = {0, n}};
  s.rank = weir_comm_rank(comm);
  s.size = weir_comm_size(comm);
  s.stride = weir_coder_bound(coder, n);
  weir_status status = weir_comm_begin(comm, headers);
  if (status == WEIR_OK && s.size == 1) return weir_coder_alone(coder, error, n);
  void *messages = NULL;
  size_t bytes = 0;
  if (status == WEIR_OK)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, (size_t)s.size * s.stride + 1, &messages);
  s.messages = messages;
  if (status == WEIR_OK)
    status = weir_coder_encode(coder, x, error, s.all, s.rank, 0, message_of(&s, s.rank), &bytes);
  if (status != WEIR_OK) return status;
  status = coder->huffman ? exchange_shortened(&s, bytes, headers) : exchange(&s, bytes, headers);
  for (int r = 0; r < s.size && status == WEIR_OK; r++)
    status = weir_coder_decode(comm, coder, r, message_of(&s, r), x, s.all,
                               r == 0 ? WEIR_DECODE_STORE : WEIR_DECODE_ADD);
  return status;
}
