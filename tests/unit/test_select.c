/* Cost rows in seconds and the selector that works from them, against values worked out by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "../planned.h"
#include "base/schemes.h"
#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"
#include "collectives/select.h"

static bool near(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

/* 10 ms, 8 ns/byte between machines; 1 ms, 1 ns/byte inside. */
static const weir_link plain = {
    .alpha = 1e-2, .beta = 8e-9, .inner_alpha = 1e-3, .inner_beta = 1e-9};

static double price(weir_kind kind, uint32_t row, int ranks, int hosts, const weir_link *link,
                    double bytes) {
  const weir_cost cost =
      weir_cost_row(kind, row, (weir_group_shape){ranks, hosts, false, 0, 0}, link, bytes);
  return weir_cost_predict(&cost, link);
}

static double uneven_price(uint32_t row, weir_group_shape shape, double bytes) {
  const weir_cost cost = weir_cost_row(WEIR_KIND_ALLREDUCE, row, shape, &plain, bytes);
  return weir_cost_predict(&cost, &plain);
}

/* Rings inside of machines. */
static double levels_price(uint32_t between, int ranks, int hosts, double bytes) {
  const weir_hier_choice choice = {WEIR_REDUCE_SCATTER_RING, between, WEIR_ALLGATHER_RING, false};
  const weir_cost cost =
      weir_cost_hier(&choice, (weir_group_shape){ranks, hosts, false, 0, 0}, &plain, bytes);
  return weir_cost_predict(&cost, &plain);
}

/* Three ranks and one, 1 MB: a hop to the first of the three and one back, 4 MB inside; the two
 * first ones sum around a ring, 2 hops of half.  By all ranks 4 messages inside and 4 between, of 4
 * and 2 MB.  Of what is not known to be uneven half goes around a ring between two pairs. */
Test(cost_rows, uneven_machines_sum_on_their_first_ranks) {
  const weir_hier_choice choice = {WEIR_REDUCE_SCATTER_RING, WEIR_ALLREDUCE_RING,
                                   WEIR_ALLGATHER_RING, false};
  const weir_cost cost =
      weir_cost_hier(&choice, (weir_group_shape){4, 2, false, 3, 0}, &plain, 1e6);
  cr_assert(near(cost.inner.alpha_terms, 2) && near(cost.inner.byte_terms, 4e6));
  cr_assert(near(cost.outer.alpha_terms, 2) && near(cost.outer.byte_terms, 1e6));
  cr_assert(near(cost.messages, 8) && near(cost.traffic, 6e6));
  const weir_cost even =
                      weir_cost_hier(&choice, (weir_group_shape){4, 2, false, 2, 0}, &plain, 1e6),
                  taken =
                      weir_cost_hier(&choice, (weir_group_shape){4, 2, false, 0, 0}, &plain, 1e6);
  cr_assert(near(even.inner.alpha_terms, 2) && near(even.inner.byte_terms, 1e6));
  cr_assert_eq(weir_cost_predict(&even, &plain), weir_cost_predict(&taken, &plain));
}

/* 4 ranks, 1 MB.
 *   ring: 6 hops of 250 kB: 60 ms + 6 * 2 ms = 72 ms; both ways at once at 8.2 ns: 60 + 12.3 ms
 *   tree: 4 hops of 1 MB, one way: 40 + 32 = 72 ms
 *   a bucket of 100 kB, full again after 10 ms (1.25 MB): ring 6 * 150 kB, 60 + 7.2 = 67.2 ms; tree
 * 4 * 900 kB, 40 + 28.8 = 68.8 ms.  After 0.4 ms 50 kB are back: the ring lets 100 + 5 * 50 kB
 * through, 2.4 + 1150 kB * 8 ns = 11.6 ms; the tree's links are all idle before: 1.6 + 28.8 = 30.4
 * ms */
Test(cost_rows, seconds_of_links_by_hand) {
  weir_link link = plain;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.072));
  link.duplex_beta = 8.2e-9;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0723));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 4, 4, &link, 1e6), 0.072));
  link = plain;
  link.burst = 1e5;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0672));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 4, 4, &link, 1e6), 0.0688));
  link.alpha = 4e-4;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0116));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 4, 4, &link, 1e6), 0.0304));
  cr_assert_eq(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 1, 1, &link, 1e6), 0.0);
  cr_assert_eq(price(WEIR_KIND_ALLREDUCE, 99, 4, 4, &link, 1e6), INFINITY);
  cr_assert_eq(price(WEIR_KIND_COUNT, 0, 4, 4, &link, 1e6), INFINITY);
}

/* 4 ranks, 1 MB.
 *   ring: 24 messages in 6 rounds, 18 of them others', at 0.1 ms: 1.8 ms.  6 MB in all at 1 ns: 6
 * ms, together less than the links' 12; at 4 ns 24 ms, more: 60 + 24 + 1.8 = 85.8 ms tree: 6
 * messages in 4 rounds, 2 others': 0.2 ms; with 24 ms less than the links' 32: 72 ms answers at 0.1
 * ms to messages of 250 kB: 1.8 ms more; to those of 2.5 kB (10 kB in all) none adding: in the tree
 * 2 MB, one rank at a time at 2 ns: 4 ms; in the ring 3 MB by all at 1 ns: 3 ms */
Test(cost_rows, seconds_of_processors_by_hand) {
  weir_link link = plain;
  link.message_s = 1e-4;
  link.byte_s = 1e-9;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.072));
  link.byte_s = 4e-9;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0858));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 4, 4, &link, 1e6), 0.072));
  link.answer_s = 1e-4;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0876));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e4), 0.06204));
  link.answer_s = 0;
  link.sum_s = 2e-9;
  link.sums_s = 1e-9;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 4, 4, &link, 1e6), 0.0888));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 4, 4, &link, 1e6), 0.076));
}

/* 8 ranks on 2 machines, 1 MB: inside 3 hops of 250 kB each way: 2 * (3 + 0.75) = 7.5 ms; between,
 * all four shares over one link: 2 hops of 125 kB, 1 ms each, and the last share waits for the
 * three before it in the first: 20 + 2 + 3 ms.  Were the latency 1 ms, the link would be busy all
 * the time: 8 messages, 8 + 1 ms.  On one machine everything is inside: ring of 8: 14 + 1.75 =
 * 15.75 ms. */
Test(cost_rows, hierarchies_by_hand) {
  cr_assert(near(levels_price(WEIR_ALLREDUCE_RING, 8, 2, 1e6), 0.0325));
  const weir_hier_choice rings = {WEIR_REDUCE_SCATTER_RING, WEIR_ALLREDUCE_RING,
                                  WEIR_ALLGATHER_RING, false};
  const weir_link close = {.alpha = 1e-3, .beta = 8e-9};
  const weir_cost busy = weir_cost_hier(&rings, (weir_group_shape){8, 2, false, 0, 0}, &close, 1e6);
  cr_assert(near(weir_cost_predict(&busy, &close), 0.009));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_RING, 8, 1, &plain, 1e6), 0.01575));
  /* every rank a machine of its own: the flat row */
  cr_assert(near(levels_price(WEIR_ALLREDUCE_TREE, 8, 8, 1e6),
                 price(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TREE, 8, 8, &plain, 1e6)));
}

/* 1 MB.
 *   2 x 4: rows inside and columns of two as above, 7.5 and 25 ms
 *   2 x 2: 2 * (1 + 0.5) = 3 ms, and 2 hops of 250 kB, 2 ms each, of 2 ranks: 20 + 4 + 2 ms
 *   16 x 8: 2 * (7 + 0.875) = 15.75 ms; columns of 16: 30 hops of 125 / 16 kB, 0.0625 ms each, of 8
 *     ranks: 300 + (30 + 7) * 0.0625 ms.  A machine a rank: 8 x 16, 44 hops, 440 ms + 2 * 127/128
 *     MB
 *   3 ranks and one are uneven: 2 x 2 among all, of which the last one sends and gets all of
 *     2 * 3/4 MB and waits in 4 hops
 *   one machine of 8 ranks: 2 x 4 inside: 8 + 1.75 ms */
Test(cost_rows, torus_follows_the_machines) {
  const uint32_t torus = WEIR_ALLREDUCE_TORUS;
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, torus, 8, 2, &plain, 1e6), 0.0325));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, torus, 4, 2, &plain, 1e6), 0.029));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, torus, 128, 16, &plain, 1e6), 0.3180625));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, torus, 128, 128, &plain, 1e6),
                 0.44 + 2 * 127.0 / 128 * 8e-3));
  cr_assert(
      near(uneven_price(torus, (weir_group_shape){4, 2, false, 3, 0}, 1e6), 0.04 + 1.5 * 8e-3));
  cr_assert(near(price(WEIR_KIND_ALLREDUCE, torus, 8, 1, &plain, 1e6), 0.00975));
}

/* 4 ranks, 10000 elements, 1000 kept, 8 bytes a pair and a header of 16; 1 ms a message; links of
 * 10 ms and 8 ns a byte, so that bytes take 0.1 ms at most and hide nothing to speak of, less than
 * the messages. all-gather: 8 messages in 2 rounds, 6 others'; 3 * 8016 bytes: 6 ms instead of
 * 0.192384 ring of 4000 bytes: 18 others', 6000 bytes: 18 instead of 0.048; broadcast of 4016: 3
 * messages in 2 rounds, 1 other's, 8032 bytes: 1 instead of 0.064256 */
Test(cost_rows, processors_of_plans_by_hand) {
  const weir_group_shape shape = {4, 4, false, 0, 0};
  weir_link link = plain;
  weir_plan plan;
  cr_assert_eq(weir_plan_parse("topk:0.1:ag", &plan), WEIR_OK);
  cr_assert_eq(weir_cost_plan_processors(&plan, shape, &link, 10000, 1000), 0.0);
  link.message_s = 1e-3;
  cr_assert(near(weir_cost_plan_processors(&plan, shape, &link, 10000, 1000), 6e-3 - 192.384e-6));
  cr_assert_eq(weir_plan_parse("star:0.1:art-ring", &plan), WEIR_OK);
  cr_assert(near(weir_cost_plan_processors(&plan, shape, &link, 10000, 1000),
                 18e-3 - 48e-6 + 1e-3 - 64.256e-6));
  cr_assert_eq(
      weir_cost_plan_processors(&plan, (weir_group_shape){1, 1, false, 0, 0}, &link, 10000, 1000),
      0.0);
  plan.scheme = WEIR_SCHEME_COUNT;
  cr_assert_eq(weir_cost_plan_processors(&plan, shape, &link, 10000, 1000), 0.0);
}

/* Own row with the paper's format, 8 bytes an element and a header of 16: 2 machines of 2, 8000
 * elements, 10 %: inside a hop of 16000 bytes and one of 2 messages of 400 * 8 + 16; between a hop
 * of both ranks' messages. */
Test(cost_rows, hitopk_by_hand) {
  const weir_cost c =
      weir_cost_hitopk((weir_group_shape){4, 2, false, 0, 0}, &plain, 8000, 0.1, WEIR_WIRE_PAPER);
  cr_assert(near(c.inner.alpha_terms, 2) && near(c.inner.byte_terms, 16000 + 2 * 3216.0));
  cr_assert(near(c.outer.alpha_terms, 1) && near(c.outer.byte_terms, 2 * 3216.0));
}

/* Messages and bytes of all ranks together, from the schedules, for every N up to 64. */
Test(cost_rows, totals_match_the_schedules) {
  for (int n = 2; n <= 64; n++) {
    double bruck = 0, halving = 0;
    for (int r = 0; r < n; r++) {
      for (int k = 0; k < weir_log2_ceil(n); k++) bruck += weir_bruck(r, n, k).count;
    }
    const weir_halving place = weir_halving_place(0, n);
    for (int d = place.core / 2; d > 0; d /= 2) halving += 2.0 * place.core * d / place.core;
    halving += 2.0 * (n - place.core);
    const weir_group_shape shape = {n, n, false, 0, 0};
    const weir_cost b =
        weir_cost_row(WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, shape, &plain, 100);
    cr_assert(near(b.traffic, 100 * bruck), "N %d", n);
    const weir_cost h =
        weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_HALVING, shape, &plain, 6400);
    cr_assert(near(h.traffic, 6400 * halving), "N %d: %g, not %g", n, h.traffic, 6400 * halving);
    const weir_cost d =
        weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_DIRECT, shape, &plain, 100);
    cr_assert(near(d.messages, n * (n - 1)) && near(d.traffic, 100.0 * n * (n - 1)), "N %d", n);
  }
}

/* One chunk a tree, of u bytes, by hand; u = 60000 of 120000.  Times are in u beta, links carry one
 * chunk at a time each way, and there is no latency; beside it, only latencies.  Chunks that come
 * to a rank at once from two sides share its link, and are there when both are.
 *
 * 4 ranks: tree 0 is 0 - 2 - {1, 3}; tree 1 the same with 3 - rank.  1 and 3 to 2: 2; 2 to 0: 3; 0
 * to 2: 4; 2 to 1 and 3: 5, 6.  Tree 1 does the same on other links.  4 latencies: 2 up, 2 down. 8
 * ranks: tree 0 is 0 - 4 - {2, 6}, 2 - {1, 3}, 6 - {5, 7}; tree 1 the same with 7 - rank: 7 - 3 -
 *   {5, 1}, 5 - {6, 4}, 1 - {2, 0}.  1 and 3 to 2, 5 and 7 to 6: 2.  2 and 6 to 4: 4.  4 to 0: 5.
 * 0 to 4: 6.  4 to 2: 7, and would be at 6 at 8; 3 to 5: 7, and would be at 1 at 8.  From 7 on 2
 * sends to 1, and 5 to 6: what comes in there from both is there at 9.  1 to 2 and 0, 6 to 5 and 7:
 * 10, 11. 7 ranks: tree 0 is 0 - 4 - {2, 6}, 2 - {1, 3}, 6 - {5}; tree 1 the same with rank - 1
 * (mod 7).  1 and 3 to 2: 2; 5 to 6: 1.  6 to 4: 2, 2 to 4: 3.  4 to 0: 4.  0 to 4: 5.  4 to 2: 6,
 * to 6: 7.  2 to 1 and 3: 7, 8.  6 to 5: 8.  Tree 1: 8 as well. */
Test(cost_rows, double_tree_of_one_chunk_by_hand) {
  const double u = 60000;
  const int due[3][3] = {{4, 6, 4}, {7, 8, 6}, {8, 11, 6}}; /* ranks, u, latencies */
  for (int i = 0; i < 3; i++) {
    const int n = due[i][0];
    const weir_cost_terms bytes = weir_cost_double_tree(n, 2 * u, 0.0, 1.0, 0.0);
    const weir_cost_terms hops = weir_cost_double_tree(n, 2 * u, 1.0, 0.0, 0.0);
    cr_assert(near(bytes.byte_terms, due[i][1] * u), "N %d: %g u", n, bytes.byte_terms / u);
    cr_assert(near(hops.alpha_terms, due[i][2]), "N %d: %g", n, hops.alpha_terms);
    const weir_cost_terms row = weir_cost_allreduce(WEIR_ALLREDUCE_DOUBLE_TREE, n, 2 * u);
    cr_assert(near(row.alpha_terms, due[i][2]) && near(row.byte_terms, due[i][1] * u));
  }
}

/* The same through buckets of u / 4.  With a latency in which they fill again every link on the
 * path lets u / 4 through at once.  4 ranks: two chunks come in at 2, there at 1.75 with it, then
 * one is up, one down at 0.75 each, then two at 1.75: 5 u and 4 latencies. 2 ranks: up and down,
 * 0.75 u each.  With a latency of u / 10: up is there at 0.1 + 0.75.  The way down begins then;
 * that link has carried u at 0.75, was idle for 0.1 u and lets that much through at once, so that
 * the rest is there at 0.85 + 0.1 + 0.9 = 1.85 u. */
Test(cost_rows, double_tree_through_buckets_by_hand) {
  const double u = 60000;
  const struct {
    int n;
    double alpha, due; /* in u */
  } rows[] = {{4, 1, 5 + 4}, {2, 1, 1.5 + 2}, {2, 0.1, 1.85}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_cost_terms t =
        weir_cost_double_tree(rows[i].n, 2 * u, rows[i].alpha * u, 1.0, u / 4);
    const double time = weir_cost_seconds(&t, rows[i].alpha * u, 1.0);
    cr_assert(near(time, rows[i].due * u), "row %zu: %g u", i, time / u);
    const weir_link link = {
        .alpha = rows[i].alpha * u, .beta = 1, .duplex_beta = 1, .burst = u / 4};
    const weir_cost cost =
        weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_DOUBLE_TREE,
                      (weir_group_shape){rows[i].n, rows[i].n, false, 0, 0}, &link, 2 * u);
    const double seconds = weir_cost_predict(&cost, &link); /* which takes nothing off again */
    cr_assert(near(seconds, rows[i].due * u), "row %zu: %g u", i, seconds / u);
  }
}

/* Whatever is waited for, a path has no less than no latencies and no bytes.  Neither has it on
 * links that 8 ranks share, over which goes what one rank gets at the least, and what 8 send at the
 * most. */
Test(rows, the_double_tree_takes_no_negative_time) {
  const double bytes = 1e8, beta = 1 / 3.125e9;
  for (int n = 16; n <= 128; n *= 2)
    for (double alpha = 1e-5; alpha < 1e-3; alpha *= 3) {
      const weir_cost_terms t = weir_cost_double_tree(n, bytes, alpha, beta, 0);
      cr_assert(t.alpha_terms >= 0, "%d: %g", n, t.alpha_terms);
      cr_assert_geq(t.byte_terms, bytes, "%d, %g s: %g", n, alpha, t.byte_terms);
      const weir_link link = {.alpha = alpha, .beta = beta, .duplex_beta = beta};
      const weir_cost shared =
          weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_DOUBLE_TREE,
                        (weir_group_shape){n, n / 8, false, 0, 0}, &link, bytes);
      const double alone = weir_cost_seconds(&t, alpha, beta);
      const double together = weir_cost_predict(&shared, &link);
      cr_assert_geq(shared.outer.alpha_terms, 0, "%d: %g", n, shared.outer.alpha_terms);
      cr_assert(together >= bytes * beta && together < 10 * alone, "%d: %g, %g", n, alone,
                together);
    }
}

/* Of so many sizes, N and latencies that no table of answers holds them all. */
enum { ASKED = 600 };
static weir_cost_terms asked(int i) {
  return weir_cost_double_tree(2 + i % 7, 4096.0 * (1 + i), 1e-5 * (i % 5), 1e-8, 1e3 * (i % 3));
}

typedef struct once {
  int which;
  weir_cost_terms answer;
} once;

static void *ask_anew(void *argument) {
  once *o = argument;
  o->answer = asked(o->which);
  return NULL;
}

/* A path is followed once for what is asked again, in the same thread: a new one knows nothing. */
Test(rows, what_was_asked_before_changes_no_answer) {
  for (int i = 0; i < ASKED; i++) asked(i);
  for (int i = ASKED - 1; i >= 0; i--) {
    const weir_cost_terms again = asked(i), once_more = asked(i);
    once o = {.which = i};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, ask_anew, &o), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert(memcmp(&again, &o.answer, sizeof again) == 0, "%d", i);
    cr_assert(memcmp(&once_more, &o.answer, sizeof again) == 0, "%d", i);
  }
}

/* One latency of 8 ranks beats 3 and 7.  Where processors take 0.3 s for each message beyond a
 * latency's, 56 messages at once take longer than 24 in 3 rounds.  Nothing known: the first. */
Test(rows, the_cheapest_is_chosen) {
  const weir_group_shape shape = {8, 8, false, 0, 0};
  const weir_link far = {.alpha = 1, .beta = 1e-9, .duplex_beta = 1e-9}, unknown = {0};
  weir_link busy = far;
  busy.message_s = 0.3;
  cr_assert_eq(weir_select_row(WEIR_KIND_ALLGATHER, shape, &far, 64), WEIR_ALLGATHER_DIRECT);
  cr_assert_eq(weir_select_row(WEIR_KIND_ALLGATHER, shape, &busy, 64), WEIR_ALLGATHER_BRUCK);
  cr_assert_eq(weir_select_row(WEIR_KIND_ALLGATHER, shape, &unknown, 64), 0);
  /* 14 latencies of a ring, 6 of a tree. */
  cr_assert_neq(weir_select_row(WEIR_KIND_ALLREDUCE, shape, &far, 64), WEIR_ALLREDUCE_RING);
}

Test(rows, have_names) {
  cr_assert_null(weir_row_name(WEIR_KIND_REDUCE, 99));
  cr_assert_str_eq(weir_row_name(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_STAR), "star");
  cr_assert_eq(weir_rows(WEIR_KIND_COUNT), 0);
}

/* 8 ranks on 2 machines, 250,000 floats: inside 7.5 ms and between 20 + 5 (hierarchies_by_hand),
 * which is all where nothing is known of links inside.  Where NCCL sums inside, around a ring of 4,
 * 6 ms + 1.5 in place of the reduce-scatter's 3 + 0.75.  HiTopKComm at 0.1 of them: inside a
 * reduce-scatter by a ring, 3 ms + 0.75, and the lists of 2 x 6250 elements of 8 bytes and their
 * headers to 3 others in 2 rounds.  One machine's links are those that are known: 14 of 10 ms, and
 * 2 * 7/8 MB at 8 ns. */
Test(cost_rows, plans_know_links_inside_of_machines) {
  const weir_group_shape two = {8, 2, false, 0, 0}, one = {8, 1, false, 0, 0};
  const weir_plan rings = planned("none:1:dense-hier-ring"), flat = planned("none:1:dense-ring"),
                  top = planned("topk:0.1:hitopk"),
                  library = planned("none:1:dense-hier-ring+native");
  const size_t n = 250000;
  weir_link between = plain;
  between.inner_alpha = between.inner_beta = 0;
  cr_assert(near(weir_cost_plan_seconds(&rings, two, &plain, n, n, NULL), 0.0325));
  cr_assert(near(weir_cost_plan_seconds(&library, two, &plain, n, n, NULL), 0.03625));
  cr_assert(near(weir_cost_plan_seconds(&rings, two, &between, n, n, NULL), 0.025));
  cr_assert(near(weir_cost_plan_seconds(&flat, one, &plain, n, n, NULL), 0.154));
  const double lists = 3e-9 * 2 * weir_wire_expected(62500, 6250, WEIR_WIRE_PAPER, true);
  const double with = weir_cost_plan_seconds(&top, two, &plain, n, 25000, NULL),
               without = weir_cost_plan_seconds(&top, two, &between, n, 25000, NULL);
  cr_assert_float_eq(with - without, 3e-3 + 0.75e-3 + 2e-3 + lists, 1e-9);
}

/* What a plan comes to, by name. */
static void choose(const char *plan, weir_group_shape shape, const weir_link *link, size_t elements,
                   const char *expected) {
  const weir_plan asked = planned(plan);
  const weir_plan chosen =
      weir_select_plan(&asked, shape, link, elements, weir_cost_kept(&asked, elements));
  char name[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_collective(&chosen, name);
  cr_assert_str_eq(name, expected, "%s of %zu: %s", plan, elements, name);
  cr_assert(chosen.codec == asked.codec && chosen.cr == asked.cr && chosen.wire == asked.wire);
  cr_assert_eq(weir_plan_check(&chosen), WEIR_OK);
}

/* 4 ranks, 10 ms and 8 ns a byte: of 100 bytes one latency is the least, of 2 MB two exchanges of
 * everything, 20 + 32 ms against halving's 40 + 24, of 100 MB halving, 1.5 of it.  8 ranks, lists
 * of 1e6 indices: the binomial broadcast takes 3 (10 + 32) ms, the chain 70 + 32 and a tenth;
 * halving of 4 MB 60 + 56, fewer latencies than the ring and fewer bytes than doubling.  100 of 1e5
 * elements take one latency for the list and one for the values.  On 2 machines 1 MB takes 28 ms
 * between them, by ring and halving alike, and inside of them by the former's usual, rings, 6 + 1.5
 * ms, by the latter's, pairwise and doubling, 3 + 2 + 1.5; were that no time, the first.  An
 * all-gather has the fewest latencies where every block goes straight to everybody, but with
 * machines one rank at a time uses the link by a ring. */
Test(selector, plans_that_leave_the_algorithm_open_by_hand) {
  const weir_group_shape four = {4, 4, false, 0, 0}, eight = {8, 8, false, 0, 0},
                         two = {8, 2, false, 0, 0};
  const weir_link unknown = {0};
  choose("none:1:dense", four, &plain, 25, "dense-direct");
  choose("none:1:dense", four, &plain, 500000, "dense-doubling");
  choose("none:1:dense", four, &plain, 25000000, "dense-halving");
  choose("none:1:dense-star", four, &plain, 25000000, "dense-star");
  choose("none:1:dense", four, &unknown, 25000000, "dense");
  choose("none:1:dense", (weir_group_shape){1, 1, false, 0, 0}, &plain, 25, "dense");
  choose("star:0.1:art", eight, &plain, 10000000, "art-halving+chain");
  choose("star:0.1:art-ring", eight, &plain, 10000000, "art-ring");
  choose("star:0.001:art", four, &plain, 100000, "art-direct+direct");
  weir_link between = plain;
  between.inner_alpha = between.inner_beta = 0;
  choose("none:1:dense", two, &plain, 250000, "dense-hier-halving");
  choose("none:1:dense", two, &between, 250000, "dense-hier-ring");
  choose("topk:0.1:ag", eight, &plain, 100000, "ag-direct");
  choose("topk:0.1:ag", two, &plain, 1000000, "ag-ring");
  choose("qsgd:0.125:compressed", eight, &plain, 100000, "compressed");
  choose("qsgd:0.125:compressed", two, &plain, 100000, "hier-sra");
}

/* A link of 1 ms and 1 ns a byte, and 1 ns more for a byte that a processor adds up; of NCCL's sums
 * devices add up.  4 ranks, 1 MB: NCCL's tree takes 4 + 2 ms and its ring 6 + 1.5, while halving
 * takes 4 + 1.5 and 3 for sums, and exchanges of everything, 1 + 3 and 2 + 2, 12 and 8.  Of 100 MB
 * the ring takes 6 + 150 ms, the tree 4 + 200, halving 4 + 150 and 300 for sums.  100 bytes have no
 * other best than one hop.  A bitmap of 2.5e6 or 5e6 elements goes straight to 3 others in 1 + 0.94
 * or 1 + 1.88 ms, by the binomial tree in 2.6 or 3.3. */
Test(selector, nccls_ring_and_tree_by_hand) {
  const weir_group_shape told = {4, 4, true, 0, 0}, not_told = {4, 4, false, 0, 0};
  const weir_link link = {.alpha = 1e-3, .beta = 1e-9, .sum_s = 1e-9, .sums_s = 1e-9};
  choose("none:1:dense", told, &link, 25, "dense-direct");
  choose("none:1:dense", told, &link, 250000, "native-tree");
  choose("none:1:dense", told, &link, 25000000, "native-ring");
  choose("none:1:dense", not_told, &link, 250000, "dense-halving");
  choose("none:1:dense-halving", told, &link, 250000, "dense-halving");
  choose("bf16:1:dense", told, &link, 500000, "dense-halving");
  choose("star:0.1:art:auto-fp32", told, &link, 2500000, "art-native-tree+direct");
  choose("star:0.1:art:auto-bf16", told, &link, 5000000, "art-halving+direct");
}

/* 8 ranks on 2 machines: of 1 MB each machine sends one to the other, by ring and by tree twice as
 * much, over links that no rank shares; on a single machine 8 ranks have 14 hops or 6.  No
 * processor adds anything. */
Test(selector, nccls_ring_and_tree_in_seconds) {
  weir_link busy = plain;
  busy.message_s = busy.byte_s = busy.sum_s = busy.sums_s = 1;
  const uint32_t ring = WEIR_ALLREDUCE_NATIVE_RING, tree = WEIR_ALLREDUCE_NATIVE_TREE;
  const weir_kind kind = WEIR_KIND_ALLREDUCE;
  cr_assert_float_eq(price(kind, ring, 8, 2, &busy, 1e6), 0.02 + 0.008, 1e-12);
  cr_assert_float_eq(price(kind, tree, 8, 2, &busy, 1e6), 0.02 + 0.016, 1e-12);
  cr_assert_float_eq(price(kind, ring, 8, 1, &busy, 1e6), 0.014 + 1.75e-3, 1e-12);
  cr_assert_float_eq(price(kind, tree, 8, 1, &busy, 1e6), 0.006 + 2e-3, 1e-12);
  cr_assert_float_eq(price(kind, ring, 8, 8, &busy, 1e6), 0.14 + 0.014, 1e-12);
  cr_assert_float_eq(price(kind, tree, 8, 8, &busy, 1e6), 0.06 + 0.016, 1e-12);
}
