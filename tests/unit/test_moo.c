/* NSGA-II: how near to known fronts it comes, its bits, and what it refuses. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "moo/hypervolume.h"
#include "moo/knee.h"
#include "moo/nsga2.h"
#include "moo/operators.h"
#include "moo/problems.h"
#include "moo/sort.h"

Test(moo_nsga2, reaches_the_known_fronts) {
  for (size_t b = 0; b < WEIR_MOO_BENCHMARKS; b++) {
    const weir_moo_benchmark *bench = &weir_moo_benchmarks[b];
    double volume[11];
    for (uint64_t seed = 1; seed <= 11; seed++) {
      weir_moo_options options;
      weir_moo_options_init(&options);
      options.seed = seed;
      weir_moo_front front;
      cr_assert_eq(weir_moo_nsga2(&bench->problem, &options, &front), WEIR_MOO_OK);
      volume[seed - 1] =
          weir_moo_hypervolume(front.f, front.count, bench->problem.objectives, bench->reference);
      weir_moo_front_free(&front);
    }
    weir_sort(volume, 11);
    cr_assert_geq(volume[5], bench->wanted, "%s: %.4f < %.4f", bench->name, volume[5],
                  bench->wanted);
  }
}

/* f0 = x, f1 = 1 - x + penalty of the category; category 2 of 4 is the only one without. */
static double mixed(void *user, const double *x, const uint32_t *category, double *f) {
  (*(size_t *)user)++;
  f[0] = x[0];
  f[1] = 1.0 - x[0] + (category[0] == 2 ? 0.0 : 1.0) + (category[1] == 0 ? 0.5 : 0.0);
  return x[0] < 0.25 ? 0.25 - x[0] : 0.0; /* feasible from 0.25 on */
}

static const double low[] = {0}, high[] = {1};
static const uint32_t values[] = {4, 3};

Test(moo_nsga2, mixed_variables_and_constraints) {
  size_t calls = 0;
  const weir_moo_problem problem = {1, low, high, 2, values, 2, &calls, mixed};
  weir_moo_options options;
  weir_moo_options_init(&options);
  options.population = 40;
  options.generations = 40;
  weir_moo_front front;
  cr_assert_eq(weir_moo_nsga2(&problem, &options, &front), WEIR_MOO_OK);
  cr_assert_eq(calls, 40u + 40u * 40u);
  cr_assert_gt(front.count, 20u);
  double least = 1.0;
  for (size_t i = 0; i < front.count; i++) {
    cr_assert_geq(front.x[i], 0.25);
    cr_assert_eq(front.category[2 * i], 2u);
    cr_assert_neq(front.category[2 * i + 1], 0u);
    cr_assert_float_eq(front.f[2 * i + 1], 1.0 - front.x[i], 1e-12);
    least = fmin(least, front.x[i]);
  }
  cr_assert_lt(least, 0.27);
  weir_moo_front_free(&front);
}

Test(moo_nsga2, same_seed_same_front_other_seed_other_front) {
  weir_moo_options options;
  weir_moo_options_init(&options);
  options.population = 20;
  options.generations = 15;
  weir_moo_front a, b, c;
  const weir_moo_problem *problem = &weir_moo_benchmarks[0].problem;
  cr_assert_eq(weir_moo_nsga2(problem, &options, &a), WEIR_MOO_OK);
  cr_assert_eq(weir_moo_nsga2(problem, &options, &b), WEIR_MOO_OK);
  options.seed = 2;
  cr_assert_eq(weir_moo_nsga2(problem, &options, &c), WEIR_MOO_OK);
  cr_assert_eq(a.count, b.count);
  cr_assert_eq(memcmp(a.x, b.x, a.count * 30 * sizeof *a.x), 0);
  cr_assert(a.count != c.count || memcmp(a.x, c.x, a.count * 30 * sizeof *a.x) != 0);
  weir_moo_front_free(&a);
  weir_moo_front_free(&b);
  weir_moo_front_free(&c);
}

static double hopeless(void *user, const double *x, const uint32_t *category, double *f) {
  (void)user, (void)category;
  f[0] = x[0];
  f[1] = NAN;
  return 0.0;
}

Test(moo_nsga2, nothing_feasible_and_bad_arguments) {
  const weir_moo_problem problem = {1, low, high, 0, NULL, 2, NULL, hopeless};
  weir_moo_options options;
  weir_moo_options_init(&options);
  options.generations = 3;
  weir_moo_front front;
  cr_assert_eq(weir_moo_nsga2(&problem, &options, &front), WEIR_MOO_OK);
  cr_assert_eq(front.count, 0u);
  weir_moo_front_free(&front);
  weir_moo_options bad[] = {options, options, options, options};
  bad[0].population = 5;
  bad[1].population = 0;
  bad[2].crossover = 1.5;
  bad[3].mutation = NAN;
  for (size_t i = 0; i < 4; i++)
    cr_assert_eq(weir_moo_nsga2(&problem, &bad[i], &front), WEIR_MOO_INVALID);
  const double inverted[] = {-1};
  const weir_moo_problem wrong[] = {{1, low, inverted, 0, NULL, 2, NULL, hopeless},
                                    {0, low, high, 0, NULL, 2, NULL, hopeless},
                                    {1, low, high, 0, NULL, 9, NULL, hopeless},
                                    {1, low, high, 0, NULL, 2, NULL, NULL}};
  for (size_t i = 0; i < 4; i++)
    cr_assert_eq(weir_moo_nsga2(&wrong[i], &options, &front), WEIR_MOO_INVALID);
}

/* Defined for x in (0.4, 0.6) only: f = (x, 1 - x).  Elsewhere something is no number, or not
 * finite, in ways that depend on x; `user` asks for the violation that this is to count as, in so
 * many words. */
static double partly(void *user, const double *x, const uint32_t *category, double *f) {
  (void)category;
  const bool in_words = user != NULL;
  static const double odd[][2] = {{NAN, 1}, {INFINITY, -1}, {-INFINITY, NAN}, {0, -INFINITY}};
  f[0] = x[0];
  f[1] = 1.0 - x[0];
  if (x[0] > 0.4 && x[0] < 0.6) return 0.0;
  f[0] = in_words ? 0.0 : odd[(size_t)(x[0] * 64.0) % 4][0];
  f[1] = in_words ? 0.0 : odd[(size_t)(x[0] * 64.0) % 4][1];
  return in_words ? INFINITY : 0.0;
}

Test(moo_nsga2, what_is_not_finite_counts_as_an_infinite_violation_and_no_more) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    weir_moo_problem problem = {1, low, high, 0, NULL, 2, NULL, partly};
    weir_moo_options options;
    weir_moo_options_init(&options);
    options.population = 8;
    options.generations = 6;
    options.seed = seed;
    weir_moo_front odd, plain;
    cr_assert_eq(weir_moo_nsga2(&problem, &options, &odd), WEIR_MOO_OK);
    problem.user = &problem;
    cr_assert_eq(weir_moo_nsga2(&problem, &options, &plain), WEIR_MOO_OK);
    for (size_t i = 0; i < odd.count; i++) cr_assert(odd.x[i] > 0.4 && odd.x[i] < 0.6);
    cr_assert_eq(odd.count, plain.count, "seed %llu", (unsigned long long)seed);
    cr_assert_arr_eq(odd.x, plain.x, odd.count * sizeof *odd.x);
    weir_moo_front_free(&odd);
    weir_moo_front_free(&plain);
  }
}

/* Fronts, crowding, hypervolumes and knees, by hand and against their definitions. */

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

/* The widths, twice the largest double, overflow; the distances are those of -1, 0 and 1. */
Test(moo_sort, crowding_of_the_largest_doubles) {
  const double f[] = {-DBL_MAX, DBL_MAX, 0, 0, DBL_MAX, -DBL_MAX};
  const size_t member[] = {0, 1, 2};
  double d[3];
  weir_moo_sorter sorter;
  cr_assert(weir_moo_sorter_create(&sorter, 3));
  weir_moo_crowding(&sorter, f, member, 3, 2, d);
  cr_assert(isinf(d[0]) && isinf(d[2]));
  cr_assert_float_eq(d[1], 2.0, 1e-12);
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
  /* The plane is x + y - 1.6 z = -0.44: the ideal point, 0, is where that is more, which straight
   * off the plane is towards a larger sum.  (.1,.9,.95) is beyond it by 0.08, (.6,.1,.2) on this
   * side by 0.82 and (.95,.05,0) by 1.44. */
  const double tilted[] = {1,  0,  0.9, 0,   1,   0.9,  0.58, 0.58, 1,
                           .6, .1, .2,  0.1, 0.9, 0.95, 0.95, 0.05, 0};
  cr_assert_eq(weir_moo_knee(tilted, 6, 3), 5);
}
