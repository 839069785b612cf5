/* Bit widths of 400 layers by every method, from errors that are measured as in training: bytes at
 * the same bound on the error, and milliseconds of processor time, median of 9.  With a file's name
 * it also writes what was measured there, for `weir plan bits`. Usage: bench_bits [STATS.csv] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "controller/bits.h"

enum { LAYERS = 400, ROUNDS = 9 };

static void check(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "bench_bits: %s\n", weir_last_error());
  exit(1);
}

/* Weights of 2^10 to 2^20 elements and, behind each, a bias. */
static void make_layout(size_t offset[LAYERS + 1], const char *names[LAYERS]) {
  weir_rng rng = weir_rng_of(1);
  for (size_t t = 0; t < LAYERS; t++) {
    const double power = 10.0 + 10.0 * weir_rng_uniform(&rng);
    names[t] = t % 2 ? "bias" : "weight";
    offset[t + 1] = offset[t] + (t % 2 ? 512 : (size_t)exp2(power));
  }
}

/* Heavy tails, and layers whose norms differ by factors of some tens. */
static void make_gradient(size_t layer, size_t n, float *e) {
  weir_rng rng = weir_rng_of(100 + layer);
  const float scale = (float)exp(1.5 * weir_rng_normal(&rng)) / sqrtf((float)n);
  for (size_t i = 0; i < n; i++) {
    const float x = (float)weir_rng_normal(&rng);
    e[i] = scale * x * fabsf(x);
  }
}

static weir_status solve(const weir_bits_stats *s, weir_bits_method m, double most,
                         const weir_bits *known, weir_bits *bits) {
  switch (m) {
    case WEIR_BITS_KMEANS: return weir_bits_kmeans(s, most, bits);
    case WEIR_BITS_LINEAR: return weir_bits_linear(s, most, bits);
    case WEIR_BITS_BAYES: return weir_bits_bayes(s, most, bits);
    case WEIR_BITS_KNAPSACK: return weir_bits_knapsack(s, most, 0, known, bits);
    default: return weir_bits_uniform(s, bits);
  }
}

static void compare(const weir_bits_stats *s, double alpha) {
  static const weir_bits_method order[] = {WEIR_BITS_UNIFORM, WEIR_BITS_LINEAR, WEIR_BITS_BAYES,
                                           WEIR_BITS_KMEANS, WEIR_BITS_KNAPSACK};
  weir_bits bits[WEIR_BITS_METHODS] = {{0}};
  for (size_t i = 0; i < WEIR_BITS_METHODS; i++) {
    const weir_bits_method m = order[i];
    double ms[ROUNDS];
    for (size_t round = 0; round < ROUNDS; round++) {
      weir_bits_drop(&bits[m]);
      const double start = weir_thread_cpu_s();
      check(solve(s, m, alpha * bits[WEIR_BITS_UNIFORM].error, &bits[WEIR_BITS_KMEANS], &bits[m]));
      ms[round] = 1e3 * (weir_thread_cpu_s() - start);
    }
    weir_sort(ms, ROUNDS);
    printf("alpha %.1f %-9s %12.0f bytes %6.3f of 4 bits, error %6.3f of 4 bits, %7.3f ms", alpha,
           weir_bits_methods[m], bits[m].bytes, bits[m].bytes / bits[WEIR_BITS_UNIFORM].bytes,
           bits[m].error / bits[WEIR_BITS_UNIFORM].error, ms[ROUNDS / 2]);
    if (m == WEIR_BITS_KNAPSACK)
      printf(", at most %.4f %% above the optimum",
             100 * (bits[m].bytes / bits[m].least_bytes - 1));
    printf("\n");
  }
  for (size_t m = 0; m < WEIR_BITS_METHODS; m++) weir_bits_drop(&bits[m]);
}

static void write_stats(const weir_bits_stats *s, const char *path) {
  FILE *f = fopen(path, "w");
  if (!f) check(weir_fail(WEIR_E_IO, "%s cannot be written", path));
  fprintf(f, "layer,numel,norm,bits,bucket,bytes,error\n");
  for (size_t l = 0; l < s->layer_count; l++)
    for (size_t i = s->layers[l].first; i < s->layers[l].first + s->layers[l].count; i++)
      fprintf(f, "%zu.%s,%.0f,%.9g,%u,%u,%.0f,%.9g\n", l, s->layers[l].name, s->layers[l].numel,
              s->layers[l].norm, s->options[i].bits, s->options[i].bucket, s->options[i].bytes,
              sqrt(s->options[i].error2));
  if (fclose(f) != 0) check(weir_fail(WEIR_E_IO, "%s cannot be written", path));
}

int main(int argc, char **argv) {
  static size_t offset[LAYERS + 1];
  const char *names[LAYERS];
  make_layout(offset, names);
  const weir_layout layout = {LAYERS, offset};
  float *e = malloc(offset[LAYERS] * sizeof *e);
  weir_bits_sampler *sampler;
  const weir_bits_stats *stats;
  uint64_t least;
  if (!e)
    check(weir_fail(WEIR_E_NOMEM, "no memory for a gradient of %zu elements", offset[LAYERS]));
  for (size_t t = 0; t < LAYERS; t++) make_gradient(t, offset[t + 1] - offset[t], e + offset[t]);
  check(weir_bits_sampler_create(&sampler, &layout, names, 0, WEIR_BITS_SIZES));
  size_t steps = 0;
  const double start = weir_thread_cpu_s();
  for (; !weir_bits_ready(sampler); steps++)
    for (size_t t = 0; t < LAYERS; t++)
      weir_bits_fed(sampler, t, e + offset[t], offset[t + 1] - offset[t]);
  const double measuring = weir_thread_cpu_s() - start;
  weir_bits_read(sampler, &stats, &least);
  printf("%d layers, %zu elements; all measured in %zu steps, %.3f ms a step\n", LAYERS,
         offset[LAYERS], steps, 1e3 * measuring / (double)steps);
  if (argc > 1) write_stats(stats, argv[1]);
  compare(stats, 1.0);
  compare(stats, 2.0);
  weir_bits_sampler_free(sampler);
  free(e);
  return 0;
}
