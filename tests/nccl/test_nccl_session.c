/* Sessions over nccl+tcp and shm+nccl: ranks are threads on pretended machines, and NCCL and CUDA
 * the library that stands for them.  The linker puts two functions of this file in the place of
 * those that find a rank's machine and the libraries (--wrap in tests/CMakeLists.txt). */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <string.h>

#include "../multi/session_ranks.h"
#include "../ports.h"
#include "collectives/calibrate.h"
#include "collectives/transports/nccl.h"
#include "mock.h"
#include "session/state.h"

enum { RANKS = 4, N = 20000, STEPS = 5, SHARED = 7 };

static nct_library library;
static mock_controls mock;
static _Thread_local uint64_t machine;

uint64_t __wrap_weir_host_identity(const char *override);
uint64_t __wrap_weir_host_identity(const char *override) {
  (void) override;
  return machine;
}

weir_status __wrap_nct_load(const nct_library **out);
weir_status __wrap_nct_load(const nct_library **out) {
  *out = &library;
  return WEIR_OK;
}

typedef struct worker {
  const char *transport, *becomes, *policy, *where;
  const char *survives_as; /* NULL: as before */
  uint64_t machine;
  int rank;
  bool leaves; /* rank 3, and the others go on */
  pthread_barrier_t *barrier;
  weir_status status;
  char why[400];
} worker;

/* Whole numbers, so that their mean is exact in any order. */
static weir_status step(weir_session *session, int ranks, int rank, int s) {
  static _Thread_local float g[N];
  for (size_t i = 0; i < N; i++) g[i] = (float)(rank * 24 + (int)((i + (size_t)s) % 13));
  weir_status status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_submit(session, 0, g);
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  for (size_t i = 0; i < N && status == WEIR_OK; i++) {
    const float due = (float)((ranks - 1) * 12 + (int)((i + (size_t)s) % 13));
    if (g[i] != due)
      status =
          weir_fail(WEIR_E_INTERNAL, "element %zu is %g, not %g", i, (double)g[i], (double)due);
  }
  return status;
}

static weir_status check_name(weir_session *session, const char *due) {
  const char *name = NULL;
  weir_status status = weir_current_transport(session, &name);
  if (status == WEIR_OK && strcmp(name, due) != 0)
    status = weir_fail(WEIR_E_INTERNAL, "transport %s, not %s", name, due);
  return status;
}

/* Both kinds of links are measured at the start: the monitor knows those between machines, and
 * calibration, which the start ends with, those inside. */
static weir_status check_links(weir_session *session) {
  weir_snapshot now;
  weir_link link = {.alpha = 1e-6, .beta = 1e-9};
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  if (!(now.latency_s > 0)) return weir_fail(WEIR_E_INTERNAL, "no latency between machines");
  const weir_status status = weir_calibrate_processors(session->comm, &link);
  if (status == WEIR_OK && !(link.inner_alpha > 0 && link.inner_beta > 0))
    return weir_fail(WEIR_E_INTERNAL, "inside: %g s, %g s a byte", link.inner_alpha,
                     link.inner_beta);
  return status;
}

static weir_status survive(weir_session *session) {
  weir_survivors left = {.struct_size = sizeof left};
  if (step(session, RANKS, 0, STEPS) != WEIR_E_PEER)
    return weir_fail(WEIR_E_INTERNAL, "a rank that has left is not missed");
  const weir_status status = weir_shrink(session, &left);
  if (status != WEIR_OK) return status;
  if (left.world_size != RANKS - 1)
    return weir_fail(WEIR_E_INTERNAL, "%d survivors", left.world_size);
  return step(session, RANKS - 1, left.rank, 1);
}

static weir_status train(weir_session *session, const worker *w) {
  weir_status status = check_name(session, w->becomes);
  if (status == WEIR_OK && strchr(w->becomes, '+') != NULL) status = check_links(session);
  for (int s = 0; s < STEPS && status == WEIR_OK; s++) status = step(session, RANKS, w->rank, s);
  if (!w->leaves || w->rank == RANKS - 1 || status != WEIR_OK) return status;
  status = survive(session);
  return status == WEIR_OK ? check_name(session, w->survives_as ? w->survives_as : w->becomes)
                           : status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->where, w->policy);
  options.active_probes = true;
  weir_session *session = NULL;
  machine = w->machine;
  options.transport = w->transport;
  options.job_id = 77;
  w->status = session_open(&session, &options, N);
  if (w->status == WEIR_OK) w->status = train(session, w);
  if (w->status != WEIR_OK) (void)snprintf(w->why, sizeof w->why, "%s", weir_last_error());
  if (!w->leaves) pthread_barrier_wait(w->barrier); /* nobody leaves while others talk */
  weir_session_free(session);
  return NULL;
}

static void load(void) {
  void (*control)(mock_controls *) = NULL;
  cr_assert_eq(nct_load_from(&library, WEIR_MOCK_NCCL, WEIR_MOCK_NCCL), WEIR_OK, "%s",
               weir_last_error());
  *(void **)&control = dlsym(dlopen(WEIR_MOCK_NCCL, RTLD_NOW), "mock_control");
  control(&mock);
}

static void run(worker like, const uint64_t machines[RANKS]) {
  worker workers[RANKS];
  pthread_barrier_t barrier;
  char where[32];
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  load();
  const size_t before = mock.living();
  pthread_barrier_init(&barrier, NULL, RANKS);
  like.where = where;
  like.barrier = &barrier;
  for (int r = 0; r < RANKS; r++) {
    workers[r] = like;
    workers[r].rank = r;
    workers[r].machine = machines[r];
  }
  session_threads(workers, sizeof *workers, RANKS, work);
  pthread_barrier_destroy(&barrier);
  for (int r = 0; r < RANKS; r++)
    cr_assert_eq(workers[r].status, WEIR_OK, "%s, %s: rank %d: %s", like.transport, like.policy, r,
                 workers[r].why);
  cr_assert_gt(mock.carried(), 0);
  cr_assert_eq(mock.living(), before);
}

static const uint64_t pairs[] = {SHARED, SHARED, 8, 8}, uneven[] = {SHARED, SHARED, SHARED, 9};

Test(nccl_session, trains_over_both_kinds_of_links) {
  static const char *const policies[] = {"fixed:none:1:dense-hier-ring", "fixed:none:1:dense-ring"};
  for (size_t i = 0; i < 2; i++) {
    run((worker){.transport = "nccl+tcp", .becomes = "nccl+tcp", .policy = policies[i]},
        i == 0 ? pairs : uneven);
    run((worker){.transport = "shm+nccl", .becomes = "shm+nccl", .policy = policies[i]},
        i == 0 ? pairs : uneven);
  }
}

Test(nccl_session, survivors_go_on) {
  run((worker){.transport = "nccl+tcp",
               .becomes = "nccl+tcp",
               .policy = "fixed:none:1:dense-ring",
               .leaves = true},
      pairs);
  run((worker){.transport = "shm+nccl",
               .becomes = "shm+nccl",
               .policy = "fixed:none:1:dense-ring",
               .leaves = true},
      pairs);
}

Test(nccl_session, sums_inside_of_machines) {
  static const uint64_t last_two[] = {5, 6, 8, 8};
  const worker like = {.transport = "nccl+tcp",
                       .becomes = "nccl+tcp",
                       .policy = "fixed:none:1:dense-hier-ring+native"};
  run(like, pairs);
  run(like, uneven);
  worker leaves = like;
  leaves.leaves = true;
  run(leaves, pairs);
  leaves.survives_as = "tcp"; /* with a machine each, where nothing is to be summed inside */
  run(leaves, last_two);
}

Test(nccl_session, is_called_by_what_it_turns_out_to_be) {
  static const uint64_t one[] = {SHARED, SHARED, SHARED, SHARED};
  static const uint64_t apart[] = {1, 2, 3, 4};
  run((worker){.transport = "nccl+tcp", .becomes = "nccl", .policy = "fixed:none:1:native"}, one);
  run((worker){.transport = "shm+nccl", .becomes = "nccl", .policy = "fixed:none:1:native"}, apart);
}
