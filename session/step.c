/* A session's steps: the engine's, with the monitor and the controller joined to them. */
#include "session/abi.h"
#include "session/state.h"

/* info may be NULL. */
static weir_status check_info(const weir_step_info *info) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_step_info, goodput_bytes_s);
  return info == NULL ? WEIR_OK : weir_abi_check(&known, info->struct_size);
}

weir_status weir_step_begin(weir_session *session, weir_step_info *info) {
  weir_step_info current;
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK) status = check_info(info);
  if (status == WEIR_OK && session->grows)
    status = weir_fail(WEIR_GROW, "ranks wait to join the group: weir_grow is due");
  if (status != WEIR_OK) return status;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  weir_inside_begin(session);
  status = weir_engine_step_begin(session->engine, &current);
  weir_inside_begun(session, status == WEIR_OK ? &current : NULL);
  if (status == WEIR_OK && info != NULL) weir_abi_give(info, &current);
  (void)weir_session_keep_failure(session, status);
  weir_scope_leave(before);
  return status;
}

weir_status weir_submit(weir_session *session, uint32_t tensor, void *gradient) {
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK) status = weir_session_check_host(session, gradient);
  if (status != WEIR_OK) return status;
  const bool exchanging = weir_engine_exchanging(session->engine);
  const uint32_t place = tensor < session->tensors ? session->place[tensor] : tensor;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  status = weir_engine_submit(session->engine, place, gradient);
  if (!exchanging && weir_engine_exchanging(session->engine)) weir_echo_idle(&session->echo, false);
  (void)weir_session_keep_failure(session, status);
  weir_scope_leave(before);
  return status;
}

weir_status weir_step_end(weir_session *session, weir_step_info *info) {
  weir_step_info current = {0};
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK) status = check_info(info);
  if (status != WEIR_OK) return status;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  weir_echo_idle(&session->echo, false);
  weir_inside_end(session);
  status = weir_engine_step_end(session->engine, &current);
  weir_inside_ended(session, &current, status);
  if (info != NULL && (status == WEIR_OK || status == WEIR_E_NONFINITE)) {
    current.probe_bytes = (uint64_t)(session->budget.spent - session->probe_bytes_told);
    session->probe_bytes_told = session->budget.spent;
    weir_abi_give(info, &current);
  }
  weir_echo_idle(&session->echo, true);
  (void)weir_session_keep_failure(session, status);
  weir_scope_leave(before);
  return status;
}

weir_status weir_report_loss(weir_session *session, double loss) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  return weir_session_keep_failure(session, weir_engine_report_loss(session->engine, loss));
}

weir_status weir_current_transport(const weir_session *session, const char **name) {
  const weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (name == NULL)
    return weir_fail(WEIR_E_INVALID, "the pointer for the transport's name is NULL");
  *name = session->transport->ops->name;
  return WEIR_OK;
}

weir_status weir_current_plan(const weir_session *session, weir_plan *plan) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (plan == NULL) return weir_fail(WEIR_E_INVALID, "the pointer for the plan is NULL");
  weir_engine_plan(session->engine, plan);
  return WEIR_OK;
}

weir_status weir_current_buckets(const weir_session *session, weir_plan_bucket *buckets,
                                 size_t capacity, size_t *count) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (count == NULL || (buckets == NULL && capacity > 0))
    return weir_fail(WEIR_E_INVALID, "the pointer for the buckets is NULL");
  *count = weir_engine_buckets(session->engine, buckets, capacity);
  return WEIR_OK;
}

weir_status weir_mark_backward(weir_session *session) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  weir_engine_mark_backward(session->engine);
  return WEIR_OK;
}

weir_status weir_tensor_gap(const weir_session *session, uint32_t tensor, double *gap_s) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (gap_s == NULL) return weir_fail(WEIR_E_INVALID, "the pointer for the gap is NULL");
  if (tensor >= session->tensors)
    return weir_fail(WEIR_E_INVALID, "tensor %u is not one of the %zu registered", tensor,
                     session->tensors);
  if (!weir_engine_gap(session->engine, session->place[tensor], gap_s))
    return weir_fail(WEIR_E_STATE, "no step has been profiled");
  return WEIR_OK;
}

weir_status weir_current_times(const weir_session *session, weir_bucket_times *times,
                               size_t capacity, size_t *count) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (count == NULL || (times == NULL && capacity > 0))
    return weir_fail(WEIR_E_INVALID, "the pointer for the times is NULL");
  if (weir_engine_times(session->engine, times, capacity, count) == 0)
    return weir_fail(WEIR_E_STATE, "no step of this plan has been profiled");
  return WEIR_OK;
}

weir_status weir_last_step_times(const weir_session *session, double *forward_s, double *gap_s,
                                 weir_bucket_times *times, size_t capacity, size_t *count) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (forward_s == NULL || gap_s == NULL || count == NULL || (times == NULL && capacity > 0))
    return weir_fail(WEIR_E_INVALID, "the pointer for the times is NULL");
  *count =
      weir_engine_last_step(session->engine, session->place, forward_s, gap_s, times, capacity);
  if (*count == 0) return weir_fail(WEIR_E_STATE, "the last step was not measured");
  return WEIR_OK;
}

weir_status weir_set_epoch(weir_session *session, uint32_t epoch) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  session->epoch = epoch;
  if (session->controller != NULL) weir_controller_set_epoch(session->controller, epoch);
  return WEIR_OK;
}

weir_status weir_set_room(weir_session *session, uint64_t steps) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (session->controller != NULL) weir_controller_set_room(session->controller, steps);
  return WEIR_OK;
}

weir_status weir_doubt_update_rule(weir_session *session, const char *rule) {
  const bool adapts = rule != NULL && strcmp(rule, "adaptive") == 0;
  const bool unknown = rule != NULL && strcmp(rule, "unknown") == 0;
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK && !adapts && !unknown)
    status = weir_fail(WEIR_E_INVALID,
                       "update_rule is doubted to be \"%s\"; expected adaptive or unknown",
                       rule != NULL ? rule : "");
  if (status == WEIR_OK) status = weir_engine_damp(session->engine);
  if (status != WEIR_OK) return status;
  session->rule_adapts = true;
  session->rule_unknown = session->rule_unknown || unknown;
  if (session->controller != NULL)
    weir_controller_doubt_rule(session->controller, session->rule_unknown);
  return WEIR_OK;
}

weir_status weir_allgather_bytes(weir_session *session, const void *mine, size_t bytes, void *all) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (mine == NULL || all == NULL)
    return weir_fail(WEIR_E_INVALID, "the pointer for the bytes is NULL");
  if (bytes < 1 || bytes > 4096)
    return weir_fail(WEIR_E_INVALID, "weir_allgather_bytes moves 1..4096 bytes, not %zu", bytes);
  if (weir_engine_exchanging(session->engine))
    return weir_fail(WEIR_E_STATE, "buckets are being exchanged; weir_step_end is due first");
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  const weir_status gathered =
      weir_session_keep_failure(session, weir_session_gather(session, mine, bytes, all));
  weir_scope_leave(before);
  return gathered;
}

weir_status weir_residual_digest(const weir_session *session, uint64_t *digest) {
  if (session == NULL || session->engine == NULL)
    return weir_fail(WEIR_E_STATE, "a session has residuals once it is started");
  if (digest == NULL) return weir_fail(WEIR_E_INVALID, "the pointer for the digest is NULL");
  *digest = weir_engine_residual_digest(session->engine);
  return WEIR_OK;
}
