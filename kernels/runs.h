/* A sample of a tensor: runs of elements that lie together, spread over it.  No header of kernels/
 * but number.h is included, so that CUDA files can include this one. */
#ifndef WEIR_KERNELS_RUNS_H
#define WEIR_KERNELS_RUNS_H

#include "kernels/number.h"

typedef struct weir_runs {
  size_t length, count; /* of a run, in elements; runs */
  size_t places;        /* where one may begin, `length` elements apart: at least count of them */
  size_t shift;         /* of all of them, in places, round the end; another each time */
} weir_runs;

/* Where run k begins. */
WEIR_NUMBER size_t weir_run_at(const weir_runs *runs, size_t k) {
  return (k * runs->places / runs->count + runs->shift) % runs->places * runs->length;
}

#endif
