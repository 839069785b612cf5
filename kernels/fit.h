/* What compressing costs on this machine: per codec lines alpha_h + beta_h n between knots (the h
 * of Cupcake, section 3, and the B of ByteComp).  One thread.
 *
 * One line would not do.  Selecting goes another way below 4 * WEIR_SAMPLE elements, and what lies
 * in the second cache, in the last and in memory has slopes of its own.  Sizes that fit into the
 * last cache are measured as they are, and so are larger ones as far as the time that a codec may
 * take allows: where a step's bytes begin to leave that cache, and one of which it touches about
 * six times as many, behind which a line goes on.  All are run in up to three passes, of which the
 * lesser of two or the median counts: other work of some milliseconds is in one.  Where the time
 * does not allow sizes in memory, each codec is measured on a window whose data were put out of the
 * caches first, and between the cache and memory the time goes from the one line to the other as
 * the step's data outgrow the cache (in fit_large.c): quicker, and less exact.
 *
 * Meant is a training step on data as the step before left them: gradient, residual and sum in a
 * cache as far as they fit.  A curve holds for one plan: other ratios have other curves. */
#ifndef WEIR_KERNELS_FIT_H
#define WEIR_KERNELS_FIT_H

#include "kernels/codec.h"

/* Most knots of a curve, and the largest size that is run whatever it takes. */
#define WEIR_KERNEL_KNOTS 24
#define WEIR_KERNEL_FIT_MOST ((size_t)524000)

typedef struct weir_kernel_line {
  double alpha; /* s */
  double beta;  /* s per element */
} weir_kernel_line;

typedef struct weir_kernel_curve {
  size_t knots;                /* >= 2 */
  size_t n[WEIR_KERNEL_KNOTS]; /* elements, ascending */
  double seconds[WEIR_KERNEL_KNOTS];
} weir_kernel_curve;

typedef struct weir_kernel_cost {
  weir_kernel_curve compress; /* e = g + r, select or encode, and the message */
  weir_kernel_curve decode;   /* one rank's message into the sum */
} weir_kernel_cost;

/* The line for n elements: through the knots on both sides of n, that of the first two below them,
 * and above them that of the last and the nearest with at most 0.55 as many elements, as far as it
 * rises (else through the last and the origin): one of two that are close turns with their noise.
 */
weir_kernel_line weir_kernel_line_at(const weir_kernel_curve *curve, size_t n);
/* One more knot, beyond the others. */
void weir_kernel_append(weir_kernel_curve *curve, size_t n, double seconds);
/* Seconds, never negative. */
double weir_kernel_seconds(const weir_kernel_curve *curve, size_t n);

/* Buffers of up to `most` elements, filled with something like a gradient. */
typedef struct weir_kernel_probe weir_kernel_probe;
weir_status weir_kernel_probe_create(weir_kernel_probe **out, size_t most);
void weir_kernel_probe_free(weir_kernel_probe *probe); /* NULL is allowed */

/* Seconds of processor time for n <= most elements under the plan (its codec, ratio and wire format
 * count), all that a step does: the means of the middle half of so many runs (1..WEIR_KERNEL_RUNS),
 * after some that are not counted; of short ones each is the mean of many, one after the other
 * (with none before them, each is one).  Each run has another gradient: what a codec does may hang
 * on its values. */
#define WEIR_KERNEL_RUNS 32
weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n,
                             int warm_ups, int runs, double *compress, double *decode);

/* What curves are wanted for, and what they may take. */
typedef struct weir_kernel_wanted {
  size_t from, to; /* elements */
  int runs;        /* of a size in a pass, at the most */
  double each_s;   /* processor time that a plan's fit may take for the sake of sizes that it could
                      do without; 0: it does without them */
} weir_kernel_wanted;
/* With so much each plan is fitted on sizes in memory. */
#define WEIR_KERNEL_FIT_S 85e-3

/* Curves for so many plans, one after the other; only the knots on the way to the wanted sizes are
 * measured.  The probe has room for at least WEIR_KERNEL_WINDOW elements; with
 * WEIR_KERNEL_FIT_MOST sizes up to that are run, with weir_kernel_fit_room(each_s) all that each_s
 * is good for. */
#define WEIR_KERNEL_WINDOW ((size_t)131000)
weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                            const weir_kernel_wanted *wanted, weir_kernel_cost *cost);
size_t weir_kernel_fit_room(double each_s);

/* Fit every codec for every size, selections at ratio cr with the given wire format, encoders of
 * several widths at the one nearest to 4 bits. */
weir_status weir_kernel_fit_all(double cr, weir_wire_format wire, double each_s,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]);
/* The plan with which weir_kernel_fit_all fits a codec. */
weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire);

#endif
