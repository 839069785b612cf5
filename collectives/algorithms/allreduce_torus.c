/* All-reduce on a two-dimensional torus: reduce-scatter around each row, all-reduce of what a rank
 * then owns around its column, all-gather around the row; as many bytes as one ring, but
 * 2 (rows + columns - 2) hops instead of 2 (N - 1) (as in the HiTopKComm paper's 2DTAR).  Rows lie
 * inside of machines, columns between them (weir_torus_grid).  Of a prime number of ranks on one
 * machine there is one row, which is a ring.
 *
 * The order of summing is that of the rings: fixed.  Headers go round in the all-gathers, first
 * those of a column, then whole columns along the row. */
#include "collectives/algorithms/values.h"

typedef struct torus {
  weir_comm *comm;
  weir_values values;
  weir_headers *headers;
  weir_torus grid;
  void *partial; /* what is to be added; fp32 only */
  uint32_t hop;
} torus;

/* One ring of the torus, a row or a column. */
typedef struct line {
  const weir_torus *grid;
  int row, column; /* of this rank */
  bool along;      /* the row */
  int size;
  int self;
  weir_chunk all; /* the elements it works on */
} line;

static weir_chunk piece(const line *l, int i) {
  const weir_chunk c = weir_ring_chunk(l->all.count, l->size, i);
  return (weir_chunk){l->all.begin + c.begin, c.count};
}

static int member(const line *l, int i) {
  return l->along ? weir_torus_rank(l->grid, l->row, i % l->size)
                  : weir_torus_rank(l->grid, i % l->size, l->column);
}
static int right_of(const line *l) { return member(l, l->self + 1); }
static int left_of(const line *l) { return member(l, l->self + l->size - 1); }

static weir_status reduce_scatter(torus *t, const line *l) {
  for (int hop = 0; hop < l->size - 1; hop++, t->hop++) {
    const weir_chunk out = piece(l, weir_ring_reduce_send(l->self, l->size, hop));
    const weir_chunk in = piece(l, weir_ring_reduce_recv(l->self, l->size, hop));
    void *const room = weir_values_room(&t->values, in, t->partial);
    const weir_send send = {right_of(l), weir_values_pack(&t->values, out),
                            weir_values_bytes(&t->values, out), t->hop};
    weir_recv recv = {left_of(l), room, weir_values_bytes(&t->values, in), t->hop, 0};
    const weir_status status = weir_comm_exchange(t->comm, &send, 1, &recv, 1);
    if (status != WEIR_OK) return status;
    weir_values_take(&t->values, in, room);
  }
  return WEIR_OK;
}

/* The i-th header that travels with what member m of the line owns: its own, around a column; those
 * of its column from this row on, around a row. */
static void *header_of(const torus *t, const line *l, int m, int i) {
  const int row = l->along ? (l->row + i) % t->grid.rows : m % l->size;
  const int column = l->along ? m % l->size : l->column;
  return weir_headers_at(t->headers, weir_torus_rank(&t->grid, row, column));
}

/* Own pieces come in packed, and all of the line's go out as values. */
static weir_status all_gather(torus *t, const line *l) {
  const int header_count = l->along ? t->grid.rows : 1;
  const size_t header = weir_headers_bytes(t->headers);
  const int headers = header > 0 ? header_count : 0;
  for (int hop = 0; hop < l->size - 1; hop++, t->hop += (uint32_t)(1 + header_count)) {
    const weir_chunk out = piece(l, weir_ring_gather_send(l->self, l->size, hop));
    const weir_chunk in = piece(l, weir_ring_gather_recv(l->self, l->size, hop));
    const int sent = l->self + l->size - hop, taken = l->self + 2 * l->size - 1 - hop;
    weir_send *send = t->comm->send;
    weir_recv *recv = t->comm->recv;
    send[0] = (weir_send){right_of(l), t->values.x + out.begin, weir_values_bytes(&t->values, out),
                          t->hop};
    recv[0] = (weir_recv){left_of(l), t->values.x + in.begin, weir_values_bytes(&t->values, in),
                          t->hop, 0};
    for (int i = 0; i < headers; i++) {
      const uint32_t number = t->hop + 1 + (uint32_t)i;
      send[i + 1] = (weir_send){right_of(l), header_of(t, l, sent, i), header, number};
      recv[i + 1] = (weir_recv){left_of(l), header_of(t, l, taken, i), header, number, 0};
    }
    const weir_status status =
        weir_comm_exchange(t->comm, send, (size_t)headers + 1, recv, (size_t)headers + 1);
    if (status != WEIR_OK) return status;
    weir_values_unpack(&t->values, out);
    if (hop + 2 == l->size) weir_values_unpack(&t->values, in);
  }
  return WEIR_OK;
}

static weir_status prepare(torus *t, size_t n) {
  const size_t most = weir_ring_chunk(n, t->grid.columns, 0).count;
  const size_t bytes = (most > 0 ? most : 1) * t->values.width;
  return t->values.bf16 ? WEIR_OK : weir_comm_scratch(t->comm, WEIR_SCRATCH_A, bytes, &t->partial);
}

weir_status weir_allreduce_torus(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                 float *error, weir_headers *headers) {
  weir_status status = weir_comm_begin(comm, headers);
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  if (status != WEIR_OK || size == 1) return status;
  torus t = {.comm = comm,
             .values = weir_values_of(x, error, format),
             .headers = headers,
             .grid = weir_torus_grid(comm->hosts.of, size, comm->hosts.count)};
  status = prepare(&t, n);
  if (status != WEIR_OK) return status;
  int row, column;
  weir_torus_place(&t.grid, rank, &row, &column);
  const line along = {&t.grid, row, column, true, t.grid.columns, column, {0, n}};
  const line down = {&t.grid,
                     row,
                     column,
                     false,
                     t.grid.rows,
                     row,
                     piece(&along, weir_ring_owned(column, t.grid.columns))};
  status = reduce_scatter(&t, &along);
  if (status == WEIR_OK) status = reduce_scatter(&t, &down);
  if (status != WEIR_OK) return status;
  (void)weir_values_pack(&t.values, piece(&down, weir_ring_owned(row, t.grid.rows)));
  status = all_gather(&t, &down);
  if (status != WEIR_OK) return status;
  if (t.grid.rows > 1) (void)weir_values_pack_settled(&t.values, down.all);
  /* Now a rank has its whole column's headers. */
  return all_gather(&t, &along);
}
