/* How much progress an arm makes: the statistics of paired trials, by hand and over simulated
 * losses. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "controller/progress.h"

/* y = 4, 2, 3 at 0, 1, 2: the line 3.5 - 0.5 x, 0.5, -1 and 0.5 off it, so a variance of 1.5 with
 * one degree of freedom, over a spread of 2 about the middle. */
Test(progress, slope_by_hand) {
  const weir_slope line = weir_loss_slope((const double[]){4, 2, 3}, 3);
  cr_assert_float_eq(line.per_step, 0.5, 1e-12);
  cr_assert_float_eq(line.level, 2.5, 1e-12);
  cr_assert_float_eq(line.scatter, sqrt(1.5), 1e-12);
  cr_assert_float_eq(line.error, sqrt(0.75), 1e-12);
  cr_assert_not(weir_slope_clear(&line));
  const weir_slope exact = weir_loss_slope((const double[]){3, 2, 1, 0}, 4);
  cr_assert_float_eq(exact.per_step, 1, 1e-12);
  cr_assert(weir_slope_clear(&exact));
  const weir_slope rising = weir_loss_slope((const double[]){0, 1, 2, 3}, 4);
  cr_assert_not(weir_slope_clear(&rising));
  cr_assert_not(isfinite(weir_loss_slope((const double[]){1, 2}, 2).error));
}

/* The reference's losses on each batch, and an arm's that falls behind them by `lag` a step. */
static void lag_behind(double *arm, double *reference, double lag) {
  for (size_t k = 0; k < WEIR_ROUND_STEPS; k++) {
    reference[k] = 3 + 0.3 * sin((double)(7 * k)); /* batches differ far more than arms */
    arm[k] = reference[k] + lag * (double)k;
  }
}

Test(progress, a_round_tells_the_share_of_progress) {
  const weir_slope slope = {.per_step = 0.01};
  double arm[WEIR_ROUND_STEPS], reference[WEIR_ROUND_STEPS];
  weir_evidence evidence = {0};
  lag_behind(arm, reference, 0.004); /* 0.6 of the progress */
  cr_assert(weir_round_add(&evidence, arm, reference, &slope));
  cr_assert_eq(evidence.count, (size_t)WEIR_ROUND_SAMPLES);
  for (size_t i = 0; i < evidence.count; i++)
    cr_assert_float_eq(evidence.sample[i], 0.6, 1e-9, "%g", evidence.sample[i]);
  /* A slope that is known less well makes the arm look worse: 0.004 of 0.008. */
  const weir_slope unsure = {.per_step = 0.01, .error = 0.002};
  cr_assert(weir_round_add(&evidence, arm, reference, &unsure));
  cr_assert_float_eq(evidence.sample[WEIR_ROUND_SAMPLES], 0.5, 1e-9);
  for (int i = 0; i < 200; i++) (void)weir_round_add(&evidence, arm, reference, &slope);
  cr_assert_eq(evidence.count, (size_t)WEIR_SAMPLES_MAX);
}

Test(progress, a_round_that_cannot_be_compared_adds_nothing) {
  const weir_slope slope = {.per_step = 0.01}, flat = {0};
  double arm[WEIR_ROUND_STEPS], reference[WEIR_ROUND_STEPS];
  weir_evidence evidence = {0};
  lag_behind(arm, reference, 0);
  cr_assert_not(weir_round_add(&evidence, arm, reference, &flat));
  arm[5] = NAN;
  cr_assert_not(weir_round_add(&evidence, arm, reference, &slope));
  lag_behind(arm, reference, 0);
  arm[0] *= 1.01; /* another batch, or other weights */
  cr_assert_not(weir_round_add(&evidence, arm, reference, &slope));
  cr_assert_eq(evidence.count, 0u);
}

Test(progress, verdicts_by_hand) {
  /* Mean 1, variance 0.04 / 5, error 0.036515; Student's t of 5 degrees at 97.5 % is 2.5706. */
  weir_evidence e = {6, {0.9, 1.0, 1.1, 0.9, 1.0, 1.1}};
  weir_judgement j = weir_progress_judge(&e);
  cr_assert_float_eq(j.mean, 1, 1e-12);
  cr_assert_float_eq(j.low, 1 - 2.5706 * 0.036515, 1e-3, "%g", j.low);
  cr_assert_float_eq(j.high, 1 + 0.5 * 2.5706 * 0.036515, 1e-3);
  cr_assert_eq(j.verdict, WEIR_VERDICT_MORE); /* not above 0.95 */
  for (int i = 0; i < 6; i++) e.sample[i] = 1 + 0.2 * (e.sample[i] - 1);
  cr_assert_eq(weir_progress_judge(&e).verdict, WEIR_VERDICT_HOLDS);
  e.count = 5; /* too few to be taken */
  cr_assert_eq(weir_progress_judge(&e).verdict, WEIR_VERDICT_MORE);
  /* Mean 0.55, error 0.05, t of 1 degree 12.706: at most 0.55 + 0.318. */
  const weir_evidence worse = {2, {0.5, 0.6}};
  j = weir_progress_judge(&worse);
  cr_assert_float_eq(j.high, 0.8677, 1e-3);
  cr_assert_eq(j.verdict, WEIR_VERDICT_FALLS);
  const weir_evidence nothing = {1, {1.0}};
  cr_assert_eq(weir_progress_judge(&nothing).verdict, WEIR_VERDICT_MORE);
}

/* A round as docs/internals/progress.md models it: the arm lags by (1 - p) g a step, the two
 * trainings drift apart at random, and a batch tells of the gap with an error of its own. */
static weir_verdict simulate_round(weir_rng *rng, weir_evidence *evidence, double p, double drift,
                                   double noise) {
  const weir_slope slope = {.per_step = 0.002};
  double arm[WEIR_ROUND_STEPS], reference[WEIR_ROUND_STEPS], gap = 0;
  for (size_t k = 0; k < WEIR_ROUND_STEPS; k++) {
    reference[k] = 2.5;
    arm[k] = 2.5 + gap + (k > 0 ? noise * weir_rng_normal(rng) : 0);
    gap += (1 - p) * slope.per_step + drift * weir_rng_normal(rng);
  }
  cr_assert(weir_round_add(evidence, arm, reference, &slope));
  return weir_progress_judge(evidence).verdict;
}

static weir_verdict simulate(weir_rng *rng, weir_evidence *evidence, double p, double drift,
                             double noise, int rounds) {
  weir_verdict verdict = WEIR_VERDICT_MORE;
  for (int r = 0; r < rounds && verdict == WEIR_VERDICT_MORE; r++)
    verdict = simulate_round(rng, evidence, p, drift, noise);
  return verdict;
}

static double share_taken(double p, double drift, double noise, int rounds) {
  enum { RUNS = 2000 };
  weir_rng rng;
  int taken = 0;
  weir_rng_seed(&rng, 11);
  for (int i = 0; i < RUNS; i++)
    taken += simulate(&rng, &(weir_evidence){0}, p, drift, noise, rounds) == WEIR_VERDICT_HOLDS;
  return (double)taken / RUNS;
}

Test(progress, false_alarms_and_power) {
  static const double drift[] = {1e-4, 4e-4, 1e-3}, noise[] = {4e-4, 2e-3, 6e-3};
  for (int i = 0; i < 3; i++) {
    const double edge = share_taken(0.95, drift[i], noise[i], 10);
    const double bad = share_taken(0.90, drift[i], noise[i], 10);
    const double good = share_taken(1.0, drift[i], noise[i], 10);
    fprintf(stderr, "noise %g: taken at 0.95 %.3f, 0.90 %.4f, 0.5 %.4f, 1.0 %.3f\n", noise[i], edge,
            bad, share_taken(0.5, drift[i], noise[i], 10), good);
    cr_assert_leq(edge, 0.06);
    cr_assert_leq(bad, 0.01);
    cr_assert_eq(share_taken(0.5, drift[i], noise[i], 10), 0);
    if (i == 0) cr_assert_geq(good, 0.8, "%g", good);
  }
}

/* Of the methods that were taken at p = 1, the share that is kept at the next look, when p is
 * another: half of the evidence is the old, and there is time for two rounds. */
static double share_kept(double p, double drift, double noise) {
  enum { RUNS = 2000 };
  weir_rng rng;
  int kept = 0, taken = 0;
  weir_rng_seed(&rng, 12);
  for (int i = 0; i < RUNS; i++) {
    weir_evidence evidence = {0};
    if (simulate(&rng, &evidence, 1.0, drift, noise, 10) != WEIR_VERDICT_HOLDS) continue;
    taken++;
    weir_evidence_newest(&evidence);
    cr_assert_eq(evidence.count, WEIR_ROUND_SAMPLES);
    kept += simulate(&rng, &evidence, p, drift, noise, 2) == WEIR_VERDICT_HOLDS;
  }
  return (double)kept / taken;
}

Test(progress, a_second_look_finds_what_has_changed) {
  static const double drift[] = {1e-4, 4e-4, 1e-3}, noise[] = {4e-4, 2e-3, 6e-3};
  for (int i = 0; i < 3; i++) {
    const double gone = share_kept(0.5, drift[i], noise[i]),
                 less = share_kept(0.8, drift[i], noise[i]);
    const double still = share_kept(1.0, drift[i], noise[i]);
    fprintf(stderr, "noise %g: kept at 0.5 %.3f, 0.8 %.3f, 0.9 %.3f, 1.0 %.3f\n", noise[i], gone,
            less, share_kept(0.9, drift[i], noise[i]), still);
    cr_assert_leq(gone, 0.01);
    cr_assert_leq(less, 0.03);
    if (i == 0) cr_assert_geq(still, 0.8, "%g", still);
  }
}

Test(progress, the_newest_round_is_what_is_left) {
  weir_evidence e = {5, {1, 2, 3, 4, 5}};
  weir_evidence_newest(&e);
  cr_assert_eq(e.count, 3);
  for (int i = 0; i < 3; i++) cr_assert_eq(e.sample[i], 3.0 + i);
  e.count = 2;
  weir_evidence_newest(&e);
  cr_assert_eq(e.count, 2);
}
