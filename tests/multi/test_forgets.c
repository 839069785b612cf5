/* Sessions without error feedback (weir_options.error_feedback): what a plan does not send is lost
 * and never comes back, averages are the gradient's on average, no residual is kept, and what needs
 * error feedback is refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/base.h"
#include "device.h"
#include "session_ranks.h"

enum { RANKS = 3, MOST = 1000, STEPS = 400 };

typedef struct worker {
  int rank;
  const char *group, *policy;
  bool feedback;
  uint64_t limit; /* of memory */
  int steps;
  double momentum;
  weir_network_fn network;
  const test_device *device;
  uint64_t allocated; /* on the device, until the session has started */
  weir_status status; /* out */
  char message[512];
  uint64_t before, after; /* digests of the residual */
  uint64_t averages;      /* digest of all averages */
  double mean[MOST];      /* of the averages of all steps */
  double square[MOST];    /* of their squares */
} worker;

/* A rank's gradient, the same in every step: most of it small beside a few large ones, some of it
 * -0. */
static float value(int rank, size_t i) {
  if (i % 41 == 0) return -0.0F;
  const uint64_t at[] = {(uint64_t)rank, i};
  const double x = (double)(weir_hash(WEIR_HASH_INIT, at, sizeof at) % 2000001) / 1e6 - 1.0;
  return (float)(i % 37 == 0 ? 10 * x : x);
}

/* `on`: where the gradient is handed in; NULL: where it is. */
static weir_status one_step(worker *w, weir_session *session, float *on) {
  float gradient[MOST];
  for (size_t i = 0; i < MOST; i++) gradient[i] = value(w->rank, i);
  if (on != NULL) w->device->put(on, gradient, sizeof gradient);
  weir_status status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_submit(session, 0, on != NULL ? on : gradient);
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  if (on != NULL) w->device->get(gradient, on, sizeof gradient);
  for (size_t i = 0; i < MOST && status == WEIR_OK; i++) {
    w->mean[i] += (double)gradient[i] / STEPS;
    w->square[i] += (double)gradient[i] * (double)gradient[i] / STEPS;
  }
  w->averages = weir_hash(w->averages, gradient, sizeof gradient);
  return status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  weir_session *session = NULL;
  options.memory_limit = w->limit;
  options.error_feedback = w->feedback;
  options.momentum_correction = w->momentum;
  options.virtual_network = w->network;
  options.device = w->device != NULL ? 0 : -1;
  float *const on = w->device != NULL ? w->device->memory(MOST * sizeof *on) : NULL;
  const uint64_t before = w->device != NULL ? w->device->allocated() : 0;
  w->averages = WEIR_HASH_INIT;
  w->status = session_open(&session, &options, MOST);
  if (w->device != NULL) w->allocated = w->device->allocated() - before;
  if (w->status == WEIR_OK) w->status = weir_residual_digest(session, &w->before);
  for (int step = 0; step < w->steps && w->status == WEIR_OK; step++)
    w->status = one_step(w, session, on);
  if (w->status == WEIR_OK) w->status = weir_residual_digest(session, &w->after);
  if (w->status != WEIR_OK) snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  if (on != NULL) w->device->forget(on);
  return NULL;
}

/* bit r of where: rank r has the device; others: what is the same of all ranks. */
static void run_with(worker *w, const worker *others, unsigned where) {
  static int turn;
  static char group[64];
  snprintf(group, sizeof group, "forgets %d %d", (int)getpid(), turn++);
  for (int r = 0; r < RANKS; r++) {
    w[r] = *others;
    w[r].rank = r;
    w[r].group = group;
    if ((where >> r & 1) == 0) w[r].device = NULL;
  }
  session_threads(w, sizeof *w, RANKS, work);
}

/* What is limited is refused, or runs a step. */
static worker *run(const char *policy, bool feedback, uint64_t limit) {
  static worker w[RANKS];
  const worker others = {
      .policy = policy, .feedback = feedback, .limit = limit, .steps = limit > 0 ? 1 : STEPS};
  run_with(w, &others, 0);
  return w;
}

static double mean_gradient(size_t i) {
  double sum = 0;
  for (int r = 0; r < RANKS; r++) sum += (double)value(r, i);
  return sum / RANKS;
}

/* Elements are drawn anew in every step, so that the mean of so many averages misses the gradient
 * by its standard error times something normal: 6 of them are missed once in 10^9 elements. */
static void check_unbiased(const worker *w, const char *policy) {
  double drawn = 0;
  for (size_t i = 0; i < MOST; i++) {
    const double variance = fmax(w->square[i] - w->mean[i] * w->mean[i], 0);
    const double off = fabs(w->mean[i] - mean_gradient(i));
    cr_assert_leq(off, 6 * sqrt(variance / STEPS) + 2e-5, "%s: element %zu is off by %g, drawn %g",
                  policy, i, off, sqrt(variance));
    drawn = fmax(drawn, variance);
  }
  cr_assert_gt(drawn, 1e-6, "%s: nothing is drawn", policy);
}

static const char *const unbiased[] = {
    "fixed:qsgd:0.125:ag",   "fixed:qsgd:0.125:sra", "fixed:qsgd:0.125:compressed-ring",
    "fixed:qsgd-l2:0.25:ag", "fixed:qsgd:0.0625:ag", "fixed:qsgd:0.125:compressed-tree"};

Test(forgets, averages_are_the_gradients_on_average, .timeout = 120) {
  for (size_t p = 0; p < sizeof unbiased / sizeof *unbiased; p++) {
    const worker *w = run(unbiased[p], false, 0);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(w[r].status, WEIR_OK, "%s: %s", unbiased[p], w[r].message);
      cr_assert_eq(w[r].averages, w[0].averages, "%s: rank %d", unbiased[p], r);
      cr_assert_eq(w[r].after, w[r].before, "%s: rank %d keeps a residual", unbiased[p], r);
    }
    check_unbiased(w, unbiased[p]);
  }
}

/* With error feedback something stays behind, so that the test above could fail. */
Test(forgets, with_error_feedback_a_residual_is_kept, .timeout = 120) {
  const worker *w = run("fixed:qsgd:0.125:ag", true, 0);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "%s", w[r].message);
    cr_assert_neq(w[r].after, w[r].before, "rank %d", r);
  }
}

/* Rounding to bfloat16 without a residual makes the same average in every step, and within half a
 * unit in the last of 8 places of every rank's value and of every partial sum. */
Test(forgets, what_rounds_makes_the_same_mistake_in_every_step, .timeout = 120) {
  const worker *w = run("fixed:bf16:1:dense-ring", false, 0);
  cr_assert_eq(w[0].status, WEIR_OK, "%s", w[0].message);
  cr_assert_eq(w[0].after, w[0].before);
  for (size_t i = 0; i < MOST; i++) {
    double most = 0;
    for (int r = 0; r < RANKS; r++) most += fabs((double)value(r, i));
    cr_assert_leq(fabs(w[0].mean[i] - mean_gradient(i)), RANKS * most / 256 / RANKS);
    cr_assert_lt(fabs(w[0].square[i] - w[0].mean[i] * w[0].mean[i]), 1e-9);
  }
}

/* e and the sum beside three messages, but no residual: 4 bytes an element less, to the byte. */
Test(forgets, no_memory_is_counted_for_a_residual, .timeout = 120) {
  uint64_t least[2];
  for (int feedback = 0; feedback < 2; feedback++) {
    uint64_t low = 1, high = 1 << 20; /* refused, and run */
    while (high - low > 1) {
      const uint64_t half = low + (high - low) / 2;
      const weir_status status = run("fixed:qsgd:0.125:ag", feedback != 0, half)[0].status;
      *(status == WEIR_OK ? &high : &low) = half;
    }
    least[feedback] = high;
  }
  cr_assert_eq(least[1] - least[0], 4 * MOST, "%llu and %llu bytes", (unsigned long long)least[1],
               (unsigned long long)least[0]);
}

static void steady(void *user, uint64_t step, double *latency_s, double *bandwidth_bytes_s) {
  (void)user, (void)step;
  *latency_s = 1e-3;
  *bandwidth_bytes_s = 1e6;
}

/* On devices averages have the bits of hosts, and nothing is kept either; in virtual time, so that
 * tables come into force in the same steps. */
Test(forgets, devices_forget_as_hosts_do, .timeout = 240) {
  static const char *const policies[] = {
      "fixed:qsgd:0.125:ag",          "fixed:qsgd-l2:0.25:ag",
      "fixed:qsgd:0.125:sra",         "fixed:fp16:0.5:ag",
      "fixed:bf16:1:dense-ring",      "fixed:qsgd:0.125:compressed-tree",
      "fixed:fp16:0.5:sra",           "bits:kmeans",
      "fixed:qsgd:0.125:path=c.ag.d", "groups:even=1:qsgd:0.125:ag"};
  static worker host[RANKS], mine[RANKS];
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  const test_device device = test_device_open();
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    for (int momentum = 0; momentum < 2; momentum++) {
      const worker others = {.policy = policies[p],
                             .steps = 12,
                             .momentum = momentum ? 0.5 : 0,
                             .network = p >= 3 ? steady : NULL,
                             .device = &device};
      if (momentum && strstr(policies[p], "bits") != NULL) continue;
      run_with(host, &others, 0);
      run_with(mine, &others, p % 3 == 0 ? 5 : 7);
      for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(host[r].status, WEIR_OK, "%s: %s", policies[p], host[r].message);
        cr_assert_eq(mine[r].status, WEIR_OK, "%s: %s", policies[p], mine[r].message);
        cr_assert_eq(mine[r].averages, host[r].averages, "%s: rank %d", policies[p], r);
        cr_assert_eq(mine[r].after, host[r].after, "%s: rank %d keeps a residual", policies[p], r);
        cr_assert_eq(mine[r].after, mine[r].before, "%s: rank %d keeps a residual", policies[p], r);
      }
    }
}

/* One buffer less: what a residual lies in, and a device's other buffers are as many. */
Test(forgets, no_memory_of_a_device_is_taken_for_a_residual, .timeout = 120) {
  static worker w[2][RANKS];
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  const test_device device = test_device_open();
  for (int feedback = 0; feedback < 2; feedback++) {
    const worker others = {
        .policy = "fixed:qsgd:0.125:ag", .feedback = feedback != 0, .steps = 1, .device = &device};
    run_with(w[feedback], &others, 1);
    cr_assert_eq(w[feedback][0].status, WEIR_OK, "%s", w[feedback][0].message);
  }
  if (w[1][0].allocated == 0) cr_skip_test("the driver does not count");
  cr_assert_eq(w[1][0].allocated - w[0][0].allocated, 1, "%d and %d", (int)w[1][0].allocated,
               (int)w[0][0].allocated);
}

static void refuses(const char *policy, const char *why) {
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.policy = policy;
  options.error_feedback = false;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID, "%s", policy);
  cr_assert_null(session);
  cr_assert_not_null(strstr(weir_last_error(), why), "%s: %s", policy, weir_last_error());
}

Test(forgets, what_needs_error_feedback_is_refused) {
  refuses("weir", "policy weir needs error_feedback");
  refuses("paper", "policy paper needs error_feedback");
  refuses("schedule:topk:0.01:ag;step=3:none:1:dense", "needs error_feedback");
  refuses("fixed:topk:0.01:ag", "codec topk needs error_feedback");
  refuses("fixed:powersgd:4:dense-ring", "codec powersgd needs error_feedback");
  refuses("fixed:efsignsgd:0.03125:ag", "codec efsignsgd needs error_feedback");
  refuses("fixed:terngrad:0.0625:ag", "codec terngrad needs error_feedback"); /* it clips */
  refuses("fixed:qsgd-nearest:0.125:ag", "codec qsgd-nearest needs error_feedback");
  refuses("fixed:nonzero:0.125:ag", "codec nonzero needs error_feedback");
  refuses("groups:layers:topk:0.01:ag", "codec topk needs error_feedback");
}

/* A table's later lines are found out when the session starts. */
Test(forgets, a_table_with_such_a_plan_is_refused, .timeout = 60) {
  char path[] = "/tmp/weir-forgets-XXXXXX";
  const int file = mkstemp(path);
  static const char lines[] = "last,plan,place\nw,topk:0.01:ag,caller\n";
  cr_assert_eq(write(file, lines, sizeof lines - 1), (ssize_t)sizeof lines - 1);
  close(file);
  char policy[64];
  snprintf(policy, sizeof policy, "groups:%s", path);
  const worker *w = run(policy, false, 0);
  unlink(path);
  cr_assert_eq(w[0].status, WEIR_E_UNSUPPORTED, "%s", w[0].message);
  cr_assert_not_null(strstr(w[0].message, "codec topk needs error feedback"), "%s", w[0].message);
}

/* Ranks must do the same. */
Test(forgets, a_rank_that_does_otherwise_is_refused, .timeout = 60) {
  static const char *const said[] = {"rank 2 goes without error_feedback, rank 0 with",
                                     "rank 1 has momentum_correction 0.5, rank 0 0"};
  worker w[RANKS];
  char group[64];
  for (int turn = 0; turn < 2; turn++) {
    snprintf(group, sizeof group, "forgets otherwise %d %d", (int)getpid(), turn);
    for (int r = 0; r < RANKS; r++)
      w[r] = (worker){.rank = r,
                      .group = group,
                      .policy = "fixed:qsgd:0.125:ag",
                      .steps = STEPS,
                      .momentum = turn == 1 && r == 1 ? 0.5 : 0,
                      .feedback = turn == 1 || r != 2};
    session_threads(w, sizeof *w, RANKS, work);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(w[r].status, WEIR_E_MISMATCH, "rank %d: %s", r, w[r].message);
      cr_assert_not_null(strstr(w[r].message, said[turn]), "%s", w[r].message);
    }
  }
}
