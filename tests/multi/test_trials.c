/* A trial leaves nothing behind: weights, momentum, residual, random numbers, data cursor and the
 * order of star's roots are bit for bit what they were, with every codec. */
#include <criterion/criterion.h>

#include "../planned.h"
#include "base/base.h"
#include "group.h"

#define N 1500
#define STEPS_MAX 32

/* What rank 0 asks for after each exchange. */
typedef struct program {
  weir_plan first;
  weir_directive after[STEPS_MAX];
  float rescaled[STEPS_MAX]; /* before a step, what is kept back is, by this; 0: it is not */
  int steps;
  uint64_t weights[GROUP_MAX]; /* out: digest at the end */
  uint64_t residual[GROUP_MAX];
  int looked; /* a step, and its average */
  float average[GROUP_MAX][N];
} program;

typedef struct trainee {
  float weights[N], momentum[N], g[N];
  weir_rng rng;
  uint64_t cursor;
  const program *program;
  int step;
} trainee;

static size_t hook_bytes(void *user) {
  (void)user;
  return sizeof(weir_rng) + sizeof(uint64_t);
}

static void hook_save(void *user, void *to) {
  const trainee *t = user;
  memcpy(to, &t->rng, sizeof t->rng);
  memcpy((char *)to + sizeof t->rng, &t->cursor, sizeof t->cursor);
}

static void hook_load(void *user, const void *from) {
  trainee *t = user;
  memcpy(&t->rng, from, sizeof t->rng);
  memcpy(&t->cursor, (const char *)from + sizeof t->rng, sizeof t->cursor);
}

static void propose(void *user, weir_directive *directive) {
  const trainee *t = user;
  *directive = t->program->after[t->step];
}

/* Everything that a trial must leave alone, to compare bit for bit. */
typedef struct picture {
  float weights[N], momentum[N], residual[N];
  weir_rng rng;
  uint64_t cursor, digest;
} picture;

static void take(picture *p, const trainee *t, const weir_engine *engine) {
  memset(p, 0, sizeof *p);
  memcpy(p->weights, t->weights, sizeof p->weights);
  memcpy(p->momentum, t->momentum, sizeof p->momentum);
  memcpy(p->residual, weir_engine_residual(engine), sizeof p->residual);
  p->rng = t->rng;
  p->cursor = t->cursor;
  p->digest = weir_engine_residual_digest(engine);
}

static weir_status train(trainee *t, weir_engine *engine) {
  for (size_t i = 0; i < N; i++)
    t->g[i] = (float)weir_rng_normal(&t->rng) + 0.1f * t->weights[i] + (float)(t->cursor % 7);
  t->cursor += 64;
  weir_status status = weir_engine_submit(engine, 0, t->g);
  if (status == WEIR_OK) status = weir_engine_submit(engine, 1, t->g + 700);
  if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
  for (size_t i = 0; i < N; i++) {
    t->momentum[i] = 0.9f * t->momentum[i] + t->g[i];
    t->weights[i] -= 0.05f * t->momentum[i];
  }
  return status;
}

static void run_steps(member *m, program *p, trainee *t, weir_engine *engine) {
  static _Thread_local picture before, now;
  bool trial = false;
  uint64_t counted = 0, tried = 0;
  for (t->step = 0; t->step < p->steps; t->step++) {
    const weir_directive *asked = t->step > 0 ? &p->after[t->step - 1] : NULL;
    const bool repeated =
        trial && asked != NULL && asked->action == WEIR_ACTION_TRIAL && asked->plan.id == tried;
    const uint32_t action = asked != NULL && !repeated ? asked->action : WEIR_ACTION_KEEP;
    if (action == WEIR_ACTION_TRIAL && !trial) take(&before, t, engine);
    if (action == WEIR_ACTION_TRIAL) tried = asked->plan.id;
    const float factor = p->rescaled[t->step];
    weir_step_info info;
    if (factor != 0 && weir_engine_rescale(engine, factor) != WEIR_OK) {
      group_fail(m->group, "before step %d: %s", t->step, weir_last_error());
      return;
    }
    if (weir_engine_step_begin(engine, &info) != WEIR_OK) {
      group_fail(m->group, "step %d: %s", t->step, weir_last_error());
      return;
    }
    if (trial && (action == WEIR_ACTION_TRIAL || action == WEIR_ACTION_SWITCH)) {
      take(&now, t, engine);
      if (memcmp(&now, &before, sizeof now) != 0)
        group_fail(m->group, "rank %d, step %d: the trial left something behind", m->rank, t->step);
    }
    if (action == WEIR_ACTION_TRIAL || action == WEIR_ACTION_SWITCH)
      trial = action == WEIR_ACTION_TRIAL;
    if (info.trial != trial || info.step != counted)
      group_fail(m->group, "step %d is told as step %d, trial %d", t->step, (int)info.step,
                 info.trial);
    if (weir_action_plans(action) && (trial || action != WEIR_ACTION_FOLLOW) &&
        weir_plan_digest(&info.plan) != weir_plan_digest(&asked->plan))
      group_fail(m->group, "rank %d, step %d: another plan than asked for", m->rank, t->step);
    if (train(t, engine) != WEIR_OK) {
      group_fail(m->group, "step %d: %s", t->step, weir_last_error());
      return;
    }
    if (!trial) counted++;
    if (t->step == p->looked) memcpy(p->average[m->rank], t->g, sizeof t->g);
  }
}

static void body(member *m) {
  program *p = m->group->shared;
  const size_t offset[] = {0, 700, N}, rows[] = {25, 40};
  FREED trainee *t = calloc(1, sizeof *t);
  t->program = p;
  t->rng = weir_rng_of(40 + (uint64_t)m->rank);
  for (size_t i = 0; i < N; i++) t->weights[i] = (float)i / N;
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {2, offset},
                                     .rows = rows,
                                     .first_plan = p->first,
                                     .hooks = {.user = t, .propose = propose}};
  const weir_state_hooks hooks = {sizeof hooks, t, hook_bytes, hook_save, hook_load};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK ||
      weir_engine_register_state(engine, t->weights, sizeof t->weights) != WEIR_OK ||
      weir_engine_register_state(engine, t->momentum, sizeof t->momentum) != WEIR_OK ||
      weir_engine_register_hooks(engine, &hooks) != WEIR_OK)
    group_fail(m->group, "%s", weir_last_error());
  else
    run_steps(m, p, t, engine);
  p->weights[m->rank] = weir_hash(WEIR_HASH_INIT, t->weights, sizeof t->weights);
  p->residual[m->rank] = engine != NULL ? weir_engine_residual_digest(engine) : 0;
  weir_engine_free(engine);
}

static weir_directive ask(uint32_t action, weir_plan plan) {
  return (weir_directive){.action = action, .plan = plan};
}

/* Two steps, then trials of two steps each of three arms, of which the second is followed by the
 * first, then three steps of the last plan.  The same without trials must end at the same
 * weights. */
static void with_and_without(int ranks, size_t arm) {
  /* Residuals are not zero, and columns are warm. */
  static const char *const firsts[] = {"topk:0.1:ag",        "star:0.1:art-ring",
                                       "var:0.1:art-tree",   "bilateral:1:dense-ring",
                                       "whitened:0.125:sra", "dithered:0.125:sra"};
  static program with, without;
  memset(&with, 0, sizeof with);
  memset(&without, 0, sizeof without);
  const weir_plan tried = group_plan(arm, 0.05, 1);
  const weir_plan other = group_plan((arm + 11) % GROUP_ARMS, 0.02, 2);
  /* Dense after a dense trial: a residual wrongly taken for empty would be lost. */
  const weir_plan last = group_plan(arm % 2 == 0 ? 0 : 7, 0.03, 4);
  with.first = without.first = planned(firsts[arm % (sizeof firsts / sizeof *firsts)]);
  with.after[1] = ask(WEIR_ACTION_TRIAL, tried);
  with.after[3] = ask(WEIR_ACTION_TRIAL, other);
  with.after[5] = ask(WEIR_ACTION_FOLLOW, tried);
  with.after[7] = ask(WEIR_ACTION_TRIAL, group_plan(arm, 0.05, 3));
  with.after[8] = ask(WEIR_ACTION_SWITCH, last);
  with.steps = 12;
  without.after[1] = ask(WEIR_ACTION_SWITCH, last);
  without.steps = 5;
  group_well(ranks, body, &with, group_arms[arm]);
  group_well(ranks, body, &without, group_arms[arm]);
  for (int r = 0; r < ranks; r++) {
    cr_assert_eq(with.weights[r], with.weights[0], "%s: weights differ", group_arms[arm]);
    cr_assert_eq(with.weights[r], without.weights[r], "%s: trials changed training",
                 group_arms[arm]);
    cr_assert_eq(with.residual[r], without.residual[r], "%s: trials changed residuals",
                 group_arms[arm]);
  }
}

/* A trial's steps average what the plans' own do, bit for bit: the first one, and where another
 * plan follows, that one's, with what the first has held back. */
static void as_without(int ranks, size_t arm, double cr, int follow) {
  static program tried, run;
  memset(&tried, 0, sizeof tried);
  memset(&run, 0, sizeof run);
  const weir_plan plan = group_plan(arm, cr, 1);
  const weir_plan next = group_plan((arm + 5) % GROUP_ARMS, 0.1, 2);
  tried.first = run.first = group_plan(6, 0.1, 0); /* topk: residuals are not zero */
  tried.after[1] = ask(WEIR_ACTION_TRIAL, plan);
  run.after[1] = ask(WEIR_ACTION_SWITCH, plan);
  if (follow > 0) tried.after[1 + follow] = ask(WEIR_ACTION_FOLLOW, next);
  if (follow > 0) run.after[1 + follow] = ask(WEIR_ACTION_SWITCH, next);
  tried.looked = run.looked = 2 + follow;
  tried.steps = run.steps = 3 + follow;
  group_well(ranks, body, &tried, group_arms[arm]);
  group_well(ranks, body, &run, group_arms[arm]);
  for (int r = 0; r < ranks; r++)
    for (size_t i = 0; i < N; i++)
      cr_assert(tried.average[r][i] == run.average[0][i],
                "%s of %g, %d ranks, element %zu: %g in a trial, %g without", group_arms[arm], cr,
                ranks, i, (double)tried.average[r][i], (double)run.average[0][i]);
}

Test(trials, step_as_their_plans_do) {
  static const double ratios[] = {0.02, 0.3, 0.55, 1};
  for (size_t arm = 0; arm < GROUP_ARMS; arm++)
    for (size_t i = 0; i < 4; i++) as_without(1 + (int)((arm + i) % 4), arm, ratios[i], 0);
}

Test(trials, plans_that_follow_step_as_after_a_switch) {
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) as_without(1 + (int)(arm % 4), arm, 0.02, 2);
}

/* Who has not heard yet that it has begun directs it once more: it goes on. */
Test(trials, one_that_is_directed_twice_goes_on) {
  static program once, twice;
  memset(&once, 0, sizeof once);
  memset(&twice, 0, sizeof twice);
  once.first = twice.first = group_plan(6, 0.1, 0);
  once.after[1] = twice.after[1] = ask(WEIR_ACTION_TRIAL, group_plan(0, 1, 1));
  twice.after[3] = twice.after[1];
  once.looked = twice.looked = 5;
  once.steps = twice.steps = 6;
  group_well(3, body, &once, "once");
  group_well(3, body, &twice, "twice");
  for (int r = 0; r < 3; r++)
    cr_assert_eq(memcmp(once.average[r], twice.average[r], sizeof once.average[r]), 0, "rank %d",
                 r);
}

/* Outside of a trial it asks for nothing. */
Test(trials, without_one_nothing_follows) {
  static program asked, without;
  memset(&asked, 0, sizeof asked);
  asked.first = without.first = group_plan(6, 0.1, 0);
  asked.steps = without.steps = 4;
  asked.after[1] = ask(WEIR_ACTION_FOLLOW, group_plan(0, 1, 1));
  group_well(3, body, &asked, "asked");
  group_well(3, body, &without, "without");
  cr_assert_eq(asked.weights[0], without.weights[0]);
}

/* A loss scale that changes in a trial holds for what the trial has held back, and goes with it. */
Test(trials, scales_that_change_in_one_go_with_it) {
  static program tried, run;
  memset(&tried, 0, sizeof tried);
  memset(&run, 0, sizeof run);
  tried.first = run.first = group_plan(6, 0.1, 0);
  tried.after[1] = ask(WEIR_ACTION_TRIAL, group_plan(6, 0.02, 1));
  run.after[1] = ask(WEIR_ACTION_SWITCH, group_plan(6, 0.02, 1));
  tried.after[4] = ask(WEIR_ACTION_SWITCH, group_plan(0, 1, 2));
  tried.rescaled[3] = run.rescaled[3] = 0.5F;
  tried.looked = run.looked = 4;
  tried.steps = run.steps = 7;
  group_well(3, body, &tried, "in a trial");
  group_well(3, body, &run, "without one");
  for (int r = 0; r < 3; r++)
    cr_assert_eq(memcmp(tried.average[r], run.average[0], sizeof run.average[0]), 0, "rank %d", r);
}

Test(trials, leave_nothing_behind) {
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) with_and_without(1 + (int)(arm % 4), arm);
}
