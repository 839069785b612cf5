/* A decision to be made, for tests. */
#ifndef WEIR_TESTS_DECIDE_INPUT_H
#define WEIR_TESTS_DECIDE_INPUT_H

#include <criterion/criterion.h>
#include <string.h>

#include "controller/decide.h"

static inline weir_plan plan_of(const char *text) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s", weir_last_error());
  return plan;
}

static inline weir_decision_input input_at(double latency, double bandwidth) {
  static const double cr[] = {0.3, 0.1, 0.033, 0.011, 0.004, 0.002, 0.001, 0.0003};
  static const double gain[] = {0.97, 0.8, 0.55, 0.33, 0.2, 0.13, 0.09, 0.04};
  weir_decision_input in = {.policy = WEIR_POLICY_WEIR,
                            .trigger = WEIR_TRIGGER_LATENCY,
                            .seed = 1,
                            .workers = 4,
                            .elements = 1000000,
                            .latency = latency,
                            .bandwidth = bandwidth,
                            .compute = 0.02,
                            .gain = -1,
                            .overlap = 0.6,
                            .dwell = 100};
  in.current = in.previous = plan_of("none:1:dense-ring");
  memcpy(in.curve_cr, cr, sizeof cr);
  memcpy(in.curve, gain, sizeof gain);
  for (int i = 0; i < WEIR_ARMS; i++) in.overhead[i] = 0;
  for (int i = 0; i < WEIR_CODEC_COUNT; i++) in.compress[i] = 1;
  return in;
}

#endif
