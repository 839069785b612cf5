#include "collectives/transports/tcp_tls.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/log.h"

#define RECORD ((size_t)16 * 1024) /* the most that one of TLS holds */
#define READ_AHEAD (4 * RECORD)
#define RECORD_HEAD 5 /* kind, version, length of what follows */
/* What a record has beyond what it says: its inner kind and the cipher's tag (RFC 8446, 5.2). */
#define RECORD_EXTRA 17
#define KEY_UPDATE 5 /* bytes of what is said beside messages, but for alerts, which have fewer */
/* AES-GCM is safe for 2^24.5 full records under one key (RFC 8446, section 5.5). */
#ifndef KEY_BYTES /* tests take less */
#define KEY_BYTES ((uint64_t)1 << 36)
#endif

typedef struct tcp_tls {
  SSL *ssl;
  tcp_peer *peer; /* whose descriptor it is */
  bool shaken;
  bool told;    /* with certificates: this side has proved the group's key, too */
  size_t heard; /* bytes of the other's proof */
  unsigned char proof[WEIR_PROOF_BYTES];
  unsigned long broken; /* OpenSSL's code of what has failed the handshake */
  bool drained;         /* the last read has taken all that the socket had */
  bool ended;           /* the other side has closed the connection */
  int error;            /* errno of the last system call */
  unsigned char key[WEIR_PROOF_BYTES];
  char identity[64];
  size_t held;    /* bytes of `out` that OpenSSL wants to be given again */
  uint64_t under; /* bytes sent under the present key */
  /* The record that has come in part. */
  unsigned char head[RECORD_HEAD];
  size_t headed;          /* bytes of its head */
  size_t length, missing; /* of what follows that: by the head, and still to come */
  unsigned char out[RECORD];
} tcp_tls;

/* --- bytes to and from the socket ------------------------------------------------------------- */

static int write_some(BIO *bio, const char *data, int bytes) {
  tcp_tls *tls = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(tls->peer->fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  tls->error = sent < 0 ? errno : 0;
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return (int)sent;
}

/* Where records begin and end, by what has come.  Their heads are read before the cipher can vouch
 * for them. */
static void follow(tcp_tls *tls, const unsigned char *data, size_t bytes) {
  while (bytes > 0) {
    size_t part = 1;
    if (tls->headed < RECORD_HEAD) {
      tls->head[tls->headed++] = *data;
      if (tls->headed == RECORD_HEAD)
        tls->length = tls->missing = (size_t)tls->head[3] << 8 | tls->head[4];
    } else {
      part = bytes < tls->missing ? bytes : tls->missing;
      tls->missing -= part;
    }
    if (tls->headed == RECORD_HEAD && tls->missing == 0) tls->headed = 0;
    data += part;
    bytes -= part;
  }
}

static int read_some(BIO *bio, char *data, int bytes) {
  tcp_tls *tls = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(tls->peer->fd, data, (size_t)bytes, MSG_DONTWAIT);
  tls->error = got < 0 ? errno : 0;
  tls->drained = got < bytes;
  tls->ended = tls->ended || got == 0;
  if (got > 0) follow(tls, (const unsigned char *)data, (size_t)got);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return (int)got;
}

static long control(BIO *bio, int what, long number, void *pointer) {
  (void)bio, (void)number, (void)pointer;
  return what == BIO_CTRL_FLUSH; /* nothing is kept back */
}

/* Sessions belong to it, as OpenSSL sees it. */
static const unsigned char context_name[] = "weir";

/* --- the key ---------------------------------------------------------------------------------- */

static SSL_SESSION *session_of(SSL *ssl) {
  static const unsigned char suite[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
  const tcp_tls *tls = SSL_get_app_data(ssl);
  SSL_SESSION *session = SSL_SESSION_new();
  if (session != NULL && SSL_SESSION_set1_master_key(session, tls->key, sizeof tls->key) == 1 &&
      SSL_SESSION_set1_id_context(session, context_name, sizeof context_name) == 1 &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return NULL;
}

/* Of the one that calls. */
static int offer(SSL *ssl, const EVP_MD *digest, const unsigned char **identity, size_t *bytes,
                 SSL_SESSION **session) {
  const tcp_tls *tls = SSL_get_app_data(ssl);
  *session = digest == NULL || EVP_MD_is_a(digest, "SHA256") ? session_of(ssl) : NULL;
  *identity = (const unsigned char *)tls->identity;
  *bytes = strlen(tls->identity);
  return *session != NULL;
}

/* Of the one that is called; without a session it has nothing to prove itself by, and ends. */
static int accept_key(SSL *ssl, const unsigned char *identity, size_t bytes,
                      SSL_SESSION **session) {
  const tcp_tls *tls = SSL_get_app_data(ssl);
  const bool same = bytes == strlen(tls->identity) && memcmp(identity, tls->identity, bytes) == 0;
  *session = same ? session_of(ssl) : NULL;
  return 1;
}

/* --- what all connections share --------------------------------------------------------------- */

static SSL_CTX *context;   /* of connections by key; NULL: there can be none */
static unsigned long lack; /* OpenSSL's code of why not */
static BIO_METHOD *method;

bool tcp_tls_configure(SSL_CTX *any) {
  SSL_CTX_set_verify(any, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  (void)SSL_CTX_set_session_cache_mode(any, SSL_SESS_CACHE_OFF);
  (void)SSL_CTX_set_mode(any, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(any, 1);
  SSL_CTX_set_default_read_buffer_len(any, READ_AHEAD);
  return SSL_CTX_set_session_id_context(any, context_name, sizeof context_name) == 1 &&
         SSL_CTX_set_min_proto_version(any, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_max_proto_version(any, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_ciphersuites(any, "TLS_AES_128_GCM_SHA256") == 1 &&
         SSL_CTX_set1_groups_list(any, "X25519") == 1 && SSL_CTX_set_num_tickets(any, 0) == 1;
}

static void prepare(void) {
  context = SSL_CTX_new(TLS_method());
  method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weir");
  /* Whoever answers without the key has a certificate at best, and none is trusted. */
  if (context != NULL) SSL_CTX_set_psk_use_session_callback(context, offer);
  if (context != NULL) SSL_CTX_set_psk_find_session_callback(context, accept_key);
  const bool good = context != NULL && method != NULL && tcp_tls_configure(context) &&
                    BIO_meth_set_write(method, write_some) == 1 &&
                    BIO_meth_set_read(method, read_some) == 1 &&
                    BIO_meth_set_ctrl(method, control) == 1;
  if (good) return;
  lack = ERR_peek_last_error();
  SSL_CTX_free(context);
  context = NULL;
}

weir_status tcp_tls_lacks(unsigned long code) {
  const char *why = ERR_reason_error_string(code);
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "OpenSSL, as it is set up here, cannot do TLS 1.3 by TLS_AES_128_GCM_SHA256 and "
                   "X25519: %s",
                   why != NULL ? why : "it does not say why");
}

/* --- a connection ----------------------------------------------------------------------------- */

void tcp_tls_free(tcp_tls *tls) {
  if (tls == NULL) return;
  SSL_free(tls->ssl);
  OPENSSL_cleanse(tls, sizeof *tls);
  free(tls);
}

/* Its key is of this group and this connection alone; the lower rank is the one that is called. */
static void find_key(const tcp *self, int way, tcp_tls *tls) {
  const int own = self->base.rank, peer = way % self->base.size;
  (void)snprintf(tls->identity, sizeof tls->identity, "weir %016" PRIx64 " %d %d %d", self->job,
                 own < peer ? own : peer, own < peer ? peer : own, way / self->base.size);
  const weir_piece piece = {tls->identity, strlen(tls->identity)};
  weir_prove(&self->group_key, "weir tls 1.3 psk", &piece, 1, tls->key);
}

static weir_status begin(const tcp *self, int way, SSL_CTX *by) {
  tcp_peer *p = &self->peer[way];
  tcp_tls *tls = calloc(1, sizeof *tls);
  BIO *bio = BIO_new(method);
  if (tls != NULL) tls->ssl = bio != NULL ? SSL_new(by) : NULL;
  if (tls == NULL || tls->ssl == NULL || SSL_set_app_data(tls->ssl, tls) != 1) {
    BIO_free(bio);
    tcp_tls_free(tls);
    return weir_fail(WEIR_E_NOMEM, "no memory to encrypt a connection");
  }
  BIO_set_data(bio, tls);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls->ssl, bio, bio);
  tls->peer = p;
  find_key(self, way, tls);
  if (self->base.rank < way % self->base.size)
    SSL_set_accept_state(tls->ssl);
  else
    SSL_set_connect_state(tls->ssl);
  p->tls = tls;
  return WEIR_OK;
}

/* --- the handshake ---------------------------------------------------------------------------- */

/* What to wait for, after an operation that did not succeed; 0: it has failed. */
static short wait_for(tcp_tls *tls, int result) {
  const int error = SSL_get_error(tls->ssl, result);
  if (error == SSL_ERROR_WANT_READ) return POLLIN;
  if (error == SSL_ERROR_WANT_WRITE) return POLLOUT;
  tls->broken = ERR_peek_error();
  return 0;
}

/* The proof of one side that it knows the group's key, bound to this connection by what only its
 * two ends have agreed on. */
static bool prove(const tcp_tls *tls, bool called, unsigned char proof[WEIR_PROOF_BYTES]) {
  unsigned char agreed[32];
  weir_key key;
  static const char label[] = "EXPORTER-Channel-Binding"; /* RFC 9266 */
  if (SSL_export_keying_material(tls->ssl, agreed, sizeof agreed, label, sizeof label - 1, NULL, 0,
                                 0) != 1)
    return false;
  memcpy(key.bytes, tls->key, sizeof key.bytes);
  const weir_piece piece = {agreed, sizeof agreed};
  weir_prove(&key, called ? "weir tls called" : "weir tls caller", &piece, 1, proof);
  OPENSSL_cleanse(&key, sizeof key);
  return true;
}

/* Behind a handshake by certificates, as shake. */
static short vouch(tcp_tls *tls) {
  unsigned char due[WEIR_PROOF_BYTES];
  const bool called = SSL_is_server(tls->ssl) == 1;
  if (!prove(tls, called, due)) return 0;
  if (!tls->told) {
    const int result = SSL_write(tls->ssl, due, sizeof due);
    if (result <= 0) return wait_for(tls, result);
    tls->told = true;
  }
  while (tls->heard < sizeof tls->proof) {
    const int result =
        SSL_read(tls->ssl, tls->proof + tls->heard, (int)(sizeof tls->proof - tls->heard));
    if (result <= 0) return wait_for(tls, result);
    tls->heard += (size_t)result;
  }
  tls->shaken = prove(tls, !called, due) && weir_proof_equal(due, tls->proof, sizeof due);
  return 0;
}

/* What to wait for on it; 0: nothing any more, and it has succeeded or not. */
static short shake(tcp_tls *tls, tcp_seal by) {
  ERR_clear_error();
  const int done = SSL_do_handshake(tls->ssl);
  if (done != 1) return wait_for(tls, done);
  if (by == TCP_BY_CERTIFICATE) return vouch(tls);
  tls->shaken = SSL_session_reused(tls->ssl) == 1; /* by the key, that is */
  return 0;
}

/* What was wrong with one of the two certificates; WEIR_OK: nothing, as far as this rank knows. */
static weir_status blame_certificate(const tcp_tls *tls, int rank) {
  const long verdict = SSL_get_verify_result(tls->ssl);
  if (verdict != X509_V_OK)
    return weir_fail(WEIR_E_PROTOCOL, "the certificate of rank %d is refused: %s", rank,
                     X509_verify_cert_error_string(verdict));
  if (ERR_GET_REASON(tls->broken) < SSL_AD_REASON_OFFSET) return WEIR_OK;
  return weir_fail(WEIR_E_PROTOCOL, "rank %d refused this rank's certificate: %s", rank,
                   ERR_reason_error_string(tls->broken));
}

/* The others are told, each of which shakes hands with the same rank. */
static weir_status blame(tcp *self, int way, bool late) {
  const tcp_tls *tls = self->peer[way].tls;
  const int rank = way % self->base.size;
  if (late) return tcp_blame_silence(self, rank, 0);
  if (self->sealed == TCP_BY_CERTIFICATE) {
    const weir_status status = blame_certificate(tls, rank);
    if (status != WEIR_OK) return tcp_blame_frame(self, rank, status);
  }
  if (tls->ended || tls->error != 0) return tcp_blame_closed(self, rank, 0, tls->error);
  return tcp_blame_frame(
      self, rank,
      weir_fail(WEIR_E_PROTOCOL, "who is on the connection to rank %d does not know its key",
                rank));
}

static void hang_up(const tcp *self, int way) {
  tcp_peer *p = &self->peer[way];
  if (self->sealed == TCP_BY_CERTIFICATE &&
      blame_certificate(p->tls, way % self->base.size) != WEIR_OK)
    weir_log(WEIR_LOG_WARN, "%s", weir_last_error());
  tcp_tls_free(p->tls);
  p->tls = NULL;
  (void)close(p->fd);
  p->fd = -1;
}

/* A step further with all that still shake hands: how many that are.  *failed: the first that
 * cannot any more, -1: none. */
static size_t turn(tcp *self, bool late, int *failed) {
  size_t count = 0;
  *failed = -1;
  for (int way = 0; way < self->streams * self->base.size && *failed < 0; way++) {
    const tcp_peer *p = &self->peer[way];
    if (p->tls == NULL || p->tls->shaken) continue;
    const short events = shake(p->tls, self->sealed);
    if (p->tls->shaken) continue;
    if (events == 0 || late) *failed = way;
    self->poll[count++] = (struct pollfd){.fd = p->fd, .events = events};
  }
  return count;
}

weir_status tcp_tls_open(tcp *self, double deadline_s, bool strict) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  weir_status status = WEIR_OK;
  weir_end end;
  size_t count = 1;
  bool told = false; /* by another rank that all is over */
  (void)pthread_once(&once, prepare);
  if (context == NULL) return tcp_tls_lacks(lack);
  SSL_CTX *by =
      self->sealed == TCP_BY_CERTIFICATE ? weir_credentials_context(self->credentials) : context;
  for (int way = 0; status == WEIR_OK && way < self->streams * self->base.size; way++)
    if (self->peer[way].fd >= 0) status = begin(self, way, by);
  while (status == WEIR_OK && count > 0) {
    const bool late = weir_now_s() >= deadline_s;
    int failed;
    count = turn(self, late, &failed);
    if (failed >= 0 && strict) return blame(self, failed, late);
    if (failed >= 0) {
      hang_up(self, failed);
      continue;
    }
    if (told) return tcp_blame_abort(self, &end); /* and it has not been told why by TLS itself */
    if (count == 0) break;
    self->poll[count] = (struct pollfd){.fd = self->wake, .events = POLLIN};
    (void)tcp_poll_until(self->poll, count + 1, deadline_s);
    told = tcp_abort_seen(self, &end);
  }
  if (status == WEIR_OK)
    weir_log(
        WEIR_LOG_INFO,
        "messages over TCP are encrypted (TLS 1.3) by this process, not the kernel: %s",
        self->sealed == TCP_BY_CERTIFICATE ? "by certificates and the secret" : "by the secret");
  return status;
}

/* --- messages --------------------------------------------------------------------------------- */

/* Others on this thread may have left errors behind, for which one of ours would be taken.  To
 * clear where there are none takes longer than to look. */
static void forget_errors(void) {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

/* Why an operation on it has failed: errno, or 0 at the end of the connection. */
static int why(tcp_tls *tls, int result) {
  const int error = SSL_get_error(tls->ssl, result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return EAGAIN;
  const int reason = ERR_GET_REASON(ERR_peek_error());
  /* Damage comes first: to tell the other side of it may have failed, too.  Told by the other side
   * that what it got was damaged, it will say the same of this rank. */
  if (error == SSL_ERROR_SSL && reason != SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return reason >= SSL_AD_REASON_OFFSET ? EPROTO : EBADMSG;
  if (tls->ended || error == SSL_ERROR_ZERO_RETURN) return 0;
  return tls->error != 0 ? tls->error : EBADMSG;
}

/* The next record: the bytes from `at` on. */
static size_t collect(tcp_tls *tls, const struct iovec *piece, size_t pieces, size_t at) {
  size_t count = 0;
  for (size_t i = 0; i < pieces && count < RECORD; i++) {
    if (at >= piece[i].iov_len) {
      at -= piece[i].iov_len;
      continue;
    }
    const size_t left = piece[i].iov_len - at;
    const size_t part = left < RECORD - count ? left : RECORD - count;
    memcpy(tls->out + count, (const unsigned char *)piece[i].iov_base + at, part);
    count += part;
    at = 0;
  }
  return count;
}

/* A new key for what follows, which the other side is told in its place. */
static void renew(tcp_tls *tls, size_t bytes) {
  tls->under += bytes;
  if (tls->under < KEY_BYTES) return;
  tls->under = 0;
  (void)SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
}

ssize_t tcp_tls_send(tcp_peer *p, const struct iovec *piece, size_t pieces) {
  tcp_tls *tls = p->tls;
  size_t sent = 0;
  for (;;) {
    const size_t bytes = tls->held > 0 ? tls->held : collect(tls, piece, pieces, sent);
    if (bytes == 0) return (ssize_t)sent;
    forget_errors();
    const int result = SSL_write(tls->ssl, tls->out, (int)bytes);
    tls->held = result > 0 ? 0 : bytes;
    if (result <= 0) {
      errno = why(tls, result);
      if (errno == 0) errno = EPIPE;
      return sent > 0 ? (ssize_t)sent : -1;
    }
    sent += (size_t)result;
    renew(tls, (size_t)result);
  }
}

ssize_t tcp_tls_recv(tcp_peer *p, const struct iovec *piece, size_t pieces) {
  tcp_tls *tls = p->tls;
  size_t got = 0, at = 0;
  for (size_t i = 0; i < pieces;) {
    if (at == piece[i].iov_len) {
      i++;
      at = 0;
      continue;
    }
    const size_t room = piece[i].iov_len - at;
    /* There is no more: to be told so takes a system call, and half as long as a record. */
    if (got > 0 && tls->drained && SSL_has_pending(tls->ssl) == 0) return (ssize_t)got;
    forget_errors();
    const int result = SSL_read(tls->ssl, (unsigned char *)piece[i].iov_base + at,
                                room < INT32_MAX ? (int)room : INT32_MAX);
    if (result <= 0) {
      errno = why(tls, result);
      /* After damage nothing comes that a poll would tell of. */
      const bool later = got > 0 && (errno == EAGAIN || errno == 0);
      return later ? (ssize_t)got : errno == 0 ? 0 : -1;
    }
    at += (size_t)result;
    got += (size_t)result;
  }
  return (ssize_t)got;
}

bool tcp_tls_torn(const tcp_peer *p, size_t due) {
  const tcp_tls *tls = p->tls;
  return tls->headed == RECORD_HEAD &&
         tls->length > RECORD_EXTRA + (due > KEY_UPDATE ? due : KEY_UPDATE);
}
