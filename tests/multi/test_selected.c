/* Which elements a step sends, of gradients long enough that what it will look for is listed while
 * error feedback is made: against sorting them.  All numbers are small integers, so that sums are
 * exact in whatever order. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "group.h"
#include "reference.h"

#define TENSORS 3
enum { RANKS = 3, STEPS = 7, BAD_STEP = 4, N = 60000 };
static const size_t offset[TENSORS + 1] = {0, 13001, 40000, N};

typedef struct course {
  const char *plan;
  bool buckets, star;
  float residual[RANKS][N]; /* before the step; each rank writes its own */
  float gradient[RANKS][N]; /* of the step, likewise */
} course;

static float drawn(int rank, int step, size_t i) {
  const uint64_t words[3] = {(uint64_t)rank, (uint64_t)step, i};
  return (float)(int)(weir_hash(WEIR_HASH_INIT, words, sizeof words) % 4001) - 2000.0f;
}

static const float *sorted;
static pthread_mutex_t sorting = PTHREAD_MUTEX_INITIALIZER;
static int larger_first(const void *a, const void *b) {
  const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  const float x = fabsf(sorted[i]), y = fabsf(sorted[j]);
  return x != y ? (x < y ? 1 : -1) : (i > j) - (i < j);
}

static void mark_top(const float *e, size_t first, size_t end, bool *kept) {
  static uint32_t order[N];
  const size_t count = end - first, k = reference_kept(count, 0.01);
  pthread_mutex_lock(&sorting);
  sorted = e;
  for (size_t i = 0; i < count; i++) order[i] = (uint32_t)(first + i);
  qsort(order, count, sizeof *order, larger_first);
  for (size_t i = 0; i < k; i++) kept[order[i]] = true;
  pthread_mutex_unlock(&sorting);
}

/* What rank sends in this step.  A step that was dropped is no rank's turn. */
static void reference_sent(const course *c, int rank, int step, float *sent) {
  static _Thread_local float e[N], of_root[N];
  static _Thread_local bool kept[N];
  const int root = c->star ? (step - (step > BAD_STEP)) % RANKS : rank;
  memset(kept, 0, sizeof kept);
  for (size_t i = 0; i < N; i++) {
    e[i] = c->residual[rank][i] + c->gradient[rank][i];
    of_root[i] = c->residual[root][i] + c->gradient[root][i];
  }
  mark_top(of_root, 0, c->buckets ? offset[2] : N, kept);
  if (c->buckets) mark_top(of_root, offset[2], N, kept);
  for (size_t i = 0; i < N; i++) sent[i] = kept[i] ? e[i] : 0;
}

static weir_status create(member *m, const course *c, weir_engine **engine) {
  weir_plan plan;
  weir_plan_bucket table[2] = {{.end = 2, .place = WEIR_PLACE_THREAD}, {.end = TENSORS}};
  weir_status status = weir_plan_parse(c->plan, &plan);
  if (status) return status;
  if (c->buckets) {
    for (int i = 0; i < 2; i++) weir_bucket_set_plan(&table[i], &plan);
    weir_plan_of_bucket(&table[0], &plan);
    plan.buckets = 2;
    plan.layout = weir_buckets_name(table, 2);
  }
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .first_plan = plan,
                                     .first_buckets = c->buckets ? table : NULL};
  return weir_engine_create(engine, &config);
}

static weir_status run_step(weir_engine *engine, float *gradient, weir_step_info *info) {
  weir_status status = weir_engine_step_begin(engine, info);
  for (uint32_t t = 0; t < TENSORS && !status; t++)
    status = weir_engine_submit(engine, t, gradient + offset[t]);
  return status ? status : weir_engine_step_end(engine, info);
}

static void check_step(member *m, course *c, weir_engine *engine, int step, const float *gradient) {
  static _Thread_local float sum[N], sent[N], own[N];
  memset(sum, 0, sizeof sum);
  group_barrier(m); /* all have drawn */
  for (int r = 0; r < RANKS; r++) {
    reference_sent(c, r, step, sent);
    for (size_t i = 0; i < N; i++) sum[i] += sent[i];
    if (r == m->rank) memcpy(own, sent, sizeof own);
  }
  group_barrier(m); /* all have read the residuals */
  const float *residual = weir_engine_residual(engine);
  for (size_t i = 0; i < N; i++) {
    c->residual[m->rank][i] += c->gradient[m->rank][i] - own[i];
    if (gradient[i] != sum[i] * (1.0f / RANKS) || residual[i] != c->residual[m->rank][i]) {
      group_fail(m->group, "%s, rank %d, step %d, element %zu: %g and residual %g, not %g and %g",
                 c->plan, m->rank, step, i, gradient[i], residual[i], sum[i] / RANKS,
                 c->residual[m->rank][i]);
      break;
    }
  }
  group_barrier(m);
}

static void run_rank(member *m) {
  course *c = m->group->shared;
  static _Thread_local float gradient[N];
  weir_engine *engine = NULL;
  weir_status status = create(m, c, &engine);
  for (int step = 0; step < STEPS && !status; step++) {
    weir_step_info info;
    for (size_t i = 0; i < N; i++) gradient[i] = drawn(m->rank, step, i);
    memcpy(c->gradient[m->rank], gradient, sizeof gradient);
    const bool bad = step == BAD_STEP;
    if (bad && m->rank == 1) gradient[777] = NAN;
    status = run_step(engine, gradient, &info);
    if (bad) status = status == WEIR_E_NONFINITE ? WEIR_OK : WEIR_E_INTERNAL;
    if (status || group_failed(m->group)) break;
    if (!bad) {
      check_step(m, c, engine, step, gradient);
    } else if (memcmp(weir_engine_residual(engine), c->residual[m->rank], sizeof gradient) != 0) {
      group_fail(m->group, "%s, rank %d: a step that was dropped left its mark", c->plan, m->rank);
    }
    group_barrier(m);
    if (group_failed(m->group)) break;
  }
  if (status) group_fail(m->group, "%s, rank %d: %s", c->plan, m->rank, weir_last_error());
  group_barrier(m);
  weir_engine_free(engine);
}

static void run(const char *plan, bool buckets) {
  static course c;
  memset(&c, 0, sizeof c);
  c.plan = plan;
  c.buckets = buckets;
  c.star = strncmp(plan, "star", 4) == 0;
  group_well(RANKS, run_rank, &c, NULL);
}

Test(selected, gathered) { run("topk:0.01:ag:auto-fp32", false); }
Test(selected, gathered_in_groups) { run("topk:0.01:ag:auto-fp32", true); }
Test(selected, by_a_root) { run("star:0.01:art-ring:auto-fp32", false); }
Test(selected, by_a_root_in_groups) { run("star:0.01:art-tree:auto-fp32", true); }
