/* What headers tell of gradients that are mostly zero, whatever the codec, in tensors, buckets and
 * beside tensors in full precision; and what of them is sent where no more is. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "group.h"

#define N 3000
#define STEPS 40
enum { TENSORS = 4 };
static const size_t offset[TENSORS + 1] = {0, 1000, 1000, 1100, N};

typedef struct sparse {
  weir_plan plan;
  size_t full; /* tensors in full precision, at the end */
  unsigned threads;
  double momentum;
  bool counts;
  int dense_at; /* from this step on, for three steps, a quarter is not zero; -1: never */
  bool dense;   /* ... or nothing is zero */
  bool exact;   /* all is sent at once: the average is known element by element */
  float g[STEPS][GROUP_MAX][N];
} sparse;

/* A hundredth is not zero, in other rows each time; the third tensor is small and dense. */
static void fill(sparse *s, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (int step = 0; step < STEPS; step++) {
    const bool burst = s->dense_at >= 0 && step >= s->dense_at && step < s->dense_at + 3;
    for (int r = 0; r < GROUP_MAX; r++)
      for (size_t i = 0; i < N; i++) {
        const bool zero =
            (i < 1000 || i >= 1100) && weir_rng_below(&rng, burst ? (s->dense ? 1 : 4) : 100) != 0;
        s->g[step][r][i] =
            zero ? (i % 2 ? 0.0f : -0.0f)
                 : (float)weir_rng_normal(&rng) * (i >= 1000 && i < 1100 ? 1e-3f : 1.0f);
      }
  }
}

/* How many begin after a zero, or a tensor. */
static size_t runs_of(const float *g, size_t from, size_t to) {
  size_t count = 0;
  for (size_t t = 0, i = from; i < to; i++) {
    while (offset[t + 1] <= i) t++;
    count += g[i] != 0 && (i == offset[t] || g[i - 1] == 0);
  }
  return count;
}

static size_t nonzero_of(const float *g, size_t from, size_t to) {
  size_t count = 0;
  for (size_t i = from; i < to; i++) count += g[i] != 0;
  return count;
}

typedef struct witness {
  member *m;
  int step;
  bool rests; /* more than half was not zero when it was counted last */
} witness;

static void read_headers(void *user, const weir_header *headers, int ranks,
                         const weir_step_record *record) {
  witness *w = user;
  const sparse *s = w->m->group->shared;
  const size_t planned = offset[TENSORS - s->full];
  const bool counted = s->counts && s->momentum == 0 && (!w->rests || w->step % 16 == 0);
  double most = 0;
  (void)record;
  for (int r = 0; r < ranks; r++) {
    const double share = (double)nonzero_of(s->g[w->step][r], 0, planned) / (double)planned;
    const double runs = (double)runs_of(s->g[w->step][r], 0, planned) / (double)planned;
    const double told = (double)headers[r].nonzero, in_runs = (double)headers[r].runs;
    if (counted ? fabs(told - share) > 1e-6 || fabs(in_runs - runs) > 1e-6
                : told != 0 || in_runs != 0)
      group_fail(w->m->group, "step %d: rank %d tells of %g, not of %g", w->step, r, told, share);
    most = fmax(most, share);
  }
  if (counted) w->rests = most > 0.5;
}

static void check_average(member *m, int step, const float *average) {
  const sparse *s = m->group->shared;
  for (size_t i = 0; i < N; i++) {
    double sum = 0, all = 0;
    for (int r = 0; r < m->size; r++) {
      sum += (double)s->g[step][r][i];
      all += fabs((double)s->g[step][r][i]);
    }
    if (fabs((double)average[i] - sum / m->size) > 1e-6 * all)
      group_fail(m->group, "step %d, element %zu: %g, not %g", step, i, (double)average[i],
                 sum / m->size);
  }
}

static void train(member *m) {
  const sparse *s = m->group->shared;
  witness w = {.m = m};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .full = s->full,
                                     .first_plan = s->plan,
                                     .momentum = s->momentum,
                                     .codec_threads = s->threads,
                                     .counts = s->counts,
                                     .hooks = {.user = &w, .observe = read_headers}};
  weir_engine *engine;
  double given[N] = {0}, got[N] = {0};
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  for (w.step = 0; w.step < STEPS; w.step++) {
    float g[N];
    memcpy(g, s->g[w.step][m->rank], sizeof g);
    weir_status status = weir_engine_step_begin(engine, NULL);
    for (uint32_t t = TENSORS; t > 0 && status == WEIR_OK; t--)
      status = weir_engine_submit(engine, t - 1, g + offset[t - 1]);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status != WEIR_OK) group_fail(m->group, "step %d: %s", w.step, weir_last_error());
    if (s->exact) check_average(m, w.step, g);
    for (size_t i = 0; i < N; i++) {
      got[i] += (double)g[i];
      for (int r = 0; r < m->size; r++) given[i] += (double)s->g[w.step][r][i] / m->size;
    }
  }
  /* What was given is what came and what the ranks hold back: of this rank alone it is a part. */
  const float *residual = weir_engine_residual(engine);
  double rest = 0, missing = 0;
  for (size_t i = 0; i < N; i++) {
    rest += fabs((double)residual[i]);
    missing += fabs(given[i] - got[i]);
  }
  if (s->exact && (rest != 0 || missing > 1e-3))
    group_fail(m->group, "rank %d keeps %g, and %g are missing", m->rank, rest, missing);
  weir_engine_free(engine);
}

static sparse *make(const char *plan) {
  sparse *s = calloc(1, sizeof *s);
  cr_assert(s != NULL);
  cr_assert_eq(weir_plan_parse(plan, &s->plan), WEIR_OK, "%s", weir_last_error());
  s->counts = true;
  s->dense_at = -1;
  return s;
}

static void run(sparse *s, int ranks, uint64_t seed) {
  fill(s, seed);
  group_well(ranks, train, s, NULL);
  free(s);
}

Test(nonzero, every_plan_counts_what_gradients_have) {
  for (size_t arm = 0; arm < GROUP_ARMS; arm += 3) {
    sparse *s = make("none:1:dense-ring");
    s->plan = group_plan(arm, 0.05, 0);
    s->dense_at = 20;
    s->threads = 1 + arm % 3;
    run(s, 1 + (int)arm % 5, arm);
  }
}

/* The next ones that are counted are sparse again, and so are all that follow. */
Test(nonzero, dense_gradients_are_counted_now_and_then) {
  sparse *s = make("bf16:1:dense-ring");
  s->dense_at = 3;
  s->dense = true;
  run(s, 3, 9);
}

Test(nonzero, full_precision_is_left_out) {
  sparse *s = make("topk:0.1:ag:auto-bf16");
  s->full = 2;
  run(s, 3, 1);
  s = make("none:1:dense-ring");
  s->full = 1;
  run(s, 3, 2);
}

Test(nonzero, it_is_not_told_unasked) {
  sparse *s = make("topk:0.1:ag:auto-bf16");
  s->counts = false;
  run(s, 3, 3);
  s = make("topk:0.1:ag:auto-bf16"); /* of a velocity it would say nothing */
  s->momentum = 0.5;
  run(s, 3, 3);
}

/* 1/100 of 2900 elements and 100 more: below 200 of 3000 in every step. */
Test(nonzero, room_for_all_sends_all_bit_for_bit) {
  sparse *s = make("topk:0.0667:ag:auto-fp32");
  s->exact = true;
  run(s, 4, 4);
}

/* --- what gradients have touched, and no more ------------------------------------------------- */

/* Rounding errs by half a step of the grid at most, of which the largest, between the squares of T
 * and T - 1, is 2T - 1 of T^2 parts of the largest value. */
static void train_touched(member *m) {
  const sparse *s = m->group->shared;
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .first_plan = s->plan,
                                     .codec_threads = s->threads};
  const double top = exp2(32 * s->plan.cr - 1) - 1;
  const double most =
      6.0 * (2 * top - 1) / (2 * top * top); /* of normal numbers, with remainders */
  weir_engine *engine;
  double behind[N] = {0};
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  for (int step = 0; step < STEPS; step++) {
    float g[N];
    memcpy(g, s->g[step][m->rank], sizeof g);
    weir_status status = weir_engine_step_begin(engine, NULL);
    for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
      status = weir_engine_submit(engine, t, g + offset[t]);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status != WEIR_OK) group_fail(m->group, "step %d: %s", step, weir_last_error());
    for (size_t i = 0; i < N; i++) {
      bool touched = false;
      for (int r = 0; r < m->size; r++) {
        touched = touched || s->g[step][r][i] != 0;
        behind[i] += (double)s->g[step][r][i] / m->size;
      }
      behind[i] -= (double)g[i];
      if (!touched && g[i] != 0)
        group_fail(m->group, "step %d: element %zu got %g of nobody", step, i, (double)g[i]);
      if (fabs(behind[i]) > most)
        group_fail(m->group, "step %d: element %zu is %g behind", step, i, behind[i]);
    }
  }
  weir_engine_free(engine);
}

/* Every element is behind by one rounding at most, however long it waits, and remainders do not go
 * out by themselves. */
Test(nonzero, what_is_touched_goes_and_nothing_else) {
  const char *const plans[] = {"nonzero:0.25:ag", "nonzero:0.125:ag-ring", "nonzero:0.09375:ag"};
  for (size_t p = 0; p < 3; p++) {
    sparse *s = make(plans[p]);
    s->threads = 1 + (unsigned)p;
    s->dense_at = 30;
    fill(s, 40 + p);
    group_well(3, train_touched, s, plans[p]);
    free(s);
  }
}
