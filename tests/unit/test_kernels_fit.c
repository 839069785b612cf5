/* Lines between times, and how the sizes that are not run follow from others.  No assertion on a
 * time. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "controller/loop.h"
#include "kernels/fit.h"
#include "kernels/fit_run.h"

Test(kernels_fit, lines_by_hand) {
  /* 1 us + 2 ns n up to 100,000, and 4 ns n at 500,000. */
  weir_kernel_curve curve = {
      .knots = 4, .n = {1000, 10000, 100000, 500000}, .seconds = {3e-6, 21e-6, 201e-6, 2000e-6}};
  static const size_t n[] = {1, 700, 1000, 1001, 30000, 99999, 100000};
  for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
    weir_kernel_line line = weir_kernel_line_at(&curve, n[i]);
    cr_expect_float_eq(line.alpha, 1e-6, 1e-12, "%zu: %g", n[i], line.alpha);
    cr_expect_float_eq(line.beta, 2e-9, 1e-15);
    cr_expect_float_eq(weir_kernel_seconds(&curve, n[i]), 1e-6 + 2e-9 * (double)n[i], 1e-12);
  }
  /* Half way to the last knot the mean of both, beyond it 1799 us for each further 400,000: the
   * knot before is far enough from the last. */
  cr_expect_float_eq(weir_kernel_seconds(&curve, 300000), 1100.5e-6, 1e-9);
  cr_expect_float_eq(weir_kernel_seconds(&curve, 1300000), (2000.0 + 2 * 1799.0) * 1e-6, 1e-9);
  /* A last line that falls is a mistaken one: as much an element as at the last knot, 0.3 ns. */
  curve.seconds[3] = 150e-6;
  cr_expect_float_eq(weir_kernel_seconds(&curve, 1500000), 450e-6, 1e-9);
  /* Less than nothing is nothing: 2 us at 10,000 and nothing at 1000 would be -0.2 us at 16. */
  curve.seconds[0] = 0.0;
  curve.seconds[1] = 2e-6;
  cr_expect_eq(weir_kernel_seconds(&curve, 16), 0.0);
}

/* 1 ms at a million, 3 ms at two and, with noise, 4 ms at three: further on as from the first to
 * the last, 1.5 ms a million, and between the last two as between them. */
Test(kernels_fit, noise_of_close_knots_turns_no_line_by_hand) {
  const weir_kernel_curve curve = {
      .knots = 3, .n = {1000000, 2000000, 3000000}, .seconds = {1e-3, 3e-3, 4e-3}};
  cr_expect_float_eq(weir_kernel_seconds(&curve, 2500000), 3.5e-3, 1e-12);
  cr_expect_float_eq(weir_kernel_seconds(&curve, 5000000), 7e-3, 1e-12);
  cr_expect_float_eq(weir_kernel_line_at(&curve, 5000000).alpha, -0.5e-3, 1e-12);
}

/* Midmeans: of one and two the mean, of three half of what either outer one weighs beside the
 * middle one (1/4, 1, 1/4 of 1.5), of four the middle two, of eight the middle four. */
Test(kernels_fit, midmeans_by_hand) {
  double one[] = {5.0}, two[] = {5.0, 3.0}, three[] = {10.0, 1.0, 4.0},
         four[] = {100.0, 1.0, 4.0, 2.0}, eight[] = {8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 50.0, 0.0};
  cr_expect_float_eq(weir_kernel_midmean(one, 1), 5.0, 1e-12);
  cr_expect_float_eq(weir_kernel_midmean(two, 2), 4.0, 1e-12);
  cr_expect_float_eq(weir_kernel_midmean(three, 3), (0.25 + 4.0 + 2.5) / 1.5, 1e-12);
  cr_expect_float_eq(weir_kernel_midmean(four, 4), 3.0, 1e-12);
  cr_expect_float_eq(weir_kernel_midmean(eight, 8), 4.5, 1e-12);
  cr_expect_float_eq(eight[7], 50.0, 1e-12); /* in order */
}

/* Bytes of an element that a step touches: none reads a gradient and a residual and writes their
 * sum; others have an aggregate too, and a message: 4 bits, 16 bits, or 1 % of 4 bytes; bf16 has
 * its rounding error. */
Test(kernels_fit, bytes_touched_by_hand) {
  static const struct {
    uint32_t codec;
    double bytes;
  } rows[] = {{WEIR_CODEC_NONE, 12.0}, {WEIR_CODEC_BF16, 22.0},  {WEIR_CODEC_FP16, 18.0},
              {WEIR_CODEC_QSGD, 16.5}, {WEIR_CODEC_TOPK, 16.04}, {WEIR_CODEC_POWERSGD, 16.0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const weir_plan plan = weir_kernel_fit_plan(rows[i].codec, 0.01, WEIR_WIRE_AUTO_BF16);
    cr_expect_float_eq(weir_kernel_touched(&plan), rows[i].bytes, 1e-9, "%s",
                       weir_codec_name(rows[i].codec));
  }
}

/* Each run has another gradient: the sum of two values that lie on whole cache lines of the
 * buffers, a 64th of n from their beginning at the most.  So 4096 elements begin on 5 lines of
 * either, and 25 runs have no two alike; 64,000 begin on 63, far more than are ever run. */
static void expect_own_gradients(size_t n, int runs) {
  static float seen[WEIR_KERNEL_RUNS][64000];
  const size_t most = n / 64;
  weir_kernel_probe *probe = NULL;
  cr_assert_eq(weir_kernel_probe_create(&probe, n), WEIR_OK);
  for (int run = 0; run < runs; run++) {
    bool found = false;
    weir_kernel_accumulate(probe, n);
    memcpy(seen[run], probe->e, n * sizeof(float));
    for (int before = 0; before < run; before++)
      cr_expect(memcmp(seen[run], seen[before], n * sizeof(float)) != 0, "%d %d", run, before);
    for (size_t g = 0; g <= most && !found; g += 16)
      for (size_t r = 0; r <= most && !found; r += 16) {
        size_t i = 0;
        while (i < n && !(fabsf(seen[run][i] - (probe->g[g + i] + probe->r[r + i])) > 0.0F)) i++;
        found = i == n;
      }
    cr_expect(found, "%d", run);
  }
  weir_kernel_probe_free(probe);
}

Test(kernels_fit, each_run_has_its_own_gradient) {
  expect_own_gradients(4096, 25);
  expect_own_gradients(64000, WEIR_KERNEL_RUNS);
}

/* Runs that count and others: randomk's seed tells how many there were. */
Test(kernels_fit, runs_by_hand) {
  const weir_plan plan = weir_kernel_fit_plan(WEIR_CODEC_RANDOMK, 0.01, WEIR_WIRE_AUTO_FP32);
  static const int rows[][2] = {{2, 3}, {0, 1}, {3, 2}};
  weir_kernel_probe *probe = NULL;
  double seconds[2];
  cr_assert_eq(weir_kernel_probe_create(&probe, WEIR_KERNEL_FIT_MOST), WEIR_OK);
  cr_assert_eq(weir_kernel_time(probe, &plan, WEIR_KERNEL_FIT_MOST, 1, 1, &seconds[0], &seconds[1]),
               WEIR_OK); /* its scratch is there then */
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const uint64_t before = probe->seed;
    cr_assert_eq(weir_kernel_time(probe, &plan, WEIR_KERNEL_FIT_MOST, rows[i][0], rows[i][1],
                                  &seconds[0], &seconds[1]),
                 WEIR_OK);
    cr_expect_eq(probe->seed - before, (uint64_t)(rows[i][0] + rows[i][1]), "%zu", i);
    cr_expect(isfinite(seconds[0]) && seconds[0] > 0.0);
  }
  weir_kernel_probe_free(probe);
}

/* From a third of the cache, 12 MB of 36, to 8/3, 96: a factor of eight, so a third of the way is
 * twice 12 MB and two thirds are four times as much. */
Test(kernels_fit, memory_takes_over_by_hand) {
  cr_expect_eq(weir_kernel_beyond(1e6, 36e6), 0.0);
  cr_expect_eq(weir_kernel_beyond(11.9e6, 36e6), 0.0);
  cr_expect_float_eq(weir_kernel_beyond(24e6, 36e6), 1.0 / 3.0, 1e-12);
  cr_expect_float_eq(weir_kernel_beyond(48e6, 36e6), 2.0 / 3.0, 1e-12);
  cr_expect_float_eq(weir_kernel_beyond(96e6, 36e6), 1.0, 1e-12);
  cr_expect_eq(weir_kernel_beyond(1e12, 36e6), 1.0);
  cr_expect(weir_kernel_last_cache() >= (double)(1 << 20));
}

Test(kernels_fit, medians_by_hand) {
  weir_kernel_three three = {0};
  weir_kernel_put(&three, 5.0);
  cr_expect_eq(weir_kernel_middle(&three), 5.0);
  weir_kernel_put(&three, 3.0);
  cr_expect_eq(weir_kernel_middle(&three), 3.0);
  static const double last[] = {1.0, 4.0, 9.0}, median[] = {3.0, 4.0, 5.0};
  for (size_t i = 0; i < 3; i++) {
    weir_kernel_three other = three;
    weir_kernel_put(&other, last[i]);
    cr_expect_eq(weir_kernel_middle(&other), median[i]);
  }
}

static void expect_curve(const weir_kernel_curve *curve, const char *name) {
  cr_assert(curve->knots >= 2 && curve->knots <= WEIR_KERNEL_KNOTS, "%s", name);
  for (size_t knot = 0; knot < curve->knots; knot++) {
    cr_expect(knot == 0 || curve->n[knot] > curve->n[knot - 1], "%s", name);
    cr_expect(isfinite(curve->seconds[knot]) && curve->seconds[knot] >= 0.0, "%s at %zu: %g", name,
              curve->n[knot], curve->seconds[knot]);
  }
}

Test(kernels_fit, every_codec_has_a_plan_and_a_cost) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  cr_assert_eq(weir_kernel_fit_all(0.02, WEIR_WIRE_AUTO_BF16, 0.0, cost), WEIR_OK, "%s",
               weir_last_error());
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const weir_plan plan = weir_kernel_fit_plan(codec, 0.02, WEIR_WIRE_AUTO_BF16);
    const weir_kernel_curve *compress = &cost[codec].compress;
    cr_expect_eq(weir_plan_check(&plan), WEIR_OK, "%s", weir_last_error());
    cr_expect_eq(plan.codec, codec);
    expect_curve(compress, weir_codec_name(codec));
    expect_curve(&cost[codec].decode, weir_codec_name(codec));
    cr_expect(compress->n[0] <= 1024);
    cr_expect(compress->n[compress->knots - 1] > WEIR_KERNEL_FIT_MOST);
    cr_expect(weir_kernel_seconds(compress, 1000000) > 0.0);
    cr_expect(weir_kernel_seconds(compress, 1000000000) > weir_kernel_seconds(compress, 10000000));
  }
}

/* Only what lies on the way to the wanted sizes is measured. */
Test(kernels_fit, fits_what_is_asked_for) {
  const weir_plan plans[2] = {weir_kernel_fit_plan(WEIR_CODEC_QSGD, 0.01, WEIR_WIRE_AUTO_FP32),
                              weir_kernel_fit_plan(WEIR_CODEC_RANDOMK, 0.01, WEIR_WIRE_AUTO_FP32)};
  weir_kernel_cost cost[2];
  weir_kernel_probe *probe = NULL;
  cr_assert_eq(weir_kernel_probe_create(&probe, WEIR_KERNEL_WINDOW), WEIR_OK);
  static const struct {
    size_t from, to, first, last;
  } asked[] = {{1, 1000, 1004, 2004},
               {5000, 5000, 4008, 16008},
               {32767, 32767, 32767, 32768},
               {40000, 100000, 32768, 131000},
               {131000, 131000, 32768, 131000}};
  for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
    const weir_kernel_wanted wanted = {asked[i].from, asked[i].to, 1, 0.0};
    cr_assert_eq(weir_kernel_fit(probe, plans, 2, &wanted, cost), WEIR_OK);
    for (size_t c = 0; c < 2; c++) {
      const weir_kernel_curve *curve = &cost[c].compress;
      expect_curve(curve, "asked for");
      cr_expect_eq(curve->n[0], asked[i].first, "%zu", curve->n[0]);
      cr_expect_eq(curve->n[curve->knots - 1], asked[i].last, "%zu", curve->n[curve->knots - 1]);
    }
  }
  /* Beyond what is run: at least two measured sizes, and the last knot behind the size, or where
   * nothing changes any more. */
  const weir_kernel_wanted beyond = {1000000, 1000000, 1, 0.0};
  cr_assert_eq(weir_kernel_fit(probe, plans, 2, &beyond, cost), WEIR_OK);
  cr_expect_eq(cost[1].compress.n[0], 32768u);
  cr_expect_eq(cost[1].compress.n[1], WEIR_KERNEL_WINDOW);
  cr_expect(cost[1].compress.knots > 2);
  expect_curve(&cost[1].compress, "beyond");
  weir_kernel_probe_free(probe);
}

/* Sizes between the others are run where there is time for them, and not else. */
Test(kernels_fit, time_buys_knots) {
  const weir_plan plan = weir_kernel_fit_plan(WEIR_CODEC_BF16, 0.01, WEIR_WIRE_AUTO_FP32);
  weir_kernel_probe *probe = NULL;
  weir_kernel_cost cost;
  cr_assert_eq(weir_kernel_probe_create(&probe, WEIR_KERNEL_WINDOW), WEIR_OK);
  static const size_t with[] = {32768, 46000, 65000, WEIR_KERNEL_WINDOW},
                      without[] = {32768, WEIR_KERNEL_WINDOW};
  static const double each_s[] = {0.0, 1e-9, 100.0};
  for (size_t i = 0; i < 3; i++) {
    const size_t *knots = i < 2 ? without : with, count = i < 2 ? 2 : 4;
    const weir_kernel_wanted wanted = {40000, 100000, 3, each_s[i]};
    cr_assert_eq(weir_kernel_fit(probe, &plan, 1, &wanted, &cost), WEIR_OK);
    cr_assert_eq(cost.compress.knots, count, "%g: %zu", each_s[i], cost.compress.knots);
    cr_assert_eq(cost.decode.knots, count);
    for (size_t k = 0; k < count; k++) cr_expect_eq(cost.compress.n[k], knots[k]);
    expect_curve(&cost.compress, "bought");
  }
  weir_kernel_probe_free(probe);
  /* The largest size: 6.2 times the last cache at 16 bytes an element, in whole thousands, as far
   * as 4 ns for each of its elements allow. */
  const double most = 6.2 * weir_kernel_last_cache() / 16.0;
  cr_expect_eq(weir_kernel_fit_room(0.0), WEIR_KERNEL_FIT_MOST);
  cr_expect_eq(weir_kernel_fit_room(1e-3), WEIR_KERNEL_FIT_MOST); /* 250,000 */
  if (most > 1e6) cr_expect_eq(weir_kernel_fit_room(1e3), (size_t)(most / 1000.0) * 1000);
  for (double seconds = 5e-3; seconds < 0.1; seconds *= 2.0)
    cr_expect_leq((double)weir_kernel_fit_room(seconds), fmax(seconds / 4e-9, 524000.0));
}

/* Curves that end in memory stay as they are, and lines go on from them: 1 s and 2 s at the size of
 * the last cache and twice that are 5 s at five times it.  Those that end in the cache get knots
 * beyond the wanted size. */
Test(kernels_fit, what_ends_in_memory_goes_on_by_hand) {
  const size_t n = (size_t)(weir_kernel_last_cache() / 16.0) + 1; /* 2 n: twice the last cache */
  const weir_plan plan = weir_kernel_fit_plan(WEIR_CODEC_TOPK, 1e-3, WEIR_WIRE_AUTO_FP32);
  const weir_kernel_cost made_up = {{2, {n, 2 * n}, {1.0, 2.0}}, {2, {n, 2 * n}, {3.0, 4.0}}};
  weir_kernel_cost cost = made_up;
  weir_kernel_probe *probe = NULL;
  cr_assert_eq(weir_kernel_probe_create(&probe, WEIR_KERNEL_FIT_MOST), WEIR_OK);
  cr_assert_eq(weir_kernel_fit_large(probe, &plan, 1, SIZE_MAX, 1, &cost), WEIR_OK);
  cr_expect_eq(memcmp(&cost, &made_up, sizeof cost), 0);
  cr_expect_float_eq(weir_kernel_seconds(&cost.compress, 5 * n), 5.0, 1e-9);
  cr_expect_float_eq(weir_kernel_seconds(&cost.decode, 5 * n), 7.0, 1e-9);
  cost.compress.n[0] = cost.decode.n[0] = n / 2;
  cost.compress.n[1] = cost.decode.n[1] = n;
  cr_assert_eq(weir_kernel_fit_large(probe, &plan, 1, SIZE_MAX, 1, &cost), WEIR_OK);
  cr_expect(cost.compress.knots > 2u);
  expect_curve(&cost.compress, "compress");
  expect_curve(&cost.decode, "decode");
  weir_kernel_probe_free(probe);
}

Test(kernels_fit, refuses_what_it_has_no_room_for) {
  weir_kernel_probe *probe = NULL;
  double compress = 0.0, decode = 0.0;
  const weir_plan plan = weir_kernel_fit_plan(WEIR_CODEC_TOPK, 0.01, WEIR_WIRE_AUTO_FP32);
  cr_expect_eq(weir_kernel_probe_create(&probe, 0), WEIR_E_NOMEM);
  cr_expect_eq(weir_kernel_probe_create(&probe, SIZE_MAX / 2), WEIR_E_NOMEM);
  cr_expect_null(probe);
  cr_assert_eq(weir_kernel_probe_create(&probe, 1000), WEIR_OK);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1001, 1, 1, &compress, &decode), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1000, 1, 0, &compress, &decode), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1000, 1, WEIR_KERNEL_RUNS + 1, &compress, &decode),
               WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1000, -1, 1, &compress, &decode), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1000, 1, 1, &compress, &decode), WEIR_OK);
  cr_expect(isfinite(compress) && isfinite(decode));
  weir_plan bad = plan;
  bad.cr = 2.0;
  cr_expect_eq(weir_kernel_time(probe, &bad, 1000, 1, 1, &compress, &decode), WEIR_E_INVALID);
  weir_kernel_cost cost;
  const weir_kernel_wanted once = {1, 1000, 1, 0.0}, never = {1, 1000, 0, 0.0};
  const weir_kernel_wanted large = {1000000, 1000000, 1, 0.0};
  cr_expect_eq(weir_kernel_fit(probe, &plan, 1, &once, &cost), WEIR_E_INVALID);
  weir_kernel_probe_free(probe);
  cr_assert_eq(weir_kernel_probe_create(&probe, WEIR_KERNEL_WINDOW), WEIR_OK);
  cr_expect_eq(weir_kernel_fit(probe, &bad, 1, &once, &cost), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_fit(probe, &plan, 1, &never, &cost), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_fit(probe, &plan, 0, &once, &cost), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_fit(probe, &bad, 1, &large, &cost), WEIR_E_INVALID);
  weir_kernel_probe_free(probe);
  weir_kernel_probe_free(NULL);
}

/* What a controller starts with: times over the model's of the codecs it may choose, and nothing
 * else. */
static void starts_measured(uint32_t risk, uint32_t rule, const char *names) {
  static const size_t elements[] = {1000, 1000000, 100000000};
  for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++) {
    weir_loop loop = {
        .workers = 4, .elements = elements[i], .risk = risk, .rounds = {.rule = rule}};
    weir_learn_start(&loop.learnt);
    cr_assert_eq(weir_learn_codecs(&loop, NULL, NULL), WEIR_OK, "%s", weir_last_error());
    for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
      const double factor = loop.learnt.compress[codec];
      char name[32];
      (void)snprintf(name, sizeof name, " %s ", weir_codec_name(codec));
      cr_expect(strstr(names, name) != NULL
                    ? factor >= 1e-3 && factor <= 1e3 && fabs(factor - 1.0) > 1e-12
                    : !(fabs(factor - 1.0) > 0.0),
                "%s: %g", weir_codec_name(codec), factor);
    }
  }
}

Test(kernels_fit, a_controller_starts_from_measured_codecs) {
  starts_measured(WEIR_RISK_BOLD, WEIR_RULE_SGD, " none bf16 topk star ");
  starts_measured(WEIR_RISK_SAFE, WEIR_RULE_ADAPTIVE, " none bf16 fp16 companded whitened ");
  starts_measured(WEIR_RISK_SAFE, WEIR_RULE_UNKNOWN, " none bf16 fp16 companded ");
  starts_measured(WEIR_RISK_SAFE, WEIR_RULE_SGD,
                  " none bf16 fp16 companded qsgd qsgd-l2 dithered ");
}
