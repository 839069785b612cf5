/* What is left of a group: whoever sees first that all who can come have come decides for all. */
#include <stdlib.h>

#include "base/base.h"
#include "collectives/transports/inproc.h"

/* Is it worth waiting for those who are missing? */
static bool waits(const inproc_group *group, unsigned reunion, double begun_s, double deadline_s) {
  const double now_s = weir_now_s();
  if (now_s >= deadline_s) return false;
  for (int r = 0; r < group->size; r++) {
    const inproc_member *m = &group->member[r];
    if (m->gone || m->reunions >= reunion) continue;
    const bool known = group->end.reason == WEIR_E_TIMEOUT && group->end.culprit == r;
    if (!known || now_s < begun_s + WEIR_SHRINK_GRACE_S) return true;
  }
  return false;
}

static void decide(inproc_group *group, unsigned reunion) {
  for (int r = 0; r < group->size; r++)
    group->member[r].stays = !group->member[r].gone && group->member[r].reunions >= reunion;
  group->reunion = reunion;
  inproc_wake_all(group);
}

static weir_status read_decision(inproc_group *group, int rank, int *old_rank, int *count) {
  bool *stays = calloc((size_t)group->size, sizeof *stays);
  bool *gone = calloc((size_t)group->size, sizeof *gone);
  weir_status status = WEIR_OK;
  *count = 0;
  if (!stays || !gone)
    status = weir_fail(WEIR_E_NOMEM, "no memory for a group of %d ranks", group->size);
  for (int r = 0; status == WEIR_OK && r < group->size; r++) {
    stays[r] = group->member[r].stays;
    gone[r] = group->member[r].gone;
    if (stays[r]) old_rank[(*count)++] = r;
  }
  if (status == WEIR_OK) group->member[rank].left_out = !stays[rank];
  if (status == WEIR_OK && !stays[rank])
    status = weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)", rank);
  if (status == WEIR_OK) status = weir_survivors_check(stays, gone, group->size);
  free(gone);
  free(stays);
  return status;
}

weir_status inproc_survivors(inproc_group *group, int rank, double timeout_s, int *old_rank,
                             int *count) {
  const double begun_s = weir_now_s(), deadline_s = begun_s + timeout_s;
  (void)pthread_mutex_lock(&group->lock);
  weir_status status = WEIR_OK;
  if (group->member[rank].left_out) { /* those who have gone on would look as if they had ended */
    status =
        weir_fail(WEIR_E_PEER, "the other ranks have gone on without rank %d (this rank)", rank);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
  }
  const unsigned reunion = ++group->member[rank].reunions;
  inproc_wake_all(group);
  while (group->reunion < reunion) {
    if (waits(group, reunion, begun_s, deadline_s))
      (void)inproc_wait(group, rank, weir_now_s() + 0.05);
    else
      decide(group, reunion);
  }
  status = read_decision(group, rank, old_rank, count);
  (void)pthread_mutex_unlock(&group->lock);
  return status;
}
