/* Where a session's secret comes from: the first of the option, the option's file, WEIR_SECRET and
 * the file that WEIR_SECRET_FILE names. */
#include <stdlib.h>
#include <string.h>

#include "session/state.h"

static weir_status take(weir_session *session, const char *text, const char *whence) {
  const size_t bytes = strlen(text);
  if (bytes < 1 || bytes > WEIR_SECRET_MAX)
    return weir_fail(WEIR_E_INVALID, "%s: a secret has 1 to %d bytes, not %zu", whence,
                     WEIR_SECRET_MAX, bytes);
  memcpy(session->secret, text, bytes);
  session->secret_bytes = bytes;
  return WEIR_OK;
}

weir_status weir_session_find_secret(weir_session *session, const weir_options *options) {
  const char *text = getenv("WEIR_SECRET"), *path = getenv("WEIR_SECRET_FILE");
  if (options->secret != NULL) return take(session, options->secret, "options.secret");
  if (options->secret_file != NULL)
    return weir_secret_read(options->secret_file, session->secret, &session->secret_bytes);
  if (text != NULL) return take(session, text, "WEIR_SECRET");
  if (path != NULL) return weir_secret_read(path, session->secret, &session->secret_bytes);
  return WEIR_OK;
}

static weir_status read_tls(const char *text, const char *whence, bool *off) {
  *off = strcmp(text, "off") == 0;
  if (*off || strcmp(text, "auto") == 0) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "%s is \"%s\"; \"auto\" and \"off\" are known", whence, text);
}

weir_status weir_session_find_tls(weir_session *session, const weir_options *options) {
  const char *text = getenv("WEIR_TLS");
  bool asked = false, told = false;
  weir_status status = WEIR_OK;
  if (options->tls != NULL) status = read_tls(options->tls, "options.tls", &asked);
  if (status == WEIR_OK && text != NULL) status = read_tls(text, "WEIR_TLS", &told);
  session->plain = asked || told;
  return status;
}

void weir_session_forget_secret(weir_session *session) {
  explicit_bzero(session->secret, sizeof session->secret);
  session->secret_bytes = 0;
}
