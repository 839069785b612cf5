/* Cost rows against an oracle of this file's own: the expanded formulas of the paper (Table I,
 * equations 4a, 4b, 5a-5c) in long double, with L found by doubling. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "../planned.h"
#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"
#include "collectives/cost_walk.h"
#include "collectives/patterns/patterns.h"
#include "controller/decide.h"
#include "kernels/codec.h"

typedef long double real;

static real levels(int n) {
  real l = 0;
  for (real reach = 1; reach < n; reach *= 2) l += 1;
  return l;
}

enum { RING, TREE, AG, ART_RING, ART_TREE, PAPER };
static const char *const published[PAPER] = {"none:1:dense-ring", "none:1:dense-tree", "topk:%g:ag",
                                             "star:%g:art-ring", "star:%g:art-tree"};

/* One of the paper's plans. */
static weir_plan paper(int which, double cr) {
  char text[WEIR_PLAN_TEXT_MAX];
  (void)snprintf(text, sizeof text, published[which], cr);
  weir_plan plan = planned(text);
  if (which >= AG) plan.cr = cr; /* the text holds fewer digits */
  return plan;
}

static double cost_of(int which, int n, double a, double b, double bytes, double cr) {
  const weir_plan plan = paper(which, cr);
  return weir_cost_paper(&plan, n, a, b, bytes);
}

static real oracle(int collective, real n, real l, real a, real b, real bytes, real cr) {
  const real m = bytes * cr;
  switch (collective) {
    case RING: return 2 * (n - 1) * a + 2 * ((n - 1) / n) * bytes * b;
    case TREE: return 2 * l * a + 2 * l * bytes * b;
    case AG: return l * a + 2 * (n - 1) * m * b;
    case ART_RING: return (2 * (n - 1) + l) * a + (2 * ((n - 1) / n) + l) * m * b;
    case ART_TREE: return 3 * l * a + 3 * l * m * b;
  }
  return NAN;
}

static bool near(real got, real want) { return fabsl(got - want) <= 1e-6L * fabsl(want); }

/* Uniform in the logarithm. */
static double draw(weir_rng *rng, double low, double high) {
  return low * pow(high / low, weir_rng_uniform(rng));
}

Test(cost, every_row_matches_the_oracle_for_2_to_4096_workers) {
  weir_rng rng = weir_rng_of(11);
  for (int n = 2; n <= 4096; n++)
    for (int i = 0; i < 8; i++) {
      const double a = draw(&rng, 1e-7, 1), b = 1 / draw(&rng, 1e3, 1e11);
      const double bytes = draw(&rng, 4, 1e12), cr = draw(&rng, 1e-4, 1);
      const real l = levels(n);
      for (int c = 0; c < PAPER; c++)
        cr_assert(near(cost_of(c, n, a, b, bytes, cr), oracle(c, n, l, a, b, bytes, cr)),
                  "%s, N=%d", published[c], n);
      cr_assert(near(weir_cost_paper_ring(n, a, b, bytes), oracle(0, n, l, a, b, bytes, 1)));
      cr_assert(near(weir_cost_paper_tree(n, a, b, bytes), oracle(1, n, l, a, b, bytes, 1)));
      cr_assert(near(weir_cost_paper_broadcast(n, a, b, bytes), l * a + l * bytes * b));
      cr_assert(near(weir_cost_paper_allgather(n, a, b, bytes), l * a + ((real)n - 1) * bytes * b));
    }
}

/* By hand: 8 workers (L = 3), 1 ms, 10 Gbit/s = 1.25e9 bytes/s, M = 46.8 MB, c = 0.1:
 * M*beta = 37.44 ms, m*beta = 3.744 ms.
 *   dense-ring 14 + 1.75 * 37.44 = 79.52      dense-tree 6 + 6 * 37.44 = 230.64
 *   ag          3 + 14 * 3.744   = 55.416     art-ring 17 + 4.75 * 3.744 = 34.784
 *   art-tree    9 + 9 * 3.744    = 42.696
 * and 5 workers (L = 3), M*beta = 10 ms, c = 0.01, 2 ms:
 *   dense-ring 16 + 1.6 * 10 = 32             ag 6 + 8 * 0.1 = 6.8 */
Test(cost, values_worked_out_by_hand) {
  const double want[] = {79.52, 230.64, 55.416, 34.784, 42.696};
  for (int c = 0; c < PAPER; c++)
    cr_assert(near(1e3 * cost_of(c, 8, 1e-3, 1 / 1.25e9, 46.8e6, 0.1), want[c]));
  cr_assert(near(1e3 * cost_of(RING, 5, 2e-3, 1e-8, 1e6, 0.01), 32));
  cr_assert(near(1e3 * cost_of(AG, 5, 2e-3, 1e-8, 1e6, 0.01), 6.8));
}

Test(cost, one_worker_pays_nothing) {
  const weir_plan star = planned("star:0.1:art-ring");
  const weir_plan dense = planned("none:1:dense-tree");
  for (int c = 0; c < PAPER; c++) cr_assert_eq(cost_of(c, 1, 1e-3, 1e-9, 1e6, 0.1), 0.0);
  cr_assert_eq(weir_cost_paper_broadcast(1, 1e-3, 1e-9, 1e6), 0.0);
  cr_assert_eq(weir_cost_paper_allgather(1, 1e-3, 1e-9, 1e6), 0.0);
  const weir_cost_terms a = weir_cost_plan(&star, 1, 1000, 100);
  const weir_cost_terms b = weir_cost_plan(&dense, 1, 1000, 1000);
  cr_assert_eq(weir_cost_seconds(&a, 1, 1) + weir_cost_seconds(&b, 1, 1), 0.0);
}

/* 4 workers, L = 2.  Encoders tell their message's bytes: 2 rounds, 3 * 5000 bytes.  randomk sends
 * 100 values and no indices: ring 2 * 3 rounds, 2 * 3/4 * 400 bytes; tree 2 * 2, 2 * 2 * 400. */
Test(cost, encoders_and_drawn_indices_by_hand) {
  const weir_plan qsgd = planned("qsgd:0.125:ag");
  const weir_plan ring = planned("randomk:0.1:art-ring");
  const weir_plan tree = planned("randomk:0.1:art-tree");
  const weir_cost_terms a = weir_cost_plan(&qsgd, 4, 8000, 5000);
  const weir_cost_terms b = weir_cost_plan(&ring, 4, 1000, 100);
  const weir_cost_terms c = weir_cost_plan(&tree, 4, 1000, 100);
  cr_assert(near(a.alpha_terms, 2) && near(a.byte_terms, 15000));
  cr_assert(near(b.alpha_terms, 6) && near(b.byte_terms, 600));
  cr_assert(near(c.alpha_terms, 4) && near(c.byte_terms, 1600));
}

/* 4 workers, 1000 floats in two sums: ring 2 * 2 * 3 rounds, 2 * 3/4 * 4000 bytes; tree 2 * 2 * 2
 * rounds, 2 * 2 * 4000 bytes. */
Test(cost, low_rank_by_hand) {
  const weir_plan ring = planned("powersgd:4:dense-ring"), tree = planned("powersgd:4:dense-tree");
  const weir_cost_terms a = weir_cost_plan(&ring, 4, 90000, 1000);
  const weir_cost_terms b = weir_cost_plan(&tree, 4, 90000, 1000);
  cr_assert(near(a.alpha_terms, 12) && near(a.byte_terms, 6000));
  cr_assert(near(b.alpha_terms, 8) && near(b.byte_terms, 16000));
}

/* In bf16 half of that.  By SRA two sums of 512 values, each scattered straight to everybody and
 * gathered so, in 2 rounds: a share of 128 values is a header of 16 bytes, one scale of 4 and 5
 * bits for each (kernels/companded.c), which 3 others get of a rank, twice.  In one shot the
 * 3 others get all 512, of 4 scales, at once; what entropy coding saves is charged by who knows
 * it. */
Test(cost, rounded_low_rank_by_hand) {
  const weir_plan ring = planned("powersgd:4:dense-ring:auto-bf16"),
                  sra = planned("powersgd:4:dense-sra"),
                  one = planned("powersgd:4:dense-one-shot:huffman");
  const weir_cost_terms a = weir_cost_plan(&ring, 4, 90000, 1000);
  const weir_cost_terms b = weir_cost_plan(&sra, 4, 90000, 1024);
  const weir_cost_terms c = weir_cost_plan(&one, 4, 90000, 1024);
  cr_assert(near(a.alpha_terms, 12) && near(a.byte_terms, 3000));
  cr_assert(near(c.alpha_terms, 2) && near(c.byte_terms, 2.0 * 3 * (16 + 16 + 320)), "%g, %g",
            c.alpha_terms, c.byte_terms);
  cr_assert(near(b.alpha_terms, 4) && near(b.byte_terms, 2.0 * 6 * (16 + 4 + 80)), "%g, %g",
            b.alpha_terms, b.byte_terms);
}

/* bilateral's 1000 floats in one sum: ring 2 * 3 rounds, 2 * 3/4 * 4000 bytes.  By SRA 1024 values
 * in 2 rounds: a share of 256 is a header of 16 bytes, two scales of 4 and 5 bits for each.  In one
 * shot all of 8 scales, at once. */
Test(cost, low_rank_in_one_sum_by_hand) {
  const weir_plan ring = planned("bilateral:4:dense-ring"), sra = planned("bilateral:4:dense-sra"),
                  one = planned("bilateral:4:dense-one-shot");
  const weir_cost_terms a = weir_cost_plan(&ring, 4, 90000, 1000);
  const weir_cost_terms b = weir_cost_plan(&sra, 4, 90000, 1024);
  const weir_cost_terms c = weir_cost_plan(&one, 4, 90000, 1024);
  cr_assert(near(a.alpha_terms, 6) && near(a.byte_terms, 6000));
  cr_assert(near(b.alpha_terms, 2) && near(b.byte_terms, 6.0 * (16 + 8 + 160)), "%g, %g",
            b.alpha_terms, b.byte_terms);
  cr_assert(near(c.alpha_terms, 1) && near(c.byte_terms, 3.0 * (16 + 32 + 640)), "%g, %g",
            c.alpha_terms, c.byte_terms);
}

/* 8 workers, 1000 elements of fp32: halving 2 log2 8 = 6 hops, 2 * 7/8 * 4000 bytes; the 2 x 4
 * torus 2 * (1 + 3) = 8 hops and the same bytes; the star 2 hops, 2 * 7 * 4000.  With randomk 100
 * values take the place of the 1000. */
Test(cost, further_all_reduces_by_hand) {
  static const struct {
    const char *dense, *art;
    double hops, shares;
  } rows[] = {{"none:1:dense-halving", "randomk:0.1:art-halving", 6, 1.75},
              {"none:1:dense-torus", "randomk:0.1:art-torus", 8, 1.75},
              {"none:1:dense-star", "randomk:0.1:art-star", 2, 14}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan dense = planned(rows[i].dense), art = planned(rows[i].art);
    const weir_cost_terms a = weir_cost_plan(&dense, 8, 1000, 1000);
    const weir_cost_terms b = weir_cost_plan(&art, 8, 1000, 100);
    cr_assert(near(a.alpha_terms, rows[i].hops) && near(a.byte_terms, rows[i].shares * 4000));
    cr_assert(near(b.alpha_terms, rows[i].hops) && near(b.byte_terms, rows[i].shares * 400));
  }
  const char *const others[] = {"none:1:dense-halving", "none:1:dense-hier-ring",
                                "star:0.1:art-star",    "topk:0.1:hitopk",
                                "qsgd:0.125:sra",       "powersgd:4:dense-ring"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const weir_plan other = planned(others[i]);
    cr_assert_eq(weir_cost_paper(&other, 8, 1e-3, 1e-9, 1e6), INFINITY);
  }
}

/* By hand, 4 workers, a link's latencies and bytes.  1000 elements of fp32 are 4000 bytes. a
 * machine each: hier-ring is the ring, 6 and 1.5 * 4000; by 4 bits a quarter is a bucket of 128 and
 * one of 122, 16 + 72 + 8 + 64 = 160 bytes: sra sends 3 of them to others at once, and gathers 3 at
 * once, 1 + 1 and 480 + 480 (CGX, section 3: 2 latencies); its ring 6 and 6 * 160; its tree 4 and 4
 * * 580; MPI's own for short messages is a tree, 4 and 4 * 4000; hitopk sends 3 others at once a
 * message of 16 + 8 * 100. two machines of 2, "aabb": hier-ring sends shares of 2000 around a ring
 * of 2, 2 and 2000, by two ranks at once.  Around the flat ring a machine sends 6 messages of 1000,
 * and a message crosses with every second hop of 6.  Of the tree rank 2 alone sends to the other
 * machine, and is sent to. Everybody to everybody is 2 * 2 messages over a machine's link: sra
 * twice 4 * 160.  Bruck's first round has one message over it, its second 2 of 2 blocks.  star's
 * list of 16 + 4 * 100 goes from 0 to 2 and on inside; or from 1 to 3 and 2, and from 3 to 0: 1.5
 * latencies and times as many bytes on the mean.  hitopk selects 50 of 500 and gathers 16 + 8 * 50
 * in 1 round, twice; of a half 250 of 500. one machine: reduce-scatter and all-gather, 3 + 3 and
 * 3000 + 3000, nothing between. NCCL's ring and tree count machines, of which 2 are two hops apart,
 * or the ranks of a single one. */
Test(cost, machines_and_compressed_sums_by_hand) {
  static const struct {
    const char *plan;
    int hosts;
    size_t kept;
    double hops, bytes;
  } rows[] = {
      {"none:1:dense-hier-ring", 4, 1000, 6, 6000},
      {"qsgd:0.125:sra", 4, 580, 2, 960},
      {"qsgd:0.125:compressed-ring", 4, 580, 6, 960},
      {"qsgd:0.125:compressed-tree", 4, 580, 4, 2320},
      {"none:1:native", 4, 1000, 4, 16000},
      {"none:1:native-ring", 4, 1000, 6, 6000},
      {"none:1:native-tree", 4, 1000, 4, 8000},
      {"topk:0.1:hitopk", 4, 100, 1, 3 * 816},
      {"none:1:dense-hier-ring", 2, 1000, 2, 4000},
      {"none:1:dense-ring", 2, 1000, 3, 6000},
      {"none:1:dense-tree", 2, 1000, 2, 8000},
      {"none:1:native-ring", 2, 1000, 2, 4000},
      {"none:1:native-tree", 2, 1000, 2, 8000},
      {"randomk:0.1:art-native-tree", 2, 100, 2, 800},
      {"qsgd:0.125:sra", 2, 580, 2, 2 * 4 * 160},
      {"qsgd:0.125:compressed-ring", 2, 580, 3, 960},
      {"qsgd:0.125:compressed-tree", 2, 580, 2, 1160},
      {"topk:0.1:hitopk", 2, 100, 1, 2 * 416},
      {"topk:0.5:hitopk", 2, 500, 1, 2 * 2016},
      {"topk:0.1:ag", 2, 100, 2, (1 + 2 * 2) * 816},
      {"randomk:0.1:art-hier-ring", 2, 100, 2, 400},
      {"star:0.1:art-hier-ring", 2, 100, 2 + 1.5, 400 + 1.5 * 416},
      {"none:1:dense-hier-tree", 1, 1000, 6, 6000},
      {"none:1:dense-tree", 1, 1000, 4, 16000},
      {"none:1:native-ring", 1, 1000, 6, 6000},
      {"none:1:native-tree", 1, 1000, 4, 8000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    weir_plan plan;
    cr_assert_eq(weir_plan_parse(rows[i].plan, &plan), WEIR_OK, "%s", weir_last_error());
    const weir_cost_terms t = weir_cost_plan_between(
        &plan, (weir_group_shape){4, rows[i].hosts, false, 0, 0}, NULL, 1000, rows[i].kept);
    cr_assert(near(t.alpha_terms, rows[i].hops) && near(t.byte_terms, rows[i].bytes),
              "%s on %d machines: %g hops, %g bytes", rows[i].plan, rows[i].hosts, t.alpha_terms,
              t.byte_terms);
  }
}

Test(cost, an_unknown_collective_is_never_the_cheapest) {
  const weir_plan plan = {.codec = WEIR_CODEC_NONE, .scheme = WEIR_SCHEME_COUNT, .cr = 1};
  cr_assert_eq(weir_cost_paper(&plan, 4, 1e-3, 1e-9, 1e6), INFINITY);
  const weir_cost_terms t = weir_cost_plan(&plan, 4, 1000, 1000);
  cr_assert_eq(weir_cost_seconds(&t, 1e-3, 1e-9), INFINITY);
}

/* The paper's inequalities, solved for alpha/beta, pick the same side as comparing the rows. */
Test(cost, inequalities_5a_5b_5c_agree_with_the_cheapest_row) {
  weir_rng rng = weir_rng_of(12);
  int sides[3][2] = {{0}};
  for (int i = 0; i < 200000; i++) {
    const int n = 2 + (int)weir_rng_below(&rng, i % 2 ? 31 : 4095);
    const double a = draw(&rng, 1e-6, 0.1), b = 1 / draw(&rng, 1e6, 1e10);
    const double bytes = draw(&rng, 1e4, 1e9), cr = draw(&rng, 1e-3, 0.3);
    const real l = levels(n), w = n, m = (real)bytes * cr, ratio = (real)a / b;
    const double ring = cost_of(ART_RING, n, a, b, bytes, cr);
    const double tree = cost_of(ART_TREE, n, a, b, bytes, cr);
    const double ag = cost_of(AG, n, a, b, bytes, cr);
    const real flat = w - 1 - l; /* 0 for 2 and 3 workers: there the ring is never slower */
    const real limit[3] = {flat > 0 ? m * (l - (w - 1) / w) / flat : INFINITY,
                           m * ((w - 1) / w - l / (2 * (w - 1))), m * ((w - 1) / l - 1.5L)};
    const double left[3] = {ring, ring, tree}, right[3] = {tree, ag, ag};
    for (int k = 0; k < 3; k++) {
      if (near(ratio, limit[k])) continue; /* a tie up to rounding */
      const bool first = ratio < limit[k];
      cr_assert_eq(first, left[k] < right[k], "5%c, N=%d", 'a' + k, n);
      sides[k][first]++;
    }
  }
  for (int k = 0; k < 3; k++) cr_assert(sides[k][0] > 1000 && sides[k][1] > 1000);
}

/* 6 workers, 1200 elements, 100 kept.  In a tree of 6 the root has 3 children, and nobody is
 * further from it than 2 hops. */
Test(cost, plan_rows_have_the_terms_of_the_algorithms_run) {
  const struct {
    const char *plan;
    double alpha_terms, byte_terms;
  } rows[] = {
      {"none:1:dense-ring", 10, 10.0 / 6 * 4800},
      {"none:1:dense-tree", 4, 6 * 4800},
      {"bf16:1:dense-ring", 10, 10.0 / 6 * 2400},
      {"bf16:1:dense-tree", 4, 6 * 2400},
      {"topk:0.1:ag", 3, 5 * 816}, /* 16 bytes of header and 8 an element */
      {"star:0.1:art-ring", 12, 10.0 / 6 * 400 + 3 * 416},
      {"star:0.1:art-tree", 6, 6 * 400 + 3 * 416},
      {"var:0.1:art-ring", 13, 10.0 / 6 * 400 + 3 * 416 + 5 * 4}, /* 5 others' variances */
      {"var:0.1:art-tree", 7, 6 * 400 + 3 * 416 + 5 * 4},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    weir_plan plan;
    cr_assert_eq(weir_plan_parse(rows[i].plan, &plan), WEIR_OK);
    const weir_cost_terms t = weir_cost_plan(&plan, 6, 1200, 100);
    cr_assert(near(t.alpha_terms, rows[i].alpha_terms), "%s: %g", rows[i].plan, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].byte_terms), "%s: %g", rows[i].plan, t.byte_terms);
    cr_assert(near(weir_cost_seconds(&t, 0.5, 0.25),
                   0.5 * rows[i].alpha_terms + 0.25 * rows[i].byte_terms));
  }
}

/* Denser encodings are charged as what they really take. */
Test(cost, plan_rows_charge_the_wire_format) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse("star:0.1:art-ring:auto-bf16", &plan), WEIR_OK);
  weir_cost_terms t = weir_cost_plan(&plan, 4, 10000, 1000);
  const double list = weir_wire_expected(10000, 1000, WEIR_WIRE_AUTO_BF16, false);
  cr_assert_lt(list, 10000 / 8 + WEIR_WIRE_HEADER + 16); /* a bitmap is always possible */
  cr_assert(near(t.byte_terms, 1.5 * 2000 + 2 * list));
  cr_assert_eq(weir_plan_parse("topk:0.1:ag:auto-bf16", &plan), WEIR_OK);
  t = weir_cost_plan(&plan, 4, 10000, 1000);
  cr_assert(near(t.byte_terms, 3 * (list + 2000)));
}

/* 1200000 bytes among 4, 7 and 8 ranks, by hand.
 *   halving: 4 and 8 are cores themselves; of 7 ranks 3 fold into a core of 4.
 *   double-tree: 600000 bytes a tree make 9 chunks of 600000/9; of 2 ranks each sends 9 up and 9
 * down, one of each in every round but the first and the last.  4, 7 and 8 ranks: in test_select.c.
 *   torus: 2 x 2, 1 x 7, 2 x 4. */
Test(cost, allreduce_rows_by_hand) {
  const double m = 1200000, part = 600000.0 / 9;
  const struct {
    uint32_t algorithm;
    int n;
    double alpha_terms, byte_terms;
  } rows[] = {
      {WEIR_ALLREDUCE_RING, 4, 6, 1800000},
      {WEIR_ALLREDUCE_RING, 7, 12, 12 * m / 7},
      {WEIR_ALLREDUCE_RING, 8, 14, 2100000},
      {WEIR_ALLREDUCE_TREE, 4, 4, 4800000},
      {WEIR_ALLREDUCE_TREE, 7, 4, 7200000},
      {WEIR_ALLREDUCE_TREE, 8, 6, 7200000},
      {WEIR_ALLREDUCE_HALVING, 4, 4, 1800000},
      {WEIR_ALLREDUCE_HALVING, 7, 4 + 2, 1800000 + 2400000},
      {WEIR_ALLREDUCE_HALVING, 8, 6, 2100000},
      {WEIR_ALLREDUCE_DOUBLE_TREE, 2, 9 + 1, 18 * part},
      {WEIR_ALLREDUCE_TORUS, 4, 4, 1800000},
      {WEIR_ALLREDUCE_TORUS, 7, 12, 12 * m / 7},
      {WEIR_ALLREDUCE_TORUS, 8, 8, 2100000},
      {WEIR_ALLREDUCE_STAR, 4, 2, 7200000},
      {WEIR_ALLREDUCE_STAR, 7, 2, 14400000},
      {WEIR_ALLREDUCE_STAR, 8, 2, 16800000},
      {WEIR_ALLREDUCE_DOUBLING, 4, 2, 2400000},
      {WEIR_ALLREDUCE_DOUBLING, 7, 2 + 2, 4800000},
      {WEIR_ALLREDUCE_DOUBLING, 8, 3, 3600000},
      {WEIR_ALLREDUCE_DIRECT, 2, 1, 1200000},
      {WEIR_ALLREDUCE_DIRECT, 4, 1, 3600000},
      {WEIR_ALLREDUCE_DIRECT, 7, 1, 7200000},
      {WEIR_ALLREDUCE_NATIVE, 3, 2, 4800000},
      {WEIR_ALLREDUCE_NATIVE, 8, 6, 2100000},
      {WEIR_ALLREDUCE_NATIVE_RING, 4, 6, 1800000},
      {WEIR_ALLREDUCE_NATIVE_RING, 7, 12, 12 * m / 7},
      {WEIR_ALLREDUCE_NATIVE_TREE, 2, 2, 2400000},
      {WEIR_ALLREDUCE_NATIVE_TREE, 4, 4, 2400000},
      {WEIR_ALLREDUCE_NATIVE_TREE, 7, 6, 2400000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_cost_terms t = weir_cost_allreduce(rows[i].algorithm, rows[i].n, m);
    cr_assert(near(t.alpha_terms, rows[i].alpha_terms), "row %zu: %g", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].byte_terms), "row %zu: %g", i, t.byte_terms);
  }
  for (uint32_t a = 0; a < WEIR_ALLREDUCE_ROWS; a++) {
    const weir_cost_terms alone = weir_cost_allreduce(a, 1, m);
    cr_assert_eq(alone.alpha_terms + alone.byte_terms, 0.0);
  }
  const weir_cost_terms none = weir_cost_allreduce(WEIR_ALLREDUCE_ROWS, 4, m);
  cr_assert_eq(weir_cost_seconds(&none, 1, 1), INFINITY);
}

/* From the schedule itself: the row is not below what the busiest rank sends, and not above what
 * rounds that all begin together would take, were nothing received before all is sent. */
Test(cost, double_tree_row_bounds_its_schedule) {
  const int chunks = 16;
  const double bytes = 2.0 * 16 * 65536; /* one unit a chunk and tree */
  for (int n = 2; n <= 33; n++) {
    const int top = weir_inorder_height(0, n);
    double total = 0, all[33] = {0}, busiest = 0;
    for (int round = 0; round < chunks + 2 * top - 1; round++) {
      int sent[33] = {0}, got[33] = {0};
      for (int tree = 0; tree < 2; tree++)
        for (int v = 1; v < n; v++) { /* the edge from v to its parent */
          const int p = weir_inorder_parent(v, n);
          const int up = round - weir_inorder_height(v, n);
          const int down = round - top - weir_inorder_depth(p, n);
          const int child = weir_double_tree_rank(tree, v, n);
          const int parent = weir_double_tree_rank(tree, p, n);
          const bool goes_up = up >= 0 && up < chunks, comes_down = down >= 0 && down < chunks;
          sent[child] += goes_up, got[parent] += goes_up;
          sent[parent] += comes_down, got[child] += comes_down;
        }
      int most_sent = 0, most_got = 0;
      for (int r = 0; r < n; r++) {
        if (sent[r] > most_sent) most_sent = sent[r];
        if (got[r] > most_got) most_got = got[r];
        all[r] += sent[r] * 65536.0;
        busiest = fmax(busiest, all[r]);
      }
      total += (most_sent + most_got) * 65536.0;
    }
    const weir_cost_terms t = weir_cost_allreduce(WEIR_ALLREDUCE_DOUBLE_TREE, n, bytes);
    cr_assert_geq(t.byte_terms, 0.999 * busiest, "N %d: %g below %g", n, t.byte_terms, busiest);
    cr_assert_leq(t.byte_terms, 1.001 * total, "N %d: %g above %g", n, t.byte_terms, total);
    for (double alpha = 1e3; alpha < 1e8; alpha *= 10) { /* with latencies, a byte a second */
      const weir_cost_terms both = weir_cost_double_tree(n, bytes, alpha, 1, 0);
      const double time = weir_cost_seconds(&both, alpha, 1),
                   all_s = total + alpha * (15 + 2 * top);
      cr_assert_geq(time, 0.999 * fmax(busiest, 2 * top * alpha), "N %d: %g", n, time);
      cr_assert_leq(time, 1.001 * all_s, "N %d: %g above %g", n, time, all_s);
    }
  }
}

/* 700000 bytes among 4, 7 and 8 ranks, by hand.
 *   chain: 10 chunks of 70000 bytes follow one another down N - 1 hops; each but the first hop
 * holds the last chunk up by its own 70000 bytes. doubling of 7 ranks: one block in (700000),
 * exchanges of at most 2 and 4 blocks, 7 blocks out. */
Test(cost, rows_of_the_other_collectives_by_hand) {
  const double m = 700000;
  const struct {
    weir_cost_terms (*row)(uint32_t, int, double);
    uint32_t algorithm;
    int n;
    double alpha_terms, byte_terms;
  } rows[] = {
      {weir_cost_broadcast, WEIR_BROADCAST_BINOMIAL, 4, 2, 1400000},
      {weir_cost_broadcast, WEIR_BROADCAST_BINOMIAL, 7, 2, 2100000},
      {weir_cost_broadcast, WEIR_BROADCAST_BINOMIAL, 8, 3, 2100000},
      {weir_cost_broadcast, WEIR_BROADCAST_CHAIN, 4, 3, 840000},
      {weir_cost_broadcast, WEIR_BROADCAST_CHAIN, 7, 6, 1050000},
      {weir_cost_broadcast, WEIR_BROADCAST_CHAIN, 8, 7, 1120000},
      {weir_cost_broadcast, WEIR_BROADCAST_DIRECT, 4, 1, 2100000},
      {weir_cost_broadcast, WEIR_BROADCAST_DIRECT, 7, 1, 4200000},
      {weir_cost_allgather, WEIR_ALLGATHER_BRUCK, 4, 2, 2100000},
      {weir_cost_allgather, WEIR_ALLGATHER_BRUCK, 7, 3, 4200000},
      {weir_cost_allgather, WEIR_ALLGATHER_BRUCK, 8, 3, 4900000},
      {weir_cost_allgather, WEIR_ALLGATHER_RING, 4, 3, 2100000},
      {weir_cost_allgather, WEIR_ALLGATHER_RING, 7, 6, 4200000},
      {weir_cost_allgather, WEIR_ALLGATHER_RING, 8, 7, 4900000},
      {weir_cost_allgather, WEIR_ALLGATHER_DIRECT, 4, 1, 2100000},
      {weir_cost_allgather, WEIR_ALLGATHER_DIRECT, 7, 1, 4200000},
      {weir_cost_allgather, WEIR_ALLGATHER_DOUBLING, 4, 2, 2100000},
      {weir_cost_allgather, WEIR_ALLGATHER_DOUBLING, 7, 4, (1 + 2 + 4 + 7) * m},
      {weir_cost_allgather, WEIR_ALLGATHER_DOUBLING, 8, 3, 4900000},
      {weir_cost_reduce_scatter, WEIR_REDUCE_SCATTER_RING, 4, 3, 525000},
      {weir_cost_reduce_scatter, WEIR_REDUCE_SCATTER_RING, 7, 6, 600000},
      {weir_cost_reduce_scatter, WEIR_REDUCE_SCATTER_PAIRWISE, 8, 7, 612500},
      {weir_cost_reduce, WEIR_REDUCE_BINOMIAL, 4, 2, 1400000},
      {weir_cost_reduce, WEIR_REDUCE_BINOMIAL, 7, 2, 2100000},
      {weir_cost_reduce, WEIR_REDUCE_BINOMIAL, 8, 3, 2100000},
      {weir_cost_gather, WEIR_GATHER_DIRECT, 4, 1, 2100000},
      {weir_cost_gather, WEIR_GATHER_DIRECT, 7, 1, 4200000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_cost_terms t = rows[i].row(rows[i].algorithm, rows[i].n, m);
    cr_assert(near(t.alpha_terms, rows[i].alpha_terms), "row %zu: %g", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].byte_terms), "row %zu: %g", i, t.byte_terms);
    const weir_cost_terms alone = rows[i].row(rows[i].algorithm, 1, m);
    cr_assert_eq(alone.alpha_terms + alone.byte_terms, 0.0, "row %zu", i);
    const weir_cost_terms none = rows[i].row(99, rows[i].n, m);
    cr_assert_eq(weir_cost_seconds(&none, 1, 1), INFINITY, "row %zu", i);
  }
}

/* Plans' cost rows: what is gathered, shared and summed as messages. */

static bool same(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

/* One all-gather, of 2 rounds among 4 ranks, whatever the messages' length.  fp16: 16 bytes of
 * header and 2 an element.  topk of half of 4800: 16 and 8 an element.  Of 2 machines each sends
 * one block in the first round and 2 * 2 in the second. */
Test(cost_plans, gathered_by_hand) {
  static const struct {
    const char *plan;
    weir_group_shape shape;
    size_t elements, kept;
    double hops, bytes;
  } rows[] = {
      {"fp16:0.5:ag", {4, 4, false, 0, 0}, 10000, 20016, 2, 3 * 20016},
      {"fp16:0.5:ag", {4, 4, true, 0, 0}, 10000, 20016, 2, 3 * 20016},
      {"topk:0.5:ag", {4, 4, false, 0, 0}, 4800, 2400, 2, 3 * 19216},
      {"topk:0.5:ag", {4, 2, false, 0, 0}, 4800, 2400, 2, 5 * 19216},
      {"topk:0.5:ag", {1, 1, false, 0, 0}, 4800, 2400, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = planned(rows[i].plan);
    cr_assert_eq(weir_cost_kept(&plan, rows[i].elements), rows[i].kept);
    const weir_cost_terms t =
        weir_cost_plan_between(&plan, rows[i].shape, NULL, rows[i].elements, rows[i].kept);
    cr_assert(same(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(same(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
}

/* The example of the README: 11.7 million elements of which a tenth go, 8 bytes each, to 7 others
 * at 10 Gbit/s, and three latencies of 1 ms. */
Test(cost_plans, a_tenth_of_a_model_by_hand) {
  const weir_plan plan = planned("topk:0.1:ag");
  const weir_link link = {.alpha = 1e-3, .beta = 8e-10};
  const size_t n = 11700000, kept = weir_cost_kept(&plan, n);
  const double seconds =
      weir_cost_plan_seconds(&plan, (weir_group_shape){8, 8, false, 0, 0}, &link, n, kept, NULL);
  cr_assert_eq(kept, 1170000);
  cr_assert(same(seconds, 3e-3 + 7 * (16 + 8.0 * 1170000) * 8e-10), "%g", seconds);
}

/* An all-gather of 8 messages, 6 of them of others than the 2 on the critical path, at 1 ms each,
 * in place of what links take for all the bytes, 60048 * 8 ns. */
Test(cost_plans, processors_by_hand) {
  const weir_plan plan = planned("fp16:0.5:ag");
  const weir_link link = {.alpha = 10e-3, .beta = 8e-9, .message_s = 1e-3};
  const double seconds =
      weir_cost_plan_processors(&plan, (weir_group_shape){4, 4, false, 0, 0}, &link, 10000, 20016);
  cr_assert(same(seconds, 6e-3 - 60048 * 8e-9), "%g", seconds);
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
    const weir_plan plan = planned(rows[i].plan);
    cr_assert_eq(weir_cost_kept(&plan, 1000), rows[i].kept);
    const weir_cost_terms t = weir_cost_plan(&plan, 4, 1000, rows[i].kept);
    cr_assert(same(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(same(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
}

/* 4 ranks, 4 bits: blocks of 16 KiB * 8 / 4 = 32768 elements.  200000 elements are 1563 buckets
 * with 8 bytes of grid each and 100000 bytes of codes behind a header of 16.  A share of 50000 is a
 * block of 256 buckets of 72 bytes, and 134 with 80 elements more, 16 + 18432 + 16 + 9648 + 48.
 * SRA sends 3 shares at once and gathers as many at once; the ring has 6 hops of a share; the tree
 * 4 of all, in 7 blocks, 112616. fp16: blocks of 8192.  Of 100000 elements a share of 25000 is
 * 50000 bytes and 4 headers, and two of them do not fit the 100000 bytes of its floats: halves of
 * 12500 go one after the other, 2 latencies, with 2 headers each, 25032 bytes.  All are 13 blocks,
 * 200208 bytes. A single rank sends nothing. */
Test(cost_plans, compressed_all_reduces_by_hand) {
  static const struct {
    const char *plan;
    uint32_t row;
    int ranks;
    size_t elements, bytes;
    double hops, carried;
  } rows[] = {
      {"qsgd:0.125:sra", WEIR_COMPRESSED_SRA, 4, 200000, 112520, 2, 6 * 28160},
      {"qsgd:0.125:compressed-ring", WEIR_COMPRESSED_RING, 4, 200000, 112520, 6, 6 * 28160},
      {"qsgd:0.125:compressed-tree", WEIR_COMPRESSED_TREE, 4, 200000, 112520, 4, 4 * 112616},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 4, 100000, 200016, 3, 3 * (2 * 25032 + 50064)},
      {"fp16:0.5:compressed-ring", WEIR_COMPRESSED_RING, 4, 100000, 200016, 6, 6 * 50064},
      {"fp16:0.5:compressed-tree", WEIR_COMPRESSED_TREE, 4, 100000, 200016, 4, 4 * 200208},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 1, 100000, 200016, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = planned(rows[i].plan);
    const weir_coder coder = {.codec = weir_codec_find(plan.codec), .cr = plan.cr};
    cr_assert_eq(weir_cost_kept(&plan, rows[i].elements), rows[i].bytes);
    const weir_cost_terms t = weir_cost_compressed(rows[i].row, rows[i].ranks, &coder,
                                                   rows[i].elements, (double)rows[i].bytes);
    cr_assert(same(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(same(t.byte_terms, rows[i].carried), "row %zu: %g bytes", i, t.byte_terms);
    const weir_cost_terms whole =
        weir_cost_plan(&plan, rows[i].ranks, rows[i].elements, rows[i].bytes);
    cr_assert(same(whole.alpha_terms, rows[i].hops) && same(whole.byte_terms, rows[i].carried));
    cr_assert_eq(weir_cost_compressed(99, 4, &coder, 1000, 800).alpha_terms, INFINITY);
  }
}

/* 1000 elements by 4 bits: half of them are 3 buckets and 116 elements, whose codes are 15 times 4
 * bytes, 16 + 3 * 72 + 8 + 60 = 300; a quarter 16 + 72 + 8 + 64 = 160.  Two machines of 2 ranks: of
 * a share of 500 each rank sends half to the other machine and gets its sum, 2 latencies and 160
 * each way, for 2 ranks on one link; of 4 ranks a half is 125 elements, 16 + 8 + 64 = 88 each way,
 * for 4 ranks.  A machine each: sra among 4, 3 * 2 * 160.  One machine: a sum of fp32, around a
 * ring.  Uneven machines: sra, of which 3 and 2 ranks send each other 3 * 2 messages of 200
 * elements, 16 + 72 + 8 + 36, and as many sums; and 3 and 1, of which nobody can tell by the
 * numbers of ranks and machines, 3 of a quarter's. */
Test(cost_plans, compressed_between_machines_by_hand) {
  static const struct {
    weir_group_shape shape;
    double hops, bytes;
  } rows[] = {{{4, 2, false, 0, 0}, 2, 2 * 2 * 160}, {{8, 2, false, 0, 0}, 2, 4 * 2 * 88},
              {{4, 4, false, 0, 0}, 2, 6 * 160},     {{4, 1, false, 0, 0}, 6, 6000},
              {{5, 2, false, 0, 0}, 2, 2 * 6 * 132}, {{1, 1, false, 0, 0}, 0, 0},
              {{4, 2, false, 2, 0}, 2, 2 * 2 * 160}, {{4, 2, false, 3, 0}, 2, 2 * 3 * 160}};
  const weir_plan plan = planned("qsgd:0.125:hier-sra");
  const size_t kept = weir_cost_kept(&plan, 1000);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_cost_terms t = weir_cost_plan_between(&plan, rows[i].shape, NULL, 1000, 580);
    cr_assert(same(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(same(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
  cr_assert_eq(kept, 16 + 7 * 72 + 8 + 52);
}

/* Messages as above, 24 bytes in front of each, on machines of three ranks and one: there is no
 * inside, and all four talk to each other.  Around a ring 3 hops of all elements' message, of which
 * one goes over two borders.  Straight to each other in 3 rounds, to rank r + 1, r + 2 and r + 3:
 * the last rank sends and gets a quarter's in each, which has waited for one that crossed at the
 * most; and 3 hops of a quarter's around a ring. */
Test(cost_plans, paths_on_uneven_machines_by_hand) {
  const weir_group_shape shape = {4, 2, false, 3, 0};
  const weir_plan gathers = planned("qsgd:0.125:path=rs.c.ag.d.ag"),
                  divides = planned("qsgd:0.125:path=rs.c.a2a.d.c.ag.d.ag");
  const weir_cost_terms all = weir_cost_plan_between(&gathers, shape, NULL, 1000, 0),
                        cells = weir_cost_plan_between(&divides, shape, NULL, 1000, 0);
  cr_assert(same(all.alpha_terms, 2) && same(all.byte_terms, 3 * (580 + 24)), "%g, %g",
            all.alpha_terms, all.byte_terms);
  cr_assert(same(cells.alpha_terms, 2 + 2) && same(cells.byte_terms, (3 + 3) * (160 + 24)),
            "%g, %g", cells.alpha_terms, cells.byte_terms);
}

/* What waiting for slow messages adds to rows, against runs of the recurrence itself. */

enum { RANKS_MAX = 32, REST = 2000, ROUNDS = 8000 };

/* Numbers of this file's own. */
static double uniform(unsigned long long *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* Mean 1; the sum of k exponential times has a deviation of 1 / sqrt(k). */
static double message(unsigned long long *state, int k) {
  double sum = 0;
  for (int i = 0; i < k; i++) sum -= log(uniform(state));
  return sum / k;
}

/* Seconds a round among n ranks, round after round. */
static double round_s(int n, int k, bool ring) {
  unsigned long long state = 7;
  double at[RANKS_MAX] = {0}, next[RANKS_MAX], begin = 0, end = 0;
  for (int t = 0; t < REST + ROUNDS; t++) {
    for (int r = 0; r < n; r++) {
      const int other = ring ? (r + n - 1) % n : (r + n - (1 << t % (int)log2(n))) % n;
      next[r] = fmax(at[r], at[other]) + message(&state, k);
    }
    for (int r = 0; r < n; r++) at[r] = next[r];
    if (t == REST - 1) begin = at[0];
  }
  end = at[0];
  return (end - begin) / ROUNDS;
}

/* Around a ring, and with the partners of Bruck's all-gather, messages of one byte and one second
 * whose deviation is 0.25 or 0.5. */
Test(cost_spread, rounds_take_what_the_recurrence_takes) {
  for (int n = 2; n <= RANKS_MAX; n *= 2)
    for (int k = 4; k <= 16; k *= 4)
      for (int ring = 0; ring < 2; ring++) {
        const double want = round_s(n, k, ring == 1);
        const double got = 1 + weir_cost_spread(n, 1, 1) / sqrt(k);
        cr_assert(want > 1.1, "%d ranks lose nothing", n);
        cr_assert_float_eq(got, want, 0.05 * want, "%d ranks, deviation %g, ring %d: %g of %g", n,
                           1 / sqrt(k), ring, got, want);
      }
}

/* By hand: among 4 ranks 6 / (pi + 6) = 0.65634; a ring's 6 messages of 1 MB each, together the
 * root of 0.65634 * 6 * 6e6 = 4860.9 roots of bytes; at 1e-4 s for each 0.48609 s. */
Test(cost_spread, rings_wait_and_trees_do_not) {
  const weir_link link = {.alpha = 1e-3, .beta = 1e-7, .deviation = 1e-4};
  const weir_group_shape shape = {4, 4, false, 0, 0};
  weir_plan ring, tree;
  cr_assert_eq(weir_plan_parse("none:1:dense-ring", &ring), WEIR_OK);
  cr_assert_eq(weir_plan_parse("none:1:dense-tree", &tree), WEIR_OK);
  const double rings = weir_cost_plan_seconds(&ring, shape, &link, 1000000, 1000000, NULL);
  cr_assert_float_eq(rings, 0.006 + 0.6 + 0.48609, 1e-5, "%g", rings);
  const double trees = weir_cost_plan_seconds(&tree, shape, &link, 1000000, 1000000, NULL);
  cr_assert_float_eq(trees, 0.004 + 1.6, 1e-9, "%g", trees);
  const weir_cost row = weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, shape, &link, 4e6);
  cr_assert_float_eq(weir_cost_predict(&row, &link), rings, 1e-9);
}

/* Two rounds of 3 MB in all: the root of 0.65634 * 2 * 3e6. */
Test(cost_spread, gathering_waits_twice) {
  weir_plan half;
  cr_assert_eq(weir_plan_parse("fp16:0.5:ag", &half), WEIR_OK);
  const weir_cost_terms t = weir_cost_plan(&half, 4, 500000, 1000000);
  cr_assert_float_eq(t.spread_terms, 1984.45, 0.01, "%g", t.spread_terms);
}

/* --- machines of several ranks ---------------------------------------------------------------- */

/* By hand, 4 ranks, M = 4000 bytes, a unit of time a byte.  Around a ring 6 hops of 1000.  "aabb":
 * either the link is busy all the time, 6000 and a latency, or a message has waited for the one
 * that came two hops before over the other link, 3 latencies and 4000; at 1000 both are the same.
 * "abab": two ranks of a machine in every hop, 12000 and a latency, or 6 latencies and 6000 and the
 * 1000 of the rank before; at 1000 they are the same, too. */
Test(cost_machines, rings_by_hand) {
  static const struct {
    uint64_t order;
    double alpha, latencies, bytes;
  } rows[] = {{0, 500, 1, 6000},
              {0, 2000, 3, 4000},
              {WEIR_ORDER_CYCLIC, 500, 1, 12000},
              {WEIR_ORDER_CYCLIC, 2000, 6, 7000}};
  const weir_plan plan = planned("none:1:dense-ring");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_group_shape shape = {4, 2, false, 2, rows[i].order};
    const weir_link link = {.alpha = rows[i].alpha, .beta = 1};
    const weir_cost_terms t = weir_cost_plan_between(&plan, shape, &link, 1000, 1000);
    cr_assert(same(t.alpha_terms, rows[i].latencies) && same(t.byte_terms, rows[i].bytes),
              "row %zu: %g latencies, %g bytes", i, t.alpha_terms, t.byte_terms);
  }
}

/* What was charged for halving among 4 and 8 ranks on two machines, with all of each rank's bytes,
 * is 1.5 and 1.75 times what crosses: of 8, machine by machine, the first exchange of halves alone
 * and the last one back, 4 ranks' on a link. */
Test(cost_machines, halving_crosses_once_and_back) {
  const weir_plan plan = planned("none:1:dense-halving");
  for (int n = 4; n <= 8; n += 4) {
    const weir_group_shape shape = {n, 2, false, n / 2, 0};
    const weir_cost_terms t = weir_cost_plan_between(&plan, shape, NULL, 1000, 1000);
    cr_assert(same(t.alpha_terms, 2) && same(t.byte_terms, n / 2 * 4000.0), "%d: %g, %g", n,
              t.alpha_terms, t.byte_terms);
  }
}

/* How ranks lie on machines is told as it is: to 13 ranks in any order, beyond in two. */
Test(cost_machines, shapes_tell_who_is_where) {
  static const char *const groups[] = {
      "aabb", "abab", "abba",     "aaab",          "abbb",
      "aab",  "aba",  "abcabcab", "abcabcabcabcc", "aaaabbbbccccddd"};
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    const int n = (int)strlen(groups[g]);
    int host[16], hosts = 0;
    for (int r = 0; r < n; r++) {
      host[r] = groups[g][r] - 'a';
      hosts = host[r] >= hosts ? host[r] + 1 : hosts;
    }
    const weir_group_shape shape = weir_shape_of(host, n, hosts);
    cr_assert_lt(shape.order, UINT64_C(1) << 53);
    for (int r = 0; r < n; r++)
      cr_assert_eq(weir_shape_host(shape, r), host[r], "%s: rank %d is not on %d", groups[g], r,
                   weir_shape_host(shape, r));
    for (int h = 0; h < hosts; h++) {
      int members = 0;
      for (int r = 0; r < n; r++) members += host[r] == h;
      cr_assert_eq(weir_shape_members(shape, h), members, "%s: machine %d", groups[g], h);
    }
  }
}

/* Large groups are charged as if every round began for all together: that is no less, but for a
 * tenth of trees whose ranks send what is for later rounds ahead of others' messages. */
Test(cost_machines, rounds_together_take_no_less) {
  static const weir_group_shape shapes[] = {
      {8, 2, false, 4, 0}, {12, 3, false, 4, WEIR_ORDER_CYCLIC}, {24, 5, false, 7, 0}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (uint32_t row = 0; row < WEIR_ALLREDUCE_COUNT; row++)
      for (double alpha = 1e-5; alpha < 1; alpha *= 10) {
        const weir_rounds r = weir_rounds_of(WEIR_KIND_ALLREDUCE, row, shapes[i], 1e6);
        const weir_link link = {.alpha = alpha, .beta = 1e-8};
        const weir_cost_terms walk = weir_cost_walk(&r, &link, 1e6),
                              all = weir_cost_together(&r, 1e6);
        const double least = row == WEIR_ALLREDUCE_TREE ? 0.9 : 1 - 1e-9;
        cr_assert_geq(weir_cost_links(&all, &link), least * weir_cost_links(&walk, &link),
                      "shape %zu, row %u, %g s", i, row, alpha);
      }
}
