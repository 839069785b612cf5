/* Sessions on a device: what they load and refuse, and that they train as others do.  The device is
 * tests/emulate's, found as an installed library would be. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/inside.h>
#include <weir/weir.h>

#include "device.h"
#include "session_ranks.h"

#define RANKS 3
#define N 2000
#define STEPS 6

typedef struct worker {
  const char *group, *policy;
  int rank, ranks, device;
  int steps;
  const char *nonfinite;  /* NULL: as it is by default */
  int poisoned;           /* rank 1's gradient has an infinity in this step; 0: in none */
  double momentum, limit; /* of the norm; 0: nothing is clipped */
  double norm[STEPS];
  weir_network_fn network;
  float average[STEPS][N];
  uint64_t digest[STEPS];
  double gain, comm_s;
  weir_status status;
  char message[512];
} worker;

static void widening(void *user, uint64_t step, double *latency_s, double *bandwidth_bytes_s) {
  (void)user;
  *latency_s = 1e-3;
  *bandwidth_bytes_s = step < 3 ? 1e6 : 1e9;
}

static void use_library(void) { (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1); }

static void prepare(const worker *w, weir_options *options) {
  *options = session_options(w->rank, w->ranks, w->group, w->policy);
  options->device = w->device;
  options->virtual_network = w->network;
  options->momentum_correction = w->momentum;
  if (w->nonfinite != NULL) options->nonfinite = w->nonfinite;
}

static void gradient(float *g, int rank, int step) {
  for (size_t i = 0; i < N; i++) {
    const int x = (int)((i * 7919 + (size_t)rank * 31 + (size_t)step * 101) % 997) - 498;
    g[i] = (float)(x * x * (x < 0 ? -1 : 1)) / 1024;
  }
}

static void train(worker *w, weir_session *session) {
  const test_device d = test_device_open();
  const bool device = w->device >= 0;
  float *const g = device ? d.memory(N * sizeof *g) : malloc(N * sizeof *g);
  float mine[N];
  weir_step_info info = {.struct_size = sizeof info};
  for (int s = 0; s < w->steps && w->status == WEIR_OK; s++) {
    gradient(mine, w->rank, s);
    const bool lost = s > 0 && s == w->poisoned;
    if (lost && w->rank == 1) mine[N / 3] = INFINITY;
    if (device)
      d.put(g, mine, N * sizeof *g);
    else
      memcpy(g, mine, N * sizeof *g);
    w->status = weir_step_begin(session, NULL);
    if (w->status == WEIR_OK && w->limit > 0)
      w->status = weir_clip(session, (void *[]){g, g + N / 4}, w->limit, &w->norm[s]);
    if (w->status == WEIR_OK) w->status = weir_submit(session, 0, g);
    if (w->status == WEIR_OK) w->status = weir_submit(session, 1, g + N / 4);
    if (w->status == WEIR_OK) w->status = weir_step_end(session, &info);
    if (lost) w->status = w->status == WEIR_E_NONFINITE ? WEIR_OK : WEIR_E_INTERNAL;
    if (w->status == WEIR_OK) w->status = weir_residual_digest(session, &w->digest[s]);
    if (device)
      d.get(w->average[s], g, N * sizeof *g);
    else
      memcpy(w->average[s], g, N * sizeof *g);
  }
  w->gain = info.gain;
  w->comm_s = info.comm_s;
  if (device)
    d.forget(g);
  else
    free(g);
}

static void *worker_main(void *argument) {
  worker *w = argument;
  weir_options options;
  weir_session *session = NULL;
  prepare(w, &options);
  w->status = weir_session_create(&session, &options);
  if (w->status == WEIR_OK) w->status = weir_register_tensor(session, "a", N / 4, NULL);
  if (w->status == WEIR_OK) w->status = weir_register_matrix(session, "b", 30, 50, NULL);
  if (w->status == WEIR_OK) w->status = weir_session_start(session);
  if (w->status == WEIR_OK) train(w, session);
  if (w->status != WEIR_OK) (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

/* where: bit r: rank r has a device; others: what the ranks have beside. */
static void run_with(worker *w, const char *policy, unsigned where, worker others) {
  static int serial;
  char group[64];
  (void)snprintf(group, sizeof group, "session device %d", serial++);
  for (int r = 0; r < RANKS; r++) {
    w[r] = (worker){.group = group,
                    .policy = policy,
                    .rank = r,
                    .ranks = RANKS,
                    .device = where >> r & 1 ? 0 : -1,
                    .steps = STEPS,
                    .momentum = others.momentum,
                    .nonfinite = others.nonfinite,
                    .poisoned = others.poisoned,
                    .limit = others.limit,
                    .network = others.network};
  }
  session_threads(w, sizeof *w, RANKS, worker_main);
}

static void run(worker *w, const char *policy, unsigned where, weir_network_fn network) {
  run_with(w, policy, where, (worker){.network = network});
}

Test(session_device, trains_as_the_host_does) {
  static const char *const policies[] = {
      "fixed:topk:0.1:ag",          "fixed:lwtopk:0.1:ag:auto-bf16",
      "fixed:bf16:1:dense-ring",    "fixed:star:0.1:art-tree",
      "fixed:qsgd:0.125:ag",        "fixed:powersgd:2:dense-ring",
      "fixed:qsgd:0.125:sra",       "fixed:qsgd:0.125:path=c.ag.d",
      "fixed:minifloat:0.25:sra",   "fixed:companded:0.125:sra",
      "fixed:powersgd:2:dense-sra", "fixed:powersgd:2:dense-tree:auto-bf16"};
  static worker host[RANKS], mine[RANKS];
  use_library();
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    for (unsigned where = 1; where <= 7; where += 3) { /* ranks 0; 2; all */
      const worker others = {.momentum = where == 7 ? 0.5 : 0};
      run_with(host, policies[p], 0, others);
      run_with(mine, policies[p], where, others);
      for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(host[r].status, WEIR_OK, "%s", host[r].message);
        cr_assert_eq(mine[r].status, WEIR_OK, "%s", mine[r].message);
        cr_assert_eq(memcmp(mine[r].average, host[r].average, sizeof host[r].average), 0, "%s",
                     policies[p]);
        cr_assert_eq(memcmp(mine[r].digest, host[r].digest, sizeof host[r].digest), 0, "%s",
                     policies[p]);
        /* Sums of squares run in another order on a device. */
        cr_assert_float_eq(mine[r].gain, host[r].gain, 1e-9, "%s: gains %.17g and %.17g",
                           policies[p], mine[r].gain, host[r].gain);
      }
    }
}

/* Averages of a lost step are NaN, or zero, all of them and on all ranks; the residual is what it
 * was before, and the next step makes of it what it makes in host memory. */
Test(session_device, a_lost_step_leaves_nan_or_zero) {
  static const char *const policies[] = {"fixed:topk:0.1:ag", "fixed:none:1:dense-ring",
                                         "fixed:qsgd:0.125:sra", "fixed:star:0.1:art-tree",
                                         "groups:layers:qsgd:0.125:ag"};
  static worker host[RANKS], mine[RANKS];
  use_library();
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    for (int keep = 0; keep < 2; keep++) {
      /* In virtual time a table comes into force in the same step always. */
      const bool table = strncmp(policies[p], "groups", 6) == 0;
      const worker others = {
          .poisoned = 3, .nonfinite = keep ? "keep" : "zero", .network = table ? widening : NULL};
      run_with(host, policies[p], 0, others);
      run_with(mine, policies[p], p % 2 == 0 ? 7 : 2, others);
      for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(mine[r].status, WEIR_OK, "%s: %s", policies[p], mine[r].message);
        for (size_t i = 0; i < N; i++)
          cr_assert(keep ? isnan(mine[r].average[3][i]) : mine[r].average[3][i] == 0,
                    "%s: element %zu is %g", policies[p], i, (double)mine[r].average[3][i]);
        cr_assert_eq(mine[r].digest[3], mine[r].digest[2], "%s", policies[p]);
        cr_assert_eq(memcmp(mine[r].average, host[r].average, sizeof host[r].average), 0, "%s",
                     policies[p]);
        cr_assert_eq(memcmp(mine[r].digest, host[r].digest, sizeof host[r].digest), 0, "%s",
                     policies[p]);
      }
    }
}

/* Every rank's norm is sqrt(sum of squares), and three ranks of the same direction have an average
 * of limit / sqrt(3); a limit that is not reached leaves the gradients as they are. */
Test(session_device, gradients_are_clipped_there) {
  static worker host[RANKS], mine[RANKS];
  const double limits[] = {1e-3, 1000, 1e9};
  use_library();
  for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
    run_with(host, "fixed:none:1:dense-ring", 0, (worker){.limit = limits[l]});
    run_with(mine, "fixed:none:1:dense-ring", 5, (worker){.limit = limits[l]});
    for (int r = 0; r < RANKS; r++)
      for (int s = 0; s < STEPS; s++) {
        float g[N];
        double square = 0;
        gradient(g, r, s);
        for (size_t i = 0; i < N; i++) square += (double)g[i] * (double)g[i];
        cr_assert_eq(mine[r].status, WEIR_OK, "%s", mine[r].message);
        cr_assert_float_eq(mine[r].norm[s], sqrt(square), 1e-12 * sqrt(square));
        for (size_t i = 0; i < N; i++)
          cr_assert(fabsf(mine[r].average[s][i] - host[r].average[s][i]) <=
                        4e-7F * fabsf(host[r].average[s][i]),
                    "limit %g: element %zu is %.9g on the device and %.9g on the host", limits[l],
                    i, (double)mine[r].average[s][i], (double)host[r].average[s][i]);
      }
    cr_assert(limits[l] > 1e6 || mine[0].norm[0] > limits[l]);
  }
}

/* Whole numbers, whose squares add up to the same in any order; of three types, two of which follow
 * one another in memory. */
static void clip_types(int device, uint16_t *half, float *wide, double *norm) {
  const test_device d = test_device_open();
  const worker alone = {.policy = "fixed:none:1:dense-ring", .ranks = 1, .device = device};
  weir_options options;
  weir_session *session = NULL;
  for (size_t i = 0; i < N; i++) {
    wide[i] = (float)(i % 5);
    half[i] = i % 2 == 0 ? 0x3f80 : 0x4080; /* of bfloat16: 1 and 4; of fp16 1.875 and 2.25 */
  }
  void *const to = device >= 0 ? d.memory(2 * N) : half, *const w =
                                                             device >= 0 ? d.memory(4 * N) : wide;
  if (device >= 0) d.put(to, half, 2 * N);
  if (device >= 0) d.put(w, wide, 4 * N);
  uint16_t *const h = to;
  prepare(&alone, &options);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_typed(session, "b", 1, 500, WEIR_BF16, NULL), WEIR_OK);
  cr_assert_eq(weir_register_typed(session, "h", 1, N - 700, WEIR_FP16, NULL), WEIR_OK);
  cr_assert_eq(weir_register_typed(session, "i", 1, 200, WEIR_FP16, NULL), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "w", N, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_clip(session, (void *[]){h, h + 500, h + N - 200, w}, 17, norm), WEIR_OK, "%s",
               weir_last_error());
  if (device >= 0) d.get(half, to, 2 * N);
  if (device >= 0) d.get(wide, w, 4 * N);
  weir_session_free(session);
  if (device >= 0) d.forget(to);
  if (device >= 0) d.forget(w);
}

Test(session_device, sixteen_bits_are_clipped_as_on_hosts) {
  static uint16_t half[2][N];
  static float wide[2][N];
  double norm[2];
  use_library();
  clip_types(-1, half[0], wide[0], &norm[0]);
  clip_types(0, half[1], wide[1], &norm[1]);
  /* 500 of 1 and 16, 1500 of 1.875 and 2.25 squared, 2000 of 0 to 16: half of each, or a fifth. */
  const double square = 250 * 17.0 + 750 * (1.875 * 1.875 + 2.25 * 2.25) + 400 * 30.0;
  cr_assert_float_eq(norm[0], sqrt(square), 1e-9, "%.17g", norm[0]);
  cr_assert_eq(norm[1], norm[0]);
  cr_assert(wide[0][1] < 1 && half[0][0] < 0x3f80);
  cr_assert_eq(memcmp(half[1], half[0], sizeof half[0]), 0);
  cr_assert_eq(memcmp(wide[1], wide[0], sizeof wide[0]), 0);
}

/* The policy looks at the gain curve, which the device makes on rank 0. */
Test(session_device, the_adaptive_policy_decides_on_one) {
  static worker w[RANKS];
  use_library();
  run(w, "weir", 7, widening);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    cr_assert_eq(memcmp(w[r].average, w[0].average, sizeof w[r].average), 0);
    cr_assert(w[r].gain > 0 && w[r].gain <= 1, "%g", w[r].gain);
  }
}

/* Ranks with and without a device begin alike: in host memory the first decision is in force in the
 * sixth step at the earliest. */
Test(session_device, the_adaptive_policy_begins_alike_everywhere) {
  static worker host[RANKS], mine[RANKS];
  use_library();
  run(host, "weir", 0, widening);
  for (unsigned where = 1; where < 8; where++) {
    run(mine, "weir", where, widening);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(mine[r].status, WEIR_OK, "rank %d of %x: %s", r, where, mine[r].message);
      for (int s = 0; s < 4 && s < STEPS; s++) {
        cr_assert_eq(memcmp(mine[r].average[s], host[r].average[s], sizeof host[r].average[s]), 0,
                     "rank %d of %x, step %d", r, where, s);
        cr_assert_eq(mine[r].digest[s], host[r].digest[s], "rank %d of %x, step %d", r, where, s);
      }
    }
  }
}

static int device_said, host_said;
static void hear(void *user, const weir_log_line *line) {
  (void)user;
  device_said += strstr(line->text, "timed where gradients are: none ") != NULL;
  host_said += strstr(line->text, "timed on this host's processors: none ") != NULL;
}

/* Rank 0 decides: compressing is timed on its device where all ranks have one, else on the host's
 * processors, whose times are the longer ones. */
Test(session_device, codecs_are_timed_where_all_gradients_are) {
  static worker w[RANKS];
  use_library();
  cr_assert_eq(weir_log_set_level(WEIR_LOG_INFO), WEIR_OK);
  for (unsigned where = 0; where < 8; where++) {
    device_said = host_said = 0;
    weir_log_set(hear, NULL);
    run(w, "weir", where, NULL);
    weir_log_set(NULL, NULL);
    for (int r = 0; r < RANKS; r++)
      cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    cr_assert_eq(device_said, where == 7, "ranks %x", where);
    cr_assert_eq(host_said, where != 7, "ranks %x", where);
  }
}

/* 1 ms, 1 GB/s: 2 latencies and 2 messages of 16 bytes and 8 for each of 2000 elements, between
 * hosts and where one has a device. */
Test(session_device, steps_are_charged_whole_messages) {
  static worker w[RANKS];
  use_library();
  for (unsigned where = 0; where < 3; where += 2) {
    run(w, "fixed:topk:1:ag-bruck", where, widening);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
      cr_assert_float_eq(w[r].comm_s, 2e-3 + 2 * 16016 / 1e9, 1e-12, "%g", w[r].comm_s);
    }
  }
}

/* --- what is refused -------------------------------------------------------------------------- */

static void refused(const weir_options *options, weir_status status, const char *why) {
  weir_session *session = NULL;
  cr_assert_eq(weir_session_create(&session, options), status, "%s", weir_last_error());
  cr_assert_null(session);
  cr_assert_not_null(strstr(weir_last_error(), why), "%s", weir_last_error());
}

Test(session_device, options_that_do_not_go_together_are_refused) {
  weir_options good, bad;
  const worker alone = {.policy = "fixed:topk:0.1:ag", .ranks = 1};
  use_library();
  prepare(&alone, &good);
  bad = good;
  bad.device = -2;
  refused(&bad, WEIR_E_INVALID, "-2");
  bad = good;
  bad.device = -1;
  bad.stream = &bad;
  refused(&bad, WEIR_E_INVALID, "no device");
}

Test(session_device, without_its_library_it_is_refused) {
  weir_options options;
  const worker alone = {.policy = "fixed:topk:0.1:ag", .ranks = 1};
  prepare(&alone, &options);
  (void)setenv("WEIR_CUDA_LIBRARY", "/nowhere/libweir_cuda.so", 1);
  refused(&options, WEIR_E_UNSUPPORTED, "/nowhere/libweir_cuda.so");
  (void)setenv("WEIR_CUDA_LIBRARY", "libm.so.6", 1);
  refused(&options, WEIR_E_UNSUPPORTED, "has no weir_device_library");
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_OTHER, 1);
  refused(&options, WEIR_E_UNSUPPORTED, "another version");
}

Test(session_device, gradients_elsewhere_are_refused) {
  weir_options options;
  weir_session *session = NULL;
  worker alone = {.policy = "fixed:topk:0.1:ag", .ranks = 1};
  static float g[N];
  use_library();
  const test_device d = test_device_open();
  float *const there = d.memory(sizeof g);
  prepare(&alone, &options);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "a", N, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "memory of the host"), "%s", weir_last_error());
  gradient(g, 0, 0);
  d.put(there, g, sizeof g);
  cr_assert_eq(weir_submit(session, 0, there), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_end(session, NULL), WEIR_OK, "%s", weir_last_error());
  weir_session_free(session);

  options.device = 1000;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "a", N, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "no CUDA device 1000"), "%s", weir_last_error());
  weir_session_free(session);
  d.forget(there);
}

#ifdef WEIR_CUDA_DRIVER
/* Where the process has a driver, which is one of a test's here. */
Test(session_device, a_session_in_host_memory_refuses_a_devices) {
  static _Alignas(4096) float g[4096 + N];
  weir_options options;
  weir_session *session = NULL;
  const worker alone = {.policy = "fixed:none:1:dense-ring", .ranks = 1, .device = -1};
  cr_assert_not_null(dlopen(WEIR_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
  prepare(&alone, &options);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "a", N, NULL), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "b", 8, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "weir_options.device"), "%s", weir_last_error());
  cr_assert_eq(weir_submit(session, 0, g + 16), WEIR_OK, "%s", weir_last_error()); /* managed */
  cr_assert_eq(weir_submit(session, 1, g + 2200), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_end(session, NULL), WEIR_OK, "%s", weir_last_error());
  weir_session_free(session);
}
#endif
