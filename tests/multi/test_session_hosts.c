/* Ranks that share machines, found by a session with nothing configured: hierarchical collectives
 * run over the machines there are, the adaptive policy takes them into account, and what cannot be
 * run on such a group is refused.  Two machines are pretended by WEIR_HOST, as in labs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

#include "ranks.h"
#include "session_ranks.h"

#define RANKS 4
#define N 6000
#define TENSORS 12

typedef struct outcome {
  weir_status status;
  char message[256];
  char plan[WEIR_PLAN_TEXT_MAX]; /* executed last */
  float update[N];               /* of the last step */
  char path[WEIR_PLAN_TEXT_MAX]; /* of the plan at the end, or of some bucket; "": none */
} outcome;

typedef struct run {
  const char *policy, *journal;
  const char *host[RANKS]; /* NULL: this machine */
  int steps;
  double momentum; /* corrected */
  bool divided;    /* in virtual time, in tensors that come one after the other */
  bool overlap;    /* these in buckets, if that is worth it */
} run;

/* Whole numbers: every sum of them is exact, in any order. */
static float gradient(int rank, int step, size_t i) {
  return (float)((int)((i * 31 + (size_t)rank * 7 + (size_t)step * 3) % 64) - 32);
}

/* So far that a round of messages takes as long as the backward pass, and as slow. */
static void far(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  (void)user;
  (void)step;
  *latency_s = 0.005;
  *bandwidth = 1e6;
}

static weir_status open_divided(weir_session **session, weir_options *options) {
  options->virtual_network = far;
  weir_status status = weir_session_create(session, options);
  for (int t = 0; t < TENSORS && status == WEIR_OK; t++) {
    char name[16];
    (void)snprintf(name, sizeof name, "t%02d", t);
    status = weir_register_tensor(*session, name, N / TENSORS, NULL);
  }
  return status == WEIR_OK ? weir_session_start(*session) : status;
}

static weir_status submit(weir_session *session, bool divided, float *update) {
  const struct timespec pause = {.tv_nsec = 2000000};
  weir_status status = divided ? weir_mark_backward(session) : weir_submit(session, 0, update);
  for (int t = 0; t < TENSORS && divided && status == WEIR_OK; t++) {
    (void)nanosleep(&pause, NULL);
    status = weir_submit(session, (size_t)t, update + t * (N / TENSORS));
  }
  return status;
}

static void note_path(const weir_session *session, outcome *out) {
  weir_plan_bucket bucket[TENSORS];
  size_t count = 0;
  if (strstr(out->plan, "path=") != NULL) memcpy(out->path, out->plan, sizeof out->path);
  if (weir_current_buckets(session, bucket, TENSORS, &count) != WEIR_OK) return;
  for (size_t k = 0; k < count; k++) {
    weir_plan plan = {0};
    weir_plan_of_bucket(&bucket[k], &plan);
    if (plan.scheme == WEIR_SCHEME_PATH) weir_plan_format(&plan, out->path);
  }
}

static weir_status train(const run *r, int rank, const char *where, outcome *out) {
  weir_options options = session_options(rank, RANKS, where, r->policy);
  options.active_probes = true;
  weir_session *session = NULL;
  weir_step_info info = {.struct_size = sizeof info};
  options.transport = "tcp";
  options.update_rule = "sgd"; /* few bits are candidates from the first decision on */
  options.momentum_correction = r->momentum;
  options.overlap = r->overlap;
  options.journal_path = rank == 0 ? r->journal : NULL;
  weir_status status =
      r->divided ? open_divided(&session, &options) : session_open(&session, &options, N);
  for (int s = 0; s < r->steps && status == WEIR_OK; s++) {
    status = weir_step_begin(session, NULL);
    for (size_t i = 0; i < N; i++) out->update[i] = gradient(rank, s, i);
    if (status == WEIR_OK) status = submit(session, r->divided, out->update);
    if (status == WEIR_OK) status = weir_step_end(session, &info);
    if (status == WEIR_OK) weir_plan_format(&info.plan, out->plan);
  }
  if (status == WEIR_OK && r->divided) note_path(session, out);
  if (status != WEIR_OK) (void)snprintf(out->message, sizeof out->message, "%s", weir_last_error());
  weir_session_free(session);
  return status;
}

static outcome *start(const run *r) {
  outcome *out = group_shared(RANKS * sizeof *out);
  pid_t pid[RANKS];
  char where[64];
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  (void)fflush(NULL);
  for (int rank = 0; rank < RANKS; rank++) {
    out[rank].status = WEIR_E_INTERNAL;
    pid[rank] = fork();
    cr_assert_geq(pid[rank], 0);
    if (pid[rank] > 0) continue;
    (void)alarm(GROUP_WATCHDOG_S);
    if (r->host[rank] != NULL) (void)setenv("WEIR_HOST", r->host[rank], 1);
    out[rank].status = train(r, rank, where, &out[rank]);
    _exit(0);
  }
  for (int rank = 0; rank < RANKS; rank++) (void)waitpid(pid[rank], NULL, 0);
  return out;
}

static void finish(outcome *out) { (void)munmap(out, RANKS * sizeof *out); }

static void check_same(const outcome *out, const char *plan) {
  for (int rank = 0; rank < RANKS; rank++) {
    cr_assert_eq(out[rank].status, WEIR_OK, "%s, rank %d: %s", plan, rank, out[rank].message);
    cr_assert_str_eq(out[rank].plan, plan);
    cr_assert_eq(memcmp(out[rank].update, out[0].update, sizeof out[0].update), 0,
                 "%s: rank %d has another result", plan, rank);
  }
}

Test(session_hosts, hierarchical_plans_run_on_two_machines) {
  static const char *const layouts[][RANKS] = {{"left", "left", "right", "right"},
                                               {"left", "right", "left", "right"},
                                               {"left", "left", "left", "right"}};
  static const char *const policies[] = {"fixed:none:1:dense-hier-ring",
                                         "fixed:topk:1:path=c.a2a.d.c.a2a.d.c.ag.d.c.ag.d",
                                         "fixed:topk:1:path=r.c.ag.d.c.b.d"};
  for (size_t l = 0; l < 9; l++) {
    run r = {.policy = policies[l / 3], .steps = 2};
    memcpy(r.host, layouts[l % 3], sizeof r.host);
    outcome *out = start(&r);
    check_same(out, r.policy + strlen("fixed:"));
    for (size_t i = 0; i < N; i++) {
      float sum = 0;
      for (int rank = 0; rank < RANKS; rank++) sum += gradient(rank, 1, i);
      cr_assert_eq(out[0].update[i], sum / RANKS, "element %zu", i);
    }
    finish(out);
  }
}

/* HiTopKComm on two machines of two: the first step's update is, by hand, each machine's sum where
 * it is largest, per half of the gradient.  Counted here: what is not 0 is at most that many
 * elements, and each of them is one machine's sum or both's. */
static void sends_machines_sums(double momentum) {
  const run r = {.policy = "fixed:topk:0.01:hitopk",
                 .steps = 1,
                 .host = {"left", "left", "right", "right"},
                 .momentum = momentum};
  outcome *out = start(&r);
  size_t sent = 0;
  check_same(out, "topk:0.01:hitopk");
  for (size_t i = 0; i < N; i++) {
    const float left = gradient(0, 0, i) + gradient(1, 0, i),
                right = gradient(2, 0, i) + gradient(3, 0, i);
    const float u = out[0].update[i] * RANKS;
    cr_assert(u == 0 || u == left || u == right || u == left + right, "element %zu: %g", i,
              (double)u);
    sent += u != 0;
  }
  cr_assert_leq(sent, 2 * N / 100u);
  cr_assert_geq(sent, N / 100u);
  finish(out);
}

Test(session_hosts, hitopk_sends_machines_sums) { sends_machines_sums(0); }
/* In the first step all momentum is the gradient. */
Test(session_hosts, hitopk_sends_machines_sums_with_momentum) { sends_machines_sums(0.5); }

Test(session_hosts, hitopk_is_refused_on_one_machine) {
  const run r = {.policy = "fixed:topk:0.01:hitopk", .steps = 1};
  outcome *out = start(&r);
  for (int rank = 0; rank < RANKS; rank++) {
    cr_assert_eq(out[rank].status, WEIR_E_UNSUPPORTED, "rank %d: %s", rank, out[rank].message);
    cr_assert(strstr(out[rank].message, "needs several machines"), "%s", out[rank].message);
  }
  finish(out);
}

Test(session_hosts, native_is_refused_over_tcp) {
  const run r = {.policy = "fixed:none:1:native", .steps = 1};
  outcome *out = start(&r);
  for (int rank = 0; rank < RANKS; rank++) {
    cr_assert_eq(out[rank].status, WEIR_E_UNSUPPORTED, "rank %d: %s", rank, out[rank].message);
    cr_assert(strstr(out[rank].message, "needs transport shm, mpi, shm+mpi, nccl or shm+nccl"),
              "%s", out[rank].message);
  }
  finish(out);
}

/* The first line of the run's journal; all ranks end well, under the same plan. */
static void first_decision(run r, char line[65536]) {
  char path[] = "hosts-XXXXXX";
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  (void)close(fd);
  r.journal = path;
  outcome *out = start(&r);
  for (int rank = 0; rank < RANKS; rank++) {
    cr_assert_eq(out[rank].status, WEIR_OK, "rank %d: %s", rank, out[rank].message);
    cr_assert_str_eq(out[rank].plan, out[0].plan);
  }
  finish(out);
  FILE *file = fopen(path, "r");
  cr_assert(file != NULL && fgets(line, 65536, file) != NULL, "no decision");
  (void)fclose(file);
  (void)unlink(path);
}

/* The adaptive policy is told of the machines: hierarchical arms are among its candidates. */
static void considers_machines(double momentum) {
  char line[65536];
  first_decision((run){.policy = "weir",
                       .steps = 400,
                       .host = {"left", "left", "right", "right"},
                       .momentum = momentum},
                 line);
  cr_assert(strstr(line, "\"hosts\":2") != NULL, "%.600s", line);
  cr_assert(strstr(line, "\"dense-hier-ring\"") != NULL && strstr(line, "\"hier-sra\"") != NULL);
}

Test(session_hosts, the_adaptive_policy_considers_machines) { considers_machines(0); }
Test(session_hosts, the_adaptive_policy_considers_machines_with_momentum) {
  considers_machines(0.5);
}

/* Of a plan that begins so. */
static double foretold_ms(const char *line, const char *plan) {
  double ms = -1;
  char start[96];
  (void)snprintf(start, sizeof start, "{\"plan\":\"%s", plan);
  const char *at = strstr(line, start);
  at = at != NULL ? strstr(at, "\"t_comm_ms\":") : NULL;
  if (at != NULL) (void)sscanf(at, "\"t_comm_ms\":%lf", &ms);
  return ms;
}

/* On three ranks and one hier-sra is run among all, as sra is: it is foretold to take as long. */
Test(session_hosts, the_adaptive_policy_is_told_of_uneven_machines) {
  char line[65536];
  first_decision((run){.policy = "weir",
                       .steps = 20,
                       .host = {"left", "left", "left", "right"},
                       .divided = true},
                 line);
  cr_assert(strstr(line, "\"hosts\":2,\"largest\":3") != NULL, "%.600s", line);
  const double all = foretold_ms(line, "companded:0.15625:sra");
  cr_assert_gt(all, 0);
  cr_assert_eq(foretold_ms(line, "companded:0.15625:hier-sra"), all);
}

/* Where a latency is much, two machines' sums go between them once, by a path of the decision tree
 * that no other collective takes. */
static void takes_paths(bool overlap) {
  const run r = {.policy = "weir",
                 .steps = 80,
                 .host = {"left", "left", "right", "right"},
                 .divided = true,
                 .overlap = overlap};
  outcome *out = start(&r);
  for (int rank = 0; rank < RANKS; rank++) {
    cr_assert_eq(out[rank].status, WEIR_OK, "rank %d: %s", rank, out[rank].message);
    cr_assert(strncmp(out[rank].path, "qsgd:0.09375:path=rs.c.ag.", 26) == 0, "rank %d: '%s'", rank,
              out[rank].path);
    cr_assert_str_eq(out[rank].path, out[0].path);
    cr_assert_eq(memcmp(out[rank].update, out[0].update, sizeof out[0].update), 0);
  }
  finish(out);
}

Test(session_hosts, the_adaptive_policy_takes_paths) { takes_paths(false); }
Test(session_hosts, the_adaptive_policy_takes_paths_in_buckets) { takes_paths(true); }
