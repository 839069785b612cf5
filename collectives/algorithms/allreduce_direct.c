/* All-reduce in one hop: every rank sends all of its values to every other and sums up by itself.
 * One latency, the least there can be, for N - 1 times the bytes: for messages so short that their
 * bytes do not matter, between ranks that do not share processors.
 *
 * All add in the order of ranks, from rank 0's values on: the same bits.  In bf16 all round the
 * sum alike, and rank 0 alone keeps what that loses. */
#include <string.h>

#include "collectives/algorithms/values.h"

typedef struct direct {
  weir_comm *comm;
  weir_values values;
  weir_chunk all;
  size_t bytes;
  weir_headers *headers;
  int rank;
  int size;
  unsigned char *slot; /* size of them, a rank's values each */
} direct;

static void *slot_of(const direct *d, int rank) { return d->slot + (size_t)rank * d->bytes; }

static weir_status exchange(direct *d) {
  const void *own = weir_values_partial(&d->values, d->all, slot_of(d, d->rank));
  const size_t others = (size_t)d->size - 1;
  weir_recv *recv = d->comm->recv;
  for (size_t i = 0; i < others; i++) {
    const int from = weir_rotation_from(d->rank, d->size, (int)i + 1);
    recv[i] = (weir_recv){from, slot_of(d, from), d->bytes, 0, 0};
  }
  const weir_status status = weir_comm_to_all(d->comm, own, d->bytes, 0, d->headers);
  return status == WEIR_OK ? weir_comm_expect(d->comm, recv, others) : status;
}

static void sum_up(direct *d) {
  weir_values *v = &d->values;
  if (!v->bf16 && d->rank > 0) {
    memcpy(slot_of(d, d->rank), v->x, d->bytes);
    memcpy(v->x, slot_of(d, 0), d->bytes);
  }
  weir_values_received(v, d->all, slot_of(d, 0));
  for (int r = 1; r < d->size; r++) weir_values_add(v, d->all, slot_of(d, r));
  if (d->rank > 0) v->error = NULL;
  weir_values_settle(v, d->all, d->slot);
}

weir_status weir_allreduce_direct(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                  float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  direct d = {.comm = comm, .all = {0, n}, .headers = headers};
  d.values = weir_values_of(x, error, format);
  d.bytes = weir_values_bytes(&d.values, d.all);
  d.rank = weir_comm_rank(comm);
  d.size = weir_comm_size(comm);
  if (status != WEIR_OK || d.size == 1) return status;
  void *slots = NULL;
  status =
      weir_comm_scratch(comm, WEIR_SCRATCH_A, d.bytes > 0 ? d.bytes * (size_t)d.size : 1, &slots);
  d.slot = slots;
  if (status == WEIR_OK) status = exchange(&d);
  if (status == WEIR_OK && n > 0) sum_up(&d);
  return status;
}
