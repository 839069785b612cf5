/* Exact fusion for measured costs: the joint search with a single row (see fusion.h). */
#include <stdlib.h>

#include "base/base.h"
#include "planner/fusion.h"
#include "planner/solve.h"

_Static_assert((int)WEIR_FUSION_LABEL_TENSORS == (int)WEIR_SOLVE_TENSORS, "the same search");

weir_status weir_fusion_labels(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, size_t work, weir_fusion *best) {
  *best = (weir_fusion){0};
  const weir_solve_row row = {.compress = *compress, .exchange = *communicate};
  const weir_solve_limits limits = {.work = work ? work : WEIR_FUSION_WORK};
  weir_solution solution;
  const weir_status status = weir_solve(profile, &row, 1, &limits, &solution);
  if (status != WEIR_OK) return status;
  best->end = malloc(solution.count * sizeof *best->end);
  if (best->end) {
    for (size_t k = 0; k < solution.count; k++) best->end[k] = solution.bucket[k].end;
    best->buckets = solution.count;
    best->iteration_s =
        weir_fusion_evaluate(profile, compress, communicate, best->end, best->buckets);
    best->least_s = solution.least_s;
  }
  weir_solution_free(&solution);
  return best->end ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for a fusion");
}
