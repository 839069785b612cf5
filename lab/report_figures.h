/* What the two files of a run's figures share. */
#ifndef WEIR_LAB_REPORT_FIGURES_H
#define WEIR_LAB_REPORT_FIGURES_H

#include <stdbool.h>

#include "lab/report_plot.h"

enum { WEIR_FIGURE_WIDTH = 1180, WEIR_FIGURE_POINTS = 1200 }; /* pixels; at most so many a curve */

#define WEIR_FIGURE_GREY "#8f9aa6"
#define WEIR_FIGURE_INK "#1f3a5f"

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

void weir_figure_density(weir_figures *f, const weir_report_data *data);
void weir_figure_accuracy(weir_figures *f, const weir_report_data *data);
void weir_figure_bytes(weir_figures *f, const weir_report_data *data);

#endif
