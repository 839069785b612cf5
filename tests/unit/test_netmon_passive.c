/* The estimator on what costs nothing: timings of collectives and the kernel's own counters, with
 * and without flows, echoes and probes beside them. */
#include "netmon_stream.h"

/* A collective of 6 latencies and 1.5 MB, by the cost rows; the estimator hears of nothing else. */
static void collective(stream *s, double terms, double bytes) {
  s->now += 0.1;
  const double noise = 1 + 0.02 * weir_rng_normal(&s->rng);
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_COLLECTIVE,
                        .value = (terms * s->latency + bytes * OVERHEAD / s->rate) * noise,
                        .alpha_terms = terms,
                        .bytes = bytes});
}

Test(netmon_passive, collectives_alone_tell_both) {
  stream s = start(7, 0.005, 500 * MBIT);
  for (int i = 0; i < 200; i++) collective(&s, i % 2 ? 6 : 20, i % 2 ? 1.5e6 : 1e5);
  const weir_snapshot snapshot = now(&s);
  cr_assert(near(snapshot.latency_s, 0.005, 0.1), "%g", snapshot.latency_s);
  cr_assert(near(snapshot.bandwidth, 500 * MBIT, 0.1), "%g", snapshot.bandwidth / MBIT);
  weir_netmon_free(s.monitor);
}

/* One plan only: latency from echoes, what is left of the time is the link's. */
Test(netmon_passive, one_plan_and_echoes_tell_the_rate) {
  stream s = start(7, 0.005, 100 * MBIT);
  for (int i = 0; i < 50; i++) {
    echo(&s);
    collective(&s, 6, 1.5e6);
  }
  cr_assert(near(now(&s).bandwidth, 100 * MBIT, 0.1), "%g", now(&s).bandwidth / MBIT);
  weir_netmon_free(s.monitor);
}

/* Collectives slow down while echoes and flows are silent: suspect, until a probe has looked. */
Test(netmon_passive, slower_collectives_raise_suspicion) {
  stream s = start(7, 0.001, 500 * MBIT);
  for (int i = 0; i < 40; i++) {
    echo(&s);
    flow(&s, 1e6);
    collective(&s, 6, 1.5e6);
    if (i > 10) cr_assert(!now(&s).suspect, "%d", i);
  }
  s.rate = 50 * MBIT;
  int after = 0;
  while (!now(&s).suspect && after < 20) {
    collective(&s, 6, 1.5e6);
    after++;
  }
  cr_assert(after <= 5, "suspect after %d", after);
  for (int i = 0; i < 4; i++)
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  cr_assert(!now(&s).suspect);
  cr_assert(near(now(&s).bandwidth, 50 * MBIT, 0.1));
  weir_netmon_free(s.monitor);
}

/* TCP_INFO's busy time includes waiting: it may raise the rate, never lower it beside flows. */
Test(netmon_passive, tcp_info_is_a_lower_bound) {
  stream s = start(7, 0.001, 500 * MBIT);
  for (int i = 0; i < 50; i++) {
    step(&s, 1e6);
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_INFO, .value = 0.1, .bytes = 1e5});
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_RTT, .value = 0.5});
  }
  cr_assert(near(now(&s).bandwidth, 500 * MBIT, 0.1));
  cr_assert(near(now(&s).latency_s, 0.001, 0.1));
  cr_assert_eq(now(&s).bandwidth_changes, 1);
  weir_netmon_free(s.monitor);
}

/* Even long after the newest flow. */
Test(netmon_passive, tcp_info_never_lowers) {
  stream s = start(7, 0.001, 500 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  for (int i = 0; i < 200; i++) {
    s.now += 1;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_INFO, .value = 5, .bytes = 1e6});
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_INFO, .value = 0.1, .bytes = 5e3});
  }
  cr_assert(near(now(&s).bandwidth, 500 * MBIT, 1e-6));
  weir_netmon_free(s.monitor);
}

/* With nothing else known: not a burst of a few ticks and round trips, but one of many. */
Test(netmon_passive, tcp_info_alone_counts_when_long) {
  stream s = start(7, 0.05, 50 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.1});
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_INFO, .value = 0.1, .bytes = 5e3});
  cr_assert_eq(now(&s).bandwidth, 0);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_INFO, .value = 2, .bytes = 2 * s.rate / OVERHEAD});
  cr_assert(near(now(&s).bandwidth, 50 * MBIT, 1e-6));
  weir_netmon_free(s.monitor);
}

/* Waiting for a processor makes collectives slow: that is no rate where a probe has told one. */
Test(netmon_passive, slow_collectives_do_not_lower_what_a_probe_told) {
  stream s = start(7, 0.001, 500 * MBIT);
  echo(&s);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  s.rate /= 5;
  for (int i = 0; i < 300; i++) collective(&s, 6, 1.5e6);
  cr_assert(near(now(&s).bandwidth, 500 * MBIT, 1e-6));
  weir_netmon_free(s.monitor);
}

/* A probe needs no witness, either way; what flows say meanwhile is gone with the old value. */
Test(netmon_passive, a_probe_moves_the_rate_at_once) {
  stream s = start(7, 0.001, 500 * MBIT);
  for (int i = 0; i < 100; i++) step(&s, 1e6);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = 20 * MBIT / OVERHEAD});
  cr_assert(near(now(&s).bandwidth, 20 * MBIT, 1e-6));
  cr_assert_eq(now(&s).bandwidth_changes, 2);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = 900 * MBIT / OVERHEAD});
  cr_assert(near(now(&s).bandwidth, 900 * MBIT, 1e-6));
  cr_assert_eq(now(&s).bandwidth_changes, 3);
  weir_netmon_free(s.monitor);
}

/* The kernel's least round trip is of minutes ago: while echoes tell, it tells nothing. */
Test(netmon_passive, echoes_are_newer_than_the_kernels_round_trip) {
  stream s = start(5, 0.01, 100 * MBIT);
  for (int i = 0; i < 200; i++) {
    s.now += 0.1;
    if (i == 100) s.latency = 0.04;
    echo(&s);
    for (int k = 0; k < 5; k++) /* as of several connections */
      feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_RTT, .value = 0.02});
  }
  cr_assert(near(now(&s).latency_s, 0.04, 0.05), "%g", now(&s).latency_s);
  for (int i = 0; i < 200; i++) { /* and where they have long been missing, it does */
    s.now += 0.1;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TCP_RTT, .value = 0.02});
  }
  cr_assert(near(now(&s).latency_s, 0.01, 0.05), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}

/* Round trips of 40 ms that shared their way, three before an idle one of 20 ms and one after it:
 * they are not four that agree. */
Test(netmon_passive, an_idle_round_trip_ends_what_loaded_ones_agreed_on) {
  stream s = start(5, 0.01, 100 * MBIT);
  for (int i = 0; i < 20; i++) {
    s.now += 0.1;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_IDLE, .value = 0.02});
  }
  for (int i = 1; i <= 4; i++) {
    s.now += 0.1;
    if (i == 4) feed(&s, (weir_sample){.kind = WEIR_SAMPLE_IDLE, .value = 0.02});
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.04, .bytes = i});
  }
  cr_assert(near(now(&s).latency_s, 0.01, 1e-6), "%g", now(&s).latency_s);
  s.now += 0.1;
  for (int i = 5; i <= 7; i++)
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.04, .bytes = i});
  cr_assert(near(now(&s).latency_s, 0.02, 1e-6), "these are: %g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}
