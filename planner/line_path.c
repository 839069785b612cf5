/* The shortest path of a relaxation (see weir_line_bound): for weights late[] the division and the
 * rows whose weighted mean of ends is the least.
 *
 * Let w(i, j) be what a bucket [i, j) with an affine row adds to the mean.  As late[], ready[] and
 * bytes[] ascend, it is the sum of a term of i, one of j, and products of an ascending one of i and
 * an ascending one of j whose factors are not positive, unless the exchange takes more from the
 * caller than from the wire with each byte.  So for j < j' the difference w(i, j') - w(i, j) never
 * falls as i goes down (the quadrangle inequality): once a candidate is better than one farther
 * away it stays so.  A queue holds the candidates j that are the best for some i to come, the
 * farthest first, and bisection finds from which i on a new one is (Hirschberg and Larmore, The
 * least weight subsequence problem, 1987).  Other rows, and buckets that end with the last tensor,
 * are gone through one by one. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/line.h"

typedef struct weir_line_turn {
  uint32_t j, begin; /* [i, j) counts for i >= begin */
  uint32_t from;     /* the best one of the queue for i <= from */
} turn;

typedef struct queue {
  size_t head, tail;
  turn *at;
} queue;

/* The mean from tensor i on, with [i, j) as first bucket. */
static double mean(const weir_line_path *p, size_t r, size_t i, size_t j) {
  const weir_line *line = p->line;
  const double early = 1.0 - p->late[i], within = p->late[j] - p->late[i];
  double h, g;
  weir_line_cost(line, r, i, j, &h, &g);
  return early * (line->ready[j] - line->ready[i]) + p->rest[j] +
         (line->rows[r].beside ? within : early) * h + p->late[j] * g +
         (1.0 - p->late[j]) * weir_line_taken(line, r, i, j);
}

static void consider(weir_line_path *p, size_t r, size_t i, size_t j) {
  const double due = mean(p, r, i, j);
  /* Of equals the longest, as if all were gone through from the last tensor on. */
  if (due > p->rest[i] || (due == p->rest[i] && j <= p->next[i])) return;
  p->rest[i] = due;
  p->next[i] = (uint32_t)j;
  p->row[i] = (uint8_t)r;
}

static void consider_all(weir_line_path *p, uint64_t rows, size_t j) {
  weir_line *line = p->line;
  for (size_t i = j; i-- > line->low[j] && rows;) {
    if (!(rows &= weir_line_allowed(line, i))) break;
    for (size_t r = 0; r < line->count; r++)
      if (rows >> r & 1) consider(p, r, i, j);
    line->work += line->count;
  }
}

static bool overtakes(const weir_line_path *p, size_t r, size_t j, const turn *other, size_t i) {
  p->line->work++;
  return other->begin > i || mean(p, r, i, j) < mean(p, r, i, other->j);
}

static void enter(const weir_line_path *p, queue *q, size_t r, turn fresh) {
  size_t from = fresh.j - 1;
  while (q->tail > q->head) {
    const turn *last = &q->at[q->tail - 1];
    from = last->from < from ? last->from : from;
    if (!overtakes(p, r, fresh.j, last, from)) break;
    q->tail--;
    from = fresh.j - 1;
  }
  if (q->tail > q->head) {
    const turn *last = &q->at[q->tail - 1];
    size_t low = fresh.begin; /* overtakes at low, not at from */
    if (from <= low || !overtakes(p, r, fresh.j, last, low)) return;
    while (from - low > 1) {
      const size_t middle = low + (from - low) / 2;
      if (overtakes(p, r, fresh.j, last, middle))
        low = middle;
      else
        from = middle;
    }
    from = low;
  }
  fresh.from = (uint32_t)from;
  q->at[q->tail++] = fresh;
}

static void settle(weir_line_path *p, queue *q, size_t r, size_t i) {
  while (q->tail - q->head > 1 && q->at[q->head + 1].from >= i) q->head++;
  if (q->tail > q->head && q->at[q->head].begin <= i) consider(p, r, i, q->at[q->head].j);
  p->line->work++;
}

static uint64_t queued(const weir_line *line) {
  uint64_t rows = weir_line_affine(line);
  for (size_t r = 0; r < line->count; r++)
    if (line->rows[r].taken_per_byte_s > line->rows[r].exchange.per_byte_s)
      rows &= ~(UINT64_C(1) << r);
  return rows;
}

void weir_line_shortest(weir_line_path *p) {
  const weir_line *line = p->line;
  const size_t n = line->n;
  const uint64_t ordered = queued(line);
  queue q[WEIR_SOLVE_ROWS];
  uint32_t begin[WEIR_SOLVE_ROWS], low = (uint32_t)n;
  for (size_t r = 0; r < line->count; r++) {
    q[r] = (queue){.at = p->turns + r * n};
    begin[r] = (uint32_t)n;
  }
  for (size_t i = 0; i < n; i++) p->rest[i] = INFINITY;
  p->rest[n] = 0.0;
  for (size_t j = n; j >= 1; j--) {
    consider_all(p, j < n ? line->all & ~ordered : line->all, j);
    if (j < n && line->low[j] < low) low = (uint32_t)line->low[j];
    for (size_t r = 0; r < line->count; r++) {
      if (!(ordered >> r & 1)) continue;
      begin[r] = weir_line_begin(line, r, j, begin[r]);
      const turn fresh = {(uint32_t)j, begin[r] > low ? begin[r] : low, 0};
      if (j < n && begin[r] < j) enter(p, &q[r], r, fresh);
      settle(p, &q[r], r, j - 1);
    }
  }
}

weir_status weir_line_path_create(weir_line_path *path, weir_line *line) {
  const size_t n = line->n;
  *path = (weir_line_path){.line = line};
  path->late = malloc(2 * (n + 1) * sizeof *path->late);
  path->next = malloc(n * sizeof *path->next);
  path->row = malloc(n);
  path->turns = malloc(line->count * n * sizeof *path->turns);
  if (!path->late || !path->next || !path->row || !path->turns) {
    weir_line_path_free(path);
    return weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", n);
  }
  path->rest = path->late + n + 1;
  return WEIR_OK;
}

void weir_line_path_free(weir_line_path *path) {
  free(path->late);
  free(path->next);
  free(path->row);
  free(path->turns);
  *path = (weir_line_path){0};
}
