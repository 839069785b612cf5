#include "collectives/transports/tcp_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* At most so much of a ring is moved before the other side sees it, and copies the one piece while this
 * one copies the next. */
#define PIECES 4

static unsigned char *bytes_of(tcp_ring *ring) { return (unsigned char *)(ring + 1); }

static void ring_bell(const tcp_peer *p) { (void)send(p->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

/* Whoever went to sleep before this position was told has said so before. */
static void tell_position(const tcp_peer *p, _Atomic uint64_t *position, uint64_t value,
                          _Atomic uint32_t *sleeps) {
  atomic_store(position, value);
  if (atomic_load(sleeps) && atomic_exchange(sleeps, 0)) ring_bell(p);
}

/* Bytes that may be moved in a direction; more than the ring has: the other side has spoilt it. */
static size_t room(const tcp_memory *m) {
  const uint64_t used = m->head - atomic_load_explicit(&m->out->tail, memory_order_acquire);
  return used > m->ring_bytes ? SIZE_MAX : m->ring_bytes - (size_t)used;
}

static size_t there(const tcp_memory *m) {
  const uint64_t count = atomic_load_explicit(&m->in->head, memory_order_acquire) - m->tail;
  return count > m->ring_bytes ? SIZE_MAX : (size_t)count;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* What was moved, or why nothing was. */
static ssize_t moved(const tcp_memory *m, size_t bytes, size_t can, bool ended) {
  if (bytes > 0) return (ssize_t)bytes;
  if (ended && m->error == 0) return 0;
  errno = can == SIZE_MAX ? EBADMSG : ended ? m->error : EAGAIN;
  return -1;
}

ssize_t tcp_memory_send(tcp_peer *p, const struct iovec *piece, size_t pieces) {
  tcp_memory *m = p->memory;
  const size_t step = m->ring_bytes / PIECES;
  size_t sent = 0, untold = 0, can = 1;
  if (m->ended) {
    errno = m->error != 0 ? m->error : EPIPE;
    return -1;
  }
  for (size_t i = 0, at = 0; i < pieces;) {
    can = room(m);
    const size_t part = least(least(piece[i].iov_len - at, can), step - untold);
    if (can == 0 || can == SIZE_MAX) break;
    weir_ring_write(bytes_of(m->out), m->ring_bytes, m->head,
                    (const unsigned char *)piece[i].iov_base + at, part);
    m->head += part;
    sent += part;
    untold += part;
    at += part;
    if (at == piece[i].iov_len) {
      at = 0;
      i++;
    }
    if (untold < step) continue;
    tell_position(p, &m->out->head, m->head, &m->out->hungry);
    untold = 0;
  }
  if (untold > 0) tell_position(p, &m->out->head, m->head, &m->out->hungry);
  return moved(m, sent, can, false);
}

ssize_t tcp_memory_recv(tcp_peer *p, const struct iovec *piece, size_t pieces) {
  tcp_memory *m = p->memory;
  const bool ended = m->ended; /* before what there is: its last bytes come before its end */
  const size_t step = m->ring_bytes / PIECES;
  size_t got = 0, can = 1;
  for (size_t i = 0, at = 0; i < pieces;) {
    can = there(m);
    const size_t part = least(least(piece[i].iov_len - at, can), step);
    if (can == 0 || can == SIZE_MAX) break;
    weir_ring_read(bytes_of(m->in), m->ring_bytes, m->tail, (unsigned char *)piece[i].iov_base + at,
                   part);
    m->tail += part;
    got += part;
    at += part;
    tell_position(p, &m->in->tail, m->tail, &m->in->starved);
    if (at < piece[i].iov_len) continue;
    at = 0;
    i++;
  }
  return moved(m, got, can, ended);
}

bool tcp_memory_ready(const tcp_peer *p, bool in, bool out) {
  const tcp_memory *m = p->memory;
  return (in && (m->ended || there(m) > 0)) || (out && (m->ended || room(m) > 0));
}

bool tcp_memory_doze(tcp_peer *p, bool in, bool out) {
  if (in) atomic_store(&p->memory->in->hungry, 1);
  if (out) atomic_store(&p->memory->out->starved, 1);
  atomic_thread_fence(memory_order_seq_cst);
  return tcp_memory_ready(p, in, out);
}

void tcp_memory_wake(tcp_peer *p, bool rung) {
  tcp_memory *m = p->memory;
  unsigned char bells[64];
  atomic_store_explicit(&m->in->hungry, 0, memory_order_relaxed);
  atomic_store_explicit(&m->out->starved, 0, memory_order_relaxed);
  if (!rung || m->ended) return;
  const ssize_t got = recv(p->fd, bells, sizeof bells, MSG_DONTWAIT);
  m->ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  m->error = got < 0 ? errno : 0;
}

void tcp_memory_close(tcp *self) {
  free(self->memory);
  if (self->segment) (void)munmap(self->segment, self->segment_bytes);
  self->memory = NULL;
  self->segment = NULL;
}
