/* Low rank through the engine: exact where the rank suffices, the same bits on all ranks and from
 * run to run, nothing lost, and nothing left by trials and failed steps. */
#include <criterion/criterion.h>
#include <math.h>

#include "../planned.h"
#include "base/base.h"
#include "base/schemes.h"
#include "engine/state.h"
#include "group.h"

/* A matrix, a bias, a matrix too small to be worth it, and another matrix. */
enum { TENSORS = 4, ROWS = 30, COLUMNS = 40, N = ROWS * COLUMNS + 7 + 4 + 60 * 15, STEPS = 60 };
static const size_t offset[TENSORS + 1] = {0, 1200, 1207, 1211, N},
                                     shape[TENSORS] = {ROWS, 1, 2, 60};
_Static_assert(N == 2111, "offset[] says so too");

typedef struct course {
  const char *plans[STEPS]; /* NULL: as before */
  uint32_t actions[STEPS];
  int steps;
  int failing;          /* step at which rank 0 hands in a NaN; -1: never */
  int rank_of_gradient; /* of each rank's matrices; 0: full */
  bool constant;        /* the same gradient in every step */
  float scale;          /* of rank 0's gradients; 0: 1 */
  bool grouped;         /* in three buckets */
  float *g[GROUP_MAX], *before[GROUP_MAX], *after[GROUP_MAX], *update[GROUP_MAX];
  uint64_t digest[GROUP_MAX]; /* out: of all updates, the last residual and the columns */
  double latencies[STEPS];    /* out: that rank 0's steps are charged with */
} course;

typedef struct voice {
  const course *course;
  int step;
  double *latencies;
  weir_plan_bucket table[3];
} voice;

static weir_plan plan_of(const char *text, int step) {
  weir_plan plan = planned(text);
  plan.id = (uint64_t)step;
  return plan;
}

static void propose(void *user, weir_directive *directive) {
  const voice *v = user;
  const int next = v->step + 1;
  if (next >= v->course->steps || v->course->plans[next] == NULL) return;
  directive->action = v->course->actions[next];
  directive->plan = plan_of(v->course->plans[next], next);
}

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  const voice *v = user;
  (void)headers, (void)ranks;
  if (v->latencies != NULL) v->latencies[v->step] = record->terms.alpha_terms;
}

/* Sums of `rank` products of vectors, tensor by tensor; 0: every element for itself. */
static void fill(float *g, int rank, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < N; i++) g[i] = (float)weir_rng_normal(&rng);
  for (size_t t = 0; t < TENSORS && rank > 0; t++) {
    const size_t rows = shape[t], columns = (offset[t + 1] - offset[t]) / rows;
    memset(g + offset[t], 0, rows * columns * sizeof *g);
    for (int k = 0; k < rank; k++) {
      float u[64], v[64];
      for (size_t i = 0; i < rows; i++) u[i] = (float)weir_rng_normal(&rng);
      for (size_t j = 0; j < columns; j++) v[j] = (float)weir_rng_normal(&rng);
      for (size_t i = 0; i < rows * columns; i++)
        g[offset[t] + i] += u[i / columns] * v[i % columns];
    }
  }
}

/* --- what holds of every step ----------------------------------------------------------------- */

static double square(const float *x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

/* What rounds in element (i, j): sums over at most 64 products |p| |q|, with |p| <= 1 a row and |q|
 * no longer than the matrix' column j; over all ranks. */
static double column_norms(const course *c, int ranks, size_t t, size_t j) {
  const size_t rows = shape[t], columns = (offset[t + 1] - offset[t]) / rows;
  double sum = 0;
  for (int r = 0; r < ranks; r++) {
    double square_sum = 0;
    for (size_t i = 0; i < rows; i++) {
      const size_t at = offset[t] + i * columns + j;
      square_sum += pow((double)c->g[r][at] + (double)c->before[r][at], 2);
    }
    sum += sqrt(square_sum);
  }
  return sum;
}

static void check_conservation(group *g, const course *c, int step) {
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t columns = (offset[t + 1] - offset[t]) / shape[t];
    for (size_t i = offset[t]; i < offset[t + 1]; i++) {
      double in = 0, out = g->size * (double)c->update[0][i];
      for (int r = 0; r < g->size; r++) {
        in += (double)c->g[r][i] + (double)c->before[r][i];
        out += (double)c->after[r][i];
      }
      const double bound =
          (g->size + 16) * 0x1p-24 * column_norms(c, g->size, t, (i - offset[t]) % columns);
      if (!(fabs(in - out) <= bound))
        group_fail(g, "step %d, element %zu: %.9g came in, %.9g went out", step, i, in, out);
    }
  }
}

/* A rank's own projection leaves no more than there was; vectors and small matrices go whole.  Of
 * what is rounded at most a share `lost` of what all ranks have stays in addition, with one
 * rank. */
static void check_residual(member *m, const course *c, double lost, int step) {
  const float *after = c->after[m->rank];
  float e[N];
  for (size_t i = 0; i < N; i++) e[i] = c->g[m->rank][i] + c->before[m->rank][i];
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t n = offset[t + 1] - offset[t];
    const double left = sqrt(square(after + offset[t], n)), whole = sqrt(square(e + offset[t], n));
    double all = 0;
    for (int r = 0; r < m->group->size && lost > 0; r++)
      for (size_t i = offset[t]; i < offset[t + 1]; i++)
        all += pow((double)c->g[r][i] + (double)c->before[r][i], 2);
    const double rounding = lost * sqrt(m->group->size * all);
    if (!(left <= rounding + (t == 1 || t == 2 ? 0 : whole * 1.0001)))
      group_fail(m->group, "step %d, tensor %zu: %g of %g is left", step, t, left, whole);
  }
}

/* A value is rounded at most once a hop: in bf16 by 2^-9 of itself; in SRA's two encodings by at
 * most the largest step of companded's 5 bits, which of the largest value m is m (1 - (14/15)^2).
 */
static double share_lost(const weir_plan *plan) {
  return weir_factors_encoded(plan) ? 2 * 29.0 / 225 : weir_sums_rounded(plan) ? 8 * 0x1p-9 : 0;
}

static void check_step(member *m, const course *c, weir_engine *engine, int step) {
  if (memcmp(c->update[m->rank], c->update[0], sizeof(float) * N) != 0)
    group_fail(m->group, "step %d: rank %d has another result than rank 0", step, m->rank);
  if (weir_codec_find(engine->plan.codec)->low_rank && engine->plan.buckets == 0)
    check_residual(m, c, share_lost(&engine->plan), step);
  if (m->rank == 0) check_conservation(m->group, c, step);
}

/* --- running ---------------------------------------------------------------------------------- */

static uint64_t state_of(const weir_engine *engine) {
  const weir_warm *warm = &engine->warm;
  const uint64_t hash = weir_engine_residual_digest(engine);
  return warm->values == NULL
             ? hash
             : weir_hash(hash, warm->values, warm->rank * warm->width * sizeof *warm->values);
}

static void one_step(member *m, course *c, weir_engine *engine, int step) {
  const int r = m->rank;
  const bool failing = step == c->failing;
  weir_status status = weir_engine_step_begin(engine, NULL);
  const uint64_t state = state_of(engine);
  memcpy(c->before[r], weir_engine_residual(engine), N * sizeof(float));
  fill(c->g[r], c->rank_of_gradient, (uint64_t)(c->constant ? 0 : step) * GROUP_MAX + (uint64_t)r);
  for (size_t i = 0; i < N && r == 0 && c->scale > 0; i++) c->g[r][i] *= c->scale;
  memcpy(c->update[r], c->g[r], N * sizeof(float));
  if (failing && r == 0) c->update[r][5] = NAN;
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_engine_submit(engine, t, c->update[r] + offset[t]);
  if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
  if (status != (failing ? WEIR_E_NONFINITE : WEIR_OK))
    group_fail(m->group, "step %d: %s", step, weir_last_error());
  if (failing && state_of(engine) != state)
    group_fail(m->group, "step %d failed and left something behind", step);
  memcpy(c->after[r], weir_engine_residual(engine), N * sizeof(float));
  group_barrier(m);
  if (!failing) check_step(m, c, engine, step);
  group_barrier(m);
}

/* Buckets: a low-rank one on a thread, top-k, and a low-rank one on the caller's. */
static void divide(voice *v, weir_plan *plan) {
  const char *const texts[3] = {"powersgd:3:dense-tree:auto-bf16", "topk:0.5:ag",
                                "powersgd:2:dense-sra"};
  static const uint32_t ends[3] = {1, 2, 4};
  for (int k = 0; k < 3; k++) {
    const weir_plan own = plan_of(texts[k], 0);
    v->table[k] =
        (weir_plan_bucket){.end = ends[k], .place = k == 0 ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER};
    weir_bucket_set_plan(&v->table[k], &own);
  }
  plan->buckets = 3;
  plan->layout = weir_buckets_name(v->table, 3);
}

static void body(member *m) {
  course *c = m->group->shared;
  voice v = {.course = c, .latencies = m->rank == 0 ? c->latencies : NULL};
  weir_plan first = plan_of(c->plans[0], 0);
  if (c->grouped) divide(&v, &first);
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .rows = shape,
                                     .first_plan = first,
                                     .first_buckets = v.table,
                                     .hooks = {.user = &v, .propose = propose, .observe = observe}};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "%s", weir_last_error());
    return;
  }
  uint64_t hash = WEIR_HASH_INIT;
  for (v.step = 0; v.step < c->steps; v.step++) {
    one_step(m, c, engine, v.step);
    if (c->actions[v.step] != WEIR_ACTION_TRIAL)
      hash = weir_hash(hash, c->update[m->rank], N * sizeof(float));
  }
  const uint64_t state = state_of(engine);
  c->digest[m->rank] = weir_hash(hash, &state, m->rank == 0 ? sizeof state : 0);
  weir_engine_free(engine);
}

static void run(course *c, int ranks) {
  for (int r = 0; r < ranks; r++) {
    float **all[] = {&c->g[r], &c->before[r], &c->after[r], &c->update[r]};
    for (size_t i = 0; i < 4; i++) {
      free(*all[i]);
      *all[i] = calloc(N, sizeof(float));
    }
  }
  group_well(ranks, body, c, NULL);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Three ranks, each a gradient of rank 1: the sum has rank 3, and rank 3 sends their mean whole in
 * the first step, but for a share of it that rounding loses; what that lost is in the residuals,
 * which otherwise add up to nothing. */
static void mean_is_held(const char *plan, int steps, double most_lost) {
  static course c = {.failing = -1, .rank_of_gradient = 1, .constant = true};
  c.plans[0] = plan;
  c.steps = steps;
  run(&c, 3);
  double away = 0, all = 0;
  for (size_t i = 0; i < N; i++) {
    const double mean = ((double)c.g[0][i] + (double)c.g[1][i] + (double)c.g[2][i]) / 3;
    const double left = (double)c.after[0][i] + (double)c.after[1][i] + (double)c.after[2][i];
    cr_assert(fabs((double)c.update[0][i] + left / 3 - mean) < 1e-5, "%s, element %zu: %g, not %g",
              plan, i, (double)c.update[0][i] + left / 3, mean);
    away += pow((double)c.update[0][i] - mean, 2);
    all += mean * mean;
    cr_assert(most_lost > 0 || fabs(left) < 3e-5, "element %zu: %g is left", i, left);
  }
  cr_assert(sqrt(away) <= fmax(most_lost, 1e-5) * sqrt(all), "%s is away by %g of %g", plan,
            sqrt(away), sqrt(all));
}

/* bf16 errs by up to 2^-9 a hop.  5 bits of companded have steps of 2 sqrt(x m) / 15 beside an x
 * where m is the largest, and err by 1/12 of their square on average: of normal values, whose mean
 * magnitude is 0.8 of their deviation and whose largest of 128 is 2.7 of it, by 6 % (2.7 0.8 / 675
 * = 0.0032), in what ranks send and in their sum, which are of like size: 8 % of Q, and nearly as
 * much in where P's columns lie.  Columns share buckets, and of one that is a quarter as long as
 * the longest it is twice the share. */
Test(lowrank, mean_of_gradients_whose_rank_it_can_hold) {
  mean_is_held("powersgd:3:dense-ring", 1, 0);
  mean_is_held("powersgd:3:dense-ring:auto-bf16", 1, 0.01);
  mean_is_held("powersgd:3:dense-sra", 1, 0.2);
  mean_is_held("powersgd:3:dense-one-shot", 1, 0.2);
}

/* bilateral's first step is powersgd's.  Where gradients stay what they are, B spans all columns of
 * the mean from then on, so that one sum, too, sends it whole in any later step. */
Test(lowrank, mean_of_steady_gradients_in_one_sum) {
  for (int steps = 1; steps <= 4; steps++) mean_is_held("bilateral:3:dense-ring", steps, 0);
}

/* Latencies that a step is charged with: a ring's 2 (3 - 1), twice where there are two sums.  Other
 * low rank leaves columns to go on from, any other codec none. */
Test(lowrank, one_sum_where_columns_of_the_step_before_are_there) {
  static course c = {.plans = {"bilateral:2:dense-ring", NULL, NULL, "powersgd:2:dense-ring",
                               "bilateral:2:dense-ring", NULL, "none:1:dense-ring",
                               "bilateral:2:dense-ring", NULL, "bilateral:3:dense-ring", NULL},
                     .steps = 11,
                     .failing = -1};
  static const double latencies[11] = {8, 4, 4, 8, 4, 4, 4, 8, 4, 8, 4};
  for (int i = 1; i < 11; i++) c.actions[i] = WEIR_ACTION_SWITCH;
  run(&c, 3);
  for (int i = 0; i < 11; i++)
    cr_expect_float_eq(c.latencies[i], latencies[i], 1e-12, "step %d: %g", i, c.latencies[i]);
}

Test(lowrank, the_same_bits_on_all_ranks_and_from_run_to_run) {
  static course c = {.plans = {"powersgd:2:dense-ring",
                               NULL,
                               NULL,
                               "powersgd:5:dense-tree",
                               NULL,
                               "topk:0.1:ag",
                               "powersgd:1:dense-one-shot",
                               "powersgd:4:dense-sra",
                               NULL,
                               "powersgd:3:dense:auto-bf16",
                               NULL,
                               "none:1:dense-ring",
                               "bilateral:3:dense-sra",
                               NULL,
                               "bilateral:2:dense-one-shot",
                               NULL,
                               "bilateral:4:dense:auto-bf16",
                               "powersgd:2:dense-ring",
                               "bilateral:2:dense-ring",
                               NULL},
                     .steps = 20,
                     .failing = -1};
  for (int i = 1; i < 20; i++) c.actions[i] = WEIR_ACTION_SWITCH;
  for (int ranks = 1; ranks <= 5; ranks++) {
    run(&c, ranks);
    const uint64_t before = c.digest[0];
    run(&c, ranks);
    cr_assert_eq(c.digest[0], before, "%d ranks", ranks);
  }
}

/* A codec that keeps a share d of the energy leaves residuals of at most 4 (1 - d) / d^2 times the
 * gradient's square under error feedback (Karimireddy et al. 2019, lemma 3), for ever; four of
 * thirty directions that are equally large on average are d = 4/30. */
Test(lowrank, residuals_stay_bounded) {
  static const char *const plans[] = {"powersgd:4:dense-ring",  "powersgd:4:dense-ring:auto-bf16",
                                      "powersgd:4:dense-sra",   "powersgd:4:dense-one-shot",
                                      "bilateral:4:dense-ring", "bilateral:4:dense-ring:auto-bf16",
                                      "bilateral:4:dense-sra",  "bilateral:4:dense-one-shot"};
  static course c = {.steps = STEPS, .failing = -1};
  const double d = 4.0 / 30, bound = 4 * (1 - d) / (d * d);
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    c.plans[0] = plans[i];
    run(&c, 2);
    const double gradient = square(c.g[0], N) + square(c.g[1], N);
    const double left = square(c.after[0], N) + square(c.after[1], N);
    cr_assert(left < bound * gradient, "%s: %g of %g", plans[i], left, gradient);
  }
}

static void trials_leave_nothing(const char *plan, const char *const tried[3]) {
  static course with = {.actions = {0, 0, WEIR_ACTION_TRIAL, WEIR_ACTION_TRIAL, WEIR_ACTION_TRIAL,
                                    WEIR_ACTION_SWITCH, 0, 0},
                        .constant = true};
  static course without = {
      .actions = {0, 0, WEIR_ACTION_SWITCH}, .steps = 4, .failing = -1, .constant = true};
  with.plans[0] = with.plans[5] = without.plans[0] = without.plans[2] = plan;
  for (int t = 0; t < 3; t++) with.plans[2 + t] = tried[t];
  with.failing = -1;
  with.steps = 7;
  run(&with, 3);
  run(&without, 3);
  /* The ranks but 0 digest their updates alone: rank 0's columns beyond the second differ. */
  cr_assert_eq(with.digest[1], without.digest[1]);
  cr_assert(memcmp(with.after[0], without.after[0], N * sizeof(float)) == 0);
  with.failing = 6;
  with.steps = 8;
  run(&with, 3);
}

Test(lowrank, trials_and_failed_steps_leave_nothing_behind) {
  trials_leave_nothing(
      "powersgd:2:dense-ring",
      (const char *const[]){"powersgd:5:dense-sra", NULL, "powersgd:1:dense:auto-bf16"});
  trials_leave_nothing("powersgd:2:dense-ring",
                       (const char *const[]){"bilateral:3:dense-sra", NULL, "bilateral:1:dense"});
  trials_leave_nothing("bilateral:2:dense-ring",
                       (const char *const[]){"bilateral:5:dense-sra", NULL, "none:1:dense-ring"});
}

/* Rank 0's matrices are too large to be projected, and all of them waits.  Messages say so by
 * zeros, and then the others' are sent; NaN keeps everybody's back.  In one sum zeros say so
 * throughout. */
static void what_is_too_large_waits(const char *plan, int steps, bool others_send) {
  static course c = {.failing = -1, .constant = true, .scale = 0x1p110F};
  c.plans[0] = plan;
  c.steps = steps;
  run(&c, 3);
  double sent = 0;
  for (size_t i = 0; i < N; i++) {
    const bool matrix = i < offset[1] || i >= offset[3];
    cr_assert(!matrix || c.after[0][i] == (float)steps * c.g[0][i],
              "%s, element %zu: %g of %g is left", plan, i, (double)c.after[0][i],
              (double)c.g[0][i]);
    if (matrix) sent += fabs((double)c.update[0][i]);
  }
  cr_assert(isfinite(sent) && (sent > 0) == others_send, "%s has sent %g", plan, sent);
}

Test(lowrank, what_is_too_large_to_be_projected_waits) {
  what_is_too_large_waits("powersgd:2:dense-ring", 1, false);
  what_is_too_large_waits("powersgd:2:dense-tree:auto-bf16", 1, false);
  what_is_too_large_waits("powersgd:2:dense-sra", 1, true);
  what_is_too_large_waits("powersgd:2:dense-one-shot", 1, true);
  what_is_too_large_waits("bilateral:2:dense-ring", 1, false);
  what_is_too_large_waits("bilateral:2:dense-ring", 2, true);
  what_is_too_large_waits("bilateral:2:dense-tree:auto-bf16", 2, true);
  what_is_too_large_waits("bilateral:2:dense-sra", 2, true);
}

Test(lowrank, groups_have_columns_of_their_own) {
  static course c = {.plans = {"powersgd:3:dense-tree"}, .steps = 5, .failing = 3, .grouped = true};
  for (int ranks = 1; ranks <= 4; ranks++) {
    run(&c, ranks);
    const uint64_t before = c.digest[0];
    run(&c, ranks);
    cr_assert_eq(c.digest[0], before);
  }
}

static void refuse(member *m) {
  const size_t wrong[TENSORS] = {ROWS, 1, 3, 60};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .rows = wrong,
                                     .first_plan = plan_of("powersgd:1:dense-ring", 0)};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_E_INVALID || engine != NULL ||
      strstr(weir_last_error(), "tensor 2 of 4 elements does not have 3 rows") == NULL)
    group_fail(m->group, "taken: %s", weir_last_error());
}

Test(lowrank, rows_that_do_not_divide_a_tensor_are_refused) { group_well(1, refuse, NULL, NULL); }
