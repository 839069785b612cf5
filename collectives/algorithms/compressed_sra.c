/* Scatter-reduce-allgather: every rank gets its share of all others' values, encoded, and adds them
 * to its own in the order of ranks; the sum, encoded again, goes to all (CGX, section 3).  Both
 * rounds go straight from everybody to everybody, so that they take two latencies whatever N. Two
 * encodings on any value's way, the least of the three schemes.
 *
 * Messages to others take the place of what is in them.  Messages from others lie behind them;
 * where two are longer than what they are of (half precision), shares go in halves: those of the
 * first come in where the second's errors will be, those of the second where the first's were sent
 * from.
 *
 * With coder->huffman messages are shortened where they lie before they are sent, and restored
 * where they came in, before they are read.
 *
 * Where messages stay (coder->stays) each has a place of its own in its rank's room, and ranks meet
 * instead of sending them. */
#include <string.h>

#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

typedef struct sra {
  weir_comm *comm;
  const weir_coder *coder;
  float *x, *error;
  size_t n, stride;
  int rank, size;
  int parts;            /* of a share, that go one after the other: 1 or 2 */
  unsigned char *small; /* for shares shorter than their messages: those sent, those received */
} sra;

static weir_chunk share_of(const sra *s, int r) { return weir_ring_chunk(s->n, s->size, r); }

static weir_chunk part_of(const sra *s, int r, int part) {
  const weir_chunk share = share_of(s, r), c = weir_ring_chunk(share.count, s->parts, part);
  return (weir_chunk){share.begin + c.begin, c.count};
}

/* Where messages stay: rank `from`'s to rank `to`, and that of its sum. */
static unsigned char *left_by(const sra *s, int from, int to, int part) {
  return s->coder->ops->room_of(s->coder->user, from) + (size_t)(part * s->size + to) * s->stride;
}

static unsigned char *sum_left_by(const sra *s, int from) { return left_by(s, from, 0, s->parts); }

size_t weir_sra_stays(const weir_coder *coder, size_t n, int ranks) {
  bool small = false;
  const size_t parts = (size_t)weir_sra_parts(coder, n, ranks, &small);
  return (parts * (size_t)ranks + 1) * weir_coder_bound(coder, weir_ring_chunk(n, ranks, 0).count);
}

static unsigned char *out_of(const sra *s, int r, int part) {
  if (s->coder->stays) return left_by(s, s->rank, r, part);
  return s->small ? s->small + (size_t)r * s->stride
                  : (unsigned char *)(s->x + part_of(s, r, part).begin);
}

/* Where rank r's message comes in. */
static unsigned char *in_of(const sra *s, int r, int part) {
  if (s->coder->stays) return left_by(s, r, s->rank, part);
  if (s->small) return s->small + (size_t)(s->size + r) * s->stride;
  if (s->parts == 2)
    return (unsigned char *)((part == 0 ? s->error : s->x) + part_of(s, r, 1 - part).begin);
  const weir_chunk share = share_of(s, r);
  return (unsigned char *)(s->x + share.begin) + weir_coder_bound(s->coder, share.count);
}

/* The longest half of a share has to fit the shortest, and a sum all shares. */
int weir_sra_parts(const weir_coder *coder, size_t n, int ranks, bool *small) {
  const size_t most = weir_ring_chunk(n, ranks, 0).count;
  const size_t least = weir_ring_chunk(n, ranks, ranks - 1).count;
  const bool at_once = weir_coder_fits(coder, 2, most, least);
  *small = !at_once && !(weir_coder_fits(coder, 1, most / 2 + 1, least / 2) &&
                         weir_coder_fits(coder, 1, most, least));
  return at_once || *small ? 1 : 2;
}

static weir_status prepare(sra *s) {
  bool is_small = false;
  s->parts = weir_sra_parts(s->coder, s->n, s->size, &is_small); /* on all ranks as many */
  s->small = s->coder->room;
  s->stride = weir_coder_bound(s->coder, share_of(s, 0).count);
  if (!is_small || s->coder->ops != NULL) return WEIR_OK;
  void *small = NULL;
  const weir_status status =
      weir_comm_scratch(s->comm, WEIR_SCRATCH_A, 2 * (size_t)s->size * s->stride + 1, &small);
  s->small = small;
  return status;
}

static weir_status encode(sra *s, int r, int part, uint32_t draw, size_t *bytes) {
  const weir_chunk c = part_of(s, r, part);
  return weir_coder_encode(s->coder, s->x, s->error, c, s->rank, draw, out_of(s, r, part), bytes);
}

/* Straight from everybody to everybody.  Others' values are added to one's own, which has not been
 * rounded. */
static weir_status scatter(sra *s, int part) {
  const weir_chunk own = part_of(s, s->rank, part);
  weir_send *send = s->comm->send;
  weir_recv *recv = s->comm->recv;
  size_t messages = 0;
  weir_status status = WEIR_OK;
  for (int i = 1; i < s->size && status == WEIR_OK; i++, messages++) { /* all begin elsewhere */
    const int to = weir_rotation_to(s->rank, s->size, i);
    const int from = weir_rotation_from(s->rank, s->size, i);
    send[messages] = (weir_send){to, out_of(s, to, part), 0, (uint32_t)part};
    recv[messages] = (weir_recv){from, in_of(s, from, part), weir_coder_bound(s->coder, own.count),
                                 (uint32_t)part, 0};
    status = encode(s, to, part, (uint32_t)(to * 2 + part), &send[messages].bytes);
  }
  if (status == WEIR_OK) status = weir_coder_await(s->coder);
  for (size_t i = 0; i < messages && status == WEIR_OK; i++)
    status = weir_coder_shorten(s->comm, s->coder, out_of(s, send[i].peer, part),
                                part_of(s, send[i].peer, part).count, &send[i].bytes);
  if (status == WEIR_OK)
    status = s->coder->stays ? weir_comm_meet(s->comm, NULL)
                             : weir_comm_transfer(s->comm, send, messages, recv, messages);
  for (size_t i = 0; i < messages && status == WEIR_OK && !s->coder->stays; i++)
    status = weir_coder_take(s->comm, s->coder, &recv[i], own.count);
  for (int r = 0; r < s->size && status == WEIR_OK; r++)
    if (r != s->rank)
      status =
          weir_coder_decode(s->comm, s->coder, r, in_of(s, r, part), s->x, own, WEIR_DECODE_ADD);
  return status;
}

/* Where the message of rank r's sum comes in: one share's floats apart, behind those that the
 * longer shares have more. */
static unsigned char *sum_of(const sra *s, int r) {
  if (s->coder->stays) return sum_left_by(s, r);
  const size_t ranks = (size_t)s->size, each = s->n / ranks, longer = s->n % ranks;
  return s->small ? s->small + (size_t)r * s->stride
                  : (unsigned char *)(s->x + longer + (size_t)r * each);
}

/* Everybody's sum and header to everybody: shortened for the others, and restored for this rank. */
static weir_status pass_sums(sra *s, unsigned char *mine, size_t bytes, weir_headers *headers) {
  const size_t count = share_of(s, s->rank).count, others = (size_t)s->size - 1;
  weir_recv *recv = s->comm->recv;
  for (size_t i = 0; i < others; i++) {
    const int from = weir_rotation_from(s->rank, s->size, (int)i + 1);
    recv[i] = (weir_recv){from, sum_of(s, from),
                          weir_coder_bound(s->coder, share_of(s, from).count), 0, 0};
  }
  weir_status status = weir_coder_shorten(s->comm, s->coder, mine, count, &bytes);
  if (status == WEIR_OK)
    status = weir_comm_to_all(s->comm, mine, bytes, (uint32_t)s->parts, headers);
  for (size_t i = 0; i < others && status == WEIR_OK; i++)
    status = weir_coder_take(s->comm, s->coder, &recv[i], share_of(s, recv[i].peer).count);
  return status == WEIR_OK ? weir_coder_restore(s->comm, s->coder, s->rank, mine, count, bytes)
                           : status;
}

/* From where it came in each message goes down to its place, and becomes its values. */
static weir_status gather(sra *s, weir_headers *headers) {
  unsigned char *const mine = sum_of(s, s->rank);
  const weir_chunk own = share_of(s, s->rank);
  const bool apart = s->small != NULL || s->coder->stays;
  void *const out = apart ? (void *)mine : (void *)(s->x + own.begin);
  size_t bytes = 0;
  weir_status status =
      weir_coder_encode(s->coder, s->x, s->error, own, s->rank, 2 * (uint32_t)s->size, out, &bytes);
  if (status == WEIR_OK) status = weir_coder_await(s->coder);
  if (status != WEIR_OK) return status;
  if (out != mine) memmove(mine, out, bytes);
  status = s->coder->stays ? weir_comm_meet(s->comm, headers) : pass_sums(s, mine, bytes, headers);
  for (int r = 0; r < s->size && status == WEIR_OK; r++) {
    const weir_chunk c = share_of(s, r);
    void *message = sum_of(s, r);
    if (!apart) message = memmove(s->x + c.begin, message, weir_coder_bound(s->coder, c.count));
    status = weir_coder_decode(s->comm, s->coder, r, message, s->x, c, WEIR_DECODE_STORE);
  }
  return status;
}

weir_status weir_compressed_sra(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                float *error, weir_headers *headers) {
  sra s = {.comm = comm, .coder = coder, .x = x, .error = error, .n = n};
  s.rank = weir_comm_rank(comm);
  s.size = weir_comm_size(comm);
  weir_status status = weir_comm_begin(comm, headers);
  if (status == WEIR_OK && s.size == 1) return weir_coder_alone(coder, error, n);
  if (status != WEIR_OK || s.size == 1) return status;
  status = prepare(&s);
  for (int part = 0; part < s.parts && status == WEIR_OK; part++) status = scatter(&s, part);
  return status == WEIR_OK ? gather(&s, headers) : status;
}
