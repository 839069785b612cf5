/* What exchanges tell the monitor: latency and rate from times that are made of them. */
#include <criterion/criterion.h>
#include <string.h>

#include "collectives/cost.h"
#include "session/state.h"

enum { RANKS = 4 };
static const double alpha = 4e-3, rate = 20e6;

static weir_cost_terms terms_of(const char *text, size_t elements) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s", weir_last_error());
  return weir_cost_plan(&plan, RANKS, elements, weir_cost_kept(&plan, elements));
}

/* Exchanges of several plans, three steps of each at a time: 2 latencies of an all-gather among 4,
 * or 4 of a tree.  Nothing else tells of the link.  A rank's time may be anything; their mean is
 * the exchange's. */
Test(session_feed, exchanges_of_several_plans_tell_latency_and_rate) {
  const weir_cost_terms of[] = {terms_of("fp16:0.5:ag", 1000000), terms_of("qsgd:0.25:ag", 400000),
                                terms_of("qsgd:0.125:ag", 1000000), terms_of("fp16:0.5:ag", 30000),
                                terms_of("none:1:dense-tree", 200000)};
  const size_t plans = sizeof of / sizeof *of;
  cr_assert(of[0].alpha_terms == 2 && of[2].alpha_terms == 2 && of[4].alpha_terms == 4);
  weir_session session;
  memset(&session, 0, sizeof session);
  const weir_netmon_config config = {.wire_overhead = 1};
  cr_assert_eq(weir_netmon_create(&session.feed.monitor, &config), WEIR_OK);
  weir_header headers[RANKS] = {{0}};
  for (size_t step = 0; step < 60; step++) {
    const weir_step_record record = {.info = {.step = step}, .terms = of[step / 3 % plans]};
    weir_feed_exchange(&session, headers, RANKS, &record);
    const double s = weir_cost_seconds(&record.terms, alpha, 1 / rate);
    for (int r = 0; r < RANKS; r++)
      headers[r].comm_s = s * (1 + 0.1 * (r - 1.5)); /* of it, told later */
  }
  weir_snapshot now;
  weir_netmon_snapshot(session.feed.monitor, weir_now_s(), &now);
  cr_expect_float_eq(now.latency_s, alpha, 0.001 * alpha, "%g", now.latency_s);
  cr_expect_float_eq(now.bandwidth, rate, 0.001 * rate, "%g", now.bandwidth);
  weir_netmon_free(session.feed.monitor);
}
