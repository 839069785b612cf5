/* Active probes towards the ring neighbour: each rank on its own, and all go on together. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "session/state.h"

#define ECHOES 5
/* Idle round trips that differ by less agree. */
#define AGREEMENT 1.05
#define ECHO_TIMEOUT_S 1.0
/* iperf3 at start sends so much. */
#define START_TEST ((size_t)512 << 10)
/* Trains: what one should take, within these bytes; so many of that length tell the rate, if two of
 * them are this near to each other. */
#define TRAIN_S 0.0028
#define TRAIN_LEAST 18e3
#define TRAIN_MOST 260e3
#define TRAINS 6
#define FULL_TRAINS 3
#define NEAR 0.2
/* Everybody waits for what got lost: the first for less long, and after two nothing is sent any
 * more.  Where a queue on the way has no room for a train its end gets lost every time. */
#define TRAIN_TIMEOUT_S 1.0
#define FIRST_TIMEOUT_S 0.25
#define LOST_MOST 2
/* One this much shorter than it should be is none of them. */
#define TOO_SHORT 0.5
/* One that arrives faster than this is sent no faster than the processor can, or a token bucket
 * lets it pass: all it tells is that it might have arrived within this time. */
#define EXACT_S 0.0008
/* Relative error of a test that a token bucket may have let pass. */
#define GUESS 0.5
/* What a probe may send. */
#define PROBE_MOST (TRAINS * TRAIN_MOST)
/* Ranks that share a machine would measure its processor, did they all send at the same time. */
#define TURN_S 0.01
#define TURNS 4
/* A train in the background: how long one takes, within these bytes; how often one is sent, with
 * regard to the link's bytes and to the processor, which feels every datagram. */
#define PACED_S 0.0045
#define PACED_LEAST 18e3
#define PACED_MOST 190e3
#define PACED_SPACING_S 0.3
#define PACED_SHARE 0.009
#define PACED_PACE 100e3
/* So many that are far too fast are followed by longer ones. */
#define CHASED 12
/* Values older than this are measured anew, not just looked at. */
#define OLD_S 3.5
/* Latencies below this are worth measuring every time. */
#define CHEAP_S 0.005

/* Two round trips that agree need no further witness. */
static void feed_round_trips(weir_session *session, double first_s, double second_s) {
  if (isfinite(second_s) && second_s <= AGREEMENT * first_s)
    weir_feed_idle(session, first_s);
  else if (isfinite(first_s))
    weir_feed_echo(session, first_s, false);
}

/* Where the transport has no echo, all ranks measure round trips together. */
static weir_status pings(weir_session *session) {
  double first = INFINITY, second = INFINITY;
  if (session->transport->ops->echo != NULL) return WEIR_OK;
  const weir_status status = weir_ping(session, &first, &second);
  if (status == WEIR_OK) feed_round_trips(session, first, second);
  return status;
}

/* Idle round trips until the two shortest agree. */
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
  feed_round_trips(session, first, second);
}

/* Port this rank's helper serves on; 0 when it serves nowhere. */
static uint32_t serve(weir_session *session) {
  weir_transport *transport = session->transport;
  if (session->helper == NULL || transport->ops->address == NULL) return 0;
  const char *address = transport->ops->address(transport, transport->rank);
  if (address == NULL) return 0;
  /* Ports below the range that the kernel hands out, apart for ranks that share an address. */
  const uint64_t job = session->options.job_id;
  const uint32_t base = 12000 + (uint32_t)(weir_hash(WEIR_HASH_INIT, &job, sizeof job) % 10000);
  for (uint32_t turn = 0; turn < 4; turn++) {
    const uint32_t port = base + (uint32_t)transport->rank + turn * 2000;
    if (port <= UINT16_MAX && weir_iperf_serve(session->helper, address, (int)port) == WEIR_OK)
      return port;
  }
  return 0;
}

/* Payload bytes/s by iperf3; 0 when it did not work out. */
static double measure(weir_session *session, uint32_t port, size_t bytes) {
  weir_transport *transport = session->transport;
  const char *address =
      transport->ops->address ? transport->ops->address(transport, session->next) : NULL;
  const double timeout_s = fmin(5, session->options.timeout_s / 3);
  double bandwidth = 0;
  session->budget.spent += (double)bytes;
  if (address == NULL) return 0;
  if (weir_iperf_measure(session->helper, address, (int)port, bytes, timeout_s, &bandwidth) ==
      WEIR_OK)
    return bandwidth;
  weir_log(WEIR_LOG_WARN, "iperf3 to %s failed: %s; bandwidth is measured without it", address,
           weir_last_error());
  return 0;
}

/* --- trains --------------------------------------------------------------------------------- */

static void take_turn(int rank) {
  const struct timespec turn = {0, (long)(rank % TURNS * TURN_S * 1e9)};
  (void)nanosleep(&turn, NULL);
}

typedef struct train_search {
  double wanted;       /* bytes of the next train; less than before only if that got lost */
  double rate[TRAINS]; /* of full trains: link rates, bytes/s */
  int full;
} train_search;

/* A rank that does not get to run makes a train read low, and now and then a token bucket that had
 * time to fill makes one read high: the highest two that agree count, the lower of them.  Should
 * one be higher still, more trains are asked first.  0: not settled yet. */
static double settled(const train_search *s, bool last) {
  double found = 0, most = 0;
  for (int i = 0; i < s->full; i++) {
    most = fmax(most, s->rate[i]);
    for (int j = 0; j < i; j++) {
      const double low = fmin(s->rate[i], s->rate[j]), high = fmax(s->rate[i], s->rate[j]);
      if (high - low <= NEAR * high) found = fmax(found, low);
    }
  }
  return last || (s->full >= FULL_TRAINS && most - found <= NEAR * most) ? found : 0;
}

static void count_train(train_search *s, double bytes, double seconds) {
  const double rate = bytes / fmax(seconds, 1e-6);
  const double due = fmin(fmax(rate * TRAIN_S, TRAIN_LEAST), TRAIN_MOST);
  if (s->wanted >= TOO_SHORT * due) s->rate[s->full++] = rate;
  s->wanted = fmax(s->wanted, due);
}

/* Link rate, 0 when trains do not agree or got lost.  The first is short: should the link have
 * become narrow, a long one would hold everybody up; and only that is looked for
 * unless thorough. */
static double measure_rate(weir_session *session, bool thorough, bool *exact) {
  weir_transport *transport = session->transport;
  const double timeout_s = fmin(TRAIN_TIMEOUT_S, session->options.timeout_s / 8);
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  const double first_s = fmin(timeout_s, FIRST_TIMEOUT_S + 4 * now.latency_s);
  train_search s = {.wanted = TRAIN_LEAST};
  double rate = 0; /* of the last train */
  int lost = 0;
  *exact = false;
  if (transport->ops->train == NULL) return 0;
  if (thorough) take_turn(session->options.rank);
  for (int i = 0; i < TRAINS && lost < LOST_MOST; i++) {
    size_t bytes = (size_t)s.wanted;
    double seconds = 0;
    const double left = weir_budget_left(&session->budget);
    if (left <= 0 || left < weir_budget_price(s.wanted, rate, now.bandwidth)) break;
    const double sent = s.wanted;
    session->budget.spent += sent;
    if (transport->ops->train(transport, session->next, &bytes, lost == 0 ? first_s : timeout_s,
                              &seconds) != WEIR_OK ||
        bytes == 0) {
      lost++;
      s.wanted = fmax(TRAIN_LEAST, s.wanted / 2);
      continue;
    }
    rate = (double)bytes / fmax(seconds, 1e-6);
    session->budget.spared += sent - weir_budget_price(sent, rate, now.bandwidth);
    if (!thorough && seconds < EXACT_S) return 0;
    count_train(&s, (double)bytes, seconds);
    const double found = settled(&s, i + 1 == TRAINS);
    *exact = found > 0 && (double)bytes / found >= EXACT_S;
    if (found > 0) return *exact ? found : fmin(found, (double)bytes / EXACT_S);
  }
  return 0;
}

/* Long enough to outlast what a token bucket gives away, at a share of the link's bytes that leaves
 * something for probes.  Where trains have become far faster, longer ones follow each other sooner:
 * they find the new rate without holding anybody up, if it is one. */
void weir_probe_pace(weir_session *session, const weir_snapshot *now) {
  if (!(now->bandwidth > 0)) return;
  const bool chase = now->fast_trains > 0 && now->fast_trains <= CHASED;
  const double share = PACED_SHARE * fmax(now->bandwidth, chase ? now->risen_to : 0);
  double bytes = fmin(fmax(now->bandwidth * PACED_S, PACED_LEAST), PACED_MOST);
  if (chase) bytes = fmin(ldexp(bytes, (int)now->fast_trains), TRAIN_MOST);
  weir_echo_pace(&session->echo, (size_t)bytes,
                 fmax(PACED_SPACING_S, bytes / (chase ? share : fmin(share, PACED_PACE))));
}

bool weir_probe_affordable(const weir_session *session) {
  return session->transport->ops->train != NULL &&
         weir_budget_left(&session->budget) >= 2 * PROBE_MOST;
}

/* least: what iperf3 told, 0 for nothing.  So short a test may have met a full token bucket, and a
 * kernel that sends 64 KiB at once: where trains tell the rate, they do.  A bound is no more than a
 * first guess, to which messages may object. */
static void measure_and_feed(weir_session *session, double least, bool thorough) {
  bool exact = false;
  const double found = measure_rate(session, thorough, &exact) / WEIR_TCP_OVERHEAD;
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  const double rate = exact ? found : fmax(least, found);
  if (rate > 0 && (exact || rate * WEIR_TCP_OVERHEAD > now.bandwidth))
    weir_feed_probe(session, rate, exact || now.bandwidth > 0 ? 0 : GUESS);
  session->rate_exact = exact;
  if (thorough || found > 0) session->rate_unsure = !(rate > 0);
}

/* iperf3 knows nothing of the job's secret: no port of it stays open once all have measured. */
static weir_status close_servers(weir_session *session, uint32_t *ports, bool serving) {
  const int ranks = session->options.world_size;
  bool anybody = false;
  for (int r = 0; r < ranks; r++) anybody = anybody || ports[r] != 0;
  if (!anybody) return WEIR_OK;
  uint32_t done = 1;
  const weir_status status = weir_session_gather(session, &done, sizeof done, ports);
  if (serving && weir_iperf_close(session->helper) != WEIR_OK)
    weir_log(WEIR_LOG_WARN, "iperf3's port stays open: %s", weir_last_error());
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
  if (status == WEIR_OK) status = pings(session);
  const uint32_t port = ports[session->next];
  double rate = 0;
  if (status == WEIR_OK && session->helper != NULL && port != 0 && port <= UINT16_MAX)
    rate = measure(session, port, START_TEST);
  if (status == WEIR_OK) status = close_servers(session, ports, mine != 0);
  free(ports);
  if (status == WEIR_OK) measure_and_feed(session, rate, true);
  return status;
}

static bool measures(const weir_session *session) {
  return session->options.world_size > 1 && session->options.virtual_network == NULL &&
         session->options.active_probes && !session->feed.told_at_start;
}

weir_status weir_probe_run(weir_session *session, bool thorough) {
  if (!measures(session)) return WEIR_OK;
  weir_snapshot now;
  const double begin_s = weir_now_s();
  weir_echo_idle(&session->echo, false);
  weir_feed_collect(session);
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  if (now.suspect || now.latency_age_s > OLD_S || now.latency_s < CHEAP_S) echoes(session);
  const weir_status status = pings(session);
  if (status != WEIR_OK) return status;
  measure_and_feed(session, 0, thorough || session->rate_unsure || now.bandwidth_age_s > OLD_S);
  weir_echo_idle(&session->echo, true);
  session->probe_s += weir_now_s() - begin_s;
  return WEIR_OK;
}

/* The answers to a rank's trains come over its neighbour's link.  Had the neighbour begun its
 * exchange meanwhile, they would wait behind all of its bytes, and everybody then for this rank: so
 * nobody goes on before all have measured. */
static weir_status meet(weir_session *session) {
  const unsigned char mine = 1;
  unsigned char *all = malloc((size_t)session->options.world_size);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to meet after a probe");
  const weir_status status = weir_session_gather(session, &mine, sizeof mine, all);
  free(all);
  return status;
}

weir_status weir_probe_together(void *user, bool thorough) {
  weir_session *session = user;
  if (!measures(session)) return WEIR_OK;
  weir_status status = weir_probe_run(session, thorough);
  const double begin_s = weir_now_s();
  if (status == WEIR_OK) status = meet(session);
  session->probe_s += weir_now_s() - begin_s;
  return status;
}
