/* What the two files of a run's figures share. */
#ifndef WEIR_LAB_REPORT_FIGURES_H
#define WEIR_LAB_REPORT_FIGURES_H

#include <stdbool.h>

#include "lab/report_plot.h"

enum { WEIR_FIGURE_WIDTH = 1180, WEIR_FIGURE_POINTS = 1200 }; /* pixels; at most so many a curve */

/* Neither so light nor so dark that they vanish where a dark page turns them over. */
#define WEIR_FIGURE_GREY "#8f9aa6"
#define WEIR_FIGURE_INK "#1f3a5f"
#define WEIR_FIGURE_SET "#94a5b8"
#define WEIR_FIGURE_COMPUTE "#8fa3b8"
#define WEIR_FIGURE_COMPRESS "#c99a2e"
#define WEIR_FIGURE_COMMUNICATE "#cf7a81"
#define WEIR_FIGURE_OVERHEAD "#8d7bb5"
#define WEIR_FIGURE_PREDICTED "#3b1d20"

/* Not a trial's step. */
bool weir_figure_committed(const weir_report_step *s);
const weir_report_step *weir_figure_last_step(const weir_report_data *data);
/* Where the axis of ratios begins. */
double weir_figure_lowest_ratio(const weir_report_data *data);
/* "set xrange", of steps or of elapsed seconds. */
void weir_figure_step_range(GString *g, const weir_report_data *data);
void weir_figure_time_range(GString *g, const weir_report_data *data);
/* Dashed lines where a phase begins; by step or by elapsed time. */
void weir_figure_mark_phases(GString *g, const weir_report_data *data, bool by_time, bool labelled);

/* A collective's colour as a column of data ("lc rgb variable"). */
unsigned weir_figure_colour(uint32_t collective);

void weir_figure_density(weir_figures *f, const weir_report_data *data);
void weir_figure_accuracy(weir_figures *f, const weir_report_data *data);
void weir_figure_bytes(weir_figures *f, const weir_report_data *data);

#endif
