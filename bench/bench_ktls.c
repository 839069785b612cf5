/* What the kernel's TLS would do for us, were it used: 64 MiB through a connection of TLS 1.3 by a
 * pre-shared key, in user space and with SSL_OP_ENABLE_KTLS, and a new key after that.  Prints
 * which half the kernel has taken over, the processor's time of both ends, and whether what follows
 * the new key is understood.
 *
 *   bench_ktls [MIB] */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RECORD 16384
#define WORD "new key"

typedef struct side {
  SSL *ssl;
  int fd;
  bool sends, kernel, understood; /* kernel: its half is the kernel's */
  size_t bytes;
  double seconds;
  char why[128];
} side;

static double spent_s(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- the key, as in collectives/transports/tcp_tls.c ------------------------------------------ */

static SSL_SESSION *session_of(SSL *ssl) {
  static const unsigned char suite[] = {0x13, 0x01}, key[32] = {7};
  SSL_SESSION *session = SSL_SESSION_new();
  if (session == NULL || SSL_SESSION_set1_master_key(session, key, sizeof key) != 1 ||
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1)
    abort();
  return session;
}

static int offer(SSL *ssl, const EVP_MD *digest, const unsigned char **identity, size_t *bytes,
                 SSL_SESSION **session) {
  static const unsigned char name[] = "bench";
  (void)digest;
  *identity = name;
  *bytes = sizeof name;
  *session = session_of(ssl);
  return 1;
}

static int accept_key(SSL *ssl, const unsigned char *identity, size_t bytes,
                      SSL_SESSION **session) {
  (void)identity, (void)bytes;
  *session = session_of(ssl);
  return 1;
}

static SSL *connection(int fd, bool by_kernel) {
  SSL_CTX *context = SSL_CTX_new(TLS_method());
  if (context == NULL) abort();
  SSL_CTX_set_psk_use_session_callback(context, offer);
  SSL_CTX_set_psk_find_session_callback(context, accept_key);
  if (by_kernel) (void)SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS);
  SSL *ssl = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                     SSL_CTX_set_num_tickets(context, 0) == 1
                 ? SSL_new(context)
                 : NULL;
  SSL_CTX_free(context);
  if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) abort();
  return ssl;
}

/* --- the two ends ----------------------------------------------------------------------------- */

static void note(side *s) {
  const char *reason = ERR_reason_error_string(ERR_peek_error());
  (void)snprintf(s->why, sizeof s->why, "%s", reason != NULL ? reason : "the connection has ended");
}

static void send_all(side *s) {
  static unsigned char record[RECORD];
  s->kernel = BIO_get_ktls_send(SSL_get_wbio(s->ssl));
  const double begun_s = spent_s();
  for (size_t at = 0; at < s->bytes; at += RECORD)
    if (SSL_write(s->ssl, record, RECORD) != RECORD) {
      note(s);
      return;
    }
  s->seconds = spent_s() - begun_s;
  s->understood = SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
                  SSL_write(s->ssl, WORD, sizeof WORD) == sizeof WORD;
  if (!s->understood) note(s);
}

static void receive_all(side *s) {
  static unsigned char bytes[4 * RECORD];
  char word[sizeof WORD] = "";
  s->kernel = BIO_get_ktls_recv(SSL_get_rbio(s->ssl));
  const double begun_s = spent_s();
  for (size_t at = 0; at < s->bytes;) {
    const int got =
        SSL_read(s->ssl, bytes, (int)(s->bytes - at < sizeof bytes ? s->bytes - at : sizeof bytes));
    if (got <= 0) {
      note(s);
      return;
    }
    at += (size_t)got;
  }
  s->seconds = spent_s() - begun_s;
  s->understood = SSL_read(s->ssl, word, sizeof word) == sizeof word && strcmp(word, WORD) == 0;
  if (!s->understood) note(s);
}

static void *run(void *argument) {
  side *s = argument;
  if ((s->sends ? SSL_connect(s->ssl) : SSL_accept(s->ssl)) != 1) {
    note(s);
    return NULL;
  }
  if (s->sends)
    send_all(s);
  else
    receive_all(s);
  return NULL;
}

/* --- both ------------------------------------------------------------------------------------- */

static bool connect_both(int fd[2]) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof at;
  const int door = socket(AF_INET, SOCK_STREAM, 0);
  fd[0] = socket(AF_INET, SOCK_STREAM, 0);
  const bool there = bind(door, (const struct sockaddr *)&at, sizeof at) == 0 &&
                     listen(door, 1) == 0 &&
                     getsockname(door, (struct sockaddr *)&at, &length) == 0 &&
                     connect(fd[0], (const struct sockaddr *)&at, sizeof at) == 0;
  fd[1] = there ? accept(door, NULL, NULL) : -1;
  (void)close(door);
  return fd[1] >= 0;
}

static void tell(const side *s) {
  printf("  %-8s in %s: %.1f us a record; after a new key: %s%s\n",
         s->sends ? "sending" : "receiving", s->kernel ? "the kernel" : "user space",
         s->seconds * 1e6 * RECORD / (double)s->bytes, s->understood ? "goes on" : "failed, ",
         s->understood ? "" : s->why);
}

static bool play(bool by_kernel, size_t bytes) {
  int fd[2];
  pthread_t other;
  if (!connect_both(fd)) return false;
  side sender = {.ssl = connection(fd[0], by_kernel), .sends = true, .bytes = bytes};
  side receiver = {.ssl = connection(fd[1], by_kernel), .bytes = bytes};
  if (pthread_create(&other, NULL, run, &receiver) != 0) return false;
  (void)run(&sender);
  (void)shutdown(fd[0], SHUT_WR);
  (void)pthread_join(other, NULL);
  printf("%s:\n", by_kernel ? "with SSL_OP_ENABLE_KTLS" : "without");
  tell(&sender);
  tell(&receiver);
  SSL_free(sender.ssl);
  SSL_free(receiver.ssl);
  (void)close(fd[0]);
  (void)close(fd[1]);
  return true;
}

int main(int argc, char **argv) {
  const long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 64;
  if (argc > 2 || mib < 1 || mib > 65536) {
    (void)fprintf(stderr, "usage: bench_ktls [MIB], 1 to 65536\n");
    return 2;
  }
  printf("%s, %ld MiB in records of %d bytes\n", OpenSSL_version(OPENSSL_VERSION), mib, RECORD);
  return play(false, (size_t)mib << 20) && play(true, (size_t)mib << 20) ? 0 : 1;
}
