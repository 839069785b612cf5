/* Life of the shared-memory transport. */
#include "collectives/transports/shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *limit) {
  return syscall(SYS_futex, word, operation, value, limit, NULL, 0);
}

void shm_ring_bell(shm *self, int rank) {
  shm_member *m = &self->member[rank];
  (void)atomic_fetch_add(&m->bell, 1);
  /* Whoever went to sleep before the bell rang said so before. */
  if (atomic_load(&m->sleeping)) (void)futex(&m->bell, FUTEX_WAKE, 1, NULL);
}

void shm_ring_all(shm *self) {
  for (int r = 0; r < self->base.size; r++)
    if (r != self->base.rank) shm_ring_bell(self, r);
}

bool shm_sleep(shm *self, uint32_t seen, double seconds) {
  shm_member *m = &self->member[self->base.rank];
  const struct timespec limit = {.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  atomic_store(&m->sleeping, 1);
  const bool late = futex(&m->bell, FUTEX_WAIT, seen, &limit) != 0 && errno == ETIMEDOUT;
  atomic_store(&m->sleeping, 0);
  return !late;
}

#define SPINS 2000 /* where every rank has a processor */
#define YIELDS 64  /* where it has not: others run meanwhile */

bool shm_pause(shm *self, uint32_t seen, double seconds) {
  const shm_member *own = &self->member[self->base.rank];
  const int tries = self->crowded ? YIELDS : SPINS;
  for (int i = 0; i < tries; i++) {
    if (atomic_load_explicit(&own->bell, memory_order_relaxed) != seen) return true;
    if (self->crowded) (void)sched_yield();
#if defined(__x86_64__)
    else
      __builtin_ia32_pause();
#endif
  }
  return shm_sleep(self, seen, seconds);
}

static void shm_abort(weir_transport *t, int culprit) { shm_end((shm *)t, WEIR_E_PEER, culprit); }

static void shm_destroy(weir_transport *t) {
  shm *self = (shm *)t;
  if (!self) return;
  if (self->segment) {
    atomic_store(&self->member[t->rank].gone, 1);
    shm_ring_all(self);
    (void)munmap(self->segment, self->bytes);
  }
  for (int r = 0; self->peer && r < t->size; r++)
    if (self->peer[r].pidfd >= 0) (void)close(self->peer[r].pidfd);
  if (self->fd >= 0) (void)close(self->fd);
  free(self->active);
  free(self->peer);
  free(self);
}

static const weir_transport_ops shm_ops = {
    .name = "shm",
    .within_memory = true,
    .transfer = shm_transfer,
    .echo = NULL,
    .abort = shm_abort,
    .destroy = shm_destroy,
    .allreduce = shm_sum,
    .allgather = shm_gather,
    .shrink = shm_shrink,
};

static void connect_parts(shm *self) {
  const int size = self->base.size, rank = self->base.rank;
  const size_t rings = (size_t)size * (size_t)size;
  shm_ring *ring = (shm_ring *)(self->member + size);
  unsigned char *bytes = (unsigned char *)(ring + rings);
  for (int r = 0; r < size; r++) {
    const size_t out = (size_t)(rank * size + r), in = (size_t)(r * size + rank);
    shm_peer *p = &self->peer[r];
    p->out = ring + out;
    p->in = ring + in;
    p->out_bytes = bytes + out * self->ring_bytes;
    p->in_bytes = bytes + in * self->ring_bytes;
  }
  self->board = (shm_board *)(void *)(bytes + rings * self->ring_bytes);
  self->slots = (unsigned char *)(self->board + size);
  self->slot_bytes = shm_slot_size(size);
}

weir_status weir_transport_shm(weir_transport **out, const char *group, uint64_t job_id, int rank,
                               int size, double timeout_s) {
  *out = NULL;
  weir_status status = weir_transport_check(rank, size, timeout_s);
  if (status != WEIR_OK) return status;
  if (!group || !*group) return weir_fail(WEIR_E_INVALID, "a shared-memory group needs a name");
  if (size > SHM_RANKS_MAX)
    return weir_fail(WEIR_E_INVALID, "a shared-memory group of %d ranks is over the limit of %d",
                     size, SHM_RANKS_MAX);
  shm *self = calloc(1, sizeof *self);
  if (!self) return weir_fail(WEIR_E_NOMEM, "no memory for a transport");
  self->base = (weir_transport){.ops = &shm_ops, .rank = rank, .size = size};
  self->job = job_id;
  self->fd = -1;
  self->crowded = weir_crowded(size);
  self->peer = calloc((size_t)size, sizeof *self->peer);
  self->active = calloc((size_t)size, sizeof *self->active);
  if (!self->peer || !self->active)
    status = weir_fail(WEIR_E_NOMEM, "no memory for a group of %d ranks", size);
  for (int r = 0; self->peer && r < size; r++) self->peer[r].pidfd = -1;
  if (status == WEIR_OK) status = shm_join(self, group, weir_now_s() + timeout_s);
  if (status == WEIR_OK) {
    connect_parts(self);
    status = shm_open_pidfds(self);
  }
  if (status != WEIR_OK) {
    shm_destroy(&self->base);
    return status;
  }
  *out = &self->base;
  return WEIR_OK;
}
