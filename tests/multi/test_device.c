/* The engine's steps on a device, beside the same steps in host memory: the same gradients give the
 * same bits in averages and residuals where codecs are exact, and lose nothing where their sums run
 * in another order; over changing plans, buckets and trials, and in groups of ranks with and
 * without a device.  tests/emulate's device does nothing before it is waited for. */
#include "../sampled.h"
#include "device_course.h"

/* Compressed on the way, by every encoder and row. */
static const char *const encoders[] = {
    "fp16:0.5",           "qsgd:0.25",         "qsgd:0.125",           "qsgd:0.0625",
    "qsgd-nearest:0.125", "qsgd-l2:0.125",     "qsgd-l2-nearest:0.25", "terngrad:0.0625",
    "onebit:0.03125",     "efsignsgd:0.03125", "minifloat:0.25",       "minifloat:0.15625",
    "companded:0.125",    "companded:0.09375", "companded:0.109375"};
static const char *const rows[] = {"sra", "compressed-ring", "compressed-tree", "hier-sra"};
#define ENCODERS (sizeof encoders / sizeof *encoders)
#define ROWS (sizeof rows / sizeof *rows)

static const char *summed(char text[WEIR_PLAN_TEXT_MAX], size_t encoder, size_t row) {
  (void)snprintf(text, WEIR_PLAN_TEXT_MAX, "%s:%s", encoders[encoder], rows[row]);
  return text;
}

/* What works inside of machines, or with other buckets of elements. */
static const char *const inside_arms[] = {"topk:0.1:hitopk",
                                          "topk:0.02:hitopk:auto-fp32",
                                          "topk:0.3:hitopk:auto-bf16",
                                          "mstopk:0.1:hitopk:auto-fp16",
                                          "sidco:0.1:hitopk:auto-fp32",
                                          "qsgd:0.0625:sra:bucket=64",
                                          "qsgd-l2:0.25:compressed-ring:bucket=8192",
                                          "qsgd:0.125:path=c.a2a.d.c.g.d.b.ag",
                                          "onebit:0.03125:path=r.c.g.d.c.b.d.c.b.d",
                                          "minifloat:0.25:path=rs.c.ag.d.ag",
                                          "companded:0.125:path=rs.c.ag.d.ag",
                                          "none:1:path=r.ar.b"};
#define INSIDE_ARMS (sizeof inside_arms / sizeof *inside_arms)

/* Machines; who has a device. */
static const struct {
  const char *machines;
  unsigned where;
} places[] = {{"aabb", 15}, {"abab", 5},    {"abcd", 15}, {"aaab", 10},
              {"aba", 7},   {"aaabbb", 41}, {"ab", 1},    {"ababab", 63}};
#define PLACES (sizeof places / sizeof *places)

static void try_at(course *c, const char *text, size_t place, size_t n) {
  const char *machines = places[place].machines;
  const weir_plan plan = plan_of(text, 1);
  if ((c->momentum > 0 && !is_exact(&plan)) || !sampled_of_dear(6)) return;
  lay_out(c, n);
  c->apart = place % 2 == 1;
  c->seed = place + 1;
  c->count = 3; /* of which the last finds what two have kept back */
  c->machines = machines;
  for (int s = 0; s < c->count; s++) c->steps[s] = (script_step){.plan = plan, .poisoned = -1};
  compare(c, (int)strlen(machines), places[place].where, is_exact(&plan));
}

/* A share of a few elements is shorter than its message; the longest gradient is several messages
 * a share.  The velocity is added before anything is encoded: with it each pair has one length and
 * one place, so that every encoder and every row has each length, and tensors that lie apart. */
static void try_encoders(double momentum) {
  static const size_t lengths[] = {1500, 13, 9001, 70001};
  static course c;
  char text[WEIR_PLAN_TEXT_MAX];
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t e = 0; e < ENCODERS; e++)
    for (size_t row = 0; row < ROWS; row++) {
      const size_t all = GROUP_SLOW ? 2 : (e + row) % 3 == 0 ? 4 : 3;
      const size_t one = (e + row) % (GROUP_SLOW ? 2 : 4), place = e + row + e / 2 + row / 2;
      summed(text, e, row);
      if (momentum > 0)
        try_at(&c, text, (place + one) % PLACES, lengths[one]);
      else
        for (size_t l = 0; l < all; l++) try_at(&c, text, (e + row + l) % PLACES, lengths[l]);
    }
}

Test(device, sums_of_messages_have_the_bits_of_the_host) { try_encoders(0); }

/* Some ranks have a share of nothing. */
Test(device, sums_of_few_elements_have_the_bits_of_the_host) {
  static course c;
  char text[WEIR_PLAN_TEXT_MAX];
  c.device = test_device_open();
  for (size_t n = 1; n < 4; n++)
    for (size_t place = 0; place < PLACES; place++) {
      for (size_t row = 0; row < ROWS; row++)
        try_at(&c, summed(text, (n + place) % ENCODERS, row), place, n);
      for (size_t arm = 0; arm < INSIDE_ARMS; arm += 2) try_at(&c, inside_arms[arm], place, n);
    }
}

Test(device, sums_of_messages_have_the_bits_of_the_host_with_momentum) { try_encoders(0.9); }

/* What is larger than the largest float counts as that, where sums are encoded, and no residual
 * becomes Inf. */
Test(device, large_sums_have_the_bits_of_the_host) {
  static const char *const plans[] = {
      "qsgd:0.125:sra",     "qsgd:0.125:compressed-ring", "qsgd-l2:0.25:compressed-tree",
      "topk:0.01:hitopk",   "fp16:0.5:compressed-tree",   "onebit:0.03125:sra",
      "minifloat:0.25:sra", "companded:0.125:sra"};
  static course c;
  c.device = test_device_open();
  c.huge = true;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (int mixed = 0; mixed < 2; mixed++) {
      const weir_plan plan = plan_of(plans[p], 1);
      lay_out(&c, 1500);
      c.machines = "aabb";
      c.seed = p + 1;
      c.count = 1;
      c.steps[0] = (script_step){.plan = plan, .poisoned = -1};
      compare(&c, 4, mixed ? 6 : 15, true);
    }
}

/* With a velocity at half of the places, of which half have tensors that lie apart. */
static void try_inside(double momentum) {
  static course c;
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t arm = 0; arm < INSIDE_ARMS; arm++)
    for (size_t place = 0; place < PLACES; place++)
      if (momentum == 0 || (place / 2 + arm) % 2 == 0)
        try_at(&c, inside_arms[arm], place, (arm + place) % 3 == 0 ? 9001 : place == 1 ? 7 : 1500);
}

Test(device, what_machines_sum_has_the_bits_of_the_host) { try_inside(0); }

Test(device, what_machines_sum_has_the_bits_of_the_host_with_momentum) { try_inside(0.9); }

static void try_arms(double momentum) {
  static course c;
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t arm = 0; arm < ARMS; arm++)
    for (int shape = 0; shape < (GROUP_SLOW ? 1 : 2); shape++) {
      const weir_plan plan = plan_of(arms[arm], 1);
      if ((momentum > 0 && !is_exact(&plan)) || !sampled_of_dear(4)) continue;
      lay_out(&c, shape == 0 ? 1500 : 9001);
      c.apart = shape == 1;
      c.seed = arm + 1;
      c.count = 4;
      for (int s = 0; s < c.count; s++) c.steps[s] = (script_step){.plan = plan, .poisoned = -1};
      compare(&c, 2 + shape, shape == 0 ? 3 : 7, is_exact(&plan));
    }
}

Test(device, every_arm_gives_the_bits_of_the_host) { try_arms(0); }

/* What a step does to the velocity, the next one's average shows. */
Test(device, momentum_correction_gives_the_bits_of_the_host) { try_arms(0.9); }

/* Of more rows than its sums run through at once a matrix has another Q than on the host; what that
 * does not send, or rounding loses of it, stays in the residual. */
Test(device, tall_matrices_lose_nothing) {
  static const char *const plans[] = {"powersgd:1:dense-ring", "powersgd:1:dense-ring:auto-bf16",
                                      "powersgd:1:dense-sra"};
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
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (unsigned where = 1; where <= 3; where += 2) {
      for (int s = 0; s < c.count; s++)
        c.steps[s] = (script_step){.plan = plan_of(plans[p], 1), .poisoned = -1};
      compare(&c, 2, where, false);
    }
}

/* --- courses of changing plans ---------------------------------------------------------------- */

static weir_plan random_arm(weir_rng *rng) {
  weir_plan plan;
  char text[WEIR_PLAN_TEXT_MAX];
  do {
    if (weir_rng_below(rng, 2) == 0)
      plan = plan_of(arms[weir_rng_below(rng, ARMS)], 0);
    else if (weir_rng_below(rng, 2) == 0)
      plan = plan_of(inside_arms[weir_rng_below(rng, INSIDE_ARMS)], 0);
    else
      plan = plan_of(summed(text, weir_rng_below(rng, ENCODERS), weir_rng_below(rng, ROWS)), 0);
  } while (!is_exact(&plan));
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
    const bool within = trial;
    trial = s > 0 && weir_rng_below(&rng, trial ? 2 : 5) == 0;
    c->steps[s].action = !trial                                   ? WEIR_ACTION_SWITCH
                         : within && weir_rng_below(&rng, 2) == 0 ? WEIR_ACTION_FOLLOW
                                                                  : WEIR_ACTION_TRIAL;
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
    c.machines = seed % 2 == 0 ? "aabb" : "abab";
    random_course(&c, seed, 4);
    compare(&c, 4, 15, true);
  }
}

/* Steps of a trial build upon each other, also where another plan follows in it, and of all of them
 * nothing is left. */
Test(device, long_trials_leave_no_velocity) {
  static const char *const tried[] = {
      "topk:0.1:ag",           "qsgd:0.125:ag",        "star:0.1:art-ring", "none:1:dense-ring",
      "powersgd:2:dense-ring", "powersgd:2:dense-sra", "topk:0.1:hitopk",   "qsgd:0.125:sra"};
  static course c;
  c.device = test_device_open();
  for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
    lay_out(&c, 1500);
    memset(c.steps, 0, sizeof c.steps);
    c.momentum = 0.9;
    c.count = 9;
    for (int s = 0; s < c.count; s++) {
      const bool arm = s >= 2 && s < 5;
      c.steps[s] = (script_step){.plan = plan_of(arm ? tried[k] : "topk:0.2:ag", (uint64_t)arm),
                                 .poisoned = -1,
                                 .action = s == 2   ? WEIR_ACTION_TRIAL
                                           : s == 5 ? WEIR_ACTION_FOLLOW
                                           : s == 7 ? WEIR_ACTION_SWITCH
                                                    : WEIR_ACTION_KEEP};
    }
    c.machines = "aabb";
    compare(&c, 4, 7, true);
  }
}

/* Whoever decodes, every rank gets the same; and what ranks in host memory keep is their own. */
Test(device, ranks_with_and_without_one_make_a_group) {
  static course c;
  c.device = test_device_open();
  for (uint64_t seed = 11; seed <= (GROUP_SLOW ? 11 : 13); seed++) {
    lay_out(&c, 2000);
    c.momentum = seed == 12 ? 0 : 0.9;
    c.machines = seed == 12 ? "aabb" : "abab";
    random_course(&c, seed, 4);
    compare(&c, 4, seed == 11 ? 1 : seed == 12 ? 6 : 11, true);
  }
}

static void three_buckets(script_step *s, const char *text) {
  const weir_plan plan = plan_of(text, 0);
  const uint32_t end[3] = {1, 4, TENSORS};
  for (size_t k = 0; k < 3;) script_add_bucket(s, &k, end[k], WEIR_PLACE_THREAD, &plan);
  script_close(s, 3, 1);
}

/* A message or values leave the device with one wait, and the step ends with one; ART's indices are
 * a wait more where they come from a rank.  Sums of messages that the device makes take one for
 * each time that messages leave it: sra for values and for sums (fp16's values go in two parts), a
 * ring of two for either hop, a tree once.  HiTopKComm's message is made when a machine's ranks
 * have summed.  Low rank waits for P and for Q, rounded no
 * more often. */
Test(device, steps_wait_once_a_group_and_allocate_nothing) {
  static course c;
  const struct {
    const char *plan;
    uint64_t whole, buckets; /* waits a step */
  } kinds[] = {{"topk:0.1:ag", 2, 4},          {"qsgd:0.125:ag", 2, 4},
               {"none:1:dense-ring", 2, 4},    {"bf16:1:dense-ring", 2, 4},
               {"star:0.1:art-ring", 3, 7},    {"lwtopk:0.1:ag:auto-bf16", 2, 4},
               {"qsgd:0.125:sra", 4, 10},      {"qsgd:0.25:compressed-ring", 4, 10},
               {"fp16:0.5:sra", 5, 13},        {"qsgd:0.125:compressed-tree", 3, 7},
               {"onebit:0.03125:sra", 2, 4},   {"qsgd:0.125:path=c.ag.d", 2, 4},
               {"minifloat:0.25:ag", 2, 4},    {"minifloat:0.25:sra", 4, 10},
               {"companded:0.125:ag", 2, 4},   {"companded:0.125:sra", 4, 10},
               {"topk:0.1:hitopk", 3, 7},      {"powersgd:2:dense-ring", 3, 7},
               {"powersgd:2:dense-sra", 3, 7}, {"powersgd:2:dense-tree:auto-bf16", 3, 7}};
  c.device = test_device_open();
  c.blind = true;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int buckets = 0; buckets < 2; buckets++) {
      lay_out(&c, 3000);
      const bool shares = strstr(kinds[k].plan, "hitopk") != NULL;
      c.machines = shares ? "aabb" : NULL;
      memset(c.steps, 0, sizeof c.steps);
      c.count = 6;
      for (int s = 0; s < c.count; s++) {
        c.steps[s] = (script_step){.plan = plan_of(kinds[k].plan, 1), .poisoned = -1};
        if (buckets) three_buckets(&c.steps[s], kinds[k].plan);
      }
      make_room(&c);
      run_course(&c, shares ? 4 : 2, shares ? 15 : 3);
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
static void harm_one_of(const char *text, int buckets, const char *machines) {
  static course c;
  c.device = test_device_open();
  lay_out(&c, 3000);
  c.machines = machines;
  memset(c.steps, 0, sizeof c.steps);
  c.count = 4;
  c.harmed = 2;
  for (int s = 0; s < c.count; s++) {
    c.steps[s] = (script_step){.plan = plan_of(text, 1), .poisoned = -1};
    if (buckets) three_buckets(&c.steps[s], text);
  }
  make_room(&c);
  run_course(&c, machines != NULL ? 4 : 2, machines != NULL ? 15 : 3);
  cr_assert_eq(c.status[1][1], WEIR_OK);
  cr_assert_eq(c.status[1][2], WEIR_E_PROTOCOL, "%d", (int)c.status[1][2]);
  same(c.after[1] + 2 * c.n, c.before[1] + 2 * c.n, c.n, "residual", 1, 2);
  free_room(&c);
}

Test(device, a_harmed_message_changes_nothing) {
  static const char *const plans[] = {"topk:0.1:ag",
                                      "qsgd:0.125:sra",
                                      "fp16:0.5:compressed-ring",
                                      "qsgd:0.125:compressed-tree",
                                      "onebit:0.03125:sra",
                                      "minifloat:0.25:sra",
                                      "companded:0.125:sra"};
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (int buckets = 0; buckets < 2; buckets++) harm_one_of(plans[p], buckets, NULL);
  harm_one_of("topk:0.1:hitopk", 0, "aabb");
  harm_one_of("qsgd:0.125:hier-sra", 1, "aabb");
}
