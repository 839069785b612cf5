/* Bayesian optimization of the widths (see bits.h): a Gaussian process over three numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/bits.h"

enum { DIMENSIONS = 3, TRIALS = 48, FIRST = 12, CANDIDATES = 256 };

static const double reach = 0.3;  /* of the kernel, in the unit cube */
static const double noise = 1e-6; /* keeps the kernel's matrix positive definite */

typedef struct layer_point {
  size_t layer;
  double size, norm; /* logarithms, mean 0 and variance 1 */
} layer_point;

typedef struct bayes {
  const weir_bits_stats *stats;
  layer_point *points;
  size_t count;
  double budget, reference; /* of squared error; bytes of the first trial */
  size_t *trial;
  weir_bits *best;
  double x[TRIALS][DIMENSIONS], y[TRIALS];
  double factor[TRIALS][TRIALS]; /* lower Cholesky factor */
  double weights[TRIALS];        /* of the mean */
  size_t trials;
} bayes;

static void standardize(layer_point *points, size_t count, size_t offset) {
  double sum = 0.0, squares = 0.0;
  for (size_t i = 0; i < count; i++) sum += *(double *)((char *)&points[i] + offset);
  for (size_t i = 0; i < count; i++) {
    double *value = (double *)((char *)&points[i] + offset);
    *value -= sum / (double)count;
    squares += *value * *value;
  }
  const double deviation = sqrt(squares / (double)(count ? count : 1));
  for (size_t i = 0; i < count && deviation > 0.0; i++)
    *(double *)((char *)&points[i] + offset) /= deviation;
}

/* The layer's option at the reference bucket whose width is nearest. */
static size_t nearest(const weir_bits_stats *s, size_t layer, double width) {
  const weir_bits_layer *l = &s->layers[layer];
  size_t best = l->first;
  double least = INFINITY;
  for (size_t i = l->first; i < l->first + l->count; i++) {
    const double off = fabs((double)s->options[i].bits - width);
    if (s->options[i].bucket != s->bucket || off >= least) continue;
    least = off;
    best = i;
  }
  return best;
}

/* Bytes relative to the first trial; above the budget worse than any that keeps it. */
static double objective(bayes *b, const double *x) {
  const double middle = 8.0 * x[0], by_size = 6.0 * x[1] - 3.0, by_norm = 6.0 * x[2] - 3.0;
  for (size_t i = 0; i < b->count; i++)
    b->trial[b->points[i].layer] =
        nearest(b->stats, b->points[i].layer,
                middle + by_size * b->points[i].size + by_norm * b->points[i].norm);
  weir_bits now = {.choice = b->trial};
  weir_bits_measure(b->stats, &now);
  if (b->reference == 0.0) b->reference = now.bytes;
  const double error2 = now.error * now.error;
  if (error2 > b->budget) return 1.0 + fmin(1.0, 0.5 * log(error2 / fmax(b->budget, 1e-300)));
  if (now.bytes < b->best->bytes) {
    memcpy(b->best->choice, b->trial, b->stats->layer_count * sizeof *b->trial);
    b->best->bytes = now.bytes;
    b->best->error = now.error;
  }
  return now.bytes / b->reference;
}

static double kernel(const double *a, const double *c) {
  double squares = 0.0;
  for (size_t d = 0; d < DIMENSIONS; d++) squares += (a[d] - c[d]) * (a[d] - c[d]);
  return exp(-squares / (2.0 * reach * reach));
}

/* One more row of the factor, then the weights: (L L') weights = y - 1. */
static void learn(bayes *b) {
  const size_t n = b->trials;
  double *row = b->factor[n - 1];
  double rest = 1.0 + noise;
  for (size_t j = 0; j + 1 < n; j++) {
    double sum = kernel(b->x[n - 1], b->x[j]);
    for (size_t k = 0; k < j; k++) sum -= row[k] * b->factor[j][k];
    row[j] = sum / b->factor[j][j];
    rest -= row[j] * row[j];
  }
  row[n - 1] = sqrt(fmax(rest, noise));
  for (size_t i = 0; i < n; i++) {
    b->weights[i] = b->y[i] - 1.0;
    for (size_t k = 0; k < i; k++) b->weights[i] -= b->factor[i][k] * b->weights[k];
    b->weights[i] /= b->factor[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; k++) b->weights[i] -= b->factor[k][i] * b->weights[k];
    b->weights[i] /= b->factor[i][i];
  }
}

/* Expected improvement over the least y so far. */
static double improvement(const bayes *b, const double *x, double least) {
  double mean = 1.0, variance = 1.0, solved[TRIALS];
  for (size_t i = 0; i < b->trials; i++) {
    const double k = kernel(x, b->x[i]);
    mean += k * b->weights[i];
    solved[i] = k;
    for (size_t j = 0; j < i; j++) solved[i] -= b->factor[i][j] * solved[j];
    solved[i] /= b->factor[i][i];
    variance -= solved[i] * solved[i];
  }
  const double deviation = sqrt(fmax(variance, 1e-12)), z = (least - mean) / deviation;
  const double density = exp(-0.5 * z * z) / sqrt(2.0 * acos(-1.0));
  return (least - mean) * 0.5 * erfc(-z / sqrt(2.0)) + deviation * density;
}

static void search(bayes *b) {
  weir_rng rng = weir_rng_of(b->stats->layer_count);
  double least = INFINITY;
  for (b->trials = 0; b->trials < TRIALS;) {
    double *x = b->x[b->trials], wanted = -INFINITY;
    for (size_t c = 0; c < (b->trials < FIRST ? 1 : CANDIDATES); c++) {
      double candidate[DIMENSIONS] = {0.5, 0.5, 0.5}; /* the first: 4 bits everywhere */
      for (size_t d = 0; d < DIMENSIONS && b->trials; d++) candidate[d] = weir_rng_uniform(&rng);
      const double gain = b->trials < FIRST ? 0.0 : improvement(b, candidate, least);
      if (gain <= wanted) continue;
      wanted = gain;
      memcpy(x, candidate, sizeof candidate);
    }
    b->y[b->trials] = objective(b, x);
    least = fmin(least, b->y[b->trials++]);
    learn(b);
  }
}

weir_status weir_bits_bayes(const weir_bits_stats *stats, double most_error, weir_bits *bits) {
  const size_t layers = stats->layer_count;
  weir_status status = WEIR_OK;
  *bits = (weir_bits){.choice = malloc(layers * sizeof *bits->choice), .bytes = INFINITY};
  bayes *b = calloc(1, sizeof *b);
  layer_point *points = malloc(layers * sizeof *points);
  size_t *trial = malloc(layers * sizeof *trial);
  if (!bits->choice || !b || !points || !trial) {
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu layers", layers);
    goto done;
  }
  *b = (bayes){.stats = stats,
               .points = points,
               .trial = trial,
               .best = bits,
               .budget = most_error * most_error * (1.0 + WEIR_BITS_ROUNDING)};
  for (size_t l = 0; l < layers; l++) {
    trial[l] = stats->layers[l].first;
    if (!stats->layers[l].full)
      points[b->count++] =
          (layer_point){l, log(stats->layers[l].numel), log(stats->layers[l].norm + 1e-30)};
  }
  standardize(points, b->count, offsetof(layer_point, size));
  standardize(points, b->count, offsetof(layer_point, norm));
  search(b);
  if (bits->bytes == INFINITY)
    status = weir_fail(WEIR_E_INVALID, "no trial has an error of at most %g", most_error);
done:
  free(b);
  free(points);
  free(trial);
  if (status != WEIR_OK) weir_bits_drop(bits);
  return status;
}
