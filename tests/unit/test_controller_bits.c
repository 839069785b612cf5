/* Policy bits in parts: its options, what is kept whole, the measured errors against those that
 * follow from the grid, and the assignment against all there are. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/bits.h"

Test(bits, options) {
  weir_bits_options o;
  cr_assert_eq(weir_bits_parse("", &o), WEIR_OK);
  cr_assert_eq(o.method, WEIR_BITS_KNAPSACK);
  cr_assert_eq(o.alpha, 2.0);
  cr_assert_eq(o.period, 100);
  cr_assert_eq(weir_bits_parse(":kmeans", &o), WEIR_OK);
  cr_assert_eq(o.method, WEIR_BITS_KMEANS);
  cr_assert_eq(weir_bits_parse(":linear:1.5", &o), WEIR_OK);
  cr_assert_eq(o.method, WEIR_BITS_LINEAR);
  cr_assert_eq(o.alpha, 1.5);
  cr_assert_eq(weir_bits_parse(":bayes:1:7", &o), WEIR_OK);
  cr_assert_eq(o.method, WEIR_BITS_BAYES);
  cr_assert_eq(o.period, 7);
  cr_assert_eq(weir_bits_parse(":uniform:3:1", &o), WEIR_OK);
  cr_assert_eq(o.method, WEIR_BITS_UNIFORM);
  static const char *const bad[] = {":",
                                    ":k",
                                    ":knapsacks",
                                    ":KMEANS",
                                    "::2",
                                    ":kmeans:",
                                    ":kmeans:0.9",
                                    ":kmeans:nan",
                                    ":kmeans:inf",
                                    ":kmeans:2x",
                                    ":kmeans:2:",
                                    ":kmeans:2:0",
                                    ":kmeans:2:1.5",
                                    ":kmeans:2:5:1",
                                    ":kmeans:-1",
                                    ":kmeans:2:-5",
                                    ":kmeans:1e400"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_assert_eq(weir_bits_parse(bad[i], &o), WEIR_E_INVALID, "'%s' was taken", bad[i]);
}

Test(bits, what_is_kept_whole) {
  cr_assert(weir_bits_keeps("fc1.bias", 5000));
  cr_assert(weir_bits_keeps("layer2.BN1.weight", 5000));
  cr_assert(weir_bits_keeps("encoder.LayerNorm", 5000));
  cr_assert(weir_bits_keeps("h.3.ln_1.g", 5000));
  cr_assert(weir_bits_keeps("fc1.weight", 128));
  cr_assert(weir_bits_keeps("empty", 0));
  cr_assert_not(weir_bits_keeps("fc1.weight", 129));
  cr_assert_not(weir_bits_keeps(NULL, 129));
  cr_assert(weir_bits_keeps(NULL, 1));
}

/* 0, 1, 2, 3, 0, ... in every bucket. On the grids of 2, 4, 6 and 8 bits, of 3, 15, 63 and 255
 * steps, all of these lie; on that of 3 bits, of 7 steps of 3/7, 1 and 2 lie a third of a step from
 * a value, and rounding at random has the variance (3/7)^2 (1/3) (2/3) = 2/49: 1/49 an element of
 * all. */
Test(bits, errors_are_those_of_the_grid) {
  enum { N = 100000 };
  const size_t offset[] = {0, N};
  const weir_layout layout = {1, offset};
  float *e = malloc(N * sizeof *e);
  for (size_t i = 0; i < N; i++) e[i] = (float)(i % 4);
  weir_bits_sampler *watch;
  cr_assert_eq(weir_bits_sampler_create(&watch, &layout, NULL, 0, 1), WEIR_OK);
  cr_assert_not(weir_bits_ready(watch));
  for (int step = 0; step < 5; step++) weir_bits_fed(watch, 0, e, N);
  cr_assert(weir_bits_ready(watch));
  const weir_bits_stats *stats;
  uint64_t least;
  weir_bits_read(watch, &stats, &least);
  cr_assert_eq(least, 5);
  cr_assert_eq(stats->layer_count, 1);
  cr_assert_eq(stats->layers[0].count, 7);
  cr_assert_float_eq(stats->layers[0].norm, sqrt(3.5 * N), 1e-3);
  for (unsigned bits = 2; bits <= 8; bits++) {
    const weir_bits_option *option = &stats->options[bits - 2];
    cr_assert_eq(option->bits, bits);
    /* 16 bytes before all; a bucket of 128 has 8 bytes of scales; 32 elements are left over. */
    cr_assert_eq(option->bytes, 16.0 + 781 * (8 + 16.0 * bits) + 8 + 4.0 * bits);
    if (bits % 2 == 0) cr_assert_lt(option->error2, 1e-9 * N, "%u bits: %g", bits, option->error2);
  }
  cr_assert_float_eq(stats->options[1].error2, N / 49.0, 0.03 * N / 49.0, "%g, not %g",
                     stats->options[1].error2, N / 49.0);
  cr_assert_not(weir_bits_ready(watch)); /* a new window */
  weir_bits_sampler_free(watch);
  free(e);
}

/* On a ramp of `bucket` whole numbers from 0 on, element i lies at i s / (bucket - 1) on a grid of
 * s steps: by the remainder of whole numbers, f (1 - f) in units of a step. */
static double error_of_ramp(uint64_t bucket, unsigned bits) {
  const uint64_t steps = (UINT64_C(1) << bits) - 1, last = bucket - 1;
  double sum = 0;
  for (uint64_t i = 0; i < bucket; i++) {
    const double f = (double)(i * steps % last) / (double)last;
    sum += f * (1 - f);
  }
  return sum * (double)(last * last) / (double)(steps * steps);
}

/* All sizes, of a whole tensor and of runs of 8192 of a longer one, of which each step sees
 * others. */
Test(bits, buckets_of_all_sizes_are_measured) {
  enum { SHORT = 16384, LONG = 64 * 1024, N = SHORT + LONG };
  static const uint32_t sizes[] = {128, 1024, 64, 256, 512, 2048, 4096, 8192};
  const size_t offset[] = {0, SHORT, N};
  const weir_layout layout = {2, offset};
  float *e = malloc(N * sizeof *e);
  for (size_t i = 0; i < N; i++) e[i] = (float)i;
  weir_bits_sampler *watch;
  cr_assert_eq(weir_bits_sampler_create(&watch, &layout, NULL, 0, 8), WEIR_OK);
  for (int step = 0; step < 6; step++)
    for (size_t t = 0; t < 2; t++)
      weir_bits_fed(watch, t, e + offset[t], offset[t + 1] - offset[t]);
  const weir_bits_stats *stats;
  uint64_t least;
  weir_bits_read(watch, &stats, &least);
  for (size_t t = 0; t < 2; t++) {
    const weir_bits_layer *layer = &stats->layers[t];
    cr_assert_eq(layer->count, 56);
    for (unsigned i = 0; i < 56; i++) {
      const weir_bits_option *o = &stats->options[layer->first + i];
      cr_assert(o->bits == 2 + i % 7 && o->bucket == sizes[i / 7]);
      cr_assert_eq(o->bytes, 16 + layer->numel * (8.0 / o->bucket + o->bits / 8.0));
      const double due = layer->numel / o->bucket * error_of_ramp(o->bucket, o->bits);
      cr_assert_float_eq(o->error2, due, 0.01 * due + 1e-4 * layer->numel,
                         "tensor %zu, %u bits in %u: %g, not %g", t, o->bits, o->bucket, o->error2,
                         due);
    }
  }
  weir_bits_sampler_free(watch);
  free(e);
}

/* What holds NaN or Inf is not counted: its tensor is measured the next time. */
Test(bits, samples_that_are_no_numbers_are_left_out) {
  enum { N = 1000 };
  const size_t offset[] = {0, N};
  const weir_layout layout = {1, offset};
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  float *e = calloc(N, sizeof *e);
  weir_bits_sampler *watch;
  cr_assert_eq(weir_bits_sampler_create(&watch, &layout, NULL, 0, 8), WEIR_OK);
  for (size_t i = 0; i < 3; i++) {
    e[7] = bad[i];
    weir_bits_fed(watch, 0, e, N);
    cr_assert_not(weir_bits_ready(watch));
  }
  e[7] = 2;
  weir_bits_fed(watch, 0, e, N);
  cr_assert(weir_bits_ready(watch));
  const weir_bits_stats *stats;
  uint64_t least;
  weir_bits_read(watch, &stats, &least);
  cr_assert_eq(least, 1);
  cr_assert_float_eq(stats->layers[0].norm, 2, 1e-9);
  weir_bits_sampler_free(watch);
  free(e);
}

/* A tensor that costs a whole step's share is measured alone, small ones together. */
Test(bits, one_after_the_other_is_measured) {
  enum { TENSORS = 6, N = 40000 + 50 + 3000 + 4000 + 500 + 5000 };
  static const char *const names[TENSORS] = {"a.bias", "a", "tiny", "b", "c", "d"};
  const size_t offset[TENSORS + 1] = {0, 500, 40500, 40550, 43550, 47550, N};
  const weir_layout layout = {TENSORS, offset};
  float *e = calloc(N, sizeof *e);
  for (size_t i = 0; i < N; i++) e[i] = (float)(i % 7);
  weir_bits_sampler *watch;
  cr_assert_eq(weir_bits_sampler_create(&watch, &layout, names, 0, 1), WEIR_OK);
  for (int step = 0; step < 2; step++) {
    cr_assert_not(weir_bits_ready(watch), "step %d", step);
    for (size_t t = 0; t < TENSORS; t++)
      weir_bits_fed(watch, t, e + offset[t], offset[t + 1] - offset[t]);
  }
  cr_assert(weir_bits_ready(watch));
  const weir_bits_stats *stats;
  uint64_t least;
  weir_bits_read(watch, &stats, &least);
  cr_assert_eq(least, 1);
  for (size_t t = 0; t < TENSORS; t++) {
    const weir_bits_layer *layer = &stats->layers[t];
    cr_assert_eq(layer->full, t == 0 || t == 2);
    cr_assert_eq(layer->count, layer->full ? 1 : 7);
    if (layer->full)
      cr_assert_eq(stats->options[layer->first].bytes, 4 * layer->numel);
    else
      cr_assert_gt(layer->norm, 0.0);
  }
  weir_bits_sampler_free(watch);
  free(e);
}

/* --- assignments ---------------------------------------------------------------------------- */

enum { LAYERS = 4, WAYS = 14 };

typedef struct problem {
  weir_bits_stats stats;
  weir_bits_layer layers[LAYERS];
  weir_bits_option options[LAYERS * WAYS];
} problem;

/* With buckets of one size or two, and then a layer less, for there are 14 ways each. */
static void make_problem(problem *p, weir_rng *rng, size_t sizes) {
  memset(p, 0, sizeof *p);
  p->stats = (weir_bits_stats){LAYERS + 1 - sizes, 0, p->layers, p->options, WEIR_BITS_BUCKET};
  const uint64_t whole = weir_rng_below(rng, 2 * LAYERS); /* often none */
  for (size_t l = 0; l < p->stats.layer_count; l++) {
    static char name[] = "layer";
    const double n = 200.0 + (double)weir_rng_below(rng, 1 << (4 + weir_rng_below(rng, 14)));
    const double scale = exp(3.0 * weir_rng_normal(rng)) * n;
    p->layers[l] = (weir_bits_layer){.name = name,
                                     .numel = n,
                                     .norm = sqrt(scale),
                                     .first = p->stats.option_count,
                                     .full = l == whole};
    if (l == whole) p->options[p->stats.option_count++] = (weir_bits_option){32, 0, 4 * n, 0};
    const double more = 1.0 + weir_rng_uniform(rng); /* that large buckets err */
    for (size_t i = 0; i < 7 * sizes && l != whole; i++) {
      const unsigned b = 2 + (unsigned)(i % 7);
      p->options[p->stats.option_count++] = (weir_bits_option){
          b, i < 7 ? WEIR_BITS_BUCKET : 1024, ceil(n * (b + (i < 7 ? 0.5 : 0.0625)) / 8),
          (i < 7 ? 1.0 : more) * scale / pow((1 << b) - 1, 2)};
    }
    p->layers[l].count = p->stats.option_count - p->layers[l].first;
  }
}

typedef struct cost {
  double bytes, error2;
  size_t buckets;
} cost;

static bool alike(const weir_bits_option *a, const weir_bits_option *b) {
  return a->bits == b->bits && a->bucket == b->bucket;
}

static cost cost_of(const problem *p, const size_t *choice) {
  cost c = {0};
  for (size_t l = 0; l < p->stats.layer_count; l++) {
    c.bytes += p->options[choice[l]].bytes;
    c.error2 += p->options[choice[l]].error2;
    c.buckets += l == 0 || !alike(&p->options[choice[l]], &p->options[choice[l - 1]]);
  }
  return c;
}

/* Goes over all assignments. */
static bool next_choice(const problem *p, size_t *choice) {
  for (size_t l = 0; l < p->stats.layer_count; l++) {
    if (++choice[l] < p->layers[l].first + p->layers[l].count) return true;
    choice[l] = p->layers[l].first;
  }
  return false;
}

static void first_choice(const problem *p, size_t *choice) {
  for (size_t l = 0; l < p->stats.layer_count; l++) choice[l] = p->layers[l].first;
}

/* The best with at least the bits of `need` and no more error, or with one way, by trying
 * everything. / */
static double best_from(const problem *p, const size_t *need, double budget, double price) {
  size_t choice[LAYERS];
  double best = INFINITY;
  first_choice(p, choice);
  do {
    const cost c = cost_of(p, choice);
    bool enough = true, one = true;
    const weir_bits_option *way = NULL;
    for (size_t l = 0; l < p->stats.layer_count; l++) {
      const weir_bits_option *own = &p->options[choice[l]], *due = &p->options[need[l]];
      enough = enough && own->bits >= due->bits && own->error2 <= due->error2;
      if (p->layers[l].full) continue;
      one = one && (way == NULL || alike(way, own));
      way = own;
    }
    if (!enough && !(one && c.error2 <= budget)) continue;
    best = fmin(best, c.bytes + price * (double)c.buckets);
  } while (next_choice(p, choice));
  return best;
}

/* Knapsack and merging as bits.h says: any answer of the knapsack may be where merging begins. */
static void best_by_trying(const problem *p, double budget, double price, double *low,
                           double *high) {
  size_t choice[LAYERS];
  double least = INFINITY;
  first_choice(p, choice);
  do {
    const cost c = cost_of(p, choice);
    if (c.error2 > budget || c.bytes > least) continue;
    const double best = best_from(p, choice, budget, price);
    *low = c.bytes < least ? best : fmin(*low, best);
    *high = c.bytes < least ? best : fmax(*high, best);
    least = c.bytes;
  } while (next_choice(p, choice));
}

Test(bits, assignments_are_the_best_of_all) {
  weir_rng rng = weir_rng_of(11);
  int merged = 0, large = 0;
  for (int turn = 0; turn < 200; turn++) {
    problem p;
    make_problem(&p, &rng, turn % 4 == 0 ? 2 : 1);
    const weir_bits_options options = {WEIR_BITS_KNAPSACK, 1.0 + 2.0 * weir_rng_uniform(&rng), 1};
    size_t choice[LAYERS], four[LAYERS];
    weir_bits_assigned a = {.choice = choice};
    cr_assert_eq(weir_bits_assign(&p.stats, &options, &a), WEIR_OK, "%s", weir_last_error());
    for (size_t l = 0; l < p.stats.layer_count; l++)
      four[l] = p.layers[l].first + (p.layers[l].full ? 0 : 2);
    const cost uniform = cost_of(&p, four), mine = cost_of(&p, choice);
    const double budget = options.alpha * options.alpha * uniform.error2 * (1 + 1e-12);
    cr_assert_leq(mine.error2, budget, "turn %d", turn);
    cr_assert_float_eq(a.bytes, mine.bytes, 1e-6);
    cr_assert_float_eq(a.error, sqrt(mine.error2), 1e-9 * a.error);
    cr_assert_float_eq(a.bytes4, uniform.bytes, 1e-6);
    cr_assert_float_eq(a.error4, sqrt(uniform.error2), 1e-9 * a.error4);
    cr_assert_eq(a.buckets, mine.buckets);
    cr_assert_leq(a.solved, uniform.bytes);
    const double price = 0.01 * uniform.bytes;
    double low = INFINITY, high = INFINITY;
    best_by_trying(&p, budget, price, &low, &high);
    const double all = mine.bytes + price * (double)mine.buckets;
    cr_assert(all >= low * (1 - 1e-9) && all <= high * (1 + 1e-9), "turn %d: %g, not %g to %g",
              turn, all, low, high);
    merged += mine.bytes > a.solved;
    for (size_t l = 0; l < p.stats.layer_count; l++) large += p.options[choice[l]].bucket == 1024;
  }
  cr_assert_gt(large, 10);
  cr_assert_gt(merged, 10); /* or merging was not tried */
}

Test(bits, every_method_keeps_the_error) {
  weir_rng rng = weir_rng_of(12);
  for (int turn = 0; turn < 40; turn++) {
    problem p;
    make_problem(&p, &rng, 1 + (size_t)turn % 2);
    size_t choice[LAYERS];
    weir_bits_assigned a = {.choice = choice};
    for (weir_bits_method m = 0; m < WEIR_BITS_METHODS; m++) {
      const weir_bits_options options = {m, 1.0 + weir_rng_uniform(&rng), 1};
      cr_assert_eq(weir_bits_assign(&p.stats, &options, &a), WEIR_OK, "%s", weir_last_error());
      cr_assert_leq(a.error, options.alpha * a.error4 * (1 + 1e-9));
      cr_assert_leq(a.solved, a.bytes4);
      for (size_t l = 0; l < p.stats.layer_count && m == WEIR_BITS_UNIFORM; l++)
        cr_assert(p.layers[l].full ||
                  (p.options[choice[l]].bits == 4 && choice[l] < p.layers[l].first + 7));
    }
  }
}

Test(bits, groups_are_runs_of_one_width) {
  weir_bits_option options[] = {
      {32, 0, 40, 0}, {3, 128, 90, 1}, {4, 128, 100, 0.5}, {4, 1024, 95, 0.7}};
  weir_bits_layer layers[] = {{.first = 0, .count = 1, .full = true},
                              {.first = 1, .count = 3},
                              {.first = 1, .count = 3},
                              {.first = 1, .count = 3},
                              {.first = 1, .count = 3},
                              {.first = 0, .count = 1, .full = true},
                              {.first = 0, .count = 1, .full = true}};
  const weir_bits_stats stats = {7, 4, layers, options, 128};
  const size_t choice[] = {0, 1, 1, 2, 3, 0, 0};
  weir_plan dense;
  cr_assert_eq(weir_plan_parse("none:1:dense-tree", &dense), WEIR_OK);
  weir_plan_bucket table[7];
  cr_assert_eq(weir_bits_table(&stats, choice, &dense, table), 5);
  static const uint32_t ends[] = {1, 3, 4, 5, 7};
  static const double ratios[] = {1, 3 / 32.0, 0.125, 0.125, 1};
  for (size_t k = 0; k < 5; k++) {
    cr_assert_eq(table[k].bucket_log2, k == 3 ? 10 : 0);
    cr_assert_eq(table[k].end, ends[k]);
    cr_assert_eq(table[k].cr, ratios[k]);
    cr_assert_eq(table[k].codec, k % 4 == 0 ? WEIR_CODEC_NONE : WEIR_CODEC_QSGD);
  }
  cr_assert_eq(weir_buckets_check(table, 5, 7), WEIR_OK);
}

/* By hand, 4 bits.  1.28e6 elements are a message of 16 + 10000 (8 + 64) = 720016 bytes; 129000
 * elements one of 16 + 1007 * 72 + 60 = 72580.  ms of latencies and bytes, first of the all-gather
 * straight to everybody, then of scatter-reduce-allgather:
 *
 * - 2 ranks, 1.28e6 elements: 1 + 7.2; 2 + 7.2
 * - 4 ranks, 1.28e6 elements: 1 + 21.6; 2 + 10.8
 * - 8 ranks, 129000 elements: 1 + 5.1; 2 + 1.3
 * - 8 ranks on 2 machines, 1.28e6 elements: 16 of all ranks' messages cross a machine's link, or
 *   those of each machine's sum alone, 1 + 7.2016 gathered and 1 + 7.2064 summed, in twice as many
 *   blocks, four ranks' one behind the other; of 129000 elements 1 + 0.7 and 2 + 0.5
 * - 8 ranks on 4 machines: gathered around a ring 3 hops, of two ranks each, and the second rank a
 *   hop behind the first, 3 + 14.4 and summed 2 + 8.1; of 129000 elements 3 + 1.5 and 2 + 0.8
 * - 9 ranks on 2 machines: not every rank has a peer on the other, so messages of all are summed
 *
 * In full precision 10 elements take one latency straight from everybody to everybody, at most
 * 7 * 40 bytes a rank; of 2 ranks doubling, which comes first, is the same.  Of 8 and 9 ranks on 2
 * machines doubling takes one latency as well, as it crosses in one exchange alone, and sends 4
 * messages over a machine's link where straight to everybody 16 and 20 go; on 4 machines it crosses
 * twice. */
Test(bits, groups_go_by_what_takes_less) {
  static const size_t offset[] = {0, 1280000, 1409000, 1409010};
  const weir_layout layout = {3, offset};
  const weir_link link = {.alpha = 1e-3, .beta = 1e-8};
  static const struct {
    weir_group_shape shape;
    const char *quantized;
    bool devices;
  } rows[] = {
      {{2, 2, false, 0, 0}, "ag", false},         {{4, 4, false, 0, 0}, "compressed", false},
      {{8, 8, false, 0, 0}, "compressed", false}, {{8, 2, false, 0, 0}, "path=rs.c.ag.d.ag", false},
      {{8, 2, false, 0, 0}, "hier-sra", true},    {{8, 4, false, 0, 0}, "hier-sra", false},
      {{9, 2, false, 0, 0}, "compressed", false}, {{8, 8, true, 0, 0}, "compressed", false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    weir_plan_bucket table[] = {
        {.end = 1, .codec = WEIR_CODEC_QSGD, .scheme = WEIR_SCHEME_GATHER, .cr = 0.125},
        {.end = 2, .codec = WEIR_CODEC_QSGD, .scheme = WEIR_SCHEME_GATHER, .cr = 0.125},
        {.end = 3, .codec = WEIR_CODEC_NONE, .cr = 1}};
    weir_bits_schemes(&layout, rows[i].shape, &link, rows[i].devices, table, 3);
    for (size_t g = 0; g < 3; g++) {
      weir_plan plan = {0};
      char name[WEIR_COLLECTIVE_TEXT_MAX];
      weir_plan_of_bucket(&table[g], &plan);
      weir_plan_collective(&plan, name);
      cr_assert_str_eq(name,
                       g < 2                      ? rows[i].quantized
                       : rows[i].shape.hosts == 2 ? "dense-doubling"
                                                  : "dense-direct",
                       "row %zu", i);
    }
    cr_assert_eq(weir_buckets_check(table, 3, 3), WEIR_OK, "%s", weir_last_error());
  }
}
