/* NSGA-II: how near to known fronts it comes, its bits, and what it refuses. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "moo/hypervolume.h"
#include "moo/nsga2.h"
#include "moo/problems.h"

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
