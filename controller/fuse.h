/* Buckets for a plan that has been decided: which tensors go together, by which collective, and
 * where they are compressed, solved from the gaps of the running job and the live cost rows. */
#ifndef WEIR_CONTROLLER_FUSE_H
#define WEIR_CONTROLLER_FUSE_H

#include "controller/decide.h"

typedef struct weir_fused {
  size_t count;   /* buckets; 0: the gradient as a whole is as good */
  double step_s;  /* predicted, from the begin of the backward pass; with count 0 the whole's */
  double whole_s; /* the same plan without buckets */
} weir_fused;

/* What buckets were seen to cost beyond the model of a whole gradient (learn.c); negative: not
 * known. */
typedef struct weir_bucket_costs {
  double each_s[WEIR_ARMS]; /* of every exchange after the first, of the arm's overhead */
  double taken_s;           /* that an exchange takes from the backward pass beside it */
} weir_bucket_costs;

/* Every bucket keeps the plan's codec and ratio, with whichever of the codec's collectives or paths
 * is cheapest for it (fuse_rows.h); or it is sent whole, as bf16: the gain is never less than
 * decided.  Of an arm's
 * overhead each_s is paid by every bucket, the rest in proportion to bytes; while each_s is not
 * known, the overhead is divided as the modelled time is, between latency and bytes.  gap_s: per
 * tensor of the layout, as in planner/profile.h.  table has room for a bucket a tensor.  Buckets
 * must promise `least` (a share of the backward pass and all that follows).  WEIR_E_NOMEM. */
weir_status weir_fuse(const weir_decision_input *in, const weir_plan *plan,
                      const weir_layout *layout, const double *gap_s,
                      const weir_bucket_costs *costs, double least, weir_plan_bucket *table,
                      weir_fused *fused);

#endif
