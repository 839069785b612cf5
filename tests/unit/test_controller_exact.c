/* Selections that hold nothing back: from how much of a gradient is not zero to the plan, and what
 * happens when it becomes more. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "controller/controller.h"
#include "controller/mailbox.h"
#include "decide_input.h"

#define RANKS 4
#define ELEMENTS ((size_t)1000000)

/* 1 ms and 100 Mbit/s, under the risk given, where so much of a gradient is not zero. */
static weir_decision decide_at(double nonzero, uint32_t risk, uint32_t refused) {
  weir_decision_input in = input_at(1e-3, 12.5e6);
  weir_decision d;
  in.trigger = WEIR_TRIGGER_START;
  in.risk = risk;
  in.nonzero = nonzero;
  in.exact_refused = refused;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
  return d;
}

static void expect_top(const weir_plan *plan, uint32_t wire, double least, double most) {
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  cr_assert(plan->codec == WEIR_CODEC_TOPK && plan->scheme == WEIR_SCHEME_GATHER &&
                plan->wire == wire && plan->cr >= least && plan->cr <= most,
            "%s, expected a top-k of %g to %g", text, least, most);
}

Test(exact, the_ratio_follows_from_what_is_not_zero) {
  const double step = pow(2.0, 1.0 / 8.0);
  for (double nonzero = 0.0004; nonzero < 0.4; nonzero *= 1.037) {
    const double cr = weir_exact_cr(nonzero), eighths = 8.0 * log2(cr);
    cr_assert(cr >= 1.05 * nonzero && cr < 1.0501 * nonzero * step, "%g of %g", cr, nonzero);
    cr_assert_float_eq(eighths, round(eighths), 1e-9, "%g is not on the grid", cr);
    weir_plan plan = plan_of("topk:0.5:ag:auto-bf16");
    plan.cr = cr;
    cr_assert_eq(weir_method_of(&plan), WEIR_METHODS);
    cr_assert_eq(weir_plan_exact(&plan), WEIR_EXACT_BF16);
  }
  cr_assert_eq(weir_exact_cr(0.0), 0.0);
  cr_assert_eq(weir_exact_cr(0.49), 0.0);
  cr_assert_eq(weir_exact_cr(1.0), 0.0);
}

Test(exact, of_a_sparse_gradient_all_is_sent_without_evidence) {
  for (uint32_t risk = WEIR_RISK_MEASURED; risk <= WEIR_RISK_SAFE; risk++) {
    const weir_decision d = decide_at(0.03, risk, 0);
    expect_top(&d.choice.plan, WEIR_WIRE_AUTO_BF16, 0.0315, 0.0315 * 1.0906);
    cr_assert(d.switched);
    cr_assert_eq(d.choice.gain, 1.0);
    /* All of a step's progress in the time of the plan's own row. */
    const weir_cost_terms terms =
        weir_cost_plan(&d.choice.plan, 4, 1000000, weir_kept(1000000, d.choice.plan.cr));
    const double comm = weir_cost_seconds(&terms, 1e-3, 1 / 12.5e6);
    cr_assert_float_eq(d.choice.comm_s, comm, 1e-9);
    cr_assert_float_eq(d.choice.progress_per_s, 1 / (0.02 + d.choice.compress_s + comm), 1e-9);
  }
}

Test(exact, not_of_a_dense_gradient_nor_of_an_unknown_one_nor_at_other_risks) {
  const double shares[] = {0.0, 0.6, 1.0};
  for (size_t i = 0; i < 3; i++)
    for (uint32_t risk = WEIR_RISK_MEASURED; risk <= WEIR_RISK_SAFE; risk++) {
      const weir_decision d = decide_at(shares[i], risk, 0);
      cr_assert_neq(d.choice.plan.codec, WEIR_CODEC_TOPK, "%g", shares[i]);
      for (size_t c = 0; c < d.candidates; c++)
        cr_assert_neq(d.candidate[c].plan.codec, WEIR_CODEC_TOPK, "%g", shares[i]);
    }
  /* At risk bold the curve says what a ratio is worth, whatever is zero. */
  const weir_decision bold = decide_at(0.03, WEIR_RISK_BOLD, 0);
  const weir_decision blind = decide_at(0.0, WEIR_RISK_BOLD, 0);
  cr_assert_eq(bold.choice.plan.cr, blind.choice.plan.cr);
  weir_decision_input in = input_at(1e-3, 12.5e6);
  weir_decision d;
  in.risk = WEIR_RISK_MEASURED;
  in.nonzero = 1.1;
  cr_assert_eq(weir_decide(&in, &d), WEIR_E_INVALID);
}

Test(exact, where_remainders_crowd_out_gradients_values_go_in_full) {
  const weir_decision full = decide_at(0.03, WEIR_RISK_SAFE, WEIR_EXACT_BF16);
  expect_top(&full.choice.plan, WEIR_WIRE_AUTO_FP32, 0.0315, 0.0315 * 1.0906);
  const weir_decision none = decide_at(0.03, WEIR_RISK_SAFE, WEIR_EXACT_BF16 | WEIR_EXACT_FP32);
  cr_assert_neq(none.choice.plan.codec, WEIR_CODEC_TOPK);
}

Test(exact, nothing_goes_back_to_a_plan_without_room) {
  weir_decision_input in = input_at(1e-3, 12.5e6);
  weir_decision d;
  in.risk = WEIR_RISK_SAFE;
  in.trigger = WEIR_TRIGGER_FALLBACK;
  in.previous = plan_of("topk:0.03125:ag:auto-bf16");
  in.nonzero = 0.02;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert_eq(d.choice.plan.cr, 0.03125);
  in.nonzero = 0.05;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert_geq(d.choice.plan.cr, 0.05);
}

/* --- while it runs ---------------------------------------------------------------------------- */

typedef struct world {
  weir_plan plan;
  uint64_t step;
  double nonzero[RANKS], held;
  double comm;
  bool counts_not; /* the last rank's device counts nothing */
} world;

static weir_cost_terms terms_of(const world *w) {
  return weir_cost_plan(&w->plan, RANKS, ELEMENTS, weir_cost_kept(&w->plan, ELEMENTS));
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
                               .held = r == 1 ? (float)w->held : 0};
  if (w->counts_not) headers[RANKS - 1].nonzero = 0;
  record.info.step = w->step++;
  record.info.plan = w->plan;
  record.terms = terms_of(w);
  weir_controller_observe(controller, headers, RANKS, &record);
  w->comm = weir_cost_seconds(&record.terms, 1e-3, 1 / 12.5e6);
  if (directive.action == WEIR_ACTION_SWITCH) w->plan = directive.plan;
}

static weir_controller *begin(world *w, const char *risk) {
  static const size_t offsets[] = {0, ELEMENTS};
  weir_controller *controller;
  const weir_controller_config config = {
      .policy = "weir", .risk = risk, .world_size = RANKS, .layout = {1, offsets}, .seed = 5};
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  *w = (world){.plan = plan_of("bf16:1:dense-ring"), .nonzero = {0.029, 0.027, 0.03, 0.028}};
  return controller;
}

static void run(weir_controller *controller, world *w, int steps) {
  for (int i = 0; i < steps; i++) step(controller, w);
}

Test(exact, why_there_are_no_buckets_is_said) {
  static const size_t offsets[] = {0, ELEMENTS / 2, ELEMENTS};
  for (int overlap = 0; overlap < 2; overlap++) {
    const weir_controller_config config = {.policy = "weir",
                                           .risk = "safe",
                                           .world_size = RANKS,
                                           .layout = {2, offsets},
                                           .overlap = overlap != 0};
    world w;
    weir_controller *controller;
    char said[384];
    weir_controller_free(begin(&w, "safe"));
    cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
    run(controller, &w, 8);
    cr_assert_neq(weir_plan_exact(&w.plan), 0u);
    weir_controller_said(controller, said, sizeof said);
    cr_assert_eq(strstr(said, "without buckets: a part of it may be dense") != NULL, overlap != 0,
                 "%s", said);
    weir_controller_free(controller);
  }
}

Test(exact, it_is_taken_at_the_first_decision_and_stays) {
  const char *const risks[] = {"measured", "safe"};
  for (size_t i = 0; i < 2; i++) {
    world w;
    weir_controller *controller = begin(&w, risks[i]);
    run(controller, &w, 8);
    /* The rank with most decides. */
    expect_top(&w.plan, WEIR_WIRE_AUTO_BF16, 1.05 * 0.03, 1.05 * 0.03 * 1.0906);
    const uint64_t id = w.plan.id;
    for (int k = 0; k < 500; k++) {
      for (int r = 0; r < RANKS; r++) w.nonzero[r] = 0.028 + 0.002 * sin(k + r);
      step(controller, &w);
    }
    cr_assert_eq(w.plan.id, id, "the plan flaps");
    weir_controller_free(controller);
  }
}

Test(exact, more_than_it_sends_ends_it_at_once) {
  world w;
  weir_controller *controller = begin(&w, "safe");
  run(controller, &w, 30);
  expect_top(&w.plan, WEIR_WIRE_AUTO_BF16, 0.0315, 0.0344);
  w.nonzero[2] = 0.05; /* of one rank, in one step */
  step(controller, &w);
  w.nonzero[2] = 0.03;
  run(controller, &w, 2); /* its directive rides on the next step's header */
  expect_top(&w.plan, WEIR_WIRE_AUTO_BF16, 0.0525, 0.0573);
  char said[384];
  weir_controller_said(controller, said, sizeof said);
  cr_assert(strstr(said, "for sparsity") && strstr(said, "more nonzero elements") &&
                strstr(said, "steps that had more than was sent: 1"),
            "%s", said);
  w.nonzero[0] = 1; /* a batch that leaves nothing out */
  step(controller, &w);
  w.nonzero[0] = 0.03;
  run(controller, &w, 2);
  cr_assert(weir_plan_safe(&w.plan));
  run(controller, &w, 300); /* what it did once it may do again */
  cr_assert(weir_plan_safe(&w.plan));
  weir_controller_free(controller);
}

Test(exact, a_tensor_that_is_left_behind_ends_it) {
  world w;
  weir_controller *controller = begin(&w, "safe");
  w.held = 0.04; /* the smallest of its elements: they may wait */
  run(controller, &w, 200);
  expect_top(&w.plan, WEIR_WIRE_AUTO_BF16, 0.0315, 0.0344);
  w.held = 1;
  run(controller, &w, 4);
  expect_top(&w.plan, WEIR_WIRE_AUTO_FP32, 0.0315, 0.0344);
  w.held = 0;
  run(controller, &w, 300);
  expect_top(&w.plan, WEIR_WIRE_AUTO_FP32, 0.0315, 0.0344);
  weir_controller_free(controller);
}

Test(exact, where_a_rank_does_not_count_nothing_is_known) {
  world w;
  weir_controller *controller = begin(&w, "measured");
  w.counts_not = true;
  for (int i = 0; i < 120; i++) {
    step(controller, &w);
    cr_assert(weir_plan_safe(&w.plan));
  }
  weir_controller_free(controller);
}

/* A thread that decides may be late, and what it has no room for is dropped. */
Test(exact, what_is_dropped_still_tells_the_most) {
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

Test(exact, whose_policies_count) {
  cr_assert(weir_policy_counts("weir", NULL) && weir_policy_counts("weir", "measured") &&
            weir_policy_counts("weir", "safe"));
  cr_assert(!weir_policy_counts("weir", "bold") && !weir_policy_counts("paper", NULL) &&
            !weir_policy_counts("fixed:topk:0.1:ag", NULL) && !weir_policy_counts("weird", NULL));
}
