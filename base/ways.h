/* The collectives that plans name.  A row here is all that names one: what it does with the
 * elements, and which algorithm does it. */
#ifndef WEIR_BASE_WAYS_H
#define WEIR_BASE_WAYS_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/plan.h>

/* What is done with the elements; the engine has a composition for each (engine/exchange.c). */
typedef enum weir_way {
  WEIR_WAY_DENSE = 0, /* all are summed by a row of weir_allreduces[] */
  WEIR_WAY_AG = 1,    /* each rank's kept elements, or its message, are all-gathered */
  WEIR_WAY_ART = 2,   /* one rank's indices are broadcast, values summed by weir_allreduces[] */
  WEIR_WAY_COMPRESSED = 3, /* messages of an encoder are summed by a row of weir_compressed[] */
  WEIR_WAY_HITOPK = 4,     /* each machine's sum is selected from */
  WEIR_WAY_COUNT = 5
} weir_way;

typedef struct weir_way_row {
  const char *name; /* in plan strings */
  weir_way way;
  const char *algorithm; /* name of the row in the way's table; NULL where it has none */
  bool fp32_only;        /* sums where rounding could not be kept */
} weir_way_row;
extern const weir_way_row weir_ways[WEIR_COLL_COUNT]; /* by weir_collective_id */

#endif
