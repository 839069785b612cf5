/* What goes wrong: ranks on another plan, lengths that do not fit, ranks that die, freeze, end. */
#include <criterion/criterion.h>
#include <errno.h>

#include "ranks.h"
#include "stalls.h"

#define CULPRIT 2

/* --- another plan, step, operation ---------------------------------------------------------- */

typedef struct difference {
  uint64_t plan, step;
  uint32_t op, hop;
  const char *said; /* what one of the two ranks must say */
} difference;

/* Rank 1 differs in one field.  Neither side may report success. */
static weir_status differ_body(weir_transport *t, void *user) {
  const difference *d = user;
  const bool other = t->rank == 1;
  unsigned char out[32] = {1}, in[32];
  weir_tag tag = {70, 9, 4, 0};
  uint32_t hop = 6;
  if (other) {
    tag = (weir_tag){tag.plan + d->plan, tag.step + d->step, tag.op + d->op, 0};
    hop += d->hop;
  }
  const weir_send send = {1 - t->rank, out, sizeof out, hop};
  weir_recv recv = {1 - t->rank, in, sizeof in, hop, 0};
  return t->ops->transfer(t, &tag, &send, 1, &recv, 1, weir_now_s() + 5.0);
}

static void differ_case(enum group_kind kind, difference d) {
  ENDED group g = group_new(kind, 2, differ_body, &d);
  group_run(&g);
  bool said = false;
  for (int r = 0; r < 2; r++) {
    cr_assert_eq(g.result[r].status, WEIR_E_MISMATCH, "rank %d: %d %s", r, (int)g.result[r].status,
                 g.result[r].message);
    cr_assert(strstr(g.result[r].message, r == 0 ? "rank 1" : "rank 0") != NULL, "%s",
              g.result[r].message);
    if (strstr(g.result[r].message, d.said)) said = true;
  }
  cr_assert(said, "\"%s\" is in none of: %s; %s", d.said, g.result[0].message, g.result[1].message);
}

static void differ_all(enum group_kind kind) {
  differ_case(kind, (difference){.plan = 1, .said = "plan 0000000000000046"});
  differ_case(kind, (difference){.step = 1, .said = "at step 9"});
  differ_case(kind, (difference){.op = 1, .said = "at operation 4"});
  differ_case(kind, (difference){.hop = 1, .said = "6 w"});
}
Test(mismatch, threads) { differ_all(GROUP_THREADS); }
Test(mismatch, tcp) { differ_all(GROUP_TCP); }
Test(mismatch, mixed) { differ_all(GROUP_MIXED); }
Test(mismatch, shm) { differ_all(GROUP_SHM); }

/* All ranks but one sum 8 elements; that one has 6: nobody gets a sum. */
static weir_status lengths_body(weir_transport *t, void *user) {
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  weir_comm_step(comm, 1, 1);
  status = weir_allreduces[*(const uint32_t *)user].run(comm, x, t->rank == 1 ? 6 : 8,
                                                        WEIR_VALUE_FP32, NULL, NULL);
  return status;
}

static void lengths_case(enum group_kind kind, uint32_t algorithm) {
  ENDED group g = group_new(kind, 2, lengths_body, &algorithm);
  group_run(&g);
  for (int r = 0; r < 2; r++)
    cr_assert(g.result[r].status == WEIR_E_PROTOCOL || g.result[r].status == WEIR_E_PEER,
              "rank %d: %d %s", r, (int)g.result[r].status, g.result[r].message);
}
Test(lengths, differ) {
  for (uint32_t a = 0; a < WEIR_ALLREDUCE_COUNT; a++) {
    lengths_case(GROUP_THREADS, a);
    lengths_case(GROUP_TCP, a);
    lengths_case(GROUP_MIXED, a);
    lengths_case(GROUP_SHM, a);
  }
}

/* Rank 0 sends 100 bytes where 60 are due. */
static weir_status oversize_body(weir_transport *t, void *user) {
  (void)user;
  unsigned char data[100] = {0};
  const weir_tag tag = {1, 2, 3, 0};
  const weir_send send = {1, data, sizeof data, 0};
  weir_recv recv = {0, data, 60, 0, 0};
  const double deadline_s = weir_now_s() + 2.0;
  if (t->rank == 1) return t->ops->transfer(t, &tag, NULL, 0, &recv, 1, deadline_s);
  const weir_status first = t->ops->transfer(t, &tag, &send, 1, NULL, 0, deadline_s);
  if (first != WEIR_OK) return first;
  recv.peer = 1; /* now the other side's verdict */
  return t->ops->transfer(t, &tag, NULL, 0, &recv, 1, deadline_s);
}

static void oversize_case(enum group_kind kind) {
  ENDED group g = group_new(kind, 2, oversize_body, NULL);
  group_run(&g);
  cr_assert_eq(g.result[1].status, WEIR_E_PROTOCOL, "%s", g.result[1].message);
  cr_assert(strstr(g.result[1].message, "rank 0 sent 100 bytes where at most 60") != NULL, "%s",
            g.result[1].message);
  cr_assert_eq(g.result[0].status, WEIR_E_PROTOCOL, "%s", g.result[0].message);
}
Test(oversize, threads) { oversize_case(GROUP_THREADS); }
Test(oversize, tcp) { oversize_case(GROUP_TCP); }
Test(oversize, mixed) { oversize_case(GROUP_MIXED); }
Test(oversize, shm) { oversize_case(GROUP_SHM); }

/* --- ranks that leave, die or freeze -------------------------------------------------------- */

typedef struct endless {
  size_t n;
  double timeout_s;
  int leaves_after;  /* the culprit ends in good order after so many steps; < 0: never */
  int stops_after;   /* the culprit stays there but takes no part after so many steps */
  atomic_int *there; /* ranks that have done a step; shared memory, NULL: nobody asks */
} endless;

static weir_status endless_body(weir_transport *t, void *user) {
  const endless *e = user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, e->timeout_s);
  if (status != WEIR_OK) return status;
  FREED float *x = malloc(e->n * sizeof *x);
  for (int step = 0; status == WEIR_OK; step++) {
    if (t->rank == CULPRIT && step == e->leaves_after) break;
    if (t->rank == CULPRIT && step == e->stops_after) group_nap(e->timeout_s + 2.0);
    for (size_t i = 0; i < e->n; i++) x[i] = 1.0f;
    weir_comm_step(comm, 7, (uint64_t)step);
    const weir_value_format format = (weir_value_format)(step / WEIR_ALLREDUCE_COUNT % 2);
    status = weir_allreduces[step % WEIR_ALLREDUCE_COUNT].run(comm, x, e->n, format, x, NULL);
    if (step == 0 && e->there != NULL) atomic_fetch_add(e->there, 1);
  }
  return status;
}

static void check_survivors(const group *g, double since_s, double within_s) {
  char name[16];
  (void)snprintf(name, sizeof name, "rank %d", CULPRIT);
  for (int r = 0; r < g->size; r++) {
    if (r == CULPRIT) continue;
    const group_result *result = &g->result[r];
    cr_assert(result->status == WEIR_E_PEER || result->status == WEIR_E_TIMEOUT, "rank %d: %d %s",
              r, (int)result->status, result->message);
    cr_assert_eq(strncmp(result->message, name, strlen(name)), 0, "rank %d: %s", r,
                 result->message);
    cr_assert_leq(result->ended_s - since_s, within_s, "rank %d ended after %.2f s", r,
                  result->ended_s - since_s);
  }
}

static void leave_case(enum group_kind kind) {
  endless e = {.n = 1000, .timeout_s = 3.0, .leaves_after = 5, .stops_after = -1};
  ENDED group g = group_new(kind, 5, endless_body, &e);
  group_run(&g);
  check_survivors(&g, 0.0, 1e18);
}
Test(fault, a_rank_that_leaves_threads) { leave_case(GROUP_THREADS); }
Test(fault, a_rank_that_leaves_tcp) { leave_case(GROUP_TCP); }
Test(fault, a_rank_that_leaves_mixed) { leave_case(GROUP_MIXED); }
Test(fault, a_rank_that_leaves_shm) { leave_case(GROUP_SHM); }
Test(fault, a_rank_that_leaves_shm_threads) { leave_case(GROUP_SHM_THREADS); }

/* The process is there (and answers TCP's echoes), but its trainer takes no part: still the one to
 * name. */
static void stop_case(enum group_kind kind, double timeout_s) {
  endless e = {.n = 1000, .timeout_s = timeout_s, .leaves_after = -1, .stops_after = 3};
  ENDED group g = group_new(kind, 5, endless_body, &e);
  group_run(&g);
  check_survivors(&g, 0.0, 1e18);
}
Test(fault, a_rank_that_stops_threads) { stop_case(GROUP_THREADS, 0.5); }
Test(fault, a_rank_that_stops_tcp) { stop_case(GROUP_TCP, 1.0); }
Test(fault, a_rank_that_stops_mixed) { stop_case(GROUP_MIXED, 1.0); }
Test(fault, a_rank_that_stops_shm) { stop_case(GROUP_SHM, 1.0); }
Test(fault, a_rank_that_stops_shm_threads) { stop_case(GROUP_SHM_THREADS, 0.5); }

static void signal_case(enum group_kind kind, int signal, double after_s, size_t n) {
  endless e = {.n = n, .timeout_s = 2.5, .leaves_after = -1, .stops_after = -1};
  e.there = group_shared(sizeof *e.there);
  ENDED group g = group_new(kind, 4, endless_body, &e);
  group_start(&g);
  stalls_wait(e.there, g.size, GROUP_WATCHDOG_S);
  group_nap(after_s);
  const double since_s = weir_now_s();
  cr_assert_eq(kill(g.pid[CULPRIT], signal), 0);
  for (int r = 0; r < g.size; r++)
    if (r != CULPRIT) (void)waitpid(g.pid[r], NULL, 0);
  (void)kill(g.pid[CULPRIT], SIGKILL);
  (void)waitpid(g.pid[CULPRIT], NULL, 0);
  /* To find out who is to blame takes less than a second (weir.h); the other one is for a busy
   * machine. */
  check_survivors(&g, since_s, e.timeout_s + 2.0);
  (void)munmap(e.there, sizeof *e.there);
}

static void signal_all(enum group_kind kind, int signal) {
  weir_rng rng = weir_rng_of((uint64_t)signal);
  const size_t lengths[] = {1, 1000, 300000};
  for (int i = 0; i < 9; i++)
    signal_case(kind, signal, 0.2 * weir_rng_uniform(&rng), lengths[i % 3]);
}
Test(fault, killed) { signal_all(GROUP_TCP, SIGKILL); }
Test(fault, frozen) { signal_all(GROUP_TCP, SIGSTOP); }
Test(fault, killed_mixed) { signal_all(GROUP_MIXED, SIGKILL); }
Test(fault, frozen_mixed) { signal_all(GROUP_MIXED, SIGSTOP); }
Test(fault, killed_shm) { signal_all(GROUP_SHM, SIGKILL); }
Test(fault, frozen_shm) { signal_all(GROUP_SHM, SIGSTOP); }

/* --- echo and abort ------------------------------------------------------------------------- */

static weir_status echo_body(weir_transport *t, void *user) {
  double *rtt = user;
  const weir_tag tag = {1, 1, 1, 0};
  unsigned char byte = 0;
  const weir_send send = {1 - t->rank, &byte, 1, 0};
  weir_recv recv = {1 - t->rank, &byte, 1, 0, 0};
  weir_status status = WEIR_OK;
  for (int i = 0; status == WEIR_OK && i < 10; i++)
    status = t->ops->echo(t, 1 - t->rank, 1.0, &rtt[t->rank * 10 + i]);
  if (status != WEIR_OK) return status;
  if (strcmp(t->ops->address(t, 0), "127.0.0.1") != 0 || t->ops->descriptor(t, t->rank) != -1 ||
      t->ops->descriptor(t, 1 - t->rank) < 0)
    return weir_fail(WEIR_E_INTERNAL, "address or descriptor");
  return t->ops->transfer(t, &tag, &send, 1, &recv, 1, weir_now_s() + 5.0);
}

Test(echo, tcp) {
  double *rtt = group_shared(20 * sizeof *rtt);
  ENDED group g = group_new(GROUP_TCP, 2, echo_body, rtt);
  group_run(&g);
  group_well(&g);
  for (int i = 0; i < 20; i++) {
    cr_assert_gt(rtt[i], 0.0);
    cr_assert_lt(rtt[i], 1.0);
  }
}

/* A link that is slower than the processor, as far as the sender sees it: each call takes some of
 * what it is given, and every second one none. */
static bool slow_link;
static unsigned calls;
int __real_sendmmsg(int fd, struct mmsghdr *message, unsigned count, int flags);
int __wrap_sendmmsg(int fd, struct mmsghdr *message, unsigned count, int flags);

int __wrap_sendmmsg(int fd, struct mmsghdr *message, unsigned count, int flags) {
  if (!slow_link) return __real_sendmmsg(fd, message, count, flags);
  if (calls++ % 2 == 0) {
    errno = EAGAIN;
    return -1;
  }
  return __real_sendmmsg(fd, message, count < 3 ? count : 3, flags);
}

/* Half of the datagrams, with their headers of 42 bytes: (1400 + 42) * 20 of 40. */
static weir_status train_body(weir_transport *t, void *user) {
  double *found = (double *)user + 2 * t->rank;
  const weir_tag tag = {1, 1, 1, 0};
  unsigned char byte = 0;
  const weir_send send = {1 - t->rank, &byte, 1, 0};
  weir_recv recv = {1 - t->rank, &byte, 1, 0, 0};
  size_t bytes = 40 * 1442;
  weir_status status = t->ops->train(t, 1 - t->rank, &bytes, 5.0, &found[1]);
  found[0] = (double)bytes;
  if (slow_link && calls < 28) return weir_fail(WEIR_E_INTERNAL, "%u calls", calls);
  double none;
  if (status == WEIR_OK && t->ops->train(t, t->rank, &bytes, 5.0, &none) != WEIR_E_INVALID)
    status = weir_fail(WEIR_E_INTERNAL, "a train to oneself");
  if (status != WEIR_OK) return status;
  return t->ops->transfer(t, &tag, &send, 1, &recv, 1, weir_now_s() + 5.0);
}

/* 40 in calls of 3, and as many in vain. */
Test(train, goes_on_where_it_does_not_fit_the_buffer) {
  double *found = group_shared(4 * sizeof *found);
  slow_link = true;
  ENDED group g = group_new(GROUP_TCP, 2, train_body, found);
  group_run(&g);
  for (int r = 0; r < 2; r++) {
    cr_assert_eq(g.result[r].status, WEIR_OK, "%s", g.result[r].message);
    cr_assert_eq(found[2 * r], 1442 * 19, "%g", found[2 * r]);
  }
}

Test(train, tcp) {
  double *found = group_shared(4 * sizeof *found);
  ENDED group g = group_new(GROUP_TCP, 2, train_body, found);
  group_run(&g);
  for (int r = 0; r < 2; r++) {
    cr_assert_eq(g.result[r].status, WEIR_OK, "%s", g.result[r].message);
    cr_assert_eq(found[2 * r], 1442 * 19, "%g", found[2 * r]);
    cr_assert(found[2 * r + 1] > 0 && found[2 * r + 1] < 1, "%g", found[2 * r + 1]);
  }
}

/* Rank 0 says that rank 2 is to blame; rank 1 waits for rank 0 and learns it. */
static weir_status abort_body(weir_transport *t, void *user) {
  (void)user;
  unsigned char byte = 0;
  const weir_tag tag = {1, 1, 1, 0};
  weir_recv recv = {(t->rank + 2) % 3, &byte, 1, 0, 0};
  if (t->rank == 0) {
    group_nap(0.2);
    t->ops->abort(t, 2);
  }
  const double begin_s = weir_now_s();
  const weir_status status = t->ops->transfer(t, &tag, NULL, 0, &recv, 1, begin_s + 20.0);
  if (weir_now_s() - begin_s > 15.0) return weir_fail(WEIR_E_INTERNAL, "it was not woken");
  return status;
}

static void abort_case(enum group_kind kind) {
  ENDED group g = group_new(kind, 3, abort_body, NULL);
  group_run(&g);
  for (int r = 0; r < 3; r++) {
    cr_assert_eq(g.result[r].status, WEIR_E_PEER, "%s", g.result[r].message);
    cr_assert_eq(strncmp(g.result[r].message, "rank 2", 6), 0, "%s", g.result[r].message);
  }
}
Test(abort, threads) { abort_case(GROUP_THREADS); }
Test(abort, tcp) { abort_case(GROUP_TCP); }
Test(abort, mixed) { abort_case(GROUP_MIXED); }
Test(abort, shm) { abort_case(GROUP_SHM); }
