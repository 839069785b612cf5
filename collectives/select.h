/* The selector: which algorithm is the cheapest.  It uses the cost rows alone, so that a new row of
 * a table is considered without a change here.  Ranks that were told the same choose the same. */
#ifndef WEIR_COLLECTIVES_SELECT_H
#define WEIR_COLLECTIVES_SELECT_H

#include "collectives/cost.h"
#include "kernels/codec.h"

/* The plan with the algorithms that are the cheapest for so many elements on such links; the first
 * ones on ties.  As it is where it names one, where the usual one is the cheapest, which a plan goes
 * by that names none, and where nothing is known of the links (alpha and beta 0). */
weir_plan weir_select_plan(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                           size_t elements);
/* The same of each bucket of a table. */
void weir_select_table(weir_plan_bucket *table, size_t count, const weir_layout *layout,
                       weir_group_shape shape, const weir_link *link);

/* Rows of a kind's table; name NULL behind the last. */
uint32_t weir_rows(weir_kind kind);
const char *weir_row_name(weir_kind kind, uint32_t row);

/* How far measured times are from the rows, per row and size, learnt as collectives run.  A plain
 * value; zero it to begin. */
enum { WEIR_SELECT_ROWS = 16, WEIR_SELECT_SIZES = 24 };
typedef struct weir_selector {
  weir_group_shape shape;
  weir_link link;
  struct {
    float factor; /* measured / predicted, averaged; 0: never measured */
  } learnt[WEIR_KIND_COUNT][WEIR_SELECT_ROWS][WEIR_SELECT_SIZES];
} weir_selector;

void weir_selector_init(weir_selector *selector, weir_group_shape shape, const weir_link *link);
/* Seconds that a row will take: its cost times what was learnt of it at such a size, or else at the
 * nearest size. */
double weir_selector_predict(const weir_selector *selector, weir_kind kind, uint32_t row,
                             double bytes);
/* The cheapest row; the lower one on ties. */
uint32_t weir_selector_choose(const weir_selector *selector, weir_kind kind, double bytes);
/* A collective took so long, by the slowest rank's clock: all ranks must be told the same. Nonsense
 * (not finite, not positive) is ignored. */
void weir_selector_observe(weir_selector *selector, weir_kind kind, uint32_t row, double bytes,
                           double seconds);

#endif
