/* Waiting until messages can move on.
 *
 * What is due from ranks of the same machine is waited for awake for a moment, since it may come
 * before a processor could go to sleep and wake up. */
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "base/base.h"
#include "collectives/transports/tcp_call.h"

#define POLL_SLICE_MS 50 /* bounds how far a deadline is overrun between two clock readings */
#define POLLS_A_CLOCK 8
/* Bytes of a message that are waited for at once: what is shorter than the first is not worth a
 * system call; the second is half of Linux's usual receive buffer, so that asking changes no
 * window. */
#define LUMP_MIN 8192
#define LUMP_MOST 65536
/* To sleep and be woken takes some 35 us on a virtual machine, where a processor without work is
 * given away; a rank that is awake needs 10. */
#define AWAKE_S 2e-4 /* what is due is waited for at most so long */
#define ABSTAIN 4    /* waits after one in vain; after each of more in succession twice as many */
#define ABSTAIN_LOG_MOST 8
#define REGAIN 32 /* times that it came in time until what was in vain is forgotten */

/* Have poll tell of a long message only once much of it has come: to be woken for every packet
 * costs the processor more than the packet does. */
static void ask_for(const tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  size_t rest =
      p->headed && !p->memory ? tcp_call_part(x, way).bytes - p->received + TCP_TRAILER : 1;
  /* Part of a record may have been read already. */
  if (p->tls != NULL) rest = rest > TCP_STAGE + LUMP_MIN ? rest - TCP_STAGE - LUMP_MIN : 1;
  const int wanted = rest < LUMP_MIN ? 1 : rest < LUMP_MOST ? (int)rest : LUMP_MOST;
  if (wanted == (p->lump > 0 ? p->lump : 1)) return;
  if (setsockopt(p->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0) p->lump = wanted;
}

/* Is everything that is due short, or in memory, and from this machine? */
static bool due_soon(tcp_call *x) {
  for (int i = 0; i < x->ways; i++) {
    const int way = x->self->active[i];
    const tcp_peer *p = &x->self->peer[way];
    if (p->memory) continue;
    if (!p->near || p->send_at < x->sends) return false;
    if (!tcp_call_due(x, way)) continue;
    const size_t rest =
        p->headed ? tcp_call_part(x, way).bytes - p->received : x->recv[p->recv_at].capacity;
    if (rest > LUMP_MOST) return false;
  }
  return true;
}

/* Take what has come on a way; true: messages can move on. */
static weir_status look(tcp_call *x, int way, bool *moves) {
  tcp_peer *p = &x->self->peer[way];
  const size_t open = x->open;
  if (p->memory) {
    if (!weir_memory_ready(p->memory, tcp_call_due(x, way), p->send_at < x->sends)) return WEIR_OK;
    p->send_blocked = p->recv_blocked = false;
    *moves = true;
    return WEIR_OK;
  }
  p->recv_blocked = false;
  const weir_status status = tcp_call_pull(x, way);
  *moves = *moves || x->open != open;
  return status;
}

/* Look for what is due again and again, until messages can move on (*moves): one is complete, or
 * there is something in memory; with more ranks than processors yielding to those that have
 * something to do. Where processors have other work it does not come in time, or this rank gets its
 * processor back late, by some milliseconds: then it abstains for longer and longer. */
static weir_status stay_awake(tcp_call *x, bool *moves) {
  tcp *self = x->self;
  if (self->abstain > 0) {
    self->abstain--;
    return WEIR_OK;
  }
  if (!due_soon(x)) return WEIR_OK;
  const double begin_s = weir_now_s();
  double now_s;
  do {
    if (self->crowded) (void)sched_yield();
    for (int i = 0; i < x->ways; i++) {
      const weir_status status = look(x, self->active[i], moves);
      if (status != WEIR_OK) return status;
    }
    now_s = weir_now_s();
  } while (now_s < begin_s + AWAKE_S && !*moves);
  if (now_s < begin_s + AWAKE_S) {
    if (++self->in_time >= REGAIN) self->in_vain = 0;
    return WEIR_OK;
  }
  self->abstain = ABSTAIN << self->in_vain;
  if (self->in_vain < ABSTAIN_LOG_MOST) self->in_vain++;
  self->in_time = 0;
  return WEIR_OK;
}

static int waited_for(tcp_call *x) {
  int to = -1;
  for (int i = 0; i < x->ways; i++) {
    const int way = x->self->active[i];
    if (tcp_call_due(x, way)) return tcp_call_rank(x, way);
    if (to < 0 && x->self->peer[way].send_at < x->sends) to = tcp_call_rank(x, way);
  }
  return to;
}

/* Sleep until something can move.  WEIR_OK, or the end of the group. */
static weir_status sleep_until(tcp_call *x, int waiting_on) {
  tcp *self = x->self;
  size_t count = 0;
  bool ready_now = false;
  self->poll[count++] = (struct pollfd){.fd = self->wake, .events = POLLIN};
  for (int i = 0; i < x->ways; i++) {
    const int way = self->active[i];
    tcp_peer *p = &self->peer[way];
    const bool in = tcp_call_due(x, way), out = p->send_at < x->sends;
    if (in) ask_for(x, way);
    if (p->memory && weir_memory_doze(p->memory, in, out)) ready_now = true;
    const int events = p->memory ? POLLIN : (in ? POLLIN : 0) | (out ? POLLOUT : 0);
    self->poll[count++] = (struct pollfd){.fd = in || out ? p->fd : -1, .events = (short)events};
  }
  const int ready = poll(self->poll, (nfds_t)count, ready_now ? 0 : POLL_SLICE_MS);
  weir_end end;
  if (tcp_abort_seen(self, &end)) return tcp_blame_abort(self, &end);
  for (int i = 0; i < x->ways; i++) {
    const short events = ready > 0 ? self->poll[i + 1].revents : 0;
    tcp_peer *p = &self->peer[self->active[i]];
    if (p->memory) {
      weir_memory_wake(p->memory, events != 0);
      p->recv_blocked = p->send_blocked = false;
      continue;
    }
    if (events & (POLLIN | POLLHUP | POLLERR)) p->recv_blocked = false;
    if (events & (POLLOUT | POLLHUP | POLLERR)) p->send_blocked = false;
  }
  for (int i = 0; ready == 0 && !ready_now && i < x->ways; i++) {
    const weir_status status = tcp_call_stalled(x, self->active[i]);
    if (status != WEIR_OK) return status;
  }
  if ((ready <= 0 || ++x->waited % POLLS_A_CLOCK == 0) && weir_now_s() >= x->deadline_s)
    return tcp_blame_silence(self, waiting_on, x->tag->step);
  return WEIR_OK;
}

weir_status tcp_call_wait(tcp_call *x) {
  const int waiting_on = waited_for(x);
  bool moves = false;
  atomic_store_explicit(&x->self->waiting_on, waiting_on, memory_order_relaxed);
  const weir_status status = stay_awake(x, &moves);
  return status == WEIR_OK && !moves ? sleep_until(x, waiting_on) : status;
}
