/* A link whose truth is known, and what a monitor hears of it. */
#ifndef WEIR_TESTS_NETMON_STREAM_H
#define WEIR_TESTS_NETMON_STREAM_H

#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "netmon/netmon.h"

/* Link bytes per payload byte on Ethernet with TCP timestamps: 1514 bytes carry 1448. */
#define OVERHEAD (1514.0 / 1448.0)
#define MBIT (1e6 / 8)

typedef struct stream {
  weir_netmon *monitor;
  weir_rng rng;
  double now;
  double latency, rate; /* truth: s, link bytes/s */
  double spikes;        /* share of round trips that waited for a processor */
  double shared;        /* share of flows that had half the link */
} stream;

static inline stream start(uint64_t seed, double latency, double rate) {
  stream s = {.latency = latency, .rate = rate};
  s.rng = weir_rng_of(seed);
  cr_assert_eq(weir_netmon_create(&s.monitor, NULL), WEIR_OK);
  return s;
}

static inline void feed(stream *s, weir_sample sample) {
  sample.time_s = s->now;
  cr_assert_eq(weir_netmon_feed(s->monitor, &sample), WEIR_OK, "%s", weir_last_error());
}

/* A round trip: twice the latency, 0.1 ms of system calls that vary, now and then 5 ms
 * of waiting. */
static inline void echo(stream *s) {
  double rtt = 2 * s->latency + 1e-4 * (1 + 0.3 * fabs(weir_rng_normal(&s->rng)));
  if (weir_rng_uniform(&s->rng) < s->spikes) rtt += 0.005 + 0.01 * weir_rng_uniform(&s->rng);
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = rtt});
}

static inline void flow(stream *s, double bytes) {
  double seconds = bytes * OVERHEAD / s->rate * (1 + 0.02 * fabs(weir_rng_normal(&s->rng)));
  if (weir_rng_uniform(&s->rng) < s->shared) seconds *= 2;
  feed(s, (weir_sample){.kind = WEIR_SAMPLE_FLOW, .value = seconds, .bytes = bytes});
}

static inline void step(stream *s, double bytes) {
  s->now += 0.1;
  echo(s);
  flow(s, bytes);
}

static inline weir_snapshot now(const stream *s) {
  weir_snapshot snapshot;
  weir_netmon_snapshot(s->monitor, s->now, &snapshot);
  return snapshot;
}

static inline bool near(double value, double truth, double tolerance) {
  return fabs(value - truth) <= tolerance * truth;
}

#endif
