/* Over shared memory: which ranks are alive, and which one is to blame for a failure.  The first
 * verdict stands: it lies in the segment, and all ranks report it. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/shm.h"

#define ASK_ALL_S 0.6 /* as long as over TCP */
#define ASK_SLICE_S 0.005

/* --- the end of the group ------------------------------------------------------------------- */

static uint64_t pack(weir_status reason, int culprit, int reporter) {
  return UINT64_C(1) << 63 | (uint64_t)reason << 32 | (uint64_t)culprit << 16 | (uint64_t)reporter;
}

bool shm_ended(const shm *self, weir_end *end) {
  const uint64_t word = atomic_load(&self->header->end);
  if (word == 0) return false;
  *end = (weir_end){.reason = (weir_status)(word >> 32 & 0xff),
                    .culprit = (int)(word >> 16 & 0xffff),
                    .reporter = (int)(word & 0xffff)};
  return true;
}

void shm_end(shm *self, weir_status reason, int culprit) {
  uint64_t none = 0;
  (void)atomic_compare_exchange_strong(&self->header->end, &none,
                                       pack(reason, culprit, self->base.rank));
  shm_ring_all(self);
}

/* --- processes ------------------------------------------------------------------------------ */

weir_status shm_open_pidfds(shm *self) {
  for (int r = 0; r < self->base.size; r++) {
    shm_peer *p = &self->peer[r];
    const int32_t pid = atomic_load(&self->member[r].pid);
    if (pid == (int32_t)getpid()) continue; /* this process: a thread says when it leaves */
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->pidfd < 0 && errno != ESRCH)
      return weir_fail(WEIR_E_UNSUPPORTED, "rank %d's process %d cannot be watched: %s", r, pid,
                       strerror(errno));
    p->dead = p->pidfd < 0;
  }
  return WEIR_OK;
}

bool shm_gone(shm *self, int peer, bool look) {
  shm_peer *p = &self->peer[peer];
  if (look && !p->dead && p->pidfd >= 0) {
    struct pollfd ended = {.fd = p->pidfd, .events = POLLIN};
    p->dead = poll(&ended, 1, 0) == 1;
  }
  return p->dead || atomic_load(&self->member[peer].gone) != 0;
}

weir_status shm_blame_gone(shm *self, int peer, uint64_t step) {
  weir_end end;
  /* One that ended the group and left has said why before it left. */
  if (shm_ended(self, &end)) return weir_end_fail(&end, self->base.rank);
  shm_end(self, WEIR_E_PEER, peer);
  return weir_fail(WEIR_E_PEER, "rank %d is gone: its process has %s (step %llu)", peer,
                   self->peer[peer].dead ? "ended" : "left the group", (unsigned long long)step);
}

/* --- silence -------------------------------------------------------------------------------- */

typedef struct answer {
  uint32_t beat; /* when the question was asked */
  bool silent;   /* in a transfer, and not running */
} answer;

/* A rank that waits in a transfer moves its beat whenever its bell rings; one that is frozen does
 * not.  Until all have answered or the time is over. */
static void ask_all(shm *self, answer *ask) {
  const int size = self->base.size, rank = self->base.rank;
  const double until_s = weir_now_s() + ASK_ALL_S;
  weir_end end;
  for (int r = 0; r < size; r++) ask[r].beat = atomic_load(&self->member[r].beat);
  for (bool open = true; open && weir_now_s() < until_s && !shm_ended(self, &end);) {
    const struct timespec slice = {.tv_nsec = (long)(ASK_SLICE_S * 1e9)};
    (void)atomic_fetch_add(&self->member[rank].beat, 1); /* others may be asking, too */
    shm_ring_all(self);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
    open = false;
    for (int r = 0; r < size; r++) {
      const shm_member *m = &self->member[r];
      ask[r].silent =
          r != rank && atomic_load(&m->waiting_on) >= 0 && atomic_load(&m->beat) == ask[r].beat;
      open = open || ask[r].silent;
    }
  }
}

/* What they have shown, and to whom. */
typedef struct inquiry {
  const shm *self;
  const answer *ask;
} inquiry;

static weir_waiter waiter_of(const void *group, int rank) {
  const inquiry *of = group;
  return (weir_waiter){!of->ask[rank].silent, (int)atomic_load(&of->self->member[rank].waiting_on)};
}

weir_status shm_blame_silence(shm *self, int peer, uint64_t step) {
  weir_end end;
  int culprit = peer;
  answer *ask = calloc((size_t)self->base.size, sizeof *ask);
  if (ask) {
    ask_all(self, ask);
    const inquiry of = {self, ask};
    culprit = weir_end_of_chain(&of, waiter_of, self->base.size, self->base.rank, peer);
    free(ask);
  }
  if (shm_ended(self, &end)) return weir_end_fail(&end, self->base.rank);
  shm_end(self, WEIR_E_TIMEOUT, culprit);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not answer in time (step %llu)", culprit,
                   (unsigned long long)step);
}
