/* Plans' cost rows: what is gathered, shared and summed as messages. */
#include <criterion/criterion.h>
#include <math.h>

#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"

static bool near(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

static weir_plan plan_of(const char *text) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s", weir_last_error());
  return plan;
}

/* One all-gather, of 2 rounds among 4 ranks, whatever the messages' length.  fp16: 16 bytes of
 * header and 2 an element.  topk of half of 4800: 16 and 8 an element.  On 2 machines both ranks of
 * one send. */
Test(cost_plans, gathered_by_hand) {
  static const struct {
    const char *plan;
    weir_group_shape shape;
    size_t elements, kept;
    double hops, bytes;
  } rows[] = {
      {"fp16:0.5:ag", {4, 4, false}, 10000, 20016, 2, 3 * 20016},
      {"fp16:0.5:ag", {4, 4, true}, 10000, 20016, 2, 3 * 20016},
      {"topk:0.5:ag", {4, 4, false}, 4800, 2400, 2, 3 * 19216},
      {"topk:0.5:ag", {4, 2, false}, 4800, 2400, 2, 2 * 3 * 19216},
      {"topk:0.5:ag", {1, 1, false}, 4800, 2400, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    cr_assert_eq(weir_cost_kept(&plan, rows[i].elements), rows[i].kept);
    const weir_cost_terms t =
        weir_cost_plan_between(&plan, rows[i].shape, rows[i].elements, rows[i].kept);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
}

/* The example of the README: 11.7 million elements of which a tenth go, 8 bytes each, to 7 others
 * at 10 Gbit/s, and three latencies of 1 ms. */
Test(cost_plans, a_tenth_of_a_model_by_hand) {
  const weir_plan plan = plan_of("topk:0.1:ag");
  const weir_link link = {.alpha = 1e-3, .beta = 8e-10};
  const size_t n = 11700000, kept = weir_cost_kept(&plan, n);
  const double seconds =
      weir_cost_plan_seconds(&plan, (weir_group_shape){8, 8, false}, &link, n, kept, NULL);
  cr_assert_eq(kept, 1170000);
  cr_assert(near(seconds, 3e-3 + 7 * (16 + 8.0 * 1170000) * 8e-10), "%g", seconds);
}

/* An all-gather of 8 messages, 6 of them of others than the 2 on the critical path, at 1 ms each,
 * in place of what links take for all the bytes, 60048 * 8 ns. */
Test(cost_plans, processors_by_hand) {
  const weir_plan plan = plan_of("fp16:0.5:ag");
  const weir_link link = {.alpha = 10e-3, .beta = 8e-9, .message_s = 1e-3};
  const double seconds =
      weir_cost_plan_processors(&plan, (weir_group_shape){4, 4, false}, &link, 10000, 20016);
  cr_assert(near(seconds, 6e-3 - 60048 * 8e-9), "%g", seconds);
}

/* AR-Topk of 1000 elements on 4 ranks: a ring carries 2 * 3/4 of the values in 6 hops, a tree 2 * 2
 * times in 4, and the list, 16 bytes and 4 an index, is sent on twice. */
Test(cost_plans, shared_by_hand) {
  static const struct {
    const char *plan;
    size_t kept;
    double hops, bytes;
  } rows[] = {
      {"star:0.6:art-ring", 600, 6 + 2, 1.5 * 2400 + 2 * 2416},
      {"star:0.6:art-tree", 600, 4 + 2, 4 * 2400 + 2 * 2416},
      {"randomk:0.484:art-ring", 484, 6, 1.5 * 1936},
      {"randomk:1:art-ring:auto-bf16", 1000, 6, 1.5 * 2000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    cr_assert_eq(weir_cost_kept(&plan, 1000), rows[i].kept);
    const weir_cost_terms t = weir_cost_plan(&plan, 4, 1000, rows[i].kept);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
}

/* 4 ranks, 4 bits: blocks of 16 KiB * 8 / 4 = 32768 elements.  200000 elements are 1563 buckets
 * with 8 bytes of grid each and 100000 bytes of codes behind a header of 16: a share of 50000 is a
 * quarter of these 112504 and has 2 headers, 28158.  SRA sends 3 shares at once and gathers as many
 * at once; the ring has 6 hops of a share; the tree 4 of all, in 7 blocks, 112616.
 *   fp16: blocks of 8192.  Of 100000 elements a share of 25000 is 50000 bytes and 4 headers, and
 * two of them do not fit the 100000 bytes of its floats: halves of 12500 go one after the other, 2
 * latencies, with 2 headers each, 25032 bytes.  All are 13 blocks, 200208 bytes.
 *   A single rank sends nothing. */
Test(cost_plans, compressed_all_reduces_by_hand) {
  static const struct {
    const char *plan;
    uint32_t row;
    int ranks;
    size_t elements, bytes;
    double hops, carried;
  } rows[] = {
      {"qsgd:0.125:sra", WEIR_COMPRESSED_SRA, 4, 200000, 112520, 2, 6 * 28158},
      {"qsgd:0.125:compressed-ring", WEIR_COMPRESSED_RING, 4, 200000, 112520, 6, 6 * 28158},
      {"qsgd:0.125:compressed-tree", WEIR_COMPRESSED_TREE, 4, 200000, 112520, 4, 4 * 112616},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 4, 100000, 200016, 3, 3 * (2 * 25032 + 50064)},
      {"fp16:0.5:compressed-ring", WEIR_COMPRESSED_RING, 4, 100000, 200016, 6, 6 * 50064},
      {"fp16:0.5:compressed-tree", WEIR_COMPRESSED_TREE, 4, 100000, 200016, 4, 4 * 200208},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 1, 100000, 200016, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    const weir_coder coder = {.codec = weir_codec_find(plan.codec), .cr = plan.cr};
    cr_assert_eq(weir_cost_kept(&plan, rows[i].elements), rows[i].bytes);
    const weir_cost_terms t = weir_cost_compressed(rows[i].row, rows[i].ranks, &coder,
                                                   rows[i].elements, (double)rows[i].bytes);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].carried), "row %zu: %g bytes", i, t.byte_terms);
    const weir_cost_terms whole =
        weir_cost_plan(&plan, rows[i].ranks, rows[i].elements, rows[i].bytes);
    cr_assert(near(whole.alpha_terms, rows[i].hops) && near(whole.byte_terms, rows[i].carried));
    cr_assert_eq(weir_cost_compressed(99, 4, &coder, 1000, 800).alpha_terms, INFINITY);
  }
}

/* 1000 elements by 4 bits: half of them are 3 buckets and 116 elements, whose codes are 15 times 4
 * bytes, 16 + 3 * 72 + 8 + 60 = 300; a quarter 16 + 72 + 8 + 64 = 160.  Two machines of 2 ranks: of
 * a share of 500 each rank sends half to the other machine and gets its sum, 2 latencies and (300 -
 * 16) / 2 + 16 = 158 each way, for 2 ranks on one link; of 4 ranks: (160 - 16) / 2 + 16 = 88 each
 * way, for 4 ranks.  A machine each: sra among 4, 3 * 2 * 212.  One machine: a sum of fp32, around
 * a ring. Uneven machines: sra, of which 5 ranks on 2 machines share links, 4 * 2 * (784 / 5 + 16)
 * * 2.5. */
Test(cost_plans, compressed_between_machines_by_hand) {
  static const struct {
    weir_group_shape shape;
    double hops, bytes;
  } rows[] = {{{4, 2, false}, 2, 2 * 2 * 158},     {{8, 2, false}, 2, 4 * 2 * 88},
              {{4, 4, false}, 2, 6 * 212},         {{4, 1, false}, 6, 6000},
              {{5, 2, false}, 2, 8 * 172.8 * 2.5}, {{1, 1, false}, 0, 0}};
  const weir_plan plan = plan_of("qsgd:0.125:hier-sra");
  const size_t kept = weir_cost_kept(&plan, 1000);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_cost_terms t = weir_cost_plan_between(&plan, rows[i].shape, 1000, 800);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
  cr_assert_eq(kept, 16 + 7 * 72 + 8 + 52);
}
