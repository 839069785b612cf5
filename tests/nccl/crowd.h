/* Ranks as threads that meet over TCP, with the NCCL transport over a library that stands for NCCL
 * and CUDA (mock.h). */
#ifndef WEIR_TESTS_CROWD_H
#define WEIR_TESTS_CROWD_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../multi/ranks.h"
#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/transports/nccl.h"
#include "collectives/transports/tcp.h"
#include "engine/engine.h"
#include "mock.h"

#ifndef MOST /* ranks */
#define MOST 5
#endif
#define TIMEOUT_S 1.5

typedef struct rank {
  struct crowd *crowd;
  int rank, size;
  weir_transport *t; /* NULL when joining failed */
  weir_status status;
  char why[400];
  double seconds;     /* since all had joined */
  mock_controls mock; /* its thread's */
  nct_library library;
} rank;

typedef struct crowd {
  int size;
  char where[64];
  const int *machine;           /* of each rank; NULL: all share one */
  bool inside;                  /* NCCL inside of machines alone */
  bool shares;                  /* memory inside of machines */
  bool plain;                   /* the group over TCP alone */
  int streams;                  /* over TCP, between each two ranks; 0: one */
  double timeout_s;             /* of forming groups; 0: TIMEOUT_S */
  weir_status (*body)(rank *r); /* its status and message are the rank's */
  const char *tuner[MOST];      /* each rank's plugin; NULL: as the environment has it */
  void (*before)(
      int rank, const mock_controls *mine); /* on the rank's thread, before it joins; may be NULL */
  pthread_barrier_t barrier;
  rank ranks[MOST];
} crowd;

static nct_library library;
static mock_controls mock;

static inline void load(void) {
  void (*control)(mock_controls *) = NULL;
  cr_assert_eq(nct_load_from(&library, WEIR_MOCK_NCCL, WEIR_MOCK_NCCL), WEIR_OK, "%s",
               weir_last_error());
  void *handle = dlopen(WEIR_MOCK_NCCL, RTLD_NOW);
  *(void **)&control = dlsym(handle, "mock_control");
  cr_assert(control != NULL);
  control(&mock);
}

static inline weir_status share_memory(const rank *r, const int *machine) {
  return r->crowd->shares ? weir_transport_share(r->t, machine, 20) : WEIR_OK;
}

/* The group that has met over TCP goes on over what is asked for. */
static inline weir_status join_nccl(rank *r, weir_transport *control) {
  const crowd *g = r->crowd;
  const nct_options options = {.lib = &r->library,
                               .inside = g->inside,
                               .machine = g->machine ? (uint64_t)g->machine[r->rank] : 0,
                               .timeout_s = g->timeout_s > 0 ? g->timeout_s : TIMEOUT_S};
  r->t = control;
  const weir_status status = g->plain ? WEIR_OK : nct_create(&r->t, control, &options);
  return status == WEIR_OK ? share_memory(r, g->machine) : status;
}

static inline void *run_rank(void *argument) {
  rank *r = argument;
  crowd *g = r->crowd;
  weir_transport *control = NULL;
  void (*controls)(mock_controls *) = NULL;
  *(void **)&controls = dlsym(dlopen(WEIR_MOCK_NCCL, RTLD_NOW), "mock_control");
  controls(&r->mock);
  *r->mock.devices = 4;
  *r->mock.fail_init = *r->mock.fail_groups = 0;
  r->library = library;
  r->library.tuner = *r->mock.tuner = g->tuner[r->rank];
  if (g->before) g->before(r->rank, &r->mock);
  const weir_tcp_options meeting = {.rendezvous = g->where,
                                    .job_id = 77,
                                    .rank = r->rank,
                                    .size = g->size,
                                    .streams = g->streams,
                                    .timeout_s = 20};
  r->status = weir_transport_tcp_open(&control, &meeting);
  if (r->status == WEIR_OK) r->status = join_nccl(r, control);
  pthread_barrier_wait(&g->barrier);
  const double begin = weir_now_s();
  if (r->status == WEIR_OK) r->status = g->body(r);
  if (r->status != WEIR_OK) snprintf(r->why, sizeof r->why, "%s", weir_last_error());
  r->seconds = weir_now_s() - begin;
  pthread_barrier_wait(&g->barrier); /* nobody leaves while others talk */
  if (r->t) r->t->ops->destroy(r->t);
  return NULL;
}

static inline void run(crowd *g, int size, weir_status (*body)(rank *)) {
  pthread_t thread[MOST];
  g->size = size;
  g->body = body;
  snprintf(g->where, sizeof g->where, "127.0.0.1:%d", free_port());
  pthread_barrier_init(&g->barrier, NULL, (unsigned)size);
  for (int r = 0; r < size; r++) {
    g->ranks[r] = (rank){.crowd = g, .rank = r, .size = size};
    pthread_create(&thread[r], NULL, run_rank, &g->ranks[r]);
  }
  for (int r = 0; r < size; r++) pthread_join(thread[r], NULL);
  pthread_barrier_destroy(&g->barrier);
}

static inline void all_well(const crowd *g) {
  for (int r = 0; r < g->size; r++)
    cr_assert_eq(g->ranks[r].status, WEIR_OK, "rank %d: %s", r, g->ranks[r].why);
}

/* Ranks are threads here, whose communicators come at once: so each has a copy of the plugin for
 * itself, as processes have. */
static inline void give_tuners(crowd *g) {
  static char file[MOST][sizeof WEIR_TUNER_COPIES + 32];
  for (int r = 0; r < MOST; r++) {
    snprintf(file[r], sizeof file[r], "%s/tuner-%d.so", WEIR_TUNER_COPIES, r);
    g->tuner[r] = file[r];
  }
}

/* Joining, too. */
static inline void run_well_as(crowd *g, int size, weir_status (*body)(rank *)) {
  give_tuners(g);
  const size_t before = mock.living(), waited = mock.would_block();
  run(g, size, body);
  all_well(g);
  cr_assert_eq(mock.living(), before, "something was not given back");
  cr_assert_eq(mock.would_block(), waited, "a call would have waited for NCCL");
}

static inline void run_well(int size, weir_status (*body)(rank *)) {
  crowd g = {.before = NULL};
  run_well_as(&g, size, body);
}

/* A process ends: its kernel closes what it had.  What is left of it here can still be
 * destroyed. */
static inline void vanish(tcp *control) {
  const int size = control->base.size;
  for (int p = 0; p < size; p++)
    if (p != control->base.rank) (void)shutdown(control->peer[p].fd, SHUT_RDWR);
  tcp_answerer_stop(control);
  control->ended = (weir_end){WEIR_E_PEER, control->base.rank, control->base.rank};
  (void)close(control->listener);
  control->listener = -1;
}

static inline weir_status differs(const char *what, int from, size_t n) {
  return weir_fail(WEIR_E_INTERNAL, "%s of %zu bytes from rank %d is not what was sent", what, n,
                   from);
}

/* What every rank adds up, and what must come of it. */
#define N 30011

static inline float input_at(int from, size_t i) {
  return (float)((double)((size_t)(from + 1) * 2654435761u % 1000 + i * 7919 % 997) / 64.0 - 11.0);
}

static inline weir_status check_sum(const rank *r, const float *x, const char *name) {
  for (size_t i = 0; i < N; i++) {
    double sum = 0;
    for (int p = 0; p < r->size; p++) sum += (double)input_at(p, i);
    if (!(fabs((double)x[i] - sum) <= 1e-5 * (fabs(sum) + 1)))
      return weir_fail(WEIR_E_INTERNAL, "%s: element %zu is %g, not %g", name, i, (double)x[i],
                       sum);
  }
  return WEIR_OK;
}

#endif
