/* What compressing costs on this machine: per codec times at a few sizes and lines alpha_h + beta_h
 * n between them (the h of Cupcake, section 3, and the B of ByteComp).  One line would not do: what
 * runs in the second cache, in the last and in memory has slopes of its own, and selecting goes
 * another way below 4 * WEIR_SAMPLE elements.  One thread. */
#ifndef WEIR_KERNELS_FIT_H
#define WEIR_KERNELS_FIT_H

#include "kernels/codec.h"

/* Elements at which times are measured. */
#define WEIR_KERNEL_KNOTS 8
extern const size_t weir_kernel_knots[WEIR_KERNEL_KNOTS];
#define WEIR_KERNEL_FIT_MOST ((size_t)3 << 20) /* the last of them */

typedef struct weir_kernel_line {
  double alpha; /* s */
  double beta;  /* s per element */
} weir_kernel_line;

typedef struct weir_kernel_curve {
  double seconds[WEIR_KERNEL_KNOTS];
} weir_kernel_curve;

typedef struct weir_kernel_cost {
  weir_kernel_curve compress; /* e = g + r, select or encode, and the message */
  weir_kernel_curve decode;   /* one rank's message into the sum */
} weir_kernel_cost;

/* The line for n elements: through the knots on both sides of n, that of the first two below them,
 * and above the last through it and the origin, for in memory each element costs the same. */
weir_kernel_line weir_kernel_line_at(const weir_kernel_curve *curve, size_t n);
/* Seconds, never negative. */
double weir_kernel_seconds(const weir_kernel_curve *curve, size_t n);

/* Buffers of up to `most` elements, filled with something like a gradient. */
typedef struct weir_kernel_probe weir_kernel_probe;
weir_status weir_kernel_probe_create(weir_kernel_probe **out, size_t most);
void weir_kernel_probe_free(weir_kernel_probe *probe); /* NULL is allowed */

/* Seconds of processor time for n <= most elements under the plan (its codec, ratio and wire format
 * count), all that a step does: the least of so many runs, after one that is not counted. */
weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double *compress, double *decode);

/* Measure a plan at the knots, with a probe of WEIR_KERNEL_FIT_MOST elements.  Some milliseconds:
 * what all codecs begin with, e = g + r, is measured once a probe. */
weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plan,
                            weir_kernel_cost *cost);

/* Fit every codec, selections at ratio cr with the given wire format, encoders of several widths at
 * the one nearest to 4 bits. */
weir_status weir_kernel_fit_all(double cr, weir_wire_format wire,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]);
/* The plan with which weir_kernel_fit_all fits a codec. */
weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire);

#endif
