/* What an arm takes beyond the model, in plans that have other numbers of latencies. */
#include <math.h>

#include "controller/loop.h"
#include "decide_input.h"

enum { WORKERS = 4 };

/* A latency of 1 ms on a link that bytes take no time on, then none on a slow one: an overhead of 5
 * ms seen with one latency is 10 ms there with the 2 of Bruck's among 4 ranks, and 5 ms in all
 * here. */
Test(overhead, goes_with_latencies_as_far_as_they_are_what_takes_time) {
  const weir_plan plan = plan_of("topk:0.5:ag-bruck:auto-fp32"),
                  few = plan_of("topk:0.01:ag-bruck:auto-fp32");
  const size_t arm = weir_arm_of(&plan);
  for (int fast = 0; fast < 2; fast++) {
    weir_decision_input in = fast ? input_at(1e-3, 1e14) : input_at(1e-9, 1e6);
    const weir_cost_terms terms = weir_cost_plan(&plan, WORKERS, in.elements, in.elements / 2);
    weir_candidate without, with, one;
    cr_assert_eq(terms.alpha_terms, 2.0);
    weir_evaluate(&in, &plan, &without);
    in.overhead[arm] = 5e-3;
    in.overhead_latencies[arm] = 1;
    weir_evaluate(&in, &plan, &with);
    const double want = fast ? 10e-3 : 5e-3;
    cr_expect_float_eq(with.comm_s - without.comm_s, want, 1e-3 * want, "%g",
                       with.comm_s - without.comm_s);
    weir_evaluate(&in, &few, &one);
    in.overhead[arm] = 0;
    weir_evaluate(&in, &few, &without);
    cr_expect_float_eq(one.comm_s - without.comm_s, want, 1e-3 * want);
    /* Of an older journal, and what the model has too much of, as they are. */
    in.overhead[arm] = -1e-4;
    weir_evaluate(&in, &few, &one);
    cr_expect_float_eq(without.comm_s - one.comm_s, 1e-4, 1e-8);
  }
  weir_decision_input bad = input_at(1e-3, 1e8);
  weir_decision decision;
  bad.overhead_latencies[3] = -1;
  cr_assert_eq(weir_decide(&bad, &decision), WEIR_E_INVALID);
}

/* An arm whose codes were hardly shorter is taken to be as others after some thousand steps of
 * another plan; one whose codes were much shorter stays that. */
Test(overhead, codes_that_were_long_are_not_so_for_good) {
  static weir_loop loop;
  weir_plan far = plan_of("companded:0.15625:sra:huffman"), near = plan_of("companded:0.125:sra");
  const size_t arm = weir_arm_of(&far), other = weir_arm_of(&near);
  weir_learn_start(&loop.learnt);
  loop.learnt.shortened[other] = 0.6;
  weir_observation seen = {.plan = far, .shortened = 0.95};
  for (int i = 0; i < 3000; i++) weir_learn(&loop, &seen);
  cr_assert_float_eq(loop.learnt.shortened[arm], 0.95, 2e-3, "%g", loop.learnt.shortened[arm]);
  seen = (weir_observation){.plan = near};
  for (int i = 0; i < 100; i++) weir_learn(&loop, &seen);
  cr_assert_gt(loop.learnt.shortened[arm], 0.93);
  for (int i = 0; i < 3000; i++) weir_learn(&loop, &seen);
  cr_assert_float_eq(loop.learnt.shortened[arm], 0.9, 0.01, "%g", loop.learnt.shortened[arm]);
  cr_assert_eq(loop.learnt.shortened[other], 0.6);
}

/* Steps of a plan whose exchange had so many latencies and took each_s beyond them for every two.
 */
static void run_steps(weir_loop *loop, const weir_plan *plan, double latencies, double each_s,
                      int steps) {
  const weir_network network = {.latency = 1e-3, .bandwidth = 1e14, .goodput = 1e14};
  const weir_observation seen = {.plan = *plan,
                                 .heard = {.valid = true,
                                           .plan = *plan,
                                           .terms = {latencies, 0, 0},
                                           .network = network,
                                           .comm = latencies * (1e-3 + each_s / 2)}};
  for (int i = 0; i < steps; i++) weir_learn(loop, &seen);
}

/* 5 ms seen with two latencies are 20 ms of eight, from the first step on that counts (that after
 * the switch does not); and 5 ms again when it goes back. */
Test(overhead, follows_the_latencies_of_the_plan_that_is_run) {
  weir_plan few = plan_of("topk:0.01:ag:auto-fp32"), many = plan_of("topk:0.5:ag:auto-fp32");
  const size_t arm = weir_arm_of(&few);
  static weir_loop loop;
  loop.workers = WORKERS;
  loop.elements = 1000000;
  weir_learn_start(&loop.learnt);
  few.id = 1;
  many.id = 2;
  run_steps(&loop, &few, 2, 5e-3, 6);
  cr_assert_float_eq(loop.learnt.overhead[arm], 5e-3, 1e-6, "%g", loop.learnt.overhead[arm]);
  cr_assert_eq(loop.learnt.latencies[arm], 2.0);
  run_steps(&loop, &many, 8, 5e-3, 2);
  cr_assert_float_eq(loop.learnt.overhead[arm], 20e-3, 1e-6, "%g", loop.learnt.overhead[arm]);
  cr_assert_eq(loop.learnt.latencies[arm], 8.0);
  cr_assert_eq(loop.learnt.departures, 0);
  few.id = 3;
  run_steps(&loop, &few, 2, 5e-3, 2);
  cr_assert_float_eq(loop.learnt.overhead[arm], 5e-3, 1e-6, "%g", loop.learnt.overhead[arm]);
  cr_assert_float_eq(loop.learnt.floor[arm], 5e-3, 1e-6, "%g", loop.learnt.floor[arm]);
  /* Arms that were never run and gather too borrow it with its latencies. */
  const weir_plan other = plan_of("topk:0.01:ag:auto-bf16");
  cr_assert_eq(loop.learnt.latencies[weir_arm_of(&other)], 2.0);
}

/* After a change of the network an arm keeps the least that it ever was, and arms that were never
 * run have what they borrow of it. */
Test(overhead, a_change_of_the_network_leaves_the_least) {
  static weir_learnt learnt;
  const weir_plan ring = plan_of("none:1:dense-ring"), bf16 = plan_of("bf16:1:dense-ring");
  const size_t arm = weir_arm_of(&ring), other = weir_arm_of(&bf16);
  weir_learn_start(&learnt);
  weir_learn_overhead(&learnt, arm, 2e-3, 0.1, 6);
  weir_learn_overhead(&learnt, arm, 30e-3, 0.1, 6);
  cr_assert(learnt.overhead[arm] == 30e-3 && learnt.overhead[other] == 30e-3);
  learnt.excess[arm].count = 3;
  weir_learn_network_changed(&learnt);
  cr_assert(learnt.overhead[arm] == 2e-3 && learnt.overhead[other] == 2e-3, "%g",
            learnt.overhead[arm]);
  cr_assert_eq(learnt.excess[arm].count, 0u);
}

/* The first step under a plan pays for what is done once. */
Test(overhead, a_plans_first_step_does_not_count) {
  weir_plan plan = plan_of("topk:0.01:ag:auto-fp32");
  const size_t arm = weir_arm_of(&plan);
  static weir_loop loop;
  loop.workers = WORKERS;
  loop.elements = 1000000;
  weir_learn_start(&loop.learnt);
  plan.id = loop.current.id = 1;
  run_steps(&loop, &plan, 2, 5e-3, 1);
  cr_assert_eq(loop.learnt.step_count, 0u);
  cr_assert_eq(loop.learnt.excess[arm].count, 0u);
  run_steps(&loop, &plan, 2, 5e-3, 2);
  cr_assert_eq(loop.learnt.step_count, 2u);
  cr_assert_eq(loop.learnt.excess[arm].count, 2u);
}

/* What low rank's factors take to encode is in the exchange; its own products are timed as ever:
 * here three times what is usual. */
Test(overhead, low_rank_is_timed_with_encoded_factors_too) {
  static const char *const plans[] = {"powersgd:16:dense-ring", "powersgd:16:dense-sra",
                                      "powersgd:16:dense-one-shot:huffman"};
  for (size_t i = 0; i < 3; i++) {
    const weir_plan plan = plan_of(plans[i]);
    weir_loop loop = {.workers = WORKERS, .elements = 1000000, .policy = &weir_policy_weir};
    weir_learn_start(&loop.learnt);
    const weir_network network = {.latency = 1e-3, .bandwidth = 1e8, .goodput = 1e8};
    const weir_observation seen = {
        .plan = plan,
        .heard = {
            .valid = true,
            .plan = plan,
            .terms = {6, 1e5, 0},
            .network = network,
            .comm = 7e-3,
            .compress = 3 * weir_compress_prior(plan.codec, WORKERS, loop.elements, plan.cr)}};
    for (int k = 0; k < 6; k++) weir_learn(&loop, &seen);
    cr_assert_float_eq(loop.learnt.compress[WEIR_CODEC_POWERSGD], 3.0, 1e-9, "%s: %g", plans[i],
                       loop.learnt.compress[WEIR_CODEC_POWERSGD]);
  }
}

/* With another network what an arm needed at the least is believed of it: in the latencies that its
 * exchanges have now. */
Test(overhead, the_least_goes_with_latencies_as_well) {
  static weir_loop loop;
  weir_plan few = plan_of("topk:0.01:ag:auto-fp32"), many = plan_of("topk:0.5:ag:auto-fp32");
  const size_t arm = weir_arm_of(&few);
  loop.workers = WORKERS;
  loop.elements = 1000000;
  weir_learn_start(&loop.learnt);
  few.id = 1;
  many.id = 2;
  run_steps(&loop, &few, 2, 5e-3, 6);
  run_steps(&loop, &many, 8, 5e-3, 2);
  weir_learn_network_changed(&loop.learnt);
  cr_assert_float_eq(loop.learnt.overhead[arm], 20e-3, 1e-6, "%g", loop.learnt.overhead[arm]);
}

/* An arm that is blamed took 30 ms where it had taken 5: one step more does not make that undone,
 * by the median of the steps before. */
Test(overhead, blame_is_not_forgotten_in_a_step) {
  static weir_loop loop;
  weir_plan plan = plan_of("topk:0.01:ag:auto-fp32");
  const size_t arm = weir_arm_of(&plan);
  loop.workers = WORKERS;
  loop.elements = 1000000;
  weir_learn_start(&loop.learnt);
  plan.id = 1;
  run_steps(&loop, &plan, 2, 5e-3, 6);
  const weir_network network = {.latency = 1e-3, .bandwidth = 1e14, .goodput = 1e14};
  const weir_observation slow = {.plan = plan,
                                 .heard = {.valid = true,
                                           .plan = plan,
                                           .terms = {2, 0, 0},
                                           .network = network,
                                           .comm = 2e-3 + 30e-3}};
  weir_learn_blame(&loop, &slow);
  const double blamed = loop.learnt.overhead[arm];
  cr_assert_gt(blamed, 15e-3, "%g", blamed);
  weir_learn(&loop, &slow);
  cr_assert_eq(loop.learnt.overhead[arm], blamed, "%g", loop.learnt.overhead[arm]);
}

/* Of 16 steps two take 1 s more, as where another process has the processor, and two none. */
Test(overhead, late_steps_are_no_part_of_what_computing_takes) {
  static weir_loop loop;
  const weir_plan plan = plan_of("none:1:dense-ring");
  loop.workers = WORKERS;
  loop.elements = 1000000;
  weir_learn_start(&loop.learnt);
  for (int i = 0; i < 16; i++) {
    const double whole = i % 8 == 2 ? 1.02 : i % 8 == 5 ? 0 : 0.02;
    const weir_observation seen = {.plan = plan,
                                   .heard = {.valid = true, .plan = plan, .whole = whole}};
    weir_learn(&loop, &seen);
  }
  cr_assert_float_eq(loop.learnt.compute, 0.02, 1e-9, "%g", loop.learnt.compute);
}
