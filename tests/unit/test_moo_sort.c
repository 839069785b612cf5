/* Fronts, crowding, hypervolumes and knees, by hand and against their definitions. */
#include <criterion/criterion.h>
#include <math.h>

#include "moo/hypervolume.h"
#include "moo/knee.h"
#include "moo/operators.h"
#include "moo/sort.h"

/* The definition itself: front 0 is what nothing dominates; take it away, repeat. */
static void brute_ranks(const double *f, const double *v, size_t n, size_t m, size_t *rank) {
  for (size_t i = 0; i < n; i++) rank[i] = (size_t)-1;
  for (size_t done = 0, front = 0; done < n; front++) {
    size_t mark[64], marked = 0;
    for (size_t i = 0; i < n; i++) {
      if (rank[i] != (size_t)-1) continue;
      int beaten = 0;
      for (size_t j = 0; j < n; j++) {
        if (rank[j] != (size_t)-1 || i == j) continue;
        if (v[i] > 0.0 || v[j] > 0.0)
          beaten |= v[j] < v[i];
        else
          beaten |= weir_moo_dominates(f + j * m, f + i * m, m);
      }
      if (!beaten) mark[marked++] = i;
    }
    for (size_t i = 0; i < marked; i++) rank[mark[i]] = front;
    done += marked;
  }
}

Test(moo_sort, agrees_with_the_definition) {
  weir_moo_rng rng;
  weir_moo_seed(&rng, 7);
  weir_moo_sorter sorter;
  cr_assert(weir_moo_sorter_create(&sorter, 60));
  for (int round = 0; round < 400; round++) {
    const size_t m = 1 + (size_t)round % 4, n = weir_moo_below(&rng, 60) + 1;
    double f[240], v[60];
    size_t rank[60], expected[60];
    /* Few distinct values, so that ties and equal points are common. */
    for (size_t i = 0; i < n * m; i++) f[i] = (double)weir_moo_below(&rng, 3 + (uint64_t)round % 9);
    for (size_t i = 0; i < n; i++) v[i] = round % 2 ? (double)weir_moo_below(&rng, 3) : 0.0;
    brute_ranks(f, v, n, m, expected);
    size_t highest = 0;
    for (size_t i = 0; i < n; i++) highest = expected[i] > highest ? expected[i] : highest;
    cr_assert_eq(weir_moo_sort(&sorter, f, v, n, m, rank), highest + 1);
    for (size_t i = 0; i < n; i++)
      cr_assert_eq(rank[i], expected[i], "round %d point %zu: %zu, not %zu", round, i, rank[i],
                   expected[i]);
  }
  weir_moo_sorter_free(&sorter);
}

Test(moo_sort, crowding_by_hand) {
  /* Widths 4 and 8.  Point 1: (2-0)/4 + (8-2)/8 = 1.25; point 2: (4-1)/4 + (4-0)/8 = 1.25. */
  const double f[] = {0, 8, 1, 4, 2, 2, 4, 0};
  const size_t member[] = {2, 0, 3, 1};
  double d[4];
  weir_moo_sorter sorter;
  cr_assert(weir_moo_sorter_create(&sorter, 4));
  weir_moo_crowding(&sorter, f, member, 4, 2, d);
  cr_assert_float_eq(d[0], 1.25, 1e-12);
  cr_assert(isinf(d[1]) && isinf(d[2]));
  cr_assert_float_eq(d[3], 1.25, 1e-12);
  weir_moo_sorter_free(&sorter);
}

Test(moo_hypervolume, by_hand) {
  const double two[] = {1, 3, 2, 2, 3, 1, 2, 3, 5, 0}; /* (2,3) is dominated, (5,0) outside */
  const double reference[] = {4, 4};
  cr_assert_float_eq(weir_moo_hypervolume(two, 5, 2, reference), 6.0, 1e-12); /* 3 + 2 + 1 */
  const double cubes[] = {0, 1, 1, 1, 0, 1, 1, 1, 0};
  const double corner[] = {2, 2, 2};
  /* Three 2x1x1 bars that share the unit cube [1,2]^3: 3*2 - 2 = 4. */
  cr_assert_float_eq(weir_moo_hypervolume(cubes, 3, 3, corner), 4.0, 1e-12);
  cr_assert_eq(weir_moo_hypervolume(two, 0, 2, reference), 0.0);
  cr_assert(isnan(weir_moo_hypervolume(two, 1, 4, reference)));
}

Test(moo_hypervolume, agrees_with_counting_cells) {
  weir_moo_rng rng;
  weir_moo_seed(&rng, 3);
  for (int round = 0; round < 100; round++) {
    const size_t m = 2 + (size_t)round % 2, n = weir_moo_below(&rng, 12);
    double f[36], cells = 0;
    const double reference[] = {8, 8, 8};
    for (size_t i = 0; i < n * m; i++) f[i] = (double)weir_moo_below(&rng, 9);
    for (int x = 0; x < 8; x++)
      for (int y = 0; y < 8; y++)
        for (int z = 0; z < (m == 3 ? 8 : 1); z++) {
          int in = 0;
          for (size_t i = 0; i < n; i++)
            in |= f[i * m] <= x && f[i * m + 1] <= y && (m == 2 || f[i * m + 2] <= z);
          cells += in;
        }
    cr_assert_float_eq(weir_moo_hypervolume(f, n, m, reference), cells, 1e-9);
  }
}

Test(moo_knee, by_hand) {
  const double bend[] = {0, 10, 1, 2, 5, 1, 10, 0}; /* scaled sums 1, .3, .6, 1 */
  cr_assert_eq(weir_moo_knee(bend, 4, 2), 1);
  const double one[] = {3, 4};
  cr_assert_eq(weir_moo_knee(one, 1, 2), 0);
  const double ends[] = {0, 1, 1, 0};
  cr_assert_eq(weir_moo_knee(ends, 2, 2), 0); /* distances and sums tie: the lower index */
  const double far_side[] = {0, 4, 2, 3, 3, 0.5, 4, 0}; /* (2,3) lies beyond the line: no knee */
  cr_assert_eq(weir_moo_knee(far_side, 4, 2), 2);
  const double flat[] = {5, 0, 5, 0, 5, 0};
  cr_assert_eq(weir_moo_knee(flat, 3, 2), 0);
}

Test(moo_knee, line_through_two_extremes_of_three_objectives) {
  /* Objectives 0 and 1 rise together: the hull is the line from (1,1,0) to (0,0,1).  (.2,.2,.1) is
   * farther from it than (.4,.4,.3), and both are on the ideal side. */
  const double f[] = {1, 1, 0, 0.4, 0.4, 0.3, 0.2, 0.2, 0.1, 0, 0, 1};
  cr_assert_eq(weir_moo_knee(f, 4, 3), 2);
  const double plane[] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0.3, 0.3, 0.3, 0.1, 0.2, 0.1};
  cr_assert_eq(weir_moo_knee(plane, 5, 3), 4);
}
