/* Ranks that show each other certificates: whose are taken, and who is told what where they are
 * not; files that are no good; and new ones in place of those that were read at the start. */
#include "authority.h"

#include "ranks.h"
#include "session/state.h"

#include "collectives/transports/tcp_tls.c"

#define SECRET_TEXT "of these ranks"

typedef struct office {
  char folder[32], trusted[AUTHORITY_PATH];
  authority ours, theirs;
} office;

static office open_office(void) {
  office o = {.ours = authority_new("ours"), .theirs = authority_new("theirs")};
  authority_folder(o.folder);
  (void)snprintf(o.trusted, sizeof o.trusted, "%s/ca.crt", o.folder);
  authority_write(&o.ours, o.trusted);
  return o;
}

static void close_office(office *o) {
  char command[64];
  authority_free(&o->ours);
  authority_free(&o->theirs);
  (void)snprintf(command, sizeof command, "rm -r %s", o->folder);
  cr_assert_eq(system(command), 0);
}

static weir_credentials *take(const certified *c, const char *trusted) {
  weir_credentials *out = NULL;
  const weir_credential_files files = {c->certificate, c->key, trusted};
  cr_assert_eq(weir_credentials_read(&out, &files), WEIR_OK, "%s", weir_last_error());
  return out;
}

/* --- files ------------------------------------------------------------------------------------ */

static void refuses(const char *certificate, const char *key, const char *trusted,
                    weir_status status, const char *path, const char *why) {
  weir_credentials *out = NULL;
  const weir_credential_files files = {certificate, key, trusted};
  cr_assert_eq(weir_credentials_read(&out, &files), status, "%s: %s", why, weir_last_error());
  cr_assert_null(out);
  cr_assert(strncmp(weir_last_error(), path, strlen(path)) == 0, "%s: %s", why, weir_last_error());
  cr_assert_not_null(strstr(weir_last_error(), why), "not \"%s\": %s", why, weir_last_error());
}

Test(certificates, files_that_are_no_good_are_named_with_the_reason) {
  office o = open_office();
  char missing[AUTHORITY_PATH], words[AUTHORITY_PATH], others[AUTHORITY_PATH];
  const certified good = authority_certify(&o.ours, o.folder, "good", (certify_as){0});
  const certified second = authority_certify(&o.ours, o.folder, "second", (certify_as){0});
  const certified late =
      authority_certify(&o.ours, o.folder, "late", (certify_as){-60, -1, 0, 0, 0});
  const certified early =
      authority_certify(&o.ours, o.folder, "early", (certify_as){600, 6000, 0, 0, 0});
  const certified alien = authority_certify(&o.theirs, o.folder, "alien", (certify_as){0});
  const certified closed =
      authority_certify(&o.ours, o.folder, "closed", (certify_as){.passphrase = "words"});
  const certified server =
      authority_certify(&o.ours, o.folder, "server", (certify_as){.usage = "serverAuth"});
  const certified client =
      authority_certify(&o.ours, o.folder, "client", (certify_as){.usage = "clientAuth"});
  const certified both =
      authority_certify(&o.ours, o.folder, "both", (certify_as){.usage = "clientAuth,serverAuth"});
  (void)snprintf(missing, sizeof missing, "%s/missing", o.folder);
  (void)snprintf(words, sizeof words, "%s/words", o.folder);
  (void)snprintf(others, sizeof others, "%s/others.crt", o.folder);
  authority_write(&o.theirs, others);
  FILE *file = fopen(words, "w");
  cr_assert(file != NULL && fputs("no certificate\n", file) > 0 && fclose(file) == 0);

  weir_credentials_release(take(&good, o.trusted));
  weir_credentials_release(take(&both, o.trusted));
  refuses(missing, good.key, o.trusted, WEIR_E_IO, missing, "No such file");
  refuses(good.certificate, missing, o.trusted, WEIR_E_IO, missing, "No such file");
  refuses(good.certificate, good.key, missing, WEIR_E_IO, missing, "No such file");
  refuses(words, good.key, o.trusted, WEIR_E_INVALID, words, "no certificate in PEM");
  refuses(good.certificate, words, o.trusted, WEIR_E_INVALID, words, "no key in PEM");
  refuses(good.certificate, good.key, words, WEIR_E_INVALID, words, "no authority in PEM");
  refuses(o.folder, good.key, o.trusted, WEIR_E_INVALID, o.folder, "not in a regular file");
  refuses(good.certificate, o.folder, o.trusted, WEIR_E_INVALID, o.folder, "not in a regular file");
  refuses(good.certificate, second.key, o.trusted, WEIR_E_INVALID, second.key,
          "not that of the certificate in");
  refuses(closed.certificate, closed.key, o.trusted, WEIR_E_INVALID, closed.key, "a passphrase");
  refuses(late.certificate, late.key, o.trusted, WEIR_E_INVALID, late.certificate, "has expired");
  refuses(early.certificate, early.key, o.trusted, WEIR_E_INVALID, early.certificate,
          "not yet valid");
  refuses(alien.certificate, alien.key, o.trusted, WEIR_E_INVALID, alien.certificate,
          "unable to get local issuer");
  refuses(good.certificate, good.key, others, WEIR_E_INVALID, good.certificate,
          "unable to get local issuer");
  refuses(server.certificate, server.key, o.trusted, WEIR_E_INVALID, server.certificate,
          "certificate purpose");
  refuses(client.certificate, client.key, o.trusted, WEIR_E_INVALID, client.certificate,
          "certificate purpose");
  cr_assert_eq(chmod(good.key, 0604), 0);
  refuses(good.certificate, good.key, o.trusted, WEIR_E_INVALID, good.key, "open to other users");
  close_office(&o);
}

/* --- ranks ------------------------------------------------------------------------------------ */

/* Each rank's own, read by it. */
typedef struct staff {
  certified of[GROUP_MAX];
  const char *trusted[GROUP_MAX]; /* "": it has no certificate */
  const office *office;
} staff;

static staff *clerk; /* of the ranks that are about to start */

static void show(group *g, int rank) {
  g->credentials = *clerk->trusted[rank] != 0 ? take(&clerk->of[rank], clerk->trusted[rank]) : NULL;
}

static staff hire(const office *o, int ranks) {
  staff s = {.office = o};
  for (int r = 0; r < ranks; r++) {
    char name[24];
    (void)snprintf(name, sizeof name, "rank-%d", r);
    s.of[r] = authority_certify(&o->ours, o->folder, name, (certify_as){.serial = 100 + r});
    s.trusted[r] = o->trusted;
  }
  return s;
}

static group group_of(staff *s, int size, int streams,
                      weir_status (*body)(weir_transport *, void *)) {
  group g = group_new(GROUP_TCP, size, body, s);
  clerk = s;
  g.secret = SECRET_TEXT;
  g.streams = streams;
  g.prepare = show;
  return g;
}

/* The number in the certificate that rank `way` of them has shown. */
static long serial_of(const tcp *self, int way) {
  const X509 *x = SSL_get0_peer_certificate(self->peer[way].tls->ssl);
  return x != NULL ? ASN1_INTEGER_get(X509_get0_serialNumber(x)) : -1;
}

static weir_status talk(weir_transport *t, void *user) {
  const tcp *self = (const tcp *)t;
  (void)user;
  for (int way = 0; way < self->streams * t->size; way++)
    if (way % t->size != t->rank && serial_of(self, way) != 100 + way % t->size)
      return weir_fail(WEIR_E_INTERNAL, "on way %d certificate %ld was shown", way,
                       serial_of(self, way));
  return group_talk(t, NULL);
}

/* Rank 1's comes from one in between, whose own is in its file and nowhere else. */
Test(certificates, all_show_each_other_theirs) {
  office o = open_office();
  staff s = hire(&o, 3);
  authority between = authority_below(&o.ours, "between");
  s.of[1] = authority_certify(&between, o.folder, "of-between", (certify_as){.serial = 101});
  authority_write(&between, s.of[1].certificate);
  authority_free(&between);
  for (int streams = 1; streams <= 2; streams++) {
    ENDED group g = group_of(&s, 3, streams, talk);
    group_run(&g);
    group_well(&g);
  }
  close_office(&o);
}

/* One's certificate comes from elsewhere, as it and the others trust other authorities; whether it
 * is the one that is called or the one that calls. */
static void expect_refusal(staff *s, int who, const char *verdict, const char *alert) {
  ENDED group g = group_of(s, 2, 1, group_talk);
  g.timeout_s = 10.0;
  group_run(&g);
  const group_result *it = &g.result[who], *other = &g.result[1 - who];
  char due[64];
  cr_assert_eq(other->status, WEIR_E_PROTOCOL, "%d: %s", who, other->message);
  (void)snprintf(due, sizeof due, "the certificate of rank %d is refused: ", who);
  cr_assert(strstr(other->message, due) != NULL && strstr(other->message, verdict) != NULL, "%s",
            other->message);
  cr_assert_eq(it->status, WEIR_E_PROTOCOL, "%d: %s", who, it->message);
  (void)snprintf(due, sizeof due, "rank %d refused this rank's certificate: ", 1 - who);
  cr_assert(strstr(it->message, due) != NULL && strstr(it->message, alert) != NULL, "%s",
            it->message);
}

Test(certificates, one_of_another_authority_is_refused_and_told) {
  office o = open_office();
  char all[AUTHORITY_PATH];
  (void)snprintf(all, sizeof all, "%s/all.crt", o.folder);
  authority_write(&o.ours, all);
  authority_write(&o.theirs, all);
  for (int who = 0; who < 2; who++) {
    staff s = hire(&o, 2);
    s.of[who] = authority_certify(&o.theirs, o.folder, "alien", (certify_as){0});
    s.trusted[who] = all;
    expect_refusal(&s, who, "unable to get local issuer certificate", "unknown ca");
  }
  close_office(&o);
}

/* It was in force when it was read. */
static void show_until_it_expires(group *g, int rank) {
  show(g, rank);
  if (rank == 1) group_nap(3.0);
}

Test(certificates, one_that_expires_meanwhile_is_refused_and_told) {
  office o = open_office();
  staff s = hire(&o, 2);
  s.of[1] = authority_certify(&o.ours, o.folder, "brief", (certify_as){.until = 2});
  ENDED group g = group_of(&s, 2, 1, group_talk);
  g.prepare = show_until_it_expires;
  group_run(&g);
  cr_assert_eq(g.result[0].status, WEIR_E_PROTOCOL, "%s", g.result[0].message);
  cr_assert_not_null(strstr(g.result[0].message, "certificate of rank 1 is refused"), "%s",
                     g.result[0].message);
  cr_assert_not_null(strstr(g.result[0].message, "expired"), "%s", g.result[0].message);
  cr_assert_not_null(strstr(g.result[1].message, "rank 0 refused this rank's certificate"), "%s",
                     g.result[1].message);
  close_office(&o);
}

Test(certificates, all_have_some_or_none) {
  office o = open_office();
  for (int who = 0; who < 2; who++) {
    staff s = hire(&o, 2);
    s.trusted[who] = "";
    ENDED group g = group_of(&s, 2, 1, group_talk);
    g.timeout_s = 3.0;
    group_run(&g);
    cr_assert_eq(g.result[1].status, WEIR_E_MISMATCH, "%s", g.result[1].message);
    cr_assert_not_null(strstr(g.result[1].message, "WEIR_TLS_CERT"), "%s", g.result[1].message);
    cr_assert_eq(g.result[0].status, WEIR_E_TIMEOUT, "%s", g.result[0].message);
  }
  close_office(&o);
}

/* --- somebody in between whom the authority knows --------------------------------------------- */

typedef struct end {
  tcp *self;
  weir_status status;
  char said[256];
} end;

static end make_end(int rank, int fd, unsigned char key, const certified *c, const char *trusted) {
  end e = {0};
  cr_assert_eq(tcp_create(&e.self, 1, rank, 2, 1), WEIR_OK);
  e.self->secret = true;
  e.self->peer[1 - rank].fd = fd;
  e.self->credentials = take(c, trusted);
  e.self->sealed = TCP_BY_CERTIFICATE;
  memset(e.self->group_key.bytes, key, sizeof e.self->group_key.bytes);
  return e;
}

static void *open_end(void *argument) {
  end *e = argument;
  e->status = tcp_tls_open(e->self, weir_now_s() + 20.0, true);
  (void)snprintf(e->said, sizeof e->said, "%.255s", weir_last_error());
  return NULL;
}

Test(certificates, who_has_one_and_not_the_groups_key_does_not_get_through) {
  office o = open_office();
  const staff s = hire(&o, 2);
  for (unsigned char key = 1; key <= 2; key++) {
    int pair[2];
    pthread_t thread;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    end a = make_end(0, pair[0], 1, &s.of[0], o.trusted);
    end b = make_end(1, pair[1], key, &s.of[1], o.trusted);
    cr_assert_eq(pthread_create(&thread, NULL, open_end, &a), 0);
    (void)open_end(&b);
    (void)pthread_join(thread, NULL);
    cr_assert_eq(a.status, key == 1 ? WEIR_OK : WEIR_E_PROTOCOL, "%s", a.said);
    cr_assert_eq(b.status, key == 1 ? WEIR_OK : WEIR_E_PROTOCOL, "%s", b.said);
    if (key == 2) cr_assert_not_null(strstr(a.said, "does not know its key"), "%s", a.said);
    a.self->base.ops->destroy(&a.self->base);
    b.self->base.ops->destroy(&b.self->base);
  }
  close_office(&o);
}

/* --- new files -------------------------------------------------------------------------------- */

/* Those who are left, and what they show then. */
static weir_status lose_one(weir_transport *t, void *user) {
  const staff *s = user;
  weir_transport *left = NULL;
  int old_rank[GROUP_MAX];
  char name[16];
  weir_status status = talk(t, NULL);
  if (status != WEIR_OK) return status;
  if (t->rank == 1) _exit(0);
  /* Rank 2's is another one by now, and in place of rank 3's are words: what it had is used on. */
  (void)snprintf(name, sizeof name, "rank-%d", t->rank);
  if (t->rank == 2)
    (void)authority_certify(&s->office->ours, s->office->folder, name,
                            (certify_as){.serial = 102 + 50});
  if (t->rank == 3 && truncate(s->of[3].key, 10) != 0) abort();
  status = group_talk_at(t, 2, 10.0);
  if (status < WEIR_E_TIMEOUT) return weir_fail(WEIR_E_INTERNAL, "nobody misses rank 1");
  status = t->ops->shrink(t, 10.0, &left, old_rank);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < left->size && status == WEIR_OK; r++) {
    const long due = 100 + old_rank[r] + (old_rank[r] == 2 ? 50 : 0);
    if (r != left->rank && serial_of((const tcp *)left, r) != due)
      status = weir_fail(WEIR_E_INTERNAL, "rank %d has shown certificate %ld, not %ld", r,
                         serial_of((const tcp *)left, r), due);
  }
  if (status == WEIR_OK && left->size != 3) status = weir_fail(WEIR_E_INTERNAL, "%d", left->size);
  if (status == WEIR_OK) status = group_talk_at(left, 3, 10.0);
  left->ops->destroy(left);
  return status;
}

Test(certificates, survivors_show_what_is_in_the_files_by_then) {
  office o = open_office();
  staff s = hire(&o, 4);
  ENDED group g = group_of(&s, 4, 1, lose_one);
  group_run(&g);
  for (int r = 0; r < 4; r++)
    if (r != 1) cr_assert_eq(g.result[r].status, WEIR_OK, "rank %d: %s", r, g.result[r].message);
  close_office(&o);
}

/* --- sessions --------------------------------------------------------------------------------- */

static void session_refuses(const weir_options *options, weir_status status, const char *why) {
  weir_session *session = NULL;
  cr_assert_eq(weir_session_create(&session, options), status, "%s: %s", why, weir_last_error());
  cr_assert_null(session);
  cr_assert_not_null(strstr(weir_last_error(), why), "not \"%s\": %s", why, weir_last_error());
}

static void session_has(const weir_options *options, bool credentials) {
  weir_session *session = NULL;
  cr_assert_eq(weir_session_create(&session, options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(session->credentials != NULL, credentials);
  weir_session_free(session);
}

Test(certificates, options_and_the_environment) {
  office o = open_office();
  const staff s = hire(&o, 2);
  weir_options options;
  weir_options_init(&options);
  options.secret = SECRET_TEXT;
  session_has(&options, false);
  cr_assert_eq(weir_options_set(&options, "tls_certificate", s.of[0].certificate), WEIR_OK);
  session_refuses(&options, WEIR_E_INVALID, "tls_authority (WEIR_TLS_CA) is not set");
  cr_assert_eq(weir_options_set(&options, "tls_authority", o.trusted), WEIR_OK);
  session_refuses(&options, WEIR_E_INVALID, "tls_key (WEIR_TLS_KEY) is not set");
  (void)setenv("WEIR_TLS_KEY", s.of[1].key, 1);
  session_refuses(&options, WEIR_E_INVALID, "the key is not that of the certificate");
  cr_assert_eq(weir_options_set(&options, "tls_key", s.of[0].key), WEIR_OK);
  session_has(&options, true);
  options.secret = NULL;
  session_refuses(&options, WEIR_E_INVALID, "need a secret, too");
  options.secret = SECRET_TEXT;
  options.transport = "inproc";
  session_refuses(&options, WEIR_E_INVALID, "of no use to transport \"inproc\"");
  options.transport = "shm+mpi";
  session_refuses(&options, WEIR_E_INVALID, "of no use to transport \"shm+mpi\"");
  options.tls = "off";
  session_has(&options, false);
  /* The environment's are for what goes over TCP. */
  weir_options_init(&options);
  options.secret = SECRET_TEXT;
  (void)setenv("WEIR_TLS_KEY", s.of[0].key, 1);
  session_refuses(&options, WEIR_E_INVALID, "tls_authority (WEIR_TLS_CA) is not set");
  (void)setenv("WEIR_TLS_CERT", s.of[0].certificate, 1);
  (void)setenv("WEIR_TLS_CA", o.trusted, 1);
  session_has(&options, true);
  options.transport = "inproc";
  session_has(&options, false);
  options.transport = "shm+mpi";
  session_has(&options, false);
  options.transport = "nccl+mpi";
  session_has(&options, false);
  /* Ranks of these meet over TCP, and might be thought safe. */
  options.transport = "nccl";
  session_refuses(&options, WEIR_E_INVALID, "of no use to transport \"nccl\"");
  options.transport = "shm+nccl";
  session_refuses(&options, WEIR_E_INVALID, "of no use to transport \"shm+nccl\"");
  options.transport = "nccl+tcp"; /* which is TCP wherever a message leaves its machine */
  session_has(&options, true);
  (void)unsetenv("WEIR_TLS_CERT");
  (void)unsetenv("WEIR_TLS_KEY");
  (void)unsetenv("WEIR_TLS_CA");
  close_office(&o);
}

/* Two train, and a third joins. */
static void be_member(const staff *s, int rank, const char *where, int joined) {
  weir_options options;
  weir_session *session = NULL;
  weir_survivors now = {.struct_size = sizeof now};
  float g = (float)(rank + 1);
  uint32_t tensor;
  weir_options_init(&options);
  options.rank = rank < 2 ? rank : 0;
  options.world_size = 2;
  options.rendezvous = where;
  options.secret = SECRET_TEXT;
  options.policy = "fixed:none:1:dense-ring";
  options.active_probes = false;
  options.max_ranks = 3;
  options.tls_certificate = s->of[rank].certificate;
  options.tls_key = s->of[rank].key;
  options.tls_authority = s->trusted[rank];
  (void)alarm(GROUP_WATCHDOG_S);
  weir_status status = weir_session_create(&session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(session, "w", 1, &tensor);
  if (status == WEIR_OK)
    status = rank < 2 ? weir_session_start(session) : weir_join(session, 60.0, &now);
  int world = rank < 2 ? 2 : 3, after = 0;
  while (status == WEIR_OK && after < 3) {
    status = weir_step_begin(session, NULL);
    if (status == WEIR_GROW) {
      status = weir_grow(session, &now);
      if (status == WEIR_OK) world = now.world_size;
      continue;
    }
    g = (float)(rank + 1);
    if (status == WEIR_OK) status = weir_submit(session, 0, &g);
    if (status == WEIR_OK) status = weir_step_end(session, NULL);
    if (status == WEIR_OK && g != (world == 2 ? 1.5F : 2.0F)) _exit(3);
    after += world == 3;
    if (world == 2) group_nap(0.005);
  }
  if (status != WEIR_OK) (void)fprintf(stderr, "rank %d: %s\n", rank, weir_last_error());
  const bool sealed =
      status == WEIR_OK && ((tcp *)session->transport)->sealed == TCP_BY_CERTIFICATE &&
      serial_of((tcp *)session->transport, rank == 0 ? 1 : 0) == (rank == 0 ? 101 : 100);
  weir_session_free(session);
  _exit(status != WEIR_OK ? 1 : sealed && world == joined ? 0 : 2);
}

Test(certificates, sessions_train_and_one_joins) {
  office o = open_office();
  const staff s = hire(&o, 3);
  ENDED group g = group_new(GROUP_TCP, 3, NULL, NULL);
  (void)fflush(NULL);
  for (int r = 0; r < 3; r++) {
    g.pid[r] = fork();
    if (g.pid[r] == 0) be_member(&s, r, g.where, 3);
  }
  for (int r = 0; r < 3; r++) {
    int code = -1;
    (void)waitpid(g.pid[r], &code, 0);
    cr_assert_eq(code, 0, "rank %d: %d", r, code);
  }
  close_office(&o);
}
