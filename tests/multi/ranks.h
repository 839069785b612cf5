/* Groups for tests: one body run by every rank, as threads over the in-process transport, as forked
 * processes over TCP on the loopback, alone or with memory shared inside of pretended machines, or
 * as either over shared memory.  Every process has a watchdog. */
#ifndef WEIR_TESTS_RANKS_H
#define WEIR_TESTS_RANKS_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../held.h"
#include "../ports.h"
#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/credentials.h"

#define GROUP_MAX 16
/* For what hangs, on however busy a machine. */
#define GROUP_WATCHDOG_S 600

enum group_kind { GROUP_THREADS, GROUP_TCP, GROUP_MIXED, GROUP_SHM, GROUP_SHM_THREADS };

static const char *const group_names[] = {"threads", "tcp", "mixed", "shm", "shm threads"};

/* What a rank has to say at the end; lies in memory shared with the ranks. */
typedef struct group_result {
  weir_status status;
  double ended_s;
  char message[256];
} group_result;

typedef struct group {
  enum group_kind kind;
  int size;
  double timeout_s;
  int streams;                   /* over TCP, between each two ranks; 0: one */
  const char *secret;            /* over TCP; NULL: none */
  bool plain;                    /* with a secret, and not encrypted */
  weir_credentials *credentials; /* with a secret; NULL: none */
  bool apart;                    /* over TCP: rank r is at 127.0.0.(r + 1) */
  int per_machine; /* mixed: neighbouring ranks that share memory; 0: half of all, or two */
  /* The body of every rank; its status and weir_last_error() become the result. */
  weir_status (*body)(weir_transport *t, void *user);
  void *user;
  void (*prepare)(struct group *g, int rank); /* by a rank before it joins; NULL: nothing */
  char where[64];                             /* group name or HOST:PORT */
  uint64_t job;
  group_result *result; /* one a rank */
  pid_t pid[GROUP_MAX];
} group;

static inline void *group_shared(size_t bytes) {
  void *memory =
      mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

/* Open ones of this process, below 256. */
static inline int group_descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 256; fd++)
    if (fcntl(fd, F_GETFD) >= 0) count++;
  return count;
}

static inline void group_nap(double seconds) {
  const struct timespec pause = {(time_t)seconds,
                                 (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&pause, NULL);
}

static inline void group_init(group *g, enum group_kind kind, int size,
                              weir_status (*body)(weir_transport *, void *), void *user) {
  static int serial;
  *g = (group){.kind = kind, .size = size, .timeout_s = 20.0, .body = body, .user = user};
  g->job = UINT64_C(0x5eed0000) + (uint64_t)serial;
  if (kind == GROUP_TCP || kind == GROUP_MIXED)
    (void)snprintf(g->where, sizeof g->where, "127.0.0.1:%d", free_port());
  else
    (void)snprintf(g->where, sizeof g->where, "test-%d-%d", (int)getpid(), serial);
  serial++;
  g->result = group_shared(GROUP_MAX * sizeof *g->result);
}

/* Has a mixed group's memory be shared once it has met over TCP, or what is left of it has: old[]
 * are its ranks' numbers in the group of `size` at first, NULL: the same. */
static inline weir_status group_share(weir_transport *t, const int *old, int size, int per_machine,
                                      double timeout_s) {
  int machine[GROUP_MAX];
  const int ranks = per_machine > 0 ? per_machine : size > 2 ? (size + 1) / 2 : size;
  for (int r = 0; r < t->size; r++) machine[r] = (old ? old[r] : r) / ranks;
  return weir_transport_share(t, machine, timeout_s);
}

static inline weir_status group_connect(const group *g, int rank, weir_transport **t) {
  char own[24];
  (void)snprintf(own, sizeof own, "127.0.0.%d", rank + 1);
  if (g->kind == GROUP_THREADS)
    return weir_transport_inproc(t, g->where, rank, g->size, g->timeout_s);
  if (g->kind == GROUP_TCP || g->kind == GROUP_MIXED) {
    const weir_status status = weir_transport_tcp_open(
        t, &(weir_tcp_options){.rendezvous = g->where,
                               .bind_address = g->apart ? own : NULL,
                               .secret = g->secret,
                               .secret_bytes = g->secret ? strlen(g->secret) : 0,
                               .plain = g->plain,
                               .credentials = g->credentials,
                               .job_id = g->job,
                               .rank = rank,
                               .size = g->size,
                               .streams = g->streams,
                               .timeout_s = g->timeout_s});
    return status == WEIR_OK && g->kind == GROUP_MIXED
               ? group_share(*t, NULL, g->size, g->per_machine, g->timeout_s)
               : status;
  }
  return weir_transport_shm(t, g->where, g->job, rank, g->size, g->timeout_s);
}

static inline void group_rank(group *g, int rank) {
  weir_transport *t = NULL;
  if (g->prepare) g->prepare(g, rank);
  weir_status status = group_connect(g, rank, &t);
  if (status == WEIR_OK) status = g->body(t, g->user);
  group_result *result = &g->result[rank];
  result->ended_s = weir_now_s();
  result->status = status;
  if (status != WEIR_OK)
    (void)snprintf(result->message, sizeof result->message, "%s", weir_last_error());
  if (t) t->ops->destroy(t);
}

/* Before a communicator's declaration: it is freed where its block ends. */
#define OWNED __attribute__((cleanup(group_free_comm)))

static inline void group_free_comm(weir_comm *const *comm) { weir_comm_free(*comm); }

/* A round of messages, of a step, proves that the group works. */
static inline weir_status group_talk_at(weir_transport *t, uint64_t step, double timeout_s) {
  weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, timeout_s);
  if (status != WEIR_OK) return status;
  float x = (float)(t->rank + 1);
  weir_comm_step(comm, 1, step);
  status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, &x, 1, WEIR_VALUE_FP32, NULL, NULL);
  weir_comm_free(comm);
  const float due = (float)(t->size * (t->size + 1) / 2);
  if (status == WEIR_OK && x != due) return weir_fail(WEIR_E_INTERNAL, "sum %g", (double)x);
  return status;
}

/* As a body. */
static inline weir_status group_talk(weir_transport *t, void *user) {
  (void)user;
  return group_talk_at(t, 1, 10.0);
}

typedef struct group_thread {
  group *g;
  int rank;
} group_thread;

static inline void *group_thread_main(void *argument) {
  const group_thread *thread = argument;
  group_rank(thread->g, thread->rank);
  return NULL;
}

static inline void group_start_rank(group *g, int rank) {
  (void)fflush(NULL);
  g->result[rank].status = WEIR_E_INTERNAL;
  g->pid[rank] = fork();
  if (g->pid[rank] < 0) abort();
  if (g->pid[rank] > 0) return;
  (void)alarm(GROUP_WATCHDOG_S);
  group_rank(g, rank);
  _exit(0);
}

static inline void group_start(group *g) {
  for (int r = 0; r < g->size; r++) group_start_rank(g, r);
}

/* Wait for every process; a rank that died of a signal keeps its WEIR_E_INTERNAL. */
static inline void group_join(group *g) {
  for (int r = 0; r < g->size; r++) (void)waitpid(g->pid[r], NULL, 0);
}

static inline void group_run(group *g) {
  if (g->kind != GROUP_THREADS && g->kind != GROUP_SHM_THREADS) {
    group_start(g);
    group_join(g);
    return;
  }
  pthread_t thread[GROUP_MAX];
  group_thread argument[GROUP_MAX];
  (void)alarm(GROUP_WATCHDOG_S);
  for (int r = 0; r < g->size; r++) {
    argument[r] = (group_thread){g, r};
    if (pthread_create(&thread[r], NULL, group_thread_main, &argument[r]) != 0) abort();
  }
  for (int r = 0; r < g->size; r++) (void)pthread_join(thread[r], NULL);
}

/* Every rank has ended well. */
static inline void group_well(const group *g) {
  for (int r = 0; r < g->size; r++)
    cr_assert_eq(g->result[r].status, WEIR_OK, "kind %d, %d ranks, rank %d: %s %s", (int)g->kind,
                 g->size, r, weir_status_name(g->result[r].status), g->result[r].message);
}

static inline void group_done(group *g) { (void)munmap(g->result, GROUP_MAX * sizeof *g->result); }

/* Before a group's declaration: it ends where its block ends. */
#define ENDED __attribute__((cleanup(group_done)))

static inline group group_new(enum group_kind kind, int size,
                              weir_status (*body)(weir_transport *, void *), void *user) {
  group g;
  group_init(&g, kind, size, body, user);
  return g;
}

/* Every rank of such a group runs body, and ends well. */
static inline void group_passes(enum group_kind kind, int size,
                                weir_status (*body)(weir_transport *, void *), void *user) {
  ENDED group g = group_new(kind, size, body, user);
  group_run(&g);
  group_well(&g);
}

#endif
