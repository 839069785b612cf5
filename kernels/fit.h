/* What compressing costs on this machine: per codec a line alpha_h + beta_h n through a few measured
 * sizes (the h of Cupcake, section 3, and the B of ByteComp).  One thread. */
#ifndef WEIR_KERNELS_FIT_H
#define WEIR_KERNELS_FIT_H

#include "kernels/codec.h"

typedef struct weir_kernel_line {
  double alpha; /* s, never negative */
  double beta;  /* s per element */
} weir_kernel_line;

typedef struct weir_kernel_cost {
  weir_kernel_line compress; /* e = g + r, select or encode, and the message */
  weir_kernel_line decode;   /* one rank's message into the sum */
} weir_kernel_cost;

static inline double weir_kernel_seconds(weir_kernel_line line, size_t n) {
  return line.alpha + line.beta * (double)n;
}

/* Buffers of up to `most` elements, filled with something like a gradient. */
typedef struct weir_kernel_probe weir_kernel_probe;
weir_status weir_kernel_probe_create(weir_kernel_probe **out, size_t most);
void weir_kernel_probe_free(weir_kernel_probe *probe); /* NULL is allowed */

/* Seconds of processor time for n <= most elements under the plan (its codec, ratio and wire format
 * count): the least of so many runs, after one that is not counted. */
weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double *compress, double *decode);

/* The line of least squared relative error through count >= 1 points. */
weir_kernel_line weir_kernel_line_through(const size_t *n, const double *seconds, size_t count);

/* Fit a plan.  Some milliseconds. */
#define WEIR_KERNEL_FIT_MOST ((size_t)3 << 18) /* elements: what the probe must hold */
weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plan,
                            weir_kernel_cost *cost);

/* Fit every codec, selections at ratio cr with the given wire format, encoders of several widths at
 * the one nearest to 4 bits. */
weir_status weir_kernel_fit_all(double cr, weir_wire_format wire,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]);
/* The plan with which weir_kernel_fit_all fits a codec. */
weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire);

#endif
