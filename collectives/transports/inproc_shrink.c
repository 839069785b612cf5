/* What is left of a group: whoever sees first that all who can come have come decides for all, if
 * they are enough. */
#include "base/base.h"
#include "collectives/transports/inproc.h"

/* Is it worth waiting for those who are missing? */
static bool waits(const inproc_group *group, double begun_s, double deadline_s) {
  const double now_s = weir_now_s();
  if (now_s >= deadline_s) return false;
  for (int r = 0; r < group->size; r++) {
    const inproc_member *m = &group->member[r];
    if (m->gone || m->asks) continue;
    const bool known = group->end.reason == WEIR_E_TIMEOUT && group->end.culprit == r;
    if (!known || now_s < begun_s + WEIR_SHRINK_GRACE_S) return true;
  }
  return false;
}

static weir_status decide(inproc_group *group) {
  bool stays[WEIR_RANKS_MAX] = {false}, gone[WEIR_RANKS_MAX] = {false};
  for (int r = 0; r < group->size; r++) {
    gone[r] = group->member[r].gone;
    stays[r] = group->member[r].asks && !gone[r];
  }
  const weir_status status = weir_survivors_check(stays, gone, group->size);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < group->size; r++) group->member[r].stays = stays[r];
  group->decided = true;
  inproc_wake_all(group);
  return WEIR_OK;
}

static weir_status read_decision(const inproc_group *group, int rank, int *old_rank, int *count) {
  *count = 0;
  if (!group->member[rank].stays) /* those who have gone on would look as if they had ended */
    return weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)", rank);
  for (int r = 0; r < group->size; r++)
    if (group->member[r].stays) old_rank[(*count)++] = r;
  return WEIR_OK;
}

weir_status inproc_survivors(inproc_group *group, int rank, double timeout_s, int *old_rank,
                             int *count) {
  const double begun_s = weir_now_s(), deadline_s = begun_s + timeout_s;
  weir_status status = WEIR_OK;
  (void)pthread_mutex_lock(&group->lock);
  group->member[rank].asks = true;
  inproc_wake_all(group);
  while (!group->decided && status == WEIR_OK) {
    if (waits(group, begun_s, deadline_s))
      (void)inproc_wait(group, rank, weir_now_s() + 0.05);
    else
      status = decide(group);
  }
  if (status == WEIR_OK) status = read_decision(group, rank, old_rank, count);
  group->member[rank].asks = false;
  (void)pthread_mutex_unlock(&group->lock);
  return status;
}
