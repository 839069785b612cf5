/* A session goes on in another group: with the ranks that are left of one that has ended, or with
 * others that join it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "session/abi.h"
#include "session/state.h"

static weir_status check_shrink(const weir_session *session) {
  if (session == NULL) return weir_fail(WEIR_E_INVALID, "the session is NULL");
  if (!session->started)
    return weir_fail(WEIR_E_STATE, "the session is not started; weir_session_start is due");
  if (session->broken == WEIR_OK)
    return weir_fail(WEIR_E_STATE, "the group has not ended: no rank is lost");
  if (weir_engine_diverged(session->engine))
    return weir_fail(WEIR_E_MISMATCH,
                     "the ranks' weights are no longer the same: go back to where they were");
  if (session->transport->ops->shrink == NULL)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "transport %s cannot go on without a rank; tcp, mixed and shm can",
                     session->transport->ops->name);
  return WEIR_OK;
}

static weir_status check_grow(const weir_session *session) {
  const weir_status status = weir_session_check(session);
  if (status == WEIR_OK && !session->grows)
    return weir_fail(WEIR_E_STATE, "nobody waits to join, as far as all ranks know");
  return status;
}

weir_status weir_session_settle(weir_session *session) {
  session->options.rank = session->transport->rank;
  session->options.world_size = session->transport->size;
  session->gathers = session->pings = 0;          /* members may have counted differently */
  session->rooms = session->rooms_inside = false; /* those were the ranks' before */
  return weir_session_find_hosts(session);
}

static weir_status change(weir_session *session, bool grows, weir_transport **next) {
  weir_transport *now = session->transport;
  const double timeout_s = session->options.timeout_s;
  if (grows) return now->ops->grow(now, timeout_s, next);
  int *old_rank = malloc((size_t)now->size * sizeof *old_rank);
  if (old_rank == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for the ranks' numbers");
  const weir_status status = now->ops->shrink(now, timeout_s, next, old_rank);
  free(old_rank);
  return status;
}

weir_status weir_session_move(weir_session *session, bool grows, int *joined) {
  weir_transport *next = NULL;
  weir_comm *comm = NULL;
  weir_echo_stop(&session->echo);
  memset(&session->echo, 0, sizeof session->echo);
  weir_controller_free(session->controller);
  session->controller = NULL;
  weir_status status = change(session, grows, &next);
  if (status == WEIR_OK) status = weir_comm_create(&comm, next, session->options.timeout_s);
  if (status != WEIR_OK) {
    if (next != NULL) next->ops->destroy(next);
    return status;
  }
  *joined = next->size > session->transport->size ? next->size - session->transport->size : 0;
  weir_comm_free(session->comm);
  session->transport->ops->destroy(session->transport);
  session->transport = next;
  session->comm = comm;
  return weir_session_settle(session);
}

static weir_status agree_on_state(weir_session *session, const weir_standing *mine,
                                  weir_survivors *left) {
  weir_standing *all = calloc((size_t)session->transport->size, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for the ranks' standings");
  weir_plan first[WEIR_STAGES_MAX];
  weir_regrouping group = {.comm = session->comm,
                           .first = first,
                           .memory_limit = (double)session->memory_limit,
                           .threads = session->threads,
                           .follows = session->follows,
                           .want_curve = weir_session_curve_hook(session)};
  uint64_t step = 0;
  weir_status status = weir_session_gather(session, mine, sizeof *mine, all);
  for (int r = 0; r < session->transport->size; r++)
    if (all[r].committed > step) step = all[r].committed;
  if (status == WEIR_OK) status = weir_session_first_plans(session, step, first, &group.firsts);
  if (status == WEIR_OK)
    status = weir_engine_regroup(session->engine, &group, all, &left->current, &left->missed);
  if (status == WEIR_OK) left->step = step;
  if (status == WEIR_OK) left->missed = session->missed = session->missed || left->missed;
  free(all);
  return status;
}

/* In a smaller group plans may take more.  A schedule goes on without stages that do. */
static weir_status check_memory(const weir_session *session) {
  weir_stages stages;
  return weir_policy_stages(session->options.policy, &stages) ? WEIR_OK
                                                              : weir_session_check_memory(session);
}

/* Whoever is rank 0 now may lack what deciding takes, as a file of the policy that the first one
 * had: all hear of it, and none waits for what does not come. */
static weir_status start_deciding(weir_session *session, uint64_t step) {
  char why[512];
  weir_status status = WEIR_OK;
  if (session->options.rank == 0)
    status = weir_session_start_controller(session, true, step, false);
  (void)snprintf(why, sizeof why, "%s", weir_last_error());
  uint64_t mine = status != WEIR_OK;
  uint64_t *all = calloc((size_t)session->transport->size, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to hear of the controller");
  const weir_status heard = weir_session_gather(session, &mine, sizeof mine, all);
  const bool failed = heard == WEIR_OK && all[0] != 0;
  free(all);
  if (status != WEIR_OK) return weir_fail(status, "%s", why);
  if (!failed) return heard;
  return weir_fail(WEIR_E_UNSUPPORTED, "rank 0 of those who are left cannot decide, and says why");
}

weir_status weir_session_line_up(weir_session *session, const weir_standing *mine,
                                 weir_survivors *left) {
  weir_status status = agree_on_state(session, mine, left);
  if (status == WEIR_OK) status = check_memory(session);
  weir_feed_close(session);
  memset(&session->feed, 0, sizeof session->feed);
  if (status == WEIR_OK) status = start_deciding(session, left->step);
  session->broken = WEIR_OK; /* or probes would not run */
  if (status == WEIR_OK) status = weir_session_start_monitor(session);
  left->rank = session->options.rank;
  left->world_size = session->options.world_size;
  return status;
}

static weir_status restart(weir_session *session, bool grows, weir_survivors *left) {
  weir_standing mine;
  weir_engine_stand(session->engine, &mine); /* its threads are done with the transport */
  weir_status status = weir_session_move(session, grows, &left->joined);
  /* Of survivors, too: one may have come in when the group ended, and have compared nothing yet. */
  if (status == WEIR_OK) status = weir_session_compare(session);
  return status == WEIR_OK ? weir_session_line_up(session, &mine, left) : status;
}

static void tell(const weir_survivors *left, int ranks) {
  if (left->joined > 0)
    weir_log(WEIR_LOG_INFO, "%d ranks have joined; there are now %d, this one is rank %d",
             left->joined, left->world_size, left->rank);
  else if (left->world_size == ranks)
    weir_log(WEIR_LOG_INFO, "those who waited are gone, and nobody has joined");
  else
    weir_log(WEIR_LOG_INFO, "%d of %d ranks are lost; the others go on, this one as rank %d",
             ranks - left->world_size, ranks, left->rank);
}

static weir_status regroup(weir_session *session, bool grows, weir_survivors *left) {
  const int ranks = session->options.world_size;
  session->grows = false;
  weir_scope_phase(&session->inside.scope, grows ? "grow" : "shrink");
  const weir_status status = restart(session, grows, left);
  weir_scope_phase(&session->inside.scope, "between");
  if (status != WEIR_OK) {
    /* Whatever it was, there is no group to go on with. */
    if (session->broken == WEIR_OK || status >= WEIR_E_TIMEOUT) {
      session->broken = WEIR_OK;
      (void)weir_session_keep_failure(session, status >= WEIR_E_TIMEOUT ? status : WEIR_E_PEER);
    }
    return status;
  }
  session->missed = false;
  tell(left, ranks);
  weir_inside_started(session);
  return WEIR_OK;
}

static weir_status regroup_checked(weir_session *session, bool grows, weir_survivors *left) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_survivors, current);
  weir_survivors found = {0};
  weir_status status = grows ? check_grow(session) : check_shrink(session);
  if (status == WEIR_OK && left != NULL) status = weir_abi_check(&known, left->struct_size);
  if (status != WEIR_OK) return status;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  status = regroup(session, grows, &found);
  weir_scope_leave(before);
  if (status == WEIR_OK && left != NULL) weir_abi_give(left, &found);
  return status;
}

weir_status weir_shrink(weir_session *session, weir_survivors *left) {
  return regroup_checked(session, false, left);
}

weir_status weir_grow(weir_session *session, weir_survivors *now) {
  return regroup_checked(session, true, now);
}
