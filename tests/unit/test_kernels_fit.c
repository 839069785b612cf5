/* Lines through measured times.  No assertion on a time. */
#include <criterion/criterion.h>
#include <math.h>

#include "controller/loop.h"
#include "kernels/fit.h"

Test(kernels_fit, lines_by_hand) {
  const size_t n[3] = {1000, 2000, 4000};
  const double exact[3] = {3e-6, 5e-6, 9e-6}; /* 1 us + 2 ns n */
  weir_kernel_line line = weir_kernel_line_through(n, exact, 3);
  cr_expect_float_eq(line.alpha, 1e-6, 1e-15);
  cr_expect_float_eq(line.beta, 2e-9, 1e-18);
  cr_expect_float_eq(weir_kernel_seconds(line, 500), 2e-6, 1e-14);

  /* Two points through which a line would start below zero: through the origin instead.  Relative
   * errors 1000 b / 1 us - 1 and 2000 b / 4 us - 1 have the least squares at
   * b = (1e9 + 0.5e9) / (1e18 + 0.25e18) = 1.2 ns. */
  const double curved[2] = {1e-6, 4e-6};
  line = weir_kernel_line_through(n, curved, 2);
  cr_expect_eq(line.alpha, 0.0);
  cr_expect_float_eq(line.beta, 1.2e-9, 1e-18);

  /* Falling times: a constant.  a / 4 us - 1 and a / 1 us - 1: a = 1.25e6 / 1.0625e12. */
  const double falling[2] = {4e-6, 1e-6};
  line = weir_kernel_line_through(n, falling, 2);
  cr_expect_eq(line.beta, 0.0);
  cr_expect_float_eq(line.alpha, 1.25e6 / 1.0625e12, 1e-14);

  /* One size alone has no offset. */
  line = weir_kernel_line_through(n, exact, 1);
  cr_expect(line.alpha == 0.0 && fabs(line.beta - 3e-9) < 1e-18);
  /* A time below the clock's resolution. */
  const double none[2] = {0.0, 0.0};
  line = weir_kernel_line_through(n, none, 2);
  cr_expect(isfinite(line.alpha) && isfinite(line.beta) && line.alpha >= 0.0);
}

Test(kernels_fit, every_codec_has_a_plan_and_a_cost, .timeout = 120) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  cr_assert_eq(weir_kernel_fit_all(0.02, WEIR_WIRE_AUTO_BF16, cost), WEIR_OK, "%s",
               weir_last_error());
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const weir_plan plan = weir_kernel_fit_plan(codec, 0.02, WEIR_WIRE_AUTO_BF16);
    cr_expect_eq(weir_plan_check(&plan), WEIR_OK, "%s", weir_last_error());
    cr_expect_eq(plan.codec, codec);
    const weir_kernel_line lines[2] = {cost[codec].compress, cost[codec].decode};
    for (int i = 0; i < 2; i++)
      cr_expect(isfinite(lines[i].alpha) && isfinite(lines[i].beta) && lines[i].alpha >= 0.0 &&
                lines[i].beta >= 0.0);
    cr_expect(weir_kernel_seconds(cost[codec].compress, 1000000) > 0.0);
  }
}

Test(kernels_fit, refuses_what_it_has_no_room_for) {
  weir_kernel_probe *probe = NULL;
  double compress = 0.0, decode = 0.0;
  const weir_plan plan = weir_kernel_fit_plan(WEIR_CODEC_TOPK, 0.01, WEIR_WIRE_AUTO_FP32);
  cr_expect_eq(weir_kernel_probe_create(&probe, 0), WEIR_E_NOMEM);
  cr_expect_eq(weir_kernel_probe_create(&probe, SIZE_MAX / 2), WEIR_E_NOMEM);
  cr_expect_null(probe);
  cr_assert_eq(weir_kernel_probe_create(&probe, 1000), WEIR_OK);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1001, 1, &compress, &decode), WEIR_E_INVALID);
  cr_expect_eq(weir_kernel_time(probe, &plan, 1000, 1, &compress, &decode), WEIR_OK);
  cr_expect(isfinite(compress) && isfinite(decode));
  weir_plan bad = plan;
  bad.cr = 2.0;
  cr_expect_eq(weir_kernel_time(probe, &bad, 1000, 1, &compress, &decode), WEIR_E_INVALID);
  weir_kernel_probe_free(probe);
  weir_kernel_probe_free(NULL);
}

/* What a controller starts with: times of its arms' codecs over the model's, and nothing else. */
Test(kernels_fit, a_controller_starts_from_measured_codecs, .timeout = 60) {
  weir_loop loop = {.workers = 4, .elements = 1000000};
  bool arm[WEIR_CODEC_COUNT] = {false};
  weir_learn_start(&loop.learnt);
  cr_assert_eq(weir_learn_codecs(&loop), WEIR_OK, "%s", weir_last_error());
  for (size_t a = 0; a < WEIR_ARMS; a++) arm[weir_arms[a].codec] = true;
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const double factor = loop.learnt.compress[codec];
    cr_expect(arm[codec] ? factor >= 1e-3 && factor <= 1e3 && fabs(factor - 1.0) > 1e-12
                         : !(fabs(factor - 1.0) > 0.0), "%s: %g", weir_codec_name(codec), factor);
  }
}
