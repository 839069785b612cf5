/* What `weir bench grid` measured, against what was predicted. */
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_grid.h"
#include "collectives/select.h"

#define LARGE ((gsize)1 << 20)

typedef struct tally {
  double error, worst; /* sum and largest of |measured / predicted - 1| */
  int cells;
  int large, reached; /* of 1 MiB and more; of those, 95 % of the row's speed */
  double slowest;     /* share of it, the least */
  double loss, worst_loss; /* of the selector's choices */
  int choices;
} tally;

static double seconds_of(const grid_plan *p, int op) {
  const grid_cell *c = &p->board->cell[op];
  double seconds[GRID_REPEATS];
  for (int i = 0; i < c->repeats; i++) {
    double begin = INFINITY, end = 0;
    for (int r = 0; r < p->workers; r++) {
      begin = fmin(begin, c->begin_s[i][r]);
      end = fmax(end, c->end_s[i][r]);
    }
    int at = i;
    for (; at > 0 && seconds[at - 1] > end - begin; at--) seconds[at] = seconds[at - 1];
    seconds[at] = end - begin;
  }
  return seconds[c->repeats / 2];
}

static gboolean alternatives(const grid_op *a, const grid_op *b) {
  const gboolean sparse = a->cr < 1 && b->cr < 1;
  return a->gradient == b->gradient && a->cr == b->cr && (sparse || !strcmp(a->name, b->name));
}

/* Of the operations that could take its place: what is predicted to be best against what was. */
static void judge_choice(const grid_plan *p, int first, tally *t) {
  int chosen = first, best = first;
  for (int i = 0; i < p->ops; i++) {
    if (!alternatives(&p->op[i], &p->op[first])) continue;
    if (i < first) return; /* counted with that one */
    if (weir_grid_predict(p, &p->op[i]) < weir_grid_predict(p, &p->op[chosen])) chosen = i;
    if (seconds_of(p, i) < seconds_of(p, best)) best = i;
  }
  const double loss = seconds_of(p, chosen) / seconds_of(p, best) - 1;
  t->loss += loss;
  t->worst_loss = fmax(t->worst_loss, loss);
  t->choices++;
}

static void judge(const grid_plan *p, int i, tally *t) {
  const double measured = seconds_of(p, i), predicted = weir_grid_predict(p, &p->op[i]);
  const double error = fabs(predicted / measured - 1);
  t->error += error;
  t->worst = fmax(t->worst, error);
  t->cells++;
  if (p->op[i].gradient >= LARGE && p->op[i].cr >= 1) {
    const double share = predicted / measured;
    t->large++;
    t->reached += share >= 0.95;
    t->slowest = t->large == 1 ? share : fmin(t->slowest, share);
  }
  judge_choice(p, i, t);
}

static void number(JsonBuilder *b, const char *name, double value) {
  json_builder_set_member_name(b, name);
  json_builder_add_double_value(b, value);
}

static void add_tally(JsonBuilder *b, const tally *t) {
  number(b, "cells", t->cells);
  number(b, "mean_error", t->error / t->cells);
  number(b, "worst_error", t->worst);
  number(b, "large", t->large);
  number(b, "large_reached_95", t->reached);
  number(b, "large_least", t->slowest);
  number(b, "choices", t->choices);
  number(b, "mean_loss", t->loss / t->choices);
  number(b, "worst_loss", t->worst_loss);
}

static void add_plan(JsonBuilder *b, const grid *g, int count, int shape) {
  const grid_plan *p = &g->plan[count * g->shapes + shape];
  const weir_link *link = &p->board->link;
  for (int i = 0; i < p->ops; i++) {
    const grid_op *op = &p->op[i];
    const grid_part *last = &op->part[op->parts - 1];
    json_builder_begin_object(b);
    number(b, "workers", p->workers);
    number(b, "set_latency_ms", g->shape[shape].delay_s * 1e3);
    number(b, "set_mbit", g->shape[shape].rate_bytes_s * 8e-6);
    number(b, "latency_ms", link->alpha * 1e3);
    number(b, "mbit", 8e-6 / link->beta);
    json_builder_set_member_name(b, "collective");
    json_builder_add_string_value(b, op->name);
    json_builder_set_member_name(b, "algorithm");
    json_builder_add_string_value(b, weir_row_name(last->kind, last->row));
    number(b, "gradient", (double)op->gradient);
    number(b, "cr", op->cr);
    number(b, "predicted_ms", weir_grid_predict(p, op) * 1e3);
    number(b, "measured_ms", seconds_of(p, i) * 1e3);
    json_builder_end_object(b);
  }
}

static tally tally_of(const grid *g, int count, int shape) {
  tally t = {0};
  const grid_plan *p = &g->plan[count * g->shapes + shape];
  for (int i = 0; i < p->ops; i++) judge(p, i, &t);
  return t;
}

static void join(tally *all, const tally *t) {
  all->slowest = all->cells == 0 ? t->slowest : fmin(all->slowest, t->slowest);
  all->error += t->error;
  all->worst = fmax(all->worst, t->worst);
  all->cells += t->cells;
  all->large += t->large;
  all->reached += t->reached;
  all->loss += t->loss;
  all->worst_loss = fmax(all->worst_loss, t->worst_loss);
  all->choices += t->choices;
}

static void print_tally(const tally *t) {
  printf(" %5d %8.1f %8.1f %5d/%-4d %8.2f %8.1f %8.1f\n", t->cells, 100 * t->error / t->cells,
         100 * t->worst, t->reached, t->large, t->slowest, 100 * t->loss / t->choices,
         100 * t->worst_loss);
}

void weir_grid_report_text(const grid *g) {
  tally all = {0};
  printf("# error: |predicted/measured - 1|, %%; large: of 1 MiB and more, how many reach 95 %% of the\n"
         "# row's speed, and the least; loss: of the selector's choices against the best measured, %%\n");
  printf("%7s %8s %8s %5s %8s %8s %10s %8s %8s %8s\n", "workers", "ms", "Mbit/s", "cells", "error",
         "worst", "large", "least", "loss", "worst");
  for (int c = 0; c < g->worker_counts; c++)
    for (int s = 0; s < g->shapes; s++) {
      const tally t = tally_of(g, c, s);
      printf("%7d %8g %8g", g->workers[c], g->shape[s].delay_s * 1e3,
             g->shape[s].rate_bytes_s * 8e-6);
      print_tally(&t);
      join(&all, &t);
    }
  printf("%-25s", "all");
  print_tally(&all);
}

void weir_grid_report_json(const grid *g) {
  tally all = {0};
  g_autoptr(JsonBuilder) b = json_builder_new();
  json_builder_begin_object(b);
  json_builder_set_member_name(b, "cells");
  json_builder_begin_array(b);
  for (int c = 0; c < g->worker_counts; c++)
    for (int s = 0; s < g->shapes; s++) {
      const tally t = tally_of(g, c, s);
      add_plan(b, g, c, s);
      join(&all, &t);
    }
  json_builder_end_array(b);
  json_builder_set_member_name(b, "summary");
  json_builder_begin_object(b);
  add_tally(b, &all);
  json_builder_end_object(b);
  json_builder_end_object(b);
  g_autoptr(JsonNode) root = json_builder_get_root(b);
  g_autofree char *text = json_to_string(root, FALSE);
  puts(text);
}
