/* `weir bench kernels`: what its files share. */
#ifndef WEIR_BENCH_KERNELS_H
#define WEIR_BENCH_KERNELS_H

#include <glib.h>

#include "kernels/fit.h"

enum { KERNEL_ROUNDS_MAX = 101 };

/* Inputs.  The first two are what gradients look like, the rest is what breaks selections. */
typedef enum kernel_data {
  DATA_NORMAL,
  DATA_GRADIENT,
  DATA_EQUAL,
  DATA_HUGE,
  DATA_DENORMAL,
  DATA_SORTED,
  DATA_ZERO,
  DATA_KINDS
} kernel_data;
extern const char *const kernel_data_names[DATA_KINDS];

/* What the rows work on: n floats each, but for the message. */
typedef struct kernel_bench {
  gsize n;
  int rounds;
  double cr, fit_ms;
  float *g, *r, *e; /* gradient, residual, and g + r */
  float *value, *sum;
  guint32 *index;
  guint8 *message;
  gsize room, bytes, k;
  gsize whole;  /* bytes of a message that has been shortened */
  void *coding; /* what shortening works in */
  weir_codec_context *context;
  weir_gain_curve *curve;
} kernel_bench;

typedef struct kernel_row {
  char name[48];
  kernel_data data;
  weir_status (*work)(kernel_bench *b, const struct kernel_row *row);
  /* NULL, or what it is compared with: done before it in each round, so that other work on the
   * machine meets both. */
  weir_status (*beside)(kernel_bench *b, const struct kernel_row *row);
  guint32 codec;
  weir_wire_format format;
  double cr;
  double ms[KERNEL_ROUNDS_MAX], beside_ms[KERNEL_ROUNDS_MAX];
  double median, least;
  double ratio;      /* median over the median of what is beside it; 0 where nothing is */
  double bytes_each; /* of the message, per kept element; 0 where there is none */
} kernel_row;

/* g as data says, r small, e = g + r.  For DATA_GRADIENT *from tells where g is from. */
weir_status weir_kernel_fill(kernel_bench *b, kernel_data data, const char **from);

/* The rows measured on this data, into an empty array of kernel_row. */
void weir_kernel_rows(GArray *rows, kernel_data data, double cr);
/* Warm up, then time the rows round by round, so that a ratio's two sides saw the same machine. */
weir_status weir_kernel_measure(kernel_bench *b, GArray *rows);
double weir_kernel_median(double *ms, int count); /* sorts */

/* Fitted lines of every codec, and how far they are off, compressing and decoding together, on
 * sizes that they were not fitted on.  A machine's speed drifts with what else its host does, so
 * each round measures them, fits and measures them again, and what counts of a cell is the median
 * of what each fit gave over the mean of the two.  Where these differ by more than a bound, the
 * cell says nothing of whether the fit keeps to it. */
enum { KERNEL_OTHER_SIZES = 12 };
extern const gsize kernel_other_sizes[KERNEL_OTHER_SIZES];
#define KERNEL_FIT_BOUND 10.0 /* %, wanted */
typedef struct kernel_cell {  /* medians, %; NaN where the size is beyond most */
  double error;               /* modelled / measured - 1 */
  double single;              /* of one fit, whichever way */
  double noise;               /* between a fit's two measurements, whichever way */
} kernel_cell;
typedef struct kernel_fit {
  weir_plan plan;
  weir_kernel_cost cost; /* the last alternation's */
  double ms, most_ms;    /* wall time of a fit, the median and the slowest */
  kernel_cell cell[KERNEL_OTHER_SIZES];
} kernel_fit;
typedef struct kernel_fits {
  double cr, each_ms; /* what each may take for sizes in memory */
  int rounds;
  double all_ms, all_cpu_ms, all_most_ms; /* to fit all codecs, buffers and all */
  double arms_ms, arms_most_ms;           /* those of a controller's arms */
  gsize arms;                             /* so many codecs */
  kernel_fit codec[WEIR_CODEC_COUNT];
} kernel_fits;
weir_status weir_kernel_fits(double cr, gsize most, double each_ms, int rounds, kernel_fits *out);

/* Peers on the same data: milliseconds (the median), or a negative number and why there is none. */
double weir_kernel_nth_element(kernel_bench *b, gsize k, const char **absent);
double weir_kernel_torch(kernel_bench *b, gsize k, char **absent); /* *absent: g_free() */

/* One side over another, and what it should stay below (above, for peers: as a share of them). */
typedef struct kernel_ratio {
  char name[64];
  double value, bound;
} kernel_ratio;

typedef struct kernel_result {
  GArray *rows;                    /* of kernel_row, all data */
  GArray *ratios;                  /* of kernel_ratio */
  double nth_element_ms, torch_ms; /* negative: absent */
  const char *no_nth_element;
  char *no_torch;
  const char *gradients;
  kernel_fits fits;
} kernel_result;
void weir_kernel_print_json(const kernel_bench *b, const kernel_result *r);
void weir_kernel_print_table(const kernel_bench *b, const kernel_result *r);

#endif
