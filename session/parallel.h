/* Inside of work that is divided among the ranks: who has which items, and gathering results to
 * where they belong. */
#ifndef WEIR_SESSION_PARALLEL_H
#define WEIR_SESSION_PARALLEL_H

#include "collectives/collective.h"
#include "session/state.h"

/* begin[r] up to begin[r + 1]: the items of rank r of `ranks`, by their work (`all` together), or,
 * where that is NULL, of equal number. */
void weir_divide(const size_t *work, size_t all, size_t count, int ranks, size_t *begin);

/* Gather blocks whose lengths all ranks know, by the cheapest all-gather for blocks of at most
 * block_bytes; between steps, on all ranks.  form: a hash of what all ranks must agree in. */
weir_status weir_parallel_places(weir_session *session, uint64_t form, const weir_places *places,
                                 size_t block_bytes);

#endif
