/* Survivors of a lost rank form a new group over shared memory.  Whoever sees that all who can come
 * have come writes down who they are; the first such proposal that is put forward, by one atomic
 * compare-and-swap, holds for all (consensus of any number of processes: M. Herlihy, "Wait-free
 * synchronization", 1991).  Proposals of too few are not put forward, so that it does not matter
 * who has asked how often.  The survivors then meet in a segment of their own; if that does not
 * come about, its members decide anew. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/shm.h"

#define SLICE_S 0.02

/* It asks to go on, in this attempt or a later one.  Whoever has asked in an earlier one and has
 * not come is not counted on again. */
static bool asks(const shm *self, int rank, uint32_t reunion) {
  return atomic_load(&self->member[rank].asks) > reunion;
}

/* Its process has ended, or it has left the group, and not for that of the survivors. */
static bool ended(shm *self, int rank) {
  return shm_gone(self, rank, true) && atomic_load(&self->member[rank].moved) == 0;
}

/* Is it worth waiting for those who are missing? */
static bool waits(shm *self, uint32_t reunion, double begun_s, double deadline_s) {
  const double now_s = weir_now_s();
  weir_end end = {WEIR_OK, -1, -1};
  (void)shm_ended(self, &end);
  if (now_s >= deadline_s) return false;
  for (int r = 0; r < self->base.size; r++) {
    if (asks(self, r, reunion) || ended(self, r)) continue;
    const bool known = end.reason == WEIR_E_TIMEOUT && end.culprit == r;
    if (!known || now_s < begun_s + WEIR_SHRINK_GRACE_S) return true;
  }
  return false;
}

/* May the ranks of a proposal go on? */
static weir_status check(shm *self, const uint64_t *proposal) {
  bool member[SHM_RANKS_MAX] = {false}, dead[SHM_RANKS_MAX] = {false};
  for (int r = 0; r < self->base.size; r++) {
    member[r] = (proposal[r / 64] >> r % 64 & 1) != 0;
    dead[r] = !member[r] && ended(self, r);
  }
  return weir_survivors_check(member, dead, self->base.size);
}

static weir_status propose(shm *self, uint32_t reunion) {
  uint64_t *proposal = self->member[self->base.rank].proposal[reunion];
  uint32_t none = 0;
  memset(proposal, 0, sizeof self->member->proposal[0]);
  for (int r = 0; r < self->base.size; r++)
    if (asks(self, r, reunion) && !ended(self, r)) proposal[r / 64] |= UINT64_C(1) << r % 64;
  const weir_status status = check(self, proposal);
  if (status != WEIR_OK) return status;
  (void)atomic_compare_exchange_strong(&self->header->decided[reunion], &none,
                                       (uint32_t)self->base.rank + 1);
  shm_ring_all(self);
  return WEIR_OK;
}

/* Who are the survivors?  `by` is the rank whose proposal holds. */
static weir_status survivors(shm *self, uint32_t reunion, int by, int *old_rank, int *count,
                             int *own) {
  const uint64_t *proposal = self->member[by].proposal[reunion];
  *count = 0;
  *own = -1;
  for (int r = 0; r < self->base.size; r++) {
    if ((proposal[r / 64] >> r % 64 & 1) == 0) continue;
    if (r == self->base.rank) *own = *count;
    old_rank[(*count)++] = r;
  }
  self->left_out = *own < 0;
  if (self->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)",
                     self->base.rank);
  return WEIR_OK;
}

static void give_back(unsigned char *begin, unsigned char *end) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t from = ((uintptr_t)begin + page - 1) / page * page;
  const uintptr_t to = (uintptr_t)end / page * page;
  if (from < to) (void)madvise((void *)from, to - from, MADV_REMOVE);
}

/* The old segment's bytes make room for the new one.  Not while one that is left out may still be
 * in the middle of a sum: it would take zeros for what the others have had. */
static void give_back_bytes(shm *self, const int *old_rank, int count) {
  unsigned char *const rings = (unsigned char *)self->board -
                               (size_t)self->base.size * (size_t)self->base.size * self->ring_bytes;
  for (int r = 0, at = 0; r < self->base.size; r++) {
    if (at < count && old_rank[at] == r)
      at++;
    else if (!ended(self, r))
      return;
  }
  give_back(rings, (unsigned char *)self->board);
  give_back(self->slots, self->segment + self->bytes);
}

/* Until it is decided, or this rank has waited long enough and too few are there. */
static weir_status await_decision(shm *self, uint32_t reunion, double timeout_s) {
  shm_member *me = &self->member[self->base.rank];
  _Atomic uint32_t *decided = &self->header->decided[reunion];
  const double begun_s = weir_now_s(), deadline_s = begun_s + timeout_s;
  atomic_store(&me->asks, reunion + 1);
  shm_ring_all(self);
  while (atomic_load(decided) == 0) {
    const uint32_t seen = atomic_load(&me->bell);
    if (waits(self, reunion, begun_s, deadline_s)) {
      if (atomic_load(decided) == 0) (void)shm_sleep(self, seen, SLICE_S);
      continue;
    }
    const weir_status status = propose(self, reunion);
    if (status == WEIR_OK) continue;
    atomic_store(&me->asks, 0);
    /* Whoever counts on this rank yet is joined in its next attempt. */
    if (atomic_load(decided) == 0) return status;
  }
  return WEIR_OK;
}

weir_status shm_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  shm *self = (shm *)t;
  char name[64];
  int count = 0, own = -1;
  *out = NULL;
  /* They leave the old segment for the new one: it would look as if they had ended. */
  if (self->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks have gone on without rank %d (this rank)",
                     t->rank);
  const uint32_t reunion = self->reunions;
  if (reunion >= SHM_REUNIONS)
    return weir_fail(WEIR_E_STATE, "the survivors have tried to come together %d times",
                     SHM_REUNIONS);
  weir_status status = await_decision(self, reunion, timeout_s);
  if (status != WEIR_OK) return status;
  const uint32_t by = atomic_load(&self->header->decided[reunion]) - 1;
  if (by >= (uint32_t)t->size)
    return weir_fail(WEIR_E_PROTOCOL, "the group's shared memory is spoilt");
  status = survivors(self, reunion, (int)by, old_rank, &count, &own);
  if (status != WEIR_OK) return status;
  if (own == 0) give_back_bytes(self, old_rank, count);
  (void)snprintf(name, sizeof name, "left of %016llx, %u", (unsigned long long)self->header->nonce,
                 reunion);
  status = weir_transport_shm(out, name, self->job, own, count, timeout_s);
  if (status == WEIR_OK) {
    atomic_store(&self->member[t->rank].moved, 1);
  } else {
    char segment[SHM_NAME_MAX];
    atomic_store(&self->member[t->rank].asks, 0);
    self->reunions++;
    /* Without this rank that group does not come about, and no other has the name: its rank 0 may
     * be stopped, and would leave it when it is killed. */
    shm_segment_name(name, segment);
    (void)shm_unlink(segment);
  }
  return status;
}
