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
#define SHORT_TEST_S 0.1
/* Bursts: what the link carries in this time at the last known rate, within these bounds. */
#define BURST_S 0.03
#define BURST_LEAST ((size_t)128 << 10)
#define BURST_MOST ((size_t)8 << 20)
/* Probes may take this share of what the link could have carried since the start. */
#define BUDGET 0.01

static void echoes(weir_session *session, int count) {
  weir_transport *transport = session->transport;
  if (transport->ops->echo == NULL) return;
  const double timeout_s = fmin(ECHO_TIMEOUT_S, session->options.timeout_s / 8);
  for (int i = 0; i < count; i++) {
    double rtt_s = 0;
    /* One that got lost says nothing; a peer that is gone shows in the next exchange. */
    if (transport->ops->echo(transport, session->next, timeout_s, &rtt_s) == WEIR_OK)
      weir_feed_echo(session, rtt_s);
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
  session->probe_bytes += (double)bytes;
  if (address == NULL || weir_iperf_measure(session->iperf, address, (int)port, bytes, timeout_s,
                                            &bandwidth) != WEIR_OK)
    return false;
  weir_feed_probe(session, bandwidth);
  return bandwidth > 0 && (double)bytes / bandwidth < SHORT_TEST_S;
}

weir_status weir_probe_start(weir_session *session) {
  const size_t ranks = (size_t)session->options.world_size;
  session->probing_since_s = weir_now_s();
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

/* Bytes this rank would send: what its own estimate and the budget say; 0 for no burst. */
static uint64_t burst_wish(const weir_session *session) {
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  double bytes = fmin(fmax(now.bandwidth * BURST_S, (double)BURST_LEAST), (double)BURST_MOST);
  if (!isfinite(bytes)) return 0;
  if (now.bandwidth > 0) {
    const double elapsed_s = weir_now_s() - session->probing_since_s;
    if (session->probe_bytes + bytes > BUDGET * now.bandwidth * elapsed_s) return 0;
  }
  return (uint64_t)bytes;
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

/* One message to the next rank while one comes from the previous; its arrival is a flow sample of
 * the transport like any other. */
static weir_status burst(weir_session *session, size_t bytes) {
  static const char name[] = "weir probe";
  weir_status status = make_room(session, bytes);
  if (status != WEIR_OK) return status;
  const weir_tag tag = {weir_hash(WEIR_HASH_INIT, name, sizeof name), session->bursts++, 0, 0};
  const weir_send send = {session->next, session->burst, bytes, 0};
  weir_recv receive = {session->previous, session->burst + session->burst_capacity, bytes, 0, 0};
  session->probe_bytes += (double)bytes;
  return session->transport->ops->transfer(session->transport, &tag, &send, 1, &receive, 1,
                                           weir_now_s() + session->options.timeout_s);
}

weir_status weir_probe_run(void *user) {
  weir_session *session = user;
  const size_t ranks = (size_t)session->options.world_size;
  if (ranks == 1 || session->options.virtual_network != NULL || !session->options.active_probes)
    return WEIR_OK;
  echoes(session, PROBE_ECHOES);
  const uint64_t mine = burst_wish(session);
  uint64_t *wishes = calloc(ranks, sizeof *wishes);
  if (wishes == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to probe %zu ranks", ranks);
  weir_status status = weir_session_gather(session, &mine, sizeof mine, wishes);
  uint64_t bytes = mine;
  for (size_t r = 0; r < ranks && status == WEIR_OK; r++)
    if (wishes[r] < bytes) bytes = wishes[r];
  free(wishes);
  if (status != WEIR_OK || bytes < BURST_LEAST) return status;
  return burst(session, (size_t)bytes);
}
