/* Fusion: equal to brute force and to the cubic recurrence, never worse than a baseline. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "plan_files.h"
#include "planner/fusion.h"

enum { MOST = 60, POINTS = 6 };

static weir_profile_tensor tensors[MOST];
static double x[2][POINTS], y[2][POINTS];

/* Few distinct magnitudes so that ties and zeros are frequent; every third case is continuous. */
static double draw(weir_rng *rng, double scale) {
  if (weir_rng_below(rng, 3) == 0) return scale * weir_rng_uniform(rng);
  return scale * (double)weir_rng_below(rng, 5) / 4.0;
}

static weir_profile random_profile(weir_rng *rng, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const double size = weir_rng_below(rng, 4) ? 1e3 : 1e6;
    tensors[i] = (weir_profile_tensor){NULL, 1.0 + floor(draw(rng, size)), draw(rng, 1e-3)};
  }
  return (weir_profile){n, tensors};
}

static weir_curve random_affine(weir_rng *rng) {
  return (weir_curve){.fixed_s = draw(rng, 1e-3), .per_byte_s = draw(rng, 1e-9)};
}

static weir_curve random_measured(weir_rng *rng, int which) {
  double bytes = 0.0, seconds = 0.0;
  for (size_t i = 0; i < POINTS; i++) {
    x[which][i] = bytes += 1.0 + draw(rng, 3e6);
    y[which][i] = seconds += draw(rng, 1e-3);
  }
  const size_t count = 1 + (size_t)weir_rng_below(rng, POINTS);
  return (weir_curve){.count = count, .bytes = x[which], .seconds = y[which]};
}

/* The model's two lines of recurrence, written again on bit masks: bit i of mask closes a bucket
 * after tensor i. */
static double brute_force(const weir_profile *p, const weir_curve *h, const weir_curve *g) {
  double best = INFINITY;
  for (unsigned mask = 0; mask < 1u << (p->count - 1); mask++) {
    double compressed = 0.0, sent = 0.0, bytes = 0.0;
    for (size_t i = 0; i < p->count; i++) {
      compressed += p->tensors[i].gap_s;
      bytes += 4.0 * p->tensors[i].numel;
      if (i + 1 < p->count && !(mask >> i & 1)) continue;
      compressed += weir_curve_at(h, bytes);
      sent = (compressed > sent ? compressed : sent) + weir_curve_at(g, bytes);
      bytes = 0.0;
    }
    if (sent < best) best = sent;
  }
  return best;
}

/* f(j, k) = min over i of max(C(j, k), f(i, k - 1)) + g(i..j); affine costs only. */
static double cubic(const weir_profile *p, const weir_curve *h, const weir_curve *g) {
  const size_t n = p->count;
  double ready[MOST + 1], bytes[MOST + 1], f[MOST + 1], next[MOST + 1], best = INFINITY;
  weir_profile_sums(p, ready, bytes);
  for (size_t j = 0; j <= n; j++) f[j] = j ? INFINITY : 0.0;
  for (size_t k = 1; k <= n; k++) {
    for (size_t j = 0; j <= n; j++) {
      const double c = ready[j] + (double)k * h->fixed_s + h->per_byte_s * bytes[j];
      next[j] = INFINITY;
      for (size_t i = 0; i < j; i++)
        next[j] = fmin(next[j], fmax(c, f[i]) + g->fixed_s + g->per_byte_s * (bytes[j] - bytes[i]));
    }
    memcpy(f, next, sizeof f);
    best = fmin(best, f[n]);
  }
  return best;
}

/* The answer is a fusion of all tensors, its time is its own, and it is the wanted optimum. */
static void check(const weir_profile *p, const weir_curve *h, const weir_curve *g,
                  const weir_fusion *fusion, double wanted, size_t instance) {
  cr_assert_geq(fusion->buckets, 1u);
  size_t begin = 0;
  for (size_t k = 0; k < fusion->buckets; begin = fusion->end[k++])
    cr_assert(fusion->end[k] > begin && fusion->end[k] <= p->count, "instance %zu", instance);
  cr_assert_eq(begin, p->count);
  cr_assert_eq(fusion->iteration_s, weir_fusion_evaluate(p, h, g, fusion->end, fusion->buckets));
  cr_assert_eq(fusion->least_s, fusion->iteration_s);
  cr_assert(fabs(fusion->iteration_s - wanted) <= 1e-12 * wanted, "instance %zu: %.17g, not %.17g",
            instance, fusion->iteration_s, wanted);
}

Test(planner_fusion, affine_costs_equal_brute_force) {
  weir_rng rng = weir_rng_of(1);
  for (size_t instance = 0; instance < 12000; instance++) {
    const weir_profile p = random_profile(&rng, 1 + (size_t)weir_rng_below(&rng, 14));
    const weir_curve h = random_affine(&rng), g = random_affine(&rng);
    const double wanted = brute_force(&p, &h, &g);
    weir_fusion fusion;
    cr_assert_eq(weir_fusion_solve(&p, &h, &g, &fusion), WEIR_OK);
    check(&p, &h, &g, &fusion, wanted, instance);
    weir_fusion_free(&fusion);
    cr_assert_eq(weir_fusion_labels(&p, &h, &g, 0, &fusion), WEIR_OK);
    check(&p, &h, &g, &fusion, wanted, instance);
    weir_fusion_free(&fusion);
  }
}

Test(planner_fusion, measured_costs_equal_brute_force) {
  weir_rng rng = weir_rng_of(2);
  for (size_t instance = 0; instance < 12000; instance++) {
    const weir_profile p = random_profile(&rng, 1 + (size_t)weir_rng_below(&rng, 14));
    const weir_curve h = random_measured(&rng, 0), g = random_measured(&rng, 1);
    weir_fusion fusion;
    cr_assert_eq(weir_fusion_solve(&p, &h, &g, &fusion), WEIR_OK);
    check(&p, &h, &g, &fusion, brute_force(&p, &h, &g), instance);
    weir_fusion_free(&fusion);
  }
}

Test(planner_fusion, long_profiles_equal_the_cubic_recurrence_and_beat_every_baseline) {
  weir_rng rng = weir_rng_of(3);
  for (size_t instance = 0; instance < 400; instance++) {
    const weir_profile p = random_profile(&rng, 15 + (size_t)weir_rng_below(&rng, MOST - 14));
    const weir_curve h = random_affine(&rng), g = random_affine(&rng);
    weir_fusion best, other;
    cr_assert_eq(weir_fusion_solve(&p, &h, &g, &best), WEIR_OK);
    check(&p, &h, &g, &best, cubic(&p, &h, &g), instance);
    for (size_t b = 0; b < weir_fusion_baseline_count; b++) {
      cr_assert_eq(weir_fusion_run_baseline(&weir_fusion_baselines[b], &p, &h, &g, &other),
                   WEIR_OK);
      cr_assert_leq(best.iteration_s, other.iteration_s * (1.0 + 1e-12));
      weir_fusion_free(&other);
    }
    weir_fusion_free(&best);
  }
}

Test(planner_fusion, a_search_cut_short_says_how_far_it_may_be) {
  weir_rng rng = weir_rng_of(4);
  size_t inexact = 0;
  for (size_t instance = 0; instance < 300; instance++) {
    const weir_profile p = random_profile(&rng, 10);
    const weir_curve h = random_measured(&rng, 0), g = random_measured(&rng, 1);
    const double wanted = brute_force(&p, &h, &g);
    weir_fusion fusion;
    cr_assert_eq(weir_fusion_labels(&p, &h, &g, 1, &fusion), WEIR_OK);
    cr_assert_leq(fusion.least_s, wanted * (1.0 + 1e-12));
    cr_assert_geq(fusion.iteration_s, wanted * (1.0 - 1e-12));
    inexact += fusion.iteration_s > wanted * (1.0 + 1e-9);
    weir_fusion_free(&fusion);
  }
  cr_assert_gt(inexact, 0u);
}

/* By hand: four tensors of one element, ready after 1 s each; compression 1 s a
 * bucket, sending 0.5 s and 0.25 s a tensor. */
Test(planner_fusion, a_case_by_hand) {
  for (size_t i = 0; i < 4; i++) tensors[i] = (weir_profile_tensor){NULL, 1.0, 1.0};
  const weir_profile p = {4, tensors};
  const weir_curve h = {.fixed_s = 1.0}, g = {.fixed_s = 0.5, .per_byte_s = 0.0625};
  const size_t alone[] = {1, 2, 3, 4}, halves[] = {2, 4}, one[] = {4}, skew[] = {3, 4};
  /* C = 2, 4, 6, 8; each is sent in 0.75 while the next is computed. */
  cr_assert_float_eq(weir_fusion_evaluate(&p, &h, &g, alone, 4), 8.75, 1e-12);
  cr_assert_float_eq(weir_fusion_evaluate(&p, &h, &g, halves, 2), 7.0, 1e-12); /* C = 3, 6 */
  cr_assert_float_eq(weir_fusion_evaluate(&p, &h, &g, skew, 2), 6.75, 1e-12);  /* C = 4, 6 */
  cr_assert_float_eq(weir_fusion_evaluate(&p, &h, &g, one, 1), 6.5, 1e-12);    /* C = 5 */
  weir_fusion best;
  cr_assert_eq(weir_fusion_solve(&p, &h, &g, &best), WEIR_OK);
  cr_assert_eq(best.buckets, 1u);
  cr_assert_float_eq(best.iteration_s, 6.5, 1e-12);
  weir_fusion_free(&best);
}

Test(planner_fusion, baselines_close_groups_where_they_say) {
  for (size_t i = 0; i < 7; i++) tensors[i] = (weir_profile_tensor){NULL, 262144.0, 1e-3};
  const weir_profile p = {7, tensors}; /* 1 MiB each */
  const weir_curve c = {.fixed_s = 1e-3};
  const weir_fusion_baseline bucket = {"", 2097152.0, 0}, even = {"", 0.0, 3}, alone = {"", 0.0, 0};
  const size_t buckets[] = {2, 4, 6, 7}, thirds[] = {3, 5, 7};
  weir_fusion f;
  cr_assert_eq(weir_fusion_run_baseline(&bucket, &p, &c, &c, &f), WEIR_OK);
  cr_assert_eq(f.buckets, 4u);
  cr_assert_arr_eq(f.end, buckets, sizeof buckets);
  weir_fusion_free(&f);
  cr_assert_eq(weir_fusion_run_baseline(&even, &p, &c, &c, &f), WEIR_OK);
  cr_assert_eq(f.buckets, 3u);
  cr_assert_arr_eq(f.end, thirds, sizeof thirds);
  weir_fusion_free(&f);
  cr_assert_eq(weir_fusion_run_baseline(&alone, &p, &c, &c, &f), WEIR_OK);
  cr_assert_eq(f.buckets, 7u);
  weir_fusion_free(&f);
}

Test(planner_fusion, measured_curves_are_read_and_refused) {
  static const struct {
    const char *text, *says;
  } bad[] = {
      {"bytes,ms\n", ":2: no rows"},
      {"bytes,seconds\n1,1\n", ":1: "},
      {"bytes,ms\n1,1\n1,2\n", ":3: 1 bytes after 1: expected ascending"},
      {"bytes,ms\n1,1\n2,0.5\n", ":3: 0.5 ms after 1: expected times that never descend"},
      {"bytes,ms\n-1,1\n", ":2: "},
      {"bytes,ms\n1,nan\n", ":2: "},
  };
  char path[64];
  weir_curve curve;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_plan_file(path, bad[i].text, strlen(bad[i].text));
    cr_assert_eq(weir_curve_load(&curve, path), WEIR_E_PARSE);
    cr_assert(strstr(weir_last_error(), bad[i].says), "%s", weir_last_error());
    unlink(path);
  }
  const char good[] = "bytes,ms\n100,1\n200,1\n400,3\n";
  write_plan_file(path, good, sizeof good - 1);
  cr_assert_eq(weir_curve_load(&curve, path), WEIR_OK);
  unlink(path);
  const double at[] = {0, 100, 150, 200, 300, 400, 500}, ms[] = {1, 1, 1, 1, 2, 3, 4};
  for (size_t i = 0; i < 7; i++)
    cr_assert_float_eq(weir_curve_at(&curve, at[i]), ms[i] * 1e-3, 1e-15);
  weir_curve_free(&curve);
}

Test(planner_fusion, costs_out_of_range_are_refused) {
  tensors[0] = (weir_profile_tensor){NULL, 1.0, 1.0};
  const weir_profile p = {1, tensors};
  const weir_curve good = {.fixed_s = 1.0};
  const double wrong[] = {-1.0, NAN, INFINITY};
  weir_fusion f;
  for (size_t i = 0; i < 3; i++) {
    const weir_curve fixed = {.fixed_s = wrong[i]}, slope = {.per_byte_s = wrong[i]};
    cr_assert_eq(weir_fusion_solve(&p, &fixed, &good, &f), WEIR_E_INVALID);
    cr_assert_eq(weir_fusion_solve(&p, &good, &slope, &f), WEIR_E_INVALID);
  }
  double bytes[] = {1.0, 2.0}, falling[] = {2.0, 1.0}, rising[] = {1.0, 2.0};
  const weir_curve endless = {.per_byte_s = 1e308};
  const weir_curve rises = {.count = 2, .bytes = bytes, .seconds = rising};
  cr_assert_eq(weir_fusion_solve(&p, &good, &endless, &f), WEIR_E_INVALID);
  cr_assert_eq(weir_fusion_solve(&p, &rises, &endless, &f), WEIR_E_INVALID);
  const weir_curve falls = {.count = 2, .bytes = bytes, .seconds = falling};
  cr_assert_eq(weir_fusion_solve(&p, &falls, &good, &f), WEIR_E_INVALID);
  cr_assert_eq(weir_fusion_affine(&p, &falls, &good, &f), WEIR_E_INVALID);
}
