/* Links that lose packets: the rate stays the link's, and goodput is what messages get. */
#include "netmon_stream.h"

/* A message, and the second half of it, which took `share` of the time that the first half took
 * more than the link needs. */
static void message(stream *s, double bytes, double seconds, double late_s) {
  s->now += 0.1;
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_MESSAGE, .value = seconds, .bytes = bytes});
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = late_s, .bytes = bytes / 2});
}

static void segments(stream *s, double sent, double resent, double disordered) {
  feed(s, (weir_sample){
              .kind = WEIR_SAMPLE_LOSS, .bytes = sent, .value = resent, .doubt = disordered});
}

/* 100 Mbit/s; of messages of 200 kB, 16.7 ms each, every other one waits 30 ms for what got lost.
 */
static stream lossy(double resent, double disordered) {
  stream s = start(3, 0.005, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  for (int i = 0; i < 200; i++) {
    const double clean = 2e5 * OVERHEAD / s.rate, lost = i % 2 ? 0.03 : 0;
    segments(&s, 140, resent, disordered);
    message(&s, 2e5, clean + lost, clean / 2 + lost);
  }
  return s;
}

/* By hand: 200 kB take 16.728 and 46.728 ms in turns, 31.728 ms on average: 6.3036 MB/s of payload,
 * 6.591 of the link's, which is 0.527 of its rate; one retransmission in 140. */
Test(netmon_goodput, losses_lower_the_goodput_not_the_rate) {
  stream s = lossy(1, 0);
  const weir_snapshot snapshot = now(&s);
  cr_assert(near(snapshot.bandwidth, 100 * MBIT, 0.02), "%g", snapshot.bandwidth / MBIT);
  cr_assert(near(snapshot.goodput, 6.591e6, 0.02), "%g", snapshot.goodput);
  cr_assert(near(snapshot.loss, 1.0 / 140, 1e-6), "%g", snapshot.loss);
  /* The relative deviation is 15 / 31.728 = 0.473, of 33 messages 0.0823. */
  cr_assert(near(snapshot.goodput_error, 0.0823, 0.1), "%g", snapshot.goodput_error);
  /* 15 ms for the root of 200 kB. */
  cr_assert(near(snapshot.deviation, 3.354e-5, 0.03), "%g", snapshot.deviation);
  cr_assert_eq(snapshot.bandwidth_changes, 1);
  weir_netmon_free(s.monitor);
}

/* With as many losses a byte, a message of four times the bytes has twice the deviation: the same
 * for the root of a byte.  Messages of 100 kB take 20 or 40 ms, of 400 kB 100 or 140 ms. */
Test(netmon_goodput, the_deviation_goes_with_the_root_of_the_bytes) {
  stream s = start(3, 0.005, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  segments(&s, 1000, 10, 0);
  for (int i = 0; i < 400; i++) {
    const double by = i % 2 ? 1 : -1;
    if (i % 4 < 2)
      message(&s, 1e5, 0.03 + 0.01 * by, 0.01);
    else
      message(&s, 4e5, 0.12 + 0.02 * by, 0.04);
  }
  const double deviation = now(&s).deviation; /* 10 ms for the root of 100 kB */
  cr_assert(near(deviation, 3.162e-5, 0.03), "%g", deviation);
  weir_netmon_free(s.monitor);
}

/* Receivers do not hear of retransmissions, but of the disorder that they come in. */
Test(netmon_goodput, disorder_is_a_witness_too) {
  stream s = lossy(0, 2);
  cr_assert(near(now(&s).bandwidth, 100 * MBIT, 0.02));
  cr_assert(near(now(&s).goodput, 6.591e6, 0.02));
  cr_assert_eq(now(&s).loss, 0);
  weir_netmon_free(s.monitor);
}

/* The same times without a loss: somebody else has half of the link, or it has become so slow. */
Test(netmon_goodput, without_losses_slow_messages_are_the_links) {
  stream s = lossy(0, 0);
  cr_assert_eq(now(&s).goodput, now(&s).bandwidth);
  cr_assert_eq(now(&s).goodput_error, now(&s).bandwidth_error);
  cr_assert_eq(now(&s).deviation, 0);
  weir_netmon_free(s.monitor);
  s = start(3, 0.005, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  s.rate = 50 * MBIT;
  for (int i = 0; i < 40; i++) {
    const double clean = 2e5 * OVERHEAD / s.rate;
    segments(&s, 140, 0, 0);
    message(&s, 2e5, clean, clean / 2);
  }
  cr_assert(near(now(&s).bandwidth, 50 * MBIT, 0.02), "%g", now(&s).bandwidth / MBIT);
  cr_assert_eq(now(&s).goodput, now(&s).bandwidth);
  weir_netmon_free(s.monitor);
}

/* Trains and probes still tell when a link that loses packets becomes narrow or wide. */
Test(netmon_goodput, the_rate_of_a_lossy_link_follows_trains_and_probes) {
  stream s = lossy(1, 0);
  for (int i = 0; i < 30; i++) {
    s.now += 0.3;
    feed(&s, (weir_sample){.kind = WEIR_SAMPLE_TRAIN, .value = 9e3 / (40 * MBIT), .bytes = 9e3});
  }
  cr_assert(near(now(&s).bandwidth, 40 * MBIT, 0.05), "%g", now(&s).bandwidth / MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = 300 * MBIT / OVERHEAD});
  cr_assert(near(now(&s).bandwidth, 300 * MBIT, 1e-6));
  cr_assert(near(now(&s).goodput, 6.591e6, 0.02));
  weir_netmon_free(s.monitor);
}

/* Once nothing is lost any more, messages are the link's again: half the weight is gone after 4000
 * segments, and 25 losses of 3500 are below one in a thousand after some 11300 without one. */
Test(netmon_goodput, losses_are_forgotten) {
  stream s = lossy(1, 0);
  double sent = 0;
  for (; now(&s).goodput < now(&s).bandwidth && sent < 1e5; sent += 140) segments(&s, 140, 0, 0);
  cr_assert(sent > 8000 && sent < 16000, "%g", sent);
  weir_netmon_free(s.monitor);
}

Test(netmon_goodput, a_few_losses_or_messages_are_chance) {
  stream s = start(3, 0.005, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  segments(&s, 100, 2, 2);
  for (int i = 0; i < 10; i++) message(&s, 2e5, 0.04, 0.008);
  cr_assert_eq(now(&s).goodput, now(&s).bandwidth, "two losses");
  weir_netmon_free(s.monitor);
  s = start(3, 0.005, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  segments(&s, 100, 4, 0);
  for (int i = 0; i < 3; i++) message(&s, 2e5, 0.04, 0.008);
  cr_assert_eq(now(&s).goodput, now(&s).bandwidth, "three messages");
  message(&s, 2e5, 0.04, 0.008);
  cr_assert(near(now(&s).goodput, 5e6 * OVERHEAD, 1e-9));
  weir_netmon_free(s.monitor);
}

/* Where messages get all that the link has, nothing is said of how far apart they lie. */
Test(netmon_goodput, a_narrow_link_has_no_deviation) {
  stream s = lossy(1, 0);
  cr_assert_gt(now(&s).deviation, 0);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = 10 * MBIT / OVERHEAD});
  cr_assert(near(now(&s).bandwidth, 10 * MBIT, 1e-6));
  cr_assert_eq(now(&s).goodput, now(&s).bandwidth);
  cr_assert_eq(now(&s).goodput_error, now(&s).bandwidth_error);
  cr_assert_eq(now(&s).deviation, 0);
  weir_netmon_free(s.monitor);
}

/* Of so few messages the mean is one of their own: theirs in turns are 20 and 40 ms for 200 kB, the
 * newest counting most. */
Test(netmon_goodput, the_deviation_of_a_few) {
  stream s = start(3, 0.005, 100 * MBIT);
  feed(&s, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = s.rate / OVERHEAD});
  segments(&s, 100, 4, 0);
  double weights = 0, mean = 0, square = 0;
  for (int i = 0; i < 4; i++) message(&s, 2e5, i % 2 ? 0.04 : 0.02, 0.008);
  for (int i = 0; i < 4; i++) weights += pow(0.97, i);
  for (int i = 0; i < 4; i++) mean += pow(0.97, i) * (i % 2 ? 0.02 : 0.04) / weights;
  for (int i = 0; i < 4; i++)
    square += pow(0.97, i) * pow((i % 2 ? 0.02 : 0.04) - mean, 2) / (weights - 1);
  cr_assert(near(now(&s).deviation, sqrt(square / 2e5), 1e-9), "%g", now(&s).deviation);
  weir_netmon_free(s.monitor);
}

Test(netmon_goodput, absurd_samples_are_refused) {
  stream s = start(3, 0.005, 100 * MBIT);
  const weir_sample bad[] = {{.kind = WEIR_SAMPLE_LOSS, .bytes = 0, .value = 1},
                             {.kind = WEIR_SAMPLE_LOSS, .bytes = 10, .value = -1},
                             {.kind = WEIR_SAMPLE_LOSS, .bytes = 10, .value = NAN},
                             {.kind = WEIR_SAMPLE_LOSS, .bytes = 10, .doubt = INFINITY},
                             {.kind = WEIR_SAMPLE_MESSAGE, .bytes = 10, .value = -1},
                             {.kind = WEIR_SAMPLE_MESSAGE, .bytes = NAN, .value = 1},
                             {.kind = WEIR_SAMPLE_FLOW, .bytes = 10, .value = 1, .doubt = -1},
                             {.kind = WEIR_SAMPLE_PROBE, .value = 1e6, .doubt = NAN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_assert_eq(weir_netmon_feed(s.monitor, &bad[i]), WEIR_E_INVALID, "%zu", i);
  cr_assert_eq(now(&s).goodput, 0);
  weir_netmon_free(s.monitor);
}
