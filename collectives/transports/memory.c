#include "collectives/transports/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/base.h"

/* At most so much of a ring is moved before the other side sees it, and copies the one piece while
 * this one copies the next. */
#define PIECES 4

static unsigned char *bytes_of(weir_memory_ring *ring) { return (unsigned char *)(ring + 1); }

static void ring_bell(const weir_memory *m) {
  (void)send(m->bell, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Whoever went to sleep before this position was told has said so before. */
static void tell_position(const weir_memory *m, _Atomic uint64_t *position, uint64_t value,
                          _Atomic uint32_t *sleeps) {
  atomic_store(position, value);
  if (atomic_load(sleeps) && atomic_exchange(sleeps, 0)) ring_bell(m);
}

/* Bytes that may be moved in a direction; more than the ring has: the other side has spoilt it. */
static size_t room(const weir_memory *m) {
  const uint64_t used = m->head - atomic_load_explicit(&m->out->tail, memory_order_acquire);
  return used > m->ring_bytes ? SIZE_MAX : m->ring_bytes - (size_t)used;
}

static size_t there(const weir_memory *m) {
  const uint64_t count = atomic_load_explicit(&m->in->head, memory_order_acquire) - m->tail;
  return count > m->ring_bytes ? SIZE_MAX : (size_t)count;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* What was moved, or why nothing was. */
static ssize_t moved(const weir_memory *m, size_t bytes, size_t can, bool ended) {
  if (bytes > 0) return (ssize_t)bytes;
  if (ended && m->error == 0) return 0;
  errno = can == SIZE_MAX ? EBADMSG : ended ? m->error : EAGAIN;
  return -1;
}

ssize_t weir_memory_send(weir_memory *m, const struct iovec *piece, size_t pieces) {
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
    tell_position(m, &m->out->head, m->head, &m->out->hungry);
    untold = 0;
  }
  if (untold > 0) tell_position(m, &m->out->head, m->head, &m->out->hungry);
  return moved(m, sent, can, false);
}

ssize_t weir_memory_recv(weir_memory *m, const struct iovec *piece, size_t pieces) {
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
    tell_position(m, &m->in->tail, m->tail, &m->in->starved);
    if (at < piece[i].iov_len) continue;
    at = 0;
    i++;
  }
  return moved(m, got, can, ended);
}

weir_status weir_memory_spoilt(int peer, uint64_t step) {
  return weir_fail(
      WEIR_E_PROTOCOL,
      "a message of rank %d was damaged on its way: it is in a ring that is spoilt (step %llu)",
      peer, (unsigned long long)step);
}

bool weir_memory_ready(const weir_memory *m, bool in, bool out) {
  return (in && (m->ended || there(m) > 0)) || (out && (m->ended || room(m) > 0));
}

bool weir_memory_doze(weir_memory *m, bool in, bool out) {
  if (in) atomic_store(&m->in->hungry, 1);
  if (out) atomic_store(&m->out->starved, 1);
  atomic_thread_fence(memory_order_seq_cst);
  return weir_memory_ready(m, in, out);
}

void weir_memory_wake(weir_memory *m, bool rung) {
  unsigned char bells[64];
  atomic_store_explicit(&m->in->hungry, 0, memory_order_relaxed);
  atomic_store_explicit(&m->out->starved, 0, memory_order_relaxed);
  if (!rung || m->ended) return;
  const ssize_t got = recv(m->bell, bells, sizeof bells, MSG_DONTWAIT);
  m->ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  m->error = got < 0 ? errno : 0;
}

void weir_machine_memory_close(weir_machine_memory *shared) {
  free(shared->memory);
  if (shared->segment) (void)munmap(shared->segment, shared->bytes);
  *shared = (weir_machine_memory){0};
}
