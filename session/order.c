/* The order in which the engine has the tensors: the policy's, and those that stay in full
 * precision last (weir_policy_order). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "controller/filter.h"
#include "session/state.h"

/* Names, offsets, rows and types become the engine's; place tells where each registered tensor
 * has gone. */
static void reorder(weir_session *session, const uint32_t *order, char **names, size_t *offset,
                    size_t *rows, uint8_t *types) {
  if (session->tensors == 0) return;
  offset[0] = 0;
  for (size_t i = 0; i < session->tensors; i++) {
    const uint32_t t = order[i];
    names[i] = session->names[t];
    rows[i] = session->rows[t];
    types[i] = session->types[t];
    offset[i + 1] = offset[i] + session->offset[t + 1] - session->offset[t];
    session->place[t] = (uint32_t)i;
  }
  memcpy(session->names, names, session->tensors * sizeof *names);
  memcpy(session->rows, rows, session->tensors * sizeof *rows);
  memcpy(session->types, types, session->tensors * sizeof *types);
  memcpy(session->offset, offset, (session->tensors + 1) * sizeof *offset);
}

/* What the options and the policy's table keep in full precision.  A rank that does not find the
 * table, as only rank 0 needs it, keeps what the options say; were that another thing, the ranks
 * would find out.  Rank 0 without it, and any rank whose table is damaged, fails where the others
 * hear of it (weir_session_compare): they wait for it meanwhile. */
static weir_status read_filter(weir_session *session, char filter[WEIR_FILTER_MAX]) {
  const weir_status status =
      weir_policy_filter(session->options.policy, session->options.full_precision, filter);
  if (status != WEIR_E_IO && status != WEIR_E_PARSE) return status;
  if (status == WEIR_E_PARSE || session->options.rank == 0) {
    session->table = status;
    (void)snprintf(session->table_text, sizeof session->table_text, "%s", weir_last_error());
  }
  (void)snprintf(filter, WEIR_FILTER_MAX, "%s",
                 session->options.full_precision ? session->options.full_precision : "");
  return WEIR_OK;
}

/* Said by one rank, as all have the same. */
static void warn_of_idle_patterns(const weir_session *session, const char *filter) {
  char pattern[WEIR_FILTER_MAX];
  const char *rest = filter;
  if (session->options.rank != 0) return;
  while (
      weir_filter_next_idle(&rest, (const char *const *)session->names, session->tensors, pattern))
    weir_log(WEIR_LOG_WARN, "full_precision: no tensor's name matches '%.200s'", pattern);
}

weir_status weir_session_order(weir_session *session) {
  char filter[WEIR_FILTER_MAX];
  weir_status status = read_filter(session, filter);
  if (status != WEIR_OK) return status;
  warn_of_idle_patterns(session, filter);
  const size_t tensors = session->tensors;
  const weir_layout layout = {tensors, session->offset};
  uint32_t *order = malloc((tensors + 1) * sizeof *order);
  char **names = malloc((tensors + 1) * sizeof *names);
  size_t *offset = malloc((tensors + 1) * sizeof *offset);
  size_t *rows = malloc((tensors + 1) * sizeof *rows);
  uint8_t *types = malloc((tensors + 1) * sizeof *types);
  session->place = malloc((tensors + 1) * sizeof *session->place);
  if (order && names && offset && rows && types && session->place) {
    session->full = weir_policy_order(session->options.policy, filter, &layout,
                                      (const char *const *)session->names, order);
    reorder(session, order, names, offset, rows, types);
  } else {
    status = weir_fail(WEIR_E_NOMEM, "no memory to order %zu tensors", tensors);
  }
  free(types);
  free(rows);
  free(offset);
  free(names);
  free(order);
  return status;
}
