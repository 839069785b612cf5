/* Lower bounds, and the solutions met on the way to them (see line.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/line.h"

enum { ROUNDS = 40 };

typedef struct shadow {
  weir_line *line;
  weir_line_bounds *bounds;
  double *late, *rest; /* [n + 1] of this round */
  uint32_t *next;      /* [n] where the shortest path goes from tensor i */
  uint8_t *row;        /* [n] with which row */
  weir_solve_bucket *bucket;
} shadow;

/* The wire alone, and the caller's lane followed by the least exchanges that can be left. */
static void relaxations(weir_line *line, double *left_c, double *left_e) {
  const size_t n = line->n;
  for (size_t i = 0; i < n; i++) left_c[i] = left_e[i] = INFINITY;
  left_c[n] = left_e[n] = 0.0;
  for (size_t j = n; j >= 1; j--) {
    uint64_t rows = line->all;
    for (size_t i = j; i-- > line->low[j];) {
      const double gap = line->ready[j] - line->ready[i];
      if (!(rows &= weir_line_allowed(line, i))) break;
      for (size_t r = 0; r < line->count; r++) {
        double h, g;
        if (!(rows >> r & 1)) continue;
        weir_line_cost(line, r, i, j, &h, &g);
        const double send = g + left_e[j], own = line->rows[r].beside ? 0.0 : h;
        const double caller = own + (j < n ? weir_line_taken(line, r, i, j) : 0.0);
        left_e[i] = fmin(left_e[i], send);
        left_c[i] = fmin(left_c[i], gap + fmax(h + send, caller + left_c[j]));
        line->work++;
      }
    }
  }
}

/* rest[] and next[] for the weights late[]. */
static void shortest(shadow *s) {
  const weir_line *line = s->line;
  const size_t n = line->n;
  for (size_t i = 0; i < n; i++) s->rest[i] = INFINITY;
  s->rest[n] = 0.0;
  for (size_t j = n; j >= 1; j--) {
    uint64_t rows = line->all;
    for (size_t i = j; i-- > line->low[j];) {
      const double early = 1.0 - s->late[i], within = s->late[j] - s->late[i];
      const double gap = early * (line->ready[j] - line->ready[i]) + s->rest[j];
      if (!(rows &= weir_line_allowed(line, i))) break;
      for (size_t r = 0; r < line->count; r++) {
        double h, g;
        if (!(rows >> r & 1)) continue;
        weir_line_cost(line, r, i, j, &h, &g);
        const double cost = gap + (line->rows[r].beside ? within : early) * h + s->late[j] * g +
                            (1.0 - s->late[j]) * weir_line_taken(line, r, i, j);
        if (cost >= s->rest[i]) continue;
        s->rest[i] = cost;
        s->next[i] = (uint32_t)j;
        s->row[i] = (uint8_t)r;
      }
    }
    s->line->work += (j - line->low[j]) * line->count;
  }
}

/* The path's buckets; offered as a solution.  *from, *to: tensors of its critical bucket. */
static void follow(shadow *s, weir_solution *best, size_t *from, size_t *to) {
  size_t count = 0;
  for (size_t i = 0; i < s->line->n; i = s->next[i])
    s->bucket[count++] = (weir_solve_bucket){.end = s->next[i], .row = s->row[i]};
  weir_line_offer(s->line, best, s->bucket, count);
  double left = 0.0, most = -1.0;
  for (size_t k = count; k-- > 0;) {
    const size_t i = k ? s->bucket[k - 1].end : 0;
    double h, g;
    weir_line_cost(s->line, s->bucket[k].row, i, s->bucket[k].end, &h, &g);
    left += g;
    if (s->bucket[k].compressed_s + left <= most) continue;
    most = s->bucket[k].compressed_s + left;
    *from = i;
    *to = s->bucket[k].end;
  }
}

/* Move weight `share` to a switch of lanes within the tensors [from, to). */
static void move(shadow *s, double share, size_t from, size_t to) {
  for (size_t b = 0; b <= s->line->n; b++) {
    const double there = b <= from ? 0.0 : b >= to ? 1.0 : (double)(b - from) / (double)(to - from);
    s->late[b] += share * (there - s->late[b]);
  }
}

static void play(shadow *s, weir_solution *best) {
  weir_line *line = s->line;
  weir_line_bounds *bounds = s->bounds;
  const size_t n = line->n, allowance = line->most_work / 2;
  for (size_t b = 0; b <= n; b++) s->late[b] = b == n;
  for (size_t round = 0; round < ROUNDS; round++) {
    size_t from = 0, to = n;
    shortest(s);
    follow(s, best, &from, &to);
    if (round == 0 || s->rest[0] > bounds->least_s) {
      bounds->least_s = fmax(bounds->least_s, s->rest[0]);
      memcpy(bounds->late, s->late, (n + 1) * sizeof *s->late);
      memcpy(bounds->rest, s->rest, (n + 1) * sizeof *s->rest);
    }
    if (bounds->least_s >= line->most_s * (1.0 - 1e-14) || line->work > allowance) return;
    move(s, 2.0 / ((double)round + 3.0), from, to);
  }
}

weir_status weir_line_bound(weir_line *line, weir_line_bounds *bounds, weir_solution *best) {
  const size_t n = line->n;
  weir_status status = WEIR_OK;
  *bounds = (weir_line_bounds){.left_c = malloc(4 * (n + 1) * sizeof *bounds->left_c)};
  shadow s = {.line = line, .bounds = bounds};
  s.late = malloc(2 * (n + 1) * sizeof *s.late);
  s.next = malloc(n * sizeof *s.next);
  s.row = malloc(n);
  s.bucket = malloc(n * sizeof *s.bucket);
  if (!bounds->left_c || !s.late || !s.next || !s.row || !s.bucket) {
    weir_line_bounds_free(bounds);
    status = weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", n);
    goto done;
  }
  bounds->left_e = bounds->left_c + n + 1;
  bounds->late = bounds->left_e + n + 1;
  bounds->rest = bounds->late + n + 1;
  s.rest = s.late + n + 1;
  relaxations(line, bounds->left_c, bounds->left_e);
  bounds->least_s = fmax(bounds->left_c[0], bounds->left_e[0]);
  weir_line_narrow(line, bounds->left_e);
  play(&s, best);
  weir_line_narrow(line, bounds->left_e);
done:
  free(s.late);
  free(s.next);
  free(s.row);
  free(s.bucket);
  return status;
}

void weir_line_bounds_free(weir_line_bounds *bounds) {
  free(bounds->left_c);
  *bounds = (weir_line_bounds){0};
}
