/* What a plan of widths makes of the gradient: buckets, as a table and in time. */
#ifndef WEIR_CLI_PLAN_WIDTHS_H
#define WEIR_CLI_PLAN_WIDTHS_H

#include <weir/plan.h>
#include <weir/status.h>

#include "planner/bits.h"
#include "planner/curve.h"

/* Layers in the order of the statistics, which is that of the backward pass but for those that go
 * apart: neighbours of one width share a bucket, and what goes apart is one more behind all
 * others. */
typedef struct plan_widths_bucket {
  size_t last; /* its last layer, of the statistics */
  double numel;
  weir_plan plan;
} plan_widths_bucket;
typedef struct plan_widths {
  size_t count;
  plan_widths_bucket *bucket; /* in order; without what goes apart */
  double apart;               /* elements; 0: nothing goes apart */
} plan_widths;

/* The widths that were chosen, quantized ones by coded's collective.  WEIR_E_UNSUPPORTED for widths
 * and buckets that plans do not name; path is for the message.  Then *widths is empty. */
weir_status plan_widths_make(plan_widths *widths, const weir_bits_stats *stats,
                             const weir_bits *bits, const weir_plan *coded, const char *path);
void plan_widths_free(plan_widths *widths);

/* The table for policy groups:.  WEIR_E_IO. */
weir_status plan_widths_write(const plan_widths *widths, const weir_bits_stats *stats,
                              const char *out);

/* Where an iteration's time is to be foretold: who takes part, over what, and the gradient's
 * gaps. */
typedef struct plan_widths_place {
  const char *profile; /* a file (planner/profile.h) of the same tensors */
  int workers;
  double alpha_s, beta_s; /* one way; a byte */
  double burst;           /* bytes that an idle link lets through at once */
  weir_curve compress;    /* affine */
} plan_widths_place;

/* From the begin of the backward pass to the end of the last exchange (planner/solve.h), each
 * bucket compressed on the trainer's thread.  WEIR_E_PARSE where the profile has other tensors or
 * those of buckets in another order, and what weir_profile_load may return. */
weir_status plan_widths_foretell(const plan_widths *widths, const weir_bits_stats *stats,
                                 const plan_widths_place *to, double *iteration_s);

#endif
