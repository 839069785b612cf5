/* Fusion and rows together: equal to brute force, cases by hand, limits and refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "planner/fusion.h"
#include "planner/solve.h"

enum { MOST = 200, ROWS = 4, POINTS = 4 };

static weir_profile_tensor tensors[MOST];
static char name[] = "t";
static double x[2 * ROWS][POINTS], y[2 * ROWS][POINTS];

static double draw(weir_rng *rng, double scale) {
  if (weir_rng_below(rng, 3) == 0) return scale * weir_rng_uniform(rng);
  return scale * (double)weir_rng_below(rng, 5) / 4.0;
}

static weir_profile random_profile(weir_rng *rng, size_t n) {
  for (size_t i = 0; i < n; i++)
    tensors[i] = (weir_profile_tensor){name, 1.0 + floor(draw(rng, 1e6)), draw(rng, 1e-3)};
  return (weir_profile){n, tensors};
}

static weir_curve random_curve(weir_rng *rng, size_t which) {
  if (weir_rng_below(rng, 2))
    return (weir_curve){.fixed_s = draw(rng, 1e-3), .per_byte_s = draw(rng, 1e-9)};
  double bytes = 0.0, seconds = 0.0;
  for (size_t i = 0; i < POINTS; i++) {
    x[which][i] = bytes += 1.0 + draw(rng, 3e6);
    y[which][i] = seconds += draw(rng, 1e-3);
  }
  return (weir_curve){.count = POINTS, .bytes = x[which], .seconds = y[which]};
}

static size_t random_rows(weir_rng *rng, weir_solve_row *rows) {
  const size_t count = 1 + (size_t)weir_rng_below(rng, ROWS);
  for (size_t r = 0; r < count; r++)
    rows[r] = (weir_solve_row){random_curve(rng, 2 * r), random_curve(rng, 2 * r + 1),
                               weir_rng_below(rng, 2), 0.0, 0.0};
  for (size_t r = 0; r < count && weir_rng_below(rng, 2); r++) {
    rows[r].taken_s = draw(rng, 5e-4);
    rows[r].taken_per_byte_s = draw(rng, 5e-10);
  }
  return count;
}

typedef struct brute {
  const weir_profile *p;
  const weir_solve_row *rows;
  size_t count;
  const uint64_t *allowed;
  double best;
} brute;

/* Every way to go on from tensor i, by the lines of the model. */
static void go_on(brute *b, size_t i, double c, double p, double e) {
  if (i == b->p->count) {
    if (e < b->best) b->best = e;
    return;
  }
  double gaps = 0.0, bytes = 0.0;
  uint64_t may = UINT64_MAX;
  for (size_t j = i; j < b->p->count; j++) {
    gaps += b->p->tensors[j].gap_s;
    bytes += 4.0 * b->p->tensors[j].numel;
    if (b->allowed) may &= b->allowed[j];
    for (size_t r = 0; r < b->count; r++) {
      if (!(may >> r & 1)) continue;
      const double h = weir_curve_at(&b->rows[r].compress, bytes);
      const double g = weir_curve_at(&b->rows[r].exchange, bytes);
      const double s = b->rows[r].taken_s + b->rows[r].taken_per_byte_s * bytes;
      if (b->rows[r].beside) {
        const double done = (p > c + gaps ? p : c + gaps) + h;
        go_on(b, j + 1, c + gaps + s, done, (e > done ? e : done) + g);
      } else {
        const double done = c + gaps + h;
        go_on(b, j + 1, done + s, p, (e > done ? e : done) + g);
      }
    }
  }
}

static void check(const brute *b, const weir_solution *s, size_t instance) {
  size_t begin = 0;
  weir_solve_bucket copy[MOST];
  for (size_t k = 0; k < s->count; begin = s->bucket[k++].end) {
    cr_assert(
        s->bucket[k].end > begin && s->bucket[k].end <= b->p->count && s->bucket[k].row < b->count,
        "instance %zu", instance);
    for (size_t t = begin; t < s->bucket[k].end && b->allowed; t++)
      cr_assert(b->allowed[t] >> s->bucket[k].row & 1, "instance %zu", instance);
    copy[k] = s->bucket[k];
  }
  cr_assert_eq(begin, b->p->count);
  cr_assert_eq(s->step_s, weir_solve_evaluate(b->p, b->rows, copy, s->count));
  cr_assert_eq(s->step_s, s->bucket[s->count - 1].exchanged_s);
  cr_assert_leq(s->least_s, s->step_s);
}

Test(planner_solve, small_cases_equal_brute_force) {
  weir_rng rng = weir_rng_of(11);
  for (size_t instance = 0; instance < 6000; instance++) {
    const weir_profile p = random_profile(&rng, 1 + (size_t)weir_rng_below(&rng, 6));
    weir_solve_row rows[ROWS];
    const size_t count = random_rows(&rng, rows);
    uint64_t allowed[6];
    for (size_t i = 0; i < 6; i++) /* one row at least */
      allowed[i] = weir_rng_next(&rng) | UINT64_C(1) << weir_rng_below(&rng, count);
    const weir_solve_limits limits = {.allowed = instance % 3 ? NULL : allowed};
    brute b = {&p, rows, count, limits.allowed, INFINITY};
    go_on(&b, 0, 0.0, 0.0, 0.0);
    weir_solution s;
    cr_assert_eq(weir_solve(&p, rows, count, &limits, &s), WEIR_OK);
    check(&b, &s, instance);
    cr_assert_eq(s.least_s, s.step_s, "instance %zu was cut short", instance);
    cr_assert(fabs(s.step_s - b.best) <= 1e-12 * b.best, "instance %zu: %.17g, not %.17g", instance,
              s.step_s, b.best);
    weir_solution_free(&s);
  }
}

Test(planner_solve, long_cases_keep_between_their_bound_and_every_baseline) {
  weir_rng rng = weir_rng_of(12);
  for (size_t instance = 0; instance < 60; instance++) {
    const weir_profile p = random_profile(&rng, 20 + (size_t)weir_rng_below(&rng, MOST - 19));
    weir_solve_row rows[ROWS];
    const brute b = {&p, rows, random_rows(&rng, rows), NULL, 0.0};
    weir_solution s;
    cr_assert_eq(weir_solve(&p, rows, b.count, NULL, &s), WEIR_OK);
    check(&b, &s, instance);
    for (size_t r = 0; r < b.count; r++)
      for (size_t k = 0; k < weir_fusion_baseline_count; k++) {
        weir_fusion f;
        weir_solve_bucket bucket[MOST];
        cr_assert_eq(weir_fusion_run_baseline(&weir_fusion_baselines[k], &p, &rows[r].compress,
                                              &rows[r].exchange, &f),
                     WEIR_OK);
        for (size_t i = 0; i < f.buckets; i++)
          bucket[i] = (weir_solve_bucket){.end = f.end[i], .row = r};
        const double step = weir_solve_evaluate(&p, rows, bucket, f.buckets);
        cr_assert_leq(s.step_s, step * (1.0 + 1e-12));
        cr_assert_leq(s.least_s, step * (1.0 + 1e-12));
        weir_fusion_free(&f);
      }
    weir_solution_free(&s);
  }
}

/* Three tensors of 4 bytes, a second apart.  Dense: nothing to compress, 4 s a tensor.  Compressed:
 * 1 s and 1 s a bucket.  The first is hidden either way; what is last must be compressed. */
Test(planner_solve, a_case_by_hand) {
  for (size_t i = 0; i < 3; i++) tensors[i] = (weir_profile_tensor){name, 1.0, 1.0};
  const weir_profile p = {3, tensors};
  weir_solve_row rows[] = {{.exchange = {.per_byte_s = 1.0}},
                           {.compress = {.fixed_s = 1.0}, .exchange = {.fixed_s = 1.0}}};
  weir_solution s;
  /* One bucket compressed: 3 + 1 + 1. */
  cr_assert_eq(weir_solve(&p, rows, 2, NULL, &s), WEIR_OK);
  cr_assert_float_eq(s.step_s, 5.0, 1e-12);
  cr_assert_eq(s.count, 1u);
  cr_assert_eq(s.bucket[0].row, 1u);
  cr_assert_float_eq(s.bucket[0].compressed_s, 4.0, 1e-12);
  weir_solution_free(&s);
  /* The last tensor may only travel dense: with the first two compressed together C = 3, E = 4, and
   * then C = 4, E = 8.  Each dense and alone: 5, 9, 13. */
  const uint64_t allowed[] = {3, 3, 1};
  const weir_solve_limits limits = {.allowed = allowed};
  cr_assert_eq(weir_solve(&p, rows, 2, &limits, &s), WEIR_OK);
  cr_assert_float_eq(s.step_s, 8.0, 1e-12);
  cr_assert_eq(s.count, 2u);
  cr_assert_eq(s.bucket[1].row, 0u);
  weir_solution_free(&s);
  /* When each compressed exchange takes 3 s from the caller: C = 3, E = 4, then C = 6 + 1, E = 7
   * + 4. */
  rows[1].taken_s = 3.0;
  cr_assert_eq(weir_solve(&p, rows, 2, &limits, &s), WEIR_OK);
  cr_assert_float_eq(s.step_s, 11.0, 1e-12);
  cr_assert_eq(s.count, 2u);
  weir_solution_free(&s);
  rows[1].taken_s = 0.0;
  /* On a thread of its own: C = 2, P = 3, E = 4; the last is ready at 3 but the wire only at 4. */
  rows[1].beside = true;
  cr_assert_eq(weir_solve(&p, rows, 2, &limits, &s), WEIR_OK);
  cr_assert_float_eq(s.step_s, 8.0, 1e-12);
  weir_solution_free(&s);
}

Test(planner_solve, a_search_cut_short_says_so) {
  weir_rng rng = weir_rng_of(13);
  size_t inexact = 0;
  for (size_t instance = 0; instance < 100; instance++) {
    const weir_profile p = random_profile(&rng, 5);
    weir_solve_row rows[ROWS];
    const size_t count = random_rows(&rng, rows);
    const weir_solve_limits limits = {.work = 1};
    brute b = {&p, rows, count, NULL, INFINITY};
    go_on(&b, 0, 0.0, 0.0, 0.0);
    weir_solution s;
    cr_assert_eq(weir_solve(&p, rows, count, &limits, &s), WEIR_OK);
    cr_assert_leq(s.least_s, b.best * (1.0 + 1e-12));
    cr_assert_geq(s.step_s, b.best * (1.0 - 1e-12));
    inexact += s.least_s < s.step_s;
    weir_solution_free(&s);
  }
  cr_assert_gt(inexact, 0u);
}

Test(planner_solve, bad_rows_and_limits_are_refused) {
  tensors[0] = tensors[1] = (weir_profile_tensor){name, 1.0, 1.0};
  const weir_profile p = {2, tensors};
  weir_solve_row rows[WEIR_SOLVE_ROWS + 1] = {
      {.compress = {.fixed_s = 1.0}, .exchange = {.fixed_s = 1.0}}};
  weir_solution s;
  cr_assert_eq(weir_solve(&p, rows, 0, NULL, &s), WEIR_E_INVALID);
  cr_assert_eq(weir_solve(&p, rows, WEIR_SOLVE_ROWS + 1, NULL, &s), WEIR_E_INVALID);
  const uint64_t none[] = {1, 2};
  const weir_solve_limits limits = {.allowed = none};
  cr_assert_eq(weir_solve(&p, rows, 1, &limits, &s), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "tensor 1 ('t')"), "%s", weir_last_error());
  cr_assert_eq(s.bucket, NULL);
  rows[0].exchange.per_byte_s = NAN;
  cr_assert_eq(weir_solve(&p, rows, 1, NULL, &s), WEIR_E_INVALID);
  rows[0].exchange.per_byte_s = 0.0;
  rows[0].taken_s = -1.0;
  cr_assert_eq(weir_solve(&p, rows, 1, NULL, &s), WEIR_E_INVALID);
  rows[0].taken_s = 0.0;
  rows[0].exchange.per_byte_s = 1e308; /* finite, and not for 8 bytes */
  cr_assert_eq(weir_solve(&p, rows, 1, NULL, &s), WEIR_E_INVALID);
  rows[0].exchange.per_byte_s = 0.0;
  const weir_profile many = {WEIR_SOLVE_TENSORS + 1, tensors};
  cr_assert_eq(weir_solve(&many, rows, 1, NULL, &s), WEIR_E_CAPACITY);
}

/* Ring of 4 ranks: 2 * 3 latencies and 2 * 3/4 of the bytes; all-gather of 1/100 of the elements at
 * 8 bytes each: 2 latencies and 3 messages, 0.06 of the dense bytes. */
Test(planner_solve, exchange_costs_by_hand) {
  const weir_plan ring = {.algorithm = WEIR_ALGORITHM_RING, .cr = 1.0};
  const weir_plan ag = {.codec = WEIR_CODEC_TOPK, .scheme = WEIR_SCHEME_GATHER, .cr = 0.01};
  const weir_group_shape four = {4, 4, false, 0, 0};
  const weir_link link = {.alpha = 1e-3, .beta = 1e-9};
  weir_curve c = weir_solve_exchange(&ring, four, &link, 4e6);
  cr_assert_float_eq(c.fixed_s, 6e-3, 1e-12);
  cr_assert_float_eq(c.per_byte_s, 1.5e-9, 1e-18);
  c = weir_solve_exchange(&ag, four, &link, 4e6);
  cr_assert_float_eq(weir_curve_at(&c, 4e6), 2e-3 + 0.06 * 4e6 * 1e-9, 1e-6);
  const weir_plan unknown = {.codec = WEIR_CODEC_COUNT};
  c = weir_solve_exchange(&unknown, four, &link, 4e6);
  cr_assert_eq(weir_curve_check(&c, "x"), WEIR_E_INVALID);
}
