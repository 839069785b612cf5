/* What waiting for slow messages adds to rows, against runs of the recurrence itself. */
#include <criterion/criterion.h>
#include <math.h>

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "controller/decide.h"

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
  const weir_group_shape shape = {4, 4, false};
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
