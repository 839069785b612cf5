/* One rank of `weir bench collectives`. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench_collectives.h"

#define TIMEOUT_S 30.0
#define LOOP_S 0.01 /* how long a loop shall at least last */
#define LOOP_MAX 1000

typedef struct bench {
  const bench_plan *p;
  weir_transport *transport;
  weir_comm *comm;
  float *x, *error;
  guint64 step;
} bench;

static weir_status once(bench *b, guint32 algorithm, gsize n) {
  weir_comm_step(b->comm, 1, b->step++);
  return weir_allreduces[algorithm].run(b->comm, b->x, n, b->p->format, b->error, NULL);
}

/* Small whole numbers: their sums are exact in every order, in bf16 too. */
static float value_at(int rank, gsize i) { return (float)(rank + (int)(i % 8)); }

static weir_status check(bench *b, guint32 algorithm, gsize n, cell *c) {
  const int rank = b->transport->rank, size = b->transport->size;
  for (gsize i = 0; i < n; i++) b->x[i] = value_at(rank, i);
  const guint64 before = b->transport->bytes_sent;
  const weir_status status = once(b, algorithm, n);
  if (status != WEIR_OK) return status;
  c->wire[rank] = b->transport->bytes_sent - before;
  c->wrong[rank] = 0;
  for (gsize i = 0; i < n; i++) {
    const float due = (float)(size * (size - 1) / 2 + size * (int)(i % 8));
    if (b->x[i] != due) c->wrong[rank]++;
    b->x[i] = 0.0f; /* what is timed sums zeros, which never grow */
  }
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
    status = once(b, WEIR_ALLREDUCE_TREE, 1); /* all begin together */
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
  b.error = calloc(most, sizeof *b.error);
  weir_status status = b.x && b.error ? join_group(&b, rank)
                                      : weir_fail(WEIR_E_NOMEM, "no memory for %zu floats", most);
  for (guint32 a = 0; a < WEIR_ALLREDUCE_COUNT; a++)
    for (gsize s = 0; status == WEIR_OK && p->algorithm[a] && s < p->sizes; s++)
      status = measure(&b, a, p->elements[s], &p->board->cells[a * p->sizes + s]);
  weir_comm_free(b.comm);
  if (b.transport) b.transport->ops->destroy(b.transport);
  free(b.error);
  free(b.x);
  return status;
}
