/* One rank of `weir bench collectives`. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench_collectives.h"
#include "collectives/patterns/patterns.h"

#define TIMEOUT_S 30.0
#define LOOP_S 0.01 /* how long a loop shall at least last */
#define LOOP_MAX 1000

const char *const bench_kind_names[BENCH_KINDS] = {
    "all-reduce", "broadcast", "all-gather", "reduce-scatter", "reduce", "gather", "all-to-all"};

const char *weir_bench_row_name(bench_kind kind, guint32 row) {
  switch (kind) {
    case BENCH_ALLREDUCE: return row < WEIR_ALLREDUCE_COUNT ? weir_allreduces[row].name : NULL;
    case BENCH_BROADCAST: return row < WEIR_BROADCAST_COUNT ? weir_broadcasts[row].name : NULL;
    case BENCH_ALLGATHER: return row < WEIR_ALLGATHER_COUNT ? weir_allgathers[row].name : NULL;
    case BENCH_REDUCE_SCATTER:
      return row < WEIR_REDUCE_SCATTER_COUNT ? weir_reduce_scatters[row].name : NULL;
    case BENCH_REDUCE: return row < WEIR_REDUCE_COUNT ? weir_reduces[row].name : NULL;
    case BENCH_GATHER: return row < WEIR_GATHER_COUNT ? weir_gathers[row].name : NULL;
    case BENCH_ALLTOALL: return row < WEIR_ALLTOALL_COUNT ? weir_alltoalls[row].name : NULL;
    default: return NULL;
  }
}

typedef struct bench {
  const bench_plan *p;
  weir_transport *transport;
  weir_comm *comm;
  float *x, *y, *error; /* y: what all-to-all receives */
  guint64 step;
} bench;

static weir_status once(bench *b, guint32 row, gsize n) {
  const weir_value_format format = b->p->format;
  const gsize stride = n / (gsize)b->p->ranks * sizeof(float);
  gsize bytes = n * sizeof(float), out[RANKS_MAX], in[RANKS_MAX];
  for (int r = 0; r < b->p->ranks; r++) out[r] = stride;
  weir_comm_step(b->comm, 1, b->step++);
  switch (b->p->kind) {
    case BENCH_BROADCAST: return weir_broadcasts[row].run(b->comm, 0, b->x, bytes, &bytes);
    case BENCH_ALLGATHER: return weir_allgathers[row].run(b->comm, b->x, stride, out, NULL);
    case BENCH_REDUCE_SCATTER:
      return weir_reduce_scatters[row].run(b->comm, b->x, n, format, b->error);
    case BENCH_REDUCE: return weir_reduces[row].run(b->comm, 0, b->x, n, format, b->error);
    case BENCH_GATHER: return weir_gathers[row].run(b->comm, 0, b->x, stride, out);
    case BENCH_ALLTOALL: return weir_alltoalls[row].run(b->comm, b->x, out, b->y, in, stride);
    default: return weir_allreduces[row].run(b->comm, b->x, n, format, b->error, NULL);
  }
}

/* Small whole numbers: their sums are exact in every order, in bf16 too. */
static float value_at(int rank, gsize i) { return (float)(rank + (int)(i % 8)); }

/* What element i must be afterwards; FALSE where nothing is promised. */
static gboolean due_at(const bench *b, gsize n, gsize i, float *due) {
  const int rank = b->transport->rank, size = b->transport->size;
  const gsize block = n / (gsize)size;
  const weir_chunk own = weir_ring_chunk(n, size, rank);
  const gboolean sums = b->p->kind == BENCH_ALLREDUCE || b->p->kind == BENCH_REDUCE ||
                        b->p->kind == BENCH_REDUCE_SCATTER;
  *due = sums ? (float)(size * (size - 1) / 2 + size * (int)(i % 8)) : value_at(0, i);
  if (b->p->kind == BENCH_REDUCE_SCATTER) return i >= own.begin && i < own.begin + own.count;
  if (sums || b->p->kind == BENCH_BROADCAST) return b->p->kind != BENCH_REDUCE || rank == 0;
  if (i >= block * (gsize)size) return FALSE; /* what is left over of blocks of one length */
  *due = value_at((int)(i / block), b->p->kind == BENCH_ALLTOALL ? (gsize)rank : i);
  return b->p->kind != BENCH_GATHER || rank == 0;
}

/* Own values; -1 where others' shall come. */
static void fill(bench *b, gsize n) {
  const int rank = b->transport->rank;
  const gsize block = n / (gsize)b->p->ranks;
  for (gsize i = 0; i < n; i++) {
    const gboolean blocks = b->p->kind == BENCH_ALLGATHER || b->p->kind == BENCH_GATHER;
    const gboolean theirs = (blocks && i / block != (gsize)rank) ||
                            (b->p->kind == BENCH_BROADCAST && rank != 0);
    b->x[i] = theirs ? -1.0f : value_at(rank, b->p->kind == BENCH_ALLTOALL ? i / block : i);
    b->y[i] = -1.0f;
  }
}

static weir_status check(bench *b, guint32 row, gsize n, cell *c) {
  const int rank = b->transport->rank;
  fill(b, n);
  const guint64 before = b->transport->bytes_sent;
  const weir_status status = once(b, row, n);
  if (status != WEIR_OK) return status;
  c->wire[rank] = b->transport->bytes_sent - before;
  c->wrong[rank] = 0;
  const float *result = b->p->kind == BENCH_ALLTOALL ? b->y : b->x;
  for (gsize i = 0; i < n; i++) {
    float due;
    if (due_at(b, n, i, &due) && result[i] != due) c->wrong[rank]++;
  }
  memset(b->x, 0, n * sizeof *b->x); /* what is timed sums zeros, which never grow */
  return WEIR_OK;
}

/* The number of operations in a loop, the same on all ranks: rank 0's, carried by a broadcast. */
static weir_status agree(bench *b, guint32 algorithm, gsize n, guint32 *loop) {
  const double begin_s = weir_now_s();
  weir_status status = once(b, algorithm, n);
  const double each_s = weir_now_s() - begin_s;
  gsize bytes = sizeof *loop;
  *loop = each_s * LOOP_MAX <= LOOP_S ? LOOP_MAX : 1 + (guint32)(LOOP_S / each_s);
  weir_comm_step(b->comm, 1, b->step++);
  if (status == WEIR_OK) status = weir_broadcast(b->comm, 0, loop, sizeof *loop, &bytes);
  if (status == WEIR_OK && (bytes != sizeof *loop || *loop < 1 || *loop > LOOP_MAX))
    status = weir_fail(WEIR_E_PROTOCOL, "rank 0 wants a loop of %u operations", *loop);
  return status;
}

static weir_status measure(bench *b, guint32 algorithm, gsize n, cell *c) {
  guint32 loop = 1;
  weir_status status = check(b, algorithm, n, c);
  if (status == WEIR_OK) status = agree(b, algorithm, n, &loop);
  for (int repeat = 0; status == WEIR_OK && repeat < b->p->repeats; repeat++) {
    weir_comm_step(b->comm, 1, b->step++); /* all begin together: */
    status = weir_allreduces[WEIR_ALLREDUCE_TREE].run(b->comm, b->error, 1, WEIR_VALUE_FP32, NULL,
                                                      NULL);
    const double begin_s = weir_now_s();
    for (guint32 i = 0; status == WEIR_OK && i < loop; i++) status = once(b, algorithm, n);
    c->seconds[repeat][b->transport->rank] = (weir_now_s() - begin_s) / loop;
  }
  return status;
}

static weir_status join_group(bench *b, int rank) {
  const bench_plan *p = b->p;
  const weir_status status =
      strcmp(p->transport, "tcp") == 0
          ? weir_transport_tcp(&b->transport, p->where, NULL, p->job, rank, p->ranks, TIMEOUT_S)
          : weir_transport_shm(&b->transport, p->where, p->job, rank, p->ranks, TIMEOUT_S);
  return status == WEIR_OK ? weir_comm_create(&b->comm, b->transport, TIMEOUT_S) : status;
}

weir_status weir_bench_rank(const bench_plan *p, int rank) {
  bench b = {.p = p};
  gsize most = 1;
  for (gsize s = 0; s < p->sizes; s++) most = MAX(most, p->elements[s]);
  b.x = calloc(most, sizeof *b.x);
  b.y = calloc(most, sizeof *b.y);
  b.error = calloc(most, sizeof *b.error);
  weir_status status = b.x && b.y && b.error ? join_group(&b, rank)
                                      : weir_fail(WEIR_E_NOMEM, "no memory for %zu floats", most);
  for (guint32 a = 0; a < ROWS_MAX; a++)
    for (gsize s = 0; status == WEIR_OK && p->algorithm[a] && s < p->sizes; s++)
      status = measure(&b, a, p->elements[s], &p->board->cells[a * p->sizes + s]);
  weir_comm_free(b.comm);
  if (b.transport) b.transport->ops->destroy(b.transport);
  free(b.error);
  free(b.y);
  free(b.x);
  return status;
}
