/* The clock of runs without a network, and what a scenario's network is at which time. */
#include <criterion/criterion.h>
#include <string.h>

#include "lab/schedule.h"
#include "lab/sim.h"

/* 1000 and 100 bytes/s, for a second each, in turns. */
static double rates[] = {1000, 100};
static const weir_trace turns = {.rate_bytes_s = rates, .intervals = 2, .interval_s = 1};

static weir_sim_clock *clock_of(const weir_scenario *scenario, const weir_trace *trace) {
  weir_sim_clock *clock = NULL;
  cr_assert_eq(weir_sim_clock_create(&clock, scenario, trace), WEIR_OK, "%s", weir_last_error());
  return clock;
}

/* 10 ms; 1000 bytes from the begin take a second, from its middle on half of one, all of the narrow
 * one, which carries 100, and 400 bytes' time of the next. */
Test(sim, an_exchange_takes_what_the_link_has_when_it_begins) {
  const weir_scenario scenario = {
      .workers = 1, .bandwidth_scale = 1, .trace = {.latency_ms = 10}, .first_epoch = 1};
  weir_sim_clock *clock = clock_of(&scenario, &turns);
  double latency_s = 0, bandwidth = 0, elapsed_s = 0;
  cr_assert_float_eq(weir_sim_clock_exchange(clock, 0, 0, 1000), 1, 1e-9);
  cr_assert_float_eq(weir_sim_clock_exchange(clock, 0.5, 0, 1000), 1.9, 1e-9);
  cr_assert_float_eq(weir_sim_clock_exchange(clock, 0.48, 2, 1000), 1.92, 1e-9);
  cr_assert_eq(weir_sim_clock_arrive(clock, 0.3, 0.9, 1, 1, &elapsed_s), WEIR_OK);
  cr_assert_float_eq(elapsed_s, 1.2, 1e-9);
  weir_sim_clock_network(clock, 0, &latency_s, &bandwidth);
  cr_assert_float_eq(latency_s, 0.01, 1e-12);
  cr_assert_float_eq(bandwidth, 100, 1e-9);
  weir_sim_clock_go_on(clock, 2.4, 1);
  weir_sim_clock_network(clock, 0, &latency_s, &bandwidth);
  cr_assert_float_eq(bandwidth, 1000, 1e-9);
  weir_sim_clock_free(clock);
}

/* Whoever waits for others is told which of them failed first, or how many came. */
Test(sim, who_does_not_come) {
  const weir_scenario scenario = {
      .workers = 3, .bandwidth_scale = 1, .trace = {.latency_ms = 10}, .first_epoch = 1};
  weir_sim_clock *clock = clock_of(&scenario, &turns);
  double elapsed_s = 0;
  cr_assert_eq(weir_sim_clock_arrive(clock, 0, 0, 1, 0.05, &elapsed_s), WEIR_E_TIMEOUT);
  cr_assert(strstr(weir_last_error(), "1 of 3 ranks came"), "%s", weir_last_error());
  weir_sim_clock_fail(clock, 2);
  weir_sim_clock_fail(clock, 1);
  cr_assert_eq(weir_sim_clock_arrive(clock, 0, 0, 1, 60, &elapsed_s), WEIR_E_PEER);
  cr_assert(strstr(weir_last_error(), "rank 2 has failed"), "%s", weir_last_error());
  weir_sim_clock_free(clock);
}

/* 1 Gbit/s and 2 ms are 500 kB on their way there and back, 0.1 Gbit/s and 30 ms are 750 kB. */
Test(sim, a_window_fills_the_fattest_link) {
  weir_scenario scenario = {.workers = 2, .bandwidth_scale = 1, .phase_count = 2};
  scenario.phases[0] = (weir_phase){.latency_ms = 2, .bandwidth_gbps = 1};
  scenario.phases[1] = (weir_phase){.latency_ms = 30, .bandwidth_gbps = 0.1};
  const weir_schedule schedule = {.scenario = &scenario};
  cr_assert_float_eq(weir_schedule_window(&schedule), 750e3, 1e-3);
  scenario.phases[0].latency_ms = scenario.phases[1].latency_ms = 0;
  cr_assert_not(weir_schedule_needs_netem(&schedule));
  scenario.phases[1].loss_percent = 1;
  cr_assert(weir_schedule_needs_netem(&schedule));
}
