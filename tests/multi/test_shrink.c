/* What is left of a group goes on: who it is, what it sums, and what it leaves behind. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/time.h>

#include "collectives/transports/tcp.h"
#include "ranks.h"

#define TIMEOUT_S 1.5
#define N 5000

typedef struct scene {
  int victims;
  int victim[3];
  int signal[3];
  int step[3];  /* when it strikes: at the begin of this step of the group it is in */
  int group[3]; /* 0: the first; 1: that of its survivors */
  int groups;   /* in all */
  bool deaf;    /* victims' answering threads get no processor any more */
  int *members; /* shared: who each rank saw at last, GROUP_MAX each */
} scene;

/* Of ranks with each other in a scene. */
static double patience_s = TIMEOUT_S;

/* Strikes this rank if it is its turn: at its step, or (step < 0) because the group has ended
 * before it came to that.  True: it leaves in good order. */
static bool strikes(const scene *s, int rank, int number, int step) {
  for (int v = 0; v < s->victims; v++) {
    if (s->victim[v] != rank || s->group[v] != number || (step >= 0 && s->step[v] != step))
      continue;
    static atomic_int raised; /* once a process: one that thaws is not struck again */
    if (s->signal[v] == 0) return true;
    if (atomic_fetch_add(&raised, 1) == 0) (void)raise(s->signal[v]);
  }
  return false;
}

/* Steps of every all-reduce until one fails or `steps` are done; a sum that is wrong is INTERNAL.
 * old: the numbers ranks had at first. */
static weir_status sums(weir_transport *t, const int *old, int steps, const scene *s, int number) {
  weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, patience_s);
  if (status != WEIR_OK) return status;
  FREED float *x = malloc(N * sizeof *x);
  float due = 0;
  for (int r = 0; r < t->size; r++) due += (float)(1 << old[r]);
  for (int step = 0; status == WEIR_OK && step < steps; step++) {
    if (strikes(s, old[t->rank], number, step)) {
      status = WEIR_E_CAPACITY;
      break;
    }
    for (size_t i = 0; i < N; i++) x[i] = (float)(1 << old[t->rank]);
    weir_comm_step(comm, 7, (uint64_t)step);
    status =
        weir_allreduces[step % WEIR_ALLREDUCE_STAR].run(comm, x, N, WEIR_VALUE_FP32, NULL, NULL);
    for (size_t i = 0; status == WEIR_OK && i < N; i++)
      if (x[i] != due)
        status = weir_fail(WEIR_E_INTERNAL, "sum %g, due %g", (double)x[i], (double)due);
  }
  weir_comm_free(comm);
  if (status >= WEIR_E_TIMEOUT && status != WEIR_E_INTERNAL && strikes(s, old[t->rank], number, -1))
    return WEIR_E_CAPACITY;
  return status;
}

static weir_status shrinking_body(weir_transport *first, void *user) {
  const scene *s = user;
  int old[GROUP_MAX], names[GROUP_MAX], kept[GROUP_MAX];
  weir_transport *t = first;
  const int self = first->rank;
  const bool mixed = strcmp(first->ops->name, "mixed") == 0;
  if (s->deaf && self == s->victim[0]) tcp_answerer_stop((tcp *)first);
  weir_status status = WEIR_OK;
  for (int r = 0; r < first->size; r++) old[r] = r;
  for (int number = 0; number < s->groups; number++) {
    const bool last = number + 1 == s->groups;
    status = mixed && number > 0 ? group_share(t, old, first->size, 0, patience_s) : WEIR_OK;
    if (status == WEIR_OK) status = sums(t, old, last ? 30 : 1000000, s, number);
    if (last || status == WEIR_E_CAPACITY || status == WEIR_E_INTERNAL) break;
    weir_transport *next = NULL;
    const double begun_s = weir_now_s();
    status = t->ops->shrink(t, patience_s, &next, kept);
    const double took_s = weir_now_s() - begun_s; /* the bound of weir.h, and a second more */
    if (took_s > 3 * patience_s + 3) status = weir_fail(WEIR_E_INTERNAL, "it took %g s", took_s);
    if (status != WEIR_OK) break;
    for (int r = 0; r < next->size; r++) names[r] = old[kept[r]];
    memcpy(old, names, sizeof old);
    if (t != first) t->ops->destroy(t);
    t = next;
    if (old[t->rank] != self) status = weir_fail(WEIR_E_INTERNAL, "another rank's number");
    if (status != WEIR_OK) break;
  }
  for (int r = 0; r < GROUP_MAX; r++)
    s->members[self * GROUP_MAX + r] = status == WEIR_OK && r < t->size ? old[r] : -1;
  if (t != first) t->ops->destroy(t);
  return status;
}

static bool struck(const scene *s, int rank) {
  for (int v = 0; v < s->victims; v++)
    if (s->victim[v] == rank) return true;
  return false;
}

static void play_as(enum group_kind kind, int size, scene s, weir_status due) {
  group g;
  s.members = group_shared(GROUP_MAX * GROUP_MAX * sizeof *s.members);
  group_init(&g, kind, size, shrinking_body, &s);
  if (kind == GROUP_THREADS || kind == GROUP_SHM_THREADS) {
    group_run(&g);
  } else {
    group_start(&g);
    for (int r = 0; r < size; r++)
      if (!struck(&s, r)) (void)waitpid(g.pid[r], NULL, 0);
    for (int r = 0; r < size; r++)
      if (struck(&s, r)) {
        (void)kill(g.pid[r], SIGKILL);
        (void)waitpid(g.pid[r], NULL, 0);
      }
  }
  for (int r = 0; r < size; r++) {
    if (struck(&s, r)) continue;
    cr_assert_eq(g.result[r].status, due, "kind %d, size %d, rank %d: %s %s", (int)kind, size, r,
                 weir_status_name(g.result[r].status), g.result[r].message);
    for (int i = 0, at = 0; due == WEIR_OK && i < size; i++)
      if (!struck(&s, i))
        cr_assert_eq(s.members[r * GROUP_MAX + at++], i,
                     "kind %d, size %d, rank %d: member %d is %d", (int)kind, size, r, at - 1,
                     s.members[r * GROUP_MAX + at - 1]);
  }
  (void)munmap(s.members, GROUP_MAX * GROUP_MAX * sizeof *s.members);
  group_done(&g);
}

static void play(enum group_kind kind, int size, scene s) { play_as(kind, size, s, WEIR_OK); }

static scene one(int victim, int signal, int step) {
  return (scene){.victims = 1, .victim = {victim}, .signal = {signal}, .step = {step}, .groups = 2};
}

static scene two(int a, int signal_a, int b, int signal_b, int step_b) {
  return (scene){.victims = 2,
                 .victim = {a, b},
                 .signal = {signal_a, signal_b},
                 .step = {4, step_b},
                 .groups = 2};
}

static void any_rank(enum group_kind kind, int signal) {
  for (int size = 2; size <= 5; size++)
    for (int victim = 0; victim < size; victim++) play(kind, size, one(victim, signal, victim));
}
Test(shrink, a_rank_that_leaves_threads) { any_rank(GROUP_THREADS, 0); }
Test(shrink, a_rank_that_leaves_shm_threads) { any_rank(GROUP_SHM_THREADS, 0); }
Test(shrink, a_dead_rank_tcp) { any_rank(GROUP_TCP, SIGKILL); }
Test(shrink, a_dead_rank_mixed) { any_rank(GROUP_MIXED, SIGKILL); }
Test(shrink, a_dead_rank_shm) { any_rank(GROUP_SHM, SIGKILL); }

static void frozen(enum group_kind kind) {
  play(kind, 4, one(0, SIGSTOP, 3));
  play(kind, 3, one(2, SIGSTOP, 5));
  play(kind, 2, one(1, SIGSTOP, 2)); /* half of the group, with rank 0 */
}
Test(shrink, a_frozen_rank_tcp) { frozen(GROUP_TCP); }
Test(shrink, a_frozen_rank_mixed) { frozen(GROUP_MIXED); }
Test(shrink, a_frozen_rank_shm) { frozen(GROUP_SHM); }

/* At once, one after the other, and of both kinds. */
static void several(enum group_kind kind) {
  play(kind, 5, two(0, SIGKILL, 1, SIGKILL, 4));
  play(kind, 5, two(4, SIGKILL, 2, SIGKILL, 4));
  play(kind, 4, two(0, SIGKILL, 3, SIGKILL, 4));
  play(kind, 5, two(1, SIGSTOP, 3, SIGKILL, 4));
  play(kind, 5, two(0, SIGSTOP, 1, SIGSTOP, 4));
  play(kind, 4,
       (scene){.victims = 3,
               .victim = {0, 1, 3},
               .signal = {SIGKILL, SIGKILL, SIGKILL},
               .step = {3, 3, 3},
               .groups = 2});
}
Test(shrink, two_ranks_tcp) { several(GROUP_TCP); }
Test(shrink, two_ranks_mixed) { several(GROUP_MIXED); }
Test(shrink, two_ranks_shm) { several(GROUP_SHM); }
Test(shrink, two_ranks_threads) { play(GROUP_THREADS, 5, two(0, 0, 3, 0, 4)); }

/* The survivors lose another one. */
static void twice(enum group_kind kind, int signal) {
  scene s = two(0, signal, 2, signal, 6);
  s.group[1] = 1;
  s.groups = 3;
  play(kind, 5, s);
}
Test(shrink, twice_tcp) { twice(GROUP_TCP, SIGKILL); }
Test(shrink, twice_mixed) { twice(GROUP_MIXED, SIGKILL); }
Test(shrink, twice_shm) { twice(GROUP_SHM, SIGKILL); }
Test(shrink, twice_threads) { twice(GROUP_THREADS, 0); }

/* Of 14 MiB, as a container may have little, the first group has taken 10. */
Test(shrink, where_there_is_no_room_for_two_segments_shm) {
  if (unshare(CLONE_NEWNS | (geteuid() != 0 ? CLONE_NEWUSER : 0)) != 0 ||
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=14m") != 0)
    cr_skip_test("no /dev/shm of our own can be made here");
  play(GROUP_SHM, 4, one(0, SIGKILL, 3));
}

/* Rank 0 is silent: rank 1 of 2, and ranks 2 and 3 of 4, may not go on without the others. */
static void too_few(enum group_kind kind) {
  play_as(kind, 2, one(0, SIGSTOP, 4), WEIR_E_PEER);
  play_as(kind, 4, two(0, SIGSTOP, 1, SIGSTOP, 4), WEIR_E_PEER);
}
Test(shrink, not_by_a_minority_tcp) { too_few(GROUP_TCP); }
Test(shrink, not_by_a_minority_shm) { too_few(GROUP_SHM); }

/* --- a frozen rank that thaws --------------------------------------------------------------- */

/* It was stopped in the group and wakes after the others have gone on and ended: it must not take
 * itself for the only one left.  False: one of the others was not heard of by the rest in time. */
static bool thaws(enum group_kind kind, bool deaf, char *said, size_t room) {
  scene s = one(1, SIGSTOP, 4);
  s.deaf = deaf;
  group g;
  s.members = group_shared(GROUP_MAX * GROUP_MAX * sizeof *s.members);
  group_init(&g, kind, 4, shrinking_body, &s);
  group_start(&g);
  for (int r = 0; r < 4; r++)
    if (r != 1) (void)waitpid(g.pid[r], NULL, 0);
  (void)kill(g.pid[1], SIGCONT);
  (void)waitpid(g.pid[1], NULL, 0);
  bool together = true;
  for (int r = 0; r < 4; r++) {
    const weir_status status = g.result[r].status;
    const bool alone = r != 1 && (status == WEIR_E_PEER || status == WEIR_E_TIMEOUT);
    (void)snprintf(said, room, "kind %d, rank %d: %s %s", (int)kind, r, weir_status_name(status),
                   g.result[r].message);
    cr_assert(alone || status == (r == 1 ? WEIR_E_PEER : WEIR_OK), "%s", said);
    together = together && !alone;
    if (alone) break;
  }
  (void)munmap(s.members, GROUP_MAX * GROUP_MAX * sizeof *s.members);
  group_done(&g);
  return together;
}

/* Where a machine has so much to do that nobody hears of a rank for so long, four times that is
 * waited for. */
static void thaw(enum group_kind kind, bool deaf) {
  char said[512];
  bool together = thaws(kind, deaf, said, sizeof said);
  patience_s = 4 * TIMEOUT_S;
  if (!together) together = thaws(kind, deaf, said, sizeof said);
  cr_assert(together, "%s", said);
}
Test(shrink, a_rank_that_thaws_shm) { thaw(GROUP_SHM, false); }
Test(shrink, a_rank_that_thaws_tcp) { thaw(GROUP_TCP, false); }
/* What the others have told it has come, and nobody has read it yet. */
Test(shrink, a_rank_that_thaws_before_it_has_heard_tcp) { thaw(GROUP_TCP, true); }

/* A rank has left, and this one finds it gone. */
static weir_status misses(weir_transport *t, int lost) {
  const weir_tag tag = {1, 1, 1, 0};
  unsigned char byte = 0;
  weir_recv recv = {lost, &byte, 1, 0, 0};
  const weir_status status = t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + TIMEOUT_S);
  return status == WEIR_E_PEER ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "status %d", (int)status);
}

/* Three are left, and hear each other. */
static weir_status goes_on(weir_status status, weir_transport *next) {
  if (status == WEIR_OK && next->size != 3)
    status = weir_fail(WEIR_E_INTERNAL, "%d are left", next->size);
  if (status == WEIR_OK) status = group_talk_at(next, 1, TIMEOUT_S);
  if (next) next->ops->destroy(next);
  return status;
}

/* Rank 1 comes too late for the others, is told so, and stays out however often it tries. */
static weir_status late_body(weir_transport *t, void *user) {
  (void)user;
  int kept[GROUP_MAX];
  weir_transport *next = NULL;
  if (t->rank == 3) return WEIR_OK; /* leaves */
  weir_status status = misses(t, 3);
  if (status != WEIR_OK) return status;
  if (t->rank == 1) group_nap(3.0 * TIMEOUT_S);
  status = t->ops->shrink(t, TIMEOUT_S, &next, kept);
  for (int again = 0; t->rank == 1 && again < 2 && status == WEIR_E_PEER; again++) {
    status = t->ops->shrink(t, TIMEOUT_S, &next, kept);
    group_nap(0.1);
  }
  if (status == WEIR_OK && next->size != 2)
    status = weir_fail(WEIR_E_INTERNAL, "%d are left", next->size);
  if (next) next->ops->destroy(next);
  return status;
}

static void too_late(enum group_kind kind) {
  group g;
  group_init(&g, kind, 4, late_body, NULL);
  group_run(&g);
  for (int r = 0; r < 4; r++)
    cr_assert_eq(g.result[r].status, r == 1 ? WEIR_E_PEER : WEIR_OK, "kind %d, rank %d: %s %s",
                 (int)kind, r, weir_status_name(g.result[r].status), g.result[r].message);
  group_done(&g);
}
Test(shrink, a_rank_that_comes_too_late_tcp) { too_late(GROUP_TCP); }
Test(shrink, a_rank_that_comes_too_late_shm) { too_late(GROUP_SHM); }
Test(shrink, a_rank_that_comes_too_late_threads) { too_late(GROUP_THREADS); }

/* Rank 1 comes late because it was busy elsewhere, with a probe or with the rank that is lost, and
 * answers meanwhile: it is waited for. */
static weir_status busy_body(weir_transport *t, void *user) {
  (void)user;
  int kept[GROUP_MAX];
  weir_transport *next = NULL;
  if (t->rank == 3) return WEIR_OK; /* leaves */
  weir_status status = misses(t, 3);
  if (status != WEIR_OK) return status;
  if (t->rank == 1) group_nap(1.4 * TIMEOUT_S);
  status = t->ops->shrink(t, TIMEOUT_S, &next, kept);
  return goes_on(status, next);
}

/* Rank 1 has tried on its own while the others were busy: its second attempt and their first are
 * one. */
static weir_status hasty_body(weir_transport *t, void *user) {
  (void)user;
  int kept[GROUP_MAX];
  weir_transport *next = NULL;
  if (t->rank == 3) return WEIR_OK; /* leaves */
  weir_status status = misses(t, 3);
  if (status != WEIR_OK) return status;
  for (int early = 0; early < 2 && t->rank == 1; early++)
    if (t->ops->shrink(t, 0.1, &next, kept) != WEIR_E_PEER)
      return weir_fail(WEIR_E_INTERNAL, "one of four goes on alone");
  if (t->rank != 1) group_nap(0.8);
  status = t->ops->shrink(t, 2 * TIMEOUT_S, &next, kept);
  return goes_on(status, next);
}

static void all_go_on(enum group_kind kind, weir_status (*body)(weir_transport *, void *)) {
  group_passes(kind, 4, body, NULL);
}
Test(shrink, a_rank_that_is_busy_is_waited_for_tcp) { all_go_on(GROUP_TCP, busy_body); }
Test(shrink, attempts_of_different_number_meet_tcp) { all_go_on(GROUP_TCP, hasty_body); }
Test(shrink, attempts_of_different_number_meet_shm) { all_go_on(GROUP_SHM, hasty_body); }
Test(shrink, attempts_of_different_number_meet_threads) { all_go_on(GROUP_THREADS, hasty_body); }

/* Rank 2 is stopped when it has asked to go on, so that the others count on it: they fail once, and
 * go on without it when they try again. */
static void stop(int signal) { (void)raise(signal == SIGALRM ? SIGSTOP : signal); }

static weir_status stopped_body(weir_transport *t, void *user) {
  (void)user;
  const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
  int kept[GROUP_MAX];
  weir_transport *next = NULL;
  if (t->rank == 3) return WEIR_OK; /* leaves */
  weir_status status = misses(t, 3);
  if (status != WEIR_OK) return status;
  if (t->rank == 2) {
    (void)signal(SIGALRM, stop);
    (void)setitimer(ITIMER_REAL, &soon, NULL);
  } else {
    group_nap(0.5);
  }
  status = t->ops->shrink(t, TIMEOUT_S, &next, kept);
  for (int again = 0; again < 2 && status >= WEIR_E_TIMEOUT; again++)
    status = t->ops->shrink(t, TIMEOUT_S, &next, kept);
  return goes_on(status, next);
}

static void stopped(enum group_kind kind) {
  group g;
  group_init(&g, kind, 5, stopped_body, NULL);
  group_start(&g);
  for (int turn = 0; turn < 2; turn++)
    for (int r = 0; r < 5; r++) {
      if ((r == 2) != (turn == 1)) continue;
      if (r == 2) (void)kill(g.pid[r], SIGKILL);
      (void)waitpid(g.pid[r], NULL, 0);
      cr_expect(r == 2 || g.result[r].status == WEIR_OK, "kind %d, rank %d: %s %s", (int)kind, r,
                weir_status_name(g.result[r].status), g.result[r].message);
    }
  group_done(&g);
}
Test(shrink, a_rank_that_is_stopped_when_it_has_asked_tcp) { stopped(GROUP_TCP); }
Test(shrink, a_rank_that_is_stopped_when_it_has_asked_shm) { stopped(GROUP_SHM); }

/* --- what stays behind ---------------------------------------------------------------------- */

static weir_status leaving_body(weir_transport *t, void *user) {
  (void)user;
  const int before = group_descriptors();
  int kept[GROUP_MAX];
  if (t->rank == 1) return WEIR_OK;
  weir_status status = misses(t, 1);
  if (status != WEIR_OK) return status;
  weir_transport *next = NULL;
  status = t->ops->shrink(t, TIMEOUT_S, &next, kept);
  if (status != WEIR_OK) return status;
  next->ops->destroy(next);
  group_nap(0.1);
  return group_descriptors() == before
             ? WEIR_OK
             : weir_fail(WEIR_E_INTERNAL, "%d descriptors, %d before", group_descriptors(), before);
}

static void leaves_nothing(enum group_kind kind) { group_passes(kind, 3, leaving_body, NULL); }
Test(shrink, leaves_no_descriptor) {
  leaves_nothing(GROUP_TCP);
  leaves_nothing(GROUP_MIXED);
  leaves_nothing(GROUP_SHM);
}

Test(shrink, a_group_of_one_cannot) {
  weir_transport *t = NULL, *out = NULL;
  int kept[1];
  cr_assert_eq(weir_transport_tcp(&t, "127.0.0.1:5000", NULL, 1, 0, 1, 0.5), WEIR_OK);
  cr_assert_eq(t->ops->shrink(t, 0.5, &out, kept), WEIR_E_STATE);
  cr_assert_null(out);
  t->ops->destroy(t);
}
