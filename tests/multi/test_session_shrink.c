/* Training goes on without a rank that is lost: exactly, for those that are left. */
#include <criterion/criterion.h>
#include <math.h>
#include <weir/weir.h>

#include "../sampled.h"
#include "../unit/plan_files.h"
#include "collectives/comm.h"
#include "collectives/wrappers.h"
#include "device.h"
#include "engine/state.h"
#include "ranks.h"
#include "session/state.h"

#define N 6000   /* some of what is gathered comes in pieces */
#define STEPS 12 /* the strikes below all come before the last ones */

/* --- a rank leaves at any transfer ----------------------------------------------------------- */

typedef struct trainer {
  const char *policy, *where;
  pthread_barrier_t *started;
  int rank, ranks;
  uint64_t strike;  /* at which transfer of its steps rank 0 leaves */
  bool registered;  /* are the weights? */
  double momentum;  /* of momentum correction */
  uint64_t limit;   /* of memory */
  const char *gone; /* a file that rank 0 takes with it */
  test_device d;
  bool device;  /* gradients are on it */
  bool probes;  /* where some rank has a device; else nothing asks what the network is like */
  float *there; /* they are, then */
  weir_session *session;
  float moved[N]; /* sum over committed steps of ranks * average */
  float given[N]; /* sum over committed steps of this rank's gradients, or velocities */
  float u[N];     /* its velocity, as the engine has it */
  float astray;   /* how far that was from momentum * u + gradient, where it is not zero */
  int mine;       /* registered where the weights are, and another on each rank */
  size_t uncut;   /* most elements after a step that are in the velocity, not in the residual */
  bool missed;
  weir_survivors left;
  weir_status status;
  char message[256];
} trainer;

/* Rank 0 gives nothing, so that what is lost with it is nothing. */
static float gradient(int rank, uint64_t step, size_t i) {
  return rank == 0 ? 0.0F : (float)((int)((i * 37 + step * 11 + (size_t)rank * 101) % 64) - 32);
}

static weir_status one_step(trainer *t, float *g, weir_step_info *info) {
  weir_status status = weir_step_begin(t->session, info);
  for (size_t i = 0; i < N; i++) g[i] = gradient(t->rank, info->step, i);
  float *const there = t->there != NULL ? t->there : g;
  if (t->there != NULL) t->d.put(there, g, N * sizeof *g);
  if (status == WEIR_OK) status = weir_submit(t->session, 0, there);
  if (status == WEIR_OK) status = weir_submit(t->session, 1, there + N / 3);
  if (status == WEIR_OK) status = weir_step_end(t->session, NULL);
  if (t->there != NULL) t->d.get(g, there, N * sizeof *g);
  return status;
}

/* A step counts: what it gave. */
static void give(trainer *t, uint64_t step) {
  const float *const u = t->session->engine->host.velocity;
  const float *const residual = u != NULL ? weir_engine_residual(t->session->engine) : NULL;
  size_t uncut = 0;
  for (size_t i = 0; i < N; i++) {
    const float v = (float)t->momentum * t->u[i] + gradient(t->rank, step, i);
    t->given[i] += v;
    if (u != NULL && u[i] != 0) t->astray = fmaxf(t->astray, fabsf(u[i] - v));
    uncut += u != NULL && u[i] != 0 && residual[i] == 0;
    t->u[i] = u != NULL ? u[i] : v; /* a device's: nothing is cut off where one is */
  }
  if (uncut > t->uncut) t->uncut = uncut;
}

static weir_status train(trainer *t) {
  float g[N];
  weir_step_info info = {.struct_size = sizeof info};
  weir_status status = WEIR_OK;
  uint64_t step = 0;
  int ranks = t->ranks;
  while (status == WEIR_OK && step < STEPS) {
    status = one_step(t, g, &info);
    if (status >= WEIR_E_TIMEOUT && t->rank != 0) {
      t->left.struct_size = sizeof t->left;
      status = weir_shrink(t->session, &t->left);
      if (status != WEIR_OK) break;
      ranks = t->left.world_size;
      t->missed = t->missed || t->left.missed;
      if (t->left.missed) give(t, step); /* it counts; the weights have come from another rank */
      step = t->left.step;
      continue;
    }
    if (status != WEIR_OK) break;
    for (size_t i = 0; i < N; i++) t->moved[i] += (float)ranks * g[i];
    give(t, step);
    step++;
  }
  return status;
}

static void *trainer_main(void *argument) {
  trainer *t = argument;
  weir_options options;
  weir_options_init(&options);
  options.rank = t->rank;
  options.world_size = t->ranks;
  options.transport = "inproc";
  options.rendezvous = t->where;
  options.policy = t->policy;
  options.timeout_s = 10;
  options.momentum_correction = t->momentum;
  options.memory_limit = t->limit;
  options.active_probes = t->probes;
  if (t->device) {
    (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
    t->d = test_device_open();
    t->there = t->d.memory(N * sizeof *t->there);
    options.device = 0;
  }
  t->status = weir_session_create(&t->session, &options);
  if (t->status == WEIR_OK) t->status = weir_register_matrix(t->session, "a", 10, N / 30, NULL);
  if (t->status == WEIR_OK) t->status = weir_register_matrix(t->session, "b", 20, N / 30, NULL);
  if (t->status == WEIR_OK && t->registered)
    t->status = weir_register_state(t->session, "moved", t->moved, sizeof t->moved);
  if (t->status == WEIR_OK && t->registered)
    t->status = weir_register_state(t->session, "mine", &t->mine, sizeof t->mine);
  if (t->status == WEIR_OK) t->status = weir_session_start(t->session);
  /* A group that ends while a rank is still joining it is another matter. */
  (void)pthread_barrier_wait(t->started);
  FREED weir_transport *faulty = NULL;
  if (t->rank == 0 && t->gone != NULL) (void)unlink(t->gone);
  if (t->status == WEIR_OK && t->rank == 0) {
    /* Under the session: its communicator talks through the wrapper. */
    const weir_strike strike = {WEIR_STRIKE_LEAVE, t->strike, -1};
    t->status = weir_transport_fault(&faulty, t->session->transport, &strike);
    if (t->status == WEIR_OK) t->session->comm->transport = faulty;
  }
  if (t->status == WEIR_OK) t->status = weir_set_epoch(t->session, 1);
  if (t->status == WEIR_OK) t->status = train(t);
  (void)snprintf(t->message, sizeof t->message, "%s", weir_last_error());
  if (t->rank == 0) weir_session_free(t->session);
  if (t->device) t->d.forget(t->there);
  return NULL;
}

/* What the survivors may have less, or more, of an element than was given: what rank 0 has rounded
 * of sums is lost with it.  Integers sums of floats hold; of factors, which hold none, up to 96 an
 * element are rounded, by 2^-9 or a 16th at the most, in each of six steps.  Had a rank that missed
 * a step not taken off what it sent in that, it would be 30 and more. */
static double may_be_lost(const char *policy, double momentum) {
  const bool rounds = strstr(policy, ":bf16:") != NULL || strstr(policy, ":compressed") != NULL;
  if (strstr(policy, ":powersgd:") == NULL) return rounds && momentum > 0 ? INFINITY : 0.01;
  return strstr(policy, ":auto-bf16") != NULL ? 1 : strstr(policy, "-sra") != NULL ? 20 : 0.01;
}

/* Returns whether a rank had missed a step; *over when rank 0 never came to its end. */
static bool play(const char *policy, int ranks, uint64_t strike, bool registered, double momentum,
                 unsigned devices, bool *over) {
  static int serial;
  static trainer t[GROUP_MAX];
  pthread_t thread[GROUP_MAX];
  pthread_barrier_t started;
  char where[64];
  bool missed = false;
  (void)snprintf(where, sizeof where, "shrinking %d", serial++);
  cr_assert_eq(pthread_barrier_init(&started, NULL, (unsigned)ranks), 0);
  for (int r = 0; r < ranks; r++) {
    t[r] = (trainer){.policy = policy,
                     .where = where,
                     .started = &started,
                     .rank = r,
                     .ranks = ranks,
                     .strike = strike,
                     .registered = registered,
                     .mine = r,
                     .momentum = momentum,
                     .device = devices >> r & 1,
                     .probes = devices != 0};
    cr_assert_eq(pthread_create(&thread[r], NULL, trainer_main, &t[r]), 0);
  }
  for (int r = 0; r < ranks; r++) (void)pthread_join(thread[r], NULL);
  (void)pthread_barrier_destroy(&started);
  *over = t[0].status == WEIR_OK;
  double kept[N] = {0};
  for (int r = 1; r < ranks; r++) {
    cr_assert_eq(t[r].status, WEIR_OK, "%s, %d ranks, transfer %d, rank %d: %s", policy, ranks,
                 (int)strike, r, t[r].message);
    cr_assert_lt(t[r].astray, 1e-4F, "%s, transfer %d: another velocity", policy, (int)strike);
    if (strstr(policy, ":topk:") != NULL || strstr(policy, ":star:") != NULL)
      cr_assert_lt(t[r].uncut, (size_t)N / 25, "%s, transfer %d: %zu elements sent and not cut off",
                   policy, (int)strike, t[r].uncut);
    if (!*over)
      cr_assert(t[r].left.world_size == ranks - 1 && t[r].left.rank == r - 1 &&
                    t[r].left.step == t[1].left.step,
                "rank %d of %d", t[r].left.rank, t[r].left.world_size);
    missed = missed || t[r].missed;
    /* Rank 0 is gone: who is `current` had the next number before. */
    const int mine = registered && t[r].missed ? t[r].left.current + 1 : r;
    cr_assert_eq(t[r].mine, mine, "%s, transfer %d, rank %d has what is rank %d's", policy,
                 (int)strike, r, t[r].mine);
    const float *residual = weir_engine_residual(t[r].session->engine);
    for (size_t i = 0; i < N; i++) kept[i] += (double)residual[i] + (double)-t[r].given[i];
  }
  /* The weights moved alike, and by what was given and not kept. */
  for (int r = 1; r < ranks; r++) {
    if (missed && !registered) break;
    cr_assert_eq(memcmp(t[r].moved, t[1].moved, sizeof t[r].moved), 0, "%s, transfer %d", policy,
                 (int)strike);
    const double most = may_be_lost(policy, momentum);
    for (size_t i = 0; i < N; i++)
      cr_assert_lt(fabs((double)t[r].moved[i] + kept[i]), most,
                   "%s, transfer %d, element %zu: %g %g", policy, (int)strike, i,
                   (double)t[r].moved[i], kept[i]);
  }
  for (int r = 1; r < ranks; r++) weir_session_free(t[r].session);
  return missed;
}

/* Every transfer of the first steps, so that the group ends in every state it can end in. */
static int sweep_on(const char *policy, int ranks, bool registered, double momentum,
                    unsigned devices) {
  int missed = 0;
  bool over = false;
  for (uint64_t strike = 0; strike < 16 && !over; strike++)
    missed += play(policy, ranks, strike, registered, momentum, devices, &over);
  return missed;
}

static int sweep(const char *policy, int ranks, bool registered, double momentum) {
  return sweep_on(policy, ranks, registered, momentum, 0);
}

Test(session_shrink, at_any_transfer) {
  static const char *const policies[] = {"fixed:none:1:dense-ring",
                                         "fixed:none:1:dense-tree",
                                         "fixed:bf16:1:dense-tree",
                                         "fixed:bf16:1:dense-star",
                                         "fixed:topk:0.1:ag",
                                         "fixed:topk:0.1:ag:auto-bf16",
                                         "fixed:qsgd:0.125:ag",
                                         "fixed:star:0.1:art-tree",
                                         "fixed:randomk:0.1:art-ring",
                                         "fixed:var:0.1:art-tree:auto-bf16",
                                         "fixed:star:0.5:art-tree",
                                         "fixed:var:0.4:art-tree:auto-bf16",
                                         "fixed:dithered:0.125:ag",
                                         "fixed:whitened:0.125:ag",
                                         "schedule:none:1:dense-ring;step=2:whitened:0.125:ag"};
  int missed = 0;
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    for (int ranks = 3; ranks <= 4; ranks++)
      if (p == 0 || sampled_of_dear(6)) missed += sweep(policies[p], ranks, true, 0);
  cr_assert_gt(missed, 0, "no rank ever missed a step that others had completed");
}

#ifndef __SANITIZE_THREAD__ /* which does not know the emulated device's coroutines */
/* With devices (bit r: of rank r), residuals and sums are there. */
Test(session_shrink, on_devices) {
  static const char *const policies[] = {"fixed:bf16:1:dense-tree",
                                         "fixed:none:1:dense-tree",
                                         "fixed:topk:0.1:ag:auto-bf16",
                                         "fixed:qsgd:0.125:ag",
                                         "fixed:star:0.1:art-tree",
                                         "fixed:randomk:0.1:art-ring",
                                         "fixed:powersgd:2:dense-tree",
                                         "fixed:var:0.1:art-tree:auto-bf16",
                                         "fixed:fp16:0.5:sra",
                                         "fixed:fp16:0.5:compressed-tree",
                                         "fixed:qsgd:0.125:path=c.ag.d",
                                         "fixed:powersgd:2:dense-sra",
                                         "fixed:powersgd:2:dense-tree:auto-bf16"};
  int missed = 0;
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    if (p == 0 || sampled_of_dear(6)) missed += sweep_on(policies[p], 4, true, 0, p == 0 ? 5 : 15);
  missed += sweep_on("fixed:none:1:dense-tree", 4, true, 0.5, 15);
  cr_assert_gt(missed, 0, "no rank ever missed a step that others had completed");
}

#endif

Test(session_shrink, without_registered_state) {
  (void)sweep("fixed:none:1:dense-tree", 4, false, 0);
}

/* What powersgd starts the next step from is the survivors' own, one that has missed a step takes
 * it from the others: else their weights would part. */
Test(session_shrink, low_rank) {
  int missed = 0;
  missed += sweep("fixed:powersgd:2:dense-ring", 3, true, 0);
  missed += sweep("fixed:powersgd:1:dense-tree", 4, true, 0);
  missed += sweep("fixed:powersgd:3:dense-halving", 3, true, 0);
  missed += sweep("fixed:powersgd:2:dense-tree:auto-bf16", 4, true, 0);
  missed += sweep("fixed:powersgd:2:dense-sra", 3, true, 0);
  missed += sweep("fixed:powersgd:2:dense-one-shot", 4, true, 0);
  cr_assert_gt(missed, 0, "no rank ever missed a step that others had completed");
}

/* Velocities are kept, too: what comes out is momentum SGD's sum, and where something was sent the
 * velocity ends, also on a rank that had missed the step. */
Test(session_shrink, momentum_correction) {
  int missed = 0;
  missed += sweep("fixed:none:1:dense-ring", 3, true, 0.5);
  missed += sweep("fixed:none:1:dense-tree", 4, true, 0.5);
  cr_assert_gt(missed, 0, "no rank ever missed a step that others had completed");
}

Test(session_shrink, momentum_correction_of_what_is_compressed) {
  static const char *const policies[] = {
      "fixed:topk:0.1:ag",       "fixed:topk:0.9:ag",           "fixed:star:0.1:art-tree",
      "fixed:star:0.5:art-tree", "fixed:qsgd:0.125:ag",         "fixed:fp16:0.5:ag",
      "fixed:bf16:1:dense-tree", "fixed:powersgd:2:dense-tree", "fixed:qsgd:0.125:compressed-tree"};
  int missed = 0;
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    if (p == 0 || sampled_of_dear(4)) missed += sweep(policies[p], 4, true, 0.5);
  cr_assert_gt(missed, 0, "no rank ever missed a step that others had completed");
}

/* --- what is refused -------------------------------------------------------------------------- */

Test(session_shrink, only_after_a_loss) {
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.policy = "fixed:none:1:dense-ring";
  cr_assert_eq(weir_shrink(NULL, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_shrink(session, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_shrink(session, NULL), WEIR_E_STATE);
  cr_assert_not_null(strstr(weir_last_error(), "no rank is lost"));
  weir_session_free(session);
}

/* --- with fewer ranks a plan is another matter ------------------------------------------------ */

/* Rank 0 of four leaves in the sixth step. */
static void lose_one(const char *policy, uint64_t limit, trainer t[4]) {
  pthread_t thread[4];
  pthread_barrier_t started;
  cr_assert_eq(pthread_barrier_init(&started, NULL, 4), 0);
  for (int r = 0; r < 4; r++) {
    t[r] = (trainer){.policy = policy,
                     .where = policy,
                     .started = &started,
                     .rank = r,
                     .ranks = 4,
                     .strike = 30,
                     .limit = limit};
    cr_assert_eq(pthread_create(&thread[r], NULL, trainer_main, &t[r]), 0);
  }
  for (int r = 0; r < 4; r++) (void)pthread_join(thread[r], NULL);
  (void)pthread_barrier_destroy(&started);
}

/* The file of policy groups was on rank 0's machine alone: who is rank 0 now says so, and the
 * others that it does, at once. */
Test(session_shrink, without_the_policys_table_all_are_told) {
  static const char table[] =
      "last,plan,place\n"
      "a,topk:0.1:ag,caller\n"
      "b,none:1:dense-ring,caller\n";
  static trainer t[3];
  pthread_t thread[3];
  pthread_barrier_t started;
  char path[64], policy[80];
  write_plan_file(path, table, sizeof table - 1);
  (void)snprintf(policy, sizeof policy, "groups:%s", path);
  cr_assert_eq(pthread_barrier_init(&started, NULL, 3), 0);
  const double begin_s = weir_now_s();
  for (int r = 0; r < 3; r++) {
    t[r] = (trainer){.policy = policy,
                     .where = "shrinking without a table",
                     .started = &started,
                     .rank = r,
                     .ranks = 3,
                     .strike = 20,
                     .gone = path};
    cr_assert_eq(pthread_create(&thread[r], NULL, trainer_main, &t[r]), 0);
  }
  for (int r = 0; r < 3; r++) (void)pthread_join(thread[r], NULL);
  cr_expect_eq(t[1].status, WEIR_E_IO, "%s", t[1].message);
  cr_expect(strstr(t[1].message, path), "%s", t[1].message);
  cr_expect_eq(t[2].status, WEIR_E_UNSUPPORTED, "%s", t[2].message);
  cr_expect(strstr(t[2].message, "rank 0 of those who are left cannot decide"), "%s", t[2].message);
  cr_expect_lt(weir_now_s() - begin_s, 9.0, "they wait for the time-out");
  for (int r = 1; r < 3; r++) {
    cr_expect_neq(weir_step_begin(t[r].session, NULL), WEIR_OK);
    weir_session_free(t[r].session);
  }
}

/* The sum, and the share of it that comes in: a fourth, and then a third. */
Test(session_shrink, a_plan_that_comes_to_take_too_much_is_refused) {
  static trainer t[4];
  lose_one("fixed:none:1:dense-ring", 31000, t);
  for (int r = 1; r < 4; r++) {
    cr_assert_eq(t[r].status, WEIR_E_UNSUPPORTED, "rank %d: %s", r, t[r].message);
    cr_assert(strstr(t[r].message, "takes 32000 bytes") != NULL &&
                  strstr(t[r].message, "memory_limit is 31000") != NULL,
              "rank %d: %s", r, t[r].message);
    weir_session_free(t[r].session);
  }
}

/* The epoch is known to whoever decides then, though it is told but once. */
Test(session_shrink, a_schedule_goes_on_in_its_epoch) {
  static trainer t[4];
  lose_one("schedule:none:1:dense-ring;epoch=1:bf16:1:dense-ring;epoch=2:none:1:dense-tree", 0, t);
  for (int r = 1; r < 4; r++) {
    weir_plan plan;
    cr_assert_eq(t[r].status, WEIR_OK, "rank %d: %s", r, t[r].message);
    weir_engine_plan(t[r].session->engine, &plan);
    cr_assert_eq(plan.codec, (uint32_t)WEIR_CODEC_BF16, "rank %d", r);
    weir_session_free(t[r].session);
  }
}

/* --- processes: killed and frozen ------------------------------------------------------------- */

typedef struct job {
  const char *transport, *policy;
  char where[64];
  int victim, signal;
  bool probes;
  bool machine; /* the victim is on one of its own */
} job;

#define WORKERS 4

static int work(const job *j, int rank) {
  weir_options options;
  weir_session *session = NULL;
  static float w[N], g[N];
  if (j->machine) (void)setenv("WEIR_HOST", rank == j->victim ? "its own" : "the others'", 1);
  weir_options_init(&options);
  options.rank = rank;
  options.world_size = WORKERS;
  options.transport = j->transport;
  options.rendezvous = j->where;
  options.policy = j->policy;
  options.timeout_s = 4.0; /* a busy machine must not pass for a loss */
  options.active_probes = j->probes;
  weir_status status = weir_session_create(&session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(session, "w", N, NULL);
  if (status == WEIR_OK) status = weir_register_state(session, "w", w, sizeof w);
  if (status == WEIR_OK) status = weir_session_start(session);
  weir_step_info info = {.struct_size = sizeof info};
  weir_survivors left = {.struct_size = sizeof left, .world_size = WORKERS};
  uint64_t step = 0;
  while (status == WEIR_OK && step < 12) {
    status = weir_step_begin(session, &info);
    step = info.step;
    for (size_t i = 0; i < N; i++) g[i] = (float)(1 << rank);
    if (status == WEIR_OK) status = weir_submit(session, 0, g);
    if (rank == j->victim && step == 4) (void)raise(j->signal);
    if (status == WEIR_OK) status = weir_step_end(session, NULL);
    if (status >= WEIR_E_TIMEOUT) {
      status = weir_shrink(session, &left);
      step = left.step;
      continue;
    }
    for (size_t i = 0; status == WEIR_OK && i < N; i++) w[i] += g[i];
    if (status == WEIR_OK && !info.trial) step++;
  }
  /* Means of 1, 2, 4, 8: of all in steps 0 .. 3, of the survivors' from step 5 on; step 4 is of
   * either, but the same for all. */
  const float all = 15.0F / 4.0F, rest = (float)(15 - (1 << j->victim)) * (1.0F / 3.0F);
  float with = 0, without = 0, mine[2] = {w[0], w[N - 1]}, seen[2 * WORKERS];
  for (int s = 0; s < 12; s++) {
    with += s < 5 ? all : rest;
    without += s < 4 ? all : rest;
  }
  if (status == WEIR_OK) status = weir_allgather_bytes(session, mine, sizeof mine, seen);
  bool right =
      status == WEIR_OK && left.world_size == WORKERS - 1 && (w[0] == with || w[0] == without);
  for (int i = 0; i < 2 * (WORKERS - 1); i++) right = right && seen[i] == w[0];
  if (!right)
    fprintf(stderr, "%s, rank %d of %d: %s %s; %g, due %g or %g\n", j->transport, rank,
            left.world_size, weir_status_name(status), weir_last_error(), (double)w[0],
            (double)with, (double)without);
  weir_session_free(session);
  return right ? 0 : 1;
}

static void run(job j) {
  pid_t pid[WORKERS];
  int code = 0;
  (void)snprintf(j.where, sizeof j.where, "127.0.0.1:%d", free_port());
  (void)fflush(NULL);
  for (int r = 0; r < WORKERS; r++) {
    pid[r] = fork();
    cr_assert_geq(pid[r], 0);
    if (pid[r] == 0) {
      (void)alarm(GROUP_WATCHDOG_S);
      _exit(work(&j, r));
    }
  }
  for (int r = 0; r < WORKERS; r++) {
    if (r == j.victim) continue;
    (void)waitpid(pid[r], &code, 0);
    cr_assert_eq(code, 0, "%s, victim %d, rank %d: %x", j.transport, j.victim, r, code);
  }
  (void)kill(pid[j.victim], SIGKILL);
  (void)waitpid(pid[j.victim], NULL, 0);
}

Test(session_shrink, processes_over_tcp) {
  for (int v = 0; v < WORKERS; v++)
    run((job){.transport = "tcp",
              .policy = "fixed:none:1:dense-ring",
              .victim = v,
              .signal = v % 2 ? SIGSTOP : SIGKILL,
              .probes = v == 0});
}
/* Several machines are needed by a stage of the schedule that was to begin: the one before it,
 * whose sums are exact, stays, and the next one begins. */
Test(session_shrink, a_schedule_goes_on_without_what_cannot_be_run_any_more) {
  run((job){.transport = "tcp",
            .policy = "schedule:none:1:dense-ring;step=7:topk:0.1:hitopk;step=10:none:1:dense-tree",
            .victim = 3,
            .signal = SIGKILL,
            .machine = true});
  /* In the place of the first one, of which all is sent, stands the next. */
  run((job){.transport = "tcp",
            .policy = "schedule:topk:1:hitopk;step=1000:none:1:dense-ring",
            .victim = 3,
            .signal = SIGKILL,
            .machine = true});
}
Test(session_shrink, processes_over_shm) {
  for (int v = 0; v < WORKERS; v++)
    run((job){.transport = "shm",
              .policy = "fixed:none:1:dense-tree",
              .victim = v,
              .signal = v % 2 ? SIGKILL : SIGSTOP});
}
