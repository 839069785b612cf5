/* Whole messages in the memory that ranks of a machine share: a frame and its payload, one behind
 * the other.  A message longer than its ring passes through it piece by piece, straight into its
 * place. */
#include <errno.h>

#include "base/base.h"
#include "collectives/transports/memory.h"

bool weir_memory_reaches(const weir_machine_memory *shared, int rank) {
  return shared->memory && shared->memory[rank].in;
}

/* --- which ------------------------------------------------------------------------------------ */

static void note(weir_memory_call *c, int peer) {
  const weir_memory_progress *p = &c->progress[peer];
  if (p->send_at == c->sends && p->recv_at == c->recvs) c->active[c->peers++] = peer;
  c->open++;
}

void weir_memory_begin(weir_memory_call *c) {
  const weir_memory_progress none = {.send_at = c->sends, .recv_at = c->recvs};
  c->peers = 0;
  c->open = 0;
  for (size_t i = 0; i < c->sends; i++) c->progress[c->send[i].peer] = none;
  for (size_t i = 0; i < c->recvs; i++) c->progress[c->recv[i].peer] = none;
  for (size_t i = 0; i < c->sends; i++) {
    weir_memory_progress *p = &c->progress[c->send[i].peer];
    if (!weir_memory_reaches(c->shared, c->send[i].peer)) continue;
    note(c, c->send[i].peer);
    if (p->send_at == c->sends) p->send_at = i;
  }
  for (size_t i = 0; i < c->recvs; i++) {
    weir_memory_progress *p = &c->progress[c->recv[i].peer];
    if (!weir_memory_reaches(c->shared, c->recv[i].peer)) continue;
    note(c, c->recv[i].peer);
    if (p->recv_at == c->recvs) p->recv_at = i;
  }
}

int weir_memory_waits_for(const weir_memory_call *c) {
  int to = -1;
  for (int i = 0; i < c->peers; i++) {
    const weir_memory_progress *p = &c->progress[c->active[i]];
    if (p->recv_at < c->recvs) return c->active[i];
    if (to < 0 && p->send_at < c->sends) to = c->active[i];
  }
  return to;
}

/* --- moving ----------------------------------------------------------------------------------- */

static weir_status spoilt(weir_memory_call *c, int peer) {
  c->culprit = peer;
  return weir_memory_spoilt(peer, c->tag->step);
}

/* The part of a frame, or of the payload behind it, that is not through yet. */
static struct iovec rest(void *data, size_t begin, size_t bytes, size_t through) {
  const size_t done = through < begin ? 0 : through - begin < bytes ? through - begin : bytes;
  /* The payload of an empty message may be nowhere. */
  return (struct iovec){bytes > done ? (unsigned char *)data + done : data, bytes - done};
}

static weir_status push(weir_memory_call *c, int peer, bool *moved) {
  weir_memory_progress *p = &c->progress[peer];
  while (p->send_at < c->sends) {
    const weir_send *s = &c->send[p->send_at];
    weir_frame frame = weir_frame_of(c->t->rank, c->tag, s->hop, s->bytes);
    const struct iovec piece[] = {
        rest(&frame, 0, sizeof frame, p->sent),
        rest((void *)(uintptr_t)s->data, sizeof frame, s->bytes, p->sent)};
    const ssize_t sent = weir_memory_send(&c->shared->memory[peer], piece, 2);
    if (sent < 0) return errno == EAGAIN ? WEIR_OK : spoilt(c, peer);
    *moved = true;
    p->sent += (size_t)sent;
    if (p->sent < sizeof frame + s->bytes) continue;
    p->sent = 0;
    p->send_at = weir_send_after(c->send, c->sends, p->send_at);
    c->open--;
  }
  return WEIR_OK;
}

/* The frame's bytes, or those of its payload. */
static weir_status fill(weir_memory_call *c, int peer, bool *moved) {
  weir_memory_progress *p = &c->progress[peer];
  weir_recv *r = &c->recv[p->recv_at];
  const size_t head = sizeof p->frame;
  const struct iovec piece = p->received < head ? rest(&p->frame, 0, head, p->received)
                                                : rest(r->data, head, r->bytes, p->received);
  const ssize_t got = weir_memory_recv(&c->shared->memory[peer], &piece, 1);
  if (got < 0) return errno == EAGAIN ? WEIR_OK : spoilt(c, peer);
  *moved = true;
  p->received += (size_t)got;
  if (p->received != head) return WEIR_OK;
  const weir_status status = weir_frame_check(&p->frame, peer, c->tag, r->hop, r->capacity);
  if (status != WEIR_OK) c->culprit = peer;
  if (status == WEIR_OK) r->bytes = (size_t)p->frame.length;
  return status;
}

static weir_status pull(weir_memory_call *c, int peer, bool *moved) {
  weir_memory_progress *p = &c->progress[peer];
  for (bool goes_on = true; goes_on && p->recv_at < c->recvs;) {
    goes_on = false;
    const weir_status status = fill(c, peer, &goes_on);
    if (status != WEIR_OK) return status;
    *moved = *moved || goes_on;
    if (p->received < sizeof p->frame || p->received < sizeof p->frame + c->recv[p->recv_at].bytes)
      continue;
    p->received = 0;
    p->recv_at = weir_recv_after(c->recv, c->recvs, p->recv_at);
    c->open--;
  }
  return WEIR_OK;
}

weir_status weir_memory_turn(weir_memory_call *c, bool *moved) {
  for (int i = 0; i < c->peers; i++) {
    weir_status status = push(c, c->active[i], moved);
    if (status == WEIR_OK) status = pull(c, c->active[i], moved);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}
