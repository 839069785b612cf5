/* Plans that send what gradients have touched: from how much of a gradient is not zero to the plan,
 * and what happens when it becomes more. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "controller/controller.h"
#include "controller/mailbox.h"
#include "decide_input.h"
#include "kernels/codec.h"

#define RANKS 4
#define ELEMENTS ((size_t)1000000)

/* 1 ms and 100 Mbit/s, under the risk given, where so much of a gradient is not zero. */
static weir_decision decide_at(double nonzero, uint32_t risk, uint32_t settled) {
  weir_decision_input in = input_at(1e-3, 12.5e6);
  weir_decision d;
  in.trigger = WEIR_TRIGGER_START;
  in.risk = risk;
  in.nonzero = nonzero;
  in.runs = nonzero / 16;
  in.settled = settled;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
  return d;
}

static void expect_sparse(const weir_plan *plan, double bits) {
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  cr_assert(plan->codec == (bits == 16 ? WEIR_CODEC_NONZERO_BF16 : WEIR_CODEC_NONZERO) &&
                plan->scheme == WEIR_SCHEME_GATHER && plan->cr == bits / 32.0,
            "%s, expected nonzero of %g bits", text, bits);
}

/* Units of 128 values have a float and their codes; a run of 16 takes a byte or two.  Coded by how
 * often they occur, messages are taken to be 0.9 or 0.77 as long until some have been seen. */
Test(sparse, of_a_sparse_gradient_no_more_than_that_is_sent_without_evidence) {
  for (uint32_t risk = WEIR_RISK_MEASURED; risk <= WEIR_RISK_SAFE; risk++)
    for (uint32_t settled = WEIR_UNSETTLED; settled <= WEIR_SETTLED_SGD; settled++) {
      const weir_decision d = decide_at(0.03, risk, settled);
      static const double bits[] = {5, 3.5, 3};
      const double stored = ceil(bits[settled]), coded = settled == WEIR_UNSETTLED ? 0.9 : 0.77;
      const double grid = 4.0 / 128, values = 30000;
      const double least = coded * (values * (stored / 8 + grid) + values / 16);
      expect_sparse(&d.choice.plan, bits[settled]);
      cr_assert(d.switched && d.choice.plan.wire == WEIR_WIRE_HUFFMAN);
      cr_assert_eq(d.choice.gain, 1.0);
      /* The three messages of the others, straight from each. */
      cr_assert_geq(d.choice.comm_s, 1e-3 + 3 * least / 12.5e6);
      cr_assert_leq(d.choice.comm_s, 1e-3 + 3 * (least + coded * values / 16) / 12.5e6);
      cr_assert_float_eq(d.choice.progress_per_s,
                         1 / (0.02 + d.choice.compress_s + d.choice.comm_s), 1e-9);
    }
}

/* Of an optimizer that nobody knows, 16 bits at the least, however far the training has come. */
Test(sparse, of_an_unknown_optimizer_16_bits_are_sent) {
  static weir_decision d;
  for (uint32_t settled = WEIR_UNSETTLED; settled <= WEIR_SETTLED; settled++)
    for (size_t a = 0; a < WEIR_ARMS; a++) {
      const weir_arm *arm = weir_arm_at(a);
      weir_decision_input in = input_at(1e-3, 12.5e6);
      in.trigger = WEIR_TRIGGER_START;
      in.risk = WEIR_RISK_MEASURED;
      in.nonzero = 0.03;
      in.runs = in.nonzero / 16;
      in.settled = settled;
      in.untried = 1;
      cr_assert_eq(weir_arm_counts(&in, a) && arm->safe,
                   weir_arm_runs(&in, a) && arm->safe && arm->plan.cr >= 0.5, "arm %zu", a);
      if (arm->safe) in.current = arm->plan;
      cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
      expect_sparse(&d.choice.plan, 16);
    }
}

/* 16 bits, 5, and fewer as a training comes so far; 2 bits have to show what they do. */
Test(sparse, its_arms_are_these) {
  static const struct {
    const char *plan;
    bool safe;
    uint32_t settled;
  } arms[] = {
      {"nonzero-bf16:0.5:ag", true, WEIR_UNSETTLED},  {"nonzero:0.15625:ag", true, WEIR_UNSETTLED},
      {"nonzero:0.125:ag", true, WEIR_SETTLED},       {"nonzero:0.109375:ag", true, WEIR_SETTLED},
      {"nonzero:0.09375:ag", true, WEIR_SETTLED_SGD}, {"nonzero:0.0625:ag", false, WEIR_UNSETTLED}};
  size_t found = 0;
  for (size_t a = 0; a < WEIR_ARMS; a++) found += weir_plan_sparse(&weir_arm_at(a)->plan);
  cr_assert_eq(found, sizeof arms / sizeof *arms);
  for (size_t i = 0; i < found; i++) {
    const weir_plan plan = plan_of(arms[i].plan);
    const size_t a = weir_arm_of(&plan);
    cr_assert_lt(a, (size_t)WEIR_ARMS, "%s", arms[i].plan);
    cr_assert_eq(weir_plan_safe(&plan), arms[i].safe, "%s", arms[i].plan);
    cr_assert_eq(weir_arm_at(a)->settled, arms[i].settled, "%s", arms[i].plan);
    cr_assert_eq(weir_method_of(&plan) < WEIR_METHODS, !arms[i].safe, "%s", arms[i].plan);
  }
  /* One method, whichever collective. */
  const weir_plan sparse = plan_of("nonzero:0.0625:ag"), dense = plan_of("qsgd:0.0625:sra");
  cr_assert_eq(weir_method_of(&sparse), weir_method_of(&dense));
}

Test(sparse, not_of_a_dense_gradient_nor_of_an_unknown_one_nor_at_other_risks) {
  const double shares[] = {0.0, 0.6, 1.0};
  for (size_t i = 0; i < 3; i++)
    for (uint32_t risk = WEIR_RISK_MEASURED; risk <= WEIR_RISK_SAFE; risk++) {
      const weir_decision d = decide_at(shares[i], risk, 1);
      cr_assert(!weir_plan_sparse(&d.choice.plan), "%g", shares[i]);
      for (size_t c = 0; c < d.candidates; c++)
        cr_assert(!weir_plan_sparse(&d.candidate[c].plan), "%g", shares[i]);
    }
  /* At risk bold the curve says what a ratio is worth, whatever is zero. */
  const weir_decision bold = decide_at(0.03, WEIR_RISK_BOLD, 1);
  const weir_decision blind = decide_at(0.0, WEIR_RISK_BOLD, 1);
  cr_assert(weir_arm_of(&bold.choice.plan) < WEIR_BOLD_ARMS);
  cr_assert_eq(bold.choice.plan.cr, blind.choice.plan.cr);
  for (int which = 0; which < 2; which++) {
    weir_decision_input in = input_at(1e-3, 12.5e6);
    weir_decision d;
    in.risk = WEIR_RISK_MEASURED;
    *(which ? &in.runs : &in.nonzero) = 1.1;
    cr_assert_eq(weir_decide(&in, &d), WEIR_E_INVALID);
  }
}

/* --- while it runs ---------------------------------------------------------------------------- */

typedef struct world {
  weir_plan plan;
  uint64_t step;
  double nonzero[RANKS];
  double comm;
  bool counts_not; /* the last rank's device counts nothing */
} world;

/* What coding leaves of a message, where the plan's codes are coded. */
static double coded(const world *w) { return w->plan.wire == WEIR_WIRE_HUFFMAN ? 0.85 : 1.0; }

static weir_cost_terms terms_of(const world *w) {
  double kept = (double)weir_cost_kept(&w->plan, ELEMENTS);
  if (weir_plan_sparse(&w->plan)) /* what a step's messages come to */
    kept *= coded(w) * weir_nonzero_share(w->nonzero[0], w->nonzero[0] / 16, w->plan.cr);
  return weir_cost_plan(&w->plan, RANKS, ELEMENTS, (size_t)kept);
}

static void step(weir_controller *controller, world *w) {
  weir_header headers[RANKS];
  weir_step_record record;
  weir_directive directive;
  memset(headers, 0, sizeof headers);
  memset(&record, 0, sizeof record);
  weir_controller_propose(controller, &directive);
  for (int r = 0; r < RANKS; r++)
    headers[r] = (weir_header){.compute_s = 0.01,
                               .comm_s = w->comm,
                               .wait_s = w->comm,
                               .gain = 1,
                               .loss = NAN,
                               .latency_s = 1e-3,
                               .bandwidth = 12.5e6,
                               .goodput = 12.5e6,
                               .latency_error = 0.02,
                               .bandwidth_error = 0.02,
                               .goodput_error = 0.02,
                               .nonzero = (float)w->nonzero[r],
                               .runs = (float)w->nonzero[r] / 16};
  if (w->counts_not) headers[RANKS - 1].nonzero = 0;
  record.info.step = w->step++;
  record.info.plan = w->plan;
  record.terms = terms_of(w);
  record.shortened = coded(w) < 1.0 ? coded(w) : 0.0;
  weir_controller_observe(controller, headers, RANKS, &record);
  w->comm = weir_cost_seconds(&record.terms, 1e-3, 1 / 12.5e6);
  if (directive.action == WEIR_ACTION_SWITCH) w->plan = directive.plan;
}

static weir_controller *begin(world *w, const char *risk) {
  static const size_t offsets[] = {0, ELEMENTS};
  weir_controller *controller;
  const weir_controller_config config = {.policy = "weir",
                                         .risk = risk,
                                         .update_rule = "adaptive",
                                         .world_size = RANKS,
                                         .layout = {1, offsets},
                                         .seed = 5};
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  *w = (world){.plan = plan_of("bf16:1:dense-ring"), .nonzero = {0.029, 0.027, 0.03, 0.028}};
  return controller;
}

static void run(weir_controller *controller, world *w, int steps) {
  for (int i = 0; i < steps; i++) step(controller, w);
}

Test(sparse, why_there_are_no_buckets_is_said) {
  static const size_t offsets[] = {0, ELEMENTS / 2, ELEMENTS};
  for (int overlap = 0; overlap < 2; overlap++) {
    const weir_controller_config config = {.policy = "weir",
                                           .risk = "safe",
                                           .update_rule = "adaptive",
                                           .world_size = RANKS,
                                           .layout = {2, offsets},
                                           .overlap = overlap != 0};
    world w;
    weir_controller *controller;
    char said[384];
    weir_controller_free(begin(&w, "safe"));
    cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
    run(controller, &w, 8);
    expect_sparse(&w.plan, 5);
    weir_controller_said(controller, said, sizeof said);
    cr_assert_eq(strstr(said, "without buckets: part of it may be dense") != NULL, overlap != 0,
                 "%s", said);
    weir_controller_free(controller);
  }
}

Test(sparse, it_is_taken_at_the_first_decision_and_stays) {
  const char *const risks[] = {"measured", "safe"};
  for (size_t i = 0; i < 2; i++) {
    world w;
    weir_controller *controller = begin(&w, risks[i]);
    run(controller, &w, 8);
    expect_sparse(&w.plan, 5);
    const uint64_t id = w.plan.id;
    for (int k = 0; k < 500; k++) {
      for (int r = 0; r < RANKS; r++) w.nonzero[r] = 0.028 + 0.002 * sin(k + r);
      step(controller, &w);
    }
    cr_assert_eq(w.plan.id, id + 1, "the plan flaps");
    expect_sparse(&w.plan, 3.5); /* once the training has settled */
    weir_controller_free(controller);
  }
}

/* Of what top-k has held back some lies where no gradient comes to again: one step that sends all,
 * and then no more than is touched. */
Test(sparse, what_a_method_withheld_is_sent_before) {
  world w;
  char said[384];
  weir_controller *controller = begin(&w, "measured");
  run(controller, &w, 30);
  expect_sparse(&w.plan, 5);
  const weir_plan sparse = w.plan;
  w.plan = plan_of("topk:0.01:ag:auto-bf16");
  run(controller, &w, 1);
  w.plan = sparse;
  w.nonzero[2] = 0.05; /* a decision is due */
  run(controller, &w, 1);
  w.nonzero[2] = 0.03;
  run(controller, &w, 2); /* its directive rides on the next step's header */
  cr_assert(weir_plan_safe(&w.plan) && !weir_plan_sparse(&w.plan));
  weir_controller_said(controller, said, sizeof said);
  cr_assert(strstr(said, "what a method has held back is sent before"), "%s", said);
  run(controller, &w, 6);
  expect_sparse(&w.plan, 5);
  weir_controller_free(controller);
}

Test(sparse, more_than_when_it_was_chosen_is_a_decision_at_once) {
  world w;
  char said[384];
  weir_controller *controller = begin(&w, "safe");
  run(controller, &w, 30);
  expect_sparse(&w.plan, 5);
  w.nonzero[2] = 0.05; /* of one rank, in one step */
  step(controller, &w);
  w.nonzero[2] = 0.03;
  run(controller, &w, 2);
  expect_sparse(&w.plan, 5);
  weir_controller_said(controller, said, sizeof said);
  cr_assert(strstr(said, "for sparsity"), "%s", said);
  w.nonzero[0] = 1; /* a batch that leaves nothing out */
  step(controller, &w);
  w.nonzero[0] = 0.03;
  run(controller, &w, 2); /* its directive rides on the next step's header */
  cr_assert(weir_plan_safe(&w.plan) && !weir_plan_sparse(&w.plan) &&
            w.plan.codec != WEIR_CODEC_QSGD);
  weir_controller_said(controller, said, sizeof said);
  cr_assert(strstr(said, "more than half of a gradient is not zero"), "%s", said);
  run(controller, &w, 300); /* what it did once it may do again */
  cr_assert(weir_plan_safe(&w.plan) && !weir_plan_sparse(&w.plan));
  run(controller, &w, 900);
  cr_assert(weir_plan_sparse(&w.plan));
  weir_controller_free(controller);
}

Test(sparse, where_a_rank_does_not_count_nothing_is_known) {
  world w;
  weir_controller *controller = begin(&w, "measured");
  w.counts_not = true;
  for (int i = 0; i < 120; i++) {
    step(controller, &w);
    cr_assert(weir_plan_safe(&w.plan) && !weir_plan_sparse(&w.plan));
  }
  weir_controller_free(controller);
}

/* A thread that decides may be late, and what it has no room for is dropped. */
Test(sparse, what_is_dropped_still_tells_the_most) {
  static weir_mailbox mailbox;
  weir_observation seen = {0};
  uint64_t dropped;
  cr_assert_eq(weir_mailbox_open(&mailbox), WEIR_OK);
  for (int i = 0; i < WEIR_MAILBOX_SLOTS + 5; i++) {
    seen.step = (uint64_t)i;
    seen.nonzero = i == 2 ? 0.4 : i == 5 ? 0.0 : 0.03; /* in one step it is not known */
    weir_mailbox_put(&mailbox, &seen);
  }
  double most = 0.0;
  for (int i = 0; i < WEIR_MAILBOX_SLOTS; i++) {
    cr_assert(weir_mailbox_get(&mailbox, &seen, &dropped));
    cr_assert_eq(seen.step, (uint64_t)i + 5);
    most = fmax(most, seen.nonzero);
  }
  cr_assert_eq(dropped, 5u);
  cr_assert_eq(most, 0.4);
  weir_mailbox_destroy(&mailbox);
}

Test(sparse, whose_policies_count) {
  cr_assert(weir_policy_counts("weir", NULL) && weir_policy_counts("weir", "measured") &&
            weir_policy_counts("weir", "safe"));
  cr_assert(!weir_policy_counts("weir", "bold") && !weir_policy_counts("paper", NULL) &&
            !weir_policy_counts("fixed:topk:0.1:ag", NULL) && !weir_policy_counts("weird", NULL));
}
