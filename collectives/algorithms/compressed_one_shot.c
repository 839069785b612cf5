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

/* Shortened for the others, and restored for this rank. */
static weir_status exchange(one_shot *s, size_t bytes, weir_headers *headers) {
  unsigned char *const own = message_of(s, s->rank);
  const size_t count = s->all.count, others = (size_t)s->size - 1;
  weir_recv *recv = s->comm->recv;
  for (size_t i = 0; i < others; i++) {
    const int from = weir_rotation_from(s->rank, s->size, (int)i + 1);
    recv[i] = (weir_recv){from, message_of(s, from), s->stride, 0, 0};
  }
  weir_status status = weir_coder_shorten(s->comm, s->coder, own, count, &bytes);
  if (status == WEIR_OK) status = weir_comm_to_all(s->comm, own, bytes, 0, headers);
  for (size_t i = 0; i < others && status == WEIR_OK; i++)
    status = weir_coder_take(s->comm, s->coder, &recv[i], count);
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
  status = exchange(&s, bytes, headers);
  for (int r = 0; r < s.size && status == WEIR_OK; r++)
    status = weir_coder_decode(comm, coder, r, message_of(&s, r), x, s.all,
                               r == 0 ? WEIR_DECODE_STORE : WEIR_DECODE_ADD);
  return status;
}
