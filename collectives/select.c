#include "collectives/select.h"

#include <math.h>
#include <string.h>

#include "base/schemes.h"
#include "collectives/collective.h"

_Static_assert((int)WEIR_ALLREDUCE_COUNT <= (int)WEIR_SELECT_ROWS, "the largest table fits");

static const double weight = 0.3;                         /* of a new measurement */
static const double factor_least = 0.25, factor_most = 4; /* beyond: something else went on */

uint32_t weir_rows(weir_kind kind) {
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return WEIR_ALLREDUCE_COUNT;
    case WEIR_KIND_BROADCAST: return WEIR_BROADCAST_COUNT;
    case WEIR_KIND_ALLGATHER: return WEIR_ALLGATHER_COUNT;
    case WEIR_KIND_REDUCE_SCATTER: return WEIR_REDUCE_SCATTER_COUNT;
    case WEIR_KIND_REDUCE: return WEIR_REDUCE_COUNT;
    case WEIR_KIND_GATHER: return WEIR_GATHER_COUNT;
    case WEIR_KIND_ALLTOALL: return WEIR_ALLTOALL_COUNT;
    default: return 0;
  }
}

const char *weir_row_name(weir_kind kind, uint32_t row) {
  if (row >= weir_rows(kind)) return NULL;
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return weir_allreduces[row].name;
    case WEIR_KIND_BROADCAST: return weir_broadcasts[row].name;
    case WEIR_KIND_ALLGATHER: return weir_allgathers[row].name;
    case WEIR_KIND_REDUCE_SCATTER: return weir_reduce_scatters[row].name;
    case WEIR_KIND_REDUCE: return weir_reduces[row].name;
    case WEIR_KIND_GATHER: return weir_gathers[row].name;
    default: return weir_alltoalls[row].name;
  }
}

void weir_selector_init(weir_selector *selector, weir_group_shape shape, const weir_link *link) {
  memset(selector, 0, sizeof *selector);
  selector->shape = shape;
  selector->link = *link;
}

/* Powers of four from 64 bytes on. */
static int size_class(double bytes) {
  int c = 0;
  for (double edge = 64; c < WEIR_SELECT_SIZES - 1 && bytes >= edge; edge *= 4) c++;
  return c;
}

static double learnt(const weir_selector *s, weir_kind kind, uint32_t row, double bytes) {
  const int own = size_class(bytes);
  for (int distance = 0; distance < WEIR_SELECT_SIZES; distance++)
    for (int side = -1; side <= 1; side += 2) {
      const int at = own + side * distance;
      if (at >= 0 && at < WEIR_SELECT_SIZES && s->learnt[kind][row][at].factor > 0)
        return (double)s->learnt[kind][row][at].factor;
    }
  return 1.0;
}

static double modelled(const weir_selector *s, weir_kind kind, uint32_t row, double bytes) {
  const weir_cost cost = weir_cost_row(kind, row, s->shape, &s->link, bytes);
  return weir_cost_predict(&cost, &s->link);
}

double weir_selector_predict(const weir_selector *s, weir_kind kind, uint32_t row, double bytes) {
  if (row >= weir_rows(kind)) return INFINITY;
  return modelled(s, kind, row, bytes) * learnt(s, kind, row, bytes);
}

uint32_t weir_selector_choose(const weir_selector *s, weir_kind kind, double bytes) {
  uint32_t best = 0;
  for (uint32_t row = 1; row < weir_rows(kind); row++)
    if (weir_selector_predict(s, kind, row, bytes) < weir_selector_predict(s, kind, best, bytes))
      best = row;
  return best;
}

void weir_selector_observe(weir_selector *s, weir_kind kind, uint32_t row, double bytes,
                           double seconds) {
  if (row >= weir_rows(kind) || !(seconds > 0) || !isfinite(seconds)) return;
  const double model = modelled(s, kind, row, bytes);
  if (!(model > 0) || !isfinite(model)) return;
  const double ratio = fmin(factor_most, fmax(factor_least, seconds / model));
  float *factor = &s->learnt[kind][row][size_class(bytes)].factor;
  *factor =
      (float)(*factor > 0 ? exp((1 - weight) * log((double)*factor) + weight * log(ratio)) : ratio);
}

/* --- plans ------------------------------------------------------------------------------------ */

/* The next one that may be chosen in such a group, from WEIR_ALGORITHM_ANY on; false: there is none
 * left.  What goes on inside of machines is the usual: their own links are not measured. */
static bool next_choice(weir_plan *plan, weir_group_shape shape) {
  const weir_scheme_row *row = &weir_schemes[plan->scheme];
  const bool machines = shape.hosts > 1 && shape.hosts < shape.ranks;
  if (plan->algorithm != WEIR_ALGORITHM_ANY && plan->broadcast == 0 && row->broadcasts != 0) {
    plan->broadcast = WEIR_ALGORITHM_CHAIN;
    return true;
  }
  plan->broadcast = 0;
  while (weir_algorithm_next(plan))
    if (weir_algorithm_in(row->choice, plan->algorithm) && (plan->inside == 0 || machines))
      return true;
  return false;
}

weir_plan weir_select_plan(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                           size_t elements) {
  weir_plan best = *plan, next = *plan;
  if (plan->scheme >= WEIR_SCHEME_COUNT || plan->algorithm != WEIR_ALGORITHM_ANY ||
      shape.ranks <= 1 || !(link->alpha > 0.0 || link->beta > 0.0))
    return best;
  const size_t kept = weir_cost_kept(plan, elements);
  double least = weir_cost_plan_seconds(&best, shape, link, elements, kept, NULL);
  while (next_choice(&next, shape)) {
    const double seconds = weir_cost_plan_seconds(&next, shape, link, elements, kept, NULL);
    if (seconds < least) best = next;
    least = fmin(least, seconds);
  }
  return best;
}

void weir_select_table(weir_plan_bucket *table, size_t count, const weir_layout *layout,
                       weir_group_shape shape, const weir_link *link) {
  for (size_t g = 0, first = 0; g < count; first = table[g++].end) {
    weir_plan plan = {0};
    weir_plan_of_bucket(&table[g], &plan);
    plan =
        weir_select_plan(&plan, shape, link, layout->offset[table[g].end] - layout->offset[first]);
    weir_bucket_set_plan(&table[g], &plan);
  }
}
