/* The decision way as a whole, on networks that change: every policy, and its thread. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/inside.h>

#include "base/base.h"
#include "collectives/cost.h"
#include "controller/controller.h"
#include "controller/decide.h"

#define RANKS 4
#define ELEMENTS ((size_t)1000000)

/* A world that obeys the model exactly: what one step's headers would say, and the timing of the
 * engine: a directive proposed while step t's headers are written is in force at step t + 1. */
typedef struct world {
  weir_plan plan, kept; /* in force; before the trial */
  bool trial;
  uint64_t step, exchange;
  double latency, bandwidth;
  double slow_arm; /* factor on the communication of `slow` */
  weir_plan slow;
  double divided;              /* factor on the communication of buckets; 0: 1 */
  double stall;                /* s that computing takes longer */
  bool spike;                  /* the last exchange before buckets takes thrice its time */
  int suspects;                /* ranks that suspect another network */
  bool silent;                 /* no loss is reported */
  double var_loss;             /* under VAR; 0: as under others */
  bool root_selects;           /* compressing takes the rank of the step's turn 8 ms, others 1 ms */
  double drift;                /* gain is divided by 1 + drift */
  double comm, compress, gain; /* of the step before */
  int trial_steps[10], trials, probes;
  double trial_cr[10];
  uint32_t trial_codec[10];
} world;

static const double curve[] = {0.97, 0.8, 0.55, 0.33, 0.2, 0.13, 0.09, 0.04};

static double true_gain(const world *w, const weir_plan *plan) {
  if (plan->codec == WEIR_CODEC_NONE || plan->codec == WEIR_CODEC_BF16) return 1.0;
  double top = weir_curve_gain(weir_curve_cr, curve, plan->cr);
  if (plan->codec == WEIR_CODEC_STAR) top = weir_shared_gain(0.5, top, plan->cr);
  return top / (1.0 + w->drift);
}

static weir_cost_terms true_terms(const weir_plan *plan) {
  return weir_cost_plan(plan, RANKS, ELEMENTS, weir_cost_kept(plan, ELEMENTS));
}

/* A pass over all elements, and adding up what the ranks kept; a machine 1.5 times as slow as the
 * model's priors say. */
static double true_compress(const weir_plan *plan) {
  const double all = (double)ELEMENTS;
  if (weir_plan_safe(plan)) return 0.9e-9 * all;
  const double ranks = plan->codec == WEIR_CODEC_STAR ? 1 : RANKS;
  return 3e-9 * all + 6e-9 * ranks * plan->cr * all;
}

static double true_seconds(const world *w, const weir_plan *plan) {
  const weir_cost_terms terms = true_terms(plan);
  return 0.02 + true_compress(plan) + weir_cost_seconds(&terms, w->latency, 1 / w->bandwidth);
}

static void write_headers(const world *w, weir_header headers[RANKS], weir_step_record *record) {
  memset(headers, 0, RANKS * sizeof *headers);
  memset(record, 0, sizeof *record);
  for (int r = 0; r < RANKS; r++) {
    headers[r].compute_s = 0.02 + w->stall;
    if (r < w->suspects) headers[r].flags |= WEIR_HEADER_SUSPECT;
    headers[r].compress_s = w->compress;
    headers[r].comm_s = headers[r].wait_s = w->comm; /* nothing hides it */
    headers[r].gain = w->gain;
    headers[r].loss = w->silent                                            ? NAN
                      : w->var_loss > 0 && w->plan.codec == WEIR_CODEC_VAR ? (float)w->var_loss
                                                                           : 1;
    if (w->root_selects)
      headers[r].compress_s = (uint64_t)r == (w->exchange + RANKS - 1) % RANKS ? 8e-3 : 1e-3;
    headers[r].latency_s = w->latency;
    headers[r].bandwidth = w->bandwidth;
    headers[r].latency_error = headers[r].bandwidth_error = 0.02;
    for (int i = 0; i < WEIR_CURVE_POINTS; i++) headers[r].curve[i] = curve[i] / (1.0 + w->drift);
  }
  record->info.step = w->step;
  record->info.plan = w->plan;
  record->info.trial = w->trial;
  record->terms = true_terms(&w->plan);
}

static void finish(world *w, const weir_directive *directive) {
  const weir_cost_terms terms = true_terms(&w->plan);
  w->comm = weir_cost_seconds(&terms, w->latency, 1 / w->bandwidth);
  if (w->slow_arm > 0 && weir_arm_of(&w->plan) == weir_arm_of(&w->slow)) w->comm *= w->slow_arm;
  if (w->divided > 0 && w->plan.buckets > 0) w->comm *= w->divided;
  if (w->spike && directive->plan.buckets > 0 && w->plan.buckets == 0) w->comm *= 3.0;
  w->compress = true_compress(&w->plan);
  w->gain = true_gain(w, &w->plan);
  if (w->trial)
    w->trial_steps[w->trials - 1]++;
  else
    w->step++;
  w->exchange++;
  if (directive->action == WEIR_ACTION_PROBE || directive->action == WEIR_ACTION_SAMPLE)
    w->probes++;
  if (directive->action == WEIR_ACTION_TRIAL) {
    if (!w->trial) w->kept = w->plan;
    w->trial = true;
    cr_assert_lt(w->trials, 10);
    w->trial_codec[w->trials] = directive->plan.codec;
    w->trial_cr[w->trials++] = directive->plan.cr;
    w->plan = directive->plan;
  }
  if (directive->action == WEIR_ACTION_SWITCH) {
    w->trial = false;
    w->plan = directive->plan;
  }
}

/* One step: headers are written (propose), exchanged, observed. */
static weir_directive step(weir_controller *controller, world *w) {
  weir_header headers[RANKS];
  weir_step_record record;
  weir_directive directive;
  weir_controller_propose(controller, &directive);
  write_headers(w, headers, &record);
  weir_controller_observe(controller, headers, RANKS, &record);
  finish(w, &directive);
  return directive;
}

static const size_t offsets[] = {0, ELEMENTS};

static weir_controller_config config_of(const char *policy, const char *journal) {
  return (weir_controller_config){.policy = policy,
                                  .risk = "bold", /* whose gains and ratios this file is about */
                                  .update_rule = "adaptive",
                                  .world_size = RANKS,
                                  .layout = {1, offsets},
                                  .seed = 5,
                                  .journal_path = journal};
}

static weir_controller *create_by(const weir_controller_config *config) {
  weir_controller *controller;
  cr_assert_eq(weir_controller_create(&controller, config), WEIR_OK, "%s", weir_last_error());
  return controller;
}

static weir_controller *create(const char *policy, const char *journal, bool threaded) {
  weir_controller_config config = config_of(policy, journal);
  config.threaded = threaded;
  return create_by(&config);
}

static world start(const char *policy) {
  world w = {.latency = 1e-3, .bandwidth = 3e9, .gain = 1.0};
  cr_assert_eq(weir_policy_first_plan(policy, NULL, &w.plan), WEIR_OK);
  return w;
}

/* What the plan in force achieves, against every arm at 400 ratios, in the true world. */
static double achieved(const world *w, double *best) {
  double mine = 0;
  *best = 0;
  for (int a = -1; a < WEIR_BOLD_ARMS; a++)
    for (int i = 0; i <= 400; i++) {
      weir_plan plan = w->plan;
      if (a >= 0) {
        plan = weir_arm_at((size_t)a)->plan;
        if (plan.codec > WEIR_CODEC_BF16) plan.cr = fmin(1.0, 0.001 * pow(1000.0, i / 400.0));
      }
      const double rate = (plan.codec == WEIR_CODEC_STAR ? 0.6 : 1.0) *
                          pow(true_gain(w, &plan), 0.3) / true_seconds(w, &plan);
      if (a < 0)
        mine = rate;
      else if (rate > *best)
        *best = rate;
    }
  return mine;
}

Test(loop, four_phases_each_answered_within_two_steps_and_near_the_best) {
  const double latency[] = {1e-3, 1e-3, 5e-2, 5e-2}, bandwidth[] = {3e9, 1e7, 1e7, 3e9};
  weir_controller *controller = create("weir", NULL, false);
  world w = start("weir");
  for (int phase = 0; phase < 4; phase++) {
    w.latency = latency[phase];
    w.bandwidth = bandwidth[phase];
    const uint64_t before = w.plan.id;
    double best;
    for (int i = 0; i < 2; i++) step(controller, &w);
    if (phase > 0) cr_assert_neq(w.plan.id, before, "phase %d not answered at once", phase);
    for (int i = 0; i < 110; i++) step(controller, &w);
    const double mine = achieved(&w, &best);
    cr_assert_geq(mine, 0.93 * best, "phase %d: %g of %g", phase, mine, best);
    cr_assert_eq(w.trials, 0);
  }
  weir_controller_free(controller);
}

/* A step's seconds under every plan that keeps the loss without evidence, whatever the optimizer
 * does, in the true world. */
static double fastest_safe(const world *w) {
  static const char *const plans[] = {"none:1:dense-ring",     "none:1:dense-tree",
                                      "none:1:dense-halving",  "none:1:dense-double-tree",
                                      "bf16:1:dense-ring",     "bf16:1:dense-tree",
                                      "bf16:1:dense-halving",  "bf16:1:dense-double-tree",
                                      "fp16:0.5:ag",           "fp16:0.5:sra",
                                      "companded:0.15625:ag",  "companded:0.15625:sra",
                                      "companded:0.125:ag",    "companded:0.125:sra",
                                      "companded:0.109375:ag", "companded:0.109375:sra"};
  double least = INFINITY;
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    weir_plan plan;
    cr_assert_eq(weir_plan_parse(plans[i], &plan), WEIR_OK);
    least = fmin(least, true_seconds(w, &plan));
  }
  return least;
}

Test(loop, by_default_only_plans_that_keep_the_loss_run_and_the_fastest_of_them) {
  const double latency[] = {1e-3, 1e-3, 5e-2, 5e-2}, bandwidth[] = {3e9, 1e7, 1e7, 3e9};
  weir_controller_config config = config_of("weir", NULL);
  config.risk = NULL;
  weir_controller *controller = create_by(&config);
  world w = start("weir");
  w.silent = true;
  for (int i = 0; i < 500; i++) { /* in which 4 bits are not taken */
    w.bandwidth = 1e7;
    step(controller, &w);
    cr_assert(weir_plan_safe(&w.plan) && w.plan.cr >= 5.0 / 32);
  }
  for (int phase = 0; phase < 4; phase++) {
    w.latency = latency[phase];
    w.bandwidth = bandwidth[phase];
    for (int i = 0; i < 110; i++) {
      step(controller, &w);
      cr_assert(weir_plan_safe(&w.plan));
      cr_assert_not(weir_controller_want_curve(controller));
    }
    const double mine = true_seconds(&w, &w.plan), best = fastest_safe(&w);
    cr_assert_leq(mine, 1.06 * best, "phase %d: %g s instead of %g s", phase, mine, best);
  }
  weir_controller_free(controller);
}

Test(loop, gain_drift_and_silence) {
  weir_controller *controller = create("weir", NULL, false);
  world w = start("weir");
  w.bandwidth = 1e7;
  for (int i = 0; i < 20; i++) step(controller, &w);
  const uint64_t settled = w.plan.id;
  for (int i = 0; i < 200; i++) step(controller, &w); /* nothing changes: nothing is done */
  cr_assert_leq(w.plan.id, settled + 1);
  cr_assert_eq(w.probes, 0);
  weir_controller_free(controller);
}

Test(loop, probes_once_then_ever_more_rarely) {
  weir_controller *controller = create("weir", NULL, false);
  world w = start("weir");
  w.bandwidth = 1e7;
  for (int i = 0; i < 30; i++) step(controller, &w);
  w.slow = w.plan; /* this arm alone becomes eight times slower: the network is as before */
  w.slow_arm = 8.0;
  for (int i = 0; i < 4; i++) step(controller, &w);
  cr_assert_eq(w.probes, 1);
  for (int i = 0; i < 100; i++) step(controller, &w);
  cr_assert_leq(w.probes, 4);                                /* spacing at least 10, 20, 40, 80 */
  cr_assert_neq(weir_arm_of(&w.plan), weir_arm_of(&w.slow)); /* and the arm is given up */
  weir_controller_free(controller);
}

Test(loop, paper_runs_five_trials_of_ten_steps_and_then_decides) {
  weir_controller *controller = create("paper", NULL, false);
  world w = start("paper");
  const double expected[] = {0.1, 0.033, 0.011, 0.004, 0.001};
  int steps = 0;
  while (!(w.trials == 5 && !w.trial) && steps++ < 200) step(controller, &w);
  cr_assert_eq(w.trials, 5);
  for (int i = 0; i < 5; i++) {
    cr_assert_eq(w.trial_cr[i], expected[i]);
    cr_assert_eq(w.trial_steps[i], 10, "candidate %d ran %d steps", i, w.trial_steps[i]);
  }
  cr_assert(weir_same_plan(&w.plan, &w.kept)); /* the restored plan, then the decision */
  const uint64_t restored = w.plan.id;
  for (int i = 0; i < 2; i++) step(controller, &w);
  cr_assert_eq(w.plan.id, restored + 1);
  cr_assert(w.plan.cr >= 0.001 && w.plan.cr <= 0.1 && w.plan.wire == WEIR_WIRE_PAPER);
  for (int i = 0; i < 30; i++) step(controller, &w); /* steady gain: no further trials */
  cr_assert_eq(w.trials, 5);
  w.trials = 0;
  w.drift = 0.05; /* below the threshold of a tenth */
  for (int i = 0; i < 40; i++) step(controller, &w);
  cr_assert_eq(w.trials, 0);
  w.drift = 0.25; /* a fifth less gain */
  for (int i = 0; i < 40; i++) step(controller, &w);
  cr_assert_gt(w.trials, 0);
  weir_controller_free(controller);
}

/* At 1 ms and 1e7 bytes/s four ranks take 2 ms + 2.4 s c by AG, 8 ms + 1.4 s c by ART-Ring and
 * 6 ms + 2.4 s c by ART-Tree (eq. 4): ART-Ring above c = 0.006, AG below. */
static world on_a_slow_link(const char *policy) {
  world w = start(policy);
  w.bandwidth = 1e7;
  return w;
}

static void after_trials(weir_controller *controller, world *w) {
  int steps = 0;
  const int before = w->trials;
  while (!(w->trials > before && !w->trial) && steps++ < 200) step(controller, w);
  for (int i = 0; i < 3; i++) step(controller, w); /* the decision comes into force */
}

/* Both codecs of shared indices take the batches of each ratio that goes by all-reduce, and the one
 * that the loss is lower with goes on, until trials tell otherwise. */
Test(loop, paper_switches_between_star_and_var_by_the_loss) {
  static const double cr[] = {0.1, 0.1, 0.033, 0.033, 0.011, 0.011, 0.004, 0.001};
  static const uint32_t codec[] = {WEIR_CODEC_STAR,   WEIR_CODEC_VAR,   WEIR_CODEC_STAR,
                                   WEIR_CODEC_VAR,    WEIR_CODEC_STAR,  WEIR_CODEC_VAR,
                                   WEIR_CODEC_LWTOPK, WEIR_CODEC_LWTOPK};
  weir_controller *controller = create("paper:lwtopk+star+var", NULL, false);
  world w = on_a_slow_link("paper:lwtopk+star+var");
  cr_assert_eq(w.plan.codec, (uint32_t)WEIR_CODEC_LWTOPK);
  w.var_loss = 0.9;
  after_trials(controller, &w);
  cr_assert_eq(w.trials, 8);
  for (int i = 0; i < 8; i++) {
    cr_assert_eq(w.trial_cr[i], cr[i]);
    cr_assert_eq(w.trial_codec[i], codec[i], "trial %d: %s", i, weir_codec_name(w.trial_codec[i]));
    cr_assert_eq(w.trial_steps[i], 10, "trial %d: %d steps", i, w.trial_steps[i]);
  }
  w.bandwidth = 1e6; /* where ART-Ring goes at every ratio of the search */
  for (int i = 0; i < 5; i++) step(controller, &w);
  cr_assert_eq(w.trials, 8);
  cr_assert_eq(w.plan.codec, (uint32_t)WEIR_CODEC_VAR, "%s", weir_codec_name(w.plan.codec));
  w.trials = 0;
  memset(w.trial_steps, 0, sizeof w.trial_steps);
  for (int i = 0; i < 20; i++) step(controller, &w);
  cr_assert_eq(w.trials, 0);
  w.drift = 0.25; /* trials again, in which VAR is now the worse */
  w.var_loss = 1.1;
  after_trials(controller, &w);
  cr_assert_eq(w.trials, 10);
  cr_assert_eq(w.plan.codec, (uint32_t)WEIR_CODEC_STAR, "%s", weir_codec_name(w.plan.codec));
  weir_controller_free(controller);
}

Test(loop, paper_stays_with_star_where_losses_tell_nothing) {
  for (int silent = 0; silent <= 1; silent++) {
    weir_controller *controller = create("paper:star+var", NULL, false);
    world w = on_a_slow_link("paper:star+var");
    w.bandwidth = 1e6;
    w.silent = silent;
    after_trials(controller, &w);
    cr_assert_eq(w.trials, 10);
    cr_assert_eq(w.plan.codec, (uint32_t)WEIR_CODEC_STAR);
    weir_controller_free(controller);
  }
}

/* The ms that the decision's n-th candidate takes to compress. */
static double compress_ms(const char *line, int n) {
  const char *at = strstr(line, "\"candidates\":[");
  for (int i = 0; at != NULL && i <= n; i++) at = strstr(at + 1, "\"t_comp_ms\":");
  cr_assert_not_null(at);
  return strtod(at + strlen("\"t_comp_ms\":"), NULL);
}

/* All wait for the rank that selects for all: 8 ms.  Where each selects for itself, it is the mean
 * of 8, 1, 1 and 1 ms. */
Test(loop, selecting_for_all_costs_what_it_takes_the_root) {
  char path[] = "/tmp/weir-journal-XXXXXX";
  static char line[1 << 17];
  const int descriptor = mkstemp(path);
  cr_assert_geq(descriptor, 0);
  close(descriptor);
  weir_controller *controller = create("paper:var", path, false);
  world w = on_a_slow_link("paper:var");
  w.root_selects = true;
  after_trials(controller, &w);
  weir_controller_free(controller);
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  cr_assert_not_null(fgets(line, sizeof line, file));
  for (int i = 0; i < 5; i++)
    cr_assert_float_eq(compress_ms(line, i), i < 3 ? 8.0 : 2.75, 1e-6, "candidate %d: %g ms", i,
                       compress_ms(line, i));
  fclose(file);
  unlink(path);
}

Test(loop, paper_searches_again_without_trials_when_the_network_moves) {
  weir_controller *controller = create("paper", NULL, false);
  world w = start("paper");
  for (int i = 0; i < 80; i++) step(controller, &w);
  const uint64_t before = w.plan.id;
  w.latency = 5e-2;
  w.bandwidth = 1e5;
  w.trials = 0;
  for (int i = 0; i < 2; i++) step(controller, &w);
  cr_assert_gt(w.plan.id, before);
  cr_assert_eq(w.trials, 0);
  weir_controller_free(controller);
}

static int decided_for_latency(const char *path) {
  static char line[1 << 17];
  int lines = 0;
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  while (fgets(line, sizeof line, file)) lines += strstr(line, "\"trigger\":\"latency\"") != NULL;
  fclose(file);
  return lines;
}

/* Steps of 20 ms and more do not feel 10 us more or less, which 12 messages of two rings make 120
 * us of; 1 ms they do. */
Test(loop, a_latency_that_no_step_feels_is_no_reason_to_decide) {
  char path[] = "/tmp/weir-journal-XXXXXX";
  const int descriptor = mkstemp(path);
  cr_assert_geq(descriptor, 0);
  close(descriptor);
  weir_controller *controller = create("weir", path, false);
  world w = start("weir");
  for (int i = 0; i < 150; i++) {
    w.latency = i / 7 % 2 ? 2e-5 : 1e-5;
    step(controller, &w);
  }
  cr_assert_eq(decided_for_latency(path), 0);
  w.latency = 1e-3;
  for (int i = 0; i < 5; i++) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_eq(decided_for_latency(path), 1);
  unlink(path);
}

Test(loop, fixed_never_moves) {
  weir_controller *controller = create("fixed:star:0.01:art-tree", NULL, false);
  world w = start("fixed:star:0.01:art-tree");
  for (int i = 0; i < 50; i++) {
    w.bandwidth = i % 2 ? 1e6 : 1e9;
    cr_assert_eq(step(controller, &w).action, (uint32_t)WEIR_ACTION_KEEP);
  }
  cr_assert_not(weir_controller_want_curve(controller));
  weir_controller_free(controller);
}

/* Where a fixed policy leaves the algorithm open, the one that runs is never more than the
 * hysteresis off the fastest, in a world of these rows alone; its codec, scheme and ratio stay, and
 * one that names its algorithm keeps it. */
static void follow(const char *policy, const char *const *rivals, size_t count) {
  const double latency[] = {1e-3, 5e-2, 5e-2, 1e-3}, bandwidth[] = {1e7, 1e7, 3e9, 3e9};
  weir_controller *controller = create(policy, NULL, false);
  world w = start(policy);
  const weir_plan first = w.plan;
  uint32_t seen = 0;
  for (int phase = 0; phase < 4; phase++) {
    double least = INFINITY;
    w.latency = latency[phase];
    w.bandwidth = bandwidth[phase];
    for (int i = 0; i < 20; i++) step(controller, &w);
    for (size_t i = 0; i < count; i++) {
      weir_plan rival;
      cr_assert_eq(weir_plan_parse(rivals[i], &rival), WEIR_OK);
      const weir_cost_terms terms = true_terms(&rival);
      least = fmin(least, weir_cost_seconds(&terms, w.latency, 1 / w.bandwidth));
    }
    const weir_cost_terms mine = true_terms(&w.plan);
    cr_assert_leq(weir_cost_seconds(&mine, w.latency, 1 / w.bandwidth), 1.06 * least,
                  "%s, phase %d", policy, phase);
    cr_assert(w.plan.codec == first.codec && w.plan.scheme == first.scheme &&
              w.plan.cr == first.cr && w.plan.wire == first.wire);
    seen |= 1u << w.plan.algorithm;
  }
  cr_assert_neq(seen & (seen - 1), 0u, "%s: one algorithm on four networks", policy);
  weir_controller_free(controller);
}

Test(loop, an_open_algorithm_follows_the_network) {
  static const char *const dense[] = {"none:1:dense-ring",     "none:1:dense-tree",
                                      "none:1:dense-halving",  "none:1:dense-torus",
                                      "none:1:dense-star",     "none:1:dense-double-tree",
                                      "none:1:dense-doubling", "none:1:dense-direct"};
  static const char *const shared[] = {
      "star:0.1:art-ring",       "star:0.1:art-tree",         "star:0.1:art-halving",
      "star:0.1:art-torus",      "star:0.1:art-star",         "star:0.1:art-double-tree",
      "star:0.1:art-doubling",   "star:0.1:art-direct",       "star:0.1:art-halving+chain",
      "star:0.1:art-ring+chain", "star:0.1:art-direct+chain", "star:0.1:art-direct+direct"};
  follow("fixed:none:1:dense", dense, sizeof dense / sizeof *dense);
  follow("fixed:star:0.1:art", shared, sizeof shared / sizeof *shared);
}

static void nap(void) {
  const struct timespec millisecond = {0, 1000000};
  (void)nanosleep(&millisecond, NULL);
}

Test(loop, a_thread_decides_what_the_inline_controller_decides) {
  weir_controller *inline_one = create("weir", NULL, false), *thread = create("weir", NULL, true);
  world w = start("weir");
  for (int i = 0; i < 90; i++) {
    if (i == 30) w.bandwidth = 1e7;
    if (i == 60) w.latency = 5e-2;
    weir_header headers[RANKS];
    weir_step_record record;
    weir_directive wanted, got = {0};
    write_headers(&w, headers, &record);
    weir_controller_observe(inline_one, headers, RANKS, &record);
    weir_controller_observe(thread, headers, RANKS, &record);
    weir_controller_propose(inline_one, &wanted);
    if (wanted.action != WEIR_ACTION_KEEP)
      for (int wait = 0; wait < 10000 && got.action == WEIR_ACTION_KEEP; wait++) {
        weir_controller_propose(thread, &got);
        if (got.action == WEIR_ACTION_KEEP) nap();
      }
    cr_assert_eq(memcmp(&got, &wanted, sizeof got), 0, "step %d", i);
    finish(&w, &wanted);
  }
  weir_controller_free(inline_one);
  weir_controller_free(thread);
}

Test(loop, a_flood_of_observations_never_blocks_and_ends_cleanly) {
  weir_controller *controller = create("weir", NULL, true);
  world w = start("weir");
  for (int i = 0; i < 5000; i++) {
    w.bandwidth = i % 7 ? 1e7 : 1e9;
    step(controller, &w);
  }
  weir_controller_free(controller);
}

Test(loop, journal_lines_hold_all_inputs) {
  char path[] = "/tmp/weir-journal-XXXXXX";
  const int descriptor = mkstemp(path);
  cr_assert_geq(descriptor, 0);
  close(descriptor);
  weir_controller_config config = config_of("weir", path);
  config.hosts = 2;
  config.largest = 3;
  config.devices = true;
  weir_controller *controller = create_by(&config);
  world w = start("weir");
  for (int i = 0; i < 120; i++) {
    if (i == 50) w.bandwidth = 1e7;
    step(controller, &w);
  }
  weir_controller_free(controller);
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  static char line[1 << 17];
  int lines = 0;
  while (fgets(line, sizeof line, file)) {
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "{\"format\":2,\"decision\":%d,", lines++);
    cr_assert_eq(strncmp(line, wanted, strlen(wanted)), 0);
    cr_assert_eq(line[strlen(line) - 2], '}');
    cr_assert_not_null(strstr(line, "\"hosts\":2,\"largest\":3,\"devices\":1,"));
    cr_assert_not_null(strstr(line, ":hitopk")); /* which devices run, too */
    for (size_t i = 0; i < weir_field_count; i++) {
      (void)snprintf(wanted, sizeof wanted, "\"%s\":", weir_fields[i].name);
      cr_assert_not_null(strstr(strstr(line, "\"input\":{"), wanted), "%s", weir_fields[i].name);
    }
  }
  cr_assert_geq(lines, 3); /* start, bandwidth, periodic */
  fclose(file);
  unlink(path);
}

/* The first directive is lost, and would be repeated in the step in which the last stage is
 * directed, on a network of which nothing is known yet. */
Test(loop, a_stage_begins_where_the_one_before_was_lost) {
  static const char policy[] =
      "schedule:topk:0.1:ag-bruck;step=6:qsgd:0.25:ag-bruck;step=10:none:1:dense-ring";
  weir_controller *controller = create(policy, NULL, false);
  world w = start(policy);
  w.latency = w.bandwidth = 0;
  for (bool lost = false; w.step < 14;) {
    const weir_plan before = w.plan;
    if (step(controller, &w).action != WEIR_ACTION_SWITCH || lost) continue;
    w.plan = before;
    lost = true;
  }
  weir_controller_free(controller);
  cr_assert_eq(w.plan.codec, (uint32_t)WEIR_CODEC_NONE);
}

static void hear(void *user, const weir_log_line *line) {
  if (strstr(line->text, "overlap has no effect: ")) ++*(int *)user;
}

Test(loop, overlap_is_never_ignored_in_silence) {
  static const size_t two[] = {0, 1, ELEMENTS};
  static const struct {
    const char *policy;
    size_t tensors;
    bool overlap;
    int lines;
  } cases[] = {{"fixed:topk:0.5:ag", 2, true, 1},
               {"paper", 2, true, 1},
               {"weir", 1, true, 1},
               {"weir", 2, true, 0},
               {"paper", 2, false, 0}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    int lines = 0;
    weir_controller_config config = config_of(cases[k].policy, NULL);
    config.layout = (weir_layout){cases[k].tensors, cases[k].tensors == 2 ? two : offsets};
    config.overlap = cases[k].overlap;
    weir_log_set(hear, &lines);
    weir_controller_free(create_by(&config));
    weir_log_set(NULL, NULL);
    cr_assert_eq(lines, cases[k].lines, "case %zu: %d lines", k, lines);
  }
}

/* Decisions that divide the gradient, and that take its buckets away, say so. */
typedef struct said_of_buckets {
  int divided, given_up;
} said_of_buckets;

static void hear_of_buckets(void *user, const weir_log_line *line) {
  said_of_buckets *said = user;
  if (!strstr(line->text, "decision ")) return;
  said->divided += strstr(line->text, "; in ") && strstr(line->text, " buckets");
  said->given_up +=
      strstr(line->text, "; without buckets, under which steps took longer than foretold") != NULL;
}

/* Four tensors, each ready 5 ms after the other: buckets are foretold to hide most of what they
 * take.  Where they take longer than the gradient undivided would, they are given up on this
 * network, and the arm is not; steps that are 1.5 times as long as foretold, and longer than the
 * plan's before, are another rule's. */
Test(loop, buckets_that_do_worse_than_none_are_given_up) {
  static const size_t four[] = {0, ELEMENTS / 4, ELEMENTS / 2, 3 * ELEMENTS / 4, ELEMENTS};
  static const double gaps[] = {5e-3, 5e-3, 5e-3, 5e-3};
  /* They are given up all the same where the last exchange before them took another time than
   * foretold; but not while a probe's answer is due, which takes three steps. */
  static const struct {
    double factor;
    bool kept, spike, doubt;
  } cases[] = {{0.7, true, false, false},
               {1.0, true, false, false},
               {1.4, false, false, false},
               {1.4, false, true, false},
               {1.4, false, false, true}};
  int usual = 0;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    world w = start("weir");
    weir_plan divided = {0};
    int steps = 0;
    w.divided = cases[k].factor;
    w.spike = cases[k].spike;
    w.bandwidth = 7.5e7; /* by which 5 bits take about as long as all of the gaps */
    weir_controller_config config = config_of("weir", NULL);
    config.risk = "safe";
    config.layout = (weir_layout){4, four};
    config.overlap = true;
    said_of_buckets said = {0};
    weir_log_set(hear_of_buckets, &said);
    (void)weir_log_set_level(WEIR_LOG_INFO);
    weir_controller *controller = create_by(&config);
    weir_controller_gaps(controller, gaps);
    for (int i = 0; i < 60; i++) {
      w.suspects = cases[k].doubt && steps > 0 && steps == usual - 2 ? 2 : 0;
      (void)step(controller, &w);
      if (w.plan.buckets > 0) divided = w.plan;
      steps += w.plan.buckets > 0;
    }
    (void)weir_log_set_level(WEIR_LOG_WARN);
    weir_log_set(NULL, NULL);
    cr_assert_gt(said.divided, 0);
    cr_assert_eq(said.given_up, !cases[k].kept, "factor %g: said %d times", cases[k].factor,
                 said.given_up);
    cr_assert_gt(divided.buckets, 1u, "factor %g: never divided", cases[k].factor);
    cr_assert_eq(w.plan.buckets > 0, cases[k].kept, "factor %g: %u buckets after %d steps",
                 cases[k].factor, w.plan.buckets, steps);
    cr_assert_eq(w.plan.codec, divided.codec);
    cr_assert_eq(w.plan.cr, divided.cr);
    if (!cases[k].kept) cr_assert(steps >= 10 && steps <= 20, "%d steps", steps);
    if (cases[k].doubt) cr_assert_gt(steps, usual);
    if (!cases[k].kept && usual == 0) usual = steps;
    weir_controller_free(controller);
  }
}

/* The plan that the world's first decision takes, n steps after it has come into force. */
static uint64_t after_the_switch(weir_controller *controller, world *w, int n) {
  *w = on_a_slow_link("weir");
  for (int i = 0; i < 20 && w->plan.id == 0; i++) (void)step(controller, w);
  cr_assert_gt(w->plan.id, 0u);
  const uint64_t id = w->plan.id;
  for (int i = 0; i < n; i++) (void)step(controller, w);
  cr_assert_eq(w->plan.id, id);
  return id;
}

/* Computing takes long all of a sudden.  A plan that has just been switched to is given up for
 * that, one whose steps have shown what it is worth is not; nor is the one that is gone back to,
 * however long its steps take. */
Test(loop, a_plan_is_given_up_while_it_is_new_and_once) {
  weir_controller *controller = create("weir", NULL, false);
  world w;
  const uint64_t known = after_the_switch(controller, &w, 14);
  w.stall = 1.0;
  for (int i = 0; i < 10; i++) (void)step(controller, &w);
  cr_assert_eq(w.plan.id, known);
  weir_controller_free(controller);
  controller = create("weir", NULL, false);
  const uint64_t given_up = after_the_switch(controller, &w, 2);
  w.stall = 1.0;
  for (int i = 0; i < 10 && w.plan.id == given_up; i++) (void)step(controller, &w);
  const uint64_t back = w.plan.id;
  cr_assert_gt(back, given_up);
  cr_assert_eq(w.plan.codec, (uint32_t)WEIR_CODEC_BF16);
  w.stall = 100.0;
  for (int i = 0; i < 12; i++) (void)step(controller, &w);
  cr_assert_eq(w.plan.id, back);
  weir_controller_free(controller);
}

Test(loop, refuses_bad_policies_and_journals) {
  const char *bad[] = {
      NULL,           "",       "best",   "fixed",      "fixed:",      "fixed:topk:2:ag",
      "weir:x",       "papers", "paper:", "paper:topk", "paper:star+", "paper:mstopk+lwtopk",
      "paper:var+var"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cr_assert_neq(weir_policy_check(bad[i]), WEIR_OK);
    cr_assert_gt(strlen(weir_last_error()), 0u);
  }
  weir_plan plan;
  cr_assert_eq(weir_policy_first_plan("fixed:topk:0.5:ag", NULL, &plan), WEIR_OK);
  cr_assert_eq(plan.cr, 0.5);
  weir_controller_config config = {.policy = "weir",
                                   .world_size = RANKS,
                                   .layout = {1, offsets},
                                   .journal_path = "/nonexistent/journal"};
  weir_controller *controller;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_E_IO);
  cr_assert_null(controller);
  config.journal_path = NULL;
  config.world_size = 0;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_E_INVALID);
}

/* Of an optimizer that is known, 5 bits from the first step on, where nothing speaks against it;
 * under SGD, where they are safe at any time, 3. */
Test(loop, begins_with_the_fewest_bits_of_what_is_safe) {
  static const struct {
    weir_beginning with;
    const char *plan;
  } cases[] = {{{.ranks = 4}, "bf16:1:dense-ring"},
               {{.ranks = 2, .risk = "safe"}, "bf16:1:dense-ring"},
               {{.ranks = 2, .update_rule = "unknown"}, "bf16:1:dense-ring"},
               {{.ranks = 2, .update_rule = "adaptive"}, "companded:0.15625:sra"},
               {{.ranks = 4, .risk = "safe", .update_rule = "adaptive"}, "companded:0.15625:sra"},
               {{.ranks = 4, .update_rule = "sgd"}, "qsgd-l2:0.125:sra:huffman"},
               {{.ranks = 2, .risk = "safe", .update_rule = "sgd"}, "qsgd-l2:0.125:sra:huffman"},
               {{.ranks = 1}, "bf16:1:dense-ring"},
               {{.ranks = 1, .update_rule = "sgd"}, "bf16:1:dense-ring"},
               {{.ranks = 4, .risk = "bold", .update_rule = "sgd"}, "bf16:1:dense-ring"},
               {{.ranks = 4, .risk = "bold"}, "bf16:1:dense-ring"}};
  weir_plan plan, wanted;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    cr_assert_eq(weir_policy_first_plan("weir", &cases[k].with, &plan), WEIR_OK);
    cr_assert_eq(weir_plan_parse(cases[k].plan, &wanted), WEIR_OK);
    cr_assert_eq(weir_plan_digest(&plan), weir_plan_digest(&wanted), "case %zu", k);
  }
  const weir_beginning unknown[] = {{.ranks = 4, .risk = "none"},
                                    {.ranks = 4, .update_rule = "none"}};
  for (size_t k = 0; k < 2; k++)
    cr_assert_eq(weir_policy_first_plan("weir", &unknown[k], &plan), WEIR_E_INVALID);
  cr_assert_eq(weir_policy_first_plan("fixed:topk:0.5:ag", &cases[0].with, &plan), WEIR_OK);
  cr_assert_eq(plan.cr, 0.5);
}

/* --- who prices codecs ------------------------------------------------------------------------ */

typedef struct pricer {
  double light_s, heavy_s; /* of what goes whole, and of selections */
  bool fails;
  size_t calls, plans;
} pricer;

static weir_status price(void *user, const weir_plan *plans, size_t count, double *seconds) {
  pricer *p = user;
  p->calls++;
  p->plans = count;
  for (size_t i = 0; i < count; i++)
    seconds[i] = weir_codec_find(plans[i].codec)->dense ? p->light_s : p->heavy_s;
  return p->fails ? weir_fail(WEIR_E_NOMEM, "the pricer has no memory") : WEIR_OK;
}

/* The plan that is directed first, and what the decision's line in the journal has of compress. */
static weir_plan first_choice(pricer *p, double bandwidth, double compress[WEIR_CODEC_COUNT]) {
  char path[] = "/tmp/weir-journal-XXXXXX", line[16384];
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  (void)close(fd);
  weir_controller_config config = config_of("weir", path);
  config.measure = true;
  config.price = p != NULL ? price : NULL;
  config.price_user = p;
  weir_controller *controller = create_by(&config);
  world w = start("weir");
  w.bandwidth = bandwidth;
  for (int i = 0; i < 5 && w.plan.id == 0; i++) step(controller, &w);
  weir_controller_free(controller);
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  cr_assert_not_null(fgets(line, sizeof line, file));
  (void)fclose(file);
  (void)unlink(path);
  char *at = strstr(line, "\"compress\":");
  cr_assert_not_null(at, "%s", line);
  at = strchr(at, '[');
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) compress[c] = strtod(at + 1, &at);
  return w.plan;
}

/* 4 MB over 100 MB/s are 60 ms as a ring, and bf16's 30; what top-k sends takes a few.  So it pays
 * for itself where selecting takes nothing, and not where it takes half a second.  The factors are
 * the told times over the usual ones, which are 5 us + 0.3 ms of none, and of top-k 20 us + 2 ms +
 * 4 messages of 10000 elements that take 4 ns. */
Test(loop, begins_with_what_the_pricer_says) {
  double compress[WEIR_CODEC_COUNT];
  pricer cheap = {.light_s = 1e-3, .heavy_s = 50e-6}, dear = {.light_s = 1e-3, .heavy_s = 0.5};
  const weir_plan quick = first_choice(&cheap, 1e8, compress);
  cr_assert(!weir_codec_find(quick.codec)->dense, "%s", weir_codec_name(quick.codec));
  cr_assert_float_eq(compress[WEIR_CODEC_NONE], 1e-3 / 305e-6, 1e-9);
  cr_assert_float_eq(compress[WEIR_CODEC_TOPK], 50e-6 / 2180e-6, 1e-9);
  cr_assert_eq(cheap.calls, 1);
  cr_assert_eq(cheap.plans, 4); /* none, bf16, topk, star: risk bold's */
  const weir_plan slow = first_choice(&dear, 1e8, compress);
  cr_assert(weir_codec_find(slow.codec)->dense, "%s", weir_codec_name(slow.codec));
  cr_assert_float_eq(compress[WEIR_CODEC_TOPK], 0.5 / 2180e-6, 1e-6);
}

/* Devices are asked for the times of codecs that they run, and hosts for those of theirs: one that
 * they could not time would leave them without any time. */
Test(loop, devices_time_what_they_run) {
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_codec *codec = weir_codec_find(weir_arm_at(a)->plan.codec);
    cr_assert(codec->device || codec->touched || codec->whitened || codec->seeded, "arm %zu", a);
  }
  for (int devices = 0; devices < 2; devices++) {
    pricer p = {.light_s = 1e-3, .heavy_s = 1e-3};
    weir_controller_config config = config_of("weir", NULL);
    config.risk = "safe";
    config.measure = true;
    config.devices = devices != 0;
    config.update_rule = "adaptive";
    config.price = price;
    config.price_user = &p;
    weir_controller_free(create_by(&config));
    cr_assert_eq(p.calls, 1);
    cr_assert_eq(p.plans, devices != 0 ? 4 : 5); /* none, bf16, fp16, companded; whitened */
  }
}

static int failures_said, hosts_said;
static void hear_pricing(void *user, const weir_log_line *line) {
  (void)user;
  failures_said += strstr(line->text, "the pricer has no memory") != NULL;
  hosts_said += strstr(line->text, "timed on this host's processors: none ") != NULL;
}

/* Then the host's processors are asked, and it is said once. */
Test(loop, a_pricer_that_fails_is_done_without) {
  double compress[WEIR_CODEC_COUNT];
  pricer p = {.light_s = 7, .heavy_s = 7, .fails = true};
  weir_log_set(hear_pricing, NULL);
  cr_assert_eq(weir_log_set_level(WEIR_LOG_INFO), WEIR_OK);
  (void)first_choice(&p, 1e8, compress);
  weir_log_set(NULL, NULL);
  cr_assert_eq(failures_said, 1);
  cr_assert_eq(hosts_said, 1);
  cr_assert_eq(p.calls, 1);
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) {
    const double told = 7 / weir_compress_prior((uint32_t)c, RANKS, ELEMENTS, 0.01);
    cr_assert(compress[c] < 0.5 * told, "codec %zu: %g", c, compress[c]);
  }
}

/* Whoever times them knows how long the gradient is: a million elements take the host's processors
 * at least a tenth of a nanosecond each, which is 20 times what none's fixed part is usually. */
Test(loop, codecs_are_timed_for_the_gradient_there_is) {
  double compress[WEIR_CODEC_COUNT];
  (void)first_choice(NULL, 1e8, compress);
  const double seconds =
      compress[WEIR_CODEC_NONE] * weir_compress_prior(WEIR_CODEC_NONE, RANKS, ELEMENTS, 1);
  cr_assert(seconds > 1e-4 && seconds < 1, "%g", seconds);
}
