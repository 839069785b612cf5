/* Moving messages.  Header and payload of several messages leave in one system call, and one call
 * takes what is there of a payload and whatever follows it; polls and clock readings happen only
 * where nothing else can be done, because a system call is dear on an emulated machine.
 *
 * What is due from ranks of the same machine is waited for awake for a moment, since it may come
 * before a processor could go to sleep and wake up. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"
#include "collectives/transports/tcp.h"

#define BATCH 32         /* messages in one sendmsg */
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

typedef struct transfer {
  tcp *self;
  const weir_tag *tag;
  const weir_send *send;
  size_t sends;
  weir_recv *recv;
  size_t recvs;
  double deadline_s;
  int peers;       /* in self->active */
  size_t open;     /* messages not complete */
  unsigned waited; /* polls so far */
} transfer;

static tcp_peer *enlist(transfer *x, int rank) {
  tcp_peer *p = &x->self->peer[rank];
  for (int i = 0; i < x->peers; i++)
    if (x->self->active[i] == rank) return p;
  x->self->active[x->peers++] = rank;
  p->send_at = x->sends;
  p->recv_at = x->recvs;
  p->sent = p->received = 0;
  p->headed = p->send_blocked = p->recv_blocked = false;
  p->first_s = 0.0;
  return p;
}

static void begin(transfer *x) {
  for (size_t i = x->sends; i-- > 0;) enlist(x, x->send[i].peer)->send_at = i;
  for (size_t i = x->recvs; i-- > 0;) enlist(x, x->recv[i].peer)->recv_at = i;
  x->open = x->sends + x->recvs;
}

static void add_piece(struct iovec *piece, size_t *pieces, size_t *total, const void *data,
                      size_t bytes, size_t *skip) {
  if (*skip >= bytes) {
    *skip -= bytes;
    return;
  }
  piece[*pieces].iov_base = (unsigned char *)(uintptr_t)data + *skip;
  piece[(*pieces)++].iov_len = bytes - *skip;
  *total += bytes - *skip;
  *skip = 0;
}

static void advance_sent(transfer *x, tcp_peer *p, size_t bytes) {
  p->sent += bytes;
  while (p->send_at < x->sends && p->sent >= sizeof(tcp_frame) + x->send[p->send_at].bytes) {
    p->sent -= sizeof(tcp_frame) + x->send[p->send_at].bytes;
    p->send_at = weir_send_after(x->send, x->sends, p->send_at);
    x->open--;
  }
}

static weir_status push(transfer *x, int rank) {
  tcp_peer *p = &x->self->peer[rank];
  while (p->send_at < x->sends && !p->send_blocked) {
    tcp_frame frame[BATCH];
    struct iovec piece[2 * BATCH];
    size_t pieces = 0, total = 0, skip = p->sent, i = p->send_at;
    for (int m = 0; m < BATCH && i < x->sends; m++, i = weir_send_after(x->send, x->sends, i)) {
      tcp_frame_write(&frame[m], x->self->base.rank, x->tag, x->send[i].hop, x->send[i].bytes);
      add_piece(piece, &pieces, &total, &frame[m], sizeof frame[m], &skip);
      add_piece(piece, &pieces, &total, x->send[i].data, x->send[i].bytes, &skip);
    }
    const struct msghdr message = {.msg_iov = piece, .msg_iovlen = pieces};
    const ssize_t sent = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return tcp_blame_closed(x->self, rank, x->tag->step, errno);
    if (sent > 0) advance_sent(x, p, (size_t)sent);
    p->send_blocked = sent < (ssize_t)total;
  }
  return WEIR_OK;
}

static void finish_recv(transfer *x, tcp_peer *p) {
  const weir_recv *r = &x->recv[p->recv_at];
  /* The read that brought the end may have brought the begin of the next message: packets come in
   * lumps, and a lump's time must not be counted without its bytes. */
  const size_t arrived = r->bytes + p->stage_end - p->stage_at;
  if (p->first_s > 0.0)
    weir_flow_record(
        &x->self->base,
        (weir_flow_sample){.peer = r->peer,
                           .bytes = arrived - p->first_bytes,
                           .first_s = p->first_s,
                           .last_s = arrived > p->first_bytes ? weir_now_s() : p->first_s});
  p->first_s = 0.0;
  p->headed = false;
  p->received = 0;
  p->recv_at = weir_recv_after(x->recv, x->recvs, p->recv_at);
  x->open--;
}

/* What was read ahead: the header of the next message, and what there is of its payload. */
static weir_status unstage(transfer *x, int rank) {
  tcp_peer *p = &x->self->peer[rank];
  weir_recv *r = &x->recv[p->recv_at];
  const weir_status status =
      tcp_frame_check(p->stage + p->stage_at, rank, x->tag, r->hop, r->capacity, &r->bytes);
  if (status != WEIR_OK) return tcp_blame_frame(x->self, rank, status);
  p->headed = true;
  p->stage_at += sizeof(tcp_frame);
  const size_t there = p->stage_end - p->stage_at;
  p->received = there < r->bytes ? there : r->bytes;
  if (p->received > 0) memcpy(r->data, p->stage + p->stage_at, p->received);
  p->stage_at += p->received;
  return WEIR_OK;
}

/* One read: the rest of the payload to its place, what follows it to the stage. */
static weir_status fill(transfer *x, int rank) {
  tcp_peer *p = &x->self->peer[rank];
  weir_recv *r = &x->recv[p->recv_at];
  const size_t kept = p->stage_end - p->stage_at;
  if (kept > 0) memmove(p->stage, p->stage + p->stage_at, kept);
  p->stage_at = 0;
  p->stage_end = kept;
  const size_t rest = p->headed ? r->bytes - p->received : 0;
  struct iovec piece[2];
  size_t pieces = 0;
  if (rest > 0) piece[pieces++] = (struct iovec){(unsigned char *)r->data + p->received, rest};
  piece[pieces++] = (struct iovec){p->stage + kept, TCP_STAGE - kept};
  struct msghdr message = {.msg_iov = piece, .msg_iovlen = pieces};
  const ssize_t got = recvmsg(p->fd, &message, MSG_DONTWAIT);
  if (got < 0 && errno == EINTR) return WEIR_OK;
  if (got == 0 || (got < 0 && errno != EAGAIN))
    return tcp_blame_closed(x->self, rank, x->tag->step, got == 0 ? 0 : errno);
  p->recv_blocked = got < (ssize_t)(rest + TCP_STAGE - kept);
  const size_t bytes = got < 0 ? 0 : (size_t)got;
  const size_t payload = bytes < rest ? bytes : rest;
  p->received += payload;
  p->stage_end += bytes - payload;
  /* The first chunk is all that had arrived when this rank looked. */
  if (payload < rest && r->bytes >= WEIR_FLOW_MIN && p->first_s == 0.0) {
    p->first_bytes = p->received;
    p->first_s = weir_now_s();
  }
  return WEIR_OK;
}

static weir_status pull(transfer *x, int rank) {
  tcp_peer *p = &x->self->peer[rank];
  while (p->recv_at < x->recvs) {
    weir_status status = WEIR_OK;
    if (!p->headed && p->stage_end - p->stage_at >= sizeof(tcp_frame))
      status = unstage(x, rank);
    else if (!p->recv_blocked)
      status = fill(x, rank);
    else
      return WEIR_OK;
    if (status != WEIR_OK) return status;
    if (p->headed && p->received == x->recv[p->recv_at].bytes) finish_recv(x, p);
  }
  return WEIR_OK;
}

/* Have poll tell of a long message only once much of it has come: to be woken for every packet
 * costs the processor more than the packet does. */
static void ask_for(tcp_peer *p, const weir_recv *r) {
  const size_t rest = p->headed ? r->bytes - p->received : 1;
  const int wanted = rest < LUMP_MIN ? 1 : rest < LUMP_MOST ? (int)rest : LUMP_MOST;
  if (wanted == (p->lump > 0 ? p->lump : 1)) return;
  if (setsockopt(p->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0) p->lump = wanted;
}

/* Is everything that is due short, and from this machine? */
static bool due_soon(const transfer *x) {
  for (int i = 0; i < x->peers; i++) {
    const tcp_peer *p = &x->self->peer[x->self->active[i]];
    if (!p->near || p->send_at < x->sends) return false;
    if (p->recv_at == x->recvs) continue;
    const weir_recv *r = &x->recv[p->recv_at];
    if ((p->headed ? r->bytes - p->received : r->capacity) > LUMP_MOST) return false;
  }
  return true;
}

/* Look for what is due again and again, until a message is complete; with more ranks than
 * processors yielding to those that have something to do.  Where processors have other work it does
 * not come in time, or this rank gets its processor back late, by some milliseconds: then it
 * abstains for longer and longer. */
static weir_status stay_awake(transfer *x) {
  tcp *self = x->self;
  if (self->abstain > 0) {
    self->abstain--;
    return WEIR_OK;
  }
  if (!due_soon(x)) return WEIR_OK;
  const size_t open = x->open;
  const double begin_s = weir_now_s();
  double now_s;
  do {
    if (self->crowded) (void)sched_yield();
    for (int i = 0; i < x->peers; i++) {
      self->peer[self->active[i]].recv_blocked = false;
      const weir_status status = pull(x, self->active[i]);
      if (status != WEIR_OK) return status;
    }
    now_s = weir_now_s();
  } while (now_s < begin_s + AWAKE_S && x->open == open);
  if (now_s < begin_s + AWAKE_S) {
    if (++self->in_time >= REGAIN) self->in_vain = 0;
    return WEIR_OK;
  }
  self->abstain = ABSTAIN << self->in_vain;
  if (self->in_vain < ABSTAIN_LOG_MOST) self->in_vain++;
  self->in_time = 0;
  return WEIR_OK;
}

static int waited_for(const transfer *x) {
  int to = -1;
  for (int i = 0; i < x->peers; i++) {
    const tcp_peer *p = &x->self->peer[x->self->active[i]];
    if (p->recv_at < x->recvs) return x->self->active[i];
    if (to < 0 && p->send_at < x->sends) to = x->self->active[i];
  }
  return to;
}

/* Sleep until something can move.  WEIR_OK, or the end of the group. */
static weir_status wait(transfer *x, int waiting_on) {
  tcp *self = x->self;
  size_t count = 0;
  self->poll[count++] = (struct pollfd){.fd = self->wake, .events = POLLIN};
  for (int i = 0; i < x->peers; i++) {
    const tcp_peer *p = &self->peer[self->active[i]];
    const bool in = p->recv_at < x->recvs, out = p->send_at < x->sends;
    if (in) ask_for(&self->peer[self->active[i]], &x->recv[p->recv_at]);
    self->poll[count++] = (struct pollfd){
        .fd = in || out ? p->fd : -1, .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
  }
  const int ready = poll(self->poll, (nfds_t)count, POLL_SLICE_MS);
  weir_end end;
  if (tcp_abort_seen(self, &end)) return tcp_blame_abort(self, &end);
  for (int i = 0; ready > 0 && i < x->peers; i++) {
    const short events = self->poll[i + 1].revents;
    tcp_peer *p = &self->peer[self->active[i]];
    if (events & (POLLIN | POLLHUP | POLLERR)) p->recv_blocked = false;
    if (events & (POLLOUT | POLLHUP | POLLERR)) p->send_blocked = false;
  }
  if ((ready <= 0 || ++x->waited % POLLS_A_CLOCK == 0) && weir_now_s() >= x->deadline_s)
    return tcp_blame_silence(self, waiting_on, x->tag->step);
  return WEIR_OK;
}

static weir_status complete(transfer *x) {
  for (;;) {
    for (int i = 0; i < x->peers; i++) {
      weir_status status = push(x, x->self->active[i]);
      if (status == WEIR_OK) status = pull(x, x->self->active[i]);
      if (status != WEIR_OK) return status;
    }
    if (x->open == 0) return WEIR_OK;
    const int waiting_on = waited_for(x);
    atomic_store_explicit(&x->self->waiting_on, waiting_on, memory_order_relaxed);
    const size_t open = x->open;
    weir_status status = stay_awake(x);
    if (status == WEIR_OK && x->open == open) status = wait(x, waiting_on);
    if (status != WEIR_OK) return status;
  }
}

weir_status tcp_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  tcp *self = (tcp *)t;
  weir_end end;
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status != WEIR_OK) return status;
  if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, t->rank);
  if (tcp_abort_seen(self, &end)) return tcp_blame_abort(self, &end);
  transfer x = {.self = self,
                .tag = tag,
                .send = send,
                .sends = sends,
                .recv = recv,
                .recvs = recvs,
                .deadline_s = deadline_s};
  begin(&x);
  status = complete(&x);
  atomic_store_explicit(&self->waiting_on, -1, memory_order_relaxed);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < sends; i++) t->bytes_sent += sizeof(tcp_frame) + send[i].bytes;
  return WEIR_OK;
}
