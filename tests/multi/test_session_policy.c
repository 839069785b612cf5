/* Sessions whose controller decides while they train: every rank runs the plan that rank 0 chose, a
 * change of the network is answered, and trials leave no trace.  Virtual time, real TCP with all
 * probes, and memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../held.h"
#include "../ports.h"
#include "base/base.h"
#include "session_ranks.h"

#define RANKS 3
#define N 5000
#define STEPS 150
#define CALLS_MAX 4000 /* trials included */

typedef struct record {
  weir_status status;
  char message[256];
  uint64_t plans[CALLS_MAX]; /* digest per call of step_end */
  bool trial[CALLS_MAX];
  uint64_t committed[CALLS_MAX];
  int calls, codecs;
  uint64_t weights; /* digest at the end */
  double latency_s, bandwidth;
} record;

typedef struct run {
  const char *policy, *transport, *risk;
  char rendezvous[64];
  weir_network_fn network;
  int steps;
  bool probes;
  record *records;
} run;

typedef struct worker {
  const run *run;
  int rank;
  weir_rng rng;
  float weights[N], g[N];
} worker;

static size_t rng_bytes(void *user) {
  (void)user;
  return sizeof(weir_rng);
}
static void rng_save(void *user, void *to) { memcpy(to, &((worker *)user)->rng, sizeof(weir_rng)); }
static void rng_load(void *user, const void *from) {
  memcpy(&((worker *)user)->rng, from, sizeof(weir_rng));
}

static weir_status open_session(worker *w, weir_session **session) {
  weir_options options = session_options(w->rank, RANKS, w->run->rendezvous, w->run->policy);
  options.transport = w->run->transport;
  options.virtual_network = w->run->network;
  options.active_probes = w->run->probes;
  if (w->run->risk != NULL) options.risk = w->run->risk;
  options.update_rule = "sgd"; /* as train() has it: few bits from the first step on */
  const weir_state_hooks hooks = {sizeof hooks, w, rng_bytes, rng_save, rng_load};
  weir_status status = weir_session_create(session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(*session, "w", N, NULL);
  if (status == WEIR_OK) status = weir_register_state(*session, "w", w->weights, sizeof w->weights);
  if (status == WEIR_OK) status = weir_register_hooks(*session, &hooks);
  return status == WEIR_OK ? weir_session_start(*session) : status;
}

/* Of variance one; drawing normal ones would take most of the test's time. */
static float drawn(weir_rng *rng) { return (float)(2 * weir_rng_uniform(rng) - 1) * 1.7320508f; }

static weir_status train(worker *w, weir_session *session, record *out) {
  uint64_t last = 0;
  for (uint64_t committed = 0; committed < (uint64_t)w->run->steps;) {
    weir_step_info info = {.struct_size = sizeof info};
    if (out->calls == CALLS_MAX) return weir_fail(WEIR_E_INTERNAL, "trials without end");
    weir_status status = weir_step_begin(session, NULL);
    for (size_t i = 0; i < N; i++)
      w->g[i] = w->weights[i] + drawn(&w->rng) * (i % 50 == 0 ? 3.0f : 0.1f);
    if (status == WEIR_OK) status = weir_submit(session, 0, w->g);
    if (status == WEIR_OK) status = weir_step_end(session, &info);
    if (status != WEIR_OK) return status;
    for (size_t i = 0; i < N; i++) w->weights[i] -= 0.1f * w->g[i];
    out->plans[out->calls] = weir_plan_digest(&info.plan);
    out->trial[out->calls] = info.trial;
    out->committed[out->calls] = info.step;
    out->codecs += out->calls > 0 && out->plans[out->calls] != last && !info.trial;
    last = out->plans[out->calls++];
    out->latency_s = info.latency_s;
    out->bandwidth = info.bandwidth_bytes_s;
    if (!info.trial) committed++;
  }
  return WEIR_OK;
}

static void *work(void *argument) {
  worker *w = argument;
  record *out = &w->run->records[w->rank];
  weir_session *session = NULL;
  w->rng = weir_rng_of(900 + (uint64_t)w->rank);
  out->status = open_session(w, &session);
  if (out->status == WEIR_OK) out->status = train(w, session, out);
  snprintf(out->message, sizeof out->message, "%s", weir_last_error());
  out->weights = weir_hash(WEIR_HASH_INIT, w->weights, sizeof w->weights);
  weir_session_free(session);
  return NULL;
}

static record *shared_records(void) {
  void *memory =
      mmap(NULL, RANKS * sizeof(record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(memory, MAP_FAILED);
  return memory;
}

static void check(const record *records, const char *policy) {
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(records[r].status, WEIR_OK, "%s, rank %d: %s", policy, r, records[r].message);
    cr_assert_eq(records[r].calls, records[0].calls);
    for (int s = 0; s < records[0].calls; s++) {
      cr_assert_eq(records[r].plans[s], records[0].plans[s], "%s, call %d", policy, s);
      cr_assert_eq(records[r].trial[s], records[0].trial[s]);
      cr_assert_eq(records[r].committed[s], records[0].committed[s]);
    }
    cr_assert_eq(records[r].weights, records[0].weights, "%s: weights differ", policy);
  }
}

/* 20 kB dense: 2 ms and 100 MB/s first, then 1 ms and 1 MB/s. */
static void network(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  (void)user;
  *latency_s = step < STEPS / 2 ? 2e-3 : 1e-3;
  *bandwidth = step < STEPS / 2 ? 100e6 : 1e6;
}

/* The same without any latency. */
static void network_at_once(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  network(user, step, latency_s, bandwidth);
  *latency_s = 0;
}

static void run_virtual_over(const char *policy, const char *risk, weir_network_fn over,
                             double latency_s) {
  FREED worker *workers = calloc(RANKS, sizeof *workers);
  run r = {.policy = policy, .transport = "inproc", .risk = risk, .network = over, .steps = STEPS};
  r.records = shared_records();
  snprintf(r.rendezvous, sizeof r.rendezvous, "policy %s %d", policy, (int)getpid());
  for (int i = 0; i < RANKS; i++) {
    workers[i].run = &r;
    workers[i].rank = i;
  }
  session_threads(workers, sizeof *workers, RANKS, work);
  check(r.records, policy);
  cr_assert_geq(r.records[0].codecs, 1, "%s never switched", policy);
  cr_assert_float_eq(r.records[0].bandwidth, 1e6, 0.1e6, "%s: %g", policy, r.records[0].bandwidth);
  cr_assert_float_eq(r.records[0].latency_s, latency_s, 0.1e-3, "%s: %g", policy,
                     r.records[0].latency_s);
  munmap(r.records, RANKS * sizeof(record));
}
static void run_virtual(const char *policy) { run_virtual_over(policy, NULL, network, 1e-3); }

Test(session_policy, weir_in_virtual_time) { run_virtual("weir"); }
/* At risk bold, as what it begins with else may be the best throughout. */
Test(session_policy, weir_without_latency) { run_virtual_over("weir", "bold", network_at_once, 0); }
Test(session_policy, paper_in_virtual_time) { run_virtual("paper"); }
Test(session_policy, paper_of_two_in_virtual_time) { run_virtual("paper:lwtopk+star+var"); }
Test(session_policy, bits_in_virtual_time) { run_virtual("bits:knapsack:2:20"); }
/* The algorithms that they leave open. */
Test(session_policy, open_fixed_in_virtual_time) { run_virtual("fixed:none:1:dense"); }
Test(session_policy, open_groups_in_virtual_time) { run_virtual("groups:layers:none:1:dense"); }

static void run_tcp(const char *policy) {
  run r = {.policy = policy, .transport = "tcp", .steps = 100, .probes = true};
  r.records = shared_records();
  snprintf(r.rendezvous, sizeof r.rendezvous, "127.0.0.1:%d", free_port());
  pid_t pids[RANKS];
  fflush(NULL);
  for (int i = 0; i < RANKS; i++) {
    pids[i] = fork();
    cr_assert_geq(pids[i], 0);
    if (pids[i] == 0) {
      (void)alarm(600);
      FREED worker *w = calloc(1, sizeof *w);
      w->run = &r;
      w->rank = i;
      (void)work(w);
      _exit(0);
    }
  }
  for (int i = 0; i < RANKS; i++) waitpid(pids[i], NULL, 0);
  check(r.records, policy);
  /* Something was measured, and all ranks were told the same. */
  cr_assert_gt(r.records[0].latency_s, 0);
  cr_assert_gt(r.records[0].bandwidth, 0);
  for (int i = 1; i < RANKS; i++) cr_assert_eq(r.records[i].bandwidth, r.records[0].bandwidth);
  munmap(r.records, RANKS * sizeof(record));
}

Test(session_policy, weir_over_tcp) { run_tcp("weir"); }
Test(session_policy, paper_over_tcp) { run_tcp("paper"); }
Test(session_policy, bits_over_tcp) { run_tcp("bits:kmeans:2:10"); }
Test(session_policy, open_fixed_over_tcp) { run_tcp("fixed:none:1:dense"); }

#define PAIR 2

typedef struct sharer {
  const char *where;
  int rank;
  weir_status status;
  char message[256];
  double rate[20], latency_s[20]; /* as known in each step */
} sharer;

static weir_status share(sharer *s, weir_session *session, float *g, size_t n) {
  for (int step = 0; step < 20; step++) {
    weir_step_info info = {.struct_size = sizeof info};
    for (size_t i = 0; i < n; i++) g[i] = (float)i;
    if (s->rank == 0) (void)usleep(2000); /* the other waits */
    weir_status status = weir_step_begin(session, NULL);
    if (status == WEIR_OK) status = weir_submit(session, 0, g);
    if (status == WEIR_OK) status = weir_step_end(session, &info);
    if (status != WEIR_OK) return status;
    s->rate[step] = info.bandwidth_bytes_s;
    s->latency_s[step] = info.latency_s;
  }
  return WEIR_OK;
}

static void *share_memory(void *argument) {
  enum { MANY = 200000 };
  sharer *s = argument;
  FREED float *g = calloc(MANY, sizeof *g);
  weir_options options = session_options(s->rank, PAIR, s->where, "weir");
  options.active_probes = true;
  options.update_rule = "sgd";
  weir_session *session = NULL;
  s->status = session_open(&session, &options, MANY);
  if (s->status == WEIR_OK) s->status = share(s, session, g, MANY);
  (void)snprintf(s->message, sizeof s->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

/* Neither what a sum of few bits encodes and decodes for nor waiting for a rank that is late is a
 * matter of memory: what was measured at the start stands.  Exchanges take 2 ms here, in which any
 * memory moves the 75 kB of few bits a hundred times. */
Test(session_policy, exchanges_do_not_make_memory_look_slow) {
  sharer s[PAIR];
  char where[64];
  (void)snprintf(where, sizeof where, "sharing memory %d", (int)getpid());
  for (int r = 0; r < PAIR; r++) s[r] = (sharer){.where = where, .rank = r};
  session_threads(s, sizeof *s, PAIR, share_memory);
  for (int r = 0; r < PAIR; r++) {
    cr_assert_eq(s[r].status, WEIR_OK, "%s", s[r].message);
    cr_assert_gt(s[r].rate[0], 75e3 / 2e-3, "%g bytes/s", s[r].rate[0]);
    for (int step = 1; step < 20; step++) {
      cr_assert_eq(s[r].rate[step], s[r].rate[0], "step %d: %g", step, s[r].rate[step]);
      cr_assert_eq(s[r].latency_s[step], s[r].latency_s[0], "step %d: %g", step,
                   s[r].latency_s[step]);
    }
  }
}
