/* What a controller has learnt outlives it: the next one goes on, and believes no damaged word. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sampled.h"
#include "controller/controller.h"
#include "controller/saved.h"

#define RANKS 4
#define TENSORS 3

static const size_t offsets[] = {0, 400000, 900000, 1000000};
static const char *const names[] = {"a", "b", "c"};

/* Steps on a network that stays as it is. */
typedef struct world {
  weir_plan plan, kept;
  bool trial;
  uint64_t step;
  double comm; /* of the step before */
  int trials, switches;
} world;

static weir_controller *create(const char *policy, const char *journal, const void *saved,
                               size_t bytes, bool alike, world *w) {
  const weir_controller_config config = {.policy = policy,
                                         .update_rule = "adaptive",
                                         .world_size = RANKS,
                                         .layout = {TENSORS, offsets},
                                         .names = names,
                                         .trial_budget = 0.05,
                                         .seed = 1,
                                         .journal_path = journal,
                                         .journal_goes_on = saved != NULL,
                                         .saved = saved,
                                         .saved_bytes = bytes,
                                         .saved_alike = alike};
  weir_controller *controller = NULL;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  if (saved == NULL) {
    *w = (world){0};
    cr_assert_eq(
        weir_policy_first_plan(policy, &(weir_beginning){.ranks = RANKS, .update_rule = "adaptive"},
                               &w->plan),
        WEIR_OK);
  }
  return controller;
}

static void obey(world *w, const weir_directive *directive) {
  if (directive->action == WEIR_ACTION_TRIAL) {
    if (!w->trial) w->kept = w->plan;
    w->trial = true;
    w->trials++;
    w->plan = directive->plan;
  }
  if (directive->action == WEIR_ACTION_SWITCH) {
    w->trial = false;
    w->switches++;
    w->plan = directive->plan;
  }
}

static weir_directive step(weir_controller *c, world *w) {
  weir_header headers[RANKS] = {0};
  weir_step_record record = {.info = {.step = w->step, .plan = w->plan, .trial = w->trial}};
  weir_directive directive;
  weir_controller_propose(c, &directive);
  for (int r = 0; r < RANKS; r++) {
    headers[r].compute_s = 0.02;
    headers[r].compress_s = 0.004;
    headers[r].comm_s = headers[r].wait_s = w->comm;
    headers[r].gain = 0.5;
    headers[r].loss = 5 / (1 + 0.01 * (double)w->step);
    headers[r].latency_s = 0.001;
    headers[r].bandwidth = headers[r].goodput = 1e8;
    headers[r].latency_error = headers[r].bandwidth_error = 0.02;
    for (int i = 0; i < WEIR_CURVE_POINTS; i++) headers[r].curve[i] = 0.9 / (1 + i);
  }
  record.terms =
      weir_cost_plan(&w->plan, RANKS, offsets[TENSORS], weir_cost_kept(&w->plan, offsets[TENSORS]));
  weir_controller_observe(c, headers, RANKS, &record);
  w->comm = 1.1 * weir_cost_seconds(&record.terms, 0.001, 1e-8);
  if (!w->trial) w->step++;
  obey(w, &directive);
  return directive;
}

static void steps(weir_controller *c, world *w, int count) {
  for (int i = 0; i < count; i++) (void)step(c, w);
}

/* Until the next step starts from weights that count. */
static void to_a_checkpoint(weir_controller *c, world *w) {
  while (w->trial) (void)step(c, w);
}

static void save(weir_controller *c, void **data, size_t *bytes) {
  bool ours;
  cr_assert_eq(weir_controller_save(c, data, bytes), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_controller_saved_check(*data, *bytes, TENSORS, &ours), WEIR_OK, "%s",
               weir_last_error());
  cr_assert(ours);
}

/* Side by side with the one that was not ended, whatever each of them is asked. */
Test(controller_saved, goes_on_as_if_it_had_not_ended) {
  static const char *const policies[] = {
      "weir",
      "paper",
      "paper:lwtopk+star+var",
      "fixed:topk:0.01:ag",
      "schedule:topk:0.1:ag;step=90:none:1:dense-ring;step=140:star:0.05:art-tree",
      "groups:even=2:topk:0.01:ag",
      "groups:turns=12:even=2:topk:0.01:ag;layers:topk:0.01:ag"};
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    for (int at = 70; at < 92; at += 1 + (at < 86 ? 5 : 0)) { /* paper's trials have ended */
      world w, copy, fresh;
      void *data;
      size_t bytes;
      weir_controller *first = create(policies[p], NULL, NULL, 0, false, &w);
      steps(first, &w, at);
      to_a_checkpoint(first, &w);
      save(first, &data, &bytes);
      copy = w;
      weir_controller *second = create(policies[p], NULL, data, bytes, true, &copy);
      const int trials = w.trials;
      for (int i = 0; i < 100; i++) {
        const weir_directive here = step(first, &w), there = step(second, &copy);
        cr_assert_eq(memcmp(&here, &there, sizeof here), 0,
                     "%s, saved at %d: step %d: action %u, plan %d of %u there, %u, %d here",
                     policies[p], at, i, there.action, (int)there.plan.id, there.plan.codec,
                     here.action, (int)here.plan.id);
      }
      if (strcmp(policies[p], "paper") == 0) { /* one that is not told tries all again */
        cr_assert_eq(w.trials, trials);
        weir_controller *none = create(policies[p], NULL, NULL, 0, false, &fresh);
        steps(none, &fresh, 60);
        cr_assert_eq(fresh.trials, WEIR_TRIALS);
        weir_controller_free(none);
      }
      weir_controller_free(first);
      weir_controller_free(second);
      free(data);
    }
}

/* Lines of a journal, whose decisions are numbered from 0 on. */
static int lines_of(const char *path) {
  FILE *file = fopen(path, "r");
  char line[1 << 16];
  int count = 0, decision, format;
  cr_assert_not_null(file);
  for (; fgets(line, sizeof line, file); count++) {
    cr_assert_eq(sscanf(line, "{\"format\":%d,\"decision\":%d", &format, &decision), 2);
    cr_assert_eq(decision, count, "line %d is decision %d", count, decision);
  }
  fclose(file);
  return count;
}

Test(controller_saved, the_journal_goes_back_to_where_it_was) {
  char path[] = "/tmp/weir-saved-XXXXXX";
  cr_assert_geq(close(mkstemp(path)), 0);
  world w, later;
  void *data;
  size_t bytes;
  weir_controller *first = create("weir", path, NULL, 0, false, &w);
  steps(first, &w, 120);
  to_a_checkpoint(first, &w);
  save(first, &data, &bytes);
  later = w;
  const int saved = lines_of(path);
  cr_assert_gt(saved, 1);
  steps(first, &w, 400); /* which are lost */
  weir_controller_free(first);
  const int before = lines_of(path);
  cr_assert_gt(before, saved);
  weir_controller *second = create("weir", path, data, bytes, true, &later);
  cr_assert_eq(lines_of(path), saved);
  steps(second, &later, 400);
  weir_controller_free(second);
  cr_assert_eq(lines_of(path), before);
  free(data);
  (void)unlink(path);
}

/* With other ranks: what codecs take, and no more. */
Test(controller_saved, others_take_over_what_is_known_of_codecs) {
  weir_loop loop = {.current = {.cr = 1}, .next_id = 5, .steps = 77, .decisions = 4};
  weir_mailbox mailbox = {0};
  weir_plan_bucket table[TENSORS + 1] = {0}, taken[TENSORS + 1] = {0};
  weir_saved_parts parts = {.loop = &loop, .mailbox = &mailbox, .taken = taken, .journal = 9};
  weir_saved saved;
  weir_learn_start(&loop.learnt);
  loop.table = table;
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) loop.learnt.compress[c] = 1.5 + (double)c;
  loop.learnt.overhead[3] = 0.25;
  weir_saved_write(&saved, &parts);
  for (int alike = 0; alike < 2; alike++) {
    weir_loop next = {.table = table, .current = {.cr = 0.5}};
    weir_saved_parts to = {.loop = &next, .mailbox = &mailbox, .taken = taken};
    weir_learn_start(&next.learnt);
    cr_assert_eq(weir_saved_read(saved.data, saved.at, alike, &to), WEIR_OK, "%s",
                 weir_last_error());
    for (size_t c = 0; c < WEIR_CODEC_COUNT; c++)
      cr_assert_eq(next.learnt.compress[c], 1.5 + (double)c);
    cr_assert_eq(next.learnt.overhead[3], alike ? 0.25 : 0);
    cr_assert_eq(next.steps, alike ? 77 : 0);
    cr_assert_eq(next.next_id, alike ? 5 : 0);
    cr_assert_eq(next.current.cr, alike ? 1 : 0.5);
    cr_assert_eq(to.journal, alike ? 9 : 0);
  }
  free(saved.data);
}

/* --- what cannot be --------------------------------------------------------------------------- */

static weir_status check(const unsigned char *data, size_t bytes, bool *ours) {
  return weir_controller_saved_check(data, bytes, TENSORS, ours);
}

/* Of values each of which may be, some may not be together. */
Test(controller_saved, values_that_contradict_each_other_are_refused) {
  for (int wrong = 0; wrong < 4; wrong++) {
    weir_loop loop = {.current = {.id = 4, .cr = 1}, .next_id = 5}, next = {.current = {.cr = 1}};
    weir_mailbox mailbox = {0};
    weir_plan_bucket table[TENSORS + 1] = {0}, taken[TENSORS + 1] = {0};
    weir_saved_parts parts = {.loop = &loop, .mailbox = &mailbox, .taken = taken},
                     to = {.loop = &next, .mailbox = &mailbox, .taken = taken};
    weir_saved saved;
    weir_learn_start(&loop.learnt);
    loop.table = next.table = table;
    if (wrong == 1) loop.next_id = 4;            /* a plan's number comes once */
    if (wrong == 2) loop.learnt.tried[3] = true; /* and has no floor to go back to */
    if (wrong == 3) loop.rounds.course = (weir_course){.each = 2, .begun = 2};
    weir_saved_write(&saved, &parts);
    cr_assert_eq(weir_saved_read(saved.data, saved.at, true, &to),
                 wrong == 0 ? WEIR_OK : WEIR_E_PARSE, "%d", wrong);
    free(saved.data);
  }
}

/* Whatever is believed is gone on from. */
static void go_on(const char *policy, const unsigned char *data, size_t bytes, const world *w) {
  world copy = *w;
  weir_controller *c = create(policy, NULL, data, bytes, true, &copy);
  for (int i = 0; i < 40; i++) {
    weir_header headers[RANKS] = {0};
    const weir_step_record record = {.info = {.step = copy.step++, .plan = copy.plan}};
    weir_directive directive;
    weir_controller_propose(c, &directive);
    cr_assert(directive.action == WEIR_ACTION_KEEP || directive.action == WEIR_ACTION_PROBE ||
              directive.action == WEIR_ACTION_SAMPLE ||
              weir_plan_check(&directive.plan) == WEIR_OK);
    for (int r = 0; r < RANKS; r++) {
      headers[r].latency_s = 0.001;
      headers[r].bandwidth = headers[r].goodput = 1e8;
      headers[r].loss = 2;
    }
    weir_controller_observe(c, headers, RANKS, &record);
  }
  weir_controller_free(c);
}

Test(controller_saved, damaged_savings_are_refused) {
  static const char *const policies[] = {"weir", "paper", "groups:even=2:topk:0.01:ag"};
  static const uint64_t extremes[] = {UINT64_MAX,
                                      UINT64_C(0x7ff8000000000000),
                                      UINT64_C(0x7ff0000000000000),
                                      UINT64_C(0xfff0000000000000),
                                      UINT64_C(0x7fefffffffffffff),
                                      UINT64_C(1) << 63,
                                      0};
  uint64_t draw = 88172645463325252u;
  int believed = 0, refused = 0;
  for (size_t p = 0; p < 3; p++) {
    world w;
    void *data;
    size_t bytes;
    bool ours;
    weir_controller *c = create(policies[p], NULL, NULL, 0, false, &w);
    steps(c, &w, 150);
    to_a_checkpoint(c, &w);
    save(c, &data, &bytes);
    weir_controller_free(c);
    unsigned char *copy = malloc(bytes + 8);
    for (size_t cut = 16; cut < bytes; cut += 1 + cut / 64)
      cr_assert_eq(check(data, cut, &ours), WEIR_E_PARSE, "%zu of %zu bytes", cut, bytes);
    memcpy(copy, data, bytes);
    memset(copy + bytes, 0, 8);
    cr_assert_eq(check(copy, bytes + 8, &ours), WEIR_E_PARSE, "bytes follow");
    for (size_t at = 0; at < 16; at++) { /* another version */
      memcpy(copy, data, bytes);
      copy[at] ^= 1;
      cr_assert_eq(check(copy, bytes, &ours), WEIR_OK);
      cr_assert_not(ours);
    }
    for (int i = 0; i < 4000; i++) {
      memcpy(copy, data, bytes);
      for (int k = 0; k <= i % 3; k++) {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        const size_t at = 16 + (size_t)(draw % (bytes - 16 - 8));
        if (draw & (UINT64_C(1) << 40))
          copy[at] ^= (unsigned char)(1u << (draw >> 41) % 8);
        else
          memcpy(copy + at, &extremes[(draw >> 41) % 7], 8);
      }
      if (!sampled(4)) continue;
      const weir_status status = check(copy, bytes, &ours);
      cr_assert(ours && (status == WEIR_OK || status == WEIR_E_PARSE));
      if (status == WEIR_OK) go_on(policies[p], copy, bytes, &w);
      *(status == WEIR_OK ? &believed : &refused) += 1;
    }
    free(copy);
    free(data);
  }
  cr_assert(believed > 250 && refused > 250, "%d believed, %d refused", believed, refused);
}

/* A plan that no codec knows, and a flag that is neither, at the places where they lie. */
Test(controller_saved, what_would_be_used_as_an_index_is_looked_at) {
  world w;
  void *data;
  size_t bytes, found = 0;
  bool ours;
  weir_controller *c = create("fixed:topk:0.01:ag-ring", NULL, NULL, 0, false, &w);
  steps(c, &w, 20);
  save(c, &data, &bytes);
  weir_controller_free(c);
  for (size_t at = 16; at + sizeof w.plan <= bytes && found == 0; at++)
    if (memcmp((char *)data + at, &w.plan, sizeof w.plan) == 0) found = at;
  cr_assert_gt(found, 0);
  weir_plan bad = w.plan;
  bad.codec = 200;
  memcpy((char *)data + found, &bad, sizeof bad);
  cr_assert_eq(check(data, bytes, &ours), WEIR_E_PARSE);
  bad = w.plan;
  bad.buckets = TENSORS + 1;
  bad.layout = 1;
  memcpy((char *)data + found, &bad, sizeof bad);
  cr_assert_eq(check(data, bytes, &ours), WEIR_E_PARSE);
  memcpy((char *)data + found, &w.plan, sizeof bad);
  cr_assert_eq(check(data, bytes, &ours), WEIR_OK);
  free(data);
}

/* Beside its thread: what has been observed is in what is saved. */
Test(controller_saved, a_decision_under_way_is_waited_for) {
  const weir_controller_config config = {.policy = "fixed:topk:0.01:ag",
                                         .world_size = RANKS,
                                         .layout = {TENSORS, offsets},
                                         .names = names,
                                         .threaded = true};
  weir_controller *c = NULL;
  world w = {0};
  cr_assert_eq(weir_controller_create(&c, &config), WEIR_OK);
  cr_assert_eq(
      weir_policy_first_plan(config.policy,
                             &(weir_beginning){.ranks = RANKS, .update_rule = "adaptive"}, &w.plan),
      WEIR_OK);
  for (int round = 0; round < 20; round++) {
    void *data;
    size_t bytes;
    weir_loop loop = {.layout = {TENSORS, offsets}};
    weir_mailbox mailbox = {0};
    weir_plan_bucket table[TENSORS + 1], taken[TENSORS + 1], waiting[TENSORS + 1];
    double gaps[TENSORS];
    weir_saved_parts parts = {.loop = &loop, .mailbox = &mailbox, .taken = taken};
    loop.table = table;
    loop.gap_s = gaps;
    mailbox.table = waiting;
    steps(c, &w, 10);
    save(c, &data, &bytes);
    cr_assert_eq(weir_saved_read(data, bytes, true, &parts), WEIR_OK);
    cr_assert_eq(loop.steps, 10 * ((uint64_t)round + 1));
    free(data);
  }
  weir_controller_free(c);
}
