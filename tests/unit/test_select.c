/* Cost rows in seconds and the selector that works from them, against values worked out by hand. */
#include <criterion/criterion.h>
#include <math.h>

#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"
#include "collectives/select.h"

static bool near(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

/* 10 ms, 8 ns/byte between machines; 1 ms, 1 ns/byte inside. */
static const weir_link plain = {.alpha = 1e-2, .beta = 8e-9, .inner_alpha = 1e-3, .inner_beta = 1e-9};

static double price(weir_kind kind, uint32_t row, int ranks, int hosts, const weir_link *link,
                    double bytes) {
  const weir_cost cost = weir_cost_row(kind, row, (weir_group_shape){ranks, hosts}, link, bytes);
  return weir_cost_predict(&cost, link);
}

/* 4 ranks, 1 MB.
 *   ring: 6 hops of 250 kB: 60 ms + 6 * 2 ms = 72 ms
 *   a bucket of 100 kB: 6 * 150 kB: 60 + 7.2 = 67.2 ms
 *   processors: 24 messages of which 6 are the own ones, 18 * 0.1 ms = 1.8 ms; 6 MB in all at 4 ns:
 *   24 ms, more than the links' 12: 60 + 24 + 1.8 = 85.8 ms
 *   tree: 4 hops of 1 MB: 40 + 32 = 72 ms; 6 messages, of which 4: 2 * 0.1; 6 MB at 4 ns = 24 < 32 */
Test(cost_rows, seconds_by_hand) {
  weir_link link = plain;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.072));
  link.burst = 1e5;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0672));
  link = plain;
  link.message_s = 1e-4;
  link.byte_s = 4e-9;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0858));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 4, 4, &link, 1e6), 0.0722));
  cr_assert_eq(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 1, 1, &link, 1e6), 0.0);
  cr_assert_eq(price(WEIR_KIND_ALLREDUCE, 99, 4, 4, &link, 1e6), INFINITY);
  cr_assert_eq(price(WEIR_KIND_COUNT, 0, 4, 4, &link, 1e6), INFINITY);
}

/* 8 ranks on 2 machines, 1 MB: inside 3 hops of 250 kB each way: 2 * (3 + 0.75) = 7.5 ms; between, all
 * four shares at once over one link: 2 hops, 2 * 1/2 * 250 kB * 4 = 1 MB: 20 + 8 ms.
 * On one machine everything is inside: ring of 8: 14 + 1.75 = 15.75 ms. */
Test(cost_rows, hierarchies_by_hand) {
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_HIER_RING, 8, 2, &plain, 1e6), 0.0355));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 8, 1, &plain, 1e6), 0.01575));
  /* every rank a machine of its own: the flat row */
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_HIER_TREE, 8, 8, &plain, 1e6),
                 price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 8, 8, &plain, 1e6)));
}

/* HiTopKComm, equations 7, 9 and 10 for m = 4, n = 8, d = 1e6, rho = 0.01, 1 us and 0.1 ns inside,
 * 50 us and 1 ns between:
 *   (7)  7 us + 4 * 7/8 * 1e6 * 0.1 ns = 7 + 350 us
 *   (9)  2 * 50 us + 4 * 3 * 1250 * 1 ns = 100 + 15 us
 *   (10) 3 * 1 us + 4 * 7 * 1250 * 4 * 0.1 ns = 3 + 14 us */
Test(cost_rows, hitopk_of_the_paper_by_hand) {
  cr_assert(near(weir_cost_paper_hitopk(4, 8, 1e6, 0.01, 1e-6, 1e-10, 5e-5, 1e-9), 489e-6));
}

/* Own row with the paper's format, 8 bytes an element and a header of 16: 2 machines of 2, 8000
 * elements, 10 %: inside a hop of 16000 bytes and one of 2 messages of 400 * 8 + 16; between a hop of
 * both ranks' messages. */
Test(cost_rows, hitopk_by_hand) {
  const weir_cost c = weir_cost_hitopk((weir_group_shape){4, 2}, &plain, 8000, 0.1, WEIR_WIRE_PAPER);
  cr_assert(near(c.inner.alpha_terms, 2) && near(c.inner.byte_terms, 16000 + 2 * 3216.0));
  cr_assert(near(c.outer.alpha_terms, 1) && near(c.outer.byte_terms, 2 * 3216.0));
}

/* 4 ranks, 800 bytes encoded: SRA sends 3 shares of 200 at once and gathers as many in 2 rounds. */
Test(cost_rows, compressed_by_hand) {
  const weir_cost_terms sra = weir_cost_compressed(WEIR_COMPRESSED_SRA, 4, 800);
  cr_assert(near(sra.alpha_terms, 3) && near(sra.byte_terms, 1200));
  const weir_cost_terms ring = weir_cost_compressed(WEIR_COMPRESSED_RING, 4, 800);
  cr_assert(near(ring.alpha_terms, 6) && near(ring.byte_terms, 1200));
  const weir_cost_terms tree = weir_cost_compressed(WEIR_COMPRESSED_TREE, 4, 800);
  cr_assert(near(tree.alpha_terms, 4) && near(tree.byte_terms, 3200));
  cr_assert_eq(weir_cost_compressed(99, 4, 800).alpha_terms, INFINITY);
}

/* Messages and bytes of all ranks together, from the schedules, for every N up to 64. */
Test(cost_rows, totals_match_the_schedules) {
  for (int n = 2; n <= 64; n++) {
    double bruck = 0, halving = 0, binomial = 0;
    for (int r = 0; r < n; r++) {
      for (int k = 0; k < weir_log2_ceil(n); k++) bruck += weir_bruck(r, n, k).count;
      for (int v = r; v > 0; v = weir_binomial_parent(v, n)) binomial++;
    }
    const weir_halving place = weir_halving_place(0, n);
    for (int d = place.core / 2; d > 0; d /= 2) halving += 2.0 * place.core * d / place.core;
    halving += 2.0 * (n - place.core);
    const weir_group_shape shape = {n, n};
    const weir_cost b =
        weir_cost_row(WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, shape, &plain, 100);
    cr_assert(near(b.traffic, 100 * bruck), "N %d", n);
    const weir_cost h =
        weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_HALVING, shape, &plain, 6400);
    cr_assert(near(h.traffic, 6400 * halving), "N %d: %g, not %g", n, h.traffic, 6400 * halving);
    const weir_cost g = weir_cost_row(WEIR_KIND_GATHER, WEIR_GATHER_BINOMIAL, shape, &plain, 100);
    cr_assert(near(g.traffic, 100 * binomial), "N %d: %g, not %g", n, g.traffic, 100 * binomial);
  }
}

/* The critical path on a link lies between its parts' maximum and their sum, and is the one or the
 * other where only one of the two costs anything. */
Test(cost_rows, double_tree_path) {
  for (int n = 2; n <= 33; n++)
    for (double bytes = 1e3; bytes < 1e8; bytes *= 10) {
      const weir_cost_terms a = weir_cost_double_tree(n, bytes, 1, 0);
      const weir_cost_terms b = weir_cost_double_tree(n, bytes, 0, 1);
      const weir_cost_terms both = weir_cost_double_tree(n, bytes, 1e-3, 1e-8);
      const double time = weir_cost_seconds(&both, 1e-3, 1e-8);
      const double most = fmax(1e-3 * a.alpha_terms, 1e-8 * b.byte_terms);
      cr_assert_geq(time, 0.999999 * most, "N %d", n);
      cr_assert_leq(time, 1.000001 * (1e-3 * a.alpha_terms + 1e-8 * b.byte_terms), "N %d", n);
      /* up and down the tree, at the least */
      cr_assert_geq(a.alpha_terms, 2 * weir_inorder_height(0, n), "N %d", n);
    }
}

/* Many hops are dear on a long link, many bytes on a narrow one: 4 ranks, 100 bytes over 10 ms: doubling 20
 * ms; 100 MB: ring, torus and halving move 150 MB, of which halving and torus need the fewest hops. */
Test(selector, chooses_the_cheapest_row) {
  weir_selector s;
  weir_selector_init(&s, (weir_group_shape){4, 4}, &plain);
  cr_assert_eq(weir_selector_choose(&s, WEIR_KIND_ALLREDUCE, 100), WEIR_ALLREDUCE_DOUBLING);
  cr_assert_eq(weir_selector_choose(&s, WEIR_KIND_ALLREDUCE, 1e8), WEIR_ALLREDUCE_HALVING);
  /* log2 N = 2 rounds for bruck and doubling: the lower row */
  cr_assert_eq(weir_selector_choose(&s, WEIR_KIND_ALLGATHER, 1e4), WEIR_ALLGATHER_BRUCK);
  cr_assert_eq(weir_selector_choose(&s, WEIR_KIND_GATHER, 1e4), WEIR_GATHER_DIRECT);
  for (int kind = 0; kind < WEIR_KIND_COUNT; kind++)
    for (double bytes = 1; bytes < 1e9; bytes *= 7) {
      const uint32_t chosen = weir_selector_choose(&s, (weir_kind)kind, bytes);
      for (uint32_t row = 0; row < weir_rows((weir_kind)kind); row++)
        cr_assert_leq(weir_selector_predict(&s, (weir_kind)kind, chosen, bytes),
                      weir_selector_predict(&s, (weir_kind)kind, row, bytes));
    }
  cr_assert_eq(weir_selector_predict(&s, WEIR_KIND_REDUCE, 99, 100), INFINITY);
  cr_assert_null(weir_row_name(WEIR_KIND_REDUCE, 99));
  cr_assert_str_eq(weir_row_name(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_STAR), "star");
  cr_assert_eq(weir_rows(WEIR_KIND_COUNT), 0);
}

/* What is measured corrects what is predicted, at that size and, with nothing else known, at others. */
Test(selector, learns_from_what_is_measured) {
  weir_selector s;
  weir_selector_init(&s, (weir_group_shape){4, 4}, &plain);
  const uint32_t star = WEIR_ALLREDUCE_STAR;
  const double before = weir_selector_predict(&s, WEIR_KIND_ALLREDUCE, star, 100);
  weir_selector_observe(&s, WEIR_KIND_ALLREDUCE, star, 100, 3 * before);
  const double after = weir_selector_predict(&s, WEIR_KIND_ALLREDUCE, star, 100);
  cr_assert_float_eq(after, 3 * before, 1e-6 * after, "the first measurement is taken whole");
  cr_assert_neq(weir_selector_choose(&s, WEIR_KIND_ALLREDUCE, 100), star);
  for (int i = 0; i < 40; i++)
    weir_selector_observe(&s, WEIR_KIND_ALLREDUCE, star, 100, 0.5 * before);
  cr_assert_float_eq(weir_selector_predict(&s, WEIR_KIND_ALLREDUCE, star, 100), 0.5 * before,
                     1e-3 * before, "and forgotten");
  const weir_selector kept = s;
  weir_selector_observe(&s, WEIR_KIND_ALLREDUCE, star, 100, NAN);
  weir_selector_observe(&s, WEIR_KIND_ALLREDUCE, star, 100, -1);
  weir_selector_observe(&s, WEIR_KIND_ALLREDUCE, 99, 100, 1);
  cr_assert_eq(weir_selector_predict(&s, WEIR_KIND_ALLREDUCE, star, 100),
               weir_selector_predict(&kept, WEIR_KIND_ALLREDUCE, star, 100));
  weir_selector_observe(&s, WEIR_KIND_ALLREDUCE, 0, 100, 1e9); /* something else went on */
  cr_assert_leq(weir_selector_predict(&s, WEIR_KIND_ALLREDUCE, 0, 100),
                4.001 * price(WEIR_KIND_ALLREDUCE, 0, 4, 4, &plain, 100));
}
