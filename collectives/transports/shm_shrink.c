/* Survivors of a lost rank form a new group over shared memory.  Whoever sees that all who can come
 * have come writes down who they are; the first proposal that is put forward, by one atomic
 * exchange, holds for all.  The survivors then meet in a segment of their own. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/shm.h"

#define SLICE_S 0.02

/* Is it worth waiting for those who are missing? */
static bool waits(shm *self, uint32_t reunion, double begun_s, double deadline_s) {
  const double now_s = weir_now_s();
  weir_end end = {WEIR_OK, -1, -1};
  (void)shm_ended(self, &end);
  if (now_s >= deadline_s) return false;
  for (int r = 0; r < self->base.size; r++) {
    if (atomic_load(&self->member[r].reunions) >= reunion || shm_gone(self, r, true)) continue;
    const bool known = end.reason == WEIR_E_TIMEOUT && end.culprit == r;
    if (!known || now_s < begun_s + WEIR_SHRINK_GRACE_S) return true;
  }
  return false;
}

static void propose(shm *self, uint32_t reunion) {
  uint64_t *proposal = self->member[self->base.rank].proposal[reunion - 1];
  uint32_t none = 0;
  memset(proposal, 0, sizeof self->member->proposal[0]);
  for (int r = 0; r < self->base.size; r++)
    if (atomic_load(&self->member[r].reunions) >= reunion && !shm_gone(self, r, true))
      proposal[r / 64] |= UINT64_C(1) << r % 64;
  (void)atomic_compare_exchange_strong(&self->header->decided[reunion - 1], &none,
                                       (uint32_t)self->base.rank + 1);
  shm_ring_all(self);
}

/* Who are the survivors?  `by` is the rank whose proposal holds. */
static weir_status survivors(shm *self, uint32_t reunion, int by, int *old_rank, int *count,
                             int *own) {
  const uint64_t *proposal = self->member[by].proposal[reunion - 1];
  bool member[SHM_RANKS_MAX] = {false}, dead[SHM_RANKS_MAX] = {false};
  *count = 0;
  *own = -1;
  for (int r = 0; r < self->base.size; r++) {
    member[r] = (proposal[r / 64] >> r % 64 & 1) != 0;
    dead[r] = !member[r] && shm_gone(self, r, true);
    if (r == self->base.rank && member[r]) *own = *count;
    if (member[r]) old_rank[(*count)++] = r;
  }
  self->left_out = *own < 0;
  if (self->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)",
                     self->base.rank);
  return weir_survivors_check(member, dead, self->base.size);
}

weir_status shm_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  shm *self = (shm *)t;
  shm_member *me = &self->member[t->rank];
  const double begun_s = weir_now_s(), deadline_s = begun_s + timeout_s;
  char name[64];
  int count = 0, own = -1;
  *out = NULL;
  /* They leave the old segment for the new one: it would look as if they had ended. */
  if (self->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks have gone on without rank %d (this rank)",
                     t->rank);
  const uint32_t before = atomic_fetch_add(&me->reunions, 1);
  if (before >= SHM_REUNIONS)
    return weir_fail(WEIR_E_STATE, "the survivors have tried to come together %d times",
                     SHM_REUNIONS);
  const uint32_t reunion = before + 1;
  _Atomic uint32_t *decided = &self->header->decided[reunion - 1];
  shm_ring_all(self);
  while (atomic_load(decided) == 0) {
    const uint32_t seen = atomic_load(&me->bell);
    if (!waits(self, reunion, begun_s, deadline_s))
      propose(self, reunion);
    else if (atomic_load(decided) == 0)
      (void)shm_sleep(self, seen, SLICE_S);
  }
  const uint32_t by = atomic_load(decided) - 1;
  if (by >= (uint32_t)t->size)
    return weir_fail(WEIR_E_PROTOCOL, "the group's shared memory is spoilt");
  const weir_status status = survivors(self, reunion, (int)by, old_rank, &count, &own);
  if (status != WEIR_OK) return status;
  (void)snprintf(name, sizeof name, "left of %016llx, %u", (unsigned long long)self->header->nonce,
                 reunion);
  return weir_transport_shm(out, name, self->job, own, count, timeout_s);
}
