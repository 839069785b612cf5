/* One rank of `weir bench grid`. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "collectives/calibrate.h"
#include "collectives/collective.h"
#include "grid.h"

#define TIMEOUT_S 120.0
#define PORT 7800
#define TELL_S 5.0 /* between two lines of progress */
#define PAGE 4096
#define PAUSE_LEAST_S 0.002
#define PAUSE_MOST_S 0.02

typedef struct bench {
  grid_plan *p;
  weir_transport *transport;
  weir_comm *comm;
  float *x, *y;
  guint64 step;
  long
      pause_ns; /* between two operations: token buckets are full again, and answers have come in */
} bench;

static weir_status once(bench *b, const grid_part *part) {
  gsize bytes = part->bytes, out[GRID_RANKS];
  const gsize n = bytes / sizeof(float);
  for (int r = 0; r < b->p->workers; r++) out[r] = bytes;
  switch (part->kind) {
    case WEIR_KIND_BROADCAST:
      return weir_broadcasts[part->row].run(b->comm, 0, b->x, bytes, &bytes);
    case WEIR_KIND_ALLGATHER:
      return weir_allgathers[part->row].run(b->comm, b->x, bytes, out, NULL);
    case WEIR_KIND_REDUCE_SCATTER:
      return weir_reduce_scatters[part->row].run(b->comm, b->x, n, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_REDUCE:
      return weir_reduces[part->row].run(b->comm, 0, b->x, n, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_GATHER: return weir_gathers[part->row].run(b->comm, 0, b->x, bytes, out);
    default: return weir_allreduces[part->row].run(b->comm, b->x, n, WEIR_VALUE_FP32, NULL, NULL);
  }
}

/* All begin together: these ranks are processes of one machine, which can wait for one another
 * without a message. */
static weir_status measure(bench *b, const grid_op *op, int repeat, grid_cell *cell) {
  const int rank = b->transport->rank;
  weir_status status = WEIR_OK;
  const struct timespec pause = {.tv_nsec = b->pause_ns};
  (void)nanosleep(&pause, NULL);
  (void)pthread_barrier_wait(&b->p->board->barrier);
  cell->begin_s[repeat][rank] = weir_now_s();
  weir_comm_step(b->comm, 1, b->step++);
  for (int part = 0; part < op->parts && status == WEIR_OK; part++)
    status = once(b, &op->part[part]);
  cell->end_s[repeat][rank] = weir_now_s();
  if (rank == 0) cell->repeats = repeat + 1;
  return status;
}

/* Progress, now and then: seconds are predicted ones of what is done and of everything. */
static void tell(const bench *b, double begin_s, double done, double all, double *told_s) {
  const double now_s = weir_now_s();
  if (b->transport->rank != 0 || now_s < *told_s + TELL_S || !(done > 0)) return;
  *told_s = now_s;
  fprintf(stderr, "  %.0f %% in %.0f s, about %.0f s to go\n", 100 * done / all, now_s - begin_s,
          (now_s - begin_s) * (all - done) / done);
}

/* All operations, and all again: whatever else the machine does for a while shall not hit all
 * repeats of one of them. */
static weir_status measure_all(bench *b, const weir_link *link) {
  const grid_plan *p = b->p;
  int repeats[GRID_OPS];
  double due[GRID_OPS], all = 0, done = 0;
  weir_status status = WEIR_OK;
  b->pause_ns = (long)(1e9 * CLAMP(4 * link->burst * link->beta, PAUSE_LEAST_S, PAUSE_MOST_S));
  weir_grid_allot(p, link, repeats);
  for (int i = 0; i < p->ops; i++) {
    due[i] = weir_grid_predict(p->workers, link, &p->op[i]);
    all += repeats[i] * due[i];
  }
  const double begin_s = weir_now_s();
  double told_s = begin_s;
  for (int repeat = 0; repeat < GRID_REPEATS; repeat++)
    for (int i = 0; i < p->ops && status == WEIR_OK; i++) {
      if (repeat >= repeats[i]) continue;
      status = measure(b, &p->op[i], repeat, &p->board->cell[i]);
      done += due[i];
      tell(b, begin_s, done, all, &told_s);
    }
  return status;
}

static weir_status join_group(bench *b, int rank) {
  char where[WEIR_ADDRESS_MAX + 8], own[WEIR_ADDRESS_MAX], first[WEIR_ADDRESS_MAX];
  weir_topology_address(rank, own);
  weir_topology_address(0, first);
  (void)g_snprintf(where, sizeof where, "%s:%d", first, PORT);
  /* The cost rows are of the network; the cipher's time would be this machine's. */
  weir_status status = weir_transport_tcp_open(
      &b->transport, &(weir_tcp_options){.rendezvous = where,
                                         .bind_address = own,
                                         .secret = b->p->secret,
                                         .secret_bytes = sizeof b->p->secret,
                                         .plain = true,
                                         .job_id = b->p->job,
                                         .rank = rank,
                                         .size = b->p->workers,
                                         .timeout_s = TIMEOUT_S});
  if (status == WEIR_OK) status = weir_comm_create(&b->comm, b->transport, TIMEOUT_S);
  return status == WEIR_OK ? weir_comm_find_hosts(b->comm, weir_host_identity(NULL)) : status;
}

/* Memory of so many bytes, 0, all of it touched: what is measured shall not pay for that. */
static float *room(gsize bytes) {
  volatile unsigned char *memory = calloc(1, bytes);
  for (gsize i = 0; memory && i < bytes; i += PAGE) memory[i] = 0;
  return (float *)(void *)(guintptr)memory;
}

weir_status weir_grid_rank(grid_plan *p, int rank) {
  bench b = {.p = p};
  gsize most = 1;
  for (int i = 0; i < p->ops; i++)
    for (int k = 0; k < p->op[i].parts; k++) {
      const grid_part *part = &p->op[i].part[k];
      const gboolean blocks = part->kind == WEIR_KIND_ALLGATHER || part->kind == WEIR_KIND_GATHER;
      most = MAX(most, part->bytes * (blocks ? (gsize)p->workers : 1));
    }
  b.x = room(most);
  b.y = room(most);
  weir_link link = {0};
  weir_status status =
      b.x && b.y ? join_group(&b, rank) : weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes", most);
  /* Every connection has carried something before anything is measured. */
  const grid_part warm = {WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_DIRECT, 32768};
  if (status == WEIR_OK) {
    weir_comm_step(b.comm, 2, 0);
    status = once(&b, &warm);
  }
  if (status == WEIR_OK) status = weir_calibrate(b.comm, &link);
  if (rank == 0) p->link = link;
  if (status == WEIR_OK) status = measure_all(&b, &link);
  weir_comm_free(b.comm);
  if (b.transport) b.transport->ops->destroy(b.transport);
  free(b.y);
  free(b.x);
  return status;
}
