#include "controller/fuse.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/fuse_rows.h"

static weir_status make_profile(const weir_layout *layout, const double *gap_s,
                                weir_profile *profile) {
  static char unnamed[] = "tensor";
  profile->count = layout->tensors;
  profile->tensors = calloc(layout->tensors, sizeof *profile->tensors);
  if (!profile->tensors)
    return weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", layout->tensors);
  for (size_t t = 0; t < layout->tensors; t++)
    profile->tensors[t] = (weir_profile_tensor){
        unnamed, (double)(layout->offset[t + 1] - layout->offset[t]), gap_s[t]};
  return WEIR_OK;
}

static void write_table(const weir_solution *best, const weir_fuse_rows *rows,
                        weir_plan_bucket *table) {
  memset(table, 0, best->count * sizeof *table);
  for (size_t k = 0; k < best->count; k++) {
    const weir_solve_bucket *bucket = &best->bucket[k];
    table[k].end = (uint32_t)bucket->end;
    table[k].place = rows->row[bucket->row].beside ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER;
    weir_bucket_set_plan(&table[k], &rows->plan[bucket->row]);
  }
}

/* One bucket is the gradient as a whole, unless it goes by a path, as no arm does. */
static bool divides(const weir_solution *best, const weir_fuse_rows *rows) {
  return best->count > 1 || rows->plan[best->bucket[0].row].scheme == WEIR_SCHEME_PATH;
}

weir_status weir_fuse(const weir_decision_input *in, const weir_plan *plan,
                      const weir_layout *layout, const double *gap_s,
                      const weir_bucket_costs *costs, double least, weir_plan_bucket *table,
                      weir_fused *fused) {
  *fused = (weir_fused){0};
  weir_profile profile = {0};
  weir_fuse_rows rows;
  weir_solution best = {0};
  weir_status status = make_profile(layout, gap_s, &profile);
  if (status != WEIR_OK) return status;
  weir_fuse_find_rows(in, plan, costs, &rows);
  weir_solve_bucket whole = {.end = layout->tensors, .row = 0};
  fused->step_s = fused->whole_s = weir_solve_evaluate(&profile, rows.row, &whole, 1);
  status = weir_solve(&profile, rows.row, rows.count, NULL, &best);
  if (status == WEIR_OK && divides(&best, &rows) && best.step_s < (1.0 - least) * fused->whole_s) {
    fused->count = best.count;
    fused->step_s = best.step_s;
    write_table(&best, &rows, table);
  }
  weir_solution_free(&best);
  free(profile.tensors);
  return status;
}
