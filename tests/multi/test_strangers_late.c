/* Strangers at the doors of a group that runs, and of one that loses a rank meanwhile: every reason
 * to refuse them is logged once a meeting, and nobody of the group is hurt. */
#include <stdatomic.h>

#include "collectives/transports/tcp.h"
#include "log_file.h"
#include "wire_bytes.h"

#define RANKS 3
#define TALK_S 3.0
#define SILENT 200 /* that stay: more than a meeting has room for */
#define HASTY 40   /* that hang up in mid-word */

/* --- at the rendezvous: every reason, three times ------------------------------------------- */

static void come_and_be_refused(const group *g, const unsigned char *hello) {
  unsigned char answer[HELLO];
  for (int i = 0; i < 3; i++) {
    const int fd = dial(g->where);
    send_all(fd, hello, HELLO);
    cr_assert_eq(receive(fd, answer, HELLO), HELLO);
    cr_assert_eq(get(answer + 6, 2), REFUSED);
    (void)close(fd);
  }
}

static weir_status talk_once(weir_transport *t, void *user) {
  (void)user;
  return group_talk_at(t, 1, TALK_S);
}

Test(strangers, every_reason_is_logged_once) {
  char log[64];
  unsigned char hello[HELLO];
  new_log(log);
  ENDED group g = group_new(GROUP_TCP, 2, talk_once, NULL);
  for (int r = 0; r < 2; r++) {
    g.pid[r] = fork();
    cr_assert_geq(g.pid[r], 0);
    if (g.pid[r] > 0) continue;
    (void)alarm(GROUP_WATCHDOG_S);
    if (freopen(log, "a", stderr) == NULL || setvbuf(stderr, NULL, _IONBF, 0) != 0) abort();
    if (r == 1) group_nap(1.5); /* the strangers come first */
    group_rank(&g, r);
    _exit(0);
  }
  greeting other = registration(&g);
  other.version = WIRE_VERSION + 1;
  write_hello(hello, other);
  come_and_be_refused(&g, hello);
  other = registration(&g);
  other.job++;
  write_hello(hello, other);
  come_and_be_refused(&g, hello);
  other = registration(&g);
  other.size = 3;
  write_hello(hello, other);
  come_and_be_refused(&g, hello);
  other = registration(&g);
  other.rank = 2;
  write_hello(hello, other);
  come_and_be_refused(&g, hello);
  other = registration(&g); /* of a group that has shrunk */
  other.generation = 1;
  write_hello(hello, other);
  come_and_be_refused(&g, hello);
  other = registration(&g); /* of a connection that is not due */
  other.stream = 1;
  write_hello(hello, other);
  come_and_be_refused(&g, hello);
  memset(hello, 'x', sizeof hello);
  come_and_be_refused(&g, hello);
  group_join(&g);
  group_well(&g);
  static const char *const reasons[] = {"another version", "another job", "another number of ranks",
                                        "does not belong here", "does not speak our protocol"};
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    cr_assert_eq(count_lines(log, reasons[i]), 1, "%s: %d lines", reasons[i],
                 count_lines(log, reasons[i]));
  cr_assert_eq(count_lines(log, "refused"), 5);
  (void)unlink(log);
}

/* --- at the doors of a group that runs ------------------------------------------------------ */

/* A call at a rank's door; -1: it has gone. */
static int try_call(const tcp *self, int rank) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) abort();
  if (connect(fd, (const struct sockaddr *)&self->peer[rank].data, sizeof(struct sockaddr_in)) == 0)
    return fd;
  (void)close(fd);
  return -1;
}

static int call(const tcp *self, int rank) {
  const int fd = try_call(self, rank);
  if (fd < 0) abort();
  return fd;
}

/* One call after the other, each until it is hung up on: however many come, a door is looked at ten
 * times in 0.1 s and no more, so that they cost the rank no more of its processor than that. */
static weir_status knock(weir_transport *t, void *user) {
  enum { CALLS = 60 };
  const double begin_s = weir_now_s();
  (void)user;
  for (int i = 0; t->rank == 0 && i < CALLS; i++) {
    const struct timeval patience = {.tv_sec = 20};
    char byte;
    const int fd = call((const tcp *)t, 1);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (recv(fd, &byte, 1, 0) != 0) return weir_fail(WEIR_E_INTERNAL, "call %d is heard", i);
    (void)close(fd);
    group_nap(0.003); /* until the look is over, which takes all who are there */
  }
  const double took_s = weir_now_s() - begin_s;
  if (t->rank == 0 && took_s < 0.4)
    return weir_fail(WEIR_E_INTERNAL, "%d calls were answered in %.3f s", CALLS, took_s);
  return group_talk_at(t, 1, 30.0);
}

Test(strangers, who_call_without_end) {
  ENDED group g = group_new(GROUP_TCP, 2, knock, NULL);
  group_run(&g);
  group_well(&g);
}

/* --- at the socket that asks who is there --------------------------------------------------- */

/* Finds this process's other datagram socket, and puts what is none in its place: from then on
 * there is always something to be taken there, and it is never a reply. */
static void *spoil(void *argument) {
  const int *own = argument, nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (int fd = 0, found = 0; !found; fd = (fd + 1) % 256) {
    int type = 0;
    socklen_t length = sizeof type;
    found = fd != own[0] && fd != own[1] &&
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_DGRAM;
    if (found) (void)dup2(nothing, fd);
  }
  (void)close(nothing);
  return NULL;
}

/* Rank 1 is silent, as what it is asked goes to a socket that nobody reads. */
static weir_status ask_in_vain(weir_transport *t, void *user) {
  (void)user;
  if (t->rank != 0) return group_talk_at(t, 1, 30.0);
  tcp *self = (tcp *)t;
  pthread_t thread;
  tcp_reply reply[2] = {{false, 0}};
  const struct sockaddr_in there = self->peer[1].echo;
  struct sockaddr_in at = there;
  socklen_t length = sizeof at;
  int own[] = {self->udp, socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  at.sin_port = 0;
  if (bind(own[1], (const struct sockaddr *)&at, sizeof at) != 0 ||
      getsockname(own[1], (struct sockaddr *)&self->peer[1].echo, &length) != 0 ||
      pthread_create(&thread, NULL, spoil, own) != 0)
    abort();
  const double begin_s = weir_now_s();
  tcp_ask_all(self, reply, begin_s + 0.5);
  const double took_s = weir_now_s() - begin_s;
  (void)pthread_join(thread, NULL);
  (void)close(own[1]);
  self->peer[1].echo = there;
  if (reply[1].alive || took_s < 0.4 || took_s > 5)
    return weir_fail(WEIR_E_INTERNAL, "asking for 0.5 s took %.3f s", took_s);
  return group_talk_at(t, 1, 30.0);
}

Test(strangers, asking_ends_whatever_comes_instead_of_replies) {
#if defined(__SANITIZE_THREAD__)
  cr_skip_test("a descriptor is replaced behind the back of who uses it, as no thread may");
#endif
  ENDED group g = group_new(GROUP_TCP, 2, ask_in_vain, NULL);
  group_run(&g);
  group_well(&g);
}

/* A rank may say that it waits for one that there is not: then it waits for nobody. */
static weir_status ask_one_who_lies(weir_transport *t, void *user) {
  tcp *self = (tcp *)t;
  (void)user;
  if (t->rank == 1) atomic_store(&self->waiting_on, 1 << 20);
  weir_status status = WEIR_OK;
  tcp_reply reply[2] = {{false, 0}};
  group_nap(t->rank == 0 ? 0.1 : 0.5);
  if (t->rank == 0) tcp_ask_all(self, reply, weir_now_s() + 5.0);
  if (t->rank == 0 && (!reply[1].alive || reply[1].waiting_on != -1))
    status =
        weir_fail(WEIR_E_INTERNAL, "alive %d, waits for %d", reply[1].alive, reply[1].waiting_on);
  return status == WEIR_OK ? group_talk_at(t, 1, 30.0) : status;
}

Test(strangers, and_members_wait_for_ranks_that_there_are) {
  group_passes(GROUP_TCP, 2, ask_one_who_lies, NULL);
}

/* --- at the doors of a group that loses a rank ---------------------------------------------- */

/* Hold the door of each rank, with more than it has room for: silent ones, and such that have said
 * half of a hello and hang up. */
static void besiege(const tcp *self) {
  static const unsigned char half[HELLO / 2] = "WEIH";
  for (int r = 0; r < RANKS; r++)
    for (int i = 0; i < SILENT + HASTY; i++) {
      const int fd = call(self, r);
      if (i < SILENT) continue; /* stays */
      (void)send(fd, half, sizeof half, MSG_NOSIGNAL);
      (void)close(fd);
    }
}

typedef struct liar {
  const tcp *self;
  uint64_t job;
  atomic_bool stop;
} liar;

/* Says again and again that it is the rank that will be lost, and cannot prove it. */
static void *lie(void *argument) {
  liar *l = argument;
  unsigned char said[2 * HELLO]; /* a hello, and a proof that proves nothing */
  greeting g = {.version = WIRE_VERSION,
                .kind = REJOIN,
                .job = l->job,
                .size = RANKS,
                .rank = RANKS - 1,
                .generation = 1};
  write_hello(said, g);
  g.kind = PROOF;
  write_hello(said + HELLO, g);
  while (!atomic_load(&l->stop))
    for (int r = 0; r < RANKS - 1; r++) {
      const int fd = call(l->self, r);
      (void)send(fd, said, sizeof said, MSG_NOSIGNAL);
      group_nap(0.002);
      (void)close(fd);
    }
  return NULL;
}

static weir_status go_on(weir_transport *t) {
  int old[RANKS];
  weir_status status = group_talk_at(t, 3, TALK_S);
  if (status < WEIR_E_TIMEOUT || status == WEIR_E_INTERNAL)
    return weir_fail(WEIR_E_INTERNAL, "a rank is gone, and status %d", (int)status);
  weir_transport *next = NULL;
  status = t->ops->shrink(t, 3.0, &next, old);
  if (status != WEIR_OK) return status;
  status = next->size == RANKS - 1 && old[0] == 0 && old[1] == 1
               ? group_talk_at(next, 1, TALK_S)
               : weir_fail(WEIR_E_INTERNAL, "%d are left", next->size);
  next->ops->destroy(next);
  return status;
}

static weir_status besieged_body(weir_transport *t, void *user) {
  liar l = {.self = (const tcp *)t, .job = *(const uint64_t *)user};
  pthread_t thread;
  weir_status status = group_talk_at(t, 1, TALK_S);
  if (status == WEIR_OK && t->rank == 0) besiege((const tcp *)t);
  if (status == WEIR_OK)
    status = group_talk_at(t, 2, TALK_S); /* they have come, and nobody has noticed */
  if (status != WEIR_OK || t->rank == RANKS - 1) return status;
  if (t->rank == 0 && pthread_create(&thread, NULL, lie, &l) != 0) abort();
  status = go_on(t);
  atomic_store(&l.stop, true);
  if (t->rank == 0) (void)pthread_join(thread, NULL);
  return status;
}

Test(strangers, at_the_doors_of_a_group_that_loses_a_rank) {
  char log[RANKS][64];
  uint64_t job = 0;
  ENDED group g = group_new(GROUP_TCP, RANKS, besieged_body, &job);
  job = g.job;
  for (int r = 0; r < RANKS; r++) {
    new_log(log[r]);
    g.pid[r] = fork();
    cr_assert_geq(g.pid[r], 0);
    if (g.pid[r] > 0) continue;
    (void)alarm(GROUP_WATCHDOG_S);
    if (freopen(log[r], "a", stderr) == NULL || setvbuf(stderr, NULL, _IONBF, 0) != 0) abort();
    group_rank(&g, r);
    _exit(0);
  }
  group_join(&g);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(g.result[r].status, WEIR_OK, "rank %d: %s", r, g.result[r].message);
    cr_assert_leq(count_lines(log[r], "it does not know this job's secret"), 1);
    cr_assert_leq(count_lines(log[r], "refused"), 1);
    (void)unlink(log[r]);
  }
}

/* --- at the door of one that has to call ----------------------------------------------------- */

#define SITTERS 48 /* fewer than there are seats, and more than half of them */

/* Holds the door of rank 1, with silent ones that come again when they are turned away. */
static void *sit(void *argument) {
  liar *l = argument;
  int fd[SITTERS];
  for (int i = 0; i < SITTERS; i++) fd[i] = try_call(l->self, 1);
  while (!atomic_load(&l->stop)) {
    char byte;
    for (int i = 0; i < SITTERS; i++) {
      if (fd[i] < 0 || recv(fd[i], &byte, 1, MSG_DONTWAIT) != 0) continue;
      (void)close(fd[i]);
      fd[i] = try_call(l->self, 1); /* which may have ended well before rank 0 has */
    }
    group_nap(0.002);
  }
  for (int i = 0; i < SITTERS; i++)
    if (fd[i] >= 0) (void)close(fd[i]);
  return NULL;
}

static weir_status sat_out_body(weir_transport *t, void *user) {
  liar l = {.self = (const tcp *)t};
  pthread_t thread;
  weir_status status = group_talk_at(t, 1, TALK_S);
  (void)user;
  if (status == WEIR_OK && t->rank == 0 && pthread_create(&thread, NULL, sit, &l) != 0) abort();
  if (status == WEIR_OK && t->rank == 0) group_nap(0.1); /* all of them have come */
  if (status == WEIR_OK) status = group_talk_at(t, 2, TALK_S);
  if (status != WEIR_OK || t->rank == RANKS - 1) return status;
  status = go_on(t);
  atomic_store(&l.stop, true);
  if (t->rank == 0) (void)pthread_join(thread, NULL);
  return status;
}

/* Seats that strangers take are none of those that a survivor needs to call the ones below it. */
Test(strangers, do_not_keep_a_survivor_from_calling) {
  ENDED group g = group_new(GROUP_TCP, RANKS, sat_out_body, NULL);
  group_run(&g);
  group_well(&g);
}
