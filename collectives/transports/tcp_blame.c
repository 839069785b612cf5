/* Over TCP: which rank is to blame for a failure.  The rank that finds out first tells all others,
 * so that a chain of ranks that wait for one another names the one at its end and not a neighbour.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/tcp.h"

#define ASK_ALL_S 0.6    /* three questions to everybody */
#define ABORT_WAIT_S 0.1 /* for the abort that says why a connection closed, or nobody waits */
#define CLOSED_RTT_MAX_S 0.4

static void decide(tcp *self, weir_status reason, int culprit) {
  self->ended = (weir_end){reason, culprit, self->base.rank};
  self->ended_ns = tcp_wall_ns();
  tcp_send_abort(self, reason, culprit);
}

weir_status tcp_blame_abort(tcp *self, const weir_end *end) {
  self->ended = *end;
  return weir_end_fail(end, self->base.rank);
}

weir_status tcp_blame_frame(tcp *self, int peer, weir_status status) {
  decide(self, status, peer);
  return status;
}

static void await_abort(tcp *self, double seconds) {
  struct pollfd wake = {.fd = self->wake, .events = POLLIN};
  (void)tcp_poll_until(&wake, 1, weir_now_s() + seconds);
}

static weir_waiter waiter_of(const void *group, int rank) {
  const tcp_reply *reply = group;
  return (weir_waiter){reply[rank].alive, reply[rank].waiting_on};
}

weir_status tcp_blame_silence(tcp *self, int peer, uint64_t step) {
  weir_end end;
  int culprit = peer;
  bool answers = false;
  tcp_reply *reply = calloc((size_t)self->base.size, sizeof *reply);
  if (reply) {
    tcp_ask_all(self, reply, weir_now_s() + ASK_ALL_S);
    culprit = weir_end_of_chain(reply, waiter_of, self->base.size, self->base.rank, peer);
    for (int r = 0; reply[culprit].alive && r < self->base.size; r++)
      if (r != self->base.rank && !reply[r].alive) culprit = r;
    answers = reply[culprit].alive;
    free(reply);
  }
  /* A rank that has just given up waits for nobody, and its verdict is on the way. */
  if (answers) await_abort(self, ABORT_WAIT_S);
  if (tcp_abort_seen(self, &end)) return tcp_blame_abort(self, &end);
  decide(self, WEIR_E_TIMEOUT, culprit);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not answer in time (step %llu%s)", culprit,
                   (unsigned long long)step, answers ? "; its process is there" : "");
}

static double round_trip(const tcp_peer *p) {
  struct tcp_info info;
  socklen_t length = sizeof info;
  memset(&info, 0, sizeof info);
  if (getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0.0;
  return 1e-6 * info.tcpi_rtt;
}

weir_status tcp_blame_closed(tcp *self, int peer, uint64_t step, int error) {
  weir_end end;
  double rtt = round_trip(&self->peer[peer]);
  if (rtt > CLOSED_RTT_MAX_S / 2.0) rtt = CLOSED_RTT_MAX_S / 2.0;
  await_abort(self, ABORT_WAIT_S + 2.0 * rtt);
  if (tcp_abort_seen(self, &end)) return tcp_blame_abort(self, &end);
  decide(self, WEIR_E_PEER, peer);
  const char *why = error == 0       ? "it closed the connection"
                    : error == EBADF ? "it is not connected" /* since the group has met */
                                     : strerror(error);
  return weir_fail(WEIR_E_PEER, "rank %d is gone: %s (step %llu)", peer, why,
                   (unsigned long long)step);
}

/* --- for who waits elsewhere ------------------------------------------------------------------ */

static void watch_wait_for(weir_transport *t, int peer) {
  atomic_store_explicit(&((tcp *)t)->waiting_on, peer, memory_order_relaxed);
}

static weir_status watch_look(weir_transport *t) {
  weir_end end;
  return tcp_abort_seen((tcp *)t, &end) ? tcp_blame_abort((tcp *)t, &end) : WEIR_OK;
}

static bool watch_ended(const weir_transport *t) {
  return ((const tcp *)t)->ended.reason != WEIR_OK;
}

static bool watch_left(weir_transport *t, int peer) {
  struct pollfd look = {.fd = ((tcp *)t)->peer[peer].fd, .events = POLLRDHUP};
  return look.fd >= 0 && poll(&look, 1, 0) == 1 &&
         (look.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

static weir_status watch_blame(weir_transport *t, int peer, weir_status reason, uint64_t step) {
  return reason == WEIR_E_TIMEOUT ? tcp_blame_silence((tcp *)t, peer, step)
                                  : tcp_blame_closed((tcp *)t, peer, step, 0);
}

const weir_watch_ops tcp_watch_ops = {.wait_for = watch_wait_for,
                                      .look = watch_look,
                                      .ended = watch_ended,
                                      .left = watch_left,
                                      .blame = watch_blame};
