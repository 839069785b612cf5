/* The selector: which algorithm is the cheapest.  It uses the cost rows alone, so that a new row of
 * a table is considered without a change here.  Ranks that were told the same choose the same. */
#ifndef WEIR_COLLECTIVES_SELECT_H
#define WEIR_COLLECTIVES_SELECT_H

#include "collectives/cost.h"
#include "kernels/codec.h"

/* The plan with the algorithms that are the cheapest on such links for so many elements, of which
 * it keeps so many (cost.h); the first ones on ties.  As it is where it names one, where the usual
 * one is the cheapest, which a plan goes by that names none, and where nothing is known of the
 * links (alpha and beta 0). */
weir_plan weir_select_plan(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                           size_t elements, size_t kept);
/* The same of each bucket of a table. */
void weir_select_table(weir_plan_bucket *table, size_t count, const weir_layout *layout,
                       weir_group_shape shape, const weir_link *link);

/* The cheapest row of a kind's table; the first one on ties, and where nothing is known of the
 * links. */
uint32_t weir_select_row(weir_kind kind, weir_group_shape shape, const weir_link *link,
                         double bytes);

/* Rows of a kind's table; name NULL behind the last. */
uint32_t weir_rows(weir_kind kind);
const char *weir_row_name(weir_kind kind, uint32_t row);

#endif
