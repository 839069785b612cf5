/* The optimum by branch and bound (see search.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/search.h"

typedef struct exact {
  weir_search *s;
  const weir_menu_list *lists;
  double *ready;                  /* [n] of the gradients when nothing delays them */
  double (*left)[WEIR_RESOURCES]; /* [n + 1] least work of tensors i.. on each resource */
  double work;
} exact;

/* No resource can be done before its work is, nor a tensor before it has gone through alone. */
static bool hopeless(const exact *x, size_t i, const weir_menu_item *item,
                     const double done[WEIR_RESOURCES]) {
  const double most = x->s->time_s;
  for (size_t r = 0; r < WEIR_RESOURCES; r++) {
    const double servers = r == WEIR_ON_CPU ? (double)x->s->course.cores : 1.0;
    if ((done[r] + item->cost[r] + x->left[i + 1][r]) / servers >= most) return true;
  }
  return x->ready[i] + item->alone_s >= most;
}

static void descend(exact *x, size_t i, const double done[WEIR_RESOURCES]) {
  weir_search *s = x->s;
  const size_t n = s->course.n;
  if (i == n) {
    const double time_s = weir_course_time(&s->course, s->time_s);
    x->work -= 1.0;
    if (time_s >= s->time_s) return;
    s->time_s = time_s;
    memcpy(s->spare, s->of, n * sizeof *s->of);
    return;
  }
  const weir_menu_list *list = &x->lists[s->menu->class_of[i]];
  for (size_t k = 0; k < list->count && x->work > 0.0; k++) {
    const weir_menu_item *item = &list->item[k];
    x->work -= 0.05; /* looking at one takes about a twentieth of a schedule */
    if (hopeless(x, i, item, done)) continue;
    double more[WEIR_RESOURCES];
    for (size_t r = 0; r < WEIR_RESOURCES; r++) more[r] = done[r] + item->cost[r];
    weir_search_put(s, i, item);
    descend(x, i + 1, more);
  }
}

static void lay_out(exact *x) {
  const weir_search *s = x->s;
  double ready = 0.0;
  for (size_t i = 0; i < s->course.n; i++)
    x->ready[i] = ready += s->menu->profile->tensors[i].gap_s;
  for (size_t i = s->course.n; i-- > 0;)
    for (size_t r = 0; r < WEIR_RESOURCES; r++) {
      const weir_menu_list *list = &x->lists[s->menu->class_of[i]];
      double least = INFINITY;
      for (size_t k = 0; k < list->count; k++) least = fmin(least, list->item[k].cost[r]);
      x->left[i][r] = x->left[i + 1][r] + least;
    }
}

weir_status weir_search_exact(weir_search *s, const weir_menu_list *lists, double work,
                              bool *complete) {
  const size_t n = s->course.n;
  exact x = {.s = s, .lists = lists, .work = work};
  weir_status status = WEIR_OK;
  *complete = false;
  x.ready = malloc(n * sizeof *x.ready);
  x.left = calloc(n + 1, sizeof *x.left);
  if (!x.ready || !x.left) {
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", n);
    goto done;
  }
  lay_out(&x);
  double begun[WEIR_RESOURCES] = {0};
  begun[WEIR_ON_COMPUTE] = x.ready[n - 1];
  memcpy(s->spare, s->of, n * sizeof *s->of);
  descend(&x, 0, begun);
  memcpy(s->of, s->spare, n * sizeof *s->of);
  weir_search_take(s, s->of);
  *complete = x.work > 0.0;
done:
  free(x.ready);
  free(x.left);
  return status;
}
