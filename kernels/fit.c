/* Fitting compression times; fit.h. */
#include "kernels/fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/fit_run.h"
#include "kernels/internal.h"

/* Sizes that are run, so often after a warm-up: close enough to each other for the second cache to
 * end between any two, on both sides of where selecting goes another way, and the small ones not of
 * whole vectors, for few tensors are. */
static const struct knot {
  size_t n;
  int runs;
} measured[] = {{1004, 5},
                {4008, 5},
                {16008, 5},
                {32767, 3},
                {32768, 3},
                {WEIR_KERNEL_WINDOW, 5},
                {WEIR_KERNEL_FIT_MOST, 3}};
#define MEASURED (sizeof measured / sizeof measured[0])
_Static_assert(4 * WEIR_SAMPLE == 32768, "selections change their way between two of the sizes");

/* --- curves ---------------------------------------------------------------------------------- */

weir_kernel_line weir_kernel_line_at(const weir_kernel_curve *curve, size_t n) {
  const size_t last = curve->knots - 1;
  if (n > curve->n[last]) {
    return (weir_kernel_line){0.0, curve->seconds[last] / (double)curve->n[last]};
  }
  size_t at = 1;
  while (curve->n[at] < n) {
    at++;
  }
  double from = (double)curve->n[at - 1];
  double beta = (curve->seconds[at] - curve->seconds[at - 1]) / ((double)curve->n[at] - from);
  return (weir_kernel_line){curve->seconds[at - 1] - beta * from, beta};
}

double weir_kernel_seconds(const weir_kernel_curve *curve, size_t n) {
  weir_kernel_line line = weir_kernel_line_at(curve, n);
  return fmax(line.alpha + line.beta * (double)n, 0.0);
}

/* --- sizes that are run ---------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* One size of one plan: medians of so many runs. */
static weir_status time_at(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                           double seconds[2]) {
  double each[2][WEIR_KERNEL_RUNS];
  int batch[2] = {0, 0};
  weir_kernel_run run = weir_kernel_run_of(probe, plan, n);
  weir_status status = weir_kernel_sample(&run, batch, seconds);
  for (int i = 0; status == WEIR_OK && i < runs; i++) {
    status = weir_kernel_sample(&run, batch, seconds);
    each[0][i] = seconds[0];
    each[1][i] = seconds[1];
  }
  for (int i = 0; status == WEIR_OK && i < 2; i++) {
    qsort(each[i], (size_t)runs, sizeof each[i][0], ascending);
    seconds[i] = each[i][(runs - 1) / 2];
  }
  return status;
}

weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double *compress, double *decode) {
  double seconds[2] = {0.0, 0.0};
  if (n > probe->most) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to time, and room for %zu", n, probe->most);
  }
  if (runs < 1 || runs > WEIR_KERNEL_RUNS) {
    return weir_fail(WEIR_E_INVALID, "%d runs: expected 1 to %d", runs, WEIR_KERNEL_RUNS);
  }
  const weir_status status = time_at(probe, plan, n, runs, seconds);
  *compress = seconds[0];
  *decode = seconds[1];
  return status;
}

static void append(weir_kernel_curve *curve, size_t n, double seconds) {
  curve->n[curve->knots] = n;
  curve->seconds[curve->knots++] = seconds;
}

static weir_status fit_knot(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                            const struct knot *knot, int runs, weir_kernel_cost *cost) {
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < count && status == WEIR_OK; i++) {
    double seconds[2];
    status = time_at(probe, &plans[i], knot->n, knot->runs < runs ? knot->runs : runs, seconds);
    append(&cost[i].compress, knot->n, seconds[0]);
    append(&cost[i].decode, knot->n, seconds[1]);
  }
  return status;
}

/* What a codec's scratch grows to is not part of its time. */
static weir_status grow_scratch(weir_kernel_probe *probe) {
  const size_t room = probe->most / 2;
  if (probe->context->capacity >= room) {
    return WEIR_OK;
  }
  const weir_status status = weir_context_reserve(probe->context, room);
  if (status == WEIR_OK) {
    memset(probe->context->magnitude, 0, room * sizeof(float));
    memset(probe->context->position, 0, room * sizeof(uint32_t));
  }
  return status;
}

weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                            size_t from, size_t to, int runs, weir_kernel_cost *cost) {
  if (runs < 1 || count < 1) {
    return weir_fail(WEIR_E_INVALID, "%zu plans to fit in %d runs", count, runs);
  }
  if (probe->most < WEIR_KERNEL_WINDOW) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to fit on, not %zu", probe->most,
                     WEIR_KERNEL_WINDOW);
  }
  for (size_t i = 0; i < count; i++) {
    cost[i] = (weir_kernel_cost){0};
  }
  weir_status status = grow_scratch(probe);
  size_t knot = 0, sizes = 0;
  while (sizes < MEASURED && measured[sizes].n <= probe->most) {
    sizes++;
  }
  while (knot + 2 < sizes && measured[knot + 1].n <= from) { /* two at the least */
    knot++;
  }
  bool enough = false;
  for (; status == WEIR_OK && !enough && knot < sizes; knot++) {
    status = fit_knot(probe, plans, count, &measured[knot], runs, cost);
    enough = cost[0].compress.knots >= 2 && measured[knot].n >= to;
  }
  return status == WEIR_OK && !enough ? weir_kernel_fit_large(probe, plans, count, to, runs, cost)
                                      : status;
}

weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire) {
  const weir_codec *row = weir_codec_find(codec);
  weir_plan plan = {.codec = codec, .cr = row->dense ? 1.0 : cr};
  if (row->low_rank) {
    plan.cr = 4.0 / WEIR_POWERSGD_RANK_MAX;
    plan.collective = WEIR_COLL_DENSE_RING;
    return plan;
  }
  if (!row->dense && row->encode == NULL) {
    plan.wire = wire;
    plan.collective = row->shared_indices ? WEIR_COLL_ART_RING : WEIR_COLL_AG;
    return plan;
  }
  plan.collective = row->dense ? WEIR_COLL_DENSE_RING : WEIR_COLL_AG;
  static const double widths[] = {4, 2, 1, 8, 16, 32};
  for (size_t i = 0; row->encode != NULL && i < sizeof widths / sizeof widths[0]; i++) {
    plan.cr = widths[i] / 32.0;
    if (weir_plan_check(&plan) == WEIR_OK) {
      break;
    }
  }
  return plan;
}

weir_status weir_kernel_fit_all(double cr, weir_wire_format wire,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]) {
  weir_plan plans[WEIR_CODEC_COUNT];
  weir_kernel_probe *probe = NULL;
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    plans[codec] = weir_kernel_fit_plan(codec, cr, wire);
  }
  weir_status status = weir_kernel_probe_create(&probe, WEIR_KERNEL_FIT_MOST);
  if (status == WEIR_OK) {
    status = weir_kernel_fit(probe, plans, WEIR_CODEC_COUNT, 1, SIZE_MAX, WEIR_KERNEL_RUNS, cost);
  }
  weir_kernel_probe_free(probe);
  return status;
}
