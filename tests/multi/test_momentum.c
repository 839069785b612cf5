/* Momentum correction: what comes out is momentum SGD's where everything is sent, and the paper's
 * where something is; failed steps and trials leave nothing of it behind. */
#include <criterion/criterion.h>
#include <math.h>

#include "engine/state.h"
#include "group.h"
#include "script.h"

enum { N = 300, STEPS = 10 };

typedef struct course {
  size_t arm;
  uint32_t actions[STEPS]; /* how a step came about */
  int steps, failing;      /* failing: step with a NaN on rank 0; -1: none */
  float update[GROUP_MAX][STEPS][N];
  uint64_t residual[GROUP_MAX]; /* at the end */
} course;

/* Small integers: every sum below is exact. */
static float gradient(int rank, int step, size_t i) {
  return (float)((int)((i * 7 + (size_t)(step * 5 + rank * 3)) % 17) - 8) * 16;
}

/* Steps that do not count do not move the trainer on: `counted` is the step of the gradient. */
static void body(member *m) {
  course *c = m->group->shared;
  static _Thread_local script_step steps[STEPS];
  for (int i = 0; i < c->steps; i++)
    steps[i] = (script_step){.action = c->actions[i], .plan = group_plan(c->arm, 0.1, (uint64_t)i)};
  script v = {steps, c->steps, 0};
  const size_t offset[3] = {0, 120, N}, rows[2] = {10, 15};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {2, offset},
                                     .rows = rows,
                                     .momentum = 0.5,
                                     .first_plan = steps[0].plan,
                                     .hooks = script_hooks(&v)};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "%s", weir_last_error());
    return;
  }
  int counted = 0;
  for (v.at = 0; v.at < c->steps; v.at++) {
    float *g = c->update[m->rank][v.at];
    weir_step_info info = {0};
    weir_status status = weir_engine_step_begin(engine, &info);
    for (size_t i = 0; i < N; i++) g[i] = gradient(m->rank, counted, i);
    if (v.at == c->failing && m->rank == 0) g[N - 1] = NAN;
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 1, g + offset[1]);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status != (v.at == c->failing ? WEIR_E_NONFINITE : WEIR_OK))
      group_fail(m->group, "step %d: %s", v.at, weir_last_error());
    counted += !info.trial && status == WEIR_OK;
  }
  c->residual[m->rank] = weir_engine_residual_digest(engine);
  weir_engine_free(engine);
}

static void run(course *c, int ranks) { group_well(ranks, body, c, group_arms[c->arm]); }

/* The average of velocities is the velocity of the average: u = u / 2 + mean g. */
Test(momentum, dense_is_momentum_sgd) {
  static course c = {.steps = 4, .failing = -1};
  cr_assert_str_eq(group_arms[c.arm], "none:1:dense-ring");
  run(&c, 2);
  for (size_t i = 0; i < N; i++) {
    float u = 0;
    for (int step = 0; step < 4; step++) {
      u = u / 2 + (gradient(0, step, i) + gradient(1, step, i)) / 2;
      cr_assert(c.update[0][step][i] == u && c.update[1][step][i] == u);
    }
  }
}

typedef struct masking {
  size_t arm;
  bool trial; /* from the second step on */
} masking;

static void masked(member *m) {
  /* One of four is kept, momentum 1/2, g = (4, 3, 0, 0):
   *   u = (4, 3):    e = (4, 3),   4 goes,   (0, 3) stays, u = (0, 3)
   *   u = (4, 4.5):  e = (4, 7.5), 7.5 goes, (4, 0) stays, u = (4, 0)
   *   u = (6, 3):    e = (10, 3),  10 goes,  (0, 3) stays, u = (0, 3), and so on. */
  static const float want[4][2] = {{4, 0}, {0, 7.5F}, {10, 0}, {0, 7.5F}};
  const masking *c = m->group->shared;
  static _Thread_local script_step steps[4];
  for (size_t i = 0; i < 4; i++) steps[i].plan = group_plan(c->arm, 0.25, 0);
  steps[1].action = c->trial ? WEIR_ACTION_TRIAL : WEIR_ACTION_KEEP;
  script v = {steps, 4, 0};
  const size_t offset[2] = {0, 4};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {1, offset},
                                     .momentum = 0.5,
                                     .first_plan = steps[0].plan,
                                     .hooks = script_hooks(&v)};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  for (v.at = 0; v.at < 4; v.at++) {
    const int step = v.at;
    float g[4] = {4, 3, 0, 0};
    weir_step_info info = {0};
    weir_status status = weir_engine_step_begin(engine, &info);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status != WEIR_OK || info.trial != (c->trial && step > 0) || g[0] != want[step][0] ||
        g[1] != want[step][1] || g[2] != 0 || g[3] != 0)
      group_fail(m->group, "rank %d, step %d: %g %g", m->rank, step, (double)g[0], (double)g[1]);
  }
  weir_engine_free(engine);
}

Test(momentum, is_cut_off_where_something_was_sent) {
  size_t tried = 0;
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    const weir_plan plan = group_plan(arm, 0.25, 0);
    const weir_codec *codec = weir_codec_find(plan.codec);
    if (codec->select == NULL || plan.codec == WEIR_CODEC_SIDCO)
      continue;                            /* sidco need not see it */
    if (group_hands_over(&plan)) continue; /* refused, see below */
    for (int trial = 0; trial < 2; trial++) {
      group g;
      group_run(&g, 4, masked, &(masking){arm, trial == 1});
      cr_assert(!g.failed, "%s, trial %d: %s", group_arms[arm], trial, g.failure);
    }
    tried++;
  }
  cr_assert_geq(tried, 20);
}

/* Runs both; floats of updates from one step on each are the same, and residuals at the end. */
static void run_alike(course *with, int step, course *without, int other, size_t floats) {
  const int ranks = 1 + (int)(with->arm % 3);
  run(with, ranks);
  run(without, ranks);
  for (int r = 0; r < ranks; r++) {
    cr_assert_eq(with->residual[r], without->residual[r], "%s", group_arms[with->arm]);
    cr_assert(memcmp(with->update[r][step], without->update[r][other], sizeof(float) * floats) == 0,
              "%s", group_arms[with->arm]);
  }
}

/* With two trials and a failed step between, and without: the same bits, whatever the codec. */
Test(momentum, failed_steps_and_trials_leave_nothing_behind) {
  static course with, without;
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    const weir_plan plan = group_plan(arm, 0.1, 0);
    if (group_hands_over(&plan)) continue;
    with = (course){.arm = arm, .steps = 8, .failing = 3};
    with.actions[4] = with.actions[5] = WEIR_ACTION_TRIAL;
    with.actions[6] = WEIR_ACTION_SWITCH;
    without = (course){.arm = arm, .steps = 6, .failing = 3};
    without.actions[4] = WEIR_ACTION_SWITCH;
    run_alike(&with, 6, &without, 4, 2 * N);
  }
}

/* Nor does a step that fails within a trial. */
Test(momentum, steps_that_fail_in_a_trial_leave_nothing_behind) {
  static course with, without;
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    const weir_plan plan = group_plan(arm, 0.1, 0);
    if (group_hands_over(&plan)) continue;
    with = (course){.arm = arm, .steps = 8, .failing = 4};
    with.actions[3] = WEIR_ACTION_TRIAL;
    with.actions[6] = WEIR_ACTION_SWITCH;
    without = (course){.arm = arm, .steps = 5, .failing = -1};
    without.actions[3] = WEIR_ACTION_SWITCH;
    run_alike(&with, 7, &without, 4, N);
  }
}

static void refuse(member *m) {
  static const double bad[] = {1, -0.1, 2, NAN, INFINITY};
  const size_t offset[2] = {0, 4};
  for (size_t i = 0; i < 5; i++) {
    const weir_engine_config config = {.comm = m->comm,
                                       .layout = {1, offset},
                                       .momentum = bad[i],
                                       .first_plan = group_plan(0, 1, 0)};
    weir_engine *engine = NULL;
    if (weir_engine_create(&engine, &config) != WEIR_E_INVALID || engine != NULL)
      group_fail(m->group, "momentum %g was taken", bad[i]);
  }
  weir_engine_config config = {.comm = m->comm, .layout = {1, offset}, .momentum = 0.5};
  weir_engine *engine = NULL;
  if (weir_plan_parse("topk:0.5:path=c.ag.d", &config.first_plan) != WEIR_OK ||
      weir_engine_create(&engine, &config) != WEIR_E_UNSUPPORTED ||
      strstr(weir_last_error(), "without momentum correction") == NULL)
    group_fail(m->group, "a path with momentum: %s", weir_last_error());
}

Test(momentum, that_does_not_fade_is_refused) { group_well(1, refuse, NULL, NULL); }
