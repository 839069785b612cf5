#include "moo/hypervolume.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct point {
  double x, y, z;
} point;

static int by_z(const void *a, const void *b) {
  const double x = ((const point *)a)->z, y = ((const point *)b)->z;
  return (x > y) - (x < y);
}

/* The staircase: points ascending in x, strictly descending in y.  Puts p in and takes out what it
 * dominates; returns the area this adds below (rx, ry). */
static double put(point *stairs, size_t *count, point p, double rx, double ry) {
  size_t at = 0;
  while (at < *count && stairs[at].x < p.x) at++;
  double ceiling = at > 0 ? stairs[at - 1].y : ry, from = p.x, area = 0.0;
  if (at < *count && stairs[at].x == p.x && stairs[at].y <= p.y) return 0.0;
  if (ceiling <= p.y) return 0.0;
  size_t end = at;
  for (; end < *count && stairs[end].y >= p.y; end++) {
    area += (stairs[end].x - from) * (ceiling - p.y);
    from = stairs[end].x;
    ceiling = stairs[end].y;
  }
  const double to = end < *count ? stairs[end].x : rx;
  area += (to - from) * (ceiling - p.y);
  memmove(stairs + at + 1, stairs + end, (*count - end) * sizeof *stairs);
  stairs[at] = p;
  *count = *count - (end - at) + 1;
  return area;
}

double weir_moo_hypervolume(const double *f, size_t n, size_t objectives, const double *reference) {
  if (objectives != 2 && objectives != 3) return NAN;
  point *points = malloc((2 * n + 2) * sizeof *points);
  if (!points) return NAN;
  point *stairs = points + n;
  const double rz = objectives == 3 ? reference[2] : 1.0;
  size_t inside = 0, count = 0;
  for (size_t i = 0; i < n; i++) {
    const double *p = f + i * objectives;
    const point q = {p[0], p[1], objectives == 3 ? p[2] : 0.0};
    if (q.x < reference[0] && q.y < reference[1] && q.z < rz) points[inside++] = q;
  }
  qsort(points, inside, sizeof *points, by_z);
  double volume = 0.0, area = 0.0;
  for (size_t i = 0; i < inside; i++) { /* sweep along z: the area grows, each slab is a prism */
    area += put(stairs, &count, points[i], reference[0], reference[1]);
    volume += area * ((i + 1 < inside ? points[i + 1].z : rz) - points[i].z);
  }
  free(points);
  return volume;
}
