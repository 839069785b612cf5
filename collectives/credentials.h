/* Who a rank is to the others of its job, where they have certificates: its own one with the key to
 * it, and the authority whose certificates it believes. */
#ifndef WEIR_COLLECTIVES_CREDENTIALS_H
#define WEIR_COLLECTIVES_CREDENTIALS_H

#include <weir/status.h>

/* Files in PEM.  The certificate's may go on with those that lead from it to the authority, and the
 * authority's may have several. */
typedef struct weir_credential_files {
  const char *certificate, *key, *authority;
} weir_credential_files;

/* The files' contents, held by all who connect by them. */
typedef struct weir_credentials weir_credentials;

/* Read them and see whether they fit: the key is the certificate's and closed to other users, and
 * the certificate is in force and comes from the authority, for servers and for clients.
 * WEIR_E_IO: a file, which the message names, cannot be read.  WEIR_E_INVALID: the message says
 * which file is no good, and why. */
weir_status weir_credentials_read(weir_credentials **out, const weir_credential_files *files);
/* Another holder of the same, who lets go of them, too.  NULL is allowed. */
weir_credentials *weir_credentials_hold(weir_credentials *credentials);
void weir_credentials_release(weir_credentials *credentials);

/* What OpenSSL is to shake hands by.  The files are read anew, as certificates are replaced while a
 * training runs; where that fails the log says why, and what was read before still counts. */
struct ssl_ctx_st;
struct ssl_ctx_st *weir_credentials_context(weir_credentials *credentials);

#endif
