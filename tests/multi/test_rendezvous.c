/* How groups come together, and who must stay outside. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <weir/inside.h>

#include "ranks.h"

/* Rank 0 comes last. */
static void come_in_turn(group *g, int rank) { group_nap(0.1 * (g->size - 1 - rank)); }

Test(rendezvous, ranks_start_in_any_order) {
  ENDED group g = group_new(GROUP_TCP, 4, group_talk, NULL);
  g.prepare = come_in_turn;
  group_run(&g);
  group_well(&g);
}

/* Nothing is left open, on success or on failure. */
Test(rendezvous, leaves_no_descriptor) {
  const int before = group_descriptors();
  ENDED group g = group_new(GROUP_THREADS, 3, group_talk, NULL);
  g.kind = GROUP_THREADS;
  group_run(&g);
  group_well(&g);
  cr_assert_eq(group_descriptors(), before);
  char where[32];
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  weir_transport *t = NULL;
  for (int rank = 0; rank < 2; rank++) {
    cr_assert_eq(weir_transport_tcp(&t, where, NULL, 1, rank, 2, 0.2), WEIR_E_TIMEOUT);
    cr_assert_null(t);
    cr_assert(strstr(weir_last_error(), rank == 0 ? "rank 1" : "rank 0") != NULL, "%s",
              weir_last_error());
  }
  cr_assert_eq(weir_transport_inproc(&t, "alone", 0, 2, 0.1), WEIR_E_TIMEOUT);
  cr_assert(strstr(weir_last_error(), "rank 1") != NULL, "%s", weir_last_error());
  cr_assert_eq(group_descriptors(), before);
}

/* Rank 0 can open what it needs before others come, and nothing for them. */
static void run_out(group *g, int rank) {
  enum { OWN = 5 }; /* the rendezvous, its own listener, datagrams, and two events */
  struct rlimit files;
  int end = 0;
  (void)g;
  for (int unused = 0; unused < OWN; end++) unused += fcntl(end, F_GETFD) < 0;
  (void)getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = (rlim_t)end;
  if (rank == 0) (void)setrlimit(RLIMIT_NOFILE, &files);
}

Test(rendezvous, without_descriptors_ends_at_once_and_says_so) {
  ENDED group g = group_new(GROUP_TCP, 2, group_talk, NULL);
  g.prepare = run_out;
  g.timeout_s = 1.0;
  group_run(&g);
  cr_assert_eq(g.result[0].status, WEIR_E_IO, "%s", g.result[0].message);
  cr_assert(strstr(g.result[0].message, "cannot accept those who call: Too many") != NULL, "%s",
            g.result[0].message);
}

/* The name of rank 0's machine has three addresses, as it is told itself: it has none of the first,
 * and listens at the second.  Others are told of the last first, where nobody listens. */
#define NAME "rank-0-has-several-addresses"
static bool told_backwards;
static int not_told; /* so many times: whoever is asked for names does not answer */
int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found) {
  static const char *const address[] = {"192.0.2.1", "127.0.0.3", "127.0.0.4"};
  struct addrinfo **last = found;
  if (strcmp(name, NAME) != 0) return __real_getaddrinfo(name, service, hints, found);
  if (not_told > 0) return not_told--, EAI_AGAIN;
  for (int i = 0; i < (told_backwards ? 2 : 3); i++) {
    const char *at = address[told_backwards ? 2 - i : i];
    const int error = __real_getaddrinfo(at, service, hints, last);
    if (error != 0) return error;
    last = &(*last)->ai_next;
  }
  return 0;
}

static void hear_backwards(group *g, int rank) {
  (void)g;
  told_backwards = rank != 0;
  not_told = rank;
}

Test(rendezvous, at_a_name_with_several_addresses) {
  ENDED group g = group_new(GROUP_TCP, 3, group_talk, NULL);
  g.prepare = hear_backwards;
  g.secret = "of the job";
  g.timeout_s = 5.0;
  (void)snprintf(g.where, sizeof g.where, NAME ":%d", free_port());
  group_run(&g);
  group_well(&g);
}

static void *take_in(void *argument) {
  weir_transport *t = argument, *grown = NULL;
  const double deadline_s = weir_now_s() + 5;
  while (t->ops->waiting(t) == 0 && weir_now_s() < deadline_s) group_nap(0.002);
  (void)t->ops->grow(t, 5, &grown);
  return grown;
}

/* The same of one who joins; what else it was told leads nowhere. */
Test(rendezvous, with_a_running_group_at_a_name_with_several_addresses) {
  char where[128];
  weir_transport *first = NULL, *second = NULL;
  pthread_t thread;
  void *grown = NULL;
  int members = 0;
  (void)snprintf(where, sizeof where, NAME ":%d", free_port());
  weir_tcp_options options = {.rendezvous = where,
                              .secret = "of the job",
                              .secret_bytes = 10,
                              .size = 1,
                              .most = 2,
                              .timeout_s = 5};
  cr_assert_eq(weir_transport_tcp_open(&first, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(pthread_create(&thread, NULL, take_in, first), 0);
  told_backwards = true;
  memmove(where + strlen("nowhere,"), where, strlen(where) + 1);
  memcpy(where, "nowhere,", strlen("nowhere,"));
  cr_expect_eq(weir_transport_tcp_join(&second, &options, 5, &members), WEIR_OK, "%s",
               weir_last_error());
  (void)pthread_join(thread, &grown);
  cr_assert(grown != NULL && second != NULL && second->size == 2);
  second->ops->destroy(second);
  ((weir_transport *)grown)->ops->destroy(grown);
  first->ops->destroy(first);
}

typedef struct latecomer {
  group *g;
  int rank;
  double nap_s;
} latecomer;

static void *come(void *argument) {
  const latecomer *l = argument;
  group_nap(l->nap_s);
  group_rank(l->g, l->rank);
  return NULL;
}

/* All ranks but one come, each at a time of its own, and give up in that order: whoever does names
 * the one that is missing, and none of those that were there and have given up before. */
static void one_is_missing(enum group_kind kind, int missing) {
  enum { SIZE = 4 };
  pthread_t thread[SIZE];
  latecomer l[SIZE];
  char due[16];
  ENDED group g = group_new(kind, SIZE, group_talk, NULL);
  g.timeout_s = 0.8;
  for (int r = 0; r < SIZE; r++) {
    l[r] = (latecomer){&g, r, 0.1 * ((r + 3) % SIZE)}; /* rank 1 first, rank 0 last */
    if (r == missing) continue;
    if (kind == GROUP_THREADS) {
      cr_assert_eq(pthread_create(&thread[r], NULL, come, &l[r]), 0);
    } else if ((g.pid[r] = fork()) == 0) {
      (void)alarm(GROUP_WATCHDOG_S);
      (void)come(&l[r]);
      _exit(0);
    }
  }
  for (int r = 0; r < SIZE; r++)
    if (r != missing && kind == GROUP_THREADS)
      (void)pthread_join(thread[r], NULL);
    else if (r != missing)
      (void)waitpid(g.pid[r], NULL, 0);
  (void)snprintf(due, sizeof due, "rank %d ", missing);
  for (int r = 0; r < SIZE; r++) {
    if (r == missing) continue;
    cr_assert_eq(g.result[r].status, WEIR_E_TIMEOUT, "rank %d without %d: %s", r, missing,
                 g.result[r].message);
    cr_assert(strncmp(g.result[r].message, due, strlen(due)) == 0, "rank %d without %d: %s", r,
              missing, g.result[r].message);
  }
  cr_assert(kind != GROUP_TCP || missing == 0 ||
                strstr(g.result[0].message, "rank 0 in time, which listens at 127.0.0.1:") != NULL,
            "%s", g.result[0].message);
}

Test(rendezvous, the_one_that_is_missing_is_named) {
  static const enum group_kind kinds[] = {GROUP_TCP, GROUP_SHM, GROUP_THREADS};
  for (size_t k = 0; k < 3; k++)
    for (int missing = 0; missing < 4; missing++) one_is_missing(kinds[k], missing);
}

static void keep_line(void *user, const weir_log_line *line) {
  (void)snprintf(user, 128, "%s", line->text);
}

/* A port that another program holds is waited for, as one that ends may do, and not in silence. */
Test(rendezvous, a_port_that_is_taken_is_told_of) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof at;
  weir_transport *t = NULL;
  char line[128] = "", where[32], due[96];
  const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  cr_assert(bind(holder, (struct sockaddr *)&at, sizeof at) == 0 && listen(holder, 1) == 0);
  cr_assert_eq(getsockname(holder, (struct sockaddr *)&at, &length), 0);
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", ntohs(at.sin_port));
  weir_log_set(keep_line, line);
  cr_assert_eq(weir_transport_tcp(&t, where, NULL, 1, 0, 2, 2.5), WEIR_E_IO);
  weir_log_set(NULL, NULL);
  (void)snprintf(due, sizeof due, "%s is taken by another program, and is waited for", where);
  cr_assert_str_eq(line, due);
  (void)close(holder);
}

Test(rendezvous, bad_arguments) {
  weir_transport *t = NULL;
  const char *bad[] = {
      NULL,          "", "localhost", ":5000", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000",
      "127.0.0.1:5x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_assert_eq(weir_transport_tcp(&t, bad[i], NULL, 1, 0, 2, 0.2), WEIR_E_INVALID, "%zu", i);
  cr_assert_eq(weir_transport_tcp(&t, "127.0.0.1:5000", "here", 1, 0, 2, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_tcp(&t, "127.0.0.1:5000", NULL, 1, 2, 2, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_tcp(&t, "127.0.0.1:5000", NULL, 1, 0, 0, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_tcp(&t, "127.0.0.1:5000", NULL, 1, 0, 2, 0.0), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_inproc(&t, "", 0, 1, 1.0), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_inproc(&t, "g", -1, 1, 1.0), WEIR_E_INVALID);
}

static int dial(const char *where) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  to.sin_port = htons((uint16_t)atoi(strchr(where, ':') + 1));
  for (int i = 0; i < 200; i++) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    (void)close(fd);
    group_nap(0.01);
  }
  return -1;
}

/* The group waits for it while strangers come. */
static void last_comes_late(group *g, int rank) {
  if (rank == g->size - 1) group_nap(0.8);
}

static group start_with_one_late(void) {
  group g = group_new(GROUP_TCP, 3, group_talk, NULL);
  g.timeout_s = 10.0;
  g.prepare = last_comes_late;
  group_start(&g);
  return g;
}

/* Random bytes, silence, and half a greeting, all before the group is complete. */
Test(rendezvous, strangers_and_garbage_hurt_nobody) {
  ENDED group g = start_with_one_late();
  weir_rng rng = weir_rng_of(3);
  int fds[90]; /* more than may wait at once */
  for (int i = 0; i < 90; i++) {
    unsigned char noise[200];
    for (size_t b = 0; b < sizeof noise; b++) noise[b] = (unsigned char)weir_rng_next(&rng);
    fds[i] = dial(g.where);
    cr_assert_geq(fds[i], 0);
    if (i % 3 == 1) (void)send(fds[i], noise, sizeof noise, MSG_NOSIGNAL);
    if (i % 3 == 2) (void)send(fds[i], "WEIH", 4, MSG_NOSIGNAL);
  }
  group_join(&g);
  for (int i = 0; i < 90; i++) (void)close(fds[i]);
  group_well(&g);
}

/* Ranks 0 and 1 of two users, and no secret: neither takes the other in, whichever is whose. */
static void become_nobody(group *g, int rank) {
  static const uid_t nobody = 65534;
  if (rank == *(const int *)g->user && setresuid(nobody, nobody, nobody) != 0) _exit(1);
}

static void two_users(int stranger) {
  ENDED group g = group_new(GROUP_TCP, 2, group_talk, &stranger);
  g.timeout_s = 1.0;
  g.prepare = become_nobody;
  group_run(&g);
  cr_assert_eq(g.result[0].status, WEIR_E_TIMEOUT, "%s", g.result[0].message);
  cr_assert_neq(g.result[1].status, WEIR_OK);
  cr_assert_not_null(strstr(g.result[1].message, "another user"), "%s", g.result[1].message);
  const char *users =
      stranger == 0 ? "(user 65534; this rank is user 0)" : "(user 0; this rank is user 65534)";
  cr_assert_not_null(strstr(g.result[1].message, users), "%s", g.result[1].message);
}

Test(rendezvous, without_a_secret_another_user_stays_outside) {
  if (geteuid() != 0) cr_skip_test("only root can be two users");
  two_users(0);
  two_users(1);
}

/* A rank of another job, of another size, and a second rank 1: refused with the reason; the others
 * are not disturbed. */
Test(rendezvous, those_who_do_not_belong_are_told) {
  ENDED group g = start_with_one_late();
  group_nap(0.3); /* rank 1 has registered */
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_tcp(&t, g.where, NULL, g.job + 1, 2, 3, 5.0), WEIR_E_MISMATCH);
  cr_assert(strstr(weir_last_error(), "another job") != NULL, "%s", weir_last_error());
  cr_assert_eq(weir_transport_tcp(&t, g.where, NULL, g.job, 2, 4, 5.0), WEIR_E_MISMATCH);
  cr_assert(strstr(weir_last_error(), "number of ranks") != NULL, "%s", weir_last_error());
  cr_assert_eq(weir_transport_tcp(&t, g.where, NULL, g.job, 1, 3, 5.0), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "rank is taken") != NULL, "%s", weir_last_error());
  group_join(&g);
  group_well(&g);
}

/* One that has registered, and whose connection is lost then, is taken in when it comes again. */
Test(rendezvous, who_has_lost_its_connection_may_come_again) {
  ENDED group g = start_with_one_late();
  group_nap(0.3); /* rank 1 has registered */
  (void)kill(g.pid[1], SIGKILL);
  (void)waitpid(g.pid[1], NULL, 0);
  group_start_rank(&g, 1);
  group_join(&g);
  group_well(&g);
}

static weir_transport *second;
static void *join_twice(void *size) {
  (void)weir_transport_inproc(&second, "twice", 1, *(int *)size, 0.5);
  return NULL;
}

Test(rendezvous, threads_of_other_sizes_are_refused) {
  pthread_t thread;
  int size = 3;
  cr_assert_eq(pthread_create(&thread, NULL, join_twice, &size), 0);
  group_nap(0.1);
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_inproc(&t, "twice", 0, 2, 0.1), WEIR_E_MISMATCH);
  cr_assert_eq(weir_transport_inproc(&t, "twice", 1, 3, 0.1), WEIR_E_INVALID);
  (void)pthread_join(thread, NULL);
  cr_assert_null(second);
}
