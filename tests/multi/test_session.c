/* The public API: what it refuses, and what it does, over threads of one process. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "session/state.h"
#include "session_ranks.h"

#define RANKS 4
#define N 1000

Test(session, options_out_of_range_are_refused) {
  const weir_options good = session_options(1, 2, "options", "fixed:none:1:dense-ring");
  weir_options bad[9];
  for (size_t i = 0; i < 9; i++) bad[i] = good;
  bad[0].world_size = 0;
  bad[1].rank = 2;
  bad[2].rank = -1;
  bad[3].transport = "pigeon";
  bad[4].rendezvous = NULL;
  bad[5].timeout_s = NAN;
  bad[6].timeout_s = 0;
  bad[7].policy = "fixed:topk:2:ag";
  bad[8].policy = NULL;
  for (size_t i = 0; i < 9; i++) {
    weir_session *session = (weir_session *)&good;
    const weir_status status = weir_session_create(&session, &bad[i]);
    cr_assert(status == WEIR_E_INVALID || status == WEIR_E_PARSE, "%zu: %d", i, (int)status);
    cr_assert_null(session);
    cr_assert_gt(strlen(weir_last_error()), 0);
  }
  cr_assert_eq(weir_session_create(NULL, &good), WEIR_E_INVALID);
  weir_session *session;
  cr_assert_eq(weir_session_create(&session, NULL), WEIR_E_INVALID);
  weir_session_free(NULL);
}

/* By its key, whatever binding it comes from: what is out of its range is refused, and named; what
 * lies at its edge is taken. */
Test(session, every_option_has_its_range) {
  static const struct {
    const char *key, *value;
    bool good;
  } rows[] = {{"world_size", "0", false},
              {"rank", "2", false},
              {"timeout_s", "0", false},
              {"timeout_s", "86401", false},
              {"timeout_s", "86400", true},
              {"momentum_correction", "-0.1", false},
              {"momentum_correction", "1", false},
              {"momentum_correction", "0.99", true},
              {"tcp_streams", "0", false},
              {"tcp_streams", "9", false},
              {"tcp_streams", "8", true},
              {"codec_threads", "0", false},
              {"codec_threads", "65", false},
              {"codec_threads", "64", true},
              {"trial_budget", "-0.01", false},
              {"trial_budget", "1.01", false},
              {"trial_budget", "0", true},
              {"trial_budget", "1", true},
              {"nonfinite", "one", false},
              {"nonfinite", "keep", true},
              {"risk", "wild", false},
              {"update_rule", "adam", false},
              {"update_rule", "sgd", true},
              {"full_precision", "a,,b", false},
              {"max_ranks", "1", false},
              {"error_feedback", "false", false},
              {"warmup_steps", "5", true},
              {"listener", "0", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    weir_options options = session_options(1, 2, "ranges", "fixed:topk:0.1:ag");
    weir_session *session = NULL;
    cr_assert_eq(weir_options_set(&options, rows[i].key, rows[i].value), WEIR_OK, "%s",
                 weir_last_error());
    cr_expect_eq(weir_session_create(&session, &options), rows[i].good ? WEIR_OK : WEIR_E_INVALID,
                 "%s = %s: %s", rows[i].key, rows[i].value, weir_last_error());
    if (!rows[i].good)
      cr_expect(strstr(weir_last_error(), rows[i].key), "%s: %s", rows[i].key, weir_last_error());
    weir_session_free(session);
  }
}

static size_t no_bytes(void *user) {
  (void)user;
  return 0;
}

Test(session, calls_out_of_order_are_refused_and_change_nothing) {
  weir_options options = session_options(0, 1, NULL, "fixed:topk:0.5:ag");
  weir_session *session;
  float g[4] = {4, -3, 2, 1}, more = 1;
  uint32_t a, b;
  uint64_t digest;
  weir_plan plan;
  const char *carrier;
  weir_step_info info = {.struct_size = sizeof info};
  const weir_state_hooks half = {.struct_size = sizeof half, .bytes = no_bytes};
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_current_plan(session, &plan), WEIR_E_STATE);
  cr_assert_eq(weir_current_transport(session, &carrier), WEIR_E_STATE);
  cr_assert_eq(weir_residual_digest(session, &digest), WEIR_E_STATE);
  cr_assert_eq(weir_register_tensor(session, NULL, 3, &a), WEIR_E_INVALID);
  cr_assert_eq(weir_register_tensor(session, "too long", SIZE_MAX, &a), WEIR_E_INVALID);
  cr_assert_eq(weir_register_matrix(session, "too long", SIZE_MAX / 2, 3, &a), WEIR_E_INVALID);
  cr_assert_eq(weir_register_matrix(session, NULL, 3, 3, &a), WEIR_E_INVALID);
  cr_assert_eq(weir_register_state(session, "gone", NULL, 8), WEIR_E_INVALID);
  cr_assert_eq(weir_register_hooks(session, &half), WEIR_E_INVALID);
  cr_assert_eq(weir_register_hooks(session, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_register_tensor(session, "a", 4, &a), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "nothing", 0, &b), WEIR_OK);
  cr_assert(a == 0 && b == 1);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_session_start(session), WEIR_E_STATE);
  cr_assert_eq(weir_register_tensor(session, "late", 1, &a), WEIR_E_STATE);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_E_STATE);
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_submit(session, 2, &more), WEIR_E_INVALID);
  cr_assert_eq(weir_submit(session, 0, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_submit(session, 0, (float *)(void *)((char *)g + 2)), WEIR_E_INVALID);
  cr_assert_eq(weir_submit(session, 1, NULL), WEIR_OK);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_E_STATE); /* tensor 0 is missing */
  cr_assert_not_null(strstr(weir_last_error(), "tensor 0"));
  cr_assert_eq(weir_submit(session, 0, g), WEIR_OK);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_E_STATE);
  cr_assert_eq(weir_step_end(session, &info), WEIR_OK, "%s", weir_last_error());
  /* The two largest of four go out; the others stay in the residual. */
  cr_assert(g[0] == 4 && g[1] == -3 && g[2] == 0 && g[3] == 0);
  cr_assert_eq(weir_current_plan(session, &plan), WEIR_OK);
  cr_assert_eq(plan.codec, WEIR_CODEC_TOPK);
  cr_assert_eq(weir_current_transport(session, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_current_transport(session, &carrier), WEIR_OK);
  cr_assert_str_eq(carrier, "inproc");
  cr_assert_eq(weir_residual_digest(session, &digest), WEIR_OK);
  cr_assert_eq(weir_allgather_bytes(session, g, 4097, g), WEIR_E_INVALID);
  cr_assert_eq(weir_allgather_bytes(session, NULL, 4, g), WEIR_E_INVALID);
  weir_session_free(session);
}

/* Registering takes no memory for elements: both sides of the limit. */
Test(session, takes_as_many_elements_as_32_bits_count) {
  const weir_options options = session_options(0, 1, "limit", "weir");
  weir_session *session;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "one too many", (size_t)UINT32_MAX + 1, NULL),
               WEIR_E_INVALID);
  cr_assert_eq(weir_register_tensor(session, "half", (size_t)1 << 31, NULL), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "too much", (size_t)1 << 31, NULL), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "4294967295"));
  cr_assert_eq(weir_register_tensor(session, "the rest", ((size_t)1 << 31) - 1, NULL), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "one more", 1, NULL), WEIR_E_INVALID);
  weir_session_free(session);
}

Test(session, freed_before_its_start) {
  weir_options options = session_options(0, 3, "never joined", "weir");
  weir_session *session;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "w", 10, NULL), WEIR_OK);
  weir_session_free(session);
}

/* --- groups of threads ---------------------------------------------------------------------- */

typedef struct worker {
  int rank;
  const char *group, *policy;
  size_t numel;
  size_t rows; /* 0: a vector */
  float peak;  /* not 0: the gradient is 0 but for this at the rank's number */
  const char *name, *risk;
  weir_network_fn network;
  weir_virtual_exchange_fn exchange;
  int steps;
  weir_status status; /* out */
  char message[512];
  weir_step_info info[8];
  float g[N];
  unsigned char gathered[RANKS * 3];
} worker;

Test(session, a_loss_is_told_between_begin_and_end_of_a_step) {
  float g[10] = {0};
  weir_session *session;
  weir_options options = session_options(0, 1, "alone with its loss", "weir");
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_report_loss(session, 1), WEIR_E_STATE);
  cr_assert_eq(weir_register_tensor(session, "w", 10, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_report_loss(session, 1), WEIR_E_STATE);
  cr_assert_not_null(strstr(weir_last_error(), "weir_step_begin is due"));
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_report_loss(session, 1), WEIR_OK);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_OK);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_OK);
  cr_assert_eq(weir_report_loss(session, 1), WEIR_E_STATE);
  cr_assert_eq(weir_report_loss(NULL, 1), WEIR_E_INVALID);
  cr_assert_eq(weir_set_room(session, 0), WEIR_OK);
  cr_assert_eq(weir_set_room(NULL, 0), WEIR_E_INVALID);
  cr_assert_eq(weir_doubt_update_rule(NULL, "adaptive"), WEIR_E_INVALID);
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_OK);
  cr_assert_eq(weir_doubt_update_rule(session, "adaptive"), WEIR_E_STATE);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_OK);
  cr_assert_eq(weir_doubt_update_rule(session, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_doubt_update_rule(session, "sgd"), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "\"sgd\"; expected adaptive or unknown"));
  cr_assert_eq(weir_doubt_update_rule(session, "adaptive"), WEIR_OK);
  cr_assert_eq(weir_doubt_update_rule(session, "unknown"), WEIR_OK);
  cr_assert_eq(weir_doubt_update_rule(session, "adaptive"), WEIR_OK);
  weir_session_free(session);
}

static void run_worker(worker *w, weir_session *session) {
  uint32_t tensor;
  w->status = w->rows > 0
                  ? weir_register_matrix(session, w->name, w->rows, w->numel / w->rows, &tensor)
                  : weir_register_tensor(session, w->name, w->numel, &tensor);
  if (w->status == WEIR_OK) w->status = weir_session_start(session);
  for (int s = 0; s < w->steps && w->status == WEIR_OK; s++) {
    w->status = weir_step_begin(session, NULL);
    for (size_t i = 0; i < w->numel; i++) w->g[i] = (float)(i % 10) + (float)w->rank;
    if (w->peak != 0)
      for (size_t i = 0; i < w->numel; i++) w->g[i] = i == (size_t)w->rank ? w->peak : 0;
    if (w->status == WEIR_OK) w->status = weir_submit(session, tensor, w->g);
    w->info[s].struct_size = sizeof w->info[s];
    if (w->status == WEIR_OK) w->status = weir_step_end(session, &w->info[s]);
  }
  if (w->status != WEIR_OK) return;
  const unsigned char mine[3] = {(unsigned char)w->rank, 7, (unsigned char)(100 + w->rank)};
  w->status = weir_allgather_bytes(session, mine, sizeof mine, w->gathered);
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  options.virtual_network = w->network;
  options.virtual_exchange = w->exchange;
  if (w->risk != NULL) options.risk = w->risk;
  options.update_rule = "adaptive"; /* of which no two risks begin alike */
  weir_session *session;
  w->status = weir_session_create(&session, &options);
  if (w->status == WEIR_OK) run_worker(w, session);
  snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

static void run_group(worker *workers, const char *group, const char *policy,
                      weir_network_fn network, int steps) {
  char name[64];
  snprintf(name, sizeof name, "%s %d", group, (int)getpid());
  for (int r = 0; r < RANKS; r++) {
    workers[r].rank = r;
    workers[r].group = name;
    workers[r].policy = policy;
    workers[r].network = network;
    workers[r].steps = steps;
    if (workers[r].name == NULL) workers[r].name = "w";
    if (workers[r].numel == 0) workers[r].numel = N;
  }
  session_threads(workers, sizeof *workers, RANKS, work);
}

typedef struct gatherer {
  const char *group;
  int rank;
  weir_status status;
  char message[256];
} gatherer;

/* Rank 1 has room for as much as rank 0 gathers, and gathers less. */
static weir_status gather_less(weir_session *session, const unsigned char *mine) {
  static const char name[] = "weir all-gather outside of steps";
  unsigned char all[16];
  size_t bytes[2] = {0, 7};
  memcpy(all + 8, mine, 7);
  weir_comm_step(session->comm, weir_hash(WEIR_HASH_INIT, name, sizeof name), session->gathers++);
  return weir_allgather(session->comm, all, 8, bytes, NULL);
}

static void *gather(void *argument) {
  gatherer *g = argument;
  const unsigned char mine[8] = {1};
  unsigned char all[16];
  weir_options options = session_options(g->rank, 2, g->group, "fixed:none:1:dense-ring");
  weir_session *session;
  g->status = session_open(&session, &options, 4);
  if (g->status == WEIR_OK)
    g->status =
        g->rank == 0 ? weir_allgather_bytes(session, mine, 8, all) : gather_less(session, mine);
  snprintf(g->message, sizeof g->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

/* Who gathers more would read a byte that nobody has sent. */
Test(session, what_gathers_other_lengths_is_refused) {
  char name[64];
  snprintf(name, sizeof name, "lengths %d", (int)getpid());
  gatherer g[2] = {{.group = name, .rank = 0}, {.group = name, .rank = 1}};
  session_threads(g, sizeof *g, 2, gather);
  cr_assert_eq(g[1].status, WEIR_OK, "%s", g[1].message);
  cr_assert_eq(g[0].status, WEIR_E_MISMATCH, "%s", g[0].message);
  cr_assert_str_eq(g[0].message, "rank 0 gathers 8 bytes, rank 1 gathers 7");
}

Test(session, averages_over_ranks) {
  static worker workers[RANKS];
  run_group(workers, "average", "fixed:none:1:dense-tree", NULL, 3);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(workers[r].status, WEIR_OK, "%s", workers[r].message);
    for (size_t i = 0; i < N; i++) cr_assert_eq(workers[r].g[i], (float)(i % 10) + 1.5f);
    for (int s = 0; s < RANKS; s++) {
      cr_assert_eq(workers[r].gathered[3 * s], s);
      cr_assert_eq(workers[r].gathered[3 * s + 1], 7);
      cr_assert_eq(workers[r].gathered[3 * s + 2], 100 + s);
    }
    cr_assert_eq(workers[r].info[2].step, 2);
    cr_assert_eq(workers[r].info[2].gain, 1);
    cr_assert_gt(workers[r].info[2].wire_bytes, 0);
  }
}

/* Ranks 1 to 3 have the same variance, greater than rank 0's: the lowest of them says which one of
 * 1000 elements goes. */
Test(session, var_takes_the_lowest_rank_on_ties) {
  static worker workers[RANKS];
  for (int r = 0; r < RANKS; r++) workers[r].peak = r == 0 ? 4 : 8;
  run_group(workers, "ties", "fixed:var:0.001:art-tree", NULL, 1);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(workers[r].status, WEIR_OK, "%s", workers[r].message);
    for (size_t i = 0; i < N; i++) cr_assert_eq(workers[r].g[i], i == 1 ? 2 : 0, "element %zu", i);
  }
}

Test(session, other_tensors_are_told_by_rank) {
  static const char *const names[] = {"sizes", "names", "shapes"};
  for (int kind = 0; kind < 3; kind++) {
    static worker workers[RANKS];
    memset(workers, 0, sizeof workers);
    if (kind == 0) workers[2].numel = N - 1;
    if (kind == 1) workers[2].name = "v";
    if (kind == 2) workers[2].rows = 10;
    run_group(workers, names[kind], "fixed:none:1:dense-ring", NULL, 1);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(workers[r].status, WEIR_E_MISMATCH, "%d: %s", r, workers[r].message);
      cr_assert_not_null(strstr(workers[r].message, "rank 2"), "%s", workers[r].message);
    }
  }
}

/* Risk bold begins with another plan: it is told before a gradient is averaged. */
Test(session, another_beginning_is_told_by_rank) {
  static worker workers[RANKS];
  workers[2].risk = "bold";
  run_group(workers, "risks", "weir", NULL, 1);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(workers[r].status, WEIR_E_MISMATCH, "%d: %s", r, workers[r].message);
    cr_assert_not_null(strstr(workers[r].message, "rank 2 starts under another plan"), "%s",
                       workers[r].message);
  }
}

/* 2 ms and 1 MB/s for three steps, then 20 ms and 10 MB/s. */
static void virtual_network(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  (void)user;
  *latency_s = step < 3 ? 2e-3 : 20e-3;
  *bandwidth = step < 3 ? 1e6 : 10e6;
}

/* Four ranks, 1000 elements, 100 kept.  Messages: 16 bytes of header, 4 bytes an index or value. */
Test(session, virtual_time_is_the_cost_row) {
  static const struct {
    const char *policy;
    double alphas, bytes;
  } rows[] = {
      {"fixed:none:1:dense-ring", 6, 6.0 / 4 * 4000},
      {"fixed:none:1:dense-tree", 4, 4 * 4000},
      {"fixed:powersgd:2:dense-ring", 6, 6.0 / 4 * 4000}, /* a vector goes whole, in one sum */
      {"fixed:bf16:1:dense-ring", 6, 6.0 / 4 * 2000},
      {"fixed:topk:0.1:ag-bruck", 2, 3 * (16 + 800)},
      {"fixed:topk:0.1:ag-direct", 1, 3 * (16 + 800)},
      {"fixed:lwtopk:0.1:ag-bruck", 2, 3 * (16 + 800)},
      {"fixed:star:0.1:art-ring", 8, 6.0 / 4 * 400 + 2 * (16 + 400)},
      {"fixed:star:0.1:art-ring+direct", 7, 6.0 / 4 * 400 + 3 * (16 + 400)},
      {"fixed:star:0.1:art-tree", 6, 4 * 400 + 2 * (16 + 400)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    static worker workers[RANKS];
    memset(workers, 0, sizeof workers);
    run_group(workers, "virtual", rows[i].policy, virtual_network, 6);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(workers[r].status, WEIR_OK, "%s", workers[r].message);
      for (int s = 0; s < 6; s++) {
        const double expected = s < 3 ? rows[i].alphas * 2e-3 + rows[i].bytes / 1e6
                                      : rows[i].alphas * 20e-3 + rows[i].bytes / 10e6;
        cr_assert_float_eq(workers[r].info[s].comm_s, expected, 1e-9, "%s, step %d: %g, not %g",
                           rows[i].policy, s, workers[r].info[s].comm_s, expected);
        cr_assert_eq(workers[r].info[s].latency_s, workers[0].info[s].latency_s);
        cr_assert_eq(workers[r].info[s].bandwidth_bytes_s, workers[0].info[s].bandwidth_bytes_s);
      }
      /* Measured through noise of 2 %, of at most three times that. */
      cr_assert_float_eq(workers[r].info[2].latency_s, 2e-3, 0.07 * 2e-3);
      cr_assert_float_eq(workers[r].info[2].bandwidth_bytes_s, 1e6, 0.07 * 1e6);
    }
  }
}

/* A link of its own: 5 ms, 2 MB/s.  The exchange begins after computing and compressing. */
static double exchange_elsewhere(void *user, double begins_s, double latencies, double bytes) {
  (void)user;
  return begins_s > 0 && begins_s < 60 ? latencies * 5e-3 + bytes / 2e6 : NAN;
}

/* What the caller says of an exchange counts, and the network is still measured as it is told. */
Test(session, virtual_time_may_change_within_a_step) {
  static worker workers[RANKS];
  for (int r = 0; r < RANKS; r++) workers[r].exchange = exchange_elsewhere;
  run_group(workers, "elsewhere", "fixed:bf16:1:dense-ring", virtual_network, 3);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(workers[r].status, WEIR_OK, "%s", workers[r].message);
    for (int s = 0; s < 3; s++)
      cr_assert_float_eq(workers[r].info[s].comm_s, 6 * 5e-3 + 6.0 / 4 * 2000 / 2e6, 1e-9);
    cr_assert_float_eq(workers[r].info[2].latency_s, 2e-3, 0.07 * 2e-3);
    cr_assert_float_eq(workers[r].info[2].bandwidth_bytes_s, 1e6, 0.07 * 1e6);
  }
}
