#include "controller/fuse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/solve.h"

enum { ROWS_MAX = 2 * (WEIR_ARMS + 3) };

typedef struct rows {
  size_t count;
  weir_solve_row row[ROWS_MAX];
  weir_plan plan[ROWS_MAX];
} rows;

/* Compression is affine in the elements (decide.h); two points tell it. */
static weir_curve compress_curve(const weir_decision_input *in, const weir_plan *plan) {
  const uint64_t n = in->elements > 1 ? in->elements : 2;
  const double whole = weir_plan_compress(plan, in->workers, n, in->devices != 0, in->compress);
  const double fixed = weir_plan_compress(plan, in->workers, 0, in->devices != 0, in->compress);
  return (weir_curve){.fixed_s = fixed,
                      .per_byte_s = fmax(0.0, (whole - fixed) / (4.0 * (double)n))};
}

/* The part of an arm's overhead that every bucket pays: what was seen, or the latencies' share. */
static double each_bucket(const weir_bucket_costs *costs, size_t arm, double overhead,
                          double share) {
  return costs->each_s[arm] >= 0.0 ? costs->each_s[arm] : overhead * fmin(1.0, share);
}

static weir_curve in_line(const weir_decision_input *in, const weir_plan *plan,
                          const weir_bucket_costs *costs, const weir_link *link) {
  const size_t arm = weir_arm_of(plan);
  const weir_group_shape shape = weir_input_shape(in);
  const double bytes = 4.0 * (double)in->elements;
  weir_curve exchange = weir_solve_exchange_between(plan, shape, link, bytes);
  if (arm == WEIR_ARMS) return exchange;
  const size_t kept = weir_plan_kept(in->low_rank, plan, in->elements);
  const weir_cost_terms terms = weir_cost_plan_between(plan, shape, in->elements, kept);
  const double processors = weir_cost_plan_processors(plan, shape, link, in->elements, kept);
  const double whole = weir_curve_at(&exchange, bytes);
  const double overhead =
      fmax(0.0, weir_input_overhead(in, arm, &terms, link, whole + processors) + processors);
  const double each =
      each_bucket(costs, arm, overhead, whole > 0.0 ? exchange.fixed_s / whole : 1.0);
  exchange.fixed_s += each;
  exchange.per_byte_s += fmax(0.0, overhead - each) / bytes;
  return exchange;
}

static void add_row(const weir_decision_input *in, const weir_plan *plan,
                    const weir_bucket_costs *costs, rows *r) {
  const weir_link link = weir_input_link(in);
  const weir_curve compress = compress_curve(in, plan);
  const weir_curve exchange = in_line(in, plan, costs, &link);
  for (int beside = 0; beside < 2; beside++) {
    r->row[r->count] = (weir_solve_row){.compress = compress,
                                        .exchange = exchange,
                                        .beside = beside == 1,
                                        .taken_s = fmax(0.0, costs->taken_s)};
    r->plan[r->count++] = *plan;
  }
}

/* What a bucket of few elements may be better off with. */
static const char *const dense[] = {"bf16:1:dense-ring", "bf16:1:dense-tree"};
enum { DENSE = sizeof dense / sizeof *dense };

/* The plan's own row first; then its codec's other collectives that are arms; then bf16's. */
static void find_rows(const weir_decision_input *in, const weir_plan *plan,
                      const weir_bucket_costs *costs, rows *r) {
  weir_plan other = *plan;
  add_row(in, plan, costs, r);
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_plan of_arm = weir_arm_plan(in, weir_arm_at(a), 0.0);
    other.scheme = of_arm.scheme;
    other.algorithm = of_arm.algorithm;
    other.inside = of_arm.inside;
    if (weir_arm_counts(in, a) && weir_arm_of(&other) == a && !weir_arm_is(weir_arm_at(a), plan))
      add_row(in, &other, costs, r);
  }
  for (size_t i = 0; i < DENSE && !weir_codecs[plan->codec]->dense; i++)
    if (weir_plan_parse(dense[i], &other) == WEIR_OK) add_row(in, &other, costs, r);
}

static weir_status make_profile(const weir_layout *layout, const double *gap_s,
                                weir_profile *profile) {
  static char unnamed[] = "tensor";
  profile->count = layout->tensors;
  profile->tensors = calloc(layout->tensors, sizeof *profile->tensors);
  if (!profile->tensors)
    return weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", layout->tensors);
  for (size_t t = 0; t < layout->tensors; t++)
    profile->tensors[t] = (weir_profile_tensor){
        unnamed, (double)(layout->offset[t + 1] - layout->offset[t]), gap_s[t]};
  return WEIR_OK;
}

static void write_table(const weir_solution *best, const rows *r, weir_plan_bucket *table) {
  memset(table, 0, best->count * sizeof *table);
  for (size_t k = 0; k < best->count; k++) {
    const weir_solve_bucket *bucket = &best->bucket[k];
    table[k].end = (uint32_t)bucket->end;
    table[k].place = r->row[bucket->row].beside ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER;
    weir_bucket_set_plan(&table[k], &r->plan[bucket->row]);
  }
}

weir_status weir_fuse(const weir_decision_input *in, const weir_plan *plan,
                      const weir_layout *layout, const double *gap_s,
                      const weir_bucket_costs *costs, double least, weir_plan_bucket *table,
                      weir_fused *fused) {
  *fused = (weir_fused){0};
  weir_profile profile = {0};
  rows r = {0};
  weir_solution best = {0};
  weir_status status = make_profile(layout, gap_s, &profile);
  if (status != WEIR_OK) return status;
  find_rows(in, plan, costs, &r);
  weir_solve_bucket whole = {.end = layout->tensors, .row = 0};
  fused->step_s = fused->whole_s = weir_solve_evaluate(&profile, r.row, &whole, 1);
  status = weir_solve(&profile, r.row, r.count, NULL, &best);
  if (status == WEIR_OK && best.count > 1 && best.step_s < (1.0 - least) * fused->whole_s) {
    fused->count = best.count;
    fused->step_s = best.step_s;
    write_table(&best, &r, table);
  }
  weir_solution_free(&best);
  free(profile.tensors);
  return status;
}
