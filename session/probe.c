/* Active probes, all ranks at the same time, each towards its ring neighbour: every link carries
 * one probe out and one in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session/state.h"

#define START_ECHOES 5
#define PROBE_ECHOES 3
#define ECHO_TIMEOUT_S 1.0
/* iperf3 at start: a first short test, a longer one where the first was over at once. */
#define SHORT_TEST ((size_t)1 << 20)
#define LONG_TEST ((size_t)4 << 20)
#define SHORT_TEST_S 0.01
/* A burst is a train of messages, each of which is measured: the first may ride on what a token
 * bucket saved up, some may meet a full window, so the second best tells the rate. */
#define MESSAGES 5
#define MESSAGE_S 0.006 /* what a message should take, within these bounds */
#define MESSAGE_LEAST ((size_t)20 << 10)
#define MESSAGE_MOST ((size_t)1 << 20)
/* Where the rate turns out to be much higher than was known, again with longer messages. */
#define ROUNDS 3
#define TOO_SHORT 0.5

static void echoes(weir_session *session, int count) {
  weir_transport *transport = session->transport;
  if (transport->ops->echo == NULL) return;
  const double timeout_s = fmin(ECHO_TIMEOUT_S, session->options.timeout_s / 8);
  for (int i = 0; i < count; i++) {
    double rtt_s = 0;
    /* One that got lost says nothing; a peer that is gone shows in the next exchange. */
    if (transport->ops->echo(transport, session->next, timeout_s, &rtt_s) == WEIR_OK)
      weir_feed_echo(session, rtt_s, false);
    else
      return;
  }
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

/* True when the test took so little time that a longer one tells more. */
static bool measure(weir_session *session, uint32_t port, size_t bytes) {
  weir_transport *transport = session->transport;
  const char *address = transport->ops->address(transport, session->next);
  const double timeout_s = fmin(5, session->options.timeout_s / 3);
  double bandwidth = 0;
  session->budget.spent += (double)bytes;
  if (address == NULL || weir_iperf_measure(session->iperf, address, (int)port, bytes, timeout_s,
                                            &bandwidth) != WEIR_OK)
    return false;
  weir_feed_probe(session, bandwidth);
  return bandwidth > 0 && (double)bytes / bandwidth < SHORT_TEST_S;
}

weir_status weir_probe_start(weir_session *session) {
  const size_t ranks = (size_t)session->options.world_size;
  weir_budget_start(&session->budget, weir_now_s());
  uint32_t *ports = calloc(ranks, sizeof *ports);
  if (ports == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to probe %zu ranks", ranks);
  echoes(session, START_ECHOES);
  uint32_t mine = serve(session);
  weir_status status = weir_session_gather(session, &mine, sizeof mine, ports);
  if (status == WEIR_OK && session->iperf != NULL && ports[session->next] != 0 &&
      ports[session->next] <= UINT16_MAX && measure(session, ports[session->next], SHORT_TEST))
    (void)measure(session, ports[session->next], LONG_TEST);
  /* Nobody starts a step while another rank still measures. */
  if (status == WEIR_OK) status = weir_session_gather(session, &mine, sizeof mine, ports);
  free(ports);
  return status;
}

/* --- bursts --------------------------------------------------------------------------------- */

static double message_bytes(double rate) {
  return fmin(fmax(rate * MESSAGE_S, (double)MESSAGE_LEAST), (double)MESSAGE_MOST);
}

static double known_rate(const weir_session *session) {
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  return now.bandwidth;
}

bool weir_probe_affordable(const weir_session *session) {
  return weir_budget_left(&session->budget) >= MESSAGES * message_bytes(known_rate(session));
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

/* Second best rate of the newest arrivals, which are hereby taken; the best of fewer than three, 0
 * of none. */
static double take_rate(weir_session *session) {
  const weir_transport *transport = session->transport;
  const uint32_t kept = sizeof transport->flow / sizeof transport->flow[0];
  double best = 0, second = 0;
  int flows = 0;
  for (; session->feed.flows != transport->flows; session->feed.flows++) {
    const weir_flow_sample *flow = &transport->flow[session->feed.flows % kept];
    const double seconds = flow->last_s - flow->first_s;
    if (!(seconds > 0)) continue;
    const double rate = (double)flow->bytes / seconds;
    second = fmax(second, fmin(best, rate));
    best = fmax(best, rate);
    flows++;
  }
  return flows < 3 ? best : second;
}

/* Messages to the next rank while as many come from the previous; tells the rate at which they came. */
static weir_status burst(weir_session *session, size_t bytes, double *rate) {
  static const char name[] = "weir probe";
  weir_send send[MESSAGES];
  weir_recv receive[MESSAGES];
  weir_status status = make_room(session, bytes);
  if (status != WEIR_OK) return status;
  const weir_tag tag = {weir_hash(WEIR_HASH_INIT, name, sizeof name), session->bursts++, 0, 0};
  for (uint32_t m = 0; m < MESSAGES; m++) {
    send[m] = (weir_send){session->next, session->burst, bytes, m};
    receive[m] =
        (weir_recv){session->previous, session->burst + session->burst_capacity, bytes, m, 0};
  }
  session->budget.spent += (double)(MESSAGES * bytes);
  session->feed.flows = session->transport->flows;
  status = session->transport->ops->transfer(session->transport, &tag, send, MESSAGES, receive,
                                             MESSAGES, weir_now_s() + session->options.timeout_s);
  if (status == WEIR_OK) *rate = take_rate(session);
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
  const double most = fmin(fmin(longest, left / MESSAGES), (double)MESSAGE_MOST);
  if (most >= (double)MESSAGE_LEAST) *bytes = (size_t)most;
  return WEIR_OK;
}

static weir_status measure_rate(weir_session *session) {
  double wanted = message_bytes(known_rate(session)), rate = 0;
  weir_status status = WEIR_OK;
  for (int round = 0; round < ROUNDS; round++) {
    size_t bytes;
    status = agree(session, wanted, &bytes);
    if (status != WEIR_OK || bytes == 0) break;
    double measured = 0;
    status = burst(session, bytes, &measured);
    if (status != WEIR_OK) break;
    if (measured > 0) rate = measured;
    /* Nothing measured: all was there at once. */
    const double better = measured > 0 ? message_bytes(measured) : 8.0 * (double)bytes;
    wanted = (double)bytes < TOO_SHORT * better ? better : 0;
  }
  if (rate > 0) weir_feed_probe(session, rate);
  return status;
}

weir_status weir_probe_run(void *user) {
  weir_session *session = user;
  if (session->options.world_size == 1 || session->options.virtual_network != NULL ||
      !session->options.active_probes)
    return WEIR_OK;
  weir_echo_idle(&session->echo, false);
  weir_feed_collect(session);
  echoes(session, PROBE_ECHOES);
  const weir_status status = measure_rate(session);
  weir_echo_idle(&session->echo, true);
  return status;
}
