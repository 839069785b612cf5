/* Active probes towards the ring neighbour.  Half of the ranks send at a time, so that ranks which
 * share a machine do not measure its processor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/state.h"

#define ECHOES 5
/* Idle round trips that differ by less agree. */
#define AGREEMENT 1.05
#define ECHO_TIMEOUT_S 1.0
/* iperf3 at start sends so much. */
#define START_TEST ((size_t)512 << 10)
/* A burst is a train of messages, each of which is measured too. */
#define MESSAGES 4
#define HELD_UP 1.25
#define MESSAGE_S 0.003 /* what a message should take, within these bounds */
#define MESSAGE_LEAST ((size_t)20 << 10)
#define MESSAGE_MOST ((size_t)256 << 10)
#define ROUNDS 4
/* A message this much shorter than it should be says little; rates this near to each other agree. */
#define TOO_SHORT 0.5
#define NEAR 0.2
/* Values older than this are measured anew, not just looked at. */
#define OLD_S 3.5
/* Latencies below this are worth measuring every time. */
#define CHEAP_S 0.005

/* Idle round trips until the two shortest agree: those two need no further witness. */
static void echoes(weir_session *session) {
  weir_transport *transport = session->transport;
  if (transport->ops->echo == NULL) return;
  const double timeout_s = fmin(ECHO_TIMEOUT_S, session->options.timeout_s / 8);
  double first = INFINITY, second = INFINITY;
  for (int i = 0; i < ECHOES && (i < 2 || second > AGREEMENT * first); i++) {
    double rtt_s = 0;
    /* One that got lost says nothing; a peer that is gone shows in the next exchange. */
    if (transport->ops->echo(transport, session->next, timeout_s, &rtt_s) != WEIR_OK) return;
    second = fmin(second, fmax(first, rtt_s));
    first = fmin(first, rtt_s);
  }
  if (isfinite(second) && second <= AGREEMENT * first)
    weir_feed_idle(session, first);
  else if (isfinite(first))
    weir_feed_echo(session, first, false);
}

/* Port this rank's helper serves on; 0 when it serves nowhere. */
static uint32_t serve(weir_session *session) {
  weir_transport *transport = session->transport;
  if (session->iperf == NULL || transport->ops->address == NULL) return 0;
  const char *address = transport->ops->address(transport, transport->rank);
  if (address == NULL) return 0;
  /* Ports below the range that the kernel hands out, apart for ranks that share an address. */
  const uint64_t job = session->options.job_id;
  const uint32_t base = 12000 + (uint32_t)(weir_hash(WEIR_HASH_INIT, &job, sizeof job) % 10000);
  for (uint32_t turn = 0; turn < 4; turn++) {
    const uint32_t port = base + (uint32_t)transport->rank + turn * 2000;
    if (port <= UINT16_MAX && weir_iperf_serve(session->iperf, address, (int)port) == WEIR_OK)
      return port;
  }
  return 0;
}

/* Payload bytes/s by iperf3; 0 when it did not work out. */
static double measure(weir_session *session, uint32_t port, size_t bytes) {
  weir_transport *transport = session->transport;
  const char *address = transport->ops->address(transport, session->next);
  const double timeout_s = fmin(5, session->options.timeout_s / 3);
  double bandwidth = 0;
  session->budget.spent += (double)bytes;
  if (address == NULL) return 0;
  if (weir_iperf_measure(session->iperf, address, (int)port, bytes, timeout_s, &bandwidth) ==
      WEIR_OK)
    return bandwidth;
  (void)fprintf(stderr, "weir: rank %d: iperf3 to %s failed: %s; bandwidth is measured without it\n",
                session->options.rank, address, weir_last_error());
  return 0;
}

/* --- bursts --------------------------------------------------------------------------------- */

static double message_bytes(double rate) {
  return fmin(fmax(rate * MESSAGE_S, (double)MESSAGE_LEAST), (double)MESSAGE_MOST);
}

static double known_rate(const weir_session *session) {
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  return now.bandwidth / (1514.0 / 1448.0);
}

bool weir_probe_affordable(const weir_session *session) {
  return weir_budget_left(&session->budget) >= 2 * MESSAGES * message_bytes(known_rate(session));
}

static weir_status make_room(weir_session *session, size_t bytes) {
  if (bytes <= session->burst_capacity) return WEIR_OK;
  unsigned char *burst = calloc(2, bytes);
  if (burst == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a probe of %zu bytes", bytes);
  free(session->burst);
  session->burst = burst;
  session->burst_capacity = bytes;
  return WEIR_OK;
}

/* The rate at which a burst's messages came, 0 when they were there at once.  The whole train tells it
 * best, as long as nothing held it up: a window that was full, or a rank that did not get to run.
 * Else it is the second best single message's. */
static double take_rate(weir_session *session, size_t bytes) {
  const weir_transport *transport = session->transport;
  const uint32_t kept = sizeof transport->flow / sizeof transport->flow[0];
  double best = 0, second = 0, first_s = 0, last_s = 0, missed = 0;
  int flows = 0;
  for (; session->feed.flows != transport->flows; session->feed.flows++) {
    const weir_flow_sample *flow = &transport->flow[session->feed.flows % kept];
    const double seconds = flow->last_s - flow->first_s;
    if (!(seconds > 0)) continue;
    const double rate = (double)flow->bytes / seconds;
    second = fmax(second, fmin(best, rate));
    best = fmax(best, rate);
    if (flows++ == 0) {
      first_s = flow->first_s;
      missed = fmax(0, (double)bytes - (double)flow->bytes);
    }
    last_s = flow->last_s;
  }
  if (flows < MESSAGES) return flows < 3 ? best : second; /* where a train began is not known */
  const double train = ((double)(MESSAGES * bytes) - missed) / (last_s - first_s);
  return second > HELD_UP * train ? second : train;
}

/* Messages from even ranks to the next, then from odd ones; tells the rate at which they came. */
static weir_status burst(weir_session *session, size_t bytes, double *rate) {
  static const char name[] = "weir probe";
  weir_send send[MESSAGES];
  weir_recv receive[MESSAGES];
  weir_status status = make_room(session, bytes);
  for (uint32_t m = 0; m < MESSAGES; m++) {
    send[m] = (weir_send){session->next, session->burst, bytes, m};
    receive[m] =
        (weir_recv){session->previous, session->burst + session->burst_capacity, bytes, m, 0};
  }
  session->budget.spent += (double)(MESSAGES * bytes);
  session->feed.flows = session->transport->flows;
  for (int turn = 0; turn < 2 && status == WEIR_OK; turn++) {
    const weir_tag tag = {weir_hash(WEIR_HASH_INIT, name, sizeof name), session->bursts++, 0, 0};
    const size_t sends = session->options.rank % 2 == turn ? MESSAGES : 0;
    const size_t receives = session->previous % 2 == turn ? MESSAGES : 0;
    status = session->transport->ops->transfer(session->transport, &tag, send, sends, receive,
                                               receives,
                                               weir_now_s() + session->options.timeout_s);
  }
  if (status == WEIR_OK) *rate = take_rate(session, bytes);
  return status;
}

typedef struct wish {
  double message; /* bytes that this rank would have a message hold */
  double left;    /* bytes it may send */
} wish;

/* What all ranks wish, made one: the longest message, so far as everybody's budget allows; 0: no burst. */
static weir_status agree(weir_session *session, double message, size_t *bytes) {
  const size_t ranks = (size_t)session->options.world_size;
  const wish mine = {message, weir_budget_left(&session->budget)};
  wish *all = calloc(ranks, sizeof *all);
  *bytes = 0;
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to probe %zu ranks", ranks);
  const weir_status status = weir_session_gather(session, &mine, sizeof mine, all);
  double longest = 0, left = INFINITY;
  for (size_t r = 0; r < ranks && status == WEIR_OK; r++) {
    longest = fmax(longest, all[r].message);
    left = fmin(left, all[r].left);
  }
  free(all);
  if (status != WEIR_OK) return status;
  /* One that is cut short would say little. */
  const double most = fmin(longest, (double)MESSAGE_MOST);
  const double allowed = fmin(most, left / MESSAGES);
  if (most > 0 && allowed >= TOO_SHORT * most && allowed >= (double)MESSAGE_LEAST)
    *bytes = (size_t)allowed;
  return WEIR_OK;
}

static bool near(double a, double b) { return fabs(a - b) <= NEAR * fmax(a, b); }

typedef struct search {
  double known;  /* link rate before, payload bytes/s; 0: none */
  bool thorough; /* the rate is wanted, not only whether it has dropped */
  double before; /* what the round before said */
  double lower;  /* the lower of the last two rounds */
  double found;  /* the rate that is believed; 0: none yet */
} search;

/* What a round's result calls for: the next round's message, or 0 when it is over. */
static double judge(search *s, double bytes, double rate) {
  /* Short messages of a fast link tell at least that it has not become slow. */
  const bool fast = !(rate > 0) || rate >= s->known / 2;
  if (!s->thorough && fast && bytes < TOO_SHORT * message_bytes(s->known)) return 0;
  if (!(rate > 0)) /* all was there at once: the link is faster, or this rank came late */
    return bytes < 8 * (double)MESSAGE_LEAST ? 8 * bytes : bytes;
  const bool confirmed =
      near(rate, s->before) || near(rate, s->known);
  s->lower = s->before > 0 ? fmin(rate, s->before) : rate;
  s->before = rate;
  if (bytes < TOO_SHORT * message_bytes(rate)) return message_bytes(rate);
  if (!confirmed) return bytes;
  s->found = rate;
  return 0;
}

/* Short messages first: should the link have become narrow, long ones would hold everybody up. */
static weir_status measure_rate(weir_session *session, double least, bool thorough) {
  search s = {.known = known_rate(session), .thorough = thorough, .found = 0};
  double wanted = (double)MESSAGE_LEAST;
  weir_status status = WEIR_OK;
  for (int round = 0; round < ROUNDS; round++) {
    size_t bytes;
    status = agree(session, wanted, &bytes);
    if (status != WEIR_OK || bytes == 0) break;
    double rate = 0;
    status = burst(session, bytes, &rate);
    if (status != WEIR_OK) break;
    wanted = judge(&s, (double)bytes, rate);
  }
  if (thorough || s.found > 0) session->rate_unsure = !(s.found > 0);
  /* Cut short by the budget: a burst that was held up reads low, so what is higher counts. */
  if (!(s.found > 0) && s.lower > s.known) s.found = s.lower;
  const double rate = fmax(least, s.found);
  if (rate > 0) weir_feed_probe(session, rate);
  return status;
}

weir_status weir_probe_start(weir_session *session) {
  const size_t ranks = (size_t)session->options.world_size;
  weir_budget_start(&session->budget, weir_now_s());
  uint32_t *ports = calloc(ranks, sizeof *ports);
  if (ports == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to probe %zu ranks", ranks);
  echoes(session);
  uint32_t mine = serve(session);
  weir_status status = weir_session_gather(session, &mine, sizeof mine, ports);
  const uint32_t port = ports[session->next];
  double rate = 0;
  if (status == WEIR_OK && session->iperf != NULL && port != 0 && port <= UINT16_MAX)
    rate = measure(session, port, START_TEST);
  free(ports);
  /* All ranks' tests ran at the same time and on fresh connections, which only makes them read low. */
  return status == WEIR_OK ? measure_rate(session, rate, true) : status;
}

weir_status weir_probe_run(void *user) {
  weir_session *session = user;
  if (session->options.world_size == 1 || session->options.virtual_network != NULL ||
      !session->options.active_probes)
    return WEIR_OK;
  weir_snapshot now;
  const double begin_s = weir_now_s();
  weir_echo_idle(&session->echo, false);
  weir_feed_collect(session);
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  if (now.suspect || now.latency_age_s > OLD_S || now.latency_s < CHEAP_S) echoes(session);
  const weir_status status =
      measure_rate(
      session, 0, now.suspect || session->rate_unsure || now.bandwidth_age_s > OLD_S);
  weir_echo_idle(&session->echo, true);
  session->probe_s += weir_now_s() - begin_s;
  return status;
}
