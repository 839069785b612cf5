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

/* Blocks of a line lie on it, whatever their length: 1 up to 127 steps, then 2, and 16 for 1027. */
Test(progress, the_course_of_a_line_is_the_line) {
  weir_course course = {0};
  for (uint64_t t = 0; t < 1027; t++) {
    weir_course_add(&course, 10.0 - 0.001 * (double)t);
    cr_assert_eq(weir_course_steps(&course), t + 1);
    if (t < 2 * 16) continue;
    const weir_slope line = weir_course_slope(&course, (t + 1) / 2);
    cr_assert_float_eq(line.per_step, 0.001, 1e-9);
    cr_assert_float_eq(line.level, 10.0 - 0.001 * (double)t, 1e-9, "%g at %d", line.level, (int)t);
  }
  cr_assert_eq(course.each, 16u);
  cr_assert_not(isfinite(weir_course_slope(&course, 2 * 16).error)); /* two blocks are no line */
}

/* What was steep before is not part of it; of n losses that have a deviation of s, the slope has an
 * error of s sqrt(12 / n^3). */
Test(progress, the_course_of_the_later_half) {
  enum { N = 4096 };
  const double deviation = 0.1;
  weir_course course = {0};
  weir_rng rng = weir_rng_of(3);
  for (int t = 0; t < N; t++)
    weir_course_add(&course,
                    (t < N / 2 ? 5.0 - 0.002 * t : 5.0 - 0.001 * N - 0.0002 * (t - N / 2)) +
                        deviation * weir_rng_normal(&rng));
  const weir_slope line = weir_course_slope(&course, N / 2);
  const double error = deviation * sqrt(12.0 / pow(N / 2, 3));
  cr_assert_float_eq(line.error, error, 0.3 * error, "%g instead of %g", line.error, error);
  cr_assert_float_eq(line.per_step, 0.0002, 3 * error, "%g", line.per_step);
  const double apart = deviation / sqrt((double)course.each); /* means of so many */
  cr_assert_float_eq(line.scatter, apart, 0.3 * apart, "%g", line.scatter);
}

enum { K = WEIR_ROUND_STEPS, B = WEIR_ROUND_BATCHES };
static const weir_round_form *const adaptive = &weir_round_adaptive;
static const weir_round_form *const sgd = &weir_round_sgd;

/* The reference's losses on each batch, and an arm's that falls behind them by `lag` a step, and by
 * `debt` from its second step on for as long as it is in force. */
static void lag_behind(double *arm, double *reference, double lag, double debt) {
  for (size_t k = 0; k < B; k++) {
    reference[k] = 3 + 0.3 * sin((double)(7 * k)); /* batches differ far more than arms */
    arm[k] = reference[k] + lag * (double)(k < K ? k : K) + (k > 0 && k < K ? debt : 0);
  }
}

Test(progress, a_round_tells_the_share_of_progress) {
  const weir_slope slope = {.per_step = 0.01};
  double arm[B], reference[B];
  weir_evidence evidence = {0};
  lag_behind(arm, reference, 0.004, 0); /* 0.6 of the progress */
  cr_assert(weir_round_add(&evidence, arm, reference, adaptive, &slope, slope.level));
  cr_assert_eq(evidence.count, (size_t)WEIR_ROUND_SAMPLES);
  for (size_t i = 0; i < evidence.count; i++)
    cr_assert_float_eq(evidence.sample[i], 0.6, 1e-9, "%g", evidence.sample[i]);
  /* A slope that is known less well makes the arm look worse: 0.004 of 0.008. */
  const weir_slope unsure = {.per_step = 0.01, .error = 0.002};
  cr_assert(weir_round_add(&evidence, arm, reference, adaptive, &unsure, unsure.level));
  cr_assert_float_eq(evidence.sample[WEIR_ROUND_SAMPLES], 0.5, 1e-9);
  for (int i = 0; i < 200; i++)
    (void)weir_round_add(&evidence, arm, reference, adaptive, &slope, slope.level);
  cr_assert_eq(evidence.count, (size_t)WEIR_SAMPLES_MAX);
}

/* What an arm holds back while it is in force is its debt, and not its progress.  Steps 144 to 191
 * are 167.5 in the mean: 0.004 a step and 0.05 are 0.72. */
Test(progress, a_debt_is_not_lost_progress) {
  const weir_slope slope = {.per_step = 0.01};
  double arm[B], reference[B];
  weir_evidence evidence = {0};
  lag_behind(arm, reference, 0.004, 0.05);
  cr_assert(weir_round_add(&evidence, arm, reference, adaptive, &slope, slope.level));
  for (size_t i = 0; i < evidence.count; i++)
    cr_assert_float_eq(evidence.sample[i], 0.6, 1e-9, "%g", evidence.sample[i]);
  cr_assert_float_eq(weir_round_debt(arm, reference, K), 0.72, 1e-9);
}

Test(progress, rounds_that_cannot_be_compared) {
  const weir_slope slope = {.per_step = 0.01, .scatter = 0.1}, flat = {0};
  double arm[B], reference[B];
  weir_evidence evidence = {0};
  lag_behind(arm, reference, 0, 0);
  cr_assert_not(weir_round_add(&evidence, arm, reference, adaptive, &flat, flat.level));
  cr_assert_eq(evidence.count, 0u);
  cr_assert(weir_round_comparable(arm, reference, B));
  reference[B - 1] = NAN;
  cr_assert_not(weir_round_comparable(arm, reference, B));
  lag_behind(arm, reference, 0, 0);
  arm[0] *= 1.001; /* another batch, or other weights */
  cr_assert_not(weir_round_comparable(arm, reference, B));
  /* Leaps of 0.2 where losses have a deviation of 0.1: other batches from the second step on. */
  lag_behind(arm, reference, 0, 0);
  cr_assert_not(weir_round_leaps(arm, reference, &slope));
  for (size_t k = 1; k < 6; k += 2) arm[k] += 0.2;
  cr_assert(weir_round_comparable(arm, reference, B));
  cr_assert(weir_round_leaps(arm, reference, &slope));
  for (size_t k = 1; k < 6; k += 2) arm[k] -= 0.15;
  cr_assert_not(weir_round_leaps(arm, reference, &slope));
}

/* A tried training that has no finite loss any more makes no progress, and is infinitely far
 * behind. */
Test(progress, losses_that_are_not_finite) {
  static const weir_round_form *const forms[] = {&weir_round_adaptive, &weir_round_sgd};
  const weir_slope slope = {.per_step = 0.01, .scatter = 0.1, .level = 1};
  double arm[B], reference[B];
  for (size_t i = 0; i < 2; i++) {
    weir_evidence evidence = {0};
    lag_behind(arm, reference, 0, 0);
    for (size_t k = 3; k < B; k++) arm[k] = NAN;
    cr_assert(weir_round_comparable(arm, reference, weir_round_batches(forms[i])));
    cr_assert(weir_round_leaps(arm, reference, &slope));
    cr_assert(weir_round_add(&evidence, arm, reference, forms[i], &slope, slope.level));
    for (size_t n = 0; n < evidence.count; n++) cr_assert_float_eq(evidence.sample[n], -1, 0);
    cr_assert_eq(weir_round_debt(arm, reference, forms[i]->steps), INFINITY);
  }
}

Test(progress, verdicts_by_hand) {
  const weir_belief belief = {.progress = 0.95, .error = 0.1};
  /* Squares off the mean 0.02, and 3 x 0.1 x 0.1 = 0.03 expected, over 3 + 3 - 1: 0.01; of the mean
   * of three that count as one the same.  Believed 100 x 0.95, seen 100 x 1. */
  weir_evidence e = {3, {0.9, 1.0, 1.1}};
  weir_judgement j = weir_progress_judge(&e, adaptive, &belief);
  cr_assert_float_eq(j.mean, 0.975, 1e-6, "%g", j.mean);
  cr_assert_float_eq(j.low, 0.975 - 0.070711, 1e-6, "%g", j.low);
  cr_assert_float_eq(j.high, 0.975 + 0.070711, 1e-6);
  cr_assert_eq(j.verdict, WEIR_VERDICT_HOLDS); /* above 0.9 by an error */
  for (int i = 0; i < 3; i++) e.sample[i] -= 0.2;
  cr_assert_eq(weir_progress_judge(&e, adaptive, &belief).verdict,
               WEIR_VERDICT_FALLS); /* 0.875 + 0.071 */
  for (int i = 0; i < 3; i++) e.sample[i] += 0.1;
  cr_assert_eq(weir_progress_judge(&e, adaptive, &belief).verdict,
               WEIR_VERDICT_MORE); /* 0.925 +- 0.071 */
  for (int i = 0; i < 3; i++) e.sample[i] += 0.3;
  cr_assert_eq(weir_progress_judge(&e, adaptive, &belief).verdict,
               WEIR_VERDICT_FALLS); /* 1.075 - 0.071: more than there is */
  /* Arms that are not tried: nothing is told. */
  cr_assert_eq(weir_progress_judge(&e, adaptive, &adaptive->rounding).verdict, WEIR_VERDICT_MORE);
  e.count = 2; /* not a round */
  cr_assert_eq(weir_progress_judge(&e, adaptive, &belief).verdict, WEIR_VERDICT_MORE);
  /* Samples that say nothing take no arm, whatever is believed of it. */
  const weir_belief trusted = {.progress = 1, .error = 0.05};
  const weir_evidence noise = {3, {0, 1, 2}};
  j = weir_progress_judge(&noise, adaptive, &trusted);
  cr_assert_gt(j.low, 0.94);
  cr_assert_eq(j.verdict, WEIR_VERDICT_MORE);
}

/* A round as docs/internals/progress.md models it: the arm makes p of the progress, and in force it
 * is behind by `debt`, or ahead, with a time constant; the two trainings drift apart at random, and
 * a batch tells of the gap with an error of its own. */
typedef struct course {
  double debt, constant, drift, noise;
} course;

static weir_verdict simulate_round(weir_rng *rng, weir_evidence *evidence, const course *c,
                                   double p) {
  const weir_slope slope = {.per_step = 0.001};
  double arm[B], reference[B], gap = 0, owed = 0;
  for (size_t k = 0; k < B; k++) {
    reference[k] = 2.5;
    arm[k] = 2.5 + gap + owed + (k > 0 ? c->noise * weir_rng_normal(rng) : 0);
    owed += ((k < K ? c->debt : 0) - owed) / c->constant;
    gap += (k < K ? (1 - p) * slope.per_step : 0) + c->drift * weir_rng_normal(rng);
  }
  cr_assert(weir_round_add(evidence, arm, reference, adaptive, &slope, slope.level));
  return weir_progress_judge(evidence, adaptive, &adaptive->lagging).verdict;
}

static double share_taken(const course *c, double p, int rounds) {
  enum { RUNS = 2000 };
  weir_rng rng;
  int taken = 0;
  rng = weir_rng_of(11);
  for (int i = 0; i < RUNS; i++) {
    weir_evidence evidence = {0};
    weir_verdict verdict = WEIR_VERDICT_MORE;
    for (int r = 0; r < rounds && verdict == WEIR_VERDICT_MORE; r++)
      verdict = simulate_round(&rng, &evidence, c, p);
    taken += verdict == WEIR_VERDICT_HOLDS;
  }
  return (double)taken / RUNS;
}

/* Drifts and noises as of rounds on this tree's trainings and beyond, at a slope of 0.001; the last
 * is what 2 bits do under AdamW: ahead as long as they are in force, and for as long after as the
 * second moment remembers.  That is why nothing that only rounds is tried there. */
Test(progress, false_alarms_and_power) {
  static const double p[] = {0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0};
  static const course courses[] = {{0.02, 12, 2e-4, 2e-3},
                                   {0.02, 12, 6e-4, 5e-3},
                                   {0.05, 12, 6e-4, 1e-2},
                                   {0.05, 12, 1.5e-3, 2e-2},
                                   {-0.08, 100, 2e-4, 2e-3}};
  for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
    const course *c = &courses[i];
    double taken[7];
    fprintf(stderr, "%g behind, drift %g, noise %g:", c->debt, c->drift, c->noise);
    for (int k = 0; k < 7; k++) {
      taken[k] = share_taken(c, p[k], 3);
      fprintf(stderr, " %g: %.3f", p[k], taken[k]);
    }
    fputc('\n', stderr);
    if (c->debt < 0) {
      cr_assert_geq(taken[3], 0.5);
      continue;
    }
    cr_assert_leq(taken[0], 0.01, "%zu", i);
    cr_assert_leq(taken[1], 0.02, "%zu", i);
    cr_assert_leq(taken[2], 0.15, "%zu", i);
    cr_assert_geq(taken[6], taken[3]);
    if (c->drift < 3e-4) cr_assert_geq(taken[6], 0.9);
    if (c->drift < 3e-4) cr_assert_leq(taken[3], 0.01);
  }
}

/* Under SGD a sample is 1 less how far behind the arm is, as a share of the loss, whatever the
 * slope. */
Test(progress, a_debt_under_sgd_by_hand) {
  const weir_slope flat = {.level = 0.5, .per_step = -0.001, .error = 0.01};
  double arm[B], reference[B];
  weir_evidence evidence = {0};
  for (size_t k = 0; k < sgd->steps; k++) {
    reference[k] = 0.5 + 0.1 * sin((double)(7 * k));
    arm[k] = reference[k] + 0.001 * (double)k;
  }
  cr_assert(weir_round_add(&evidence, arm, reference, sgd, &flat, flat.level));
  /* Steps 18 to 23, 24 to 29 and 30 to 35 are 20.5, 26.5 and 32.5 in the mean, and of what builds
   * up with a time constant of 12 steps 0.81699, 0.88900 and 0.93268 are there in the mean. */
  static const double share[] = {1 - 0.041 / 0.8169924, 1 - 0.053 / 0.8890003,
                                 1 - 0.065 / 0.9326753};
  cr_assert_eq(evidence.count, 3u);
  for (size_t i = 0; i < 3; i++)
    cr_assert_float_eq(evidence.sample[i], share[i], 1e-7, "%g", evidence.sample[i]);
  /* Squares off the mean 0.000190 and 3 x 0.0025, over 5, three that count as two: 0.0007690; so
   * 1300.3 times 0.940169 and 100 times 0.95. */
  const weir_judgement j = weir_progress_judge(&evidence, sgd, &sgd->lagging);
  cr_assert_float_eq(j.mean, 0.940871, 1e-5, "%g", j.mean);
  cr_assert_float_eq(j.low, 0.940871 - 0.026723, 1e-5, "%g", j.low);
  cr_assert_eq(j.verdict, WEIR_VERDICT_FALLS); /* below 0.985 by an error */
  /* 2.5 % behind: 0.9734, which is neither 0.965 and an error nor 0.985 less one.  0.4 %:
   * 0.9929. */
  static const weir_verdict verdicts[] = {WEIR_VERDICT_MORE, WEIR_VERDICT_HOLDS};
  static const double more[] = {0.035, 0.021};
  for (size_t k = 0; k < 2; k++) {
    for (size_t i = 0; i < 3; i++) evidence.sample[i] += more[k];
    cr_assert_eq(weir_progress_judge(&evidence, sgd, &sgd->lagging).verdict, verdicts[k]);
  }
}

/* As many samples of the same mean again leave an error of 0.05 where it is 0.0707 now (those
 * above: 0.975 +- 0.0707), so it holds where the mean is above 0.95 then: with a deviation of 0.05
 * about 0.975 in 0.6915 of all cases.  At the bound itself it is half. */
Test(progress, how_likely_an_arm_is_to_hold) {
  const weir_belief belief = {.progress = 0.95, .error = 0.1};
  weir_evidence e = {3, {0.9, 1.0, 1.1}};
  double likely = weir_progress_likely(&e, adaptive, &belief);
  cr_assert_float_eq(likely, 0.69146, 1e-4, "%g", likely);
  for (int i = 0; i < 3; i++) e.sample[i] -= 0.05; /* moves the mean by half of it */
  likely = weir_progress_likely(&e, adaptive, &belief);
  cr_assert_float_eq(likely, 0.5, 1e-4, "%g", likely);
  e.count = 0;
  cr_assert_eq(weir_progress_likely(&e, adaptive, &belief), 0.0);
}

/* Arms that hold back a share of the loss with a time constant of 12 steps; trainings that drift
 * apart by so much of the loss a step, and batches that tell of the gap with an error. */
static bool taken_under_sgd(weir_rng *rng, const weir_round_form *form, const weir_belief *before,
                            double debt, double drift, double noise) {
  const int rounds = form == sgd ? 1 : 2;
  const weir_slope slope = {.level = 2.5, .per_step = 0.001};
  weir_evidence evidence = {0};
  weir_verdict verdict = WEIR_VERDICT_MORE;
  for (int round = 0; round < rounds && verdict == WEIR_VERDICT_MORE; round++) {
    double arm[B], reference[B], gap = 0;
    for (size_t k = 0; k < form->steps; k++) {
      reference[k] = 2.5;
      arm[k] = 2.5 * (1 + gap + debt * (1 - exp(-(double)k / 12)) + noise * weir_rng_normal(rng));
      gap += drift * weir_rng_normal(rng);
    }
    cr_assert(weir_round_add(&evidence, arm, reference, form, &slope, slope.level));
    verdict = weir_progress_judge(&evidence, form, before).verdict;
  }
  return verdict == WEIR_VERDICT_HOLDS;
}

/* One round of 36 steps, and up to two of 18, also of arms that only round, of which more is
 * believed before: these are taken more often, whatever they are. */
Test(progress, false_alarms_and_power_under_sgd) {
  enum { RUNS = 2000, DEBTS = 8 };
  static const weir_round_form *const forms[] = {&weir_round_sgd, &weir_round_sgd_short,
                                                 &weir_round_sgd_short};
  static const double debt[DEBTS] = {0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3};
  static const double drift[] = {0.001, 0.002, 0.004}, noise[] = {0.005, 0.02, 0.04};
  for (size_t c = 0; c < 9; c++) {
    const weir_round_form *form = forms[c / 3];
    const bool rounds = c >= 6;
    const weir_belief *before = rounds ? &form->rounding : &form->lagging;
    double taken[DEBTS] = {0};
    weir_rng rng = weir_rng_of(12);
    fprintf(stderr, "sgd, %zu steps%s, drift %g, noise %g:", form->steps,
            rounds ? ", rounding" : "", drift[c % 3], noise[c % 3]);
    for (int i = 0; i < DEBTS; i++) {
      for (int run = 0; run < RUNS; run++)
        taken[i] += taken_under_sgd(&rng, form, before, debt[i], drift[c % 3], noise[c % 3]);
      fprintf(stderr, " %g: %.3f", debt[i], taken[i] / RUNS);
    }
    fputc('\n', stderr);
    cr_assert_geq(taken[0], 0.55 * RUNS);
    cr_assert_leq(taken[4], (rounds ? 0.45 : 0.3) * RUNS);
    cr_assert_leq(taken[5], (rounds ? 0.17 : 0.1) * RUNS);
    cr_assert_leq(taken[6], 0.002 * RUNS);
  }
}
