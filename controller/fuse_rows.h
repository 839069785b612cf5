/* In which ways a bucket can be compressed and exchanged, and what each costs. */
#ifndef WEIR_CONTROLLER_FUSE_ROWS_H
#define WEIR_CONTROLLER_FUSE_ROWS_H

#include "controller/fuse.h"
#include "planner/solve.h"

typedef struct weir_fuse_rows {
  size_t count;
  weir_solve_row row[WEIR_SOLVE_ROWS];
  weir_plan plan[WEIR_SOLVE_ROWS];
} weir_fuse_rows;

/* The plan's own row first; then its codec's other collectives that are arms; bf16's; and the paths
 * of ByteComp's decision tree (planner/options.h) that are the cheapest for some size of a bucket.
 * Paths are for codecs that round, in host memory, and compress no more often than the plan does:
 * then what is sent is as near to the gradient as under the plan, whose progress is what is known.
 * What beyond its model the plan's arm takes is taken to be theirs, too, as nobody has seen them
 * yet. */
void weir_fuse_find_rows(const weir_decision_input *in, const weir_plan *plan,
                         const weir_bucket_costs *costs, weir_fuse_rows *rows);

#endif
