/* TLS between ranks: what travels cannot be read, is what was sent, goes on under new keys and
 * after a loss; and whoever is on a connection without the group's key does not get through the
 * handshake, with a certificate neither. */
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "ranks.h"

/* A key for every so many bytes, so that they change while the tests talk. */
#define KEY_BYTES ((uint64_t)300 * 1000)
#include <criterion/criterion.h>
#include "collectives/transports/tcp_tls.c"

#define SECRET_TEXT "of this test alone"

/* --- what is said is heard -------------------------------------------------------------------- */

#define MOST ((size_t)3 << 20)
static const size_t lengths[] = {0, 1, 100, 16384, 16385, 262144, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static unsigned char letter(size_t i, int rank, size_t length) {
  return (unsigned char)(i * 31 + i / 4099 + (size_t)rank * 7 + length);
}

/* All at once to everybody, so that the sockets' buffers are full both ways. */
static weir_status everybody_to_everybody(weir_transport *t, size_t length, uint64_t step) {
  const weir_tag tag = {1, step, 2, 0};
  weir_send send[GROUP_MAX];
  weir_recv recv[GROUP_MAX];
  unsigned char *out = malloc(length + 1), *in = malloc((length + 1) * (size_t)t->size);
  size_t count = 0;
  weir_status status = WEIR_OK;
  if (out == NULL || in == NULL) abort();
  for (size_t i = 0; i < length; i++) out[i] = letter(i, t->rank, length);
  for (int r = 0; r < t->size; r++) {
    if (r == t->rank) continue;
    send[count] = (weir_send){.peer = r, .data = out, .bytes = length};
    recv[count++] =
        (weir_recv){.peer = r, .data = in + (size_t)r * (length + 1), .capacity = length};
  }
  status = t->ops->transfer(t, &tag, send, count, recv, count, weir_now_s() + 30.0);
  for (size_t k = 0; k < count && status == WEIR_OK; k++) {
    const unsigned char *got = recv[k].data;
    size_t i = 0;
    while (i < length && got[i] == letter(i, recv[k].peer, length)) i++;
    if (i < length || recv[k].bytes != length)
      status = weir_fail(WEIR_E_INTERNAL, "byte %zu of %zu from rank %d is wrong", i, length,
                         recv[k].peer);
  }
  free(out);
  free(in);
  return status;
}

static weir_status talk(weir_transport *t, void *user) {
  const bool *sealed = user;
  weir_status status = WEIR_OK;
  for (int way = 0; way < ((tcp *)t)->streams * t->size; way++)
    if ((((tcp *)t)->peer[way].tls != NULL) != (*sealed && way % t->size != t->rank))
      return weir_fail(WEIR_E_INTERNAL, "way %d is encrypted, or not", way);
  for (size_t i = 0; i < 2 * LENGTHS && status == WEIR_OK; i++)
    status = everybody_to_everybody(t, lengths[i % LENGTHS], i);
  return status;
}

static void expect_talk(int size, int streams, bool plain) {
  bool sealed = !plain;
  ENDED group g = group_new(GROUP_TCP, size, talk, &sealed);
  g.secret = SECRET_TEXT;
  g.streams = streams;
  g.plain = plain;
  group_run(&g);
  group_well(&g);
}

Test(tls, what_is_said_is_heard) {
  expect_talk(2, 1, false);
  expect_talk(3, 3, false);
  expect_talk(4, 1, false);
  expect_talk(3, 2, true);
}

static void rank_0_is_plain(group *g, int rank) { g->plain = rank == 0; }
static void rank_1_is_plain(group *g, int rank) { g->plain = rank == 1; }

/* Where OpenSSL may do what a standard allows alone, say. */
Test(tls, what_openssl_lacks_is_said) {
  bool sealed = true;
  cr_assert_eq(EVP_set_default_properties(NULL, "fips=yes"), 1);
  ENDED group g = group_new(GROUP_TCP, 2, talk, &sealed);
  g.secret = SECRET_TEXT;
  group_run(&g);
  for (int r = 0; r < 2; r++)
    cr_expect(g.result[r].status == WEIR_E_UNSUPPORTED &&
                  strstr(g.result[r].message, "cannot do TLS 1.3") != NULL,
              "%s: %s", weir_status_name(g.result[r].status), g.result[r].message);
}

Test(tls, who_does_not_encrypt_where_others_do_is_refused) {
  for (int plain = 0; plain < 2; plain++) {
    bool sealed = true;
    ENDED group g = group_new(GROUP_TCP, 2, talk, &sealed);
    g.secret = SECRET_TEXT;
    g.timeout_s = 3.0;
    g.prepare = plain == 0 ? rank_0_is_plain : rank_1_is_plain;
    group_run(&g);
    cr_assert_eq(g.result[1].status, WEIR_E_MISMATCH, "%s", g.result[1].message);
    cr_assert(strstr(g.result[1].message, "WEIR_TLS") != NULL, "%s", g.result[1].message);
  }
}

/* --- what passes ------------------------------------------------------------------------------ */

/* Two ends of a connection that nobody has met over. */
typedef struct end {
  tcp *self;
  weir_status status;
  char said[256];
  double deadline_s;
} end;

static end make_end(int rank, int fd, unsigned char key) {
  end e = {0};
  cr_assert_eq(tcp_create(&e.self, 1, rank, 2, 1), WEIR_OK);
  e.self->peer[1 - rank].fd = fd;
  memset(e.self->group_key.bytes, key, sizeof e.self->group_key.bytes);
  e.deadline_s = weir_now_s() + 20.0;
  return e;
}

static void *open_end(void *argument) {
  end *e = argument;
  e->status = tcp_tls_open(e->self, e->deadline_s, true);
  (void)snprintf(e->said, sizeof e->said, "%.255s", weir_last_error());
  return NULL;
}

static void open_both(end *a, end *b) {
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, open_end, a), 0);
  (void)open_end(b);
  (void)pthread_join(thread, NULL);
}

static void end_both(end *a, end *b) {
  a->self->base.ops->destroy(&a->self->base);
  b->self->base.ops->destroy(&b->self->base);
}

static void make_pair(int pair[2]) {
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
}

Test(tls, what_passes_is_not_what_was_said) {
  static char words[] = "weights, weights, weights, and more of them";
  unsigned char passed[1024], heard[sizeof words];
  int pair[2];
  make_pair(pair);
  end a = make_end(0, pair[0], 1), b = make_end(1, pair[1], 1);
  open_both(&a, &b);
  cr_assert_eq(a.status, WEIR_OK, "%s", a.said);
  cr_assert_eq(b.status, WEIR_OK, "%s", b.said);
  struct iovec out = {words, sizeof words}, in = {heard, sizeof heard};
  cr_assert_eq(tcp_tls_send(&a.self->peer[1], &out, 1), (ssize_t)sizeof words);
  const ssize_t count = recv(pair[1], passed, sizeof passed, MSG_PEEK);
  cr_assert_gt(count, (ssize_t)sizeof words);
  cr_assert_null(memmem(passed, (size_t)count, "weights", 7));
  cr_assert_eq(tcp_tls_recv(&b.self->peer[0], &in, 1), (ssize_t)sizeof words);
  cr_assert_eq(memcmp(heard, words, sizeof words), 0);
  /* Nothing more; and then the end. */
  cr_assert(tcp_tls_recv(&b.self->peer[0], &in, 1) == -1 && errno == EAGAIN);
  a.self->base.ops->destroy(&a.self->base);
  cr_assert_eq(tcp_tls_recv(&b.self->peer[0], &in, 1), 0);
  b.self->base.ops->destroy(&b.self->base);
}

/* Each bit of a record, flipped on the way. */
Test(tls, no_bit_can_be_flipped) {
  static char word[] = "eight..";
  for (size_t bit = 0;; bit++) {
    unsigned char record[256], heard[sizeof word];
    int pair[2], to[2];
    make_pair(pair);
    make_pair(to);
    end a = make_end(0, pair[0], 1), b = make_end(1, pair[1], 1);
    open_both(&a, &b);
    struct iovec out = {word, sizeof word}, in = {heard, sizeof heard};
    cr_assert_eq(tcp_tls_send(&a.self->peer[1], &out, 1), (ssize_t)sizeof word);
    const ssize_t bytes = recv(pair[1], record, sizeof record, 0);
    cr_assert(bytes > 0 && bytes < (ssize_t)sizeof record);
    const bool last = bit / 8 == (size_t)bytes;
    if (!last) record[bit / 8] ^= (unsigned char)(1u << bit % 8);
    b.self->peer[0].fd = to[0];
    cr_assert_eq(send(to[1], record, (size_t)bytes, 0), bytes);
    const ssize_t got = tcp_tls_recv(&b.self->peer[0], &in, 1);
    /* Of a longer length the rest is waited for, but it is longer than what is due. */
    const bool torn = tcp_tls_torn(&b.self->peer[0], sizeof word);
    if (last)
      cr_assert(got == (ssize_t)sizeof word && !torn);
    else
      cr_assert(got == -1 && (errno == EBADMSG || (errno == EAGAIN && torn)), "bit %zu: %zd, %s",
                bit, got, strerror(errno));
    (void)close(pair[1]);
    (void)close(to[1]);
    end_both(&a, &b);
    if (last) return;
  }
}

/* Who has sent it is gone, and cannot be told. */
Test(tls, damage_is_damage_though_nobody_is_there) {
  unsigned char record[256], word[] = "eight..", heard[sizeof word];
  int pair[2], to[2];
  make_pair(pair);
  make_pair(to);
  end a = make_end(0, pair[0], 1), b = make_end(1, pair[1], 1);
  open_both(&a, &b);
  struct iovec out = {word, sizeof word}, in = {heard, sizeof heard};
  cr_assert_eq(tcp_tls_send(&a.self->peer[1], &out, 1), (ssize_t)sizeof word);
  const ssize_t bytes = recv(pair[1], record, sizeof record, 0);
  record[bytes - 1] ^= 1;
  b.self->peer[0].fd = to[0];
  cr_assert_eq(send(to[1], record, (size_t)bytes, 0), bytes);
  (void)close(to[1]);
  cr_assert(tcp_tls_recv(&b.self->peer[0], &in, 1) == -1 && errno == EBADMSG, "%s",
            strerror(errno));
  (void)close(pair[1]);
  end_both(&a, &b);
}

/* What has come in part is no damage, and longer than a shorter message. */
Test(tls, a_record_may_come_in_parts) {
  unsigned char record[1024], words[300] = "in parts", heard[sizeof words];
  int pair[2], to[2];
  make_pair(pair);
  make_pair(to);
  end a = make_end(0, pair[0], 1), b = make_end(1, pair[1], 1);
  open_both(&a, &b);
  struct iovec out = {words, sizeof words}, in = {heard, sizeof heard};
  tcp_peer *p = &b.self->peer[0];
  cr_assert_eq(tcp_tls_send(&a.self->peer[1], &out, 1), (ssize_t)sizeof words);
  const ssize_t bytes = recv(pair[1], record, sizeof record, 0);
  p->fd = to[0];
  for (ssize_t i = 0; i < bytes; i++) {
    cr_assert(tcp_tls_recv(p, &in, 1) == -1 && errno == EAGAIN);
    cr_assert(!tcp_tls_torn(p, sizeof words));
    cr_assert_eq(tcp_tls_torn(p, sizeof words - 1), i >= RECORD_HEAD);
    cr_assert_eq(send(to[1], &record[i], 1, 0), 1);
  }
  cr_assert_eq(tcp_tls_recv(p, &in, 1), (ssize_t)sizeof words);
  cr_assert_eq(memcmp(heard, words, sizeof words), 0);
  end_both(&a, &b);
  (void)close(pair[1]);
  (void)close(to[1]);
}

/* --- strangers -------------------------------------------------------------------------------- */

Test(tls, who_does_not_know_the_key_does_not_get_through) {
  int pair[2];
  make_pair(pair);
  end a = make_end(0, pair[0], 1), b = make_end(1, pair[1], 2);
  open_both(&a, &b);
  cr_assert_neq(a.status, WEIR_OK);
  cr_assert_eq(b.status, WEIR_E_PROTOCOL, "%s", b.said);
  end_both(&a, &b);
}

Test(tls, who_says_nothing_is_given_up_in_time) {
  for (int rank = 0; rank < 2; rank++) {
    int pair[2];
    make_pair(pair);
    end a = make_end(rank, pair[0], 1);
    const double begun_s = weir_now_s();
    a.deadline_s = begun_s + 0.3;
    (void)open_end(&a);
    cr_assert_eq(a.status, WEIR_E_TIMEOUT, "%s", a.said);
    cr_assert(strstr(a.said, rank == 0 ? "rank 1" : "rank 0") != NULL, "%s", a.said);
    cr_assert_lt(weir_now_s() - begun_s, 5.0);
    a.self->base.ops->destroy(&a.self->base);
    (void)close(pair[1]);
  }
}

Test(tls, who_hangs_up_is_gone) {
  int pair[2];
  make_pair(pair);
  (void)close(pair[1]);
  end a = make_end(0, pair[0], 1);
  (void)open_end(&a);
  cr_assert_eq(a.status, WEIR_E_PEER, "%s", a.said);
  a.self->base.ops->destroy(&a.self->base);
}

/* A server of the test's own, with a certificate that it has made itself. */
static SSL *impostor(int fd) {
  EVP_PKEY *key = EVP_EC_gen("P-256");
  X509 *certificate = X509_new();
  (void)X509_set_version(certificate, 2);
  (void)X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  (void)X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  (void)X509_set_pubkey(certificate, key);
  cr_assert_gt(X509_sign(certificate, key, EVP_sha256()), 0);
  SSL_CTX *with = SSL_CTX_new(TLS_server_method());
  cr_assert(SSL_CTX_use_certificate(with, certificate) == 1 &&
            SSL_CTX_use_PrivateKey(with, key) == 1);
  SSL *ssl = SSL_new(with);
  SSL_CTX_free(with);
  X509_free(certificate);
  EVP_PKEY_free(key);
  (void)SSL_set_fd(ssl, fd);
  SSL_set_accept_state(ssl);
  return ssl;
}

Test(tls, a_certificate_is_no_key) {
  int pair[2];
  pthread_t thread;
  make_pair(pair);
  end b = make_end(1, pair[1], 1);
  SSL *ssl = impostor(pair[0]);
  cr_assert_eq(pthread_create(&thread, NULL, open_end, &b), 0);
  int done = 0;
  for (int i = 0; i < 2000 && done != 1; i++) {
    done = SSL_do_handshake(ssl);
    const int error = SSL_get_error(ssl, done);
    if (done != 1 && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) break;
    group_nap(0.001);
  }
  (void)pthread_join(thread, NULL);
  cr_assert_neq(done, 1);
  cr_assert_eq(b.status, WEIR_E_PROTOCOL, "%s", b.said);
  SSL_free(ssl);
  (void)close(pair[0]);
  b.self->base.ops->destroy(&b.self->base);
}

/* --- after a loss ----------------------------------------------------------------------------- */

static weir_status lose_one(weir_transport *t, void *user) {
  (void)user;
  weir_transport *left = NULL;
  int old_rank[GROUP_MAX];
  weir_status status = group_talk_at(t, 1, 10.0);
  if (status != WEIR_OK) return status;
  if (t->rank == 1) _exit(0);
  status = group_talk_at(t, 2, 10.0);
  if (status < WEIR_E_TIMEOUT) return weir_fail(WEIR_E_INTERNAL, "nobody misses rank 1");
  status = t->ops->shrink(t, 10.0, &left, old_rank);
  if (status != WEIR_OK) return status;
  const tcp *self = (const tcp *)left;
  if (left->size != 3) status = weir_fail(WEIR_E_INTERNAL, "%d ranks are left", left->size);
  for (int r = 0; r < left->size && status == WEIR_OK; r++)
    if (r != left->rank && self->peer[r].tls == NULL)
      status = weir_fail(WEIR_E_INTERNAL, "rank %d is talked to in plain text", r);
  if (status == WEIR_OK) status = group_talk_at(left, 3, 10.0);
  if (status == WEIR_OK) status = everybody_to_everybody(left, MOST, 4);
  left->ops->destroy(left);
  return status;
}

Test(tls, survivors_encrypt_too) {
  ENDED group g = group_new(GROUP_TCP, 4, lose_one, NULL);
  g.secret = SECRET_TEXT;
  group_run(&g);
  for (int r = 0; r < 4; r++)
    if (r != 1) cr_assert_eq(g.result[r].status, WEIR_OK, "rank %d: %s", r, g.result[r].message);
}
