/* Buckets for a plan: never worse than the whole by the model they are solved with, and what it
 * takes to be worth it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../held.h"
#include "base/base.h"
#include "base/path.h"
#include "collectives/cost.h"
#include "controller/fuse.h"
#include "controller/loop.h"

enum { TENSORS = 20, NUMEL = 50000 };

static size_t offset[TENSORS + 1];
static double gap[TENSORS];
static weir_plan_bucket table[TENSORS];
static const weir_layout layout = {TENSORS, offset};

static weir_bucket_costs costs;

static void forget_costs(void) {
  for (size_t a = 0; a < WEIR_ARMS; a++) costs.each_s[a] = -1;
  costs.taken_s = -1;
}

static weir_decision_input world(double latency, double bandwidth, double backward) {
  weir_decision_input in = {.workers = 4,
                            .elements = TENSORS * NUMEL,
                            .latency = latency,
                            .bandwidth = bandwidth,
                            .compute = backward};
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) in.compress[c] = 1.0;
  for (size_t t = 0; t < TENSORS; t++) {
    offset[t + 1] = offset[t] + NUMEL;
    gap[t] = backward / TENSORS;
  }
  memset(table, 0, sizeof table);
  forget_costs();
  return in;
}

static weir_fused fuse(const weir_decision_input *in, const char *text) {
  weir_plan plan;
  weir_fused fused;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK);
  cr_assert_eq(weir_fuse(in, &plan, &layout, gap, &costs, 0.05, table, &fused), WEIR_OK, "%s",
               weir_last_error());
  cr_assert_leq(fused.step_s, fused.whole_s * (1 + 1e-12));
  if (fused.count > 0) cr_assert_eq(weir_buckets_check(table, fused.count, TENSORS), WEIR_OK);
  return fused;
}

Test(controller_fuse, one_group_where_latency_rules) {
  /* 2 ms of backward pass hide nothing of rounds of 50 ms: any second group costs another round. */
  const weir_decision_input in = world(0.05, 125e6, 0.002);
  const weir_fused fused = fuse(&in, "topk:0.01:ag:auto-fp32");
  cr_assert_eq(fused.count, 0);
  cr_assert_eq(fused.step_s, fused.whole_s);
}

Test(controller_fuse, groups_where_there_is_something_to_hide_behind) {
  /* 4 MB ring at 100 MB/s and 4 ranks: 1.5 * 4 MB / 100 MB/s = 60 ms beside 60 ms of backward pass,
   * and hardly any latency: with many buckets only the last one's twentieth sticks out. */
  const weir_decision_input in = world(1e-5, 1e8, 0.06);
  const weir_fused fused = fuse(&in, "none:1:dense-ring");
  cr_assert_gt(fused.count, 4);
  cr_assert_geq(fused.whole_s, 0.12);
  cr_assert_leq(fused.step_s, 0.075);
  cr_assert_geq(fused.step_s, 0.06 + 0.06 / TENSORS); /* no group is smaller than a tensor */
  for (size_t k = 0; k < fused.count; k++) cr_assert_eq(table[k].codec, WEIR_CODEC_NONE);
}

/* The double tree's critical path on a usual link has fewer latencies for 2 MB among 16 ranks on
 * two machines than for 2 KiB; where a latency is worth far more bytes than there, of less
 * seconds. */
Test(controller_fuse, a_row_whose_time_falls_with_bytes_is_no_reason_for_no_groups) {
  weir_decision_input in = world(0.02, 1.25e9, 0.06);
  in.risk = WEIR_RISK_SAFE;
  in.workers = 16;
  in.hosts = 2;
  (void)fuse(&in, "bf16:1:dense-ring");
}

Test(controller_fuse, groups_keep_codec_and_ratio_or_go_whole) {
  const weir_decision_input in = world(1e-4, 5e6, 0.1);
  const weir_fused fused = fuse(&in, "star:0.02:art-ring:auto-bf16");
  cr_assert_gt(fused.count, 1);
  for (size_t k = 0; k < fused.count; k++) {
    const bool own = table[k].codec == WEIR_CODEC_STAR && table[k].cr == 0.02 &&
                     table[k].wire == WEIR_WIRE_AUTO_BF16;
    cr_assert(own || table[k].codec == WEIR_CODEC_BF16, "group %zu", k);
  }
}

Test(controller_fuse, of_an_arms_overhead_every_group_pays_what_was_seen) {
  weir_decision_input in = world(1e-5, 1e8, 0.06);
  const weir_fused cheap = fuse(&in, "none:1:dense-ring");
  for (size_t a = 0; a < WEIR_ARMS; a++) in.overhead[a] = 0.02;
  for (size_t a = 0; a < WEIR_ARMS; a++) costs.each_s[a] = 0.02;
  const weir_fused dear = fuse(&in, "none:1:dense-ring");
  cr_assert_lt(dear.count, cheap.count);
  cr_assert_gt(dear.step_s, cheap.step_s);
  /* The undivided gradient pays it once, however it is divided. */
  cr_assert_float_eq(dear.whole_s, cheap.whole_s + 0.02, 1e-9);
  for (size_t a = 0; a < WEIR_ARMS; a++) costs.each_s[a] = 0;
  const weir_fused spread = fuse(&in, "none:1:dense-ring");
  cr_assert_float_eq(spread.whole_s, dear.whole_s, 1e-9);
  cr_assert_gt(spread.count, dear.count);
  cr_assert_lt(spread.step_s, dear.step_s);
  /* Not known: as the modelled 60 ms, of which 6 latencies of 10 us are one part in a thousand. */
  forget_costs();
  const weir_fused unknown = fuse(&in, "none:1:dense-ring");
  cr_assert_float_eq(unknown.whole_s, dear.whole_s, 1e-9);
  cr_assert_leq(unknown.step_s, spread.step_s + TENSORS * 2.1e-5);
}

Test(controller_fuse, what_exchanges_take_from_the_backward_pass_counts) {
  const weir_decision_input in = world(1e-5, 1e8, 0.06);
  const weir_fused own = fuse(&in, "none:1:dense-ring");
  costs.taken_s = 0.02; /* four buckets would take as long again as the backward pass */
  const weir_fused shared = fuse(&in, "none:1:dense-ring");
  cr_assert_float_eq(shared.whole_s, own.whole_s, 1e-12);
  cr_assert_leq(shared.count, 4);
  cr_assert_gt(shared.step_s, own.step_s);
}

/* --- paths ------------------------------------------------------------------------------------ */

static size_t paths_in(size_t count, weir_plan *last) {
  size_t paths = 0;
  for (size_t k = 0; k < count; k++) {
    weir_plan plan = {0};
    weir_plan_of_bucket(&table[k], &plan);
    if (plan.scheme != WEIR_SCHEME_PATH) continue;
    *last = plan;
    paths++;
  }
  return paths;
}

/* Eight ranks on two machines.  hier-sra exchanges parts between machines and then gathers their
 * sums, a path that gathers what is compressed of a machine's sum has as many bytes to send, to the
 * one other machine there is, and one latency less, where that is longer than the messages of a
 * machine's other ranks take. */
Test(controller_fuse, two_machines_gather_once_where_sums_would_go_twice) {
  weir_decision_input in = world(0.05, 1e8, 0.2);
  weir_plan path = {0};
  in.workers = 8;
  in.hosts = 2;
  in.settled = WEIR_SETTLED;
  const weir_fused fused = fuse(&in, "qsgd:0.125:hier-sra");
  cr_assert_gt(paths_in(fused.count, &path), 0u);
  char text[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_collective(&path, text);
  cr_assert(strncmp(text, "path=rs.c.ag.", 13) == 0, "%s", text);
  cr_assert_eq(path.codec, WEIR_CODEC_QSGD);
  cr_assert_eq(path.cr, 0.125);
}

/* What is sent is as near to the gradient as under the plan: a path compresses no more often, and
 * none is taken where selections would leave out what the plan sends. */
Test(controller_fuse, no_path_compresses_more_often_than_the_plan) {
  static const char *const plans[] = {"qsgd:0.125:ag", "qsgd:0.125:sra", "qsgd:0.25:hier-sra",
                                      "minifloat:0.25:ag", "fp16:0.5:sra"};
  size_t seen = 0;
  for (int machines = 1; machines <= 4; machines++)
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
      for (double latency = 1e-5; latency < 0.1; latency *= 10) {
        weir_decision_input in = world(latency, 1e7, 0.2);
        in.workers = 8;
        in.hosts = (uint64_t)(machines == 3 ? 8 : machines);
        in.settled = WEIR_SETTLED;
        const weir_fused fused = fuse(&in, plans[p]);
        const size_t most = p == 0 || p == 3 ? 1 : 2;
        for (size_t k = 0; k < fused.count; k++) {
          weir_plan plan = {0};
          weir_path path;
          size_t compressions = 0;
          weir_plan_of_bucket(&table[k], &plan);
          if (!weir_path_of(&plan, &path)) continue;
          for (size_t i = 0; i < path.count; i++)
            compressions += path.step[i].task == WEIR_TASK_COMP;
          cr_assert(compressions >= 1 && compressions <= most, "%s: %zu", plans[p], compressions);
          cr_assert(path.count < 9 || in.hosts < in.workers);
          seen++;
        }
      }
  cr_assert_gt(seen, 0u);
}

Test(controller_fuse, no_paths_for_selections_nor_on_devices) {
  weir_decision_input in = world(0.005, 1e7, 0.2);
  weir_plan path;
  in.workers = 8;
  in.hosts = 2;
  in.settled = WEIR_SETTLED;
  cr_assert_eq(paths_in(fuse(&in, "topk:0.01:ag:auto-bf16").count, &path), 0u);
  cr_assert_eq(paths_in(fuse(&in, "bf16:1:dense-ring").count, &path), 0u);
  in.devices = 1;
  cr_assert_eq(paths_in(fuse(&in, "qsgd:0.125:hier-sra").count, &path), 0u);
}

/* rs.c.ag.d.ag of 8000 elements on 2 x 4 ranks: each encodes its quarter, decodes the messages of
 * two machines for it, and goes over it once more to keep what is lost. */
Test(controller_fuse, a_path_is_charged_its_tasks) {
  weir_decision_input in = world(0.005, 1e7, 0.2);
  weir_plan plan;
  in.workers = 8;
  in.hosts = 2;
  in.compress[WEIR_CODEC_QSGD] = 3.0;
  in.compress[WEIR_CODEC_BF16] = 2.0;
  cr_assert_eq(weir_plan_parse("qsgd:0.125:path=rs.c.ag.d.ag", &plan), WEIR_OK);
  const double of_qsgd = weir_compress_prior(WEIR_CODEC_QSGD, 2, 2000, 0.125);
  const double of_rounding = weir_compress_prior(WEIR_CODEC_BF16, 0, 2000, 1.0);
  cr_assert_float_eq(weir_plan_compress(&plan, weir_input_shape(&in), 8000, false, in.compress),
                     3.0 * of_qsgd + 2.0 * of_rounding, 1e-12);
}

/* And inside of machines a ring of four adds up 32 kB and gathers 8 kB of each: 3 + 3 latencies,
 * 24 + 24 kB a rank.  Of one machine all of it is on the links that are known. */
Test(controller_fuse, a_path_is_charged_what_goes_on_inside) {
  const weir_link link = {
      .alpha = 1e-3, .beta = 1e-8, .duplex_beta = 1e-8, .inner_alpha = 1e-6, .inner_beta = 1e-9};
  weir_plan plan;
  cr_assert_eq(weir_plan_parse("qsgd:0.125:path=rs.c.ag.d.ag", &plan), WEIR_OK);
  cr_assert_float_eq(
      weir_cost_plan_processors(&plan, (weir_group_shape){8, 2, false, 0, 0}, &link, 8000, 8000),
      6e-6 + 48e-6, 1e-12);
  cr_assert_eq(
      weir_cost_plan_processors(&plan, (weir_group_shape){8, 1, false, 0, 0}, &link, 8000, 8000),
      0.0);
  cr_assert_eq(
      weir_cost_plan_processors(&plan, (weir_group_shape){8, 8, false, 0, 0}, &link, 8000, 8000),
      0.0);
}

/* A step of 600 ms, in the last 200 of which 20 tensors come, among 4 ranks: but for the last one's
 * all that is sent may go meanwhile.  6 MB are sent of fp32, 3 of bf16, 0.94 of 5 bits, 0.3 of 1.7.
 * At 200 MB/s fp32 takes 30 ms, 1.5 of which remain.  At 26 MB/s it takes 231 ms, more than there
 * are; of bf16's 115 ms 5.8 remain, of 12 by 1.7 bits 0.6: less than a hundredth more.
 * At 10 MB/s bf16 takes 300 ms, 5 bits 94, of which 4.7 remain, and 1.7 bits 32 with 1.6.  As a
 * whole more than 5 bits take more than a hundredth of any of these steps, 5 of the last two. */
Test(controller_fuse, more_bits_where_the_backward_pass_hides_them) {
  static const struct { double bandwidth, bits; } cases[] = {{2e8, 32}, {2.6e7, 16}, {1e7, 5}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int how = 0; how < 3; how++) { /* with buckets; without gaps; where buckets have failed */
      weir_decision_input in = world(1e-6, cases[k].bandwidth, 0.2);
      weir_decision d;
      FREED weir_loop *loop = calloc(1, sizeof *loop);
      in.policy = WEIR_POLICY_WEIR;
      in.risk = WEIR_RISK_MEASURED;
      in.settled = WEIR_SETTLED_SGD;
      in.trigger = WEIR_TRIGGER_PERIODIC;
      in.compute = 0.6;
      in.dwell = 100;
      for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) in.curve_cr[i] = weir_curve_cr[i];
      for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) in.compress[c] = 1e-6;
      cr_assert_eq(weir_plan_parse("qsgd-l2:0.125:sra", &in.current), WEIR_OK);
      weir_learn_start(&loop->learnt);
      loop->layout = layout;
      loop->gap_s = gap;
      loop->next_table = table;
      loop->overlap = true;
      loop->has_gaps = how != 1;
      loop->fuse_failed = how == 2;
      cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
      cr_assert_eq(weir_loop_look_ahead(loop, &in, &d), WEIR_OK, "%s", weir_last_error());
      const double bits = weir_plan_bits(&d.choice.plan);
      if (how == 0)
        cr_assert_eq(bits, cases[k].bits, "%g: %g bits", cases[k].bandwidth, bits);
      else
        cr_assert_lt(bits, cases[k].bits, "%g, %d: %g", cases[k].bandwidth, how, bits);
    }
}
