#include "collectives/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/log.h"
#include "collectives/transports/tcp_tls.h"

struct weir_credentials {
  int holders; /* all on the thread of one session */
  char *certificate, *key, *authority;
  SSL_CTX *context;
};

/* --- the files -------------------------------------------------------------------------------- */

/* Can it be read, and by none of the others that `closed` has the bits of? */
static weir_status look_at(const char *path, const char *what, mode_t closed) {
  struct stat found;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us up */
  const bool known = fd >= 0 && fstat(fd, &found) == 0;
  const int error = errno;
  if (fd >= 0) (void)close(fd);
  if (!known)
    return weir_fail(WEIR_E_IO, "%s: cannot read the %s: %s", path, what, strerror(error));
  if (!S_ISREG(found.st_mode))
    return weir_fail(WEIR_E_INVALID, "%s: the %s is not in a regular file", path, what);
  if ((found.st_mode & closed) != 0)
    return weir_fail(WEIR_E_INVALID, "%s: the %s is open to other users (mode %o; 600 is due)",
                     path, what, (unsigned)(found.st_mode & 0777));
  return WEIR_OK;
}

/* Why OpenSSL has refused something. */
static const char *reason(void) {
  const char *text = ERR_reason_error_string(ERR_peek_last_error());
  return text != NULL ? text : "OpenSSL does not say why";
}

/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *text, int room, int writing, void *asked) {
  (void)text, (void)room, (void)writing;
  *(bool *)asked = true;
  return -1;
}

static weir_status read_key(SSL_CTX *context, const weir_credentials *c) {
  bool asked = false;
  weir_status status = look_at(c->key, "key", 07);
  if (status != WEIR_OK) return status;
  SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  SSL_CTX_set_default_passwd_cb_userdata(context, &asked);
  const bool taken = SSL_CTX_use_PrivateKey_file(context, c->key, SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, NULL);
  SSL_CTX_set_default_passwd_cb(context, NULL);
  if (asked)
    return weir_fail(WEIR_E_INVALID,
                     "%s: the key is protected by a passphrase, and nobody can be asked for it",
                     c->key);
  const int why = ERR_GET_REASON(ERR_peek_last_error());
  if (!taken && (why == X509_R_KEY_VALUES_MISMATCH || why == X509_R_KEY_TYPE_MISMATCH))
    return weir_fail(WEIR_E_INVALID, "%s: the key is not that of the certificate in %s", c->key,
                     c->certificate);
  if (!taken)
    return weir_fail(WEIR_E_INVALID, "%s: no key in PEM is to be had from it: %s", c->key,
                     reason());
  return WEIR_OK;
}

static weir_status read_files(SSL_CTX *context, const weir_credentials *c) {
  weir_status status = look_at(c->certificate, "certificate", 0);
  if (status == WEIR_OK && SSL_CTX_use_certificate_chain_file(context, c->certificate) != 1)
    status = weir_fail(WEIR_E_INVALID, "%s: no certificate in PEM is to be had from it: %s",
                       c->certificate, reason());
  if (status == WEIR_OK) status = read_key(context, c);
  if (status == WEIR_OK) status = look_at(c->authority, "authority", 0);
  if (status == WEIR_OK && SSL_CTX_load_verify_file(context, c->authority) != 1)
    status = weir_fail(WEIR_E_INVALID, "%s: no authority in PEM is to be had from it: %s",
                       c->authority, reason());
  return status;
}

/* --- do they fit? ----------------------------------------------------------------------------- */

/* Every rank is called by some and calls others. */
static weir_status verify(SSL_CTX *context, const weir_credentials *c, int purpose) {
  STACK_OF(X509) *chain = NULL;
  X509_STORE_CTX *check = X509_STORE_CTX_new();
  int error = X509_V_ERR_OUT_OF_MEM;
  (void)SSL_CTX_get0_chain_certs(context, &chain);
  if (check != NULL &&
      X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), SSL_CTX_get0_certificate(context),
                          chain) == 1 &&
      X509_STORE_CTX_set_purpose(check, purpose) == 1)
    error = X509_verify_cert(check) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(check);
  X509_STORE_CTX_free(check);
  if (error == X509_V_OK) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   "%s: the certificate does not stand before the authority in %s: %s",
                   c->certificate, c->authority, X509_verify_cert_error_string(error));
}

static weir_status read_all(SSL_CTX **out, const weir_credentials *c) {
  ERR_clear_error();
  SSL_CTX *context = SSL_CTX_new(TLS_method());
  weir_status status = WEIR_OK;
  if (context == NULL || !tcp_tls_configure(context)) status = tcp_tls_lacks(ERR_peek_last_error());
  /* The others have the authority; what leads to it is in the certificate's file. */
  if (status == WEIR_OK) (void)SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
  if (status == WEIR_OK) status = read_files(context, c);
  if (status == WEIR_OK) status = verify(context, c, X509_PURPOSE_SSL_SERVER);
  if (status == WEIR_OK) status = verify(context, c, X509_PURPOSE_SSL_CLIENT);
  ERR_clear_error();
  if (status != WEIR_OK) {
    SSL_CTX_free(context);
    return status;
  }
  *out = context;
  return WEIR_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

weir_status weir_credentials_read(weir_credentials **out, const weir_credential_files *files) {
  weir_credentials *c = calloc(1, sizeof *c);
  *out = NULL;
  if (c == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for certificates");
  c->holders = 1;
  c->certificate = strdup(files->certificate);
  c->key = strdup(files->key);
  c->authority = strdup(files->authority);
  weir_status status = WEIR_OK;
  if (c->certificate == NULL || c->key == NULL || c->authority == NULL)
    status = weir_fail(WEIR_E_NOMEM, "no memory for certificates");
  if (status == WEIR_OK) status = read_all(&c->context, c);
  if (status == WEIR_OK)
    *out = c;
  else
    weir_credentials_release(c);
  return status;
}

weir_credentials *weir_credentials_hold(weir_credentials *c) {
  if (c != NULL) c->holders++;
  return c;
}

void weir_credentials_release(weir_credentials *c) {
  if (c == NULL || --c->holders > 0) return;
  SSL_CTX_free(c->context);
  free(c->certificate);
  free(c->key);
  free(c->authority);
  free(c);
}

SSL_CTX *weir_credentials_context(weir_credentials *c) {
  SSL_CTX *anew = NULL;
  if (read_all(&anew, c) == WEIR_OK) {
    SSL_CTX_free(c->context); /* connections keep it as long as they need it */
    c->context = anew;
  } else {
    weir_log(WEIR_LOG_WARN, "the certificate that was read before is used on: %s",
             weir_last_error());
  }
  return c->context;
}
