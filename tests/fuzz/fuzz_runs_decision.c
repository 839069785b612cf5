/* The part of fuzz_runs.c that makes decisions of what a journal's line may have been.  Every field
 * is somebody else's number: the input is policy and risk, and changes to a sound one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "changes.h"
#include "controller/decide.h"
#include "demand.h"

void feed_decision(size_t policy, const uint8_t *data, size_t size) {
  static weir_decision d;
  weir_decision_input in = {.policy = (uint32_t)policy % WEIR_POLICY_COUNT,
                            .trigger = WEIR_TRIGGER_START,
                            .workers = 8,
                            .hosts = 2,
                            .elements = 1000000,
                            .latency = 1e-3,
                            .bandwidth = 1e8,
                            .compute = 0.02,
                            .gain = 0.5,
                            .overlap = 0.5,
                            .risk = (uint32_t)policy % WEIR_RISK_COUNT};
  memcpy(in.curve_cr, weir_curve_cr, sizeof in.curve_cr);
  for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) in.curve[i] = 0.9 / (double)(1 + i);
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) in.compress[c] = 1;
  demand(weir_plan_parse("topk:0.01:ag-bruck", &in.current) == WEIR_OK, "no plan");
  demand(weir_plan_parse("none:1:dense-ring", &in.previous) == WEIR_OK, "no plan");
  demand(weir_decide(&in, &d) == WEIR_OK, "no decision");
  const blob sound = {.data = (uint8_t *)&in, .bytes = sizeof in};
  blob b = changed(&sound, data, size);
  if (weir_decide((const weir_decision_input *)(const void *)b.data, &d) == WEIR_OK) {
    demand(weir_plan_check(&d.choice.plan) == WEIR_OK, "a choice that is no plan");
    demand(!isnan(d.choice.progress_per_s), "a choice of unknown progress");
  }
  g_free(b.data);
}
