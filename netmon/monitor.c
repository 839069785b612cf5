/* Samples of every kind, each with what it is good for, into two channels: one-way latency and link
 * rate.
 *
 * Round trips are long when a processor was busy and never short, so latency is a low quantile.
 * Flows share their link and wait for processors, so they read low, and what a token bucket gives
 * away has passed before they are timed: so the rate is a high quantile, and short flows count
 * little. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "netmon/estimate.h"

static const double default_overhead = WEIR_TCP_OVERHEAD, default_threshold = 0.1,
                    default_window_s = 10;
static const double latency_quantile = 0.2, rate_quantile = 0.8;
/* A receiver may be kept waiting for its processor this long, and a flow that may be so wrong is
 * none. */
static const double wait_s = 0.0004, most_error = 0.25;
/* What messages that share links have together may be so much less, or more, than these carry. */
static const double shared_off = 0.25;
/* A train of datagrams that came so many times faster than the known rate says that it
 * has risen. */
static const double risen = 2.5, train_least_s = 1e-6, most_usual = 4;
static const double train_longer = 1.5, train_most = 110e3, train_agreement = 0.2;
static const double train_exact_s = 0.0008, train_error = 0.05, train_low_error = 0.5;
/* Now and then a rank, sender or receiver, does not get to run for this long. */
static const double stall_s = 0.003;
static const double tcp_tick_s = 0.01; /* of TCP_INFO's busy time, where the kernel ticks slowest */
static const double long_busy = 10;
static const double min_rate = 100, max_rate = 1e12, min_rtt_s = 1e-7, max_rtt_s = 100;
static const double max_step_s = 3600, max_segments = 1e12;
/* The regression forgets: half weight after about 34 samples. */
static const double remember = 0.98;
/* A suspicion that nothing confirmed ends after so many steady collectives. */
enum { PATIENCE = 32 };

weir_status weir_netmon_create(weir_netmon **out, const weir_netmon_config *config) {
  const weir_netmon_config none = {0};
  if (!config) config = &none;
  *out = NULL;
  const double overhead = config->wire_overhead == 0 ? default_overhead : config->wire_overhead;
  const double threshold =
      config->change_threshold == 0 ? default_threshold : config->change_threshold;
  const double window_s = config->window_s == 0 ? default_window_s : config->window_s;
  if (!(overhead >= 1 && overhead < 100) || !(threshold > 0 && threshold < 10) ||
      !(window_s > 0 && isfinite(window_s)))
    return weir_fail(WEIR_E_INVALID, "a monitor of overhead %g, threshold %g, window %g s",
                     overhead, threshold, window_s);
  weir_netmon *monitor = calloc(1, sizeof *monitor);
  if (!monitor) return weir_fail(WEIR_E_NOMEM, "no memory for a network monitor");
  monitor->overhead = overhead;
  monitor->threshold = threshold;
  monitor->window_s = window_s;
  monitor->echo_s = monitor->flow_s = monitor->idle_echo_s = -INFINITY;
  monitor->time_s = -INFINITY;
  monitor->usual_train = 1;
  weir_channel_init(&monitor->latency, latency_quantile, threshold, window_s);
  monitor->latency.chance = 1e-8; /* echoes often wait for a processor */
  weir_channel_init(&monitor->rate, rate_quantile, threshold, window_s);
  weir_channel_init(&monitor->fit.ratio, 0.5, threshold, INFINITY);
  *out = monitor;
  return WEIR_OK;
}

void weir_netmon_free(weir_netmon *monitor) { free(monitor); }

static bool within(double value, double low, double high) { return value >= low && value <= high; }

static bool plausible(const weir_netmon *monitor, const weir_sample *s) {
  if (!isfinite(s->time_s) || s->time_s < monitor->time_s) return false;
  switch (s->kind) {
    case WEIR_SAMPLE_ECHO:
    case WEIR_SAMPLE_IDLE:
    case WEIR_SAMPLE_TCP_RTT: return within(s->value, min_rtt_s, max_rtt_s);
    case WEIR_SAMPLE_PROBE: return within(s->value, min_rate, max_rate) && within(s->doubt, 0, 1);
    case WEIR_SAMPLE_FLOW:
    case WEIR_SAMPLE_SHARED:
    case WEIR_SAMPLE_MESSAGE:
    case WEIR_SAMPLE_TRAIN:
    case WEIR_SAMPLE_TCP_INFO:
      return within(s->value, 0, max_step_s) && within(s->bytes, 0, max_rate * max_step_s) &&
             within(s->doubt, 0, max_rate * max_step_s) && within(s->alone, 0, max_rate);
    case WEIR_SAMPLE_LOSS:
      return within(s->bytes, 1, max_segments) && within(s->value, 0, max_segments) &&
             within(s->doubt, 0, max_segments);
    case WEIR_SAMPLE_COLLECTIVE:
      return within(s->value, 0, max_step_s) && within(s->alpha_terms, 0, 1e9) &&
             within(s->bytes, 0, max_rate * max_step_s);
    case WEIR_SAMPLE_CROSS:
      return within(s->value, 1e-6, max_step_s * 24) && within(s->bytes, 0, max_rate * max_step_s);
  }
  return false;
}

static void suspect(weir_netmon *monitor) {
  if (!monitor->suspect) monitor->suspected = 0;
  monitor->suspect = true;
}

void weir_estimate_forget(weir_netmon *monitor) {
  monitor->suspect = false;
  monitor->usual_train = 1;
  monitor->fast_trains = 0;
  monitor->fast_exact = monitor->fast_bytes = 0;
  monitor->fit.aa = monitor->fit.ab = monitor->fit.bb = monitor->fit.a = monitor->fit.b = 0;
  weir_channel_init(&monitor->fit.ratio, 0.5, monitor->threshold, INFINITY);
}

static void feed_rate(weir_netmon *monitor, double payload_rate, double error, double low_error) {
  const double rate = payload_rate * monitor->overhead;
  if (!within(rate, min_rate, max_rate)) return;
  if (weir_channel_feed_low(&monitor->rate, monitor->time_s, rate, error, low_error))
    weir_estimate_forget(monitor);
}

/* The only traffic of its moment.  Whether it confirms the rate or moves it, predictions that
 * failed are learnt anew. */
static void feed_probe(weir_netmon *monitor, const weir_sample *s) {
  const double rate = s->value * monitor->overhead;
  if (s->doubt > 0) { /* better than nothing, until something better comes */
    feed_rate(monitor, s->value, s->doubt, s->doubt);
    return;
  }
  if (!within(rate, min_rate, max_rate)) return;
  const bool moved = weir_channel_assert(&monitor->rate, s->time_s, rate, 0.02);
  if (!moved && !monitor->suspect && !monitor->fast_trains) return;
  const double usual = monitor->usual_train, train = monitor->fast_trains ? monitor->train : 1;
  weir_estimate_forget(monitor);
  if (!moved) monitor->usual_train = fmax(usual, fmin(train, most_usual * usual));
}

/* A train that came far too fast: a token bucket, or the rate has risen.  Longer ones follow it
 * (weir_probe_pace), and what two of them agree on that differ in length is no bucket's doing. */
static void feed_fast_train(weir_netmon *monitor, const weir_sample *s) {
  const double rate = s->bytes / fmax(s->value, train_exact_s), before = monitor->fast_exact;
  const bool exact = s->value >= train_exact_s;
  const bool longer = s->bytes >= train_longer * monitor->fast_bytes || s->bytes >= train_most;
  monitor->fast_trains++;
  monitor->fast_rate = rate;
  monitor->fast_bytes = s->bytes;
  if (!exact) return;
  monitor->fast_exact = fmax(before, rate); /* those that share the link read low */
  if (!longer || fabs(log(rate / before)) > train_agreement) return;
  monitor->flow_s = s->time_s;
  if (weir_channel_assert(&monitor->rate, s->time_s, fmin(rate, before), train_error))
    weir_estimate_forget(monitor);
}

/* Short ones may be what a token bucket lets through at once.  Longer ones are exact, but for
 * traffic that shared the link, which makes them read low. */
static void feed_train(weir_netmon *monitor, const weir_sample *s) {
  const double known = weir_channel_value(&monitor->rate);
  if (s->bytes <= 0 || !(known > 0)) return;
  monitor->train = s->bytes / fmax(s->value, train_least_s) / known;
  if (monitor->train > risen * monitor->usual_train) {
    feed_fast_train(monitor, s);
    return;
  }
  monitor->fast_trains = 0;
  monitor->fast_exact = monitor->fast_bytes = 0;
  if (s->value < train_exact_s) return;
  monitor->flow_s = s->time_s;
  feed_rate(monitor, s->bytes / s->value / monitor->overhead, train_error, train_low_error);
}

/* A flow is exact but for waiting to be looked at, and for the lumps it came in: how much it says
 * is a matter of how long it took. */
static double flow_error(const weir_sample *s) {
  return s->value > 0 && s->bytes > 0 ? wait_s / s->value + s->doubt / s->bytes : INFINITY;
}

/* Waiting for what got lost is no matter of the link's rate. */
static bool slowed_by_loss(const weir_netmon *monitor, const weir_sample *s) {
  return weir_goodput_matters(&monitor->goodput) &&
         s->bytes * monitor->overhead < weir_channel_value(&monitor->rate) * s->value;
}

/* A message that shares the links on its way has a part of what they carry.  Together messages from
 * several ranks have all of it; or more, as where only what leaves a rank is limited several may
 * have a link to themselves for a while; or less, where ranks begin at different times.  So what is
 * known is only wrong clearly outside of the two. */
static void feed_shared(weir_netmon *monitor, const weir_sample *s) {
  const double error = flow_error(s);
  if (error > most_error) return;
  monitor->flow_s = s->time_s;
  if (slowed_by_loss(monitor, s)) return;
  const double known = weir_channel_value(&monitor->rate) / monitor->overhead;
  const double together = s->bytes / s->value, off = fmax(shared_off, stall_s / s->value);
  const bool stands = known > 0 && s->alone <= known && together >= (1 - off) * known;
  feed_rate(monitor, stands ? known : together, fmax(error, off), fmax(error, off));
}

static void feed_flow(weir_netmon *monitor, const weir_sample *s) {
  const double error = flow_error(s);
  if (error > most_error) { /* too short to tell a rate, but were the link slow, it would be long */
    const double known = weir_channel_value(&monitor->rate);
    if (fmax(0, s->bytes - s->doubt) * monitor->overhead > known * s->value)
      weir_channel_contradict_fall(&monitor->rate);
    return;
  }
  monitor->flow_s = s->time_s;
  if (slowed_by_loss(monitor, s)) return;
  feed_rate(monitor, s->bytes / s->value, error, fmax(error, stall_s / s->value));
}

/* Busy time ticks and includes waiting for the last acknowledgement, a round trip: a lower bound,
 * which may raise the rate, never lower it.  It is a value of its own only where there is no other
 * and the burst was long against both. */
static void feed_tcp_info(weir_netmon *monitor, const weir_sample *s) {
  const double rtt_s = 2 * weir_channel_value(&monitor->latency);
  if (s->bytes <= 0 || s->value < long_busy * (tcp_tick_s + rtt_s)) return;
  const double payload_rate = s->bytes / s->value;
  if (payload_rate * monitor->overhead < weir_channel_value(&monitor->rate)) return;
  feed_rate(monitor, payload_rate, (tcp_tick_s + rtt_s) / s->value,
            (tcp_tick_s + rtt_s) / s->value);
}

/* Latency and rate from collectives alone, for want of direct samples.  Waiting for a busy
 * processor is part of a collective's time: a rate that a flow or a probe told is better, however
 * old. */
static void fall_back(weir_netmon *monitor, const weir_sample *s, bool echoes, bool flows) {
  const weir_collective_fit *fit = &monitor->fit;
  double alpha = echoes ? weir_channel_value(&monitor->latency) : 0;
  double beta = 0;
  if (fit->aa * fit->bb > 0 && fit->ab * fit->ab < 0.95 * fit->aa * fit->bb) {
    const double det = fit->aa * fit->bb - fit->ab * fit->ab;
    const double a = (fit->a * fit->bb - fit->b * fit->ab) / det;
    const double b = (fit->b * fit->aa - fit->a * fit->ab) / det;
    if (a <= 0 || b <= 0) return;
    if (!echoes && within(2 * a, min_rtt_s, max_rtt_s)) weir_latency_feed(monitor, 2 * a, 0.1);
    beta = b;
  } else if (alpha > 0 && s->bytes > 0 && s->value > 1.5 * s->alpha_terms * alpha) {
    beta = (s->value - s->alpha_terms * alpha) / s->bytes;
  }
  if (!flows && beta > 0) feed_rate(monitor, 1 / beta, 0.1, 0.1);
}

static void feed_collective(weir_netmon *monitor, const weir_sample *s) {
  weir_collective_fit *fit = &monitor->fit;
  if (s->value <= 0 || s->alpha_terms + s->bytes <= 0) return;
  const double a = s->alpha_terms / s->value, b = s->bytes / s->value;
  fit->aa = remember * fit->aa + a * a;
  fit->ab = remember * fit->ab + a * b;
  fit->bb = remember * fit->bb + b * b;
  fit->a = remember * fit->a + a;
  fit->b = remember * fit->b + b;
  const bool echoes = s->time_s - monitor->echo_s <= monitor->window_s;
  const bool flows = monitor->flow_s > -INFINITY;
  const double alpha = weir_channel_value(&monitor->latency);
  const double rate = weir_channel_value(&monitor->rate);
  const double bytes_s = rate > 0 ? s->bytes * monitor->overhead / rate : 0;
  const double predicted = s->alpha_terms * alpha + bytes_s;
  if (rate > 0) weir_latency_exchange(monitor, s, bytes_s);
  if (s->alpha_terms != fit->terms || s->bytes > 1.3 * fit->bytes || s->bytes < fit->bytes / 1.3) {
    /* Another plan has another error of prediction. */
    weir_channel_init(&fit->ratio, 0.5, monitor->threshold, INFINITY);
    fit->terms = s->alpha_terms;
    fit->bytes = s->bytes;
  }
  if (alpha > 0 && rate > 0 && predicted > 0) {
    const bool first = fit->ratio.changes == 0;
    const bool moved = weir_channel_feed(&fit->ratio, s->time_s, s->value / predicted, 0.03);
    if (moved && !first) {
      suspect(monitor);
      fit->aa = fit->ab = fit->bb = fit->a = fit->b = 0;
    } else if (fit->ratio.since >= PATIENCE && ++monitor->suspected >= PATIENCE) {
      monitor->suspect = false; /* nobody probed, and times have been steady since */
    }
  }
  if (!echoes || !flows) fall_back(monitor, s, echoes, flows);
}

weir_status weir_netmon_feed(weir_netmon *monitor, const weir_sample *s) {
  if (!plausible(monitor, s))
    return weir_fail(WEIR_E_INVALID, "an absurd sample: kind %d, time %g, value %g, bytes %g",
                     (int)s->kind, s->time_s, s->value, s->bytes);
  monitor->time_s = s->time_s;
  switch (s->kind) {
    case WEIR_SAMPLE_ECHO: weir_latency_echo(monitor, s); break;
    case WEIR_SAMPLE_IDLE: weir_latency_idle(monitor, s); break;
    case WEIR_SAMPLE_TCP_RTT:
      /* The kernel's minimum lives for minutes: it would hide a rise that echoes see. */
      if (s->time_s - monitor->echo_s > monitor->window_s)
        weir_latency_feed(monitor, s->value, 0.1);
      break;
    case WEIR_SAMPLE_FLOW: feed_flow(monitor, s); break;
    case WEIR_SAMPLE_SHARED: feed_shared(monitor, s); break;
    case WEIR_SAMPLE_MESSAGE: weir_goodput_message(&monitor->goodput, s); break;
    case WEIR_SAMPLE_LOSS: weir_goodput_loss(&monitor->goodput, s); break;
    case WEIR_SAMPLE_TRAIN: feed_train(monitor, s); break;
    case WEIR_SAMPLE_TCP_INFO: feed_tcp_info(monitor, s); break;
    case WEIR_SAMPLE_PROBE:
      if (s->doubt == 0) monitor->flow_s = s->time_s;
      feed_probe(monitor, s);
      break;
    case WEIR_SAMPLE_COLLECTIVE: feed_collective(monitor, s); break;
    case WEIR_SAMPLE_CROSS: monitor->cross += 0.3 * (s->bytes / s->value - monitor->cross); break;
  }
  return WEIR_OK;
}

void weir_netmon_snapshot(const weir_netmon *monitor, double now_s, weir_snapshot *snapshot) {
  const weir_channel *latency = &monitor->latency, *rate = &monitor->rate;
  *snapshot =
      (weir_snapshot){.time_s = now_s,
                      .latency_s = weir_channel_value(latency),
                      .latency_error = weir_channel_error(latency),
                      .latency_age_s = latency->changes ? fmax(0, now_s - latency->newest_s) : 0,
                      .bandwidth = weir_channel_value(rate),
                      .bandwidth_error = weir_channel_error(rate),
                      .bandwidth_age_s = rate->changes ? fmax(0, now_s - rate->newest_s) : 0,
                      .loss = weir_goodput_lost(&monitor->goodput),
                      .cross_bandwidth = monitor->cross,
                      .latency_changes = latency->changes,
                      .bandwidth_changes = rate->changes,
                      .suspect = monitor->suspect || monitor->fast_trains > 1 ||
                                 weir_channel_moving(latency) || weir_channel_moving(rate),
                      .risen = monitor->fast_trains > 0,
                      .fast_trains = monitor->fast_trains,
                      .risen_to = monitor->fast_trains ? monitor->fast_rate : 0};
  double error = 0, deviation = 0;
  const double goodput =
      weir_goodput_value(&monitor->goodput, &error, &deviation) * monitor->overhead;
  const bool slower = goodput > 0 && goodput < snapshot->bandwidth;
  snapshot->goodput = slower ? goodput : snapshot->bandwidth;
  snapshot->goodput_error = slower ? error : snapshot->bandwidth_error;
  snapshot->deviation = slower ? deviation : 0;
}
