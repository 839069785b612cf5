/* Bit widths: statistics and filters, the knapsack against brute force, the published rankings. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "plan_files.h"
#include "planner/bits.h"

#define HEADER "layer,numel,norm,bits,bucket,bytes,error\n"
enum { LAYERS = 400, WIDTHS = 7, BUCKETS = 2 };

static weir_bits_layer layers[LAYERS];
static weir_bits_option options[LAYERS * WIDTHS * BUCKETS];

/* The C standard's, from which equal elements may come in any order: here the one with the larger
 * first bytes first, whichever order they went in. */
void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *)) {
  unsigned char *const all = base, held[64];
  cr_assert_leq(size, sizeof held);
  for (size_t i = 1; i < count; i++) {
    size_t to = i;
    memcpy(held, all + i * size, size);
    for (; to > 0; to--) {
      const int order = compare(all + (to - 1) * size, held);
      if (order < 0 || (order == 0 && memcmp(all + (to - 1) * size, held, size) >= 0)) break;
      memcpy(all + to * size, all + (to - 1) * size, size);
    }
    memcpy(all + to * size, held, size);
  }
}

/* Sizes over four orders of magnitude; bytes and errors as of a grid of 2^bits values a bucket. */
static weir_bits_stats random_stats(weir_rng *rng, size_t count, unsigned most_bits) {
  weir_bits_stats s = {count, 0, layers, options, 128};
  for (size_t l = 0; l < count; l++) {
    const double n = floor(exp(5.0 + 9.0 * weir_rng_uniform(rng)));
    const double norm = exp(weir_rng_normal(rng)) * pow(n, 0.25);
    layers[l] = (weir_bits_layer){.numel = n, .norm = norm, .first = s.option_count};
    for (unsigned bits = 2; bits <= most_bits; bits++)
      for (unsigned k = 0; k < BUCKETS; k++, layers[l].count++) {
        const double bucket = k ? 1024.0 : 128.0;
        const double step = norm * (k ? 7.0 : 5.4) / ((double)(1u << bits) - 1.0);
        options[s.option_count++] =
            (weir_bits_option){bits, (uint32_t)bucket, ceil(n * bits / 8) + 4 * ceil(n / bucket),
                               step * step / 6.0 * (1.0 + 0.1 * weir_rng_uniform(rng))};
      }
  }
  return s;
}

/* Every assignment, layer by layer. */
static double brute_force(const weir_bits_stats *s, size_t layer, double bytes, double error2,
                          double budget) {
  if (layer == s->layer_count) return error2 <= budget ? bytes : INFINITY;
  double best = INFINITY;
  const weir_bits_layer *l = &s->layers[layer];
  for (size_t i = l->first; i < l->first + l->count; i++)
    best = fmin(best, brute_force(s, layer + 1, bytes + s->options[i].bytes,
                                  error2 + s->options[i].error2, budget));
  return best;
}

static void check(const weir_bits_stats *s, const weir_bits *bits, double most_error) {
  double bytes = 0.0, error2 = 0.0;
  for (size_t l = 0; l < s->layer_count; l++) {
    cr_assert(bits->choice[l] >= s->layers[l].first &&
              bits->choice[l] < s->layers[l].first + s->layers[l].count);
    bytes += s->options[bits->choice[l]].bytes;
    error2 += s->options[bits->choice[l]].error2;
  }
  cr_assert_eq(bits->bytes, bytes);
  cr_assert_float_eq(bits->error, sqrt(error2), 1e-12 * bits->error);
  cr_assert_leq(bits->error, most_error * (1.0 + 1e-12));
}

Test(planner_bits, knapsack_equals_brute_force) {
  weir_rng rng = weir_rng_of(1);
  for (size_t instance = 0; instance < 1500; instance++) {
    const size_t count = 1 + (size_t)weir_rng_below(&rng, 6);
    const weir_bits_stats s = random_stats(&rng, count, 4);
    const double alpha = 1.0 + 2.0 * weir_rng_uniform(&rng);
    weir_bits uniform, best;
    cr_assert_eq(weir_bits_uniform(&s, &uniform), WEIR_OK);
    const double most = alpha * uniform.error;
    cr_assert_eq(weir_bits_knapsack(&s, most, 4096, NULL, &best), WEIR_OK);
    check(&s, &best, most);
    cr_assert_eq(best.bytes, brute_force(&s, 0, 0.0, 0.0, most * most), "instance %zu", instance);
    cr_assert_eq(best.least_bytes, best.bytes);
    weir_bits_drop(&best);
    /* Few states: what is proven must hold all the same. */
    cr_assert_eq(weir_bits_knapsack(&s, most, 2, &uniform, &best), WEIR_OK);
    check(&s, &best, most);
    const double wanted = brute_force(&s, 0, 0.0, 0.0, most * most);
    cr_assert(best.least_bytes <= wanted && wanted <= best.bytes && best.bytes <= uniform.bytes);
    weir_bits_drop(&best);
    weir_bits_drop(&uniform);
  }
}

/* Within one budget, alpha * E_4 with alpha >= 1, and within KMEANS's own measured error. */
Test(planner_bits, knapsack_at_most_kmeans_at_most_uniform) {
  weir_rng rng = weir_rng_of(2);
  size_t strictly = 0, better = 0;
  for (size_t instance = 0; instance < 12; instance++) {
    const weir_bits_stats s = random_stats(&rng, LAYERS, 8);
    weir_bits uniform, kmeans, linear, bayes, best, equal;
    cr_assert_eq(weir_bits_uniform(&s, &uniform), WEIR_OK);
    const double most = uniform.error * (1.0 + (double)(instance % 3));
    cr_assert_eq(weir_bits_kmeans(&s, most, &kmeans), WEIR_OK);
    cr_assert_eq(weir_bits_linear(&s, most, &linear), WEIR_OK);
    cr_assert_eq(weir_bits_bayes(&s, most, &bayes), WEIR_OK);
    check(&s, &bayes, most);
    cr_assert_leq(bayes.bytes, uniform.bytes);
    cr_assert_eq(weir_bits_knapsack(&s, most, 0, &kmeans, &best), WEIR_OK);
    cr_assert_eq(weir_bits_knapsack(&s, kmeans.error, 0, &kmeans, &equal), WEIR_OK);
    check(&s, &kmeans, most);
    check(&s, &linear, most);
    check(&s, &best, most);
    check(&s, &equal, kmeans.error);
    cr_assert_leq(best.bytes, kmeans.bytes);
    cr_assert_leq(equal.bytes, kmeans.bytes);
    cr_assert_leq(kmeans.bytes, uniform.bytes);
    cr_assert_leq(linear.bytes, uniform.bytes);
    cr_assert_leq(best.bytes - best.least_bytes, 1e-3 * best.bytes);
    strictly += best.bytes < kmeans.bytes && kmeans.bytes < uniform.bytes;
    better += bayes.bytes < uniform.bytes;
    weir_bits *all[] = {&uniform, &kmeans, &linear, &bayes, &best, &equal};
    for (size_t i = 0; i < 6; i++) weir_bits_drop(all[i]);
  }
  cr_assert_gt(strictly, 0u);
  cr_assert_geq(better, 9u);
}

static weir_status load(weir_bits_stats *s, const char *text, const char *patterns, char path[64]) {
  write_plan_file(path, text, strlen(text));
  const weir_status status = weir_bits_load(s, path, patterns, 128);
  unlink(path);
  return status;
}

/* Which of several equal layers get few bits is by their order: all machines choose alike.  By norm
 * / size two are the same.  By size and norm, scaled, `low` (0, 0) and `high` (1, 1) are as
 * sensitive as each other, and the last one of the order begins a cluster of its own: the third is
 * as far from either. */
Test(planner_bits, equal_layers_go_by_their_order) {
  static const char two[] = HEADER
      "a,1000,2,2,128,250,3\na,1000,2,4,128,500,1\n"
      "b,1000,2,2,128,250,3\nb,1000,2,4,128,500,1\n";
  static const char three[] = HEADER
      "low,1000,2,2,128,250,3\nlow,1000,2,4,128,500,1\n"
      "high,2000,4,2,128,250,3\nhigh,2000,4,4,128,500,1\n"
      "wide,2000,2,2,128,250,3\nwide,2000,2,4,128,500,1\n";
  static const unsigned few[] = {2, 4, 2};
  weir_bits_stats s;
  weir_bits bits;
  char path[64];
  for (size_t i = 0; i < 2; i++) {
    cr_assert_eq(load(&s, i == 0 ? two : three, "", path), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq((i == 0 ? weir_bits_linear(&s, sqrt(9 + 1) + 1e-9, &bits)
                         : weir_bits_kmeans(&s, sqrt(9 + 1 + 9) + 1e-9, &bits)),
                 WEIR_OK, "%s", weir_last_error());
    for (size_t l = 0; l < s.layer_count; l++)
      cr_assert_eq(s.options[bits.choice[l]].bits, few[l], "layer %zu of %zu", l, s.layer_count);
    weir_bits_drop(&bits);
    weir_bits_free(&s);
  }
}

/* Four layers by hand.  Large and of little norm: few bits; small and of much norm: many. */
static const char by_hand[] = HEADER
    "huge,8000,1,2,128,2000,3\nhuge,8000,1,4,128,4000,1\n"
    "huge2,7900,1.5,2,128,1975,3\nhuge2,7900,1.5,4,128,3950,1\n"
    "tiny,80,9,2,128,20,8\ntiny,80,9,4,128,40,2\n"
    "block.LayerNorm.weight,100,5,4,128,50,9\nblock.LayerNorm.weight,100,5,2,128,25,99\n";

Test(planner_bits, a_case_by_hand) {
  weir_bits_stats s;
  char path[64];
  cr_assert_eq(load(&s, by_hand, "bias,bn,norm", path), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(s.layer_count, 4u);
  cr_assert(s.layers[3].full);
  weir_bits uniform, kmeans, linear, best, tight;
  cr_assert_eq(weir_bits_uniform(&s, &uniform), WEIR_OK);
  cr_assert_eq(uniform.bytes, 4000 + 3950 + 40 + 400); /* the norm layer: 4 bytes an element */
  cr_assert_float_eq(uniform.error, sqrt(1 + 1 + 4), 1e-12);
  /* Budget 24: both large ones at 2 bits make 9 + 9 + 4 = 22; tiny at 2 bits has 64 alone. */
  const double most = 2.0 * uniform.error;
  cr_assert_eq(weir_bits_knapsack(&s, most, 0, NULL, &best), WEIR_OK);
  cr_assert_eq(best.bytes, 2000 + 1975 + 40 + 400);
  cr_assert_eq(best.least_bytes, best.bytes);
  cr_assert_eq(weir_bits_kmeans(&s, most, &kmeans), WEIR_OK);
  cr_assert_eq(kmeans.bytes, best.bytes);
  /* norm / size ascending: huge, huge2, tiny; two widths of three layers: 0, 0, 1. */
  cr_assert_eq(weir_bits_linear(&s, most, &linear), WEIR_OK);
  cr_assert_eq(linear.bytes, best.bytes);
  /* Budget 14: one of the large ones; the larger saves 2000. */
  cr_assert_eq(weir_bits_knapsack(&s, sqrt(14.0), 0, NULL, &tight), WEIR_OK);
  cr_assert_eq(tight.bytes, 2000 + 3950 + 40 + 400);
  weir_bits *all[] = {&uniform, &kmeans, &linear, &best, &tight};
  for (size_t i = 0; i < 5; i++) weir_bits_drop(all[i]);
  weir_bits_free(&s);
}

/* The widths that a point of Bayes' space stands for, worked out again: nearest to the middle plus
 * slopes times standardized logarithms of size and norm.  INFINITY when the error is too large. */
static double bytes_at(const weir_bits_stats *s, const double x[3], double budget) {
  double mean[2] = {0}, square[2] = {0}, bytes = 0.0, error2 = 0.0;
  for (size_t l = 0; l < s->layer_count; l++) {
    const double logs[] = {log(s->layers[l].numel), log(s->layers[l].norm)};
    for (size_t k = 0; k < 2; k++) {
      mean[k] += logs[k] / (double)s->layer_count;
      square[k] += logs[k] * logs[k] / (double)s->layer_count;
    }
  }
  for (size_t l = 0; l < s->layer_count; l++) {
    const double logs[] = {log(s->layers[l].numel), log(s->layers[l].norm)};
    double width = 8.0 * x[0];
    for (size_t k = 0; k < 2; k++)
      width += (6.0 * x[k + 1] - 3.0) * (logs[k] - mean[k]) / sqrt(square[k] - mean[k] * mean[k]);
    const unsigned bits = (unsigned)fmin(fmax(round(width), 2.0), 8.0);
    const weir_bits_option *option = &s->options[s->layers[l].first + BUCKETS * (bits - 2)];
    bytes += option->bytes;
    error2 += option->error2;
  }
  return error2 <= budget ? bytes : INFINITY;
}

/* The least of 25 values in each of the three dimensions. */
static double all_points(const weir_bits_stats *s, double budget) {
  enum { STEPS = 25 };
  double best = INFINITY;
  for (size_t k = 0; k < STEPS * STEPS * STEPS; k++) {
    const double x[] = {(double)(k % STEPS) / (STEPS - 1),
                        (double)(k / STEPS % STEPS) / (STEPS - 1),
                        (double)(k / STEPS / STEPS) / (STEPS - 1)};
    best = fmin(best, bytes_at(s, x, budget));
  }
  return best;
}

/* 48 trials against 15625 points of the same space, and against all assignments of the reference
 * bucket, below which nothing can be: at most 12 % more, 2 % on average. */
Test(planner_bits, bayes_against_exhaustive_searches) {
  double of_space = 0.0, of_all = 0.0;
  weir_rng rng = weir_rng_of(34);
  for (size_t instance = 0; instance < 40; instance++) {
    weir_bits_stats s = random_stats(&rng, 3 + instance % 4, 8), reference = s;
    weir_bits uniform, bayes;
    cr_assert_eq(weir_bits_uniform(&s, &uniform), WEIR_OK);
    const double most = (1.0 + 0.5 * (double)(instance % 5)) * uniform.error;
    const double budget = most * most * (1.0 + 1e-12);
    cr_assert_eq(weir_bits_bayes(&s, most, &bayes), WEIR_OK);
    check(&s, &bayes, most);
    for (size_t i = 0; i < s.option_count; i++)
      if (options[i].bucket != s.bucket) options[i].error2 = INFINITY;
    const double least = brute_force(&reference, 0, 0.0, 0.0, budget);
    const double space = all_points(&s, budget);
    cr_assert_leq(least, bayes.bytes, "instance %zu", instance);
    cr_assert_leq(bayes.bytes, 1.12 * space, "instance %zu", instance);
    of_space += bayes.bytes / space / 40.0;
    of_all += bayes.bytes / least / 40.0;
    weir_bits_drop(&uniform);
    weir_bits_drop(&bayes);
  }
  cr_assert_leq(of_space, 1.02, "%g", of_space);
  cr_assert_leq(of_all, 1.02, "%g", of_all);
}

Test(planner_bits, unsatisfiable_errors_are_refused) {
  weir_bits_stats s;
  char path[64];
  weir_bits bits;
  cr_assert_eq(load(&s, by_hand, "norm", path), WEIR_OK);
  cr_assert_eq(weir_bits_knapsack(&s, 2.4, 0, NULL, &bits), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "least error of any assignment is 2.449"), "%s",
            weir_last_error());
  cr_assert_eq(weir_bits_knapsack(&s, NAN, 0, NULL, &bits), WEIR_E_INVALID);
  cr_assert_eq(weir_bits_kmeans(&s, 2.4, &bits), WEIR_E_INVALID);
  cr_assert_eq(weir_bits_linear(&s, 2.4, &bits), WEIR_E_INVALID);
  cr_assert_eq(weir_bits_bayes(&s, 2.4, &bits), WEIR_E_INVALID);
  weir_bits_free(&s);
}

Test(planner_bits, all_layers_in_full_precision) {
  weir_bits_stats s;
  char path[64];
  weir_bits bits;
  cr_assert_eq(load(&s, HEADER "a.bias,10,1,2,128,9,1\n", "bias", path), WEIR_OK);
  cr_assert_eq(weir_bits_kmeans(&s, 0.0, &bits), WEIR_OK);
  cr_assert_eq(bits.bytes, 40.0);
  weir_bits_drop(&bits);
  cr_assert_eq(weir_bits_bayes(&s, 0.0, &bits), WEIR_OK);
  cr_assert_eq(bits.bytes, 40.0);
  weir_bits_drop(&bits);
  cr_assert_eq(weir_bits_knapsack(&s, 0.0, 0, NULL, &bits), WEIR_OK);
  cr_assert_eq(bits.bytes, 40.0);
  weir_bits_drop(&bits);
  weir_bits_free(&s);
}

Test(planner_bits, every_bad_file_names_file_and_line) {
  static const struct {
    const char *text, *says;
  } bad[] = {
      {"layer,numel\n", ":1: "},
      {HEADER, ":2: no rows"},
      {HEADER "a,10,1,4,128,9,-1\n", ":2: "},
      {HEADER "a,10,nan,4,128,9,1\n", ":2: "},
      {HEADER "a,10,1,0,128,9,1\n", ":2: "},
      {HEADER "a,10,1,33,128,9,1\n", ":2: "},
      {HEADER "a,10,1,4,128,0,1\n", ":2: "},
      {HEADER "a,10,1,4,128,9.5,1\n", ":2: "},
      {HEADER ",10,1,4,128,9,1\n", ":2: no name"},
      {HEADER "a,10,1,4,128,9,1\na,11,1,2,128,9,1\n", ":3: layer 'a': expected numel and norm"},
      {HEADER "a,10,1,4,128,9,1\na,10,1,4,128,9,1\n", ":3: 4 bits and bucket 128 again"},
      {HEADER "a,10,1,4,128,9,1\nb,10,1,4,128,9,1\na,10,1,2,128,9,1\n", ":4: layer 'a' began"},
      {HEADER "a,10,1,4,128,9,1\nb,10,1,4,1024,9,1\n", ":3: layer 'b': expected a line of 4 bits"},
  };
  weir_bits_stats s;
  char path[64];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cr_assert_eq(load(&s, bad[i].text, "", path), WEIR_E_PARSE, "case %zu", i);
    cr_assert(!strncmp(weir_last_error(), path, strlen(path)));
    cr_assert(strstr(weir_last_error(), bad[i].says), "case %zu: %s", i, weir_last_error());
    cr_assert_eq(s.layer_count, 0u);
  }
}
