/* All-reduce by recursive doubling: log2 N exchanges of all elements, the fewest hops there are (R.
 * Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH,
 * 2005).  Of N not a power of two the ranks left over fold their values into a neighbour's first.
 *
 * Before an exchange the ranks of a block of places hold the same partial sum, and both partners
 * add the same two: a + b on one, b + a on the other, which are the same bits.  In bf16 all of a
 * block round alike, and its first place alone keeps what that loses.  Headers travel with the
 * values. */
#include "collectives/algorithms/values.h"

typedef struct doubling {
  weir_comm *comm;
  weir_values values;
  weir_chunk all;
  size_t bytes;
  weir_headers *headers;
  size_t header;
  int rank;
  int size;
  int rounds;
  weir_halving place;
  void *out; /* staging; bf16 only */
  void *in;
} doubling;

static uint32_t hop_of(int round) { return (uint32_t)(2 + 2 * round); }

/* A rank outside of the core hands in its values and header, and waits for the result. */
static weir_status stand_by(doubling *d) {
  const size_t messages = d->header > 0 ? 2 : 1;
  const uint32_t back = hop_of(d->rounds);
  const int fold = d->place.fold;
  const weir_send send[2] = {{fold, weir_values_partial(&d->values, d->all, d->out), d->bytes, 0},
                             {fold, weir_headers_at(d->headers, d->rank), d->header, 1}};
  weir_status status = weir_comm_exchange(d->comm, send, messages, NULL, 0);
  if (status != WEIR_OK) return status;
  weir_recv recv[2] = {
      {fold, weir_values_place(&d->values, d->all, d->in), d->bytes, back, 0},
      {fold, weir_headers_at(d->headers, 0), d->header * (size_t)d->size, back + 1, 0}};
  status = weir_comm_exchange(d->comm, NULL, 0, recv, messages);
  if (status == WEIR_OK) weir_values_received(&d->values, d->all, d->in);
  return status;
}

static weir_status take_in(doubling *d) {
  const int from = d->place.fold;
  weir_recv recv[2] = {{from, d->in, d->bytes, 0, 0},
                       {from, weir_headers_at(d->headers, from), d->header, 1, 0}};
  const weir_status status = weir_comm_exchange(d->comm, NULL, 0, recv, d->header > 0 ? 2 : 1);
  if (status == WEIR_OK) weir_values_add(&d->values, d->all, d->in);
  return status;
}

static weir_status give_back(doubling *d) {
  const uint32_t back = hop_of(d->rounds);
  const weir_send send[2] = {
      {d->place.fold, weir_values_settled(&d->values, d->all, d->out), d->bytes, back},
      {d->place.fold, weir_headers_at(d->headers, 0), d->header * (size_t)d->size, back + 1}};
  return weir_comm_exchange(d->comm, send, d->header > 0 ? 2 : 1, NULL, 0);
}

/* Round what a block of `ranks` places holds alike, on all of them. */
static void settle(doubling *d, int ranks) {
  weir_values values = d->values;
  if (d->place.v % ranks != 0) values.error = NULL;
  weir_values_settle(&values, d->all, d->out);
}

static weir_status exchange(doubling *d, int round) {
  const int distance = 1 << round, own = d->place.v & ~(distance - 1), other = own ^ distance;
  const int peer = weir_halving_rank(d->place.v ^ distance, d->size);
  int own_first, own_ranks, other_first, other_ranks;
  weir_halving_ranks(own, distance, d->size, &own_first, &own_ranks);
  weir_halving_ranks(other, distance, d->size, &other_first, &other_ranks);
  settle(d, distance);
  const void *values = d->values.bf16 ? d->out : (const void *)d->values.x;
  const weir_send send[2] = {{peer, values, d->bytes, hop_of(round)},
                             {peer, weir_headers_at(d->headers, own_first),
                              d->header * (size_t)own_ranks, hop_of(round) + 1}};
  weir_recv recv[2] = {{peer, d->in, d->bytes, hop_of(round), 0},
                       {peer, weir_headers_at(d->headers, other_first),
                        d->header * (size_t)other_ranks, hop_of(round) + 1, 0}};
  const size_t messages = d->header > 0 ? 2 : 1;
  const weir_status status = weir_comm_exchange(d->comm, send, messages, recv, messages);
  if (status == WEIR_OK) weir_values_add(&d->values, d->all, d->in);
  return status;
}

weir_status weir_allreduce_doubling(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                    float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  doubling d = {
      .comm = comm, .all = {0, n}, .headers = headers, .header = weir_headers_bytes(headers)};
  d.values = weir_values_of(x, error, format);
  d.bytes = weir_values_bytes(&d.values, d.all);
  d.rank = weir_comm_rank(comm);
  d.size = weir_comm_size(comm);
  if (status != WEIR_OK || d.size == 1) return status;
  d.place = weir_halving_place(d.rank, d.size);
  d.rounds = weir_log2_ceil(d.place.core);
  const size_t room = d.bytes > 0 ? d.bytes : 1;
  status = weir_comm_scratch(comm, WEIR_SCRATCH_A, room, &d.in);
  if (status == WEIR_OK && d.values.bf16)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_B, room, &d.out);
  if (status != WEIR_OK) return status;
  if (d.place.v < 0) return stand_by(&d);
  if (d.place.fold >= 0) status = take_in(&d);
  for (int round = 0; status == WEIR_OK && round < d.rounds; round++) status = exchange(&d, round);
  if (status != WEIR_OK) return status;
  settle(&d, d.place.core);
  return d.place.fold >= 0 ? give_back(&d) : WEIR_OK;
}
