/* Moving messages through the rings. */

#include "base/base.h"
#include "collectives/transports/shm.h"

#define SLICE_S 0.02 /* how long a rank sleeps before it looks whether a process has ended */
#define WAITS_A_CLOCK 8

typedef struct transfer {
  shm *self;
  const weir_tag *tag;
  const weir_send *send;
  size_t sends;
  weir_recv *recv;
  size_t recvs;
  double deadline_s;
  int peers;       /* in self->active */
  size_t open;     /* messages not complete */
  bool moved;      /* in this pass */
  unsigned waited; /* waits so far */
} transfer;

static shm_peer *enlist(transfer *x, int rank) {
  shm_peer *p = &x->self->peer[rank];
  for (int i = 0; i < x->peers; i++)
    if (x->self->active[i] == rank) return p;
  x->self->active[x->peers++] = rank;
  p->send_at = x->sends;
  p->recv_at = x->recvs;
  p->sent = p->received = 0;
  p->send_headed = p->recv_headed = false;
  return p;
}

static void begin(transfer *x) {
  for (size_t i = x->sends; i-- > 0;) enlist(x, x->send[i].peer)->send_at = i;
  for (size_t i = x->recvs; i-- > 0;) enlist(x, x->recv[i].peer)->recv_at = i;
  x->open = x->sends + x->recvs;
}

static weir_status corrupt(transfer *x, int rank) {
  shm_end(x->self, WEIR_E_PROTOCOL, rank);
  return weir_fail(WEIR_E_PROTOCOL, "rank %d has spoilt its ring (step %llu)", rank,
                   (unsigned long long)x->tag->step);
}

/* Room in the ring to a peer; at least `wanted`, or the peer is asked to ring when it has read. */
static weir_status room(transfer *x, int rank, size_t wanted, size_t *out) {
  shm_peer *p = &x->self->peer[rank];
  const size_t size = x->self->ring_bytes;
  for (int pass = 0; pass < 2; pass++) {
    const uint64_t used = p->head - atomic_load(&p->out->tail);
    if (used > size) return corrupt(x, rank);
    *out = size - (size_t)used;
    if (*out >= wanted) return WEIR_OK;
    /* The reader moves its tail before it looks at this. */
    if (pass == 0) atomic_store(&p->out->starved, 1);
  }
  *out = 0;
  return WEIR_OK;
}

static void publish_head(transfer *x, int rank) {
  shm_peer *p = &x->self->peer[rank];
  atomic_store_explicit(&p->out->head, p->head, memory_order_release);
  shm_ring_bell(x->self, rank);
  x->moved = true;
}

static void publish_tail(transfer *x, int rank) {
  shm_peer *p = &x->self->peer[rank];
  atomic_store(&p->in->tail, p->tail);
  if (atomic_load(&p->in->starved)) {
    atomic_store(&p->in->starved, 0);
    shm_ring_bell(x->self, rank);
  }
  x->moved = true;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static weir_status push(transfer *x, int rank) {
  shm *self = x->self;
  shm_peer *p = &self->peer[rank];
  while (p->send_at < x->sends) {
    const weir_send *s = &x->send[p->send_at];
    size_t space = 0;
    const weir_status status = room(x, rank, p->send_headed ? 1 : sizeof(weir_frame), &space);
    if (status != WEIR_OK || space == 0) return status;
    if (!p->send_headed) {
      const weir_frame frame = weir_frame_of(self->base.rank, x->tag, s->hop, s->bytes);
      weir_ring_write(p->out_bytes, self->ring_bytes, p->head, &frame, sizeof frame);
      p->head += sizeof frame;
      space -= sizeof frame;
      p->send_headed = true;
    }
    /* A quarter of the ring at once: the reader copies one piece while the next is written. */
    const size_t piece = least(least(space, s->bytes - p->sent), self->ring_bytes / 4);
    if (piece > 0)
      weir_ring_write(p->out_bytes, self->ring_bytes, p->head,
                      (const unsigned char *)s->data + p->sent, piece);
    p->head += piece;
    p->sent += piece;
    publish_head(x, rank);
    if (p->sent < s->bytes) continue;
    p->send_headed = false;
    p->sent = 0;
    p->send_at = weir_send_after(x->send, x->sends, p->send_at);
    x->open--;
  }
  return WEIR_OK;
}

static weir_status take_frame(transfer *x, int rank) {
  shm_peer *p = &x->self->peer[rank];
  weir_recv *r = &x->recv[p->recv_at];
  weir_frame frame;
  weir_ring_read(p->in_bytes, x->self->ring_bytes, p->tail, &frame, sizeof frame);
  p->tail += sizeof frame;
  const weir_status status = weir_frame_check(&frame, rank, x->tag, r->hop, r->capacity);
  if (status != WEIR_OK) {
    shm_end(x->self, status, rank);
    return status;
  }
  r->bytes = (size_t)frame.length;
  p->recv_headed = true;
  p->received = 0;
  return WEIR_OK;
}

static weir_status pull(transfer *x, int rank) {
  shm *self = x->self;
  shm_peer *p = &self->peer[rank];
  while (p->recv_at < x->recvs) {
    weir_recv *r = &x->recv[p->recv_at];
    uint64_t there = atomic_load_explicit(&p->in->head, memory_order_acquire) - p->tail;
    if (there > self->ring_bytes) return corrupt(x, rank);
    if (!p->recv_headed) {
      if (there < sizeof(weir_frame)) return WEIR_OK;
      const weir_status status = take_frame(x, rank);
      if (status != WEIR_OK) return status;
      there -= sizeof(weir_frame);
    } else if (there == 0) {
      return WEIR_OK;
    }
    const size_t piece = least(least((size_t)there, r->bytes - p->received), self->ring_bytes / 4);
    if (piece > 0)
      weir_ring_read(p->in_bytes, self->ring_bytes, p->tail, (unsigned char *)r->data + p->received,
                     piece);
    p->tail += piece;
    p->received += piece;
    publish_tail(x, rank);
    if (p->received < r->bytes) continue;
    p->recv_headed = false;
    p->recv_at = weir_recv_after(x->recv, x->recvs, p->recv_at);
    x->open--;
  }
  return WEIR_OK;
}

static weir_status pass_over(transfer *x) {
  x->moved = false;
  for (int i = 0; i < x->peers; i++) {
    weir_status status = push(x, x->self->active[i]);
    if (status == WEIR_OK) status = pull(x, x->self->active[i]);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

/* A peer that is gone may have left messages; if they are not enough, it is to blame. */
static weir_status check_gone(transfer *x, bool look) {
  for (int i = 0; i < x->peers; i++) {
    const int rank = x->self->active[i];
    const shm_peer *p = &x->self->peer[rank];
    if (p->send_at == x->sends && p->recv_at == x->recvs) continue;
    if (!shm_gone(x->self, rank, look)) continue;
    weir_status status = push(x, rank);
    if (status == WEIR_OK) status = pull(x, rank);
    if (status != WEIR_OK) return status;
    if (p->send_at < x->sends || p->recv_at < x->recvs)
      return shm_blame_gone(x->self, rank, x->tag->step);
  }
  return WEIR_OK;
}

static int due_from(const transfer *x) {
  int to = -1;
  for (int i = 0; i < x->peers; i++) {
    const shm_peer *p = &x->self->peer[x->self->active[i]];
    if (p->recv_at < x->recvs) return x->self->active[i];
    if (to < 0 && p->send_at < x->sends) to = x->self->active[i];
  }
  return to;
}

/* A peer that sums up where this rank is due to hear from it; what it sent before that counts. */
static weir_status check_ahead(transfer *x, int rank) {
  const shm_peer *p = &x->self->peer[rank];
  if (!shm_sum_ahead(x->self, rank)) return WEIR_OK;
  weir_status status = push(x, rank);
  if (status == WEIR_OK) status = pull(x, rank);
  if (status != WEIR_OK || (p->send_at == x->sends && p->recv_at == x->recvs)) return status;
  shm_end(x->self, WEIR_E_MISMATCH, rank);
  return weir_fail(WEIR_E_MISMATCH, "rank %d sums up where this rank sends messages (step %llu)",
                   rank, (unsigned long long)x->tag->step);
}

static weir_status wait(transfer *x, uint32_t seen) {
  shm *self = x->self;
  shm_member *own = &self->member[self->base.rank];
  weir_end end;
  const int waiting_on = due_from(x);
  atomic_store(&own->waiting_on, waiting_on);
  if (shm_ended(self, &end)) return weir_end_fail(&end, self->base.rank);
  weir_status status = check_gone(x, false);
  if (status != WEIR_OK || x->open == 0) return status;
  if (++x->waited % WAITS_A_CLOCK == 0 && weir_now_s() >= x->deadline_s)
    return shm_blame_silence(self, waiting_on, x->tag->step);
  if (shm_pause(self, seen, SLICE_S)) return WEIR_OK;
  status = check_ahead(x, waiting_on);
  if (status == WEIR_OK) status = check_gone(x, true);
  if (status != WEIR_OK || x->open == 0 || weir_now_s() < x->deadline_s) return status;
  return shm_blame_silence(self, waiting_on, x->tag->step);
}

static weir_status complete(transfer *x) {
  shm_member *own = &x->self->member[x->self->base.rank];
  for (;;) {
    const uint32_t seen = atomic_load(&own->bell);
    (void)atomic_fetch_add_explicit(&own->beat, 1, memory_order_relaxed);
    weir_status status = pass_over(x);
    if (status != WEIR_OK || x->open == 0) return status;
    if (x->moved) continue;
    status = wait(x, seen);
    if (status != WEIR_OK || x->open == 0) return status;
  }
}

weir_status shm_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  shm *self = (shm *)t;
  weir_end end;
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status != WEIR_OK) return status;
  if (shm_ended(self, &end)) return weir_end_fail(&end, t->rank);
  transfer x = {.self = self,
                .tag = tag,
                .send = send,
                .sends = sends,
                .recv = recv,
                .recvs = recvs,
                .deadline_s = deadline_s};
  begin(&x);
  status = complete(&x);
  atomic_store(&self->member[t->rank].waiting_on, -1);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < sends; i++) t->bytes_sent += sizeof(weir_frame) + send[i].bytes;
  return WEIR_OK;
}
