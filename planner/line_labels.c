/* The exact search: triples (C, P, E) pruned by dominance and bounds (see line.h). */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/line.h"

enum { CELLS = 256 };

/* Tensors before `node` are planned; the caller's lane ends at c, the thread at p, the wire
 * at e. */
typedef struct label {
  double c, p, e;
  uint32_t from, parent; /* node the last bucket begins at, and the label there */
  uint32_t row;
} label;

typedef struct search {
  weir_line *line;
  const weir_line_bounds *bounds;
  size_t *first; /* [n + 2] labels of node j: [first[j], first[j + 1]) */
  label *labels;
  size_t room;
  label *fresh; /* candidates of the node being made */
  size_t fresh_count, fresh_room;
  double soonest; /* from a node to the earliest end of compression of the bucket that follows */
  double origin, width;      /* cells of c */
  double least_e[CELLS + 1]; /* of the candidates in cells before this one */
  size_t beam;
  bool dropped; /* something that was not dominated */
} search;

static weir_status add(search *s, label fresh) {
  if (s->fresh_count == s->fresh_room) {
    const size_t more = s->fresh_room ? 2 * s->fresh_room : 1024;
    label *grown = realloc(s->fresh, more * sizeof *grown);
    if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for %zu open plans", more);
    s->fresh = grown;
    s->fresh_room = more;
  }
  s->fresh[s->fresh_count++] = fresh;
  return WEIR_OK;
}

/* Without a thread: is there a candidate in an earlier cell with no later e?  If not, this one may
 * dominate those of later cells. */
static bool dominated(search *s, const label *fresh) {
  const double cell = (fresh->c - s->origin) / s->width;
  const size_t at = cell < 0.0 ? 0 : cell < CELLS ? (size_t)cell : CELLS - 1;
  if (s->least_e[at] <= fresh->e) return true;
  for (size_t k = at + 1; k <= CELLS && s->least_e[k] > fresh->e; k++) s->least_e[k] = fresh->e;
  return false;
}

static bool promising(const search *s, const label *l, size_t j) {
  const weir_line_bounds *b = s->bounds;
  const double most = s->line->most_s;
  return l->c + b->left_c[j] < most && l->e + b->left_e[j] < most &&
         l->c + b->late[j] * (l->e - l->c) + b->rest[j] < most;
}

/* Extend the labels of node i by the bucket [i, j) with a row.  They ascend in c, and without a
 * thread descend in e, so that once compression is what the wire waits for all later ones are
 * dominated. */
static weir_status extend(search *s, size_t i, size_t j, size_t row) {
  weir_line *line = s->line;
  const bool beside = line->rows[row].beside;
  const double gap = line->ready[j] - line->ready[i];
  /* The step ends with the last exchange, whatever that takes from the caller. */
  const double taken = j < line->n ? weir_line_taken(line, row, i, j) : 0.0;
  double h, g;
  weir_line_cost(line, row, i, j, &h, &g);
  for (size_t k = s->first[i]; k < s->first[i + 1]; k++, line->work++) {
    const label *from = &s->labels[k];
    label to = {
        from->c + gap + (beside ? 0.0 : h), from->p, 0.0, (uint32_t)i, (uint32_t)k, (uint32_t)row};
    const double free_at = to.c;
    if (to.c + taken + s->bounds->left_c[j] >= line->most_s) break;
    if (beside) to.p = fmax(to.p, to.c) + h;
    to.e = fmax(beside ? to.p : to.c, from->e) + g;
    to.c += taken;
    /* What lies before the earliest next use makes no difference. */
    to.p = fmax(to.p, to.c);
    to.e = fmax(to.e, to.c + s->soonest);
    if (promising(s, &to, j) && (line->beside || !dominated(s, &to))) {
      const weir_status status = add(s, to);
      if (status != WEIR_OK) return status;
    }
    if (!line->beside && free_at >= from->e) break;
  }
  return WEIR_OK;
}

static int by_c_p_e(const void *a, const void *b) {
  const label *x = a, *y = b;
  if (x->c != y->c) return x->c < y->c ? -1 : 1;
  if (x->e != y->e) return x->e < y->e ? -1 : 1;
  return (x->p > y->p) - (x->p < y->p);
}

/* Drop what another candidate dominates; they are sorted by c. */
static size_t undominated(search *s) {
  size_t kept = 0;
  for (size_t k = 0; k < s->fresh_count; k++) {
    const label l = s->fresh[k];
    bool keep = true;
    if (!s->line->beside) {
      keep = !kept || l.e < s->fresh[kept - 1].e;
    } else {
      for (size_t d = kept; d-- > 0 && keep; s->line->work++)
        keep = s->fresh[d].e > l.e || s->fresh[d].p > l.p;
    }
    if (keep) s->fresh[kept++] = l;
  }
  return kept;
}

/* With a beam: of the candidates those of the least bounds, and the earliest on each lane. */
typedef struct ranked {
  double bound;
  size_t at;
} ranked;

static int by_bound(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

static weir_status narrow(search *s, size_t j, size_t *kept) {
  const weir_line_bounds *b = s->bounds;
  ranked *order = malloc(*kept * sizeof *order);
  if (!order) return weir_fail(WEIR_E_NOMEM, "no memory for %zu open plans", *kept);
  for (size_t k = 0; k < *kept; k++) {
    const label *l = &s->fresh[k];
    order[k] = (ranked){fmax(fmax(l->c + b->left_c[j], l->e + b->left_e[j]),
                             l->c + b->late[j] * (l->e - l->c) + b->rest[j]),
                        k};
  }
  order[0].bound = order[*kept - 1].bound = 0.0;
  qsort(order, *kept, sizeof *order, by_bound);
  qsort(order, s->beam, sizeof *order, by_place);
  for (size_t k = 0; k < s->beam; k++) s->fresh[k] = s->fresh[order[k].at];
  *kept = s->beam;
  s->dropped = true;
  free(order);
  return WEIR_OK;
}

static weir_status settle(search *s, size_t j) {
  qsort(s->fresh, s->fresh_count, sizeof *s->fresh, by_c_p_e);
  size_t kept = undominated(s);
  weir_status status = WEIR_OK;
  if (s->beam && kept > s->beam) status = narrow(s, j, &kept);
  if (status != WEIR_OK) return status;
  const size_t total = s->first[j] + kept;
  if (total > s->room) {
    const size_t more = 2 * total;
    label *grown = realloc(s->labels, more * sizeof *grown);
    if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for %zu open plans", more);
    s->labels = grown;
    s->room = more;
  }
  for (size_t k = 0; k < kept; k++) s->labels[s->first[j] + k] = s->fresh[k];
  s->first[j + 1] = total;
  s->fresh_count = 0;
  return WEIR_OK;
}

/* How soon after the end of the caller's work at node j another bucket can be compressed. */
static void prepare(search *s, size_t j) {
  const weir_line *line = s->line;
  s->soonest = 0.0;
  if (j < line->n) {
    s->soonest = INFINITY;
    for (size_t r = 0; r < line->count; r++)
      if (line->all & weir_line_allowed(line, j) & UINT64_C(1) << r) {
        double h, g;
        weir_line_cost(line, r, j, j + 1, &h, &g);
        s->soonest = fmin(s->soonest, h);
      }
    s->soonest += line->ready[j + 1] - line->ready[j];
  }
  s->origin = line->ready[j];
  s->width = fmax((line->most_s - s->bounds->left_c[j] - s->origin) / CELLS, 1e-300);
  for (size_t k = 0; k <= CELLS; k++) s->least_e[k] = INFINITY;
}

static weir_status node(search *s, size_t j) {
  weir_line *line = s->line;
  uint64_t rows = line->all;
  weir_status status = WEIR_OK;
  prepare(s, j);
  for (size_t i = j; i-- > line->low[j] && status == WEIR_OK;) {
    if (!(rows &= weir_line_allowed(line, i))) break;
    if (s->first[i] == s->first[i + 1]) continue;
    for (size_t r = 0; r < line->count && status == WEIR_OK; r++)
      if (rows >> r & 1) status = extend(s, i, j, r);
  }
  return status == WEIR_OK ? settle(s, j) : status;
}

static void offer_least(search *s, weir_solution *best, weir_solve_bucket *bucket) {
  const size_t n = s->line->n;
  size_t winner = s->first[n], count = 0;
  if (winner == s->first[n + 1]) return;
  for (size_t k = winner; k < s->first[n + 1]; k++)
    if (s->labels[k].e < s->labels[winner].e) winner = k;
  for (size_t at = n, k = winner; at; at = s->labels[k].from, k = s->labels[k].parent) count++;
  size_t g = count;
  for (size_t at = n, k = winner; at; at = s->labels[k].from, k = s->labels[k].parent)
    bucket[--g] = (weir_solve_bucket){.end = at, .row = s->labels[k].row};
  weir_line_offer(s->line, best, bucket, count);
}

weir_status weir_line_labels(weir_line *line, const weir_line_bounds *bounds, size_t beam,
                             weir_solution *best, bool *complete) {
  const size_t n = line->n;
  search s = {.line = line, .bounds = bounds, .beam = beam};
  s.first = malloc((n + 2) * sizeof *s.first);
  weir_solve_bucket *bucket = malloc(n * sizeof *bucket);
  weir_status status = WEIR_OK;
  *complete = false;
  if (!s.first || !bucket) {
    status = weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", n);
    goto done;
  }
  s.first[0] = 0;
  prepare(&s, 0);
  status = add(&s, (label){0});
  if (status == WEIR_OK) status = settle(&s, 0);
  for (size_t j = 1; j <= n && status == WEIR_OK; j++) {
    status = node(&s, j);
    if (line->work > line->most_work) goto done;
  }
  if (status == WEIR_OK) offer_least(&s, best, bucket);
  *complete = !s.dropped;
done:
  free(s.first);
  free(s.labels);
  free(s.fresh);
  free(bucket);
  return status;
}
