/* Where a session's secret comes from: the first of the option, the option's file, WEIR_SECRET and
 * the file that WEIR_SECRET_FILE names; and its certificate, each file by the option or, without
 * it, the environment. */
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

/* Beside the secret, which lets ranks in before they shake hands. */
static weir_status find_certificate(weir_session *session, const weir_options *options) {
  static const char *const names[] = {"tls_certificate (WEIR_TLS_CERT)", "tls_key (WEIR_TLS_KEY)",
                                      "tls_authority (WEIR_TLS_CA)"};
  const char *const asked[] = {options->tls_certificate, options->tls_key, options->tls_authority};
  const char *const told[] = {getenv("WEIR_TLS_CERT"), getenv("WEIR_TLS_KEY"),
                              getenv("WEIR_TLS_CA")};
  const char *path[3];
  int there = 0, missing = 0;
  for (int i = 0; i < 3; i++) {
    path[i] = asked[i] != NULL ? asked[i] : told[i];
    there += path[i] != NULL;
    if (path[i] == NULL) missing = i;
  }
  if (there == 0 || session->plain) return WEIR_OK;
  const bool meant = asked[0] != NULL || asked[1] != NULL || asked[2] != NULL;
  /* The environment's are for groups that meet over TCP, as its secret is. */
  const bool over_tcp = weir_options_over_tcp(options);
  const bool nccl = weir_options_over_nccl(options) && !weir_options_over_mpi(options);
  if (!over_tcp && !nccl && !meant) return WEIR_OK;
  if (!over_tcp)
    return weir_fail(
        WEIR_E_INVALID,
        "certificates are of no use to transport \"%s\": tcp, mixed, auto and nccl+tcp "
        "take them",
        options->transport);
  if (there < 3)
    return weir_fail(WEIR_E_INVALID,
                     "%s is not set; a certificate, its key and the authority go together",
                     names[missing]);
  if (session->secret_bytes == 0)
    return weir_fail(
        WEIR_E_INVALID,
        "ranks with certificates need a secret, too, by which they are let in and agree on "
        "who is left: set WEIR_SECRET or WEIR_SECRET_FILE on all ranks");
  return weir_credentials_read(&session->credentials,
                               &(weir_credential_files){path[0], path[1], path[2]});
}

weir_status weir_session_find_tls(weir_session *session, const weir_options *options) {
  const char *text = getenv("WEIR_TLS");
  bool asked = false, told = false;
  weir_status status = WEIR_OK;
  if (options->tls != NULL) status = read_tls(options->tls, "options.tls", &asked);
  if (status == WEIR_OK && text != NULL) status = read_tls(text, "WEIR_TLS", &told);
  session->plain = asked || told;
  return status == WEIR_OK ? find_certificate(session, options) : status;
}

void weir_session_forget_secret(weir_session *session) {
  explicit_bzero(session->secret, sizeof session->secret);
  session->secret_bytes = 0;
}
