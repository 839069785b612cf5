/* Lines between measured times.  No assertion on a time. */
#include <criterion/criterion.h>
#include <math.h>

#include "controller/loop.h"
#include "kernels/fit.h"

Test(kernels_fit, lines_by_hand) {
  /* 1 us + 2 ns n up to the last knot but one, and 4 ns n there. */
  enum { LAST = WEIR_KERNEL_KNOTS - 1 };
  weir_kernel_curve curve;
  for (size_t i = 0; i < LAST; i++) {
    cr_assert_lt(weir_kernel_knots[i], weir_kernel_knots[i + 1]);
    curve.seconds[i] = 1e-6 + 2e-9 * (double)weir_kernel_knots[i];
  }
  const double last = (double)weir_kernel_knots[LAST], before = (double)weir_kernel_knots[LAST - 1];
  curve.seconds[LAST] = 4e-9 * last;
  cr_assert_eq(weir_kernel_knots[LAST], WEIR_KERNEL_FIT_MOST);
  static const size_t n[] = {1, 700, 1024, 1025, 30000, 32768, 500000, 1048576};
  for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
    weir_kernel_line line = weir_kernel_line_at(&curve, n[i]);
    cr_expect_float_eq(line.alpha, 1e-6, 1e-12, "%zu: %g", n[i], line.alpha);
    cr_expect_float_eq(line.beta, 2e-9, 1e-15);
    cr_expect_float_eq(weir_kernel_seconds(&curve, n[i]), 1e-6 + 2e-9 * (double)n[i], 1e-12);
  }
  /* Half way to the last knot the mean of both, beyond it as much an element as there. */
  const double half = (last + before) / 2;
  cr_expect_float_eq(weir_kernel_seconds(&curve, (size_t)half),
                     (1e-6 + 2e-9 * before + 4e-9 * last) / 2, 1e-9);
  cr_expect_float_eq(weir_kernel_seconds(&curve, 3 * WEIR_KERNEL_FIT_MOST), 12e-9 * last, 1e-9);
  /* Less than nothing is nothing: 2 us at 8192 and nothing at 1024 would be -0.28 us at 16. */
  curve.seconds[0] = 0.0;
  curve.seconds[1] = 2e-6;
  cr_expect_eq(weir_kernel_seconds(&curve, 16), 0.0);
}

Test(kernels_fit, every_codec_has_a_plan_and_a_cost, .timeout = 120) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  cr_assert_eq(weir_kernel_fit_all(0.02, WEIR_WIRE_AUTO_BF16, cost), WEIR_OK, "%s",
               weir_last_error());
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const weir_plan plan = weir_kernel_fit_plan(codec, 0.02, WEIR_WIRE_AUTO_BF16);
    cr_expect_eq(weir_plan_check(&plan), WEIR_OK, "%s", weir_last_error());
    cr_expect_eq(plan.codec, codec);
    for (size_t knot = 0; knot < WEIR_KERNEL_KNOTS; knot++)
      cr_expect(isfinite(cost[codec].compress.seconds[knot]) &&
                cost[codec].compress.seconds[knot] > 0.0 &&
                isfinite(cost[codec].decode.seconds[knot]) &&
                cost[codec].decode.seconds[knot] >= 0.0);
    cr_expect(weir_kernel_seconds(&cost[codec].compress, 1000000) > 0.0);
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
  weir_kernel_cost cost;
  cr_expect_eq(weir_kernel_fit(probe, &plan, &cost), WEIR_E_INVALID);
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
                         : !(fabs(factor - 1.0) > 0.0),
              "%s: %g", weir_codec_name(codec), factor);
  }
}
