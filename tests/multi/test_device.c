/* The engine's steps on a device, beside the same steps in host memory: the same gradients give the
 * same bits in averages and residuals where codecs are exact, and lose nothing where their sums run
 * in another order; over changing plans, buckets and trials, and in buckets of ranks with and without
 * a device.  tests/emulate's device does nothing before it is waited for. */
#include "device_course.h"

static const char *const arms[] = {"topk:0.1:ag",
                                   "topk:0.01:ag:auto-fp32",
                                   "topk:0.3:ag:auto-bf16",
                                   "lwtopk:0.05:ag",
                                   "lwtopk:0.2:ag:auto-bf16",
                                   "mstopk:0.1:ag:auto-fp16",
                                   "dgc:0.1:ag",
                                   "dgc:0.05:ag:auto-fp16",
                                   "sidco:0.1:ag:auto-fp32",
                                   "topk:1:ag",
                                   "fp16:0.5:ag",
                                   "qsgd:0.125:ag",
                                   "qsgd:0.0625:ag",
                                   "qsgd-nearest:0.125:ag",
                                   "qsgd-l2:0.125:ag",
                                   "terngrad:0.0625:ag",
                                   "onebit:0.03125:ag",
                                   "efsignsgd:0.03125:ag",
                                   "none:1:dense-ring",
                                   "bf16:1:dense-tree",
                                   "none:1:dense-halving",
                                   "bf16:1:dense-torus",
                                   "star:0.1:art-ring",
                                   "star:0.05:art-tree:auto-bf16",
                                   "var:0.1:art-ring",
                                   "var:0.2:art-tree:auto-fp32",
                                   "randomk:0.1:art-ring",
                                   "randomk:0.3:art-tree:auto-bf16",
                                   "powersgd:1:dense-ring",
                                   "powersgd:5:dense-tree"};
#define ARMS (sizeof arms / sizeof *arms)

static void try_arms(double momentum) {
  static course c;
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t arm = 0; arm < ARMS; arm++)
    for (int shape = 0; shape < (GROUP_SLOW ? 1 : 2); shape++) {
      if (momentum > 0 && !is_exact(plan_of(arms[arm], 1).codec)) continue;
      lay_out(&c, shape == 0 ? 1500 : 9001);
      c.apart = shape == 1;
      c.seed = arm + 1;
      c.count = 4;
      for (int s = 0; s < c.count; s++)
        c.steps[s] = (script_step){.plan = plan_of(arms[arm], 1), .poisoned = -1};
      compare(&c, 2 + shape, shape == 0 ? 3 : 7, is_exact(c.steps[0].plan.codec));
    }
}

Test(device, every_arm_gives_the_bits_of_the_host) { try_arms(0); }

/* What a step does to the velocity, the next one's average shows. */
Test(device, momentum_correction_gives_the_bits_of_the_host) { try_arms(0.9); }

/* Of more rows than its sums run through at once a matrix has another Q than on the host; what that
 * does not send stays in the residual. */
Test(device, tall_matrices_lose_nothing) {
  static course c;
  c.device = test_device_open();
  lay_out(&c, 12000);
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t n = c.offset[t + 1] - c.offset[t];
    c.rows[t] = n > 0 ? n / rows_of(n, 4) : 1;
  }
  cr_assert_gt(c.rows[0], 512);
  c.seed = 5;
  c.count = 4;
  for (int s = 0; s < c.count; s++)
    c.steps[s] = (script_step){.plan = plan_of("powersgd:1:dense-ring", 1), .poisoned = -1};
  compare(&c, 2, 3, false);
}

/* --- courses of changing plans ---------------------------------------------------------------- */

static weir_plan random_arm(weir_rng *rng) {
  weir_plan plan;
  do plan = plan_of(arms[weir_rng_below(rng, ARMS)], 0);
  while (!is_exact(plan.codec));
  return plan;
}

static void random_step(script_step *s, weir_rng *rng, uint64_t id) {
  size_t count = 0;
  s->poisoned = -1;
  if (weir_rng_below(rng, 3) == 0) { /* the whole gradient at once now and then */
    s->plan = random_arm(rng);
    s->plan.id = id;
    return;
  }
  for (uint32_t t = 1; t <= TENSORS; t++) {
    if (t < TENSORS && weir_rng_below(rng, 2) != 0) continue;
    const weir_plan plan = random_arm(rng);
    script_add_bucket(s, &count, t, (uint32_t)weir_rng_below(rng, 2), &plan);
  }
  script_close(s, count, id);
}

static void random_course(course *c, uint64_t seed, int ranks) {
  weir_rng rng = weir_rng_of(seed);
  memset(c->steps, 0, sizeof c->steps);
  c->seed = seed;
  c->count = STEPS_MAX;
  bool trial = false;
  for (int s = 0; s < c->count; s++) {
    random_step(&c->steps[s], &rng, (uint64_t)s);
    trial = s > 0 && weir_rng_below(&rng, trial ? 2 : 5) == 0;
    c->steps[s].action = trial ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
    if (weir_rng_below(&rng, 8) == 0)
      c->steps[s].poisoned = (int)weir_rng_below(&rng, (uint64_t)ranks);
  }
}

Test(device, groups_trials_and_poisoned_gradients_leave_the_bits_of_the_host) {
  static course c;
  c.device = test_device_open();
  for (uint64_t seed = 1; seed <= (GROUP_SLOW ? 1 : 4); seed++) {
    lay_out(&c, seed % 2 == 0 ? 700 : 5000);
    c.apart = seed % 3 == 0;
    c.momentum = seed % 2 == 0 ? 0 : 0.75;
    random_course(&c, seed, 3);
    compare(&c, 3, 7, true);
  }
}

/* Steps of a trial build upon each other, and of all of them nothing is left. */
Test(device, long_trials_leave_no_velocity) {
  static const char *const tried[] = {"topk:0.1:ag", "qsgd:0.125:ag", "star:0.1:art-ring",
                                      "none:1:dense-ring", "powersgd:2:dense-ring"};
  static course c;
  c.device = test_device_open();
  for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
    lay_out(&c, 1500);
    memset(c.steps, 0, sizeof c.steps);
    c.momentum = 0.9;
    c.count = 9;
    for (int s = 0; s < c.count; s++) {
      const bool trial = s >= 2 && s < 6;
      c.steps[s] = (script_step){.plan = plan_of(trial ? tried[k] : "topk:0.2:ag", (uint64_t)trial),
                                 .poisoned = -1,
                                 .action = s == 2   ? WEIR_ACTION_TRIAL
                                           : s == 6 ? WEIR_ACTION_SWITCH
                                                    : WEIR_ACTION_KEEP};
    }
    compare(&c, 2, 3, true);
  }
}

/* Whoever decodes, every rank gets the same; and what ranks in host memory keep is their own. */
Test(device, ranks_with_and_without_one_make_a_group) {
  static course c;
  c.device = test_device_open();
  for (uint64_t seed = 11; seed <= (GROUP_SLOW ? 11 : 13); seed++) {
    lay_out(&c, 2000);
    c.momentum = seed == 12 ? 0 : 0.9;
    random_course(&c, seed, 3);
    compare(&c, 3, seed == 11 ? 1 : seed == 12 ? 2 : 5, true);
  }
}

static void three_buckets(script_step *s, const char *text) {
  const weir_plan plan = plan_of(text, 0);
  const uint32_t end[3] = {1, 4, TENSORS};
  for (size_t k = 0; k < 3;) script_add_bucket(s, &k, end[k], WEIR_PLACE_THREAD, &plan);
  script_close(s, 3, 1);
}

/* A message or values leave the device with one wait, and the step ends with one; ART's indices are
 * a wait more where they come from a rank. */
Test(device, steps_wait_once_a_group_and_allocate_nothing) {
  static course c;
  const struct {
    const char *plan;
    uint64_t whole, buckets; /* waits a step */
  } kinds[] = {{"topk:0.1:ag", 2, 4},       {"qsgd:0.125:ag", 2, 4},
               {"none:1:dense-ring", 2, 4}, {"bf16:1:dense-ring", 2, 4},
               {"star:0.1:art-ring", 3, 7}, {"lwtopk:0.1:ag:auto-bf16", 2, 4}};
  c.device = test_device_open();
  c.blind = true;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int buckets = 0; buckets < 2; buckets++) {
      lay_out(&c, 3000);
      memset(c.steps, 0, sizeof c.steps);
      c.count = 6;
      for (int s = 0; s < c.count; s++) {
        c.steps[s] = (script_step){.plan = plan_of(kinds[k].plan, 1), .poisoned = -1};
        if (buckets) three_buckets(&c.steps[s], kinds[k].plan);
      }
      make_room(&c);
      run_course(&c, 2, 3);
      for (int s = 2; s < c.count; s++) {
        cr_assert_eq(c.allocated[s], c.allocated[1], "%s allocates in step %d", kinds[k].plan, s);
        for (int r = 0; r < 2; r++)
          cr_assert_eq(c.waits[r][s] - c.waits[r][s - 1],
                       buckets ? kinds[k].buckets : kinds[k].whole, "%s waits %d times",
                       kinds[k].plan, (int)(c.waits[r][s] - c.waits[r][s - 1]));
      }
      free_room(&c);
    }
}

/* Found before anything is made of it; the residual is what it was. */
Test(device, a_harmed_message_changes_nothing) {
  static course c;
  c.device = test_device_open();
  for (int buckets = 0; buckets < 2; buckets++) {
    lay_out(&c, 3000);
    memset(c.steps, 0, sizeof c.steps);
    c.count = 4;
    c.harmed = 2;
    for (int s = 0; s < c.count; s++) {
      c.steps[s] = (script_step){.plan = plan_of("topk:0.1:ag", 1), .poisoned = -1};
      if (buckets) three_buckets(&c.steps[s], "topk:0.1:ag");
    }
    make_room(&c);
    run_course(&c, 2, 3);
    cr_assert_eq(c.status[1][1], WEIR_OK);
    cr_assert_eq(c.status[1][2], WEIR_E_PROTOCOL, "%d", (int)c.status[1][2]);
    same(c.after[1] + 2 * c.n, c.before[1] + 2 * c.n, c.n, "residual", 1, 2);
    free_room(&c);
  }
}
