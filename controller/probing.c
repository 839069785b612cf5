/* When the controller has the network probed.  A probe holds all ranks up for some tens of
 * milliseconds and several round trips, so it wants a reason, and reasons that led to nothing count
 * less and less. */
#include <math.h>

#include "base/log.h"
#include "controller/loop.h"

static const int departures_before_probe = 2, suspicions_before_probe = 2;
static const uint64_t spacing = 10, spacing_most = 640;
static const uint64_t doubt_spacing = 4, doubt_spacing_most = 8;
static const int leaps_before_probe = 2;
static const uint64_t leap_spacing = 4;
static const uint64_t sample_spacing = 7;
static const double bytes_share =
    1.0; /* an exchange waits for latencies if bytes take less of theirs */
static const double sample_share = 0.05, sample_bytes = 80e3, sample_hops = 6;
/* An arm's departure is learnt in so many steps; a later one is looked into again. */
static const int absorb_steps = WEIR_RECENT;
static const uint64_t answer_steps =
    3; /* from a directive to the headers that tell what it found */

static uint64_t twice(uint64_t steps, uint64_t most) { return 2 * steps > most ? most : 2 * steps; }

void weir_loop_probe_found(weir_loop *loop) {
  loop->probe.pending = false;
  loop->learnt.absorb = 0;
  loop->probe.wait = spacing;
  loop->probe.doubt_wait = doubt_spacing;
  loop->probe.suspected = 0;
  loop->learnt.departures = loop->learnt.leaps = 0;
}

/* A probe's answer would be known by now, and nothing has moved. */
static void give_up(weir_loop *loop) {
  loop->probe.pending = false;
  if (loop->learnt.departures > 0) loop->learnt.absorb = absorb_steps; /* it is the arm */
  if (loop->probe.doubt)
    loop->probe.doubt_wait = twice(loop->probe.doubt_wait, doubt_spacing_most);
  else
    loop->probe.wait = twice(loop->probe.wait, spacing_most);
}

/* Latencies' part of an exchange does not grow where a link becomes narrow. */
static bool waits_for_latencies(const weir_observation *seen) {
  const weir_network *network = &seen->network;
  return seen->heard.terms.byte_terms / network->bandwidth <=
         bytes_share * seen->heard.terms.alpha_terms * network->latency;
}

/* Where messages are small, a link can become narrow unnoticed.  A short look every few steps is
 * taken where it costs little of their time. */
static bool worth_a_sample(const weir_loop *loop, const weir_network *network) {
  const double hops = sample_hops + ceil(log2(loop->workers)); /* and those of meeting afterwards */
  const double sample_s = hops * network->latency + sample_bytes / network->bandwidth;
  return loop->probe.unseen && loop->probe.since >= sample_spacing && loop->learnt.step_count > 0 &&
         sample_s < sample_share * (double)sample_spacing * loop->learnt.step_s;
}

void weir_loop_consider_probe(weir_loop *loop, const weir_observation *seen) {
  if (loop->probe.wait == 0) {
    weir_loop_probe_found(loop);
    loop->probe.since = spacing;
  }
  loop->probe.since++;
  if (seen->heard.valid) loop->probe.unseen = waits_for_latencies(seen);
  if (loop->probe.pending && loop->probe.since > answer_steps) give_up(loop);
  const int suspects = seen->network.suspects;
  loop->probe.suspected = suspects > 0 ? loop->probe.suspected + 1 : 0;
  const bool doubt = (suspects > 1 || seen->network.risen > 1 ||
                      loop->probe.suspected >= suspicions_before_probe) &&
                     loop->probe.since >= loop->probe.doubt_wait;
  const bool departs = loop->learnt.departures >= departures_before_probe &&
                       loop->learnt.absorb == 0 && loop->probe.since >= loop->probe.wait;
  /* However often looking was in vain before. */
  const bool leaps = (loop->learnt.leaps >= leaps_before_probe || loop->probation.in_doubt) &&
                     loop->probe.since >= leap_spacing;
  /* Half the ranks: links are measured one by one, but the exchange waits for all. */
  const bool old = 2 * seen->network.stale >= loop->workers && loop->probe.since >= spacing;
  const bool thorough = doubt || departs || leaps || old;
  if (!thorough && !worth_a_sample(loop, &seen->network)) return;
  if (loop->probe.pending || loop->has_directive) return;
  weir_log(WEIR_LOG_INFO, "probe after this step: %s",
           doubt     ? "ranks suspect another network"
           : departs ? "communication keeps departing from what is predicted"
           : leaps   ? "communication is nowhere near what is predicted"
           : old     ? "what is known of the network is old"
                     : "a short look whether the link has become narrow");
  weir_loop_direct(loop, thorough ? WEIR_ACTION_PROBE : WEIR_ACTION_SAMPLE, &loop->current);
  loop->probe.since = 0;
  loop->probe.pending = doubt || departs || leaps;
  loop->probe.doubt = doubt;
  loop->probe.suspected = 0;
}
