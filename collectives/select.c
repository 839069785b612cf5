#include "collectives/select.h"

#include <math.h>

#include "base/schemes.h"
#include "collectives/collective.h"

uint32_t weir_rows(weir_kind kind) {
  switch (kind) {
    case WEIR_KIND_ALLREDUCE: return WEIR_ALLREDUCE_COUNT;
    case WEIR_KIND_BROADCAST: return WEIR_BROADCAST_COUNT;
    case WEIR_KIND_ALLGATHER: return WEIR_ALLGATHER_COUNT;
    case WEIR_KIND_REDUCE_SCATTER: return WEIR_REDUCE_SCATTER_COUNT;
    case WEIR_KIND_REDUCE: return WEIR_REDUCE_COUNT;
    case WEIR_KIND_GATHER: return WEIR_GATHER_COUNT;
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
    default: return weir_gathers[row].name;
  }
}

uint32_t weir_select_row(weir_kind kind, weir_group_shape shape, const weir_link *link,
                         double bytes) {
  uint32_t best = 0;
  double least = INFINITY;
  for (uint32_t row = 0; row < weir_rows(kind); row++) {
    const weir_cost cost = weir_cost_row(kind, row, shape, link, bytes);
    const double seconds = weir_cost_predict(&cost, link);
    if (seconds < least) best = row;
    least = fmin(least, seconds);
  }
  return best;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* The next of a list's broadcasts, after the binomial one; false: there is none left. */
static bool next_broadcast(weir_plan *plan) {
  const uint32_t broadcasts = weir_schemes[plan->scheme].broadcasts;
  if (plan->algorithm == WEIR_ALGORITHM_ANY) return false;
  while (++plan->broadcast < WEIR_ALGORITHM_COUNT)
    if (weir_algorithm_in(broadcasts, plan->broadcast)) return true;
  plan->broadcast = 0;
  return false;
}

/* May it be chosen in such a group?  NCCL's ring and tree where it can be told, and nothing is
 * rounded. */
static bool is_choice(const weir_plan *plan, weir_group_shape shape) {
  const bool machines = shape.hosts > 1 && shape.hosts < shape.ranks;
  if (weir_sums_as_told(plan)) return shape.told && !weir_sums_rounded(plan);
  return weir_algorithm_in(weir_schemes[plan->scheme].choice, plan->algorithm) &&
         (plan->inside == 0 || machines);
}

/* The next one that may be chosen in such a group, from WEIR_ALGORITHM_ANY on; false: there is none
 * left.  What goes on inside of machines is the usual. */
static bool next_choice(weir_plan *plan, weir_group_shape shape) {
  if (next_broadcast(plan)) return true;
  while (weir_algorithm_next(plan))
    if (is_choice(plan, shape)) return true;
  return false;
}

weir_plan weir_select_plan(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                           size_t elements, size_t kept) {
  weir_plan best = *plan, next = *plan;
  if (plan->scheme >= WEIR_SCHEME_COUNT || plan->algorithm != WEIR_ALGORITHM_ANY ||
      shape.ranks <= 1 || !(link->alpha > 0.0 || link->beta > 0.0))
    return best;
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
    const size_t elements = layout->offset[table[g].end] - layout->offset[first];
    plan = weir_select_plan(&plan, shape, link, elements, weir_cost_kept(&plan, elements));
    weir_bucket_set_plan(&table[g], &plan);
  }
}
