/* One rank of `weir bench grid`, and what there is to measure. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench_grid.h"
#include "collectives/calibrate.h"
#include "collectives/collective.h"
#include "collectives/select.h"
#include "kernels/codec.h"

#define TIMEOUT_S 120.0
#define PORT 7800
static const gsize gradients[] = {256u << 10, 1u << 20, 4u << 20};
static const double ratios[] = {0.1, 0.01, 0.001};
#define LONGEST_S 8.0 /* what takes longer on such a link is left out */

static void add(grid_plan *p, const char *name, gsize gradient, double cr, int parts, grid_part first,
                grid_part second, double rate) {
  grid_op op = {name, gradient, cr, parts, {first, second}};
  const weir_link link = {.beta = 1 / rate};
  p->op[p->ops] = op;
  weir_cost cost = {.messages = 0};
  for (int i = 0; i < parts; i++)
    cost = weir_cost_sum(cost, weir_cost_row(op.part[i].kind, op.part[i].row,
                                             (weir_group_shape){p->workers, p->workers}, &link,
                                             (double)op.part[i].bytes));
  if (weir_cost_predict(&cost, &link) < LONGEST_S && p->ops < GRID_OPS - 1) p->ops++;
}

/* Rows that differ from flat ones with several ranks on a machine only, which here there are not. */
static gboolean is_flat(weir_kind kind, guint32 row) {
  return kind != WEIR_KIND_ALLREDUCE || row <= WEIR_ALLREDUCE_STAR;
}

void weir_grid_operations(grid_plan *p, int workers, double rate) {
  static const char *const names[WEIR_KIND_COUNT] = {"all-reduce", "broadcast", "all-gather",
                                                     "reduce-scatter", "reduce", "gather",
                                                     "all-to-all"};
  const grid_part none = {.bytes = 0};
  p->workers = workers;
  p->ops = 0;
  for (gsize g = 0; g < G_N_ELEMENTS(gradients); g++) {
    const gsize bytes = gradients[g], elements = bytes / 4;
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++)
      for (guint32 row = 0; row < weir_rows((weir_kind)kind); row++) {
        const gboolean blocks = kind == WEIR_KIND_ALLGATHER || kind == WEIR_KIND_GATHER ||
                                kind == WEIR_KIND_ALLTOALL;
        const grid_part part = {(weir_kind)kind, row, blocks ? bytes / (gsize)workers : bytes};
        if (is_flat((weir_kind)kind, row)) add(p, names[kind], bytes, 1, 1, part, none, rate);
      }
    for (gsize r = 0; r < G_N_ELEMENTS(ratios); r++) {
      const gsize kept = (gsize)(ratios[r] * (double)elements);
      const gsize pairs = (gsize)weir_wire_expected(elements, kept, WEIR_WIRE_AUTO_FP32, true);
      const gsize list = (gsize)weir_wire_expected(elements, kept, WEIR_WIRE_AUTO_FP32, false);
      for (guint32 row = 0; row < WEIR_ALLGATHER_COUNT; row++)
        add(p, "ag", bytes, ratios[r], 1, (grid_part){WEIR_KIND_ALLGATHER, row, pairs}, none, rate);
      for (guint32 row = 0; row <= WEIR_ALLREDUCE_STAR; row++)
        add(p, "art", bytes, ratios[r], 2,
            (grid_part){WEIR_KIND_BROADCAST, WEIR_BROADCAST_BINOMIAL, list},
            (grid_part){WEIR_KIND_ALLREDUCE, row, kept * 4}, rate);
    }
  }
}

double weir_grid_predict(const grid_plan *p, const grid_op *op) {
  double seconds = 0;
  for (int i = 0; i < op->parts; i++) {
    const weir_cost cost =
        weir_cost_row(op->part[i].kind, op->part[i].row,
                      (weir_group_shape){p->workers, p->workers}, &p->board->link,
                      (double)op->part[i].bytes);
    seconds += weir_cost_predict(&cost, &p->board->link);
  }
  return seconds;
}

typedef struct bench {
  const grid_plan *p;
  weir_transport *transport;
  weir_comm *comm;
  float *x, *y;
  guint64 step;
} bench;

static weir_status once(bench *b, const grid_part *part) {
  gsize bytes = part->bytes, out[GRID_RANKS], in[GRID_RANKS];
  const gsize n = bytes / sizeof(float);
  for (int r = 0; r < b->p->workers; r++) out[r] = bytes;
  switch (part->kind) {
    case WEIR_KIND_BROADCAST: return weir_broadcasts[part->row].run(b->comm, 0, b->x, bytes, &bytes);
    case WEIR_KIND_ALLGATHER:
      return weir_allgathers[part->row].run(b->comm, b->x, bytes, out, NULL);
    case WEIR_KIND_REDUCE_SCATTER:
      return weir_reduce_scatters[part->row].run(b->comm, b->x, n, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_REDUCE:
      return weir_reduces[part->row].run(b->comm, 0, b->x, n, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_GATHER: return weir_gathers[part->row].run(b->comm, 0, b->x, bytes, out);
    case WEIR_KIND_ALLTOALL:
      return weir_alltoalls[part->row].run(b->comm, b->x, out, b->y, in, bytes);
    default: return weir_allreduces[part->row].run(b->comm, b->x, n, WEIR_VALUE_FP32, NULL, NULL);
  }
}

/* All begin together: these ranks are processes of one machine, which can wait for one another
 * without a message. */
static weir_status measure(bench *b, const grid_op *op, grid_cell *cell) {
  const int rank = b->transport->rank;
  const double due = weir_grid_predict(b->p, op); /* the same on all ranks */
  const int repeats = due > 1.5 ? 1 : GRID_REPEATS;
  weir_status status = WEIR_OK;
  for (int i = 0; i < repeats && status == WEIR_OK; i++) {
    (void)pthread_barrier_wait(&b->p->board->barrier);
    cell->begin_s[i][rank] = weir_now_s();
    weir_comm_step(b->comm, 1, b->step++);
    for (int part = 0; part < op->parts && status == WEIR_OK; part++)
      status = once(b, &op->part[part]);
    cell->end_s[i][rank] = weir_now_s();
  }
  if (rank == 0) cell->repeats = repeats;
  return status;
}

static weir_status join_group(bench *b, int rank) {
  char where[WEIR_ADDRESS_MAX + 8], own[WEIR_ADDRESS_MAX], first[WEIR_ADDRESS_MAX];
  weir_topology_address(rank, own);
  weir_topology_address(0, first);
  (void)g_snprintf(where, sizeof where, "%s:%d", first, PORT);
  weir_status status =
      weir_transport_tcp_secret(&b->transport, where, own, b->p->secret, sizeof b->p->secret,
                                b->p->job, rank, b->p->workers, TIMEOUT_S);
  if (status == WEIR_OK) status = weir_comm_create(&b->comm, b->transport, TIMEOUT_S);
  return status == WEIR_OK ? weir_comm_find_hosts(b->comm, weir_host_identity(NULL)) : status;
}

weir_status weir_grid_rank(const grid_plan *p, int rank) {
  bench b = {.p = p};
  gsize most = 1;
  for (int i = 0; i < p->ops; i++)
    for (int k = 0; k < p->op[i].parts; k++) most = MAX(most, p->op[i].part[k].bytes);
  most = most * (gsize)p->workers;
  b.x = calloc(1, most);
  b.y = calloc(1, most);
  weir_link link = {0};
  weir_status status = b.x && b.y ? join_group(&b, rank)
                                  : weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes", most);
  /* Every connection has carried something before anything is measured. */
  const grid_part warm = {WEIR_KIND_ALLTOALL, WEIR_ALLTOALL_PAIRWISE, 32768};
  weir_comm_step(b.comm, 2, 0);
  if (status == WEIR_OK) status = once(&b, &warm);
  if (status == WEIR_OK) status = weir_calibrate(b.comm, &link);
  if (rank == 0) p->board->link = link;
  for (int i = 0; i < p->ops && status == WEIR_OK; i++)
    status = measure(&b, &p->op[i], &p->board->cell[i]);
  weir_comm_free(b.comm);
  if (b.transport) b.transport->ops->destroy(b.transport);
  free(b.y);
  free(b.x);
  return status;
}
