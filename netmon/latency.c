/* Round trips, and what exchanges tell of the latency. */
#include <math.h>

#include "netmon/estimate.h"

/* So much later than the newest idle round trip, others count too. */
static const double idle_patience_s = 10, loaded_agreement = 1.1, same = 1.05;
/* A latency so many times larger is seen by its bounds alone.  What exchanges allow for is rough:
 * bytes may take so many times what they should. */
static const double far_risen = 3, least_support = 0.6, slow_bytes = 1.4, quick_bytes = 0.9;

void weir_latency_feed(weir_netmon *monitor, double rtt_s, double error) {
  if (!weir_channel_feed(&monitor->latency, monitor->time_s, rtt_s / 2, error)) return;
  weir_estimate_forget(monitor);
}

static void assert_latency(weir_netmon *monitor, double rtt_s) {
  monitor->bounds.believed = false;
  if (!weir_channel_assert(&monitor->latency, monitor->time_s, rtt_s / 2, 0.02)) return;
  monitor->bounds.rtts = monitor->bounds.hops = 0;
  weir_estimate_forget(monitor);
}

/* Every round trip is a bound of the latency from above, and so is every exchange.  Steps without
 * idle times leave nothing else; but what neither the least of some round trips beside different
 * transfers nor the least of some exchanges falls below is where the latency must have come to. */
static void consider_bounds(weir_netmon *monitor, const weir_sample *s) {
  weir_latency_bounds *b = &monitor->bounds;
  const double known = 2 * weir_channel_value(&monitor->latency);
  if (b->believed && s->value < known / same) { /* the newest bound */
    assert_latency(monitor, s->value);
    b->believed = true;
    return;
  }
  b->rtt[b->rtts % WEIR_BOUNDS_KEPT] = s->value;
  b->by[b->rtts++ % WEIR_BOUNDS_KEPT] = s->bytes;
  if (!(known > 0) || b->rtts < WEIR_BOUNDS_KEPT || b->hops < WEIR_BOUNDS_KEPT) return;
  double least = INFINITY, hop = INFINITY;
  bool several = false;
  for (int i = 0; i < WEIR_BOUNDS_KEPT; i++) {
    least = fmin(least, b->rtt[i]);
    hop = fmin(hop, b->hop[i]);
    several = several || b->by[i] != b->by[0];
  }
  if (!several || least < far_risen * known || hop < least_support * least / 2) return;
  assert_latency(monitor, least);
  b->believed = true;
}

void weir_latency_exchange(weir_netmon *monitor, const weir_sample *s, double bytes_s) {
  weir_latency_bounds *b = &monitor->bounds;
  if (s->alpha_terms <= 0) return;
  b->hop_most[b->hops % WEIR_BOUNDS_KEPT] =
      fmax(0, s->value - quick_bytes * bytes_s) / s->alpha_terms;
  b->hop[b->hops++ % WEIR_BOUNDS_KEPT] = fmax(0, s->value - slow_bytes * bytes_s) / s->alpha_terms;
}

/* Can the latency be as long?  Not if one of the newest exchanges had no time for it: then the
 * round trip waited in the queue of their own bytes, which a plan without pauses always finds. */
static bool allowed(const weir_latency_bounds *b, double rtt_s) {
  double most = INFINITY;
  if (b->hops < WEIR_BOUNDS_KEPT) return true;
  for (int i = 0; i < WEIR_BOUNDS_KEPT; i++) most = fmin(most, b->hop_most[i]);
  return most >= least_support * rtt_s / 2;
}

/* A round trip that shared its way with a transfer waited in a queue: it tells what the latency is
 * at most.  Several of them that agree met no queue, as queues differ; and where idle ones have
 * long been missing, the least of the newest stands for them; unless exchanges say otherwise. */
static void feed_loaded(weir_netmon *monitor, const weir_sample *s) {
  monitor->loaded_rtt[monitor->loaded % WEIR_LOADED_KEPT] = s->value;
  monitor->loaded_by[monitor->loaded++ % WEIR_LOADED_KEPT] = s->bytes;
  const uint32_t kept = monitor->loaded < WEIR_LOADED_KEPT ? monitor->loaded : WEIR_LOADED_KEPT;
  double least = s->value, most = s->value, first_by = s->bytes;
  for (uint32_t i = 0; i < kept; i++) {
    least = fmin(least, monitor->loaded_rtt[i]);
    most = fmax(most, monitor->loaded_rtt[i]);
    first_by = fmin(first_by, monitor->loaded_by[i]);
  }
  const double known = 2 * weir_channel_value(&monitor->latency);
  const bool agree = kept == WEIR_LOADED_KEPT && most <= loaded_agreement * least;
  const bool missing =
      kept == WEIR_LOADED_KEPT && s->time_s - monitor->idle_echo_s > idle_patience_s;
  if (s->value >= known && known > 0 && !agree && !missing) return;
  if (least > known && known > 0 && !allowed(&monitor->bounds, least)) return;
  monitor->echo_s = s->time_s;
  /* A long transfer may keep its queue; several transfers do not meet the very same one. */
  if (agree && most <= same * least && s->bytes - first_by >= WEIR_LOADED_KEPT - 2)
    assert_latency(monitor, least);
  else
    weir_latency_feed(monitor, least, agree ? 0.02 : 0.1);
}

void weir_latency_echo(weir_netmon *monitor, const weir_sample *s) {
  consider_bounds(monitor, s);
  if (s->bytes > 0) {
    feed_loaded(monitor, s);
    return;
  }
  monitor->loaded = 0;
  monitor->echo_s = monitor->idle_echo_s = s->time_s;
  weir_latency_feed(monitor, s->value, 0.02);
}

void weir_latency_idle(weir_netmon *monitor, const weir_sample *s) {
  monitor->loaded = 0;
  monitor->echo_s = monitor->idle_echo_s = s->time_s;
  assert_latency(monitor, s->value);
}
