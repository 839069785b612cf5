/* Bounds from one lane alone: the wire's, and the caller's followed by the least exchanges that can
 * be left (see line.h).
 *
 * Both go backward over the tensors: what is left from tensor i on is the least over first buckets
 * [i, j) and their rows.  In an affine row's cost the parts of i and of j stand apart, so that the
 * order of the candidates j stays while i goes down, and a heap keeps the least of them at hand.
 * Measured rows, and buckets that end with the last tensor, are gone through one by one. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/line.h"

typedef struct item {
  double key;
  uint32_t j, begin; /* [i, j) counts for i >= begin */
} item;

typedef struct heap {
  size_t count;
  item *at;
} heap;

/* What a lane spends on a bucket: fixed_s + per_byte_s * bytes. */
typedef struct lane {
  double fixed_s, per_byte_s;
  const double *left; /* [n + 1] what follows the bucket on it */
} lane;

/* Of one affine row.  A bucket ends with the later one of two lanes: `lane[1]` is the one that
 * grows faster with bytes.  As i goes down it becomes the later one, and stays it; a candidate then
 * goes from heap 0 to heap 1, but only when it is the first of heap 0.  Below the first one it may
 * have become later unseen: it is no less than its key says, so that the first one decides. */
typedef struct lanes {
  lane lane[2];
  heap heap[2];
  heap sent; /* by what the wire alone takes */
} lanes;

typedef struct relaxation {
  weir_line *line;
  double *left_c, *left_e;
  lanes *lanes; /* of each row */
} relaxation;

static void push(heap *h, item fresh) {
  size_t k = h->count++;
  for (; k && h->at[(k - 1) / 2].key > fresh.key; k = (k - 1) / 2) h->at[k] = h->at[(k - 1) / 2];
  h->at[k] = fresh;
}

static item pop(heap *h) {
  const item first = h->at[0], moved = h->at[--h->count];
  size_t k = 0;
  for (size_t child = 1; child < h->count; child = 2 * k + 1) {
    child += child + 1 < h->count && h->at[child + 1].key < h->at[child].key;
    if (h->at[child].key >= moved.key) break;
    h->at[k] = h->at[child];
    k = child;
  }
  h->at[k] = moved;
  return first;
}

/* The least one that still counts; NULL: none does. */
static const item *first_of(heap *h, size_t i) {
  while (h->count && h->at[0].begin > i) (void)pop(h);
  return h->count ? &h->at[0] : NULL;
}

/* What the bucket [i, j) with a row leaves on both lanes. */
static void consider(const relaxation *x, size_t r, size_t i, size_t j) {
  const weir_line *line = x->line;
  double h, g;
  weir_line_cost(line, r, i, j, &h, &g);
  const double gap = line->ready[j] - line->ready[i];
  const double send = g + x->left_e[j], own = line->rows[r].beside ? 0.0 : h;
  const double caller = own + (j < line->n ? weir_line_taken(line, r, i, j) : 0.0);
  x->left_e[i] = fmin(x->left_e[i], send);
  x->left_c[i] = fmin(x->left_c[i], gap + fmax(h + send, caller + x->left_c[j]));
}

static void consider_all(const relaxation *x, uint64_t rows, size_t j) {
  weir_line *line = x->line;
  for (size_t i = j; i-- > 0;) {
    if (!(rows &= weir_line_allowed(line, i))) break;
    for (size_t r = 0; r < line->count; r++)
      if (rows >> r & 1) consider(x, r, i, j);
    line->work += line->count;
  }
}

/* --- affine rows ------------------------------------------------------------------------------ */

static item item_of(const relaxation *x, const lane *of, size_t j, size_t begin) {
  const double key = x->line->ready[j] + of->fixed_s + of->per_byte_s * x->line->bytes[j];
  return (item){key + of->left[j], (uint32_t)j, (uint32_t)begin};
}

static double seconds(const relaxation *x, const lane *of, size_t i, size_t j) {
  return of->fixed_s + of->per_byte_s * (x->line->bytes[j] - x->line->bytes[i]) + of->left[j];
}

/* Let buckets [i, j) with a row count, for `begin` <= i < j. */
static void enter(const relaxation *x, size_t r, size_t j, size_t begin) {
  lanes *l = &x->lanes[r];
  const double wire = x->line->rows[r].exchange.per_byte_s * x->line->bytes[j] + x->left_e[j];
  push(&l->sent, (item){wire, (uint32_t)j, (uint32_t)begin});
  push(&l->heap[0], item_of(x, &l->lane[0], j, begin));
  x->line->work += 2;
}

static void settle(const relaxation *x, size_t r, size_t i) {
  lanes *l = &x->lanes[r];
  const item *first;
  for (; (first = first_of(&l->heap[0], i)) != NULL; x->line->work++) {
    if (seconds(x, &l->lane[1], i, first->j) < seconds(x, &l->lane[0], i, first->j)) break;
    const item changed = pop(&l->heap[0]);
    push(&l->heap[1], item_of(x, &l->lane[1], changed.j, changed.begin));
  }
  if (first) consider(x, r, i, first->j);
  if ((first = first_of(&l->heap[1], i)) != NULL) consider(x, r, i, first->j);
  if ((first = first_of(&l->sent, i)) != NULL) consider(x, r, i, first->j);
  x->line->work += 3;
}

static weir_status prepare(relaxation *x, size_t r) {
  const size_t n = x->line->n;
  const weir_solve_row *row = &x->line->rows[r];
  const weir_curve *h = &row->compress, *g = &row->exchange;
  const lane wire = {h->fixed_s + g->fixed_s, h->per_byte_s + g->per_byte_s, x->left_e};
  const lane caller = {(row->beside ? 0.0 : h->fixed_s) + row->taken_s,
                       (row->beside ? 0.0 : h->per_byte_s) + row->taken_per_byte_s, x->left_c};
  const size_t faster = wire.per_byte_s >= caller.per_byte_s;
  lanes *l = &x->lanes[r];
  l->lane[faster] = wire;
  l->lane[1 - faster] = caller;
  item *items = malloc(3 * n * sizeof *items);
  if (!items) return weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", n);
  l->sent.at = items;
  l->heap[0].at = items + n;
  l->heap[1].at = items + 2 * n;
  return WEIR_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

static void go_back(const relaxation *x, uint64_t affine) {
  weir_line *line = x->line;
  const size_t n = line->n;
  uint32_t begin[WEIR_SOLVE_ROWS];
  for (size_t r = 0; r < line->count; r++) begin[r] = (uint32_t)n;
  for (size_t j = n; j >= 1; j--) {
    consider_all(x, j < n ? line->all & ~affine : line->all, j);
    for (size_t r = 0; r < line->count; r++) {
      if (!(affine >> r & 1)) continue;
      begin[r] = weir_line_begin(line, r, j, begin[r]);
      if (j < n && begin[r] < j) enter(x, r, j, begin[r]);
      settle(x, r, j - 1);
    }
  }
}

weir_status weir_line_relax(weir_line *line, double *left_c, double *left_e) {
  const uint64_t affine = weir_line_affine(line);
  relaxation x = {.line = line, .left_c = left_c, .left_e = left_e};
  x.lanes = calloc(line->count, sizeof *x.lanes);
  weir_status status =
      x.lanes ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", line->n);
  for (size_t i = 0; i < line->n; i++) left_c[i] = left_e[i] = INFINITY;
  left_c[line->n] = left_e[line->n] = 0.0;
  for (size_t r = 0; r < line->count && status == WEIR_OK; r++)
    if (affine >> r & 1) status = prepare(&x, r);
  if (status == WEIR_OK) go_back(&x, affine);
  for (size_t r = 0; r < line->count && x.lanes; r++) free(x.lanes[r].sent.at);
  free(x.lanes);
  return status;
}
