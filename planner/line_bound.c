/* Lower bounds, and the solutions met on the way to them (see line.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/line.h"

enum { ROUNDS = 40 };

typedef struct shadow {
  weir_line_path path;
  weir_line_bounds *bounds;
  weir_solve_bucket *bucket;
} shadow;

/* The path's buckets; offered as a solution.  *from, *to: tensors of its critical bucket. */
static void follow(shadow *s, weir_solution *best, size_t *from, size_t *to) {
  const weir_line_path *path = &s->path;
  size_t count = 0;
  for (size_t i = 0; i < path->line->n; i = path->next[i])
    s->bucket[count++] = (weir_solve_bucket){.end = path->next[i], .row = path->row[i]};
  weir_line_offer(path->line, best, s->bucket, count);
  double left = 0.0, most = -1.0;
  for (size_t k = count; k-- > 0;) {
    const size_t i = k ? s->bucket[k - 1].end : 0;
    double h, g;
    weir_line_cost(path->line, s->bucket[k].row, i, s->bucket[k].end, &h, &g);
    left += g;
    if (s->bucket[k].compressed_s + left <= most) continue;
    most = s->bucket[k].compressed_s + left;
    *from = i;
    *to = s->bucket[k].end;
  }
}

/* Move weight `share` to a switch of lanes within the tensors [from, to). */
static void move(shadow *s, double share, size_t from, size_t to) {
  for (size_t b = 0; b <= s->path.line->n; b++) {
    const double there = b <= from ? 0.0 : b >= to ? 1.0 : (double)(b - from) / (double)(to - from);
    s->path.late[b] += share * (there - s->path.late[b]);
  }
}

static void play(shadow *s, weir_solution *best) {
  weir_line *line = s->path.line;
  weir_line_bounds *bounds = s->bounds;
  double *late = s->path.late, *rest = s->path.rest;
  const size_t n = line->n, allowance = line->most_work / 2;
  for (size_t b = 0; b <= n; b++) late[b] = b == n;
  for (size_t round = 0; round < ROUNDS; round++) {
    size_t from = 0, to = n;
    weir_line_shortest(&s->path);
    follow(s, best, &from, &to);
    if (round == 0 || rest[0] > bounds->least_s) {
      bounds->least_s = fmax(bounds->least_s, rest[0]);
      memcpy(bounds->late, late, (n + 1) * sizeof *late);
      memcpy(bounds->rest, rest, (n + 1) * sizeof *rest);
    }
    if (bounds->least_s >= line->most_s * (1.0 - 1e-14) || line->work > allowance) return;
    move(s, 2.0 / ((double)round + 3.0), from, to);
  }
}

weir_status weir_line_bound(weir_line *line, weir_line_bounds *bounds, weir_solution *best) {
  const size_t n = line->n;
  shadow s = {.bounds = bounds, .bucket = malloc(n * sizeof *s.bucket)};
  *bounds = (weir_line_bounds){.left_c = malloc(4 * (n + 1) * sizeof *bounds->left_c)};
  weir_status status = weir_line_path_create(&s.path, line);
  if (status == WEIR_OK && !(bounds->left_c && s.bucket))
    status = weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", n);
  if (status != WEIR_OK) goto done;
  bounds->left_e = bounds->left_c + n + 1;
  bounds->late = bounds->left_e + n + 1;
  bounds->rest = bounds->late + n + 1;
  status = weir_line_relax(line, bounds->left_c, bounds->left_e);
  if (status != WEIR_OK) goto done;
  bounds->least_s = fmax(bounds->left_c[0], bounds->left_e[0]);
  weir_line_narrow(line, bounds->left_e);
  play(&s, best);
  weir_line_narrow(line, bounds->left_e);
done:
  if (status != WEIR_OK) weir_line_bounds_free(bounds);
  weir_line_path_free(&s.path);
  free(s.bucket);
  return status;
}

void weir_line_bounds_free(weir_line_bounds *bounds) {
  free(bounds->left_c);
  *bounds = (weir_line_bounds){0};
}
