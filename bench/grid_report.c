/* What `weir bench grid` measured, against what was predicted. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grid.h"

#define LARGE ((gsize)1 << 20)
#define REACHED 0.95
enum { CLASSES = 32 };

typedef struct tally {
  double error, bias,
      worst; /* sums of |predicted / measured - 1| and of it with its sign; the largest */
  int cells;
  int large, reached;      /* of 1 MiB and more; of those, REACHED of the row's speed */
  double slowest;          /* share of it, the least */
  double loss, worst_loss; /* of the selector's choices */
  int choices;
} tally;

/* A tally by what it is of. */
typedef struct class {
  const char *collective, *algorithm; /* or: chosen and best, of the worst choice */
  double cr;
  tally t;
  char worst[160];
} class;

static const grid_part *last_part(const grid_op *op) { return &op->part[op->parts - 1]; }
static const char *algorithm_of(const grid_op *op) {
  return weir_row_name(last_part(op)->kind, last_part(op)->row);
}

static gboolean alternatives(const grid_op *a, const grid_op *b) {
  const gboolean sparse = a->cr < 1 && b->cr < 1;
  return b->measured_s > 0 && a->gradient == b->gradient && a->cr == b->cr &&
         (sparse || !strcmp(a->name, b->name));
}

static double predict(const grid_plan *p, int op) {
  return weir_grid_predict(p->workers, &p->link, &p->op[op]);
}

static int choose(const grid_plan *p, int first) {
  int chosen = first;
  for (int i = first; i < p->ops; i++)
    if (alternatives(&p->op[first], &p->op[i]) && predict(p, i) < predict(p, chosen)) chosen = i;
  return chosen;
}

/* Of the operations that could take its place: what is predicted to be best against what was.
 * FALSE: counted already, with an earlier one. */
static gboolean judge_choice(const grid_plan *p, int first, tally *t, char worst[160]) {
  int best = first;
  for (int i = 0; i < p->ops; i++) {
    if (!alternatives(&p->op[first], &p->op[i])) continue;
    if (i < first) return FALSE;
    if (p->op[i].measured_s < p->op[best].measured_s) best = i;
  }
  const int chosen = choose(p, first);
  const double loss = p->op[chosen].measured_s / p->op[best].measured_s - 1;
  t->loss = t->worst_loss = loss;
  t->choices = 1;
  (void)g_snprintf(worst, 160, "%d x %g ms %g Mbit/s, %zu KiB: %s %s %.1f ms, %s %s %.1f ms",
                   p->workers, p->shape.delay_s * 1e3, p->shape.rate_bytes_s * 8e-6,
                   p->op[first].gradient >> 10, p->op[chosen].name, algorithm_of(&p->op[chosen]),
                   p->op[chosen].measured_s * 1e3, p->op[best].name, algorithm_of(&p->op[best]),
                   p->op[best].measured_s * 1e3);
  return TRUE;
}

static tally judge(const grid_op *op, double predicted) {
  const double share = predicted / op->measured_s;
  tally t = {.cells = 1, .bias = share - 1, .error = fabs(share - 1), .slowest = INFINITY};
  t.worst = t.error;
  if (op->gradient < LARGE || op->cr < 1) return t;
  t.large = 1;
  t.reached = share >= REACHED;
  t.slowest = share;
  return t;
}

static void join(tally *all, const tally *t) {
  if (t->large) all->slowest = all->large ? fmin(all->slowest, t->slowest) : t->slowest;
  all->error += t->error;
  all->bias += t->bias;
  all->worst = fmax(all->worst, t->worst);
  all->cells += t->cells;
  all->large += t->large;
  all->reached += t->reached;
  all->loss += t->loss;
  all->worst_loss = fmax(all->worst_loss, t->worst_loss);
  all->choices += t->choices;
}

typedef struct report {
  tally all;
  class row[CLASSES], choice[CLASSES];
} report;

static class *class_of(class *table, const char *collective, const char *algorithm, double cr) {
  for (int i = 0; i < CLASSES; i++) {
    if (!table[i].collective) {
      table[i].collective = collective;
      table[i].algorithm = algorithm;
      table[i].cr = cr;
    }
    if (!strcmp(table[i].collective, collective) && !strcmp(table[i].algorithm, algorithm) &&
        table[i].cr == cr)
      return &table[i];
  }
  return &table[CLASSES - 1];
}

static void add_choice(report *r, const grid_op *op, const tally *t, const char *worst) {
  class *c = class_of(r->choice, op->cr < 1 ? "sparse" : op->name, "", op->cr);
  if (t->worst_loss >= c->t.worst_loss) (void)g_strlcpy(c->worst, worst, sizeof c->worst);
  join(&c->t, t);
}

static tally judge_plan(const grid_plan *p, report *r) {
  tally all = {0};
  for (int i = 0; i < p->ops; i++) {
    const grid_op *op = &p->op[i];
    if (!(op->measured_s > 0)) continue;
    const tally cell = judge(op, predict(p, i));
    join(&all, &cell);
    join(&class_of(r->row, op->name, algorithm_of(op), 1)->t, &cell);
    tally choice = {0};
    char worst[160];
    if (!judge_choice(p, i, &choice, worst)) continue;
    join(&all, &choice);
    add_choice(r, op, &choice, worst);
  }
  return all;
}

static double percent(double sum, int count) { return count ? 100 * sum / count : 0; }

static void print_tally(const tally *t) {
  printf(" %5d %6.1f %6.1f %6.1f %4d/%-4d %5.2f %6.1f %6.1f\n", t->cells,
         percent(t->error, t->cells), percent(t->bias, t->cells), 100 * t->worst, t->reached,
         t->large, t->slowest, percent(t->loss, t->choices), 100 * t->worst_loss);
}

static void print_classes(const report *r) {
  printf(
      "\n# By algorithm: error, bias, and of 1 MiB and more how many reach 95 %%, and the least\n");
  for (const class *c = r->row; c < r->row + CLASSES && c->collective; c++)
    printf("%-15s %-12s %5d %6.1f %6.1f %4d/%-4d %5.2f\n", c->collective, c->algorithm, c->t.cells,
           percent(c->t.error, c->t.cells), percent(c->t.bias, c->t.cells), c->t.reached,
           c->t.large, c->t.slowest);
  printf("\n# What the selector's choices cost beyond the best measured, %%: mean, and worst\n");
  for (const class *c = r->choice; c < r->choice + CLASSES && c->collective; c++)
    printf("%-15s %-6g %4d %6.1f %6.1f  %s\n", c->collective, c->cr, c->t.choices,
           percent(c->t.loss, c->t.choices), 100 * c->t.worst_loss,
           c->t.worst_loss > 0 ? c->worst : "");
}

/* Figures of different clocks are not of the same thing. */
static void print_clocks(const grid_plan *plan, int plans) {
  static const char *const says[] = {
      [WEIR_UML_CLOCK_REAL] = "the ranks share the processors of one machine",
      [WEIR_UML_CLOCK_SKIP_IDLE] = "the ranks share one processor; waiting was skipped",
      [WEIR_UML_CLOCK_FREE_CPU] =
          "links alone: processors took no time, the rows' terms for them "
          "were not tested"};
  int count[G_N_ELEMENTS(says)] = {0};
  for (int i = 0; i < plans; i++) count[plan[i].clock]++;
  for (gsize c = 0; c < G_N_ELEMENTS(says); c++)
    if (count[c])
      printf("# clock %s, %d of %d shapes: %s\n", weir_uml_clock_name((weir_uml_clock)c), count[c],
             plans, says[c]);
}

void weir_grid_report(const grid_plan *plan, int plans) {
  g_autofree report *r = g_new0(report, 1);
  print_clocks(plan, plans);
  printf(
      "# error: |predicted/measured - 1|, %%: mean, with its sign, and worst\n"
      "# large: of 1 MiB and more, how many reach 95 %% of the row's speed, and the least;\n"
      "# loss: of the selector's choices beyond the best measured, %%: mean, and worst\n");
  printf("%7s %5s %6s %7s %8s %5s %6s %6s %6s %9s %5s %6s %6s\n", "workers", "ms", "Mbit/s",
         "alpha", "rate", "cells", "error", "bias", "worst", "large", "least", "loss", "worst");
  for (int i = 0; i < plans; i++) {
    const tally t = judge_plan(&plan[i], r);
    printf("%7d %5g %6g %7.2f %8.2f", plan[i].workers, plan[i].shape.delay_s * 1e3,
           plan[i].shape.rate_bytes_s * 8e-6, plan[i].link.alpha * 1e3, 8e-6 / plan[i].link.beta);
    print_tally(&t);
    join(&r->all, &t);
  }
  printf("%-37s", "all");
  print_tally(&r->all);
  print_classes(r);
}
