/* What `weir bench grid` measures, how often, and what the rows say of it. */
#include <math.h>
#include <string.h>

#include "collectives/collective.h"
#include "grid.h"
#include "kernels/codec.h"

static const gsize gradients[] = {128u << 10, 1u << 20, 4u << 20};
static const double ratios[] = {0.1, 0.01, 0.001};
#define ONCE_MOST_S 1.0 /* longer gradients, by their time on one link, are left out */
#define EACH_S 4.0      /* repeats of one operation take no longer */

static const char *const names[] = {"all-reduce", "broadcast", "all-gather", "reduce-scatter",
                                    "reduce",     "gather",    "ag",         "art"};
enum { NAME_AG = WEIR_KIND_COUNT, NAME_ART };

const char *weir_grid_name(const char *text) {
  for (gsize i = 0; text && i < G_N_ELEMENTS(names); i++)
    if (!strcmp(text, names[i])) return names[i];
  return NULL;
}

static void add(grid_plan *p, int name, gsize gradient, double cr, int parts, grid_part first,
                grid_part second) {
  if (p->ops < GRID_OPS)
    p->op[p->ops++] = (grid_op){.name = names[name],
                                .gradient = gradient,
                                .cr = cr,
                                .parts = parts,
                                .part = {first, second}};
}

/* Rows that differ from flat ones with several ranks on a machine only, which here there
 * are not. */
static gboolean is_flat(weir_kind kind, guint32 row) {
  return kind != WEIR_KIND_ALLREDUCE || row <= WEIR_ALLREDUCE_STAR;
}

static void add_dense(grid_plan *p, gsize bytes) {
  const grid_part none = {.bytes = 0};
  for (int kind = 0; kind < WEIR_KIND_COUNT; kind++)
    for (guint32 row = 0; row < weir_rows((weir_kind)kind); row++) {
      const gboolean blocks = kind == WEIR_KIND_ALLGATHER || kind == WEIR_KIND_GATHER;
      const grid_part part = {(weir_kind)kind, row, blocks ? bytes / (gsize)p->workers : bytes};
      if (is_flat((weir_kind)kind, row)) add(p, kind, bytes, 1, 1, part, none);
    }
}

static void add_sparse(grid_plan *p, gsize bytes, double cr) {
  const grid_part none = {.bytes = 0};
  const gsize elements = bytes / 4, kept = (gsize)(cr * (double)elements);
  const gsize pairs = (gsize)weir_wire_expected(elements, kept, WEIR_WIRE_AUTO_FP32, true);
  const gsize list = (gsize)weir_wire_expected(elements, kept, WEIR_WIRE_AUTO_FP32, false);
  for (guint32 row = 0; row < WEIR_ALLGATHER_COUNT; row++)
    add(p, NAME_AG, bytes, cr, 1, (grid_part){WEIR_KIND_ALLGATHER, row, pairs}, none);
  for (guint32 row = 0; row <= WEIR_ALLREDUCE_STAR; row++)
    add(p, NAME_ART, bytes, cr, 2, (grid_part){WEIR_KIND_BROADCAST, WEIR_BROADCAST_BINOMIAL, list},
        (grid_part){WEIR_KIND_ALLREDUCE, row, kept * 4});
}

void weir_grid_operations(grid_plan *p) {
  p->ops = 0;
  for (gsize g = 0; g < G_N_ELEMENTS(gradients); g++) {
    const gsize bytes = gradients[g];
    if (g > 1 && (double)bytes / p->shape.rate_bytes_s > ONCE_MOST_S) continue;
    add_dense(p, bytes);
    for (gsize r = 0; g > 0 && r < G_N_ELEMENTS(ratios); r++) add_sparse(p, bytes, ratios[r]);
  }
}

double weir_grid_predict(int workers, const weir_link *link, const grid_op *op) {
  const weir_group_shape shape = {workers, workers, false, 0, 0};
  double seconds = 0;
  for (int i = 0; i < op->parts; i++) {
    const grid_part *part = &op->part[i];
    const weir_cost cost = weir_cost_row(part->kind, part->row, shape, link, (double)part->bytes);
    seconds += weir_cost_predict(&cost, link);
  }
  return seconds;
}

/* As often as fit into so many seconds. */
static int times(double due, double each_s) {
  return due > 0 && each_s / due < GRID_REPEATS ? MAX(1, (int)(each_s / due)) : GRID_REPEATS;
}

static double total(const grid_plan *p, const double *due, const int *repeats) {
  double seconds = 0;
  for (int i = 0; i < p->ops; i++) seconds += due[i] * repeats[i];
  return seconds;
}

void weir_grid_allot(const grid_plan *p, const weir_link *link, int repeats[GRID_OPS]) {
  double due[GRID_OPS];
  for (int i = 0; i < p->ops; i++) due[i] = weir_grid_predict(p->workers, link, &p->op[i]);
  for (int often = GRID_REPEATS; often > 1; often--) {
    for (int i = 0; i < p->ops; i++) repeats[i] = often;
    if (total(p, due, repeats) <= p->budget_s) return;
  }
  for (double each_s = EACH_S; each_s > 1e-3; each_s *= 0.7) {
    for (int i = 0; i < p->ops; i++) repeats[i] = times(due[i], each_s);
    if (total(p, due, repeats) <= p->budget_s) return;
  }
  while (total(p, due, repeats) > p->budget_s) {
    int longest = 0;
    for (int i = 1; i < p->ops; i++)
      if (due[i] * repeats[i] > due[longest] * repeats[longest]) longest = i;
    if (repeats[longest] == 0) return;
    repeats[longest] = 0;
  }
}

/* Ranks share a processor and begin one after the other; the mean stands for when they begin. */
void weir_grid_collect(grid_plan *p) {
  for (int o = 0; o < p->ops; o++) {
    const grid_cell *c = &p->board->cell[o];
    double seconds[GRID_REPEATS];
    p->op[o].measured_s = p->op[o].least_s = 0;
    for (int i = 0; i < c->repeats; i++) {
      double begin = 0, end = 0;
      for (int r = 0; r < p->workers; r++) {
        begin += c->begin_s[i][r] / p->workers;
        end = fmax(end, c->end_s[i][r]);
      }
      int at = i;
      for (; at > 0 && seconds[at - 1] > end - begin; at--) seconds[at] = seconds[at - 1];
      seconds[at] = end - begin;
    }
    if (c->repeats == 0) continue;
    p->op[o].measured_s = seconds[c->repeats / 2];
    p->op[o].least_s = seconds[0];
  }
}
