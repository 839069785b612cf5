/* Trains of datagrams and loaded round trips: what the monitor makes of them.  Rates are of the
 * link, as traffic control counts them. */
#include <criterion/criterion.h>
#include <math.h>

#include "netmon/netmon.h"

#define MBIT (1e6 / 8)
#define OVERHEAD (1514.0 / 1448.0)

static double time_s;

static void feed(weir_netmon *m, weir_sample sample) {
  sample.time_s = time_s += 0.1;
  cr_assert_eq(weir_netmon_feed(m, &sample), WEIR_OK, "%s", weir_last_error());
}

static void probe(weir_netmon *m, double rate) {
  feed(m, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = rate / OVERHEAD});
}

static void train(weir_netmon *m, double bytes, double rate) {
  feed(m, (weir_sample){.kind = WEIR_SAMPLE_TRAIN, .value = bytes / rate, .bytes = bytes});
}

static void loaded_echo(weir_netmon *m, double rtt_s, double transfer) {
  feed(m, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = rtt_s, .bytes = transfer});
}

static weir_snapshot now(const weir_netmon *m) {
  weir_snapshot snapshot;
  weir_netmon_snapshot(m, time_s, &snapshot);
  return snapshot;
}

/* On a link of this rate and 1 ms. */
static weir_netmon *start(double rate) {
  weir_netmon *m = NULL;
  time_s = 0;
  cr_assert_eq(weir_netmon_create(&m, NULL), WEIR_OK);
  for (int i = 0; i < 20; i++) {
    feed(m, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = 0.002});
    probe(m, rate * (i % 2 ? 1.01 : 0.99));
  }
  probe(m, rate);
  cr_assert_float_eq(now(m).bandwidth, rate, 0.011 * rate);
  return m;
}

Test(netmon_trains, far_faster_ones_say_that_the_rate_has_risen) {
  weir_netmon *m = start(30 * MBIT);
  train(m, 8652, 30 * MBIT);
  cr_assert_not(now(m).risen);
  train(m, 8652, 750 * MBIT);
  cr_assert(now(m).risen);
  cr_assert_not(now(m).suspect, "one may be chance");
  train(m, 8652, 750 * MBIT);
  cr_assert(now(m).suspect);
  cr_assert_float_eq(now(m).bandwidth, 30 * MBIT, 0.011 * 30 * MBIT, "they tell no rate");
  probe(m, 750 * MBIT);
  cr_assert_not(now(m).risen || now(m).suspect);
  cr_assert_float_eq(now(m).bandwidth, 750 * MBIT, 0.011 * 750 * MBIT);
  weir_netmon_free(m);
}

Test(netmon_trains, one_of_the_known_rate_takes_it_back) {
  weir_netmon *m = start(30 * MBIT);
  train(m, 8652, 750 * MBIT);
  train(m, 8652, 31 * MBIT);
  cr_assert_not(now(m).risen);
  train(m, 8652, 750 * MBIT);
  cr_assert_not(now(m).suspect, "two, but not in a row");
  weir_netmon_free(m);
}

/* A bucket that lets every train through at ten times the rate: each probe in vain excuses four
 * times as much, so the second alarm is the last (10 < 2.5 * 4), until the rate moves. */
Test(netmon_trains, a_token_bucket_is_learnt) {
  weir_netmon *m = start(100 * MBIT);
  train(m, 56000, 1000 * MBIT);
  cr_assert(now(m).risen);
  probe(m, 100 * MBIT);
  train(m, 56000, 990 * MBIT);
  cr_assert_not(now(m).risen);
  train(m, 56000, 1100 * MBIT);
  cr_assert(now(m).risen, "11 > 2.5 * 4");
  probe(m, 100 * MBIT);
  train(m, 56000, 2700 * MBIT);
  cr_assert_not(now(m).risen, "27 < 2.5 * 11");
  probe(m, 200 * MBIT);
  train(m, 56000, 1000 * MBIT);
  cr_assert(now(m).risen, "another rate, another bucket");
  weir_netmon_free(m);
}

/* 8652 bytes at 40 Mbit/s take 1.7 ms: long enough to be exact.  A few of them ask for a probe,
 * many are believed without one. */
Test(netmon_trains, long_ones_tell_the_rate) {
  const double rates[][2] = {{30, 40}, {300, 30}};
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    weir_netmon *m = start(rates[i][0] * MBIT);
    for (int k = 0; k < 6; k++) train(m, 8652, rates[i][1] * MBIT);
    cr_assert(now(m).suspect || now(m).bandwidth_changes == 2);
    for (int k = 0; k < 24; k++) train(m, 8652, rates[i][1] * MBIT);
    cr_assert_float_eq(now(m).bandwidth, rates[i][1] * MBIT, 0.02 * rates[i][1] * MBIT, "%g",
                       now(m).bandwidth / MBIT);
    weir_netmon_free(m);
  }
}

/* 8652 bytes at 400 Mbit/s take 0.17 ms, which a processor may as well. */
Test(netmon_trains, short_ones_tell_nothing_but_a_rise) {
  weir_netmon *m = start(750 * MBIT);
  for (int i = 0; i < 40; i++) train(m, 8652, 400 * MBIT);
  cr_assert_float_eq(now(m).bandwidth, 750 * MBIT, 0.011 * 750 * MBIT);
  weir_netmon_free(m);
}

/* Traffic beside them makes some read low. */
Test(netmon_trains, shared_ones_do_not_drag_the_rate_down) {
  weir_netmon *m = start(30 * MBIT);
  for (int i = 0; i < 60; i++) train(m, 8652, i % 3 == 0 ? 15 * MBIT : 30 * MBIT);
  cr_assert_float_eq(now(m).bandwidth, 30 * MBIT, 0.1 * 30 * MBIT, "%g", now(m).bandwidth / MBIT);
  weir_netmon_free(m);
}

Test(netmon_trains, absurd_ones_are_refused) {
  weir_netmon *m = start(30 * MBIT);
  const weir_sample bad[] = {{.kind = WEIR_SAMPLE_TRAIN, .value = -1, .bytes = 10},
                             {.kind = WEIR_SAMPLE_TRAIN, .value = NAN, .bytes = 10},
                             {.kind = WEIR_SAMPLE_TRAIN, .value = 1, .bytes = -10},
                             {.kind = WEIR_SAMPLE_TRAIN, .value = 1, .bytes = INFINITY}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    weir_sample sample = bad[i];
    sample.time_s = time_s + 1;
    cr_assert_eq(weir_netmon_feed(m, &sample), WEIR_E_INVALID, "%zu", i);
  }
  cr_assert_float_eq(now(m).bandwidth, 30 * MBIT, 0.011 * 30 * MBIT);
  weir_netmon_free(m);
}

/* Four round trips beside four transfers that agree met no queue. */
Test(netmon_trains, loaded_round_trips_that_agree_move_the_latency_at_once) {
  weir_netmon *m = start(30 * MBIT);
  for (int i = 0; i < 3; i++) loaded_echo(m, 0.1 + 1e-4 * i, 5 + i);
  cr_assert_float_eq(now(m).latency_s, 0.001, 1e-5);
  loaded_echo(m, 0.1003, 8);
  cr_assert_float_eq(now(m).latency_s, 0.05, 1e-4, "%g", now(m).latency_s);
  weir_netmon_free(m);
}

/* Beside one long transfer they may have met one steady queue. */
Test(netmon_trains, one_transfers_queue_is_not_believed_at_once) {
  weir_netmon *m = start(30 * MBIT);
  for (int i = 0; i < 4; i++) loaded_echo(m, 0.1, 5);
  cr_assert_float_eq(now(m).latency_s, 0.001, 1e-5, "%g", now(m).latency_s);
  weir_netmon_free(m);
}
