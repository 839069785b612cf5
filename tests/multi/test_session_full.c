/* Tensors that the user keeps in full precision: their averages are exact under every policy, and
 * they make one bucket behind all others. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/inside.h>
#include <weir/weir.h>

#include "../unit/plan_files.h"
#include "base/base.h"
#include "session_ranks.h"

enum { RANKS = 3, TENSORS = 5, MOST = 6000, STEPS = 8 };

/* Full by name, by size, and by both; of the others nothing is. */
static const struct {
  const char *name;
  size_t numel;
  bool full;
} tensors[TENSORS] = {{"fc.weight", MOST, false},
                      {"fc.bias", 300, true},
                      {"head", 400, false},
                      {"BIAS", 30, true},
                      {"scale", 40, true}};
static const char filter[] = "*bias,<41";

typedef struct worker {
  int rank;
  const char *group, *policy, *filter;
  weir_status status; /* out */
  char message[512];
  weir_plan_bucket table[TENSORS];
  size_t buckets;
  double exact, off; /* the most that a full tensor's average errs, and that another's does */
  uint64_t digest;   /* of all averages */
} worker;

static float value(int rank, int step, uint32_t tensor, size_t i) {
  const uint64_t at[] = {(uint64_t)rank, (uint64_t)step, tensor, i};
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, at, sizeof at);
  return (float)((double)(hash % 2000001) / 1e6 - 1.0);
}

static void judge(worker *w, int step, uint32_t t, const float *average) {
  double most = 0;
  for (size_t i = 0; i < tensors[t].numel; i++) {
    double sum = 0;
    for (int r = 0; r < RANKS; r++) sum += (double)value(r, step, t, i);
    most = fmax(most, fabs((double)average[i] - sum / RANKS));
  }
  double *to = tensors[t].full ? &w->exact : &w->off;
  *to = fmax(*to, most);
  w->digest = weir_hash(w->digest, average, tensors[t].numel * sizeof *average);
}

static weir_status one_step(worker *w, weir_session *session, int step,
                            float gradient[TENSORS][MOST]) {
  weir_status status = weir_step_begin(session, NULL);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++) {
    for (size_t i = 0; i < tensors[t].numel; i++) gradient[t][i] = value(w->rank, step, t, i);
    status = weir_submit(session, t, gradient[t]);
  }
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++) judge(w, step, t, gradient[t]);
  return status;
}

static void *work(void *argument) {
  static float gradients[RANKS][TENSORS][MOST];
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  weir_session *session = NULL;
  options.full_precision = w->filter;
  w->digest = WEIR_HASH_INIT;
  w->status = weir_session_create(&session, &options);
  for (size_t t = 0; t < TENSORS && w->status == WEIR_OK; t++)
    w->status = weir_register_matrix(session, tensors[t].name, 10, tensors[t].numel / 10, NULL);
  if (w->status == WEIR_OK) w->status = weir_session_start(session);
  for (int step = 0; step < STEPS && w->status == WEIR_OK; step++)
    w->status = one_step(w, session, step, gradients[w->rank]);
  if (w->status == WEIR_OK)
    w->status = weir_current_buckets(session, w->table, TENSORS, &w->buckets);
  if (w->status != WEIR_OK) snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

/* Under another policy on rank 0. */
static void run_two(worker *w, const char *first, const char *policy,
                    const char *const filters[RANKS]) {
  static int turn;
  static char group[64];
  snprintf(group, sizeof group, "session full %d %d", (int)getpid(), turn++);
  for (int r = 0; r < RANKS; r++)
    w[r] = (worker){
        .rank = r, .group = group, .policy = r == 0 ? first : policy, .filter = filters[r]};
  session_threads(w, sizeof *w, RANKS, work);
  for (int r = 1; r < RANKS && w[0].status == WEIR_OK; r++)
    cr_assert_eq(w[r].digest, w[0].digest, "%s: rank %d has other averages", policy, r);
}

static void run(worker *w, const char *policy, const char *const filters[RANKS]) {
  run_two(w, policy, policy, filters);
}

/* Sums of three floats and a division: some units in the last place. */
static const double rounding = 1e-6;

static void check(const char *policy, const char *const filters[RANKS]) {
  static worker w[RANKS];
  run(w, policy, filters);
  cr_assert_eq(w[0].status, WEIR_OK, "%s: %s", policy, w[0].message);
  cr_assert_leq(w[0].exact, rounding, "%s: off by %g", policy, w[0].exact);
  if (w[0].buckets == 0) return; /* it ended in full precision altogether */
  const weir_plan_bucket *last = &w[0].table[w[0].buckets - 1];
  cr_assert_geq(w[0].buckets, 2, "%s", policy);
  cr_assert_eq(last->end, TENSORS);
  cr_assert_eq(last[-1].end, 2, "%s: the others end at %u", policy, last[-1].end);
  cr_assert(last->codec == WEIR_CODEC_NONE && last->scheme == WEIR_SCHEME_DENSE);
}

Test(session_full, averages_are_exact_under_every_policy) {
  static const char *const policies[] = {"fixed:topk:0.01:ag",
                                         "fixed:qsgd:0.0625:sra",
                                         "fixed:star:0.01:art-tree:auto-bf16",
                                         "fixed:powersgd:1:dense-ring",
                                         "fixed:bf16:1:dense-ring",
                                         "fixed:none:1:dense-ring",
                                         "weir",
                                         "paper",
                                         "bits",
                                         "bits:kmeans:2:2",
                                         "schedule:topk:0.01:ag;step=3:terngrad:0.0625:ag",
                                         "groups:layers:topk:0.01:ag",
                                         "groups:even=1:qsgd:0.0625:ag",
                                         "groups:turns=2:layers:topk:0.01:ag;even=1:bf16:1:dense"};
  for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
    check(policies[i], (const char *const[]){filter, filter, filter});
}

/* Or a filter that does nothing would pass. */
Test(session_full, without_a_filter_they_are_not) {
  static worker w[RANKS];
  run(w, "fixed:topk:0.01:ag", (const char *const[]){"", NULL, ""});
  cr_assert_eq(w[0].status, WEIR_OK, "%s", w[0].message);
  cr_assert_gt(w[0].exact, 0.1);
  cr_assert_eq(w[0].buckets, 0);
  run(w, "fixed:topk:0.01:ag", (const char *const[]){"*", "*", "*"});
  cr_assert_eq(w[0].status, WEIR_OK, "%s", w[0].message);
  cr_assert(w[0].exact <= rounding && w[0].off <= rounding);
}

/* The table of a policy may say what stays, and the ranks that do not have the file are told. */
Test(session_full, tables_keep_tensors) {
  char path[64], policy[128];
  const char *text =
      "last,plan,place\n*BIAS,full,caller\n<41,full,caller\n"
      "fc.weight,topk:0.01:ag,caller\nhead,qsgd:0.125:sra:bucket=64,caller\n";
  write_plan_file(path, text, strlen(text));
  snprintf(policy, sizeof policy, "groups:%s", path);
  check(policy, (const char *const[]){NULL, NULL, NULL});
  text = "last,plan,place\n<41,full,caller\nhead,topk:0.01:ag,caller\n";
  remove(path);
  write_plan_file(path, text, strlen(text));
  snprintf(policy, sizeof policy, "groups:%s", path);
  check(policy, (const char *const[]){"*bias", "*bias", "*bias"});
  static worker w[RANKS];
  run(w, policy, (const char *const[]){"head", "head", "head"}); /* which no bucket can end at */
  remove(path);
  cr_assert_eq(w[0].status, WEIR_E_PARSE, "%s", w[0].message);
  cr_assert(strstr(w[0].message, ":3: last 'head'") != NULL, "%s", w[0].message);
}

/* Who has no table to go by, or none that can be read, says so where the others hear of it. */
Test(session_full, a_missing_table_keeps_nobody_waiting) {
  static worker w[RANKS];
  static const char damaged[] = "last,plan,place\n<41,full,thread\nhead,topk:0.01:ag,caller\n";
  char path[64], policy[128];
  write_plan_file(path, damaged, strlen(damaged));
  snprintf(policy, sizeof policy, "groups:%s", path);
  for (int turn = 0; turn < 2; turn++) {
    const char *first = turn == 0 ? "groups:/nowhere/plan.csv" : policy;
    run_two(w, first, "groups:/nowhere/plan.csv", (const char *const[]){filter, filter, filter});
    cr_assert_eq(w[0].status, turn == 0 ? WEIR_E_IO : WEIR_E_PARSE, "%s", w[0].message);
    cr_assert(strstr(w[0].message, first + strlen("groups:")) != NULL, "%s", w[0].message);
    for (int r = 1; r < RANKS; r++) {
      cr_assert_eq(w[r].status, WEIR_E_MISMATCH, "%s", w[r].message);
      cr_assert(strstr(w[r].message, "rank 0 cannot read the table") != NULL, "%s", w[r].message);
    }
  }
  remove(path);
}

Test(session_full, ranks_that_keep_other_tensors_do_not_start) {
  static worker w[RANKS];
  run(w, "fixed:topk:0.01:ag", (const char *const[]){filter, "scale", filter});
  for (int r = 0; r < RANKS; r++) cr_assert_eq(w[r].status, WEIR_E_MISMATCH, "%s", w[r].message);
  /* The same order, but not the same number. */
  run(w, "fixed:topk:0.01:ag", (const char *const[]){"scale", "scale,none of them", "scale"});
  cr_assert_eq(w[0].status, WEIR_OK, "%s", w[0].message);
  run(w, "fixed:topk:0.01:ag", (const char *const[]){"scale", "", "scale"});
  for (int r = 0; r < RANKS; r++) cr_assert_eq(w[r].status, WEIR_E_MISMATCH, "%s", w[r].message);
}

/* Profiles tell of tensors as they were registered, not as the engine has them. */
Test(session_full, gaps_are_those_of_the_tensors) {
  weir_options options = session_options(0, 1, "gaps", "fixed:topk:0.1:ag");
  const struct timespec pause = {0, 30000000};
  float g[2][8] = {{1}, {2}};
  double forward_s = 0, gap_s[2] = {0}, alone_s = 0;
  weir_bucket_times times[2];
  size_t count = 0;
  weir_session *session = NULL;
  options.full_precision = "first";
  options.profile = true;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "first", 8, NULL), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "second", 8, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_submit(session, 0, g[0]), WEIR_OK);
  (void)nanosleep(&pause, NULL);
  cr_assert_eq(weir_submit(session, 1, g[1]), WEIR_OK);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_OK);
  cr_assert_eq(weir_last_step_times(session, &forward_s, gap_s, times, 2, &count), WEIR_OK, "%s",
               weir_last_error());
  cr_assert_eq(weir_tensor_gap(session, 1, &alone_s), WEIR_OK);
  cr_assert_geq(gap_s[1], 0.029, "%g s", gap_s[1]);
  cr_assert_eq(gap_s[1], alone_s);
  weir_session_free(session);
}

typedef struct heard {
  atomic_int lines;
  char text[200];
} heard;

static void hear(void *user, const weir_log_line *line) {
  heard *h = user;
  if (line->level != WEIR_LOG_WARN || strstr(line->text, "full_precision") == NULL) return;
  (void)snprintf(h->text, sizeof h->text, "%s", line->text);
  atomic_fetch_add(&h->lines, 1);
}

/* By one rank of all, and not of those that match. */
Test(session_full, patterns_that_match_nothing_are_warned_of) {
  static worker w[RANKS];
  static heard h;
  const char *const all = "*bias,*norm*,<1";
  const char *const filters[RANKS] = {all, all, all};
  weir_log_set(hear, &h);
  run(w, "fixed:none:1:dense-ring", filters);
  cr_assert_eq(w[0].status, WEIR_OK, "%s", w[0].message);
  cr_assert_eq(atomic_load(&h.lines), 1);
  cr_assert_str_eq(h.text, "full_precision: no tensor's name matches '*norm*'");
}
