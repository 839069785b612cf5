/* A group of ranks as threads, for tests.  Ranks must not use Criterion's asserts (they jump): they
 * note the first failure, and the test asserts that there was none. */
#ifndef WEIR_TESTS_GROUP_H
#define WEIR_TESTS_GROUP_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../held.h"
#include "../ports.h"
#include "collectives/collective.h"
#include "engine/engine.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GROUP_SLOW 1 /* instrumented code: fewer large cases */
#else
#define GROUP_SLOW 0
#endif

#ifndef GROUP_MAX
#define GROUP_MAX 8
#endif

typedef struct group {
  int size;
  double timeout_s;
  pthread_barrier_t barrier;
  pthread_mutex_t mutex;
  bool failed;
  char failure[512];
  void *shared; /* the test's own */
  /* A letter a rank: over TCP, with memory shared by ranks of one letter; NULL: within the
   * process. */
  const char *machines;
  char where[32];
} group;

typedef struct member {
  group *group;
  int rank, size;
  char name[64];
  weir_transport *transport;
  weir_comm *comm;
  void (*body)(struct member *member);
} member;

static inline void group_fail(group *g, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void group_fail(group *g, const char *format, ...) {
  pthread_mutex_lock(&g->mutex);
  if (!g->failed) {
    va_list args;
    va_start(args, format);
    vsnprintf(g->failure, sizeof g->failure, format, args);
    va_end(args);
    g->failed = true;
  }
  pthread_mutex_unlock(&g->mutex);
}

static inline bool group_failed(group *g) {
  pthread_mutex_lock(&g->mutex);
  const bool failed = g->failed;
  pthread_mutex_unlock(&g->mutex);
  return failed;
}

static inline void group_barrier(member *m) { pthread_barrier_wait(&m->group->barrier); }

/* A barrier; has anything failed before it?  All ranks come to the same answer: nobody goes on
 * before all have looked. */
static inline bool group_failed_by_now(member *m) {
  group_barrier(m);
  const bool failed = group_failed(m->group);
  group_barrier(m);
  return failed;
}

static inline weir_status group_connect(member *m) {
  const group *g = m->group;
  int machine[GROUP_MAX];
  if (g->machines == NULL)
    return weir_transport_inproc(&m->transport, m->name, m->rank, m->size, 20);
  for (int r = 0; r < m->size; r++) machine[r] = g->machines[r];
  const weir_status status =
      weir_transport_tcp(&m->transport, g->where, NULL, 1, m->rank, m->size, 20);
  return status == WEIR_OK ? weir_transport_share(m->transport, machine, 20) : status;
}

static inline void *group_thread(void *argument) {
  member *m = argument;
  weir_status status = group_connect(m);
  if (status == WEIR_OK) status = weir_comm_create(&m->comm, m->transport, m->group->timeout_s);
  if (status != WEIR_OK)
    group_fail(m->group, "rank %d cannot join: %s", m->rank, weir_last_error());
  group_barrier(m); /* all joined, or nobody goes on */
  if (!group_failed(m->group)) m->body(m);
  group_barrier(m); /* nobody leaves while others talk */
  weir_comm_free(m->comm);
  if (m->transport != NULL) m->transport->ops->destroy(m->transport);
  return NULL;
}

/* Run body on every rank; g->failure says what went wrong first. */
static inline void group_run_over(group *g, int size, void (*body)(member *), void *shared,
                                  const char *machines) {
  static atomic_int number;
  member members[GROUP_MAX];
  pthread_t threads[GROUP_MAX];
  memset(g, 0, sizeof *g);
  memset(members, 0, sizeof members);
  g->size = size;
  g->timeout_s = 60;
  g->shared = shared;
  g->machines = machines;
  snprintf(g->where, sizeof g->where, "127.0.0.1:%d", free_port());
  pthread_mutex_init(&g->mutex, NULL);
  pthread_barrier_init(&g->barrier, NULL, (unsigned)size);
  const int turn = atomic_fetch_add(&number, 1);
  for (int r = 0; r < size; r++) {
    members[r].group = g;
    members[r].rank = r;
    members[r].size = size;
    members[r].body = body;
    snprintf(members[r].name, sizeof members[r].name, "test %d %d", (int)getpid(), turn);
    pthread_create(&threads[r], NULL, group_thread, &members[r]);
  }
  for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
  pthread_barrier_destroy(&g->barrier);
  pthread_mutex_destroy(&g->mutex);
}

static inline void group_run(group *g, int size, void (*body)(member *), void *shared) {
  group_run_over(g, size, body, shared, NULL);
}

/* The same where none may fail; what: the case, or NULL. */
static inline void group_well(int size, void (*body)(member *), void *shared, const char *what) {
  group g;
  group_run(&g, size, body, shared);
  cr_assert(!g.failed, "%s%s%s", what ? what : "", what ? ": " : "", g.failure);
}

/* Every codec with every collective and wire format it goes with. */
static const char *const group_arms[] = {
    "none:1:dense-ring", "none:1:dense-tree", "bf16:1:dense-ring", "bf16:1:dense-tree",
    "lwtopk:%g:ag", "mstopk:%g:ag", "topk:%g:ag", "star:%g:art-ring", "star:%g:art-tree",
    "var:%g:art-ring", "var:%g:art-tree", "lwtopk:%g:ag:auto-fp32", "mstopk:%g:ag:auto-fp32",
    "topk:%g:ag:auto-fp32", "star:%g:art-ring:auto-fp32", "star:%g:art-tree:auto-fp32",
    "var:%g:art-ring:auto-fp32", "var:%g:art-tree:auto-fp32", "lwtopk:%g:ag:auto-bf16",
    "mstopk:%g:ag:auto-bf16", "topk:%g:ag:auto-bf16", "star:%g:art-ring:auto-bf16",
    "star:%g:art-tree:auto-bf16", "var:%g:art-ring:auto-bf16", "var:%g:art-tree:auto-bf16",
    /* Encoders: their ratio says how many bits, and is not one of the test's. */
    "fp16:0.5:ag", "qsgd:0.125:ag", "qsgd:0.0625:ag", "terngrad:0.0625:ag", "onebit:0.03125:ag",
    "efsignsgd:0.03125:ag", "qsgd-nearest:0.125:ag", "qsgd-l2:0.125:ag",
    "qsgd-l2-nearest:0.15625:ag", "dgc:%g:ag", "sidco:%g:ag:auto-fp32", "mstopk:%g:ag:auto-fp16",
    "dgc:%g:ag:auto-fp16", "randomk:%g:art-ring", "randomk:%g:art-tree:auto-bf16",
    "none:1:dense-halving", "bf16:1:dense-double-tree", "bf16:1:dense-torus", "none:1:dense-star",
    "star:%g:art-halving:auto-fp32", "var:%g:art-double-tree", "star:%g:art-torus:auto-bf16",
    "randomk:%g:art-star", "none:1:dense-hier-ring", "bf16:1:dense-hier-tree",
    "bf16:1:dense-hier-halving", "none:1:dense-hier-double-tree", "star:%g:art-hier-ring:auto-bf16",
    "var:%g:art-hier-tree", "randomk:%g:art-hier-halving", "star:%g:art-hier-double-tree:auto-fp32",
    "topk:%g:hitopk", "mstopk:%g:hitopk:auto-bf16", "sidco:%g:hitopk:auto-fp32", "qsgd:0.125:sra",
    "fp16:0.5:sra", "terngrad:0.0625:compressed-ring", "onebit:0.03125:compressed-tree",
    "qsgd:0.25:compressed-ring", "efsignsgd:0.03125:sra", "qsgd:0.125:hier-sra",
    "fp16:0.5:hier-sra", "powersgd:2:dense-hier-ring", "qsgd:0.125:ag:bucket=1024",
    "qsgd:0.0625:sra:bucket=64", "qsgd-l2:0.25:compressed-ring:bucket=8192",
    "topk:%g:path=rs.c.ag.ag.d", "qsgd:0.125:path=c.a2a.d.c.g.d.b.ag", "none:1:path=r.ar.b",
    "mstopk:%g:path=c.a2a.a2a.ag.ag.d:auto-bf16", "onebit:0.03125:path=r.c.g.d.c.b.d.c.b.d",
    /* Low rank: the number is the rank. */
    "powersgd:1:dense-ring", "powersgd:3:dense-tree", "powersgd:2:dense-halving:auto-bf16",
    "powersgd:1:dense-hier-tree:auto-bf16", "powersgd:3:dense-sra", "powersgd:2:dense-one-shot",
    /* Again encoders. */
    "nonzero:0.125:ag", "nonzero:0.25:ag", "nonzero-bf16:0.5:ag", "minifloat:0.25:ag",
    "minifloat:0.15625:sra", "minifloat:0.1875:hier-sra", "companded:0.125:ag",
    "companded:0.109375:sra", "companded:0.09375:sra", "companded:0.125:hier-sra",
    /* Their codes by how often they occur. */
    "nonzero:0.109375:ag:huffman", "companded:0.15625:ag:huffman", "companded:0.09375:sra:huffman",
    "qsgd:0.0625:hier-sra:huffman", "powersgd:2:dense-sra:huffman",
    "powersgd:3:dense-one-shot:huffman",
    /* ... in one sum. */
    "bilateral:2:dense-ring", "bilateral:1:dense-tree", "bilateral:3:dense-sra",
    "bilateral:2:dense-hier-ring:auto-bf16", "bilateral:1:dense-one-shot:huffman",
    /* In units of what elements usually are. */
    "whitened:0.125:ag", "whitened:0.09375:sra", "whitened:0.15625:hier-sra",
    "whitened:0.125:sra:huffman", "whitened:0.125:path=rs.c.ag.d.ag",
    /* Shifted, and shifted back by who reads it. */
    "dithered:0.125:ag", "dithered:0.15625:sra", "dithered:0.125:hier-sra:huffman",
    "dithered:0.125:sra:huffman", "dithered:0.125:path=rs.c.ag.d.ag"};
#define GROUP_ARMS (sizeof group_arms / sizeof *group_arms)

static inline bool group_encodes(const weir_plan *plan) {
  return weir_codec_find(plan->codec)->encode != NULL;
}

/* Refused with momentum correction: what it selects from is not a rank's own alone. */
static inline bool group_hands_over(const weir_plan *plan) {
  return plan->scheme == WEIR_SCHEME_PATH && weir_codec_find(plan->codec)->select != NULL;
}

/* Every tensor as a matrix as nearly square as its size allows. */
static inline void group_rows(const size_t *offset, size_t tensors, size_t *rows) {
  for (size_t t = 0; t < tensors; t++) {
    const size_t n = offset[t + 1] - offset[t];
    rows[t] = 1;
    for (size_t r = 2; r * r <= n; r++)
      if (n % r == 0) rows[t] = r;
  }
}

static inline weir_plan group_plan(size_t arm, double cr, uint64_t id) {
  weir_plan plan;
  char text[WEIR_PLAN_TEXT_MAX];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
  snprintf(text, sizeof text, group_arms[arm], cr);
#pragma GCC diagnostic pop
  if (weir_plan_parse(text, &plan) != WEIR_OK) {
    fprintf(stderr, "bad arm %s: %s\n", text, weir_last_error());
    abort();
  }
  plan.id = id;
  return plan;
}

#endif
