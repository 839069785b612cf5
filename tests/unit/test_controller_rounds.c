/* Paired trials of policy weir, on trainings that are simulated: what may come into force, what
 * trials cost, and what happens when harm shows late. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "controller/controller.h"
#include "controller/decide.h"

#define RANKS 4
#define ELEMENTS ((size_t)1000000)

/* A training whose loss falls with the logarithm of its progress, and whose batches differ. */
typedef struct world {
  weir_plan plan, kept;         /* in force; before the trial */
  bool trial, reports, forgets; /* forgets: a checkpoint does not bring its state back */
  uint64_t step, exchange;
  double progress, kept_progress;
  double share[WEIR_METHODS]; /* of a full step's progress that methods make */
  uint64_t late;              /* from this step on they make a fifth of it; 0: never */
  double comm;                /* of the step before */
  uint64_t steps, trial_steps, unsafe_steps;
  double seconds, trial_seconds;
} world;

static double seconds_of(const weir_plan *plan) {
  const weir_cost_terms terms =
      weir_cost_plan(plan, RANKS, ELEMENTS, weir_cost_kept(plan, ELEMENTS));
  return weir_cost_seconds(&terms, 1e-3, 1e-6);
}

static double batch(uint64_t number) {
  return 0.05 * sin((double)number * 12.9898) * cos((double)number * 4.1414);
}

static double loss_of(const world *w) {
  return 6.0 - 0.5 * log1p(w->progress / 5.0) +
         batch(w->trial && w->forgets ? w->exchange : w->step);
}

static double advance(const world *w) {
  const size_t method = weir_method_of(&w->plan);
  if (method == WEIR_METHODS) return 1.0;
  return w->share[method] * (w->late > 0 && w->step >= w->late ? 0.2 : 1.0);
}

static void obey(world *w, const weir_directive *directive) {
  if (directive->action == WEIR_ACTION_TRIAL) {
    cr_assert_not(w->trial);
    w->kept_progress = w->progress;
    w->trial = true;
    w->plan = directive->plan;
  }
  if (directive->action == WEIR_ACTION_SWITCH) {
    if (w->trial) w->progress = w->kept_progress;
    w->trial = false;
    w->plan = directive->plan;
  }
}

static uint64_t batches_in_trial;

static void step(weir_controller *controller, world *w) {
  weir_header headers[RANKS];
  weir_step_record record;
  weir_directive directive;
  memset(headers, 0, sizeof headers);
  memset(&record, 0, sizeof record);
  weir_controller_propose(controller, &directive);
  const uint64_t at = w->step;
  if (w->trial && !w->forgets) w->step += batches_in_trial; /* the next batch in turn */
  const double loss = loss_of(w), moved = advance(w);
  w->step = at;
  for (int r = 0; r < RANKS; r++)
    headers[r] = (weir_header){.compute_s = 0.02,
                               .comm_s = w->comm,
                               .wait_s = w->comm,
                               .gain = 1,
                               .latency_s = 1e-3,
                               .bandwidth = 1e6,
                               .latency_error = 0.02,
                               .bandwidth_error = 0.02,
                               .loss = w->reports ? loss + 0.01 * (r - 1.5) : NAN};
  record.info.step = w->step;
  record.info.plan = w->plan;
  record.info.trial = w->trial;
  record.terms = weir_cost_plan(&w->plan, RANKS, ELEMENTS, weir_cost_kept(&w->plan, ELEMENTS));
  weir_controller_observe(controller, headers, RANKS, &record);
  w->comm = seconds_of(&w->plan);
  w->progress += moved;
  w->seconds += 0.02 + w->comm;
  w->exchange++;
  if (w->trial) {
    w->trial_steps++;
    w->trial_seconds += 0.02 + w->comm;
    batches_in_trial++;
  } else {
    w->steps++;
    w->step++;
    w->unsafe_steps += !weir_plan_safe(&w->plan);
  }
  obey(w, &directive);
  if (!w->trial) batches_in_trial = 0;
}

static weir_controller *create(world *w, const char *risk) {
  static const size_t offsets[] = {0, ELEMENTS};
  const weir_controller_config config = {.policy = "weir",
                                         .risk = risk,
                                         .trial_budget = 0.04,
                                         .steps = 2000,
                                         .world_size = RANKS,
                                         .layout = {1, offsets},
                                         .seed = 5};
  weir_controller *controller;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_policy_first_plan("weir", &w->plan), WEIR_OK);
  batches_in_trial = 0;
  return controller;
}

static world train(const char *risk, world w, uint64_t steps) {
  weir_controller *controller = create(&w, risk);
  while (w.step < steps) step(controller, &w);
  weir_controller_free(controller);
  return w;
}

static const world good = {.reports = true, .share = {1, 1, 1, 1, 1, 1}};
static const world harmful = {.reports = true, .share = {0.8, 0.7, 0.6, 0.5, 0.4, 0.3}};

Test(rounds, an_arm_that_holds_the_loss_is_taken) {
  const world w = train("measured", good, 2000);
  cr_assert_gt(w.unsafe_steps, 1000u, "%d steps", (int)w.unsafe_steps);
  cr_assert_leq(w.trial_seconds, 0.045 * w.seconds);
  const world slow = train("safe", good, 2000);
  cr_assert_eq(slow.trial_steps, 0u);
  cr_assert_eq(slow.unsafe_steps, 0u);
  cr_assert_lt(w.seconds, 0.8 * slow.seconds);
}

Test(rounds, harmful_arms_never_come_into_force) {
  const world w = train("measured", harmful, 2000);
  cr_assert_gt(w.trial_steps, 0u);
  cr_assert_eq(w.unsafe_steps, 0u);
  cr_assert_float_eq(w.progress, 2000, 1e-9); /* and trials have left nothing */
  cr_assert_leq(w.trial_seconds, 0.045 * w.seconds);
}

Test(rounds, harm_that_shows_late_is_found) {
  world w = good;
  w.late = 800;
  w = train("measured", w, 2000);
  cr_assert_gt(w.unsafe_steps, 300u);
  cr_assert(weir_plan_safe(&w.plan), "an arm that stopped learning at step 800 is still in force");
  /* A fifth of the progress from step 800 on would end at 1040. */
  cr_assert_gt(w.progress, 1700, "%g", w.progress);
}

Test(rounds, without_a_loss_nothing_is_tried) {
  world w = good;
  w.reports = false;
  w = train("measured", w, 400);
  cr_assert_eq(w.trial_steps, 0u);
  cr_assert_eq(w.unsafe_steps, 0u);
}

Test(rounds, a_trainer_that_does_not_come_back_is_not_trusted) {
  world w = good;
  w.forgets = true;
  w = train("measured", w, 1500);
  cr_assert_leq(w.trial_steps, 5u * 26u);
  cr_assert_eq(w.unsafe_steps, 0u);
}
