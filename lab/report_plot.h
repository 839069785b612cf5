/* Figures: a gnuplot script goes in, SVG texts for an HTML page come out. */
#ifndef WEIR_LAB_REPORT_PLOT_H
#define WEIR_LAB_REPORT_PLOT_H

#include <glib.h>
#include <weir/plan.h>
#include <weir/status.h>

#include "lab/report_data.h"

enum { WEIR_FIGURES_MAX = 8 };

/* Colours of the collectives, the same in every figure and table; CSS "#rrggbb". */
extern const char *const weir_report_colour[WEIR_COLL_COUNT];

/* A script in the making; figures are numbered from 0. */
typedef struct weir_figures {
  GString *script;
  int count;
  double time_out_s;           /* for gnuplot to be done */
  char *svg[WEIR_FIGURES_MAX]; /* after weir_figures_draw */
} weir_figures;

void weir_figures_init(weir_figures *figures);
void weir_figures_free(weir_figures *figures);
/* Begin the next figure; pixels. */
void weir_figures_begin(weir_figures *figures, int width, int height);
/* Run gnuplot once over the whole script. */
weir_status weir_figures_draw(weir_figures *figures);

/* The figures of a run, in the order of their numbers. */
enum {
  WEIR_FIGURE_NETWORK,
  WEIR_FIGURE_PLAN,
  WEIR_FIGURE_STEP_TIME,
  WEIR_FIGURE_DENSITY,
  WEIR_FIGURE_ACCURACY,
  WEIR_FIGURE_BYTES
};
/* The row of each collective in a figure that has one a collective: the papers' five and what the
 * run used besides; -1 for the others.  Tells how many rows there are. */
unsigned weir_figures_rows(const weir_report_data *data, int row[WEIR_COLL_COUNT]);
/* "set yrange" and "set ytics" for them, the first on top. */
void weir_figures_set_rows(weir_figures *figures, const int row[WEIR_COLL_COUNT], unsigned rows);

void weir_report_figures(weir_figures *figures, const weir_report_data *data);

#endif
