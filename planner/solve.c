/* The joint plan: seeds, bounds, then labels (see solve.h and line.h). */
#include "planner/solve.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "collectives/cost.h"
#include "kernels/codec.h"
#include "planner/fusion.h"
#include "planner/line.h"

void weir_solution_free(weir_solution *solution) {
  free(solution->bucket);
  *solution = (weir_solution){0};
}

double weir_solve_evaluate(const weir_profile *profile, const weir_solve_row *rows,
                           weir_solve_bucket *bucket, size_t count) {
  double c = 0.0, p = 0.0, e = 0.0;
  for (size_t k = 0, tensor = 0; k < count; k++) {
    const weir_solve_row *row = &rows[bucket[k].row];
    double bytes = 0.0;
    for (; tensor < bucket[k].end; tensor++) {
      c += profile->tensors[tensor].gap_s;
      bytes += weir_profile_bytes(profile, tensor);
    }
    const double h = weir_curve_at(&row->compress, bytes);
    if (row->beside)
      p = fmax(p, c) + h;
    else
      c += h;
    bucket[k].compressed_s = row->beside ? p : c;
    e = fmax(e, bucket[k].compressed_s) + weir_curve_at(&row->exchange, bytes);
    bucket[k].exchanged_s = e;
    c += row->taken_s + row->taken_per_byte_s * bytes;
  }
  return e;
}

weir_curve weir_solve_exchange(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                               double bytes) {
  const size_t elements[2] = {1024, bytes < 16384.0 ? 4096 : (size_t)(bytes / 4.0)};
  double seconds[2] = {INFINITY, INFINITY};
  for (size_t k = 0; k < 2 && weir_codec_find(plan->codec); k++) {
    const weir_cost_terms terms =
        weir_cost_plan_between(plan, shape, link, elements[k], weir_cost_kept(plan, elements[k]));
    seconds[k] = weir_cost_links(&terms, link);
  }
  /* Of a row whose path depends on the link a longer message may have fewer latencies. */
  const double slope =
      fmax(0.0, (seconds[1] - seconds[0]) / (4.0 * (double)(elements[1] - elements[0])));
  return (weir_curve){.fixed_s = fmax(0.0, seconds[0] - slope * 4.0 * (double)elements[0]),
                      .per_byte_s = slope};
}

/* Is even every tensor by itself, each at the price of all, exchanged some time?  The search goes
 * by sums of times, and nowhere where they are all infinite. */
static bool ends(const weir_profile *profile, const weir_solve_row *row) {
  double gaps = 0.0, bytes = 0.0;
  for (size_t i = 0; i < profile->count; i++) {
    gaps += profile->tensors[i].gap_s;
    bytes += weir_profile_bytes(profile, i);
  }
  const double most = weir_curve_at(&row->compress, bytes) + weir_curve_at(&row->exchange, bytes) +
                      row->taken_s + row->taken_per_byte_s * bytes;
  return isfinite(gaps + (double)profile->count * most);
}

static weir_status check(const weir_profile *profile, const weir_solve_row *rows, size_t count,
                         const uint64_t *allowed) {
  if (count < 1 || count > WEIR_SOLVE_ROWS)
    return weir_fail(WEIR_E_INVALID, "%zu rows: expected 1 to %d", count, WEIR_SOLVE_ROWS);
  if (profile->count > WEIR_SOLVE_TENSORS)
    return weir_fail(WEIR_E_CAPACITY, "%zu tensors: expected at most %d", profile->count,
                     WEIR_SOLVE_TENSORS);
  for (size_t r = 0; r < count; r++) {
    weir_status status = weir_curve_check(&rows[r].compress, "compression");
    if (status == WEIR_OK) status = weir_curve_check(&rows[r].exchange, "communication");
    if (status != WEIR_OK) return status;
    const double taken = rows[r].taken_s, per_byte = rows[r].taken_per_byte_s;
    if (!(taken >= 0.0 && isfinite(taken) && per_byte >= 0.0 && isfinite(per_byte)))
      return weir_fail(WEIR_E_INVALID,
                       "row %zu takes %g s + %g s a byte from the caller: expected "
                       "finite values from 0",
                       r, taken, per_byte);
    if (!ends(profile, &rows[r]))
      return weir_fail(WEIR_E_INVALID, "row %zu takes no finite time for the whole gradient", r);
  }
  const uint64_t any = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
  for (size_t i = 0; i < profile->count && allowed; i++)
    if (!(allowed[i] & any))
      return weir_fail(WEIR_E_INVALID, "tensor %zu ('%.80s'): no way to exchange it is allowed", i,
                       profile->tensors[i].name ? profile->tensors[i].name : "");
  return WEIR_OK;
}

static void offer_fusion(weir_line *line, weir_solution *best, const weir_fusion *fusion,
                         size_t row, weir_solve_bucket *bucket) {
  for (size_t k = 0; k < fusion->buckets; k++)
    bucket[k] = (weir_solve_bucket){.end = fusion->end[k], .row = row};
  weir_line_offer(line, best, bucket, fusion->buckets);
}

/* Baselines and, on the caller's lane, the optimum for the curves' affine fits. */
static weir_status seed_row(weir_line *line, weir_solution *best, size_t row,
                            weir_solve_bucket *bucket) {
  const weir_curve *h = &line->rows[row].compress, *g = &line->rows[row].exchange;
  weir_fusion fusion;
  weir_status status = WEIR_OK;
  for (size_t b = 0; b < weir_fusion_baseline_count && status == WEIR_OK; b++) {
    status = weir_fusion_run_baseline(&weir_fusion_baselines[b], line->profile, h, g, &fusion);
    if (status != WEIR_OK) return status;
    offer_fusion(line, best, &fusion, row, bucket);
    weir_fusion_free(&fusion);
  }
  if (line->rows[row].beside) return WEIR_OK;
  weir_curve fit_h = weir_curve_fit(h);
  const weir_curve fit_g = weir_curve_fit(g);
  fit_h.fixed_s += line->rows[row].taken_s; /* nearly: the last bucket's exchange takes nothing */
  fit_h.per_byte_s += line->rows[row].taken_per_byte_s;
  status = weir_fusion_affine(line->profile, &fit_h, &fit_g, &fusion);
  if (status != WEIR_OK) return status;
  offer_fusion(line, best, &fusion, row, bucket);
  weir_fusion_free(&fusion);
  return WEIR_OK;
}

static weir_status seed(weir_line *line, weir_solution *best) {
  weir_solve_bucket *bucket = malloc(line->n * sizeof *bucket);
  if (!bucket) return weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", line->n);
  uint64_t everywhere = line->all;
  for (size_t i = 0; i < line->n; i++) everywhere &= weir_line_allowed(line, i);
  weir_status status = WEIR_OK;
  for (size_t r = 0; r < line->count && status == WEIR_OK; r++)
    if (everywhere >> r & 1) status = seed_row(line, best, r, bucket);
  free(bucket);
  return status;
}

/* A few narrow passes first: they are cheap, and the last, exact one drops all that is not below
 * what they found. */
static weir_status passes(weir_line *line, weir_solution *best) {
  static const size_t beams[] = {4, 32, 0};
  weir_line_bounds bounds;
  weir_status status = weir_line_bound(line, &bounds, best);
  if (status != WEIR_OK) return status;
  bool exact = false;
  for (size_t pass = 0; pass < sizeof beams / sizeof *beams && !exact; pass++) {
    if (bounds.least_s >= line->most_s) break;
    status = weir_line_labels(line, &bounds, beams[pass], best, &exact);
    if (status != WEIR_OK || line->work > line->most_work) break;
  }
  best->least_s = exact ? best->step_s : fmin(bounds.least_s, best->step_s);
  weir_line_bounds_free(&bounds);
  return status;
}

weir_status weir_solve(const weir_profile *profile, const weir_solve_row *rows, size_t count,
                       const weir_solve_limits *limits, weir_solution *best) {
  *best = (weir_solution){0};
  const uint64_t *allowed = limits ? limits->allowed : NULL;
  weir_line line;
  weir_status status = check(profile, rows, count, allowed);
  if (status == WEIR_OK) status = weir_line_create(&line, profile, rows, count, allowed);
  if (status != WEIR_OK) return status;
  line.most_work = limits && limits->work ? limits->work : WEIR_SOLVE_WORK;
  best->bucket = malloc(profile->count * sizeof *best->bucket);
  if (!best->bucket) status = weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", profile->count);
  if (status == WEIR_OK) status = seed(&line, best);
  if (status == WEIR_OK) status = passes(&line, best);
  weir_line_free(&line);
  if (status != WEIR_OK) weir_solution_free(best);
  return status;
}
