/* When ranks probe, and how much they may send. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "controller/loop.h"
#include "session/budget.h"

/* By hand: 4 MiB in advance until a hundredth of the capacity is more. */
Test(budget, starts_with_an_advance_and_follows_the_capacity) {
  weir_probe_budget b;
  weir_budget_start(&b, 100);
  cr_assert_float_eq(weir_budget_left(&b), 4194304, 1e-6);
  b.spent = 1e6;
  cr_assert_float_eq(weir_budget_left(&b), 3194304, 1e-6);
  for (int i = 1; i <= 10; i++) weir_budget_pass(&b, 100 + i, 1e8); /* 1e9 bytes of capacity */
  cr_assert_float_eq(weir_budget_left(&b), 1e7 - 1e6, 1e-3);
  for (int i = 1; i <= 10; i++) weir_budget_pass(&b, 110 + i, 1e6); /* a narrow link adds 1e7 */
  cr_assert_float_eq(weir_budget_left(&b), 1.01e7 - 1e6, 1e-3);
}

Test(budget, an_overspent_one_is_empty_not_negative) {
  weir_probe_budget b;
  weir_budget_start(&b, 0);
  b.spent = 1e9;
  cr_assert_eq(weir_budget_left(&b), 0);
}

Test(budget, unknown_rates_standing_clocks_and_long_gaps_add_little) {
  weir_probe_budget b;
  weir_budget_start(&b, 0);
  weir_budget_pass(&b, 1, 0);
  weir_budget_pass(&b, 2, NAN);
  weir_budget_pass(&b, 2, 1e9);
  weir_budget_pass(&b, 1, 1e9);
  cr_assert_eq(b.capacity, 0);
  weir_budget_pass(&b, 1002, 1e6); /* of 1000 s without a look, five count */
  cr_assert_float_eq(b.capacity, 5e6, 1e-3);
}

/* --- the decision to probe -------------------------------------------------------------------- */

/* A far link, so that no look is ever cheap. */
static weir_loop idle_loop(void) {
  weir_loop loop;
  memset(&loop, 0, sizeof loop);
  loop.workers = 4;
  weir_learn_start(&loop.learnt);
  return loop;
}

static weir_observation seen(int suspects, int stale) {
  weir_observation o;
  memset(&o, 0, sizeof o);
  o.network =
      (weir_network){.latency = 0.05, .bandwidth = 1e7, .suspects = suspects, .stale = stale};
  return o;
}

static uint32_t expected = WEIR_ACTION_PROBE;

/* Steps until a probe is directed; `most` when none is. */
static int steps_to_probe(weir_loop *loop, const weir_observation *o, int most) {
  for (int i = 1; i <= most; i++) {
    loop->has_directive = false;
    weir_loop_consider_probe(loop, o);
    if (!loop->has_directive) continue;
    cr_assert_eq(loop->directive.action, expected);
    return i;
  }
  return most;
}

Test(probing, nothing_wrong_no_probe) {
  weir_loop loop = idle_loop();
  const weir_observation o = seen(0, 0);
  cr_assert_eq(steps_to_probe(&loop, &o, 500), 500);
}

Test(probing, two_suspects_are_enough_one_must_insist) {
  weir_loop loop = idle_loop();
  const weir_observation two = seen(2, 0), one = seen(1, 0);
  cr_assert_eq(steps_to_probe(&loop, &two, 50), 1);
  loop = idle_loop();
  cr_assert_eq(steps_to_probe(&loop, &one, 50), 2);
}

Test(probing, suspicions_without_cause_are_heard_less_often_but_within_ten_steps) {
  weir_loop loop = idle_loop();
  const weir_observation two = seen(2, 0);
  int last = steps_to_probe(&loop, &two, 50);
  for (int i = 0; i < 20; i++) {
    const int next = steps_to_probe(&loop, &two, 50);
    cr_assert(next >= (i ? last : 4) && next <= 10, "%d after %d", next, last);
    last = next;
  }
  cr_assert_gt(last, 4);
}

Test(probing, old_values_of_half_the_ranks_ask_for_a_probe) {
  weir_loop loop = idle_loop();
  const weir_observation one = seen(0, 1), two = seen(0, 2);
  cr_assert_eq(steps_to_probe(&loop, &one, 100), 100);
  cr_assert_leq(steps_to_probe(&loop, &two, 100), 10);
}

/* That nothing has moved was to be expected of a look for old values' sake: departures are looked
 * into as soon as before. */
Test(probing, a_look_at_what_is_old_is_not_in_vain) {
  weir_loop loop = idle_loop();
  const weir_observation old = seen(0, 4), none = seen(0, 0);
  (void)steps_to_probe(&loop, &old, 100);
  const uint64_t wait = loop.probe.wait;
  cr_assert_eq(steps_to_probe(&loop, &none, 20), 20);
  cr_assert_eq(loop.probe.wait, wait);
}

/* 80 kB, six hops of 0.1 ms at 1 GB/s and two to meet are 0.9 ms: nothing beside steps of 20 ms. */
Test(probing, looks_are_taken_where_they_are_cheap) {
  weir_loop loop = idle_loop();
  weir_observation o = seen(0, 0);
  o.network.latency = 1e-4;
  o.network.bandwidth = 1e9;
  o.heard.valid = true; /* of an exchange that was no more than latencies */
  loop.learnt.step_s = 0.02;
  loop.learnt.step_count = 1;
  expected = WEIR_ACTION_SAMPLE;
  (void)steps_to_probe(&loop, &o, 50);
  cr_assert_eq(steps_to_probe(&loop, &o, 50), 7);
  loop.learnt.step_s = 1e-4;
  cr_assert_eq(steps_to_probe(&loop, &o, 100), 100);
}

/* Six latencies of 0.1 ms are 0.6 ms: exchanges of 500 kB, 0.5 ms at 1 GB/s, are looked at; of 700
 * kB not. */
Test(probing, exchanges_of_many_bytes_tell_of_a_narrow_link_themselves) {
  weir_loop loop = idle_loop();
  weir_observation o = seen(0, 0);
  o.network.latency = 1e-4;
  o.network.bandwidth = 1e9;
  loop.learnt.step_s = 0.02;
  loop.learnt.step_count = 1;
  expected = WEIR_ACTION_SAMPLE;
  o.heard.valid = true;
  o.heard.terms = (weir_cost_terms){.alpha_terms = 6, .byte_terms = 700e3};
  cr_assert_eq(steps_to_probe(&loop, &o, 100), 100);
  o.heard.terms.byte_terms = 500e3;
  cr_assert_leq(steps_to_probe(&loop, &o, 100), 7);
}

/* Looking in vain made it rare, and the departure is taken for the arm's: a leap is looked at all
 * the same, as soon as the last probe's answer is in. */
Test(probing, a_leap_is_looked_at_however_often_that_was_in_vain) {
  weir_loop loop = idle_loop();
  const weir_observation o = seen(0, 0);
  loop.probe.wait = 640;
  loop.probe.doubt_wait = 8;
  loop.learnt.absorb = true;
  loop.learnt.departures = loop.learnt.leaps = 1;
  cr_assert_eq(steps_to_probe(&loop, &o, 50), 50);
  loop.learnt.leaps = 2;
  cr_assert_eq(steps_to_probe(&loop, &o, 50), 1);
  cr_assert_geq(steps_to_probe(&loop, &o, 50), 4);
}

Test(probing, a_directive_under_way_is_not_replaced) {
  weir_loop loop = idle_loop();
  const weir_observation two = seen(2, 0);
  weir_plan plan;
  cr_assert_eq(weir_plan_parse("bf16:1:dense-ring", &plan), WEIR_OK);
  weir_loop_direct(&loop, WEIR_ACTION_SWITCH, &plan);
  weir_loop_consider_probe(&loop, &two);
  cr_assert_eq(loop.directive.action, (uint32_t)WEIR_ACTION_SWITCH);
}

Test(probing, headers_are_counted) {
  weir_header headers[3];
  memset(headers, 0, sizeof headers);
  headers[0].flags = WEIR_HEADER_SUSPECT;
  headers[1].flags = WEIR_HEADER_SUSPECT | WEIR_HEADER_STALE;
  weir_network network;
  weir_network_reduce(headers, 3, &network);
  cr_assert_eq(network.suspects, 2);
  cr_assert_eq(network.stale, 1);
  cr_assert_not(network.changed);
}
