/* All-reduce by recursive halving and doubling: log2 N exchanges of half, a quarter, ... of the
 * elements, and the way back (R. Rabenseifner, Optimization of collective reduction operations,
 * 2004). Of N not a power of two the ranks left over fold their values into a neighbour's first.
 *
 * Each element is summed up on one rank of the core, in the order of the exchanges: fixed.  Headers
 * travel with the way back. */
#include "collectives/algorithms/values.h"

typedef struct halving {
  weir_comm *comm;
  weir_values values;
  size_t n;
  weir_headers *headers;
  int rank;
  int size;
  int rounds; /* log2 of the core */
  weir_halving place;
  void *partial; /* what is to be added; fp32 only */
} halving;

static weir_chunk whole(const halving *h) { return (weir_chunk){0, h->n}; }

/* The halves of the block of 2 * distance places this place lies in: its own, its partner's. */
static void blocks(const halving *h, int distance, int *own, int *other) {
  *own = h->place.v & ~(distance - 1);
  *other = *own ^ distance;
}

static weir_chunk range_of(const halving *h, int first, int count) {
  return weir_halving_range(h->n, h->place.core, first, count);
}

/* A rank outside of the core hands in its values and header, and waits for the result. */
static weir_status stand_by(halving *h) {
  const size_t header = weir_headers_bytes(h->headers), messages = header > 0 ? 2 : 1;
  const size_t bytes = weir_values_bytes(&h->values, whole(h));
  const uint32_t back = (uint32_t)(2 + 3 * h->rounds);
  const weir_send send[2] = {{h->place.fold, weir_values_pack(&h->values, whole(h)), bytes, 0},
                             {h->place.fold, weir_headers_at(h->headers, h->rank), header, 1}};
  weir_status status = weir_comm_exchange(h->comm, send, messages, NULL, 0);
  if (status != WEIR_OK) return status;
  weir_recv recv[2] = {
      {h->place.fold, h->values.x, bytes, back, 0},
      {h->place.fold, weir_headers_at(h->headers, 0), header * (size_t)h->size, back + 1, 0}};
  status = weir_comm_exchange(h->comm, NULL, 0, recv, messages);
  if (status == WEIR_OK) weir_values_unpack(&h->values, whole(h));
  return status;
}

static weir_status take_in(halving *h) {
  const size_t header = weir_headers_bytes(h->headers);
  const int from = h->place.fold;
  void *const room = weir_values_room(&h->values, whole(h), h->partial);
  weir_recv recv[2] = {{from, room, weir_values_bytes(&h->values, whole(h)), 0, 0},
                       {from, weir_headers_at(h->headers, from), header, 1, 0}};
  const weir_status status = weir_comm_exchange(h->comm, NULL, 0, recv, header > 0 ? 2 : 1);
  if (status == WEIR_OK) weir_values_take(&h->values, whole(h), room);
  return status;
}

static weir_status give_back(halving *h) {
  const size_t header = weir_headers_bytes(h->headers);
  const uint32_t back = (uint32_t)(2 + 3 * h->rounds);
  const weir_send send[2] = {
      {h->place.fold, weir_values_pack_settled(&h->values, whole(h)),
       weir_values_bytes(&h->values, whole(h)), back},
      {h->place.fold, weir_headers_at(h->headers, 0), header * (size_t)h->size, back + 1}};
  const weir_status status = weir_comm_exchange(h->comm, send, header > 0 ? 2 : 1, NULL, 0);
  weir_values_unpack(&h->values, whole(h));
  return status;
}

static weir_status reduce_scatter(halving *h) {
  for (int k = 0; k < h->rounds; k++) {
    const int distance = h->place.core >> (k + 1);
    int own, other;
    blocks(h, distance, &own, &other);
    const int peer = weir_halving_rank(h->place.v ^ distance, h->size);
    const weir_chunk kept = range_of(h, own, distance), given = range_of(h, other, distance);
    const uint32_t hop = (uint32_t)(2 + k);
    void *const room = weir_values_room(&h->values, kept, h->partial);
    const weir_send send = {peer, weir_values_pack(&h->values, given),
                            weir_values_bytes(&h->values, given), hop};
    weir_recv recv = {peer, room, weir_values_bytes(&h->values, kept), hop, 0};
    const weir_status status = weir_comm_exchange(h->comm, &send, 1, &recv, 1);
    if (status != WEIR_OK) return status;
    weir_values_take(&h->values, kept, room);
  }
  (void)weir_values_pack(&h->values, range_of(h, h->place.v, 1));
  weir_values_unpack(&h->values, range_of(h, h->place.v, 1));
  return WEIR_OK;
}

static weir_status all_gather(halving *h) {
  const size_t header = weir_headers_bytes(h->headers);
  for (int k = 0; k < h->rounds; k++) {
    const int distance = 1 << k;
    int own, other, own_first, own_ranks, other_first, other_ranks;
    blocks(h, distance, &own, &other);
    weir_halving_ranks(own, distance, h->size, &own_first, &own_ranks);
    weir_halving_ranks(other, distance, h->size, &other_first, &other_ranks);
    const int peer = weir_halving_rank(h->place.v ^ distance, h->size);
    const weir_chunk out = range_of(h, own, distance), in = range_of(h, other, distance);
    const uint32_t hop = (uint32_t)(2 + h->rounds + 2 * k);
    const weir_send send[2] = {
        {peer, weir_values_pack_settled(&h->values, out), weir_values_bytes(&h->values, out), hop},
        {peer, weir_headers_at(h->headers, own_first), header * (size_t)own_ranks, hop + 1}};
    weir_recv recv[2] = {
        {peer, h->values.x + in.begin, weir_values_bytes(&h->values, in), hop, 0},
        {peer, weir_headers_at(h->headers, other_first), header * (size_t)other_ranks, hop + 1, 0}};
    const size_t messages = header > 0 ? 2 : 1;
    const weir_status status = weir_comm_exchange(h->comm, send, messages, recv, messages);
    if (status != WEIR_OK) return status;
    weir_values_unpack(&h->values, out);
    weir_values_unpack(&h->values, in);
  }
  return WEIR_OK;
}

weir_status weir_allreduce_halving(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                   float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  halving h = {.comm = comm, .n = n, .headers = headers};
  h.values = weir_values_of(x, error, format);
  h.rank = weir_comm_rank(comm);
  h.size = weir_comm_size(comm);
  if (status != WEIR_OK || h.size == 1) return status;
  h.place = weir_halving_place(h.rank, h.size);
  h.rounds = weir_log2_ceil(h.place.core);
  const bool all = h.place.fold >= 0; /* a folding rank needs room for all elements at once */
  const size_t most = all ? n : range_of(&h, 0, h.place.core / 2).count;
  const size_t bytes = (most > 0 ? most : 1) * h.values.width;
  if (!h.values.bf16) status = weir_comm_scratch(comm, WEIR_SCRATCH_A, bytes, &h.partial);
  if (status != WEIR_OK) return status;
  if (h.place.v < 0) return stand_by(&h);
  if (h.place.fold >= 0) status = take_in(&h);
  if (status == WEIR_OK) status = reduce_scatter(&h);
  if (status == WEIR_OK) status = all_gather(&h);
  if (status == WEIR_OK && h.place.fold >= 0) status = give_back(&h);
  return status;
}
