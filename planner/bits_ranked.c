/* The published assignments: uniform, KMEANS and Linear (see bits.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/bits.h"

enum { MOST_BITS = 32, ROUNDS = 50 };

/* A quantized layer; rank: which of `classes` widths it gets, ascending. */
typedef struct point {
  size_t layer;
  double size, norm; /* scaled to [0, 1] */
  size_t rank;
} point;

/* Ranks the points into classes 0..classes-1. */
typedef void ranking(point *points, size_t count, size_t classes);

static size_t option_in(const weir_bits_stats *s, size_t layer, unsigned bits, uint32_t bucket) {
  const weir_bits_layer *l = &s->layers[layer];
  for (size_t i = l->first; i < l->first + l->count; i++)
    if (l->full || (s->options[i].bits == bits && s->options[i].bucket == bucket)) return i;
  return SIZE_MAX;
}

static size_t option_of(const weir_bits_stats *s, size_t layer, unsigned bits) {
  return option_in(s, layer, bits, s->bucket);
}

static bool everywhere(const weir_bits_stats *s, unsigned bits, uint32_t bucket) {
  for (size_t l = 0; l < s->layer_count; l++)
    if (option_in(s, l, bits, bucket) == SIZE_MAX) return false;
  return true;
}

/* The widths that every quantized layer has at the reference bucket, ascending. */
static size_t common_widths(const weir_bits_stats *s, unsigned widths[MOST_BITS]) {
  size_t count = 0;
  for (unsigned bits = 1; bits <= MOST_BITS; bits++)
    if (everywhere(s, bits, s->bucket)) widths[count++] = bits;
  return count;
}

static int descending(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x < y) - (x > y);
}

/* The buckets that every quantized layer has at all of these widths, descending. */
static size_t common_buckets(const weir_bits_stats *s, const unsigned *widths, size_t count,
                             uint32_t buckets[WEIR_BITS_OPTIONS]) {
  size_t found = 0, layer = 0;
  while (layer < s->layer_count && s->layers[layer].full) layer++;
  if (layer == s->layer_count) return 0;
  for (size_t i = 0; i < s->layers[layer].count; i++) {
    const weir_bits_option *option = &s->options[s->layers[layer].first + i];
    bool good = count > 0 && option->bits == widths[0];
    for (size_t w = 0; w < count && good; w++) good = everywhere(s, widths[w], option->bucket);
    if (good) buckets[found++] = option->bucket;
  }
  qsort(buckets, found, sizeof *buckets, descending);
  return found;
}

static weir_status new_bits(const weir_bits_stats *s, weir_bits *bits) {
  *bits = (weir_bits){.choice = malloc(s->layer_count * sizeof *bits->choice)};
  return bits->choice ? WEIR_OK
                      : weir_fail(WEIR_E_NOMEM, "no memory for %zu layers", s->layer_count);
}

weir_status weir_bits_uniform(const weir_bits_stats *stats, weir_bits *bits) {
  const weir_status status = new_bits(stats, bits);
  if (status != WEIR_OK) return status;
  for (size_t l = 0; l < stats->layer_count; l++) bits->choice[l] = option_of(stats, l, 4);
  weir_bits_measure(stats, bits);
  return WEIR_OK;
}

static int by_sensitivity(const void *a, const void *b) {
  const point *x = a, *y = b;
  const double u = x->norm - x->size, v = y->norm - y->size;
  if (u != v) return u < v ? -1 : 1;
  return (x->layer > y->layer) - (x->layer < y->layer);
}

static double distance2(const point *a, const point *b) {
  return (a->size - b->size) * (a->size - b->size) + (a->norm - b->norm) * (a->norm - b->norm);
}

/* One round of Lloyd's algorithm; did any point change its cluster? */
static bool cluster_once(point *points, size_t count, point *centroids, size_t classes) {
  double size[MOST_BITS] = {0}, norm[MOST_BITS] = {0}, members[MOST_BITS] = {0};
  bool moved = false;
  for (size_t i = 0; i < count; i++) {
    size_t nearest = 0;
    for (size_t k = 1; k < classes; k++)
      if (distance2(&points[i], &centroids[k]) < distance2(&points[i], &centroids[nearest]))
        nearest = k;
    moved |= points[i].rank != nearest;
    points[i].rank = nearest;
    size[nearest] += points[i].size;
    norm[nearest] += points[i].norm;
    members[nearest] += 1.0;
  }
  for (size_t k = 0; k < classes; k++)
    if (members[k] > 0.0) {
      centroids[k].size = size[k] / members[k];
      centroids[k].norm = norm[k] / members[k];
    }
  return moved;
}

/* The first centroids are layers spread evenly over the sensitivities: no chance is involved. */
static void by_clusters(point *points, size_t count, size_t classes) {
  point centroids[MOST_BITS];
  size_t rank[MOST_BITS];
  qsort(points, count, sizeof *points, by_sensitivity);
  for (size_t k = 0; k < classes; k++) centroids[k] = points[(2 * k + 1) * count / (2 * classes)];
  for (size_t i = 0; i < count; i++) points[i].rank = SIZE_MAX;
  for (size_t round = 0; round < ROUNDS && cluster_once(points, count, centroids, classes);)
    round++;
  for (size_t k = 0; k < classes; k++) centroids[k].layer = k;
  qsort(centroids, classes, sizeof *centroids, by_sensitivity);
  for (size_t k = 0; k < classes; k++) rank[centroids[k].layer] = k;
  for (size_t i = 0; i < count; i++) points[i].rank = rank[points[i].rank];
}

static int by_ratio(const void *a, const void *b) {
  const point *x = a, *y = b;
  const double u = x->norm * y->size, v = y->norm * x->size;
  if (u != v) return u < v ? -1 : 1;
  return (x->layer > y->layer) - (x->layer < y->layer);
}

static void by_line(point *points, size_t count, size_t classes) {
  qsort(points, count, sizeof *points, by_ratio);
  for (size_t i = 0; i < count; i++) points[i].rank = i * classes / count;
}

static double scaled(double value, double low, double high) {
  return high > low ? (value - low) / (high - low) : 0.0;
}

static size_t quantized(const weir_bits_stats *s, bool scale, point *points) {
  double low_size = INFINITY, high_size = 0.0, low_norm = INFINITY, high_norm = 0.0;
  size_t count = 0;
  for (size_t l = 0; l < s->layer_count; l++) {
    const weir_bits_layer *layer = &s->layers[l];
    if (layer->full) continue;
    points[count++] = (point){l, layer->numel, layer->norm, 0};
    low_size = fmin(low_size, layer->numel);
    high_size = fmax(high_size, layer->numel);
    low_norm = fmin(low_norm, layer->norm);
    high_norm = fmax(high_norm, layer->norm);
  }
  for (size_t i = 0; scale && i < count; i++) {
    points[i].size = scaled(points[i].size, low_size, high_size);
    points[i].norm = scaled(points[i].norm, low_norm, high_norm);
  }
  return count;
}

/* Which of the buckets a rank gets: in form k < sizes all the k-th; in the last one the more
 * sensitive a layer the smaller its bucket, as linearly as widths. */
static size_t bucket_of(size_t form, size_t sizes, size_t rank, size_t classes) {
  return form < sizes ? form : rank * sizes / classes;
}

/* The best range of widths, and form of buckets, for the ranking. */
static void best_range(const weir_bits_stats *s, double most_error, ranking *rank, point *points,
                       size_t count, size_t *trial, weir_bits *best) {
  unsigned widths[MOST_BITS];
  uint32_t buckets[WEIR_BITS_OPTIONS] = {s->bucket};
  const size_t all = common_widths(s, widths), found = common_buckets(s, widths, all, buckets);
  const size_t sizes = found > 0 ? found : 1;
  const double budget = most_error * most_error * (1.0 + WEIR_BITS_ROUNDING);
  for (size_t l = 0; l < s->layer_count; l++) trial[l] = s->layers[l].first;
  for (size_t classes = 1; classes <= all && classes <= (count ? count : 1); classes++) {
    if (count) rank(points, count, classes);
    const size_t forms = sizes + (sizes > 1 && classes > 1 ? 1 : 0);
    for (size_t k = 0; k < (all + 1 - classes) * forms; k++) {
      const size_t low = k / forms;
      weir_bits candidate = {.choice = trial};
      for (size_t i = 0; i < count; i++)
        trial[points[i].layer] =
            option_in(s, points[i].layer, widths[low + points[i].rank],
                      buckets[bucket_of(k % forms, sizes, points[i].rank, classes)]);
      weir_bits_measure(s, &candidate);
      if (candidate.error * candidate.error > budget || candidate.bytes >= best->bytes) continue;
      memcpy(best->choice, trial, s->layer_count * sizeof *trial);
      best->bytes = candidate.bytes;
      best->error = candidate.error;
    }
  }
}

static weir_status ranked(const weir_bits_stats *s, double most_error, ranking *rank, bool scale,
                          weir_bits *bits) {
  weir_status status = new_bits(s, bits);
  if (status != WEIR_OK) return status;
  point *points = malloc(s->layer_count * sizeof *points);
  size_t *trial = malloc(s->layer_count * sizeof *trial);
  bits->bytes = INFINITY;
  if (!points || !trial)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu layers", s->layer_count);
  else
    best_range(s, most_error, rank, points, quantized(s, scale, points), trial, bits);
  if (status == WEIR_OK && bits->bytes == INFINITY)
    status = weir_fail(WEIR_E_INVALID, "no range of widths has an error of at most %g", most_error);
  free(points);
  free(trial);
  if (status != WEIR_OK) weir_bits_drop(bits);
  return status;
}

weir_status weir_bits_kmeans(const weir_bits_stats *stats, double most_error, weir_bits *bits) {
  return ranked(stats, most_error, by_clusters, true, bits);
}

weir_status weir_bits_linear(const weir_bits_stats *stats, double most_error, weir_bits *bits) {
  return ranked(stats, most_error, by_line, false, bits);
}
