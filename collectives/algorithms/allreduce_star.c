/* All-reduce through rank 0, as with a parameter server: 2 hops, all of it over rank 0's link.
 *
 * Rank 0 adds in the order of ranks: fixed. */
#include "collectives/algorithms/values.h"

typedef struct star {
  weir_comm *comm;
  weir_values values;
  weir_chunk all;
  size_t bytes;
  weir_headers *headers;
  size_t header;
  int size;
  void *staging; /* what is to be added; fp32 only */
} star;

enum { HOP_UP = 0, HOP_DOWN = 2 }; /* a header's number follows its values' */

static weir_status serve(star *s) {
  void *const room = weir_values_room(&s->values, s->all, s->staging);
  for (int r = 1; r < s->size; r++) {
    weir_recv recv[2] = {{r, room, s->bytes, HOP_UP, 0},
                         {r, weir_headers_at(s->headers, r), s->header, HOP_UP + 1, 0}};
    const weir_status status = weir_comm_exchange(s->comm, NULL, 0, recv, s->header > 0 ? 2 : 1);
    if (status != WEIR_OK) return status;
    weir_values_take(&s->values, s->all, room);
  }
  const void *sum = weir_values_pack(&s->values, s->all);
  size_t sends = 0;
  for (int r = 1; r < s->size; r++) {
    s->comm->send[sends++] = (weir_send){r, sum, s->bytes, HOP_DOWN};
    if (s->header > 0)
      s->comm->send[sends++] =
          (weir_send){r, weir_headers_at(s->headers, 0), s->header * (size_t)s->size, HOP_DOWN + 1};
  }
  const weir_status status = weir_comm_exchange(s->comm, s->comm->send, sends, NULL, 0);
  if (status == WEIR_OK) weir_values_unpack(&s->values, s->all);
  return status;
}

static weir_status call(star *s, int rank) {
  const size_t messages = s->header > 0 ? 2 : 1;
  const weir_send send[2] = {{0, weir_values_pack(&s->values, s->all), s->bytes, HOP_UP},
                             {0, weir_headers_at(s->headers, rank), s->header, HOP_UP + 1}};
  weir_status status = weir_comm_exchange(s->comm, send, messages, NULL, 0);
  if (status != WEIR_OK) return status;
  weir_recv recv[2] = {
      {0, s->values.x, s->bytes, HOP_DOWN, 0},
      {0, weir_headers_at(s->headers, 0), s->header * (size_t)s->size, HOP_DOWN + 1, 0}};
  status = weir_comm_exchange(s->comm, NULL, 0, recv, messages);
  if (status == WEIR_OK) weir_values_unpack(&s->values, s->all);
  return status;
}

weir_status weir_allreduce_star(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  star s = {.comm = comm, .all = {0, n}, .headers = headers, .header = weir_headers_bytes(headers)};
  s.values = weir_values_of(x, error, format);
  s.size = weir_comm_size(comm);
  s.bytes = weir_values_bytes(&s.values, s.all);
  if (status != WEIR_OK || s.size == 1) return status;
  const int rank = weir_comm_rank(comm);
  if (rank == 0 && !s.values.bf16)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, s.bytes > 0 ? s.bytes : 1, &s.staging);
  if (status != WEIR_OK) return status;
  return rank == 0 ? serve(&s) : call(&s, rank);
}
