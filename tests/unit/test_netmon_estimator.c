/* The estimator on streams whose truth is known. */
#include "netmon_stream.h"

static uint64_t seed = 7;

Test(netmon_estimator, knows_nothing_at_first) {
  stream s = start(seed, 0.001, 50 * MBIT);
  const weir_snapshot snapshot = now(&s);
  cr_assert_eq(snapshot.latency_s, 0);
  cr_assert_eq(snapshot.bandwidth, 0);
  cr_assert_eq(snapshot.latency_changes, 0);
  cr_assert_eq(snapshot.bandwidth_changes, 0);
  cr_assert(!snapshot.suspect);
  weir_netmon_free(s.monitor);
}

/* By hand: an echo of 2.2 ms is 1.1 ms one way; a probe of 1448000 payload bytes/s is 1514000 on
 * the link. */
Test(netmon_estimator, first_samples_count_at_once) {
  stream s = start(seed, 0.001, 50 * MBIT);
  s.now = 3;
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.0022});
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = 1448000});
  s.now = 5;
  const weir_snapshot snapshot = now(&s);
  cr_assert_float_eq(snapshot.latency_s, 0.0011, 1e-12);
  cr_assert_float_eq(snapshot.bandwidth, 1514000, 1e-3);
  cr_assert_float_eq(snapshot.latency_age_s, 2, 1e-12);
  cr_assert_float_eq(snapshot.bandwidth_age_s, 2, 1e-12);
  cr_assert_eq(snapshot.latency_changes, 1);
  cr_assert_eq(snapshot.bandwidth_changes, 1);
  weir_netmon_free(s.monitor);
}

static void stays_once(double latency, double rate, double spikes, double shared,
                       double tolerance) {
  stream s = start(seed, latency, rate);
  s.spikes = spikes;
  s.shared = shared;
  for (int i = 0; i < 3000; i++) {
    step(&s, 1e6);
    /* That 25 of 31 flows had half the link happens once in 10^8; 9 of 11 once in a thousand. */
    if (i < 30) continue;
    const weir_snapshot snapshot = now(&s);
    cr_assert_eq(snapshot.latency_changes, 1, "false change of latency at sample %d", i);
    cr_assert_eq(snapshot.bandwidth_changes, 1, "false change of bandwidth at sample %d", i);
    cr_assert(near(snapshot.latency_s, latency, tolerance), "%d: %g s", i, snapshot.latency_s);
    cr_assert(near(snapshot.bandwidth, rate, tolerance), "%d: %g", i, snapshot.bandwidth);
    cr_assert(snapshot.latency_error > 0 && snapshot.latency_error < 0.3);
    cr_assert(snapshot.bandwidth_error > 0 && snapshot.bandwidth_error < 0.3);
  }
  weir_netmon_free(s.monitor);
}

static void stays(double latency, double rate, double spikes, double shared, double tolerance) {
  for (seed = 1; seed <= 20; seed++) stays_once(latency, rate, spikes, shared, tolerance);
}

Test(netmon_estimator, stationary_noise_is_no_change) { stays(0.001, 50 * MBIT, 0, 0, 0.08); }
Test(netmon_estimator, stationary_far_link) { stays(0.05, 1250 * MBIT, 0, 0, 0.08); }
Test(netmon_estimator, one_echo_in_ten_waits) { stays(0.001, 500 * MBIT, 0.1, 0, 0.08); }
Test(netmon_estimator, one_echo_in_four_waits) { stays(0.001, 500 * MBIT, 0.25, 0, 0.08); }
Test(netmon_estimator, one_flow_in_three_shares) { stays(0.001, 50 * MBIT, 0.1, 0.33, 0.08); }

static void answers_once(double latency, double rate, double new_latency, double new_rate,
                         double spikes) {
  stream s = start(seed, latency, rate);
  s.spikes = spikes;
  for (int i = 0; i < 200; i++) step(&s, 1e6);
  const weir_snapshot before = now(&s);
  s.latency = new_latency;
  s.rate = new_rate;
  int latency_after = 0, rate_after = 0;
  for (int i = 1; i <= 40; i++) {
    step(&s, 1e6);
    const weir_snapshot snapshot = now(&s);
    if (!latency_after && near(snapshot.latency_s, new_latency, 0.1)) latency_after = i;
    if (!rate_after && near(snapshot.bandwidth, new_rate, 0.1)) rate_after = i;
  }
  /* Where many echoes wait, more witnesses are asked for. */
  const int limit = spikes > 0 ? 24 : 5;
  cr_assert(latency_after && latency_after <= limit, "latency after %d", latency_after);
  /* A fall by a third of flows of 16 ms might be stalls: it takes a few more. */
  cr_assert(rate_after && rate_after <= 8, "rate after %d", rate_after);
  const weir_snapshot after = now(&s);
  /* Among outliers the new value may be found in two moves. */
  const uint32_t moves = after.latency_changes - before.latency_changes;
  cr_assert(moves == (latency != new_latency) || (spikes > 0 && moves == 2), "%u", moves);
  cr_assert_eq(after.bandwidth_changes, before.bandwidth_changes + (rate != new_rate));
  cr_assert(near(after.latency_s, new_latency, 0.1));
  cr_assert(near(after.bandwidth, new_rate, 0.1));
  weir_netmon_free(s.monitor);
}

static void answers(double latency, double rate, double new_latency, double new_rate,
                    double spikes) {
  for (seed = 1; seed <= 20; seed++) answers_once(latency, rate, new_latency, new_rate, spikes);
}

Test(netmon_estimator, latency_rises) { answers(0.001, 50 * MBIT, 0.05, 50 * MBIT, 0); }
Test(netmon_estimator, latency_falls) { answers(0.05, 50 * MBIT, 0.001, 50 * MBIT, 0); }
Test(netmon_estimator, rate_falls) { answers(0.001, 1250 * MBIT, 0.001, 50 * MBIT, 0); }
Test(netmon_estimator, rate_rises) { answers(0.001, 50 * MBIT, 0.001, 1250 * MBIT, 0); }
Test(netmon_estimator, both_change) { answers(0.001, 1250 * MBIT, 0.05, 50 * MBIT, 0); }
Test(netmon_estimator, both_change_back) { answers(0.05, 50 * MBIT, 0.001, 1250 * MBIT, 0); }
Test(netmon_estimator, small_steps_count_too) { answers(0.01, 500 * MBIT, 0.013, 350 * MBIT, 0); }
Test(netmon_estimator, changes_among_outliers) {
  answers(0.001, 500 * MBIT, 0.05, 50 * MBIT, 0.15);
}

/* 0.02 % a step up to three times the latency and a third of the rate: followed within 10 %,
 * counted once for about each 10 % (ln 3 / ln 1.1 = 11.5), never more often. */
Test(netmon_estimator, slow_drift_is_followed) {
  stream s = start(seed, 0.01, 500 * MBIT);
  for (int i = 0; i < 5493; i++) {
    s.latency *= 1.0002;
    s.rate /= 1.0002;
    step(&s, 1e6);
    const weir_snapshot snapshot = now(&s);
    cr_assert(near(snapshot.latency_s, s.latency, 0.1), "%d", i);
    cr_assert(near(snapshot.bandwidth, s.rate, 0.1), "%d", i);
  }
  const weir_snapshot snapshot = now(&s);
  cr_assert(snapshot.latency_changes >= 8 && snapshot.latency_changes <= 13, "%u",
            snapshot.latency_changes);
  cr_assert(snapshot.bandwidth_changes >= 8 && snapshot.bandwidth_changes <= 13, "%u",
            snapshot.bandwidth_changes);
  weir_netmon_free(s.monitor);
}

/* A single stall or a lucky burst changes nothing. */
Test(netmon_estimator, lone_outliers_change_nothing) {
  stream s = start(seed, 0.001, 50 * MBIT);
  for (int i = 0; i < 100; i++) step(&s, 1e6);
  const weir_snapshot before = now(&s);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.9});
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.9});
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = 0.002, .bytes = 1e6});
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = 3, .bytes = 1e6});
  for (int i = 0; i < 5; i++) step(&s, 1e6);
  const weir_snapshot after = now(&s);
  cr_assert_eq(after.latency_changes, before.latency_changes);
  cr_assert_eq(after.bandwidth_changes, before.bandwidth_changes);
  cr_assert(near(after.latency_s, 0.001, 0.1));
  cr_assert(near(after.bandwidth, 50 * MBIT, 0.1));
  weir_netmon_free(s.monitor);
}

/* By hand: 200 kB within 20 ms are 10 MB/s, of which 5 % may belong elsewhere. */
Test(netmon_estimator, doubtful_bytes_make_a_flow_count_less) {
  stream s = start(seed, 0.001, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = 0.02, .bytes = 2e5, .doubt = 1e4});
  cr_assert(near(now(&s).bandwidth, 1e7 * OVERHEAD, 1e-9));
  cr_assert_float_eq(now(&s).bandwidth_error, 0.0004 / 0.02 + 0.05, 1e-9);
  weir_netmon_free(s.monitor);
  s = start(seed, 0.001, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = 0.02, .bytes = 2e5, .doubt = 1e5});
  cr_assert_eq(now(&s).bandwidth, 0, "half of it is no evidence");
  weir_netmon_free(s.monitor);
}

/* Three messages that share a link: each has a third, and together they have what the link carries
 * times `together`. */
static void shared(stream *s, double bytes, double together) {
  const double payload = s->rate / OVERHEAD;
  s->now += 0.05;
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_SHARED,
                        .value = bytes / (payload * together),
                        .bytes = bytes,
                        .alone = payload / 3});
}

static stream sharing(double rate) {
  stream s = start(seed, 0.001, rate);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = rate / OVERHEAD});
  return s;
}

/* Also such as are too short to say what one of them had by itself. */
Test(netmon_estimator, messages_that_share_a_link_tell_a_rate_where_none_is_known) {
  stream s = start(seed, 0.001, 300 * MBIT);
  const double payload = s.rate / OVERHEAD;
  for (int i = 0; i < 8; i++) {
    s.now += 0.05;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_SHARED, .value = 0.004, .bytes = 0.004 * payload});
  }
  cr_assert(near(now(&s).bandwidth, 300 * MBIT, 1e-6), "%g", now(&s).bandwidth / MBIT);
  weir_netmon_free(s.monitor);
}

Test(netmon_estimator, messages_that_share_a_link_leave_its_rate_alone) {
  stream s = sharing(30 * MBIT);
  for (int i = 0; i < 200; i++) {
    shared(&s, 2e5, 0.8 + 0.5 * weir_rng_uniform(&s.rng));
    cr_assert(near(now(&s).bandwidth, 30 * MBIT, 1e-9), "%d: %g", i, now(&s).bandwidth / MBIT);
    cr_assert_not(now(&s).suspect);
  }
  cr_assert_eq(now(&s).bandwidth_changes, 1);
  weir_netmon_free(s.monitor);
}

Test(netmon_estimator, messages_that_share_a_link_see_it_fall_and_rise) {
  stream s = sharing(300 * MBIT);
  for (int i = 0; i < 50; i++) shared(&s, 2e6, 1);
  s.rate = 30 * MBIT;
  for (int i = 0; i < 15; i++) shared(&s, 2e5, 0.9 + 0.2 * weir_rng_uniform(&s.rng));
  cr_assert(near(now(&s).bandwidth, 30 * MBIT, 0.1), "%g", now(&s).bandwidth / MBIT);
  s.rate = 300 * MBIT;
  for (int i = 0; i < 15; i++) shared(&s, 2e6, 0.9 + 0.2 * weir_rng_uniform(&s.rng));
  cr_assert(near(now(&s).bandwidth, 300 * MBIT, 0.1), "%g", now(&s).bandwidth / MBIT);
  weir_netmon_free(s.monitor);
}

/* Where nothing better is known they are believed; and trains say it better. */
Test(netmon_estimator, trains_say_better_what_shared_links_carry) {
  stream s = start(seed, 0.001, 100 * MBIT);
  shared(&s, 1e6, 1.2);
  cr_assert(near(now(&s).bandwidth, 120 * MBIT, 1e-9), "%g", now(&s).bandwidth / MBIT);
  for (int i = 0; i < 40; i++) {
    shared(&s, 1e6, 1.2);
    if (i % 4 == 0)
      feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TRAIN, .value = 0.004, .bytes = 0.004 * s.rate});
  }
  cr_assert(near(now(&s).bandwidth, 100 * MBIT, 0.02), "%g", now(&s).bandwidth / MBIT);
  weir_netmon_free(s.monitor);
}

/* 20 kB messages at 750 Mbit/s take 0.2 ms: scheduling, not a link. */
Test(netmon_estimator, short_flows_say_nothing) {
  stream s = start(seed, 0.001, 750 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  for (int i = 0; i < 200; i++) {
    s.now += 0.01;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = 1e-3, .bytes = 2e4});
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_SHARED, .value = 1e-3, .bytes = 2e4, .alone = 1e7});
  }
  cr_assert(near(now(&s).bandwidth, 750 * MBIT, 1e-6));
  weir_netmon_free(s.monitor);
}

static void loaded_echo(stream *s, double rtt) {
  s->now += 0.3;
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = rtt, .bytes = 1});
}

/* Our own queue is no latency: not once, not for minutes, as long as idle echoes come. */
Test(netmon_estimator, echoes_in_our_own_queue_are_no_latency) {
  stream s = start(seed, 0.001, 50 * MBIT);
  for (int i = 0; i < 20; i++) echo(&s);
  for (int i = 0; i < 600; i++) {
    loaded_echo(&s, 0.004 + 0.03 * weir_rng_uniform(&s.rng));
    if (i % 5 == 0) echo(&s);
  }
  cr_assert(near(now(&s).latency_s, 0.001, 0.1), "%g", now(&s).latency_s);
  cr_assert_eq(now(&s).latency_changes, 1);
  weir_netmon_free(s.monitor);
}

/* Steps shorter than a round trip leave no idle echo; such as agree met no queue. */
Test(netmon_estimator, echoes_that_agree_tell_the_latency_without_idle_times) {
  stream s = start(seed, 0.001, 50 * MBIT);
  for (int i = 0; i < 20; i++) echo(&s);
  for (int i = 0; i < 12; i++) loaded_echo(&s, 0.1002 + 0.0003 * weir_rng_uniform(&s.rng));
  cr_assert(near(now(&s).latency_s, 0.05, 0.01), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}

Test(netmon_estimator, agreed_idle_round_trips_need_no_witness) {
  stream s = start(seed, 0.001, 50 * MBIT);
  for (int i = 0; i < 100; i++) echo(&s);
  s.now += 1;
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_IDLE, .value = 0.1});
  cr_assert(near(now(&s).latency_s, 0.05, 1e-9));
  cr_assert_eq(now(&s).latency_changes, 2);
  weir_netmon_free(s.monitor);
}

Test(netmon_estimator, other_traffic_is_reported) {
  stream s = start(seed, 0.001, 500 * MBIT);
  for (int i = 0; i < 40; i++) {
    s.now += 1;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_CROSS, .value = 2, .bytes = 3e6});
  }
  cr_assert(near(now(&s).cross_bandwidth, 1.5e6, 0.001));
  weir_netmon_free(s.monitor);
}

Test(netmon_estimator, garbage_changes_nothing) {
  stream s = start(seed, 0.001, 50 * MBIT);
  for (int i = 0; i < 20; i++) step(&s, 1e6);
  const weir_snapshot before = now(&s);
  const weir_sample garbage[] = {
      {.kind = WEIR_SAMPLE_ECHO, .time_s = s.now, .value = NAN},
      {.kind = WEIR_SAMPLE_ECHO, .time_s = s.now, .value = -1},
      {.kind = WEIR_SAMPLE_ECHO, .time_s = s.now, .value = 0},
      {.kind = WEIR_SAMPLE_ECHO, .time_s = s.now, .value = 1e9},
      {.kind = WEIR_SAMPLE_ECHO, .time_s = s.now - 1, .value = 0.002},
      {.kind = WEIR_SAMPLE_ECHO, .time_s = NAN, .value = 0.002},
      {.kind = WEIR_SAMPLE_PROBE, .time_s = s.now, .value = INFINITY},
      {.kind = WEIR_SAMPLE_PROBE, .time_s = s.now, .value = 0},
      {.kind = WEIR_SAMPLE_FLOW, .time_s = s.now, .value = -0.1, .bytes = 1e6},
      {.kind = WEIR_SAMPLE_FLOW, .time_s = s.now, .value = 0.1, .bytes = NAN},
      {.kind = WEIR_SAMPLE_FLOW, .time_s = s.now, .value = INFINITY, .bytes = 1e6},
      {.kind = WEIR_SAMPLE_COLLECTIVE, .time_s = s.now, .value = 1, .bytes = -1},
      {.kind = WEIR_SAMPLE_COLLECTIVE, .time_s = s.now, .value = 1, .alpha_terms = NAN},
      {.kind = WEIR_SAMPLE_TCP_INFO, .time_s = s.now, .value = NAN, .bytes = 1e6},
      {.kind = WEIR_SAMPLE_TCP_RTT, .time_s = s.now, .value = -0.001},
      {.kind = WEIR_SAMPLE_CROSS, .time_s = s.now, .value = 0, .bytes = 1},
      {.kind = (weir_sample_kind)99, .time_s = s.now, .value = 1, .bytes = 1},
  };
  for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
    cr_assert_eq(weir_netmon_feed(s.monitor, &garbage[i]), WEIR_E_INVALID, "sample %zu", i);
  const weir_snapshot after = now(&s);
  cr_assert_eq(after.latency_s, before.latency_s);
  cr_assert_eq(after.bandwidth, before.bandwidth);
  cr_assert_eq(after.latency_changes, before.latency_changes);
  cr_assert_eq(after.latency_age_s, before.latency_age_s);
  weir_netmon_free(s.monitor);
}

Test(netmon_estimator, refuses_absurd_settings) {
  weir_netmon *monitor;
  const weir_netmon_config bad[] = {{.wire_overhead = 0.5},
                                    {.change_threshold = -1},
                                    {.window_s = -1},
                                    {.window_s = NAN},
                                    {.wire_overhead = NAN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cr_assert_eq(weir_netmon_create(&monitor, &bad[i]), WEIR_E_INVALID, "%zu", i);
    cr_assert_null(monitor);
  }
  weir_netmon_free(NULL);
}

/* Two monitors fed alike know alike, bit for bit. */
Test(netmon_estimator, replays) {
  stream a = start(seed, 0.001, 50 * MBIT), b = start(seed, 0.001, 50 * MBIT);
  for (int i = 0; i < 500; i++) {
    if (i == 250) a.rate = b.rate = 500 * MBIT;
    step(&a, 1e6);
    step(&b, 1e6);
    const weir_snapshot x = now(&a), y = now(&b);
    cr_assert_eq(x.latency_s, y.latency_s);
    cr_assert_eq(x.bandwidth, y.bandwidth);
    cr_assert_eq(x.bandwidth_error, y.bandwidth_error);
    cr_assert_eq(x.bandwidth_changes, y.bandwidth_changes);
  }
  weir_netmon_free(a.monitor);
  weir_netmon_free(b.monitor);
}
