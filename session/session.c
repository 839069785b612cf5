/* Life of a session up to its start, and its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/abi.h"
#include "session/state.h"

/* Of the engine's failures any may have ended it: a rank that has no memory left in the middle of a
 * step has not taken part in it. */
weir_status weir_session_keep_failure(weir_session *session, weir_status status) {
  const bool ends = status >= WEIR_E_TIMEOUT || (status != WEIR_OK && session->engine != NULL &&
                                                 weir_engine_ended(session->engine));
  if (ends && session->broken == WEIR_OK) {
    session->broken = status;
    (void)snprintf(session->broken_text, sizeof session->broken_text, "%s", weir_last_error());
    weir_inside_failed(session);
  }
  return status;
}

weir_status weir_session_check(const weir_session *session) {
  if (session == NULL) return weir_fail(WEIR_E_INVALID, "the session is NULL");
  if (session->broken != WEIR_OK) return weir_fail(session->broken, "%s", session->broken_text);
  if (!session->started)
    return weir_fail(WEIR_E_STATE, "the session is not started; weir_session_start is due");
  return WEIR_OK;
}

static weir_status registering(const weir_session *session) {
  if (session == NULL) return weir_fail(WEIR_E_INVALID, "the session is NULL");
  if (session->start_tried)
    return weir_fail(WEIR_E_STATE, "registration is over: weir_session_start was called");
  return WEIR_OK;
}

/* *copy = text; NULL stays NULL. */
static bool copy_text(char **copy, const char *text) {
  *copy = text != NULL ? strdup(text) : NULL;
  return text == NULL || *copy != NULL;
}

static bool copy_options(weir_session *session, const weir_options *options) {
  session->options = *options;
  if (!copy_text(&session->transport_name, options->transport) ||
      !copy_text(&session->rendezvous, options->rendezvous) ||
      !copy_text(&session->bind_address, options->bind_address) ||
      !copy_text(&session->policy, options->policy) || !copy_text(&session->risk, options->risk) ||
      !copy_text(&session->journal_path, options->journal_path) ||
      !copy_text(&session->full_precision, options->full_precision) ||
      !copy_text(&session->update_rule, options->update_rule))
    return false;
  session->options.transport = session->transport_name;
  session->options.rendezvous = session->rendezvous;
  session->options.bind_address = session->bind_address;
  session->options.policy = session->policy;
  session->options.risk = session->risk;
  session->options.journal_path = session->journal_path;
  session->options.full_precision = session->full_precision;
  session->options.update_rule = session->update_rule;
  session->options.secret = session->options.secret_file = NULL; /* found already */
  session->options.tls = session->options.tls_certificate = NULL;
  session->options.tls_key = session->options.tls_authority = NULL;
  session->options.nonfinite = NULL; /* the caller's own */
  session->keep_nonfinite = strcmp(options->nonfinite, "keep") == 0;
  return true;
}

weir_status weir_session_create(weir_session **out, const weir_options *callers) {
  weir_options current;
  const weir_options *options = &current;
  if (out == NULL) return weir_fail(WEIR_E_INVALID, "the pointer for the session is NULL");
  *out = NULL;
  weir_status status = weir_options_take(&current, callers);
  if (status == WEIR_OK) status = weir_options_check(options);
  if (status != WEIR_OK) return status;
  weir_session *session = calloc(1, sizeof *session);
  if (session == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a session");
  session->inside.status.file = -1;
  session->offset = calloc(1, sizeof *session->offset);
  session->gather_bytes = calloc((size_t)weir_session_most(options), sizeof *session->gather_bytes);
  if (session->offset == NULL || session->gather_bytes == NULL || !copy_options(session, options)) {
    weir_session_free(session);
    return weir_fail(WEIR_E_NOMEM, "no memory for a session");
  }
  status = weir_inside_open(session);
  if (status == WEIR_OK) status = weir_session_find_secret(session, options);
  if (status == WEIR_OK) status = weir_session_find_tls(session, options);
  if (status == WEIR_OK) status = weir_session_load_device(session);
  if (status != WEIR_OK) {
    weir_session_free(session);
    return status;
  }
  *out = session;
  return WEIR_OK;
}

weir_status weir_register_typed(weir_session *session, const char *name, size_t rows,
                                size_t columns, uint32_t type, uint32_t *tensor) {
  size_t numel;
  weir_status status = registering(session);
  if (status != WEIR_OK) return status;
  if (name == NULL) return weir_fail(WEIR_E_INVALID, "a tensor needs a name");
  if (type > WEIR_BF16)
    return weir_fail(WEIR_E_INVALID,
                     "tensor \"%s\" has type %u; WEIR_FP32, WEIR_FP16 and WEIR_BF16 are known",
                     name, type);
  if (__builtin_mul_overflow(rows, columns, &numel))
    return weir_fail(WEIR_E_INVALID, "tensor \"%s\" of %zu x %zu elements is too long", name, rows,
                     columns);
  const size_t n = session->offset[session->tensors];
  if (numel > UINT32_MAX - n || session->tensors >= UINT32_MAX)
    return weir_fail(WEIR_E_INVALID,
                     "tensor \"%s\" of %zu elements makes the gradient longer than %u", name, numel,
                     UINT32_MAX);
  char *copy = strdup(name);
  char **names = realloc(session->names, (session->tensors + 1) * sizeof *names);
  if (names != NULL) session->names = names;
  size_t *offset = realloc(session->offset, (session->tensors + 2) * sizeof *offset);
  if (offset != NULL) session->offset = offset;
  size_t *all_rows = realloc(session->rows, (session->tensors + 1) * sizeof *all_rows);
  if (all_rows != NULL) session->rows = all_rows;
  uint8_t *types = realloc(session->types, (session->tensors + 1) * sizeof *types);
  if (types != NULL) session->types = types;
  if (copy == NULL || names == NULL || offset == NULL || all_rows == NULL || types == NULL) {
    free(copy);
    return weir_fail(WEIR_E_NOMEM, "no memory to register tensor \"%s\"", name);
  }
  session->names[session->tensors] = copy;
  session->offset[session->tensors + 1] = n + numel;
  session->rows[session->tensors] = rows;
  session->types[session->tensors] = (uint8_t)type;
  if (tensor != NULL) *tensor = (uint32_t)session->tensors;
  session->tensors++;
  return WEIR_OK;
}

weir_status weir_register_matrix(weir_session *session, const char *name, size_t rows,
                                 size_t columns, uint32_t *tensor) {
  return weir_register_typed(session, name, rows, columns, WEIR_FP32, tensor);
}

weir_status weir_register_tensor(weir_session *session, const char *name, size_t numel,
                                 uint32_t *tensor) {
  return weir_register_matrix(session, name, 1, numel, tensor);
}

weir_status weir_register_state(weir_session *session, const char *name, void *data, size_t bytes) {
  weir_status status = registering(session);
  if (status != WEIR_OK) return status;
  if (data == NULL && bytes > 0)
    return weir_fail(WEIR_E_INVALID, "state \"%s\" of %zu bytes is NULL",
                     name != NULL ? name : "(no name)", bytes);
  weir_registered_state *states =
      realloc(session->states, (session->state_count + 1) * sizeof *states);
  if (states == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to register state");
  session->states = states;
  states[session->state_count++] = (weir_registered_state){data, bytes};
  return WEIR_OK;
}

weir_status weir_register_hooks(weir_session *session, const weir_state_hooks *hooks) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_state_hooks, load);
  weir_state_hooks current = {0};
  weir_status status = registering(session);
  if (status != WEIR_OK) return status;
  if (hooks == NULL) return weir_fail(WEIR_E_INVALID, "state hooks are NULL");
  status = weir_abi_take(&known, &current, hooks);
  if (status != WEIR_OK) return status;
  if (current.bytes == NULL || current.save == NULL || current.load == NULL)
    return weir_fail(WEIR_E_INVALID, "state hooks need bytes, save and load");
  weir_state_hooks *all = realloc(session->hooks, (session->hook_count + 1) * sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to register hooks");
  session->hooks = all;
  all[session->hook_count++] = current;
  return WEIR_OK;
}

void weir_session_leave(weir_session *session) {
  weir_echo_stop(&session->echo);
  weir_controller_free(session->controller);
  weir_engine_free(session->engine);
  weir_feed_close(session);
  memset(&session->feed, 0, sizeof session->feed);
  weir_comm_free(session->comm);
  if (session->transport != NULL) session->transport->ops->destroy(session->transport);
  session->controller = NULL;
  session->engine = NULL;
  session->comm = NULL;
  session->transport = NULL;
}

void weir_session_free(weir_session *session) {
  if (session == NULL) return;
  weir_session_leave(session);
  weir_helper_free(session->helper);
  weir_inside_close(session);
  weir_resume_free(session->resume);
  free(session->gap_s);
  free(session->gather_bytes);
  free(session->hooks);
  free(session->states);
  free(session->offset);
  free(session->rows);
  free(session->types);
  free(session->place);
  for (size_t t = 0; t < session->tensors; t++) free(session->names[t]);
  free(session->names);
  free(session->journal_path);
  free(session->full_precision);
  free(session->policy);
  free(session->risk);
  free(session->update_rule);
  free(session->bind_address);
  free(session->rendezvous);
  free(session->transport_name);
  weir_session_forget_secret(session);
  weir_credentials_release(session->credentials);
  free(session);
}
