#include "moo/knee.h"

#include <math.h>

#include "moo/nsga2.h"

#define M WEIR_MOO_OBJECTIVES
static const double tolerance = 1e-9; /* of scaled objectives: below it points coincide */

typedef struct scale {
  double low[M], width[M];
} scale;

static void scaled(const scale *s, const double *f, size_t m, double *to) {
  for (size_t o = 0; o < m; o++) to[o] = s->width[o] > 0.0 ? (f[o] - s->low[o]) / s->width[o] : 0.0;
}

static scale scale_of(const double *f, size_t n, size_t m) {
  scale s;
  for (size_t o = 0; o < m; o++) {
    double low = f[o], high = f[o];
    for (size_t i = 1; i < n; i++) {
      low = fmin(low, f[i * m + o]);
      high = fmax(high, f[i * m + o]);
    }
    s.low[o] = low;
    s.width[o] = high - low;
  }
  return s;
}

/* Take the basis' directions out of v; returns the length of what is left. */
static double orthogonal(double v[M], double (*basis)[M], size_t count, size_t m) {
  for (size_t b = 0; b < count; b++) {
    double dot = 0.0;
    for (size_t o = 0; o < m; o++) dot += v[o] * basis[b][o];
    for (size_t o = 0; o < m; o++) v[o] -= dot * basis[b][o];
  }
  double square = 0.0;
  for (size_t o = 0; o < m; o++) square += v[o] * v[o];
  return sqrt(square);
}

/* Orthonormal basis of the extremes' affine hull, and one point of it; returns its dimension. */
static size_t hull(const scale *s, const double *f, size_t n, size_t m, double origin[M],
                   double (*basis)[M]) {
  size_t dimension = 0;
  for (size_t o = 0; o < m; o++) {
    size_t extreme = 0;
    for (size_t i = 1; i < n; i++)
      if (f[i * m + o] > f[extreme * m + o]) extreme = i;
    double point[M];
    scaled(s, f + extreme * m, m, point);
    if (o == 0) {
      for (size_t i = 0; i < m; i++) origin[i] = point[i];
      continue;
    }
    for (size_t i = 0; i < m; i++) point[i] -= origin[i];
    const double length = orthogonal(point, basis, dimension, m);
    if (length <= tolerance) continue;
    for (size_t i = 0; i < m; i++) basis[dimension][i] = point[i] / length;
    dimension++;
  }
  return dimension;
}

/* From the hull to the ideal point, which scaled is 0; where that lies in it, towards less of all
 * objectives. */
static void towards_ideal(const double origin[M], double (*basis)[M], size_t dimension, size_t m,
                          double to[M]) {
  for (size_t o = 0; o < m; o++) to[o] = -origin[o];
  if (orthogonal(to, basis, dimension, m) > tolerance) return;
  for (size_t o = 0; o < m; o++) to[o] = -1.0;
}

size_t weir_moo_knee(const double *f, size_t n, size_t objectives) {
  const size_t m = objectives;
  if (n <= 1 || m == 0 || m > M) return 0;
  double origin[M], basis[M][M], ideal[M];
  const scale s = scale_of(f, n, m);
  const size_t dimension = hull(&s, f, n, m, origin, basis);
  towards_ideal(origin, basis, dimension, m, ideal);
  size_t knee = 0;
  double best = -INFINITY, best_sum = INFINITY;
  for (size_t i = 0; i < n; i++) {
    double v[M], sum = 0.0, side = 0.0;
    scaled(&s, f + i * m, m, v);
    for (size_t o = 0; o < m; o++) {
      sum += v[o];
      v[o] -= origin[o];
    }
    double distance = orthogonal(v, basis, dimension, m);
    for (size_t o = 0; o < m; o++) side += v[o] * ideal[o];
    if (side < 0.0) distance = -distance; /* on the far side from the ideal point */
    if (distance > best + tolerance ||
        (distance > best - tolerance && sum < best_sum - tolerance)) {
      best = distance;
      best_sum = sum;
      knee = i;
    }
  }
  return knee;
}
