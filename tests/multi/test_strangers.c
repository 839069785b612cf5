/* Who does not know the job's secret stays outside, is logged once and harms nobody. */
#include <sys/stat.h>
#include <weir/weir.h>

#include "log_file.h"
#include "wire_bytes.h"

#define SECRET_TEXT "the right one"

static weir_status join_as(const group *g, int rank, const char *secret, double timeout_s,
                           weir_transport **t) {
  return weir_transport_tcp_secret(t, g->where, NULL, secret, strlen(secret), g->job, rank, g->size,
                                   timeout_s);
}

/* A rank with the right secret, whose stderr goes to `log`. */
static void start_rank(group *g, int rank, int delay_ms, const char *log) {
  (void)fflush(NULL);
  g->pid[rank] = fork();
  cr_assert_geq(g->pid[rank], 0);
  if (g->pid[rank] != 0) return;
  (void)alarm(GROUP_WATCHDOG_S);
  if (freopen(log, "a", stderr) == NULL || setvbuf(stderr, NULL, _IONBF, 0) != 0) abort();
  group_nap(1e-3 * delay_ms);
  weir_transport *t = NULL;
  group_result *result = &g->result[rank];
  result->status = join_as(g, rank, SECRET_TEXT, g->timeout_s, &t);
  if (result->status == WEIR_OK) result->status = group_talk(t, NULL);
  (void)snprintf(result->message, sizeof result->message, "%s", weir_last_error());
  if (t) t->ops->destroy(t);
  _exit(0);
}

static void finish(group *g, int from, const char *log) {
  for (int r = from; r < g->size; r++) (void)waitpid(g->pid[r], NULL, 0);
  for (int r = from; r < g->size; r++)
    cr_assert_eq(g->result[r].status, WEIR_OK, "rank %d: %s", r, g->result[r].message);
  (void)unlink(log);
  group_done(g);
}

Test(strangers, with_another_secret_at_the_rendezvous) {
  group g;
  char log[64];
  new_log(log);
  group_init(&g, GROUP_TCP, 3, NULL, NULL);
  start_rank(&g, 0, 0, log);
  start_rank(&g, 1, 0, log);
  weir_transport *t = NULL;
  static const char *const wrong[] = {"the wrong one", "", "the right on", "the right one "};
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(join_as(&g, 2, wrong[i], 5.0, &t), WEIR_E_MISMATCH, "%s", weir_last_error());
    cr_assert_not_null(strstr(weir_last_error(), "does not know this job's secret"));
    cr_assert_null(t);
  }
  start_rank(&g, 2, 0, log);
  for (int r = 0; r < 3; r++) (void)waitpid(g.pid[r], NULL, 0);
  cr_assert_eq(count_lines(log, "refused"), 1);
  cr_assert_eq(count_lines(log, "it does not know this job's secret"), 1);
  finish(&g, 3, log);
}

/* What rank 1 said to another rank 0 does not open this one's door: nonces differ. */
Test(strangers, who_repeat_what_a_rank_has_said) {
  group g;
  char log[64];
  unsigned char said[2 * HELLO], answer[HELLO], key[32], proof[HELLO];
  new_log(log);
  job_secret = SECRET_TEXT;
  group_init(&g, GROUP_TCP, 2, NULL, NULL);
  start_rank(&g, 0, 0, log);
  /* A run that is given up after a good proof. */
  greeting own = registration(&g);
  write_hello(said, own);
  int fd = dial(g.where);
  send_all(fd, said, HELLO);
  cr_assert_eq(receive(fd, said + HELLO, HELLO), HELLO);
  (void)close(fd);
  job_key(g.job, key);
  prove(key, "weir caller", said, 2 * HELLO, NULL, 0, NULL, 0, own.proof);
  own.kind = PROOF;
  write_hello(proof, own);
  /* The same words again. */
  fd = dial(g.where);
  send_all(fd, said, HELLO);
  cr_assert_eq(receive(fd, answer, HELLO), HELLO);
  cr_assert_neq(memcmp(answer + NONCE_AT, said + HELLO + NONCE_AT, 16), 0);
  send_all(fd, proof, HELLO);
  cr_assert_eq(receive(fd, answer, HELLO), HELLO);
  cr_assert_eq(get(answer + 6, 2), REFUSED);
  cr_assert_eq(get(answer + 28, 4), SECRET);
  (void)close(fd);
  start_rank(&g, 1, 0, log);
  finish(&g, 0, log);
}

/* Somebody listens in place of rank 0. */
Test(strangers, in_place_of_rank_0) {
  group g;
  char log[64];
  unsigned char hello[HELLO], table[2 * ENTRY] = {0};
  const int one = 1;
  new_log(log);
  group_init(&g, GROUP_TCP, 2, NULL, NULL);
  const struct sockaddr_in at = loopback(atoi(strchr(g.where, ':') + 1));
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  cr_assert(bind(listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
            listen(listener, 8) == 0);
  start_rank(&g, 1, 0, log);
  const int fd = accept(listener, NULL, NULL);
  cr_assert_eq(receive(fd, hello, HELLO), HELLO);
  greeting h = {.version = WIRE_VERSION, .kind = CHALLENGE, .job = g.job, .size = 2, .nonce = 1};
  write_hello(hello, h);
  send_all(fd, hello, HELLO);
  cr_assert_eq(receive(fd, hello, HELLO), HELLO);
  h.kind = TABLE;
  h.detail = checksum(table, sizeof table);
  write_hello(hello, h);
  send_all(fd, hello, HELLO);
  send_all(fd, table, sizeof table);
  (void)waitpid(g.pid[1], NULL, 0);
  cr_assert_eq(g.result[1].status, WEIR_E_PROTOCOL, "%s", g.result[1].message);
  cr_assert_not_null(strstr(g.result[1].message, "does not know this job's secret"));
  (void)close(fd);
  (void)close(listener);
  finish(&g, 2, log);
}

/* The test is rank 2 and lets strangers come to rank 1's door first. */
Test(strangers, at_the_mesh) {
  group g;
  char log[64];
  unsigned char said[2 * HELLO], answer[HELLO], table[3 * ENTRY], key[32], proof[32];
  new_log(log);
  job_secret = SECRET_TEXT;
  group_init(&g, GROUP_TCP, 3, NULL, NULL);
  g.timeout_s = 5.0;
  start_rank(&g, 0, 0, log);
  start_rank(&g, 1, 0, log);
  greeting own = registration(&g);
  own.size = 3;
  own.rank = 2;
  const int zero = introduce(&g, own, said);
  receive_verdict(zero, answer);
  cr_assert_eq(get(answer + 6, 2), TABLE);
  cr_assert_eq(receive(zero, table, sizeof table), sizeof table);
  group door = g;
  (void)snprintf(door.where, sizeof door.where, "127.0.0.1:%d",
                 ntohs((uint16_t)get(table + ENTRY + 4, 2)));
  own.kind = MESH;
  for (int i = 0; i < 3; i++) { /* with another secret */
    job_secret = "another one";
    const int fd = introduce(&door, own, said);
    cr_assert_eq(receive(fd, answer, HELLO), HELLO);
    cr_assert_eq(get(answer + 28, 4), SECRET);
    (void)close(fd);
  }
  const int silent = dial(door.where), noisy = dial(door.where);
  send_all(noisy, "GET / HTTP/1.1\r\n\r\n", 18);
  cr_assert_eq(receive(noisy, answer, HELLO), HELLO);
  cr_assert_eq(get(answer + 28, 4), GARBAGE);
  own.generation = 1; /* of a group that has shrunk */
  write_hello(said, own);
  const int other = dial(door.where);
  send_all(other, said, HELLO);
  cr_assert_eq(receive(other, answer, HELLO), HELLO);
  cr_assert_eq(get(answer + 28, 4), RANK);
  own.generation = 0;
  job_secret = SECRET_TEXT;
  const int fd = introduce(&door, own, said);
  cr_assert_eq(receive(fd, answer, HELLO), HELLO);
  cr_assert_eq(get(answer + 6, 2), WELCOME);
  job_key(g.job, key);
  prove(key, "weir host", said, sizeof said, answer, PROOF_AT, NULL, 0, proof);
  cr_assert_eq(memcmp(proof, answer + PROOF_AT, 32), 0);
  /* Rank 1 has let the test in, and the test leaves: the two others say so. */
  (void)close(fd);
  (void)close(zero);
  for (int r = 0; r < 2; r++) (void)waitpid(g.pid[r], NULL, 0);
  for (int r = 0; r < 2; r++) {
    cr_assert_eq(g.result[r].status, WEIR_E_PEER, "%s", g.result[r].message);
    cr_assert_eq(strncmp(g.result[r].message, "rank 2", 6), 0, "%s", g.result[r].message);
  }
  cr_assert_eq(count_lines(log, "refused"), 3, "a line a reason");
  (void)close(silent);
  (void)close(noisy);
  (void)close(other);
  finish(&g, 3, log);
}

/* --- where a secret comes from -------------------------------------------------------------- */

Test(secrets, beyond_the_loopback_there_must_be_one) {
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_tcp(&t, "192.0.2.1:5000", NULL, 1, 1, 2, 0.2), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "needs a secret"));
  cr_assert_eq(weir_transport_tcp_secret(&t, "192.0.2.1:5000", NULL, "x", 1, 1, 1, 2, 0.2),
               WEIR_E_TIMEOUT, "%s", weir_last_error());
}

/* Does a session of rank 0 let in who knows `secret`? */
static void session_takes(weir_options options, const char *secret, bool plain) {
  ENDED group g = group_new(GROUP_TCP, 2, NULL, NULL);
  options.world_size = 2;
  options.rendezvous = g.where;
  options.job_id = g.job;
  options.active_probes = false;
  options.policy = "fixed:none:1:dense-ring";
  (void)fflush(NULL);
  g.pid[0] = fork();
  cr_assert_geq(g.pid[0], 0);
  if (g.pid[0] == 0) {
    weir_session *session = NULL;
    (void)alarm(GROUP_WATCHDOG_S);
    weir_status status = weir_session_create(&session, &options);
    if (status == WEIR_OK) (void)weir_session_start(session); /* the other leaves */
    weir_session_free(session);
    _exit(status == WEIR_OK ? 0 : 1);
  }
  weir_transport *t = NULL;
  const weir_tcp_options own = {.rendezvous = g.where,
                                .secret = secret,
                                .secret_bytes = strlen(secret),
                                .plain = plain,
                                .job_id = g.job,
                                .rank = 1,
                                .size = 2,
                                .timeout_s = 10.0};
  cr_assert_eq(weir_transport_tcp_open(&t, &own), WEIR_OK, "%s", weir_last_error());
  t->ops->destroy(t);
  int code = 1;
  (void)waitpid(g.pid[0], &code, 0);
  cr_assert_eq(code, 0);
}

static void takes_sealed(weir_options options, const char *secret) {
  session_takes(options, secret, false);
}

static void new_file(char path[64]) {
  (void)strcpy(path, "/tmp/weir-secret-XXXXXX");
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  (void)close(fd);
}

Test(secrets, the_first_of_option_file_and_environment) {
  char path[64], other[64];
  weir_options options;
  new_file(path);
  new_file(other);
  FILE *file = fopen(path, "w");
  (void)fputs("of the file\n", file);
  (void)fclose(file);
  file = fopen(other, "w");
  (void)fputs("of the other file\n", file);
  (void)fclose(file);
  weir_options_init(&options);
  takes_sealed(options, "");
  (void)setenv("WEIR_SECRET_FILE", other, 1);
  takes_sealed(options, "of the other file");
  (void)setenv("WEIR_SECRET", "of the environment", 1);
  takes_sealed(options, "of the environment");
  options.secret_file = path;
  takes_sealed(options, "of the file");
  options.secret = "of the option";
  takes_sealed(options, "of the option");
  weir_session *session = NULL;
  options.secret = "";
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  options.secret = NULL;
  cr_assert_eq(chmod(path, 0644), 0);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "open to other users"));
  (void)unlink(path);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_IO);
  (void)unlink(other);
  cr_assert_null(session);
}

Test(secrets, plain_text_only_when_asked_for_in_words) {
  static const char *const bad[] = {"", "on", "OFF", "offf"};
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.secret = "a secret";
  session_takes(options, options.secret, false);
  options.tls = "off";
  session_takes(options, options.secret, true);
  options.tls = "auto";
  (void)setenv("WEIR_TLS", "auto", 1);
  session_takes(options, options.secret, false);
  (void)setenv("WEIR_TLS", "off", 1);
  session_takes(options, options.secret, true);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    (void)setenv("WEIR_TLS", bad[i], 1);
    cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID, "%s", bad[i]);
    cr_assert(strstr(weir_last_error(), "WEIR_TLS is") != NULL, "%s", weir_last_error());
    (void)unsetenv("WEIR_TLS");
    options.tls = bad[i];
    cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID, "%s", bad[i]);
    cr_assert(strstr(weir_last_error(), "options.tls is") != NULL, "%s", weir_last_error());
    options.tls = "auto";
  }
}
