/* A session joins a group that trains. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/abi.h"
#include "session/state.h"

#define LOSSES_MOST 3 /* while it comes in */

static bool is_loss(weir_status status) {
  return status == WEIR_E_PEER || status == WEIR_E_TIMEOUT;
}

static weir_status check(const weir_session *session, double wait_s) {
  if (session == NULL) return weir_fail(WEIR_E_INVALID, "the session is NULL");
  if (session->start_tried)
    return weir_fail(WEIR_E_STATE, "the session has been started already, or has tried to");
  if (session->resume != NULL)
    return weir_fail(WEIR_E_STATE, "a state was loaded; who joins gets the group's");
  if (session->options.max_ranks < 2)
    return weir_fail(WEIR_E_INVALID,
                     "max_ranks is %d; who joins tells as many as the group may have",
                     session->options.max_ranks);
  if (!isfinite(wait_s) || wait_s <= 0 || wait_s > 1e9)
    return weir_fail(WEIR_E_INVALID, "wait_s is %g; it must be in (0, 1e9]", wait_s);
  return WEIR_OK;
}

/* The addresses of the options, and of the environment. */
static weir_status find_addresses(const weir_session *session, char **list) {
  const char *given = session->rendezvous != NULL ? session->rendezvous : "";
  const char *told = getenv("WEIR_JOIN") != NULL ? getenv("WEIR_JOIN") : "";
  const size_t room = strlen(given) + strlen(told) + 2;
  if (*given == 0 && *told == 0)
    return weir_fail(WEIR_E_INVALID,
                     "no address of a member is known: set rendezvous, or WEIR_JOIN=HOST:PORT,...");
  *list = malloc(room);
  if (*list == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for addresses");
  (void)snprintf(*list, room, "%s%s%s", given, *given != 0 && *told != 0 ? "," : "", told);
  return WEIR_OK;
}

static weir_status connect_to(weir_session *session, double wait_s, int *members) {
  const weir_options *options = &session->options;
  char *list = NULL;
  session->shares = weir_options_share(options);
  weir_status status = find_addresses(session, &list);
  if (status != WEIR_OK) return status;
  const weir_tcp_options tcp = {.rendezvous = list,
                                .bind_address = options->bind_address,
                                .secret = session->secret,
                                .secret_bytes = session->secret_bytes,
                                .job_id = options->job_id,
                                .plain = session->plain,
                                .credentials = session->credentials,
                                .most = options->max_ranks,
                                .offer = weir_session_offer(session),
                                .timeout_s = options->timeout_s};
  status = weir_transport_tcp_join(&session->transport, &tcp, wait_s, members);
  free(list);
  session->has_secret = session->secret_bytes > 0;
  session->key = weir_key_of_job(session->secret, session->secret_bytes, options->job_id);
  weir_session_forget_secret(session);
  if (status == WEIR_OK)
    status = weir_comm_create(&session->comm, session->transport, options->timeout_s);
  return status;
}

/* What the members do after weir_grow, of a rank that has nothing yet. */
static weir_status take_up(weir_session *session, weir_survivors *now) {
  weir_standing mine;
  weir_status status = weir_session_compare(session);
  if (status == WEIR_OK && session->engine == NULL) status = weir_session_create_engine(session);
  if (status != WEIR_OK) return status;
  weir_engine_stand(session->engine, &mine);
  mine.fresh = 1;
  return weir_session_line_up(session, &mine, now);
}

/* A rank was lost while this one came in.  It counts as one of the group, and without it the others
 * could be too few to go on: so it goes on with them. */
static weir_status go_on(weir_session *session) {
  weir_standing mine;
  int joined;
  if (session->engine != NULL) /* whose threads are then done with the transport */
    weir_engine_stand(session->engine, &mine);
  return weir_session_move(session, false, &joined);
}

static weir_status join(weir_session *session, double wait_s, weir_survivors *now) {
  int members = 0;
  weir_status status = weir_session_order(session);
  if (status == WEIR_OK && session->table == WEIR_E_PARSE)
    status = weir_fail(session->table, "%s", session->table_text);
  session->table = WEIR_OK; /* the others do without what it has not: it is not their rank 0 */
  if (status == WEIR_OK) status = connect_to(session, wait_s, &members);
  if (status != WEIR_OK) return status;
  const int come = session->transport->size - members;
  status = weir_session_settle(session);
  if (status == WEIR_OK) status = take_up(session, now);
  for (int lost = 0; is_loss(status) && lost < LOSSES_MOST; lost++) {
    status = go_on(session);
    if (status == WEIR_OK) status = take_up(session, now);
  }
  now->joined = come;
  return status;
}

weir_status weir_join(weir_session *session, double wait_s, weir_survivors *now) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_survivors, current);
  weir_survivors found = {0};
  weir_status status = check(session, wait_s);
  if (status == WEIR_OK && now != NULL) status = weir_abi_check(&known, now->struct_size);
  if (status != WEIR_OK) return status;
  session->start_tried = true;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  weir_scope_phase(&session->inside.scope, "join");
  weir_session_find_driver(session);
  status = join(session, wait_s, &found);
  session->started_s = weir_now_s();
  if (status == WEIR_OK) {
    session->started = true;
    session->missed = false; /* the caller is told now, and not by the next shrink again */
    weir_inside_started(session);
    if (now != NULL) weir_abi_give(now, &found);
  } else {
    weir_session_leave(session); /* it is no survivor of that group: it has not its state */
  }
  weir_scope_phase(&session->inside.scope, "between");
  weir_scope_leave(before);
  return status;
}

weir_status weir_addresses(const weir_session *session, char *text, size_t room) {
  const weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  weir_transport *t = session->transport;
  if (text == NULL) return weir_fail(WEIR_E_INVALID, "the pointer for the addresses is NULL");
  if (session->options.max_ranks == 0)
    return weir_fail(WEIR_E_UNSUPPORTED, "nobody may join this group: max_ranks is 0");
  size_t at = 0;
  for (int r = 0; r < t->size; r++) {
    if (strcmp(t->ops->address(t, r), "0.0.0.0") == 0)
      return weir_fail(WEIR_E_UNSUPPORTED,
                       "rank %d listens at all addresses of its machine (0.0.0.0), and nobody has "
                       "come by one yet: name one that others reach in rendezvous or bind_address",
                       r);
    const int bytes = snprintf(text + at, room - at, "%s%s:%d", r > 0 ? "," : "",
                               t->ops->address(t, r), t->ops->port(t, r));
    if (bytes < 0 || (size_t)bytes >= room - at)
      return weir_fail(WEIR_E_CAPACITY, "the addresses of %d ranks do not fit into %zu bytes",
                       t->size, room);
    at += (size_t)bytes;
  }
  return WEIR_OK;
}
