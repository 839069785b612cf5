/* What the monitor is fed from: arrivals of messages, TCP_INFO, exchange times, echoes, interface
 * counters; or, under a virtual network, the true values with noise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transports/flow.h"
#include "session/state.h"

/* TCP_INFO needs bursts much longer than its 4 ms ticks: look every few exchanges. */
#define TCP_EVERY 4
#define CROSS_EVERY 16
/* Link bytes per payload byte: headers (1514/1448), and acknowledgements of as much received. */
#define OWN_SHARE (WEIR_TCP_OVERHEAD + 66.0 / 2896.0)
/* Below this share of our own traffic, other traffic cannot be told from retransmissions. */
#define CROSS_FLOOR 0.05
#define VIRTUAL_NOISE 0.02

double weir_feed_now(const weir_session *session) {
  return session->options.virtual_network != NULL ? session->feed.virtual_s : weir_now_s();
}

/* The monitor refuses absurd samples; such a sample is dropped, which is all that is wanted. */
static void feed(weir_session *session, weir_sample sample) {
  sample.time_s = weir_feed_now(session);
  (void)weir_netmon_feed(session->feed.monitor, &sample);
}

void weir_feed_echo(weir_session *session, double rtt_s, uint64_t loaded) {
  feed(session, (weir_sample){.kind = WEIR_SAMPLE_ECHO, .value = rtt_s, .bytes = (double)loaded});
}

void weir_feed_idle(weir_session *session, double rtt_s) {
  feed(session, (weir_sample){.kind = WEIR_SAMPLE_IDLE, .value = rtt_s});
}

void weir_feed_probe(weir_session *session, double bytes_s, double error) {
  feed(session, (weir_sample){.kind = WEIR_SAMPLE_PROBE, .value = bytes_s, .doubt = error});
}

void weir_feed_train(weir_session *session, double bytes, double seconds) {
  feed(session, (weir_sample){.kind = WEIR_SAMPLE_TRAIN, .value = seconds, .bytes = bytes});
}

/* No answer comes at once: where a virtual link has no latency an echo takes a microsecond, as
 * within a machine, for the monitor takes 0 for no measurement. */
static const double least_rtt_s = 1e-6;

static void feed_virtual(weir_session *session) {
  weir_feed *state = &session->feed;
  double alpha = 0, bandwidth = 0;
  session->options.virtual_network(session->options.virtual_user, state->step, &alpha, &bandwidth);
  const double a = 1 + VIRTUAL_NOISE * fmin(fmax(weir_rng_normal(&state->noise), -3), 3);
  const double b = 1 + VIRTUAL_NOISE * fmin(fmax(weir_rng_normal(&state->noise), -3), 3);
  weir_feed_echo(session, fmax(2 * alpha, least_rtt_s) * a, false);
  weir_feed_probe(session, bandwidth * b, 0);
}

/* Shorter ones may have waited for this rank, and then come at once. */
static const double alone_least_s = 0.008;

/* Bytes/s of the fastest of several messages; 0: all are too short to tell. */
static double fastest_alone(const weir_flow_sample *flow, size_t count) {
  double most = 0;
  for (size_t i = 0; i < count; i++) {
    const double seconds = flow[i].last_s - flow[i].first_s;
    if (seconds >= alone_least_s) most = fmax(most, (double)flow[i].bytes / seconds);
  }
  return most;
}

static void feed_together(weir_session *session, const weir_flow_sample *flow, size_t count) {
  if (count == 0) return;
  const weir_flow_sample all = weir_flow_together(flow, count);
  if (all.bytes > 0)
    feed(session, (weir_sample){.kind = WEIR_SAMPLE_MESSAGE,
                                .value = all.last_s - all.first_s,
                                .bytes = (double)all.bytes});
  feed(session, (weir_sample){.kind = count > 1 ? WEIR_SAMPLE_SHARED : WEIR_SAMPLE_FLOW,
                              .value = all.last_s - all.half_s,
                              .bytes = (double)all.late_bytes,
                              .doubt = (double)all.doubt,
                              .alone = count > 1 ? fastest_alone(flow, count) : 0});
}

/* Those of one exchange together. */
static void feed_flows(weir_session *session) {
  const weir_transport *transport = session->transport;
  enum { KEPT = sizeof transport->flow / sizeof transport->flow[0] };
  weir_flow_sample together[KEPT];
  size_t count = 0;
  uint32_t fresh = transport->flows - session->feed.flows;
  if (fresh > KEPT) fresh = KEPT;
  for (uint32_t i = transport->flows - fresh; i != transport->flows; i++) {
    const weir_flow_sample *flow = &transport->flow[i % KEPT];
    if (flow->place == 0) {
      feed_together(session, together, count);
      count = 0;
    }
    if (weir_comm_crosses(session->comm, flow->peer)) together[count++] = *flow;
  }
  feed_together(session, together, count);
  session->feed.flows = transport->flows;
}

void weir_feed_skip_flows(weir_session *session) {
  session->feed.flows = session->transport->flows;
}

static void feed_tcp(weir_session *session) {
  weir_transport *transport = session->transport;
  if (transport->ops->descriptor == NULL) return;
  for (int peer = 0; peer < transport->size; peer++) {
    const bool other = peer != transport->rank && weir_comm_crosses(session->comm, peer);
    const int descriptor = other ? transport->ops->descriptor(transport, peer) : -1;
    if (descriptor < 0) continue;
    weir_sample flow = {0}, rtt = {0}, loss = {0};
    bool fresh = false;
    if (weir_tcp_info_read(&session->feed.readers[peer], descriptor, &flow, &fresh, &rtt, &loss) !=
        WEIR_OK)
      continue;
    if (loss.bytes > 0) feed(session, loss);
    if (fresh) feed(session, flow);
    feed(session, rtt);
  }
}

/* The helper program is missing, or has failed: said once, as nothing is asked of it any more. */
static void do_without(weir_session *session, const char *what) {
  (void)fprintf(stderr, "weir: rank %d: %s; %s\n", session->options.rank, weir_last_error(), what);
  session->feed.interface_name[0] = 0;
}

static void feed_cross(weir_session *session) {
  weir_feed *state = &session->feed;
  uint64_t sent = 0;
  if (state->interface_name[0] == 0) return;
  const weir_status status = weir_link_bytes(session->helper, state->interface_name, &sent);
  if (status != WEIR_OK) {
    if (status != WEIR_E_TIMEOUT) do_without(session, "cross traffic is no longer seen");
    return;
  }
  const double now = weir_now_s();
  if (state->link_time_s > 0 && sent >= state->link_bytes) {
    const double own = OWN_SHARE * (double)(session->transport->bytes_sent - state->own_bytes);
    const double other = (double)(sent - state->link_bytes) - own;
    feed(session, (weir_sample){.kind = WEIR_SAMPLE_CROSS,
                                .value = now - state->link_time_s,
                                .bytes = other > CROSS_FLOOR * own ? other : 0});
  }
  state->link_bytes = sent;
  state->own_bytes = session->transport->bytes_sent;
  state->link_time_s = now;
}

void weir_feed_collect(weir_session *session) {
  if (session->options.virtual_network != NULL) {
    feed_virtual(session);
    return;
  }
  weir_echo_sample found[WEIR_ECHO_KEPT];
  const int echoes = weir_echo_take(&session->echo, found);
  for (int i = 0; i < echoes; i++) {
    session->budget.spent += found[i].sent;
    if (found[i].arrived > 0)
      weir_feed_train(session, found[i].arrived, found[i].seconds);
    else if (found[i].sent == 0)
      weir_feed_echo(session, found[i].seconds, found[i].loaded);
  }
  feed_flows(session);
  if (session->feed.exchanges % TCP_EVERY == 0) feed_tcp(session);
  if (session->feed.exchanges % CROSS_EVERY == 0) feed_cross(session);
}

void weir_feed_exchange(weir_session *session, const weir_header *headers, int ranks,
                        const weir_step_record *record) {
  weir_feed *state = &session->feed;
  const weir_step_info *info = &record->info;
  if (session->options.virtual_network != NULL) {
    state->virtual_s += info->compute_s + info->compress_s + info->comm_s + info->overhead_s;
    bool lost = false;
    for (int r = 0; r < ranks; r++) lost = lost || (headers[r].flags & WEIR_HEADER_NONFINITE);
    state->step = info->step + (info->trial || lost ? 0 : 1);
  } else if (ranks > 1 && state->exchanges > 0 && !state->told_at_start) {
    /* Ranks come to an exchange at different times, and who comes late finds all there and is
     * through at once: no single rank's time is the network's.  What one exchange saves the next
     * one pays, so the mean over ranks and two exchanges is steady, and goes with the mean of their
     * terms, which need not be alike.  Headers tell the times of the exchange before. */
    double mean = 0;
    for (int r = 0; r < ranks; r++) mean += headers[r].comm_s / ranks;
    const weir_cost_terms *terms = &state->terms, *before = &state->terms_before;
    if (state->comm_s > 0)
      feed(session, (weir_sample){.kind = WEIR_SAMPLE_COLLECTIVE,
                                  .value = (mean + state->comm_s) / 2,
                                  .bytes = (terms->byte_terms + before->byte_terms) / 2,
                                  .alpha_terms = (terms->alpha_terms + before->alpha_terms) / 2});
    state->comm_s = mean;
  }
  state->terms_before = state->terms;
  state->terms = record->terms;
  state->exchanges++;
}

/* Starts the helper program, where this rank has an address. */
static void find_interface(weir_session *session) {
  weir_transport *transport = session->transport;
  const char *address =
      transport->ops->address != NULL ? transport->ops->address(transport, transport->rank) : NULL;
  char *name = session->feed.interface_name;
  name[0] = 0;
  if (address == NULL || session->options.world_size == 1) return;
  if (session->helper_missing) return;
  if (session->helper == NULL && weir_helper_start(&session->helper) != WEIR_OK) {
    session->helper_missing = true;
    do_without(session, "the network is measured by messages alone, without iperf3 and netlink");
    return;
  }
  /* On loopback all ranks' traffic is mixed: none of it can be told from ours. */
  if (weir_link_of_address(session->helper, address, name) != WEIR_OK || strcmp(name, "lo") == 0)
    name[0] = 0;
}

weir_status weir_feed_open(weir_session *session) {
  weir_feed *state = &session->feed;
  const bool virtual_network = session->options.virtual_network != NULL;
  /* Virtual bandwidth is the link's own: no packet headers. */
  const weir_netmon_config config = {.wire_overhead = 1};
  weir_status status = weir_netmon_create(&state->monitor, virtual_network ? &config : NULL);
  if (status != WEIR_OK) return status;
  state->readers = calloc((size_t)session->options.world_size, sizeof *state->readers);
  if (state->readers == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for TCP readers");
  state->noise = weir_rng_of(session->options.seed * 1000003 + (uint64_t)session->options.rank);
  if (!virtual_network) find_interface(session);
  return WEIR_OK;
}

void weir_feed_close(weir_session *session) {
  free(session->feed.readers);
  weir_netmon_free(session->feed.monitor);
}
