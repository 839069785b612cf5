/* Paired trials of policy weir, on trainings that are simulated: what may come into force, what
 * trials cost, and what happens when harm shows late. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sampled.h"
#include "controller/controller.h"
#include "controller/decide.h"
#include "controller/loop.h"
#include "controller/rounds.h"
#include "engine/memory.h"

#define RANKS 4
#define ELEMENTS ((size_t)1000000)

static uint64_t batches_in_trial;

/* A training whose loss falls with the logarithm of its progress, and whose batches differ. */
typedef struct world {
  weir_plan plan, kept;         /* in force; before the trial */
  bool trial, reports, forgets; /* forgets: a checkpoint does not bring its state back */
  uint64_t step, exchange;
  double progress, kept_progress;
  double share[WEIR_METHODS]; /* of a full step's progress that methods make */
  uint64_t late;              /* from this step on they make `shown_late`; 0: never */
  uint64_t hides;             /* after so many steps of theirs they do; 0: never */
  double shown_late;
  double leaps; /* so much higher are losses of methods that hold back, from their second step on */
  double even_coded; /* what coding leaves of dithered; 0: two fifths */
  double owes;       /* methods in force are behind by this share of the loss */
  double constant;   /* is there whatever the training does */
  uint64_t plateau;  /* steps at the beginning that make no progress */
  uint64_t dips;     /* until then, from step 8 on, batches happen to be easy */
  double above;      /* so far above it the loss begins, and comes down within 10 steps */
  const char *update_rule;
  uint64_t turns; /* from this step on shares are those of `then`; 0: never */
  double then[WEIR_METHODS];
  double budget; /* 0: the default */
  bool far;      /* what takes fewest latencies is fastest */
  bool restless; /* the latency, of which steps hardly depend, doubles and halves */
  bool blind;    /* nothing tells how fast the network is */
  bool swings;   /* the bandwidth, of which they do, is halved and doubled every 12 steps */
  uint64_t opens, closes; /* from exchange to exchange the network is no matter; 0: never */
  double compute;         /* of a step, s; 0: 0.02 */
  bool overlaps;          /* four tensors, ready one after the other, may be exchanged as buckets */
  bool divided;           /* they were, before the first trial */
  const char *journal;
  uint64_t epoch;  /* steps that can be taken back to its beginning only; 0: any */
  double memory;   /* memory_limit */
  uint64_t doubts; /* exchanges until the trainer's steps are found not to be SGD's; 0: never */
  uint64_t doubts_in_trial; /* likewise, exchanges of a trial */
  bool throws_away;         /* ... but that averages are thrown away */
  uint64_t doubted;         /* the exchange that was */
  uint64_t sgd_alone;       /* the last exchange with a plan that is for SGD */
  uint64_t few_bits;        /* the last one with fewer than 16 bits */
  double comm;              /* of the step before */
  uint64_t steps, trial_steps, unsafe_steps;
  uint64_t last_unsafe; /* step */
  double seconds, trial_seconds;
} world;

static bool is_open(const world *w) {
  return w->opens > 0 && w->exchange >= w->opens && (w->closes == 0 || w->exchange < w->closes);
}

static double latency_of(const world *w) {
  if (is_open(w)) return 1e-6;
  if (w->far) return 0.9;
  return w->restless ? (w->exchange / 7 % 2 ? 2e-5 : 1e-5) : 1e-3;
}

static double bandwidth_of(const world *w) {
  if (w->blind) return NAN;
  if (is_open(w)) return 1e10;
  return w->swings && w->exchange / 12 % 2 ? 5e5 : 1e6;
}

static double compute_of(const world *w) { return w->compute > 0 ? w->compute : 0.02; }

/* Coded, codes take four fifths of their bytes, dithered's two fifths or as the world has it. */
static double shortened_of(const world *w) {
  const double even = w->even_coded > 0 ? w->even_coded : 0.4;
  if (w->plan.wire != WEIR_WIRE_HUFFMAN) return 0.0;
  return w->plan.codec == WEIR_CODEC_DITHERED ? even : 0.8;
}

static weir_cost_terms terms_of(const world *w) {
  weir_cost_terms terms =
      weir_cost_plan(&w->plan, RANKS, ELEMENTS, weir_cost_kept(&w->plan, ELEMENTS));
  if (w->plan.wire == WEIR_WIRE_HUFFMAN) weir_cost_scale(&terms, shortened_of(w));
  return terms;
}

static double seconds_of(const world *w) {
  const weir_cost_terms terms = terms_of(w);
  return weir_cost_seconds(&terms, latency_of(w), 1.0 / bandwidth_of(w));
}

static double batch(uint64_t number) {
  return 0.05 * sin((double)number * 12.9898) * cos((double)number * 4.1414);
}

static double loss_of(const world *w) {
  const uint64_t taken = w->trial ? batches_in_trial : w->unsafe_steps;
  const double owed =
      weir_method_of(&w->plan) == WEIR_METHODS ? 0.0 : w->owes * (1 - exp(-(double)taken / 12));
  const bool leaps = w->leaps > 0 && weir_method_of(&w->plan) < WEIR_METHODS &&
                     !weir_plan_rounds(&w->plan) && taken > 0;
  const bool easy = w->step >= 8 && w->step < w->dips;
  return (leaps ? w->leaps : 0.0) - (easy ? 4.0 : 0.0) + w->above * exp(-(double)w->step / 10) +
         (6.0 - 0.5 * log1p(fmax(0, w->progress) / 5.0)) * (1.0 + owed) + w->constant +
         batch(w->trial && w->forgets ? w->exchange + 1000 : w->step);
}

static double advance(const world *w) {
  if (w->step < w->plateau) return 0.0;
  const size_t method = weir_method_of(&w->plan);
  if (method == WEIR_METHODS) return 1.0;
  if (w->hides > 0 && w->unsafe_steps >= w->hides) return w->shown_late;
  if (w->turns > 0 && w->step >= w->turns) return w->then[method];
  return w->late > 0 && w->step >= w->late ? w->shown_late : w->share[method];
}

static void obey(world *w, const weir_directive *directive) {
  if (directive->action == WEIR_ACTION_TRIAL) {
    cr_assert_not(w->trial);
    /* Both plans are undivided. */
    cr_assert(w->plan.buckets == 0 && directive->plan.buckets == 0);
    /* Nothing is known to be zero. */
    cr_assert_not(weir_plan_sparse(&directive->plan));
    /* Under other rules than SGD nothing can be told of what only rounds. */
    if (w->update_rule == NULL || strcmp(w->update_rule, "sgd") != 0)
      cr_assert_not(weir_plan_rounds(&directive->plan));
    w->kept = w->plan;
    w->kept_progress = w->progress;
    w->trial = true;
    w->plan = directive->plan;
  }
  if (directive->action == WEIR_ACTION_FOLLOW) {
    cr_assert(w->trial);
    w->kept.id = directive->plan.id;
    cr_assert_eq(weir_plan_digest(&directive->plan), weir_plan_digest(&w->kept));
    w->plan = directive->plan;
  }
  if (directive->action == WEIR_ACTION_SWITCH) {
    if (w->trial) w->progress = w->kept_progress;
    w->trial = false;
    w->plan = directive->plan;
    w->divided = w->divided || (w->trial_steps == 0 && w->plan.buckets > 0);
  }
}

/* Batches that are left of the epoch after that of this step. */
static uint64_t room_of(const world *w) {
  const uint64_t at = w->step % w->epoch + (w->trial ? batches_in_trial : 0);
  cr_assert_lt(at, w->epoch, "a trial has gone past the end of an epoch, at step %d", (int)w->step);
  return w->epoch - 1 - at;
}

static void step(weir_controller *controller, world *w) {
  weir_header headers[RANKS];
  weir_step_record record;
  weir_directive directive;
  memset(headers, 0, sizeof headers);
  memset(&record, 0, sizeof record);
  if (w->epoch > 0) weir_controller_set_room(controller, room_of(w));
  weir_controller_propose(controller, &directive);
  const bool doubts = (w->doubts > 0 && w->exchange == w->doubts) ||
                      (w->doubts_in_trial > 0 && w->trial && w->doubted == 0 &&
                       batches_in_trial == w->doubts_in_trial);
  if (doubts) weir_controller_doubt_rule(controller, w->throws_away);
  if (doubts) w->doubted = w->exchange;
  if (weir_codecs[w->plan.codec]->unbiased && w->plan.cr < 0.5) w->sgd_alone = w->exchange;
  if (w->plan.cr < 0.5) w->few_bits = w->exchange;
  const uint64_t at = w->step;
  if (w->trial && !w->forgets) w->step += batches_in_trial; /* the next batch in turn */
  const double loss = loss_of(w), moved = advance(w);
  w->step = at;
  for (int r = 0; r < RANKS; r++)
    headers[r] = (weir_header){.compute_s = compute_of(w),
                               .comm_s = w->comm,
                               .wait_s = w->comm,
                               .gain = 1,
                               .latency_s = latency_of(w),
                               .bandwidth = bandwidth_of(w),
                               .latency_error = 0.02,
                               .bandwidth_error = 0.02,
                               .loss = w->reports ? loss + 0.01 * (r - 1.5) : NAN};
  record.info.step = w->step;
  record.info.plan = w->plan;
  record.info.trial = w->trial;
  record.terms = terms_of(w);
  record.shortened = shortened_of(w);
  weir_controller_observe(controller, headers, RANKS, &record);
  w->comm = seconds_of(w);
  w->progress += moved;
  w->seconds += compute_of(w) + w->comm;
  w->exchange++;
  if (w->trial) {
    w->trial_steps++;
    w->trial_seconds += compute_of(w) + w->comm;
    batches_in_trial++;
  } else {
    w->steps++;
    w->step++;
    w->unsafe_steps += !weir_plan_safe(&w->plan);
    if (!weir_plan_safe(&w->plan)) w->last_unsafe = at;
  }
  obey(w, &directive);
  if (!w->trial) batches_in_trial = 0;
}

static weir_controller *create(world *w, const char *risk, uint64_t steps) {
  const char *rule = w->update_rule != NULL ? w->update_rule : "adaptive";
  static const size_t offsets[] = {0, ELEMENTS};
  static const size_t four[] = {0, ELEMENTS / 4, ELEMENTS / 2, 3 * ELEMENTS / 4, ELEMENTS};
  const double gaps[] = {compute_of(w) / 4, compute_of(w) / 4, compute_of(w) / 4,
                         compute_of(w) / 4};
  const weir_controller_config config = {
      .policy = "weir",
      .risk = risk,
      .trial_budget = w->budget > 0 ? w->budget : 0.04,
      .steps = steps,
      .update_rule = rule,
      .world_size = RANKS,
      .layout = w->overlaps ? (weir_layout){4, four} : (weir_layout){1, offsets},
      .overlap = w->overlaps,
      .memory_limit = w->memory,
      .checkpoint_bytes = 4.0 * (double)ELEMENTS,
      .journal_path = w->journal,
      .seed = 5};
  weir_controller *controller;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  if (w->overlaps) weir_controller_gaps(controller, gaps);
  const weir_beginning with = {.ranks = RANKS, .update_rule = rule};
  cr_assert_eq(weir_policy_first_plan("weir", &with, &w->plan), WEIR_OK);
  batches_in_trial = 0;
  return controller;
}

static world train(const char *risk, world w, uint64_t steps) {
  weir_controller *controller = create(&w, risk, steps);
  while (w.step < steps) step(controller, &w);
  weir_controller_free(controller);
  return w;
}

/* A training that pays for rounds under other rules than SGD. */
static const uint64_t many = 8000;

static const world good = {.reports = true, .share = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
static const world harmful = {.reports = true,
                              .share = {0.7, 0.7, 0.6, 0.5, 0.5, 0.4, 0.3, 0.3, 0.2, 0.4}};

Test(rounds, an_arm_that_holds_the_loss_is_taken) {
  const world w = train("measured", good, many);
  cr_assert_gt(w.unsafe_steps, many / 6, "%d steps", (int)w.unsafe_steps);
  cr_assert_leq(w.trial_seconds, 0.04 * w.seconds);
  const world slow = train("safe", good, many);
  cr_assert_eq(slow.trial_steps, 0u);
  cr_assert_eq(slow.unsafe_steps, 0u);
  cr_assert_lt(w.seconds, 0.85 * slow.seconds, "%g s, %g s", w.seconds, slow.seconds);
}

/* What the losses of a round say does not depend on the latency. */
Test(rounds, a_latency_that_does_not_matter_ends_no_round) {
  world w = good;
  w.restless = true;
  w = train("measured", w, many);
  cr_assert_gt(w.unsafe_steps, many / 6, "%d steps", (int)w.unsafe_steps);
}

/* Nor on the bandwidth, as long as the plan in force is the fastest of those that may be chosen. */
Test(rounds, a_bandwidth_that_swings_ends_no_round) {
  static const char *const rules[] = {"adaptive", "sgd"};
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.swings = true;
    w.update_rule = rules[i];
    w = train("measured", w, many);
    cr_assert_gt(w.unsafe_steps, many / 8, "%d steps under %s", (int)w.unsafe_steps, rules[i]);
  }
}

/* Where 3.5 bits no longer are, the round is given up: what is in force then is decided at once. */
Test(rounds, a_round_ends_where_another_plan_becomes_faster) {
  world w = good;
  w.compute = 1e-4;
  weir_controller *controller = create(&w, "measured", many);
  while (w.trial_steps == 0 || w.trial) step(controller, &w);
  const uint32_t before = w.plan.id;
  cr_assert_float_eq(w.plan.cr, 3.5 / 32, 0);
  w.opens = w.exchange + 10;
  for (int n = 0; n < 30; n++) step(controller, &w);
  cr_assert_neq(w.plan.id, before);
  cr_assert(w.plan.cr > 3.5 / 32 && weir_plan_safe(&w.plan), "%g", w.plan.cr);
  weir_controller_free(controller);
}

static const char *a_journal(char *path) {
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  (void)close(fd);
  return path;
}

/* A trial's steps are not divided into buckets. */
Test(rounds, buckets_give_way_to_a_trial) {
  char path[] = "/tmp/weir-journal-XXXXXX";
  static char line[1 << 20];
  world w = good;
  w.update_rule = "sgd";
  w.overlaps = true;
  w.compute = 0.4;
  w.journal = a_journal(path);
  w = train("measured", w, 1000);
  cr_assert(w.divided);
  cr_assert_gt(w.trial_steps, 0u);
  cr_assert_gt(w.unsafe_steps, 500u, "%d steps", (int)w.unsafe_steps);
  /* It is a decision, and says why: of a plan without buckets, where there were some before. */
  FILE *journal = fopen(path, "r");
  bool divided = false, told = false;
  cr_assert_not_null(journal);
  while (fgets(line, sizeof line, journal) != NULL) {
    if (strstr(line, "no buckets for now, so that ") != NULL) {
      told = true;
      cr_assert(divided && strstr(line, "\"groups\":0,") != NULL);
      cr_assert_not_null(strstr(line, "\"trigger\":\"trial\""));
      cr_assert_null(strstr(line, "\"verdict\""), "nothing has been tried");
    }
    divided = strstr(line, "\"groups\":0,") == NULL;
  }
  (void)fclose(journal);
  (void)unlink(path);
  cr_assert(told);
}

/* What coding makes of messages is told by the steps: decisions after them have it, of that arm. */
Test(rounds, what_codes_are_shortened_to_is_learnt) {
  char path[] = "/tmp/weir-journal-XXXXXX";
  static char line[1 << 20];
  world w = good;
  bool unknown = false, known = false;
  w.journal = a_journal(path);
  w = train("safe", w, 100);
  cr_assert_eq(w.plan.wire, WEIR_WIRE_HUFFMAN);
  FILE *journal = fopen(path, "r");
  cr_assert_not_null(journal);
  while (fgets(line, sizeof line, journal) != NULL) {
    const char *at = strstr(line, "\"shortened\":[");
    cr_assert_not_null(at);
    at += strlen("\"shortened\":[");
    for (size_t a = 0; a < weir_arm_of(&w.plan); a++) at = strchr(at, ',') + 1;
    const double share = strtod(at, NULL);
    cr_assert(share == 0.0 || share == 0.8, "%g", share);
    unknown = unknown || (share == 0.0 && !known);
    known = known || share == 0.8;
  }
  (void)fclose(journal);
  (void)unlink(path);
  cr_assert(unknown && known);
}

Test(rounds, harmful_arms_never_come_into_force) {
  const world w = train("measured", harmful, many);
  cr_assert_gt(w.trial_steps, 0u);
  cr_assert_eq(w.unsafe_steps, 0u);
  cr_assert_float_eq(w.progress, (double)many, 1e-9); /* and trials have left nothing */
  cr_assert_leq(w.trial_seconds, 0.04 * w.seconds);
}

Test(rounds, harm_that_shows_late_is_found) {
  world w = good;
  w.late = many / 2;
  w.shown_late = 0.2;
  w = train("measured", w, many);
  cr_assert_gt(w.unsafe_steps, 300u);
  cr_assert(weir_plan_safe(&w.plan), "an arm that stopped learning at step 4000 is still in force");
  /* A fifth of the progress from step 4000 on would end at 4800. */
  cr_assert_gt(w.progress, 7300, "%g", w.progress);
}

/* Epochs of any length: no trial goes past an end (room_of), and where rounds find room they take
 * place as ever. */
Test(rounds, trials_stay_within_their_epoch) {
  for (uint64_t epoch = 120; epoch <= 480; epoch += 60) {
    if (!sampled(3)) continue;
    world w = good;
    w.epoch = epoch;
    w = train("measured", w, many);
    if (epoch <= WEIR_ROUND_BATCHES) cr_assert_eq(w.trial_steps, 0u);
    if (epoch >= 400) cr_assert_gt(w.unsafe_steps, many / 5, "%d", (int)w.unsafe_steps);
  }
}

/* The room shrinks when a trial has begun: it is rolled back in time, and others can follow. */
Test(rounds, a_trial_ends_before_the_room_does) {
  world w = good;
  weir_controller *controller = create(&w, "measured", 0);
  for (size_t cut = 1; cut < WEIR_ROUND_BATCHES; cut += 24) {
    for (int n = 0; !w.trial; n++) {
      cr_assert_lt(n, (int)many, "no trial but %zu", cut);
      step(controller, &w);
    }
    const double progress = w.progress;
    for (size_t n = 0; n < cut && w.trial; n++) step(controller, &w);
    weir_controller_set_room(controller, 3);
    for (int n = 0; n < 3; n++) step(controller, &w);
    cr_assert_not(w.trial, "the room is used up after %zu steps", cut);
    weir_controller_set_room(controller, UINT64_MAX);
    cr_assert_leq(w.progress, progress + 3.0);
  }
  while (w.step < 3 * many) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_gt(w.unsafe_steps, 0u);
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
  w = train("measured", w, many);
  cr_assert_gt(w.trial_steps, 0u);
  cr_assert_leq(w.trial_steps, 3u * (WEIR_ROUND_BATCHES + 2));
  cr_assert_eq(w.unsafe_steps, 0u);
}

/* A method that leaves the way of the other at once is refused, whatever share of progress it makes
 * from there on; and others are tried.  Far away these are gathered, in one latency. */
Test(rounds, methods_that_leap_away_are_refused_and_others_tried) {
  static const char *const rules[] = {"adaptive", "sgd", "sgd"};
  for (size_t i = 0; i < 3; i++) {
    world w = good;
    w.far = i == 2;
    w.update_rule = rules[i];
    w.budget = 0.4;
    w.leaps = 0.8;
    w.even_coded = 0.8; /* 2 bits are faster */
    weir_controller *controller = create(&w, "measured", many);
    uint64_t held_back = 0;
    while (w.step < many) {
      step(controller, &w);
      held_back += !w.trial && !weir_plan_safe(&w.plan) && !weir_plan_rounds(&w.plan);
    }
    weir_controller_free(controller);
    cr_assert_gt(w.trial_steps, 0u);
    cr_assert_eq(held_back, 0u);
    if (i > 0) cr_assert_gt(w.unsafe_steps, 1000u, "%d", (int)w.unsafe_steps); /* of 2 bits */
  }
}

/* What is refused at a step waits until twice that step, and so does what keeps less of the same
 * codec. */
Test(rounds, what_keeps_less_than_what_was_refused_waits_as_well) {
  world w = good;
  w.update_rule = "sgd";
  w.far = true;
  w.budget = 0.4;
  w.leaps = 0.8;
  weir_controller *controller = create(&w, "measured", many);
  weir_plan last = {0};
  uint64_t ended = 0, again = 0;
  while (w.step < many) {
    const bool before = w.trial;
    step(controller, &w);
    if (before && !w.trial && !weir_plan_rounds(&last)) ended = w.step;
    if (before || !w.trial) continue;
    const bool lesser = w.plan.codec == last.codec && w.plan.cr <= last.cr;
    if (lesser && !weir_plan_rounds(&last)) {
      again++;
      cr_assert_geq(w.step, 2 * ended, "refused at step %d, tried again at %d", (int)ended,
                    (int)w.step);
    }
    last = w.plan;
  }
  weir_controller_free(controller);
  cr_assert_gt(again, 0u);
}

/* Of a training in which each of so many steps made its progress. */
static double loss_after(double progress) { return 6.0 - 0.5 * log1p(progress / 5.0); }

static void no_harm(const world *w) {
  const double dense = loss_after((double)w->steps), loss = loss_after(w->progress);
  cr_assert_leq(loss, 1.01 * dense, "%g instead of %g after %d steps, %d of methods", loss, dense,
                (int)w->steps, (int)w->unsafe_steps);
  cr_assert_leq(w->trial_seconds, (w->budget > 0 ? w->budget : 0.04) * w->seconds);
}

/* All that is tried looks as good as it gets, and is, for the first 200 steps in which it is in
 * force. */
Test(rounds, harm_that_hides_for_200_steps_stays_small) {
  for (uint64_t steps = 1000; steps <= 8000; steps *= 2)
    for (double left = 0.2; left < 0.95; left += 0.2) {
      if (!sampled(8)) continue;
      world w = good;
      w.hides = 200;
      w.shown_late = left;
      w = train("measured", w, steps);
      no_harm(&w);
      if (steps == 8000) cr_assert_geq(w.unsafe_steps, 200u, "it was never taken");
    }
}

/* What was best stops learning in the middle of what trials can tell of, and what did not learn is
 * best from then on.  The default budget would be spent by then. */
Test(rounds, the_best_arm_changes_in_the_middle) {
  world w = {.reports = true,
             .share = {0.5, 1, 0.4, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2},
             .turns = 12000,
             .then = {0.3, 0.3, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2, 1, 0.2},
             .budget = 0.12};
  const uint64_t steps = 3 * many;
  weir_controller *controller = create(&w, "measured", steps);
  uint64_t before = 0, wrong = 0, after = 0;
  while (w.step < steps) {
    step(controller, &w);
    if (w.trial) continue;
    const size_t method = weir_method_of(&w.plan);
    before += method == 1 && w.step < w.turns;
    wrong += method == 1 && w.step >= w.turns;
    after += method == 8;
  }
  weir_controller_free(controller);
  no_harm(&w);
  cr_assert_gt(before, 200u, "%d before, %d wrong, %d after", (int)before, (int)wrong, (int)after);
  cr_assert_lt(wrong, 1000u, "%d", (int)wrong);
  cr_assert_gt(after, 300u);
}

/* The first step from which so many bits are in force, in 1000 that never have fewer. */
static uint64_t bits_from(world w, double bits) {
  weir_controller *controller = create(&w, "safe", 0);
  uint64_t first = 1000;
  while (w.step < 1000) {
    step(controller, &w);
    cr_assert_geq(w.plan.cr, bits / 32.0);
    if (w.plan.cr == bits / 32.0 && first == 1000) first = w.step;
  }
  weir_controller_free(controller);
  return first;
}

/* 3.5 bits wait for the end of a plateau of the beginning: until the loss falls clearly, for 256
 * steps where it stands still, and for 500 where nobody tells it.  Under SGD 4 bits are
 * there at once, as there is no plateau. */
Test(rounds, few_bits_wait_for_the_training_to_settle) {
  world w = good;
  w.plateau = 5000; /* of the beginning, in steps that hardly learn */
  const uint64_t flat = bits_from(w, 3.5);
  cr_assert(flat >= 256 && flat < 270, "%d", (int)flat);
  w.constant = -8.0; /* it begins at -2, of which -1 would be half */
  const uint64_t below_zero = bits_from(w, 3.5);
  cr_assert(below_zero >= 256 && below_zero < 270, "%d", (int)below_zero);
  w.constant = 0.0;
  w.reports = false;
  const uint64_t unseen = bits_from(w, 3.5);
  cr_assert(unseen >= 500 && unseen < 515, "%d", (int)unseen);
  w.update_rule = "sgd";
  const uint64_t sgd = bits_from(w, 4);
  cr_assert_lt(sgd, 10, "%d", (int)sgd);
  world falls = good;
  const uint64_t clear = bits_from(falls, 3.5);
  cr_assert(clear >= 32 && clear < 256, "%d", (int)clear);
}

/* Under SGD trials of 18 steps are enough, and 1000 steps pay for them. */
Test(rounds, under_sgd_a_short_training_tries_early) {
  world w = good, adaptive = good;
  w.update_rule = "sgd";
  w.owes = adaptive.owes = 0.005;
  w = train("measured", w, 1000);
  adaptive = train("measured", adaptive, 1000);
  cr_assert_gt(w.unsafe_steps, 700u, "%d steps", (int)w.unsafe_steps);
  cr_assert_leq(w.trial_seconds, 0.04 * w.seconds);
  cr_assert_lt(w.seconds, 0.7 * adaptive.seconds, "%g s, %g s", w.seconds, adaptive.seconds);
  cr_assert(weir_plan_safe(&w.plan)); /* the last steps */
}

/* A twentieth of the steps, and 48 at the least. */
Test(rounds, the_last_steps_are_a_safe_plans) {
  static const uint64_t length[] = {600, 4000}, last[] = {48, 200};
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.update_rule = "sgd";
    w = train("measured", w, length[i]);
    cr_assert_gt(w.unsafe_steps, length[i] / 4, "%d steps", (int)w.unsafe_steps);
    const uint64_t safe = length[i] - 1 - w.last_unsafe; /* a directive takes up to three steps */
    cr_assert(safe + 4 >= last[i] && safe <= last[i], "%d of %d steps", (int)safe, (int)length[i]);
  }
}

/* Nor does it wait where nobody knows its length: of the time of 1000 steps a round is a small
 * part.  Where nothing holds, that part of them is all it costs.  0.2 % of the loss are up to 1 %
 * of what it has fallen by. */
Test(rounds, a_training_of_unknown_length_tries_early) {
  static const double owed[] = {0.002, 0.05};
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.update_rule = "sgd";
    w.owes = owed[i];
    weir_controller *controller = create(&w, "measured", 0);
    while (!w.trial && w.step < 1000) step(controller, &w);
    cr_assert_leq(w.step, 150u, "%d", (int)w.step);
    while (w.step < 1000) step(controller, &w);
    weir_controller_free(controller);
    cr_assert_eq(w.unsafe_steps > 700, i == 0, "%d steps", (int)w.unsafe_steps);
    cr_assert_leq(w.trial_seconds, 0.04 * w.seconds, "%g", w.trial_seconds / w.seconds);
  }
}

/* 5 % of the loss, as low rank owes under SGD on trainings that end 1 % and more above fp32 with
 * it; once it owes that, it makes as much progress as any.  Under other rules it is too much where
 * the training may end at any step. */
Test(rounds, what_falls_behind_never_comes_into_force) {
  static const char *const rules[] = {"adaptive", "sgd"};
  static const uint64_t length[] = {0, 2000};
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.update_rule = rules[i];
    w.owes = 0.05;
    weir_controller *controller = create(&w, "measured", length[i]);
    while (w.step < (i == 0 ? many : length[i])) step(controller, &w);
    weir_controller_free(controller);
    cr_assert_gt(w.trial_steps, 0u);
    cr_assert_eq(w.unsafe_steps, 0u, "%d steps under %s", (int)w.unsafe_steps, rules[i]);
  }
}

/* A share of a loss that is mostly a constant would be more than the training learns: 5 % are 0.3,
 * which is 3 in 10 000 of 1006. */
Test(rounds, a_constant_in_the_loss_hides_no_harm) {
  static const double constant[] = {1000, -1000};
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.update_rule = "sgd";
    w.owes = 0.05;
    w.constant = constant[i];
    w = train("measured", w, 2000);
    cr_assert_gt(w.trial_steps, 0u, "beside %g", constant[i]);
    cr_assert_eq(w.unsafe_steps, 0u, "%d steps beside %g", (int)w.unsafe_steps, constant[i]);
  }
}

/* Where the last steps are known to be a safe plan's, all of it comes back before the end. */
Test(rounds, what_comes_back_is_not_held_against_a_method) {
  world w = good;
  w.owes = 0.03;
  w = train("measured", w, many);
  cr_assert_gt(w.unsafe_steps, many / 8, "%d", (int)w.unsafe_steps);
  cr_assert(weir_plan_safe(&w.plan));
  no_harm(&w);
}

/* More than all of the progress is none: whatever it was, it does not last. */
Test(rounds, what_seems_to_make_more_than_all_of_the_progress_is_not_believed) {
  world w = good;
  for (size_t m = 0; m < WEIR_METHODS; m++) w.share[m] = 1.5;
  w = train("measured", w, many);
  cr_assert_gt(w.trial_steps, 0u);
  cr_assert_eq(w.unsafe_steps, 0u);
}

/* A model that has yet to leave the plateau of its beginning: there all methods look alike, and
 * what is tried after it may still come into force. */
Test(rounds, under_sgd_nothing_is_tried_on_a_plateau) {
  world w = good;
  w.update_rule = "sgd";
  w.plateau = 180;
  w.above = 3.0;
  weir_controller *controller = create(&w, "measured", 2000);
  while (w.step < w.plateau) {
    step(controller, &w);
    cr_assert_eq(w.trial_steps, 0u, "a trial in step %d", (int)w.step);
  }
  while (w.step < 2000) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_gt(w.unsafe_steps, 1000u, "%d", (int)w.unsafe_steps);
}

/* A round may begin before the mean of 16 losses has halved, where it has by its end: the loss is
 * 15 at first, and the newest ones are half of that some steps before.  What is directed answers
 * what was seen two steps ago. */
Test(rounds, under_sgd_a_round_begins_while_the_loss_halves) {
  world w = good;
  w.update_rule = "sgd";
  w.above = 9.0;
  weir_controller *controller = create(&w, "measured", 2000);
  double begun = 0.0, newest = 0.0;
  for (int k = 0; k < 4; k++) begun += w.above * exp(-k / 10.0) / 4.0 + 6.0 / 4.0;
  while (w.trial_steps == 0 && w.step < 100) step(controller, &w);
  for (int k = 3; k <= 18; k++)
    newest += w.above * exp(-((double)w.step - k) / 10.0) / 16.0 + 6.0 / 16.0;
  cr_assert_gt(newest, 0.5 * begun, "step %d: %g of %g", (int)w.step, newest, begun);
  while (w.step < 120) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_gt(w.unsafe_steps, 50u, "%d", (int)w.unsafe_steps);
}

/* Some easy batches on a plateau: a round begins, and tells nothing, which is on record. */
Test(rounds, under_sgd_a_round_that_ends_on_a_plateau_tells_nothing) {
  char path[] = "/tmp/weir-journal-XXXXXX";
  static char line[1 << 20];
  world w = good;
  w.journal = a_journal(path);
  w.update_rule = "sgd";
  w.plateau = 180;
  w.dips = 14;
  weir_controller *controller = create(&w, "measured", 2000);
  while (w.step < w.plateau) step(controller, &w);
  cr_assert_gt(w.trial_steps, 0u);
  cr_assert_eq(w.unsafe_steps, 0u);
  weir_controller_free(controller);
  FILE *journal = fopen(path, "r");
  size_t told = 0;
  cr_assert_not_null(journal);
  while (fgets(line, sizeof line, journal) != NULL) {
    if (strstr(line, "does not count: the loss has not halved by its end") == NULL) continue;
    told++;
    cr_assert_not_null(strstr(line, "\"trigger\":\"trial\""));
    cr_assert_null(strstr(line, "\"verdict\""), "nothing has been shown");
  }
  (void)fclose(journal);
  (void)unlink(path);
  cr_assert_eq(told, 1u, "%zu times", told);
}

/* A loss that rises, and one that stands still. */
Test(rounds, under_sgd_a_method_that_stops_learning_is_left) {
  static const double left[] = {-2.0, 0.0};
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.update_rule = "sgd";
    w.late = 300;
    w.shown_late = left[i];
    w = train("measured", w, 2000);
    cr_assert_gt(w.unsafe_steps, 100u);
    cr_assert_gt(w.progress, i == 0 ? 1500.0 : 1200.0, "%g at %g", w.progress, left[i]);
  }
}

/* A method that stops learning is watched on a full disk as well. */
Test(rounds, a_journal_that_cannot_be_written_changes_no_decision) {
  world w = good;
  w.update_rule = "sgd";
  w.late = 300;
  const world written = train("measured", w, 1000);
  w.journal = "/dev/full";
  const world lost = train("measured", w, 1000);
  cr_assert_gt(written.unsafe_steps, 100u);
  cr_assert_eq(lost.unsafe_steps, written.unsafe_steps, "%d steps, %d", (int)lost.unsafe_steps,
               (int)written.unsafe_steps);
  cr_assert_eq(lost.progress, written.progress);
  cr_assert_eq(lost.seconds, written.seconds);
}

/* Shown, left on a network that is no matter, and taken up again: there it stops learning. */
Test(rounds, a_method_that_comes_back_is_watched) {
  world w = good;
  w.update_rule = "sgd";
  w.opens = 500;
  w.closes = 700;
  w.late = 900;
  w.shown_late = -2.0;
  weir_controller *controller = create(&w, "measured", 4000);
  while (w.exchange < w.opens) step(controller, &w);
  cr_assert_gt(w.unsafe_steps, 100u);
  while (w.exchange < w.closes) step(controller, &w);
  cr_assert(weir_plan_safe(&w.plan));
  const uint64_t before = w.unsafe_steps;
  while (w.step < w.late) step(controller, &w);
  cr_assert_gt(w.unsafe_steps, before + 50, "it has not come back");
  while (w.step < 4000) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_gt(w.progress, 3000.0, "%g", w.progress);
}

static int told_of_the_network;
static void hear(void *user, const weir_log_line *line) {
  (void)user;
  told_of_the_network += strstr(line->text, "have not told how fast the network is") != NULL;
}

/* It is said once, and not where anything is decided. */
Test(rounds, where_nothing_tells_the_network_nothing_is_decided_and_that_is_said) {
  world w = good;
  weir_log_set(hear, NULL);
  w = train("safe", w, 300);
  cr_assert_eq(told_of_the_network, 0);
  cr_assert_float_eq(w.plan.cr, 3.5 / 32, 0, "%g", w.plan.cr);
  w = good;
  w.blind = true;
  w = train("safe", w, 300);
  weir_log_set(NULL, NULL);
  cr_assert_eq(told_of_the_network, 1);
  cr_assert_float_eq(w.plan.cr, 5.0 / 32, 0, "%g", w.plan.cr);
}

/* Nothing tells any more what a method does: it is left, and taken up again by a trial. */
Test(rounds, without_a_loss_for_long_a_method_is_left) {
  world w = good;
  w.update_rule = "sgd";
  weir_controller *controller = create(&w, "measured", 4000);
  while (w.step < 300) step(controller, &w);
  cr_assert_not(weir_plan_safe(&w.plan));
  w.reports = false;
  while (w.step < 300 + 60) step(controller, &w);
  uint64_t before = w.unsafe_steps;
  while (w.step < 600) step(controller, &w);
  cr_assert_eq(w.unsafe_steps, before);
  cr_assert_not(w.trial);
  w.reports = true;
  before = w.trial_steps;
  while (w.step < 1000) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_gt(w.trial_steps, before);
  cr_assert_not(weir_plan_safe(&w.plan));
}

/* Rounds in which a loss was missing say nothing of the trainer. */
Test(rounds, a_loss_that_is_missing_ends_a_round_and_no_more) {
  world w = good;
  w.update_rule = "sgd";
  weir_controller *controller = create(&w, "measured", 4000);
  int rounds = 0;
  for (bool before = false, now; w.step < 1000 && rounds < 4; before = now) {
    now = w.trial; /* in the step that comes */
    w.reports = !before || now;
    rounds += now && !before;
    step(controller, &w);
  }
  weir_controller_free(controller);
  cr_assert_eq(rounds, 4);
  cr_assert_eq(w.unsafe_steps, 0u);
}

/* What is left is as long whether or not the steps before were this controller's. */
Test(rounds, a_training_that_is_resumed_pays_for_trials_as_another_does) {
  world whole = good;
  whole.compute = 0.3; /* of which every plan's steps have as much */
  whole.update_rule = "sgd";
  world later = whole;
  later.step = 5000;
  weir_controller *controller = create(&whole, "measured", 1000);
  while (whole.trial_steps == 0 && whole.step < 1000) step(controller, &whole);
  weir_controller_free(controller);
  controller = create(&later, "measured", 6000);
  while (later.trial_steps == 0 && later.step < 6000) step(controller, &later);
  weir_controller_free(controller);
  cr_assert_lt(whole.step, 1000u);
  cr_assert_leq(later.step, 5000 + whole.step, "%d, %d", (int)later.step, (int)whole.step);
}

/* A plan of 3 bits has room, and a checkpoint beside it has not. */
Test(rounds, a_trial_whose_checkpoint_has_no_room_is_not_begun) {
  static const double beside[] = {0.9, 2.1}; /* gradients */
  const weir_memory_form form = {.ranks = RANKS, .hosts = RANKS};
  weir_plan plan;
  cr_assert_eq(weir_plan_parse("qsgd:0.09375:sra", &plan), WEIR_OK);
  const double bytes = weir_plan_memory(&plan, &form, ELEMENTS, weir_cost_kept(&plan, ELEMENTS));
  for (size_t i = 0; i < 2; i++) {
    world w = good;
    w.update_rule = "sgd";
    w.memory = bytes + beside[i] * 4.0 * (double)ELEMENTS;
    w = train("measured", w, 1000);
    cr_assert_eq(w.trial_steps > 0, i == 1, "%d steps beside %g gradients", (int)w.trial_steps,
                 beside[i]);
  }
}

/* More tensors than buckets are planned for: the plan is decided all the same. */
Test(rounds, very_many_tensors_go_undivided) {
  enum { MANY = 4001 };
  static size_t offset[MANY + 1];
  static double gap[MANY];
  for (size_t t = 0; t < MANY; t++) {
    offset[t + 1] = ELEMENTS * (t + 1) / MANY;
    gap[t] = 0.02 / MANY;
  }
  world w = good;
  const weir_controller_config config = {.policy = "weir",
                                         .update_rule = "adaptive",
                                         .trial_budget = 0.04,
                                         .world_size = RANKS,
                                         .layout = {MANY, offset},
                                         .overlap = true,
                                         .seed = 5};
  weir_controller *controller;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  weir_controller_gaps(controller, gap);
  cr_assert_eq(weir_policy_first_plan(
                   "weir", &(weir_beginning){.ranks = RANKS, .update_rule = "adaptive"}, &w.plan),
               WEIR_OK);
  batches_in_trial = 0;
  while (w.step < 20) step(controller, &w);
  weir_controller_free(controller);
  cr_assert_gt(w.plan.id, 0u);
  cr_assert_eq(w.plan.buckets, 0u);
}

/* --- what is on record of methods ------------------------------------------------------------- */

/* Before a step in which a plan is in force that has so many trials behind it.  Losses fall from 4
 * by a thousandth a step, clearly. */
static void open_loop(weir_loop *loop, const char *plan, uint32_t rule, uint64_t steps) {
  static weir_plan_bucket room[2];
  memset(loop, 0, sizeof *loop);
  loop->table = &room[0];
  loop->next_table = &room[1];
  loop->policy = &weir_policy_weir;
  loop->workers = RANKS;
  loop->risk = WEIR_RISK_MEASURED;
  loop->elements = ELEMENTS;
  loop->seed = 5;
  loop->next_id = 2;
  weir_learn_start(&loop->learnt);
  loop->learnt.step_s = 1.0;
  cr_assert_eq(weir_plan_parse(plan, &loop->current), WEIR_OK);
  loop->current.id = 1;
  weir_rounds *r = &loop->rounds;
  r->rule = rule;
  r->steps = steps;
  r->settled = true;
  for (int i = 0; i < 1024; i++) {
    const double loss = 4.0 - 1e-3 * i;
    weir_course_add(&r->course, loss);
    if (i >= 1024 - WEIR_LOSSES) r->loss[r->losses++] = loss;
  }
  r->begun = 8.0;
  r->told = 1024;
}

static weir_observation at(const weir_loop *loop, uint64_t step, double loss) {
  return (weir_observation){.step = step,
                            .plan = loop->current,
                            .loss = loss,
                            .network = {.latency = 1e-3, .bandwidth = 1e6, .goodput = 1e6}};
}

/* The last step of a round in which an arm had the losses of what it is compared with. */
static void end_round(weir_loop *loop, const char *plan, uint64_t step, double spare_rounds) {
  weir_rounds *r = &loop->rounds;
  weir_plan tried;
  weir_decision_input in;
  weir_candidate own;
  bool busy;
  cr_assert_eq(weir_plan_parse(plan, &tried), WEIR_OK);
  const weir_observation seen = at(loop, step, 2.9);
  const weir_round_form *form = weir_round_form_of(&tried, r->rule);
  const size_t batches = weir_round_batches(form);
  r->phase = WEIR_ROUND_BACK;
  r->tried = tried;
  r->method = weir_method_of(&tried);
  r->follow_id = form->after > 0;
  r->turned = form->after > 0 ? form->steps : 0;
  r->ran = batches;
  r->paired = batches - 1;
  r->first = step - r->paired;
  for (size_t i = 0; i < batches; i++) r->tried_loss[i] = r->kept_loss[i] = 2.9;
  weir_loop_input(loop, &seen, WEIR_TRIGGER_TRIAL, &in);
  weir_evaluate(&in, &tried, &own);
  const double round_s = (double)form->steps * weir_step_seconds(&in, &own) + (double)form->after;
  r->budget =
      0.1; /* of which all but a twentieth may be spent, of a time beside which no step is */
  r->elapsed_s = 1e9;
  r->timed = UINT64_C(1) << 60;
  r->spent_s = 0.95 * 0.1 * 1e9 - spare_rounds * round_s;
  loop->learnt.step_s = 1.0;
  cr_assert_eq(weir_rounds_step(loop, &seen, &busy), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(r->phase, WEIR_ROUND_NONE);
  cr_assert_eq(r->record[r->method].standing, WEIR_METHOD_SHOWN);
}

/* Of 20000 steps the last 1000 are a safe plan's.  From step 15500 on 3500 are left, of which what
 * was shown now and what one more round may show have half each; without another round it is known
 * for a tenth of the steps so far. */
Test(rounds, what_was_shown_lasts_until_the_next_round_shows_it_again) {
  static weir_loop loop;
  for (int more = 0; more < 2; more++) {
    open_loop(&loop, "none:1:dense-ring", WEIR_RULE_ADAPTIVE, 20000);
    end_round(&loop, "topk:0.01:ag:auto-bf16", 15500, more + 0.5);
    const weir_method_record *of = &loop.rounds.record[loop.rounds.method];
    cr_assert_eq(of->good_until, 15500u + (more ? 1750u : 1550u), "%d", (int)of->good_until);
  }
}

/* It was compared with 2 bits, which are known to hold the loss until step 650 only. */
Test(rounds, what_was_shown_beside_a_method_is_known_no_longer_than_that_one) {
  static weir_loop loop;
  for (int safe = 0; safe < 2; safe++) {
    open_loop(&loop, safe ? "none:1:dense-ring" : "qsgd:0.0625:ag", WEIR_RULE_SGD, 2000);
    weir_method_record *beside = &loop.rounds.record[0];
    *beside =
        (weir_method_record){.standing = WEIR_METHOD_SHOWN, .progress = 0.9, .good_until = 650};
    end_round(&loop, "topk:0.01:ag:auto-bf16", 600, 2.5);
    const weir_method_record *of = &loop.rounds.record[loop.rounds.method];
    cr_assert_eq(of->good_until == 650, !safe, "%d", (int)of->good_until);
    const double seen = loop.rounds.judgement.mean;
    cr_assert_float_eq(of->progress, (safe ? 1.0 : 0.9) * seen, 1e-9, "%g", of->progress);
  }
}

/* Where gradients turn out to be clipped, before the first decision, later, or in the midst of a
 * trial, plans that SGD's promise is for are left within a few steps and for good, and 2 bits are
 * not tried any more. */
Test(rounds, steps_that_are_not_proportional_leave_what_is_for_sgd) {
  const world doubts[] = {{.doubts = 2}, {.doubts = 30}, {.doubts = 300}, {.doubts_in_trial = 5}};
  for (size_t i = 0; i < sizeof doubts / sizeof *doubts; i++) {
    world w = good;
    w.update_rule = "sgd";
    w.doubts = doubts[i].doubts;
    w.doubts_in_trial = doubts[i].doubts_in_trial;
    w = train("measured", w, 1000);
    cr_assert(w.doubts == 0 || w.doubted == w.doubts);
    cr_assert(w.doubted > 0 || w.doubts > 0, "no trial was doubted");
    cr_assert_gt(w.sgd_alone, 0u);
    cr_assert_leq(w.sgd_alone, w.doubted + 8, "%d, doubted %d", (int)w.sgd_alone, (int)w.doubted);
    cr_assert_not(w.trial);
    /* Others know of no trial of fewer steps than this, which the budget does not pay here. */
    cr_assert_leq(w.trial_steps, w.doubts == 300 ? 400u : 18u, "%d", (int)w.trial_steps);
    cr_assert_eq(w.plan.codec, WEIR_CODEC_COMPANDED);
  }
}

/* Where averages turn out to be thrown away 16 bits are sent, whatever the rule was, within a few
 * steps and for good; a doubt that says less comes to nothing then. */
Test(rounds, where_averages_are_thrown_away_16_bits_are_sent) {
  static const char *const rules[] = {"sgd", "adaptive"};
  for (size_t i = 0; i < 2; i++)
    for (int when = 0; when < 3; when++) {
      world w = good;
      w.update_rule = rules[i];
      w.throws_away = true;
      w.doubts = when == 0 ? 2 : 300;
      weir_controller *controller = create(&w, "measured", 1000);
      while (w.step < 1000) {
        step(controller, &w);
        if (when == 2 && w.exchange > w.doubts) weir_controller_doubt_rule(controller, false);
      }
      weir_controller_free(controller);
      cr_assert_gt(w.few_bits, 0u);
      cr_assert_leq(w.few_bits, w.doubted + 8, "%d, doubted %d", (int)w.few_bits, (int)w.doubted);
      cr_assert(w.plan.codec == WEIR_CODEC_BF16 || w.plan.codec == WEIR_CODEC_FP16, "%s",
                weir_codec_name(w.plan.codec));
    }
}

/* 2 bits are in force, and the loss rises from 3 to 4: SGD's promise does not hold.  What other
 * methods have shown so far were shares of the loss, and are no shares of progress. */
Test(rounds, what_was_seen_by_a_rule_that_does_not_hold_counts_no_longer) {
  static weir_loop loop;
  bool busy;
  open_loop(&loop, "qsgd:0.0625:ag", WEIR_RULE_SGD, 0);
  weir_rounds *r = &loop.rounds;
  for (size_t i = 0; i < r->losses; i++) r->loss[i] = 4.0;
  r->record[0] = (weir_method_record){
      .standing = WEIR_METHOD_SHOWN, .progress = 1.0, .good_until = UINT64_MAX};
  r->record[4].evidence = (weir_evidence){.count = 3, .sample = {0.97, 0.97, 0.97}};
  r->following = true;
  r->promised = (weir_slope){.level = 3.0, .per_step = 1e-3, .error = 1e-5, .scatter = 0.01};
  r->promised_at = 500;
  r->anchor = 600;
  r->anchor_loss = 3.0;
  const weir_observation seen = at(&loop, 1000, 4.0);
  cr_assert_eq(weir_rounds_step(&loop, &seen, &busy), WEIR_OK, "%s", weir_last_error());
  cr_assert(busy);
  cr_assert_eq(r->rule, WEIR_RULE_ADAPTIVE);
  cr_assert_eq(r->record[0].standing, WEIR_METHOD_REFUSED);
  cr_assert_eq(r->record[4].evidence.count, 0u);
}
