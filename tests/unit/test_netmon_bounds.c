/* Steps without idle times, whose exchanges and loaded round trips bound the latency; trains that
 * chase a rate that has risen.  Numbers as seen on a link of 30 Mbit/s whose latency rose from 1 to
 * 50 ms under a plan of 2 hops and 256560 bytes. */
#include "netmon_stream.h"

#define BYTES 256560.0

static stream known(double latency, double rate) {
  stream s = start(5, latency, rate);
  for (int i = 0; i < 20; i++) echo(&s);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = rate / OVERHEAD});
  return s;
}

/* Two hops, and up to `late` for ranks that come late. */
static void exchange(stream *s, double late) {
  s->now += 0.15;
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_COLLECTIVE,
                        .value = 2 * s->latency + BYTES * OVERHEAD / s->rate + late,
                        .alpha_terms = 2,
                        .bytes = BYTES});
}

static void loaded(stream *s, double rtt, double transfer) {
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = rtt, .bytes = transfer});
}

Test(netmon_bounds, exchanges_and_loaded_round_trips_show_a_far_larger_latency) {
  stream s = known(0.001, 30 * MBIT);
  for (int i = 0; i < 10; i++) exchange(&s, 0.01);
  s.latency = 0.05;
  for (int i = 0; i < 4; i++) exchange(&s, 0.02 + 0.01 * i);
  loaded(&s, 0.1263, 146);
  loaded(&s, 0.1402, 146);
  loaded(&s, 0.1135, 146);
  cr_assert(near(now(&s).latency_s, 0.001, 0.1));
  loaded(&s, 0.1000, 147);
  cr_assert(near(now(&s).latency_s, 0.05, 1e-9), "%g", now(&s).latency_s);
  cr_assert_eq(now(&s).latency_changes, 2);
  /* A smaller bound is true at once, a larger one says nothing. */
  loaded(&s, 0.0900, 149);
  cr_assert(near(now(&s).latency_s, 0.045, 1e-9));
  loaded(&s, 0.1400, 150);
  cr_assert(near(now(&s).latency_s, 0.045, 1e-9));
  weir_netmon_free(s.monitor);
}

/* Our own queue on a narrow link: the bytes explain what exchanges take. */
Test(netmon_bounds, queues_of_exchanges_that_take_as_long_as_foretold_are_no_latency) {
  stream s = known(0.001, 30 * MBIT);
  for (int i = 0; i < 200; i++) {
    exchange(&s, 0.002);
    loaded(&s, 0.04 + 0.05 * weir_rng_uniform(&s.rng), i + 1);
    if (i % 20 == 19) echo(&s);
  }
  cr_assert(near(now(&s).latency_s, 0.001, 0.1), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}

/* Nor where bytes take a third longer than they should, as far as that goes. */
Test(netmon_bounds, slow_bytes_are_no_latency) {
  stream s = known(0.005, 100 * MBIT);
  for (int i = 0; i < 60; i++) {
    s.now += 0.6;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_COLLECTIVE,
                           .value = 1.35 * (6 * s.latency + 4.6e6 * OVERHEAD / s.rate),
                           .alpha_terms = 6,
                           .bytes = 4.6e6});
    loaded(&s, 0.09 + 0.01 * (i % 5), i + 1);
    if (i % 9 == 8) echo(&s);
  }
  cr_assert(near(now(&s).latency_s, 0.005, 0.1), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}

/* Of a dense plan without pauses, as seen at 5 ms and 100 Mbit/s: exchanges of 6 hops and 4.6 MB, a
 * queue of 41 ms that every round trip finds, none that is idle for minutes. */
Test(netmon_bounds, a_queue_that_is_always_there_is_no_latency) {
  for (int differ = 0; differ < 2; differ++) {
    stream s = known(0.005, 100 * MBIT);
    for (int i = 0; i < 300; i++) {
      const double bytes_s = 4.6e6 * OVERHEAD / s.rate;
      s.now += 0.45;
      feed(&s, (weir_sample){.kind = WEIR_SAMPLE_COLLECTIVE,
                             .value = (6 * s.latency + bytes_s) * (1 + 0.02 * (i % 3)),
                             .alpha_terms = 6,
                             .bytes = 4.6e6});
      loaded(&s, 0.092 + 0.03 * differ * (i % 4), i + 1);
      cr_assert(near(now(&s).latency_s, 0.005, 0.1), "%g at %d", now(&s).latency_s, i);
    }
    /* It rises to 40 ms, and exchanges with it. */
    s.latency = 0.04;
    for (int i = 0; i < 40; i++) {
      s.now += 0.45;
      feed(&s, (weir_sample){.kind = WEIR_SAMPLE_COLLECTIVE,
                             .value = 6 * s.latency + 4.6e6 * OVERHEAD / s.rate,
                             .alpha_terms = 6,
                             .bytes = 4.6e6});
      loaded(&s, 0.08 + 0.001 * (i % 4), 400 + i);
    }
    cr_assert(near(now(&s).latency_s, 0.04, 0.1), "%g", now(&s).latency_s);
    weir_netmon_free(s.monitor);
  }
}

/* One of four that was as short as ever: the others waited for something else. */
Test(netmon_bounds, one_short_round_trip_or_exchange_excuses_the_others) {
  stream s = known(0.001, 30 * MBIT);
  for (int i = 0; i < 60; i++) {
    exchange(&s, i % 4 ? 0.2 : 0);
    loaded(&s, 0.1 + 0.03 * (i % 2), i + 1);
  }
  cr_assert(near(now(&s).latency_s, 0.001, 0.1), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
  s = known(0.001, 30 * MBIT);
  for (int i = 0; i < 60; i++) {
    exchange(&s, 0.2);
    loaded(&s, i % 4 ? 0.1 + 0.01 * (i % 5) : 0.0022, i + 1);
  }
  cr_assert(near(now(&s).latency_s, 0.001, 0.15), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}

/* A single long transfer may keep its queue. */
Test(netmon_bounds, one_transfers_queue_is_no_bound_of_several) {
  stream s = known(0.001, 30 * MBIT);
  for (int i = 0; i < 4; i++) exchange(&s, 0.5);
  for (int i = 0; i < 4; i++) loaded(&s, 0.1 + 0.03 * i, 7);
  cr_assert(near(now(&s).latency_s, 0.001, 0.1), "%g", now(&s).latency_s);
  weir_netmon_free(s.monitor);
}

/* --- trains ----------------------------------------------------------------------------------- */

/* Half of a train of so many bytes, over a link that lets `depth` bytes pass at once. */
static void train(stream *s, double bytes, double depth) {
  const double half = bytes / 2, left = fmax(0, depth - half);
  s->now += 0.3;
  feed(s, (weir_sample){
              .kind = WEIR_SAMPLE_TRAIN, .value = fmax(0, half - left) / s->rate, .bytes = half});
}

/* From 30 to 750 Mbit/s behind a bucket of 1 ms, 94 kB: each train twice as long as the one before,
 * up to 260 kB, of which two are exact. */
Test(netmon_bounds, trains_of_growing_length_find_a_rate_that_has_risen) {
  stream s = known(0.001, 30 * MBIT);
  s.rate = 750 * MBIT;
  double bytes = 18000;
  int trains = 0;
  for (; near(now(&s).bandwidth, 30 * MBIT, 0.01) && trains < 20; trains++) {
    train(&s, bytes, 94e3);
    cr_assert(!now(&s).risen || now(&s).fast_trains == (uint32_t)trains + 1);
    bytes = fmin(2 * bytes, 260e3);
  }
  cr_assert_eq(trains, 6, "18, 36, 72, 144, 260 and 260 kB, not %d", trains);
  cr_assert(near(now(&s).bandwidth, 750 * MBIT, 0.01), "%g", now(&s).bandwidth / MBIT);
  cr_assert_not(now(&s).risen);
  weir_netmon_free(s.monitor);
}

/* A bucket of 100 kB on a link of 100 Mbit/s: of a train of 56 kB all passes at once, of 112 kB the
 * second half but for 12 kB, which would be 467 Mbit/s; 224 kB tell the rate, and the next are
 * short again. */
Test(netmon_bounds, trains_that_a_bucket_makes_fast_do_not_agree) {
  stream s = known(0.001, 100 * MBIT);
  const double lengths[] = {56e3, 112e3, 224e3};
  for (int i = 0; i < 30; i++) {
    train(&s, lengths[i % 3], 100e3);
    cr_assert_eq(now(&s).fast_trains, (uint32_t)(i + 1) % 3);
  }
  cr_assert(near(now(&s).bandwidth, 100 * MBIT, 0.01), "%g", now(&s).bandwidth / MBIT);
  weir_netmon_free(s.monitor);
}
