/* The gnuplot scripts of a run's figures: what came of it (densities, accuracy, bytes), and the
 * axes and marks that all figures share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report_figures.h"
#include "lab/report_plot.h"

enum { PHASES_MOST = 16 }; /* marked; more would only be lines */

bool weir_figure_committed(const weir_report_step *s) { return s->trial == 0; }

const weir_report_step *weir_figure_last_step(const weir_report_data *data) {
  return &data->steps[data->step_count - 1];
}

/* Where the axis of ratios begins. */
double weir_figure_lowest_ratio(const weir_report_data *data) {
  double lowest = 0.001;
  for (size_t i = 0; i < data->step_count; i++) lowest = fmin(lowest, data->steps[i].cr);
  return lowest;
}

/* Where the axis of steps ends. */
static double end_of_steps(const weir_report_data *data) {
  return fmax(weir_figure_last_step(data)->step, data->steps[0].step) + 1;
}

void weir_figure_step_range(GString *g, const weir_report_data *data) {
  g_string_append_printf(g, "set xrange [%.9g:%.9g]\n", data->steps[0].step, end_of_steps(data));
}

void weir_figure_time_range(GString *g, const weir_report_data *data) {
  g_string_append_printf(g, "set xrange [0:%.9g]\n",
                         fmax(weir_figure_last_step(data)->elapsed_s, 1e-3));
}

unsigned weir_figure_colour(uint32_t collective) {
  return (unsigned)strtoul(weir_report_colour[collective] + 1, NULL, 16);
}

/* Names a phase's network above where it begins, unless that would run into the next one's name. */
static void label_phase(GString *g, const weir_report_phase *phase, double begin, double next,
                        double range) {
  enum { CHARACTER = 7, AXES = 130 }; /* pixels, rather too many */
  char text[64];
  (void)g_snprintf(text, sizeof text, "%.3g ms, %.3g Gbit/s", phase->set_latency_ms,
                   phase->set_bandwidth_gbps);
  if ((next - begin) / range * (WEIR_FIGURE_WIDTH - AXES) < (double)(CHARACTER * strlen(text)))
    return;
  g_string_append_printf(g,
                         "set label '%s' at first %.9g, graph 1.08 offset 0.3,0 tc rgb "
                         "'#46525f'\n",
                         text, begin);
}

/* Dashed lines where a phase begins; by step or by elapsed time. */
void weir_figure_mark_phases(GString *g, const weir_report_data *data, bool by_time,
                             bool labelled) {
  const weir_report_summary *s = &data->summary;
  if (s->phase_count > PHASES_MOST) return;
  const double end = end_of_steps(data);
  size_t at = 0, next = 0;
  for (size_t p = 0; p < s->phase_count && next < data->step_count; p++, at = next) {
    while (at < data->step_count && data->steps[at].epoch < s->phases[p].first_epoch) at++;
    if (at == data->step_count) break;
    for (next = at; next < data->step_count; next++)
      if (p + 1 < s->phase_count && data->steps[next].epoch >= s->phases[p + 1].first_epoch) break;
    const double x = by_time ? data->steps[at].elapsed_s : data->steps[at].step;
    if (p)
      g_string_append_printf(g,
                             "set arrow from first %.9g, graph 0 to first %.9g, graph 1 nohead "
                             "dt (6,5) lw 0.9 lc rgb '#7b8794' back\n",
                             x, x);
    if (labelled)
      label_phase(g, &s->phases[p], x, next < data->step_count ? data->steps[next].step : end,
                  end - data->steps[0].step);
  }
}

enum { CR_BINS = 51 }; /* tenths of a decade, from 1e-5 to 1 */

static void density_data(GString *g, const weir_report_data *data) {
  double share[CR_BINS][WEIR_COLL_COUNT] = {{0}}, total = 0, all[WEIR_COLL_COUNT] = {0};
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (!weir_figure_committed(s)) continue;
    const double place = (log10(s->cr) + 5) * 10;
    const int at = place < 0 ? 0 : (int)(place + 0.5);
    share[at < CR_BINS ? at : CR_BINS - 1][s->collective]++;
    all[s->collective]++;
    total++;
  }
  if (!(total > 0)) total = 1;
  g_string_append(g, "$cr << EOD\nnan nan nan\n");
  for (int b = 0; b < CR_BINS; b++) { /* bars from the ground, the highest first */
    double sum = 0;
    for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++) sum += 100 * share[b][c] / total;
    for (uint32_t c = WEIR_COLL_COUNT; c-- > 0; sum -= 100 * share[b][c] / total)
      if (share[b][c] > 0)
        g_string_append_printf(g, "%.9g %.9g %u\n", b / 10.0 - 5, sum, weir_figure_colour(c));
  }
  g_string_append(g, "EOD\n$coll << EOD\n");
  int row[WEIR_COLL_COUNT];
  (void)weir_figures_rows(data, row);
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++)
    if (row[c] >= 0)
      g_string_append_printf(g, "%d %.9g \"%.0f %%\" %u\n", row[c], 100 * all[c] / total,
                             100 * all[c] / total, weir_figure_colour(c));
  g_string_append(g, "EOD\n");
}

void weir_figure_density(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 320);
  density_data(g, data);
  g_string_append(g, "set datafile missing 'nan'\n");
  const double lowest = weir_figure_lowest_ratio(data);
  g_string_append_printf(g,
                         "set multiplot layout 1,2\nunset key\nset style fill solid 1 noborder\n"
                         "set tmargin 1\nset bmargin 3.4\n"
                         "set xrange [%.9g:0.15]\nset yrange [0:105]\n"
                         "set xtics ('0.00001' -5, '0.0001' -4, '0.001' -3, '0.01' -2, '0.1' -1,"
                         " '1 (dense)' 0)\n"
                         "set xlabel 'compression ratio'\nset ylabel '%% of steps'\n"
                         "plot $cr using 1:2:(0.09):3 with boxes lc rgb variable\n",
                         fmax(log10(lowest), -5) - 0.15);
  g_string_append(g,
                  "set xrange [0:112]\nset xtics autofreq\nset xtics 20\n"
                  "set xlabel '% of steps'\nunset ylabel\nunset grid\nset grid xtics lc rgb "
                  "'#e6eaee' lt 1 lw 0.8\n");
  int row[WEIR_COLL_COUNT];
  weir_figures_set_rows(f, row, weir_figures_rows(data, row));
  g_string_append(g,
                  "plot $coll using (0):1:(0):2:($1-0.32):($1+0.32):4 with boxxyerror lc rgb "
                  "variable, "
                  "$coll using 2:1:3 with labels left offset 0.6,0 tc rgb '#2b3540'\n"
                  "unset multiplot\n");
}

void weir_figure_accuracy(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  const weir_report_summary *s = &data->summary;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 320);
  double lowest = 1, loss_top = 0, longest = fmax(weir_figure_last_step(data)->elapsed_s, 1e-3);
  g_string_append(g, "$acc << EOD\nnan nan\n");
  for (size_t i = 0; i < s->accuracy_count; i++) {
    lowest = fmin(lowest, s->accuracy[i].accuracy);
    longest = fmax(longest, s->accuracy[i].elapsed_s);
    g_string_append_printf(g, "%.9g %.9g\n", s->accuracy[i].elapsed_s,
                           100 * s->accuracy[i].accuracy);
  }
  g_string_append(g, "EOD\n$loss << EOD\nnan nan\n");
  const size_t each = data->step_count / WEIR_FIGURE_POINTS + 1;
  for (size_t i = 0; i < data->step_count; i += each) {
    const weir_report_step *step = &data->steps[i];
    if (!weir_figure_committed(step) || isnan(step->loss)) continue;
    loss_top = fmax(loss_top, step->loss);
    g_string_append_printf(g, "%.9g %.9g\n", step->elapsed_s, step->loss);
  }
  g_string_append_printf(g,
                         "EOD\nset datafile missing 'nan'\nset multiplot layout 1,2\nunset key\n"
                         "set tmargin 1\nset bmargin 3.4\nset xlabel 'elapsed, s'\n"
                         "set xrange [0:%.9g]\n",
                         longest);
  weir_figure_mark_phases(g, data, true, false);
  g_string_append_printf(
      g,
      "set ylabel 'test accuracy, %%'\nset yrange [%.9g:%.9g]\n"
      "plot $acc using 1:2 with linespoints lw 1.6 pt 7 ps 0.45 lc rgb '" WEIR_FIGURE_INK
      "'\nset ylabel 'training loss of rank 0'\nset yrange [0:%.9g]\n"
      "plot $loss using 1:2 with lines lw 1 lc rgb '" WEIR_FIGURE_GREY
      "', "
      "$loss using 1:2 smooth bezier with lines lw 1.8 lc rgb '" WEIR_FIGURE_INK
      "'\n"
      "unset multiplot\n",
      fmin(95, floor(lowest * 20) * 5), 100.0,
      loss_top > 0 ? fmin(loss_top * 1.05, 2.5) : 1); /* guessing costs ln 10 */
}

void weir_figure_bytes(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 320);
  const size_t each = data->step_count / WEIR_FIGURE_POINTS + 1;
  double sum = 0, low = INFINITY, high = 0;
  g_string_append(g, "$sent << EOD\n");
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    const double mb = s->wire_bytes / 1e6;
    sum += mb;
    if (mb > 0) low = fmin(low, mb);
    high = fmax(high, mb);
    if (i % each == 0 || i + 1 == data->step_count)
      g_string_append_printf(g, "%.9g %.9g %.9g %.9g %u\n", s->elapsed_s, sum, s->step,
                             mb > 0 ? mb : NAN, weir_figure_colour(s->collective));
  }
  if (!(high > 0)) low = high = 1;
  g_string_append(g,
                  "EOD\nset datafile missing 'nan'\nset multiplot layout 1,2\nunset key\n"
                  "set tmargin 1\nset bmargin 3.4\n");
  weir_figure_time_range(g, data);
  weir_figure_mark_phases(g, data, true, false);
  g_string_append_printf(
      g,
      "set xlabel 'elapsed, s'\nset ylabel 'MB sent by rank 0, in all'\n"
      "set yrange [0:%.9g]\nplot $sent using 1:2 with steps lw 1.8 lc rgb '" WEIR_FIGURE_INK
      "'\nunset arrow\n",
      sum > 0 ? sum * 1.05 : 1);
  weir_figure_step_range(g, data);
  weir_figure_mark_phases(g, data, false, false);
  g_string_append_printf(g,
                         "set logscale y\nset yrange [%.9g:%.9g]\nset xlabel 'step'\n"
                         "set ylabel 'MB a step'\n"
                         "plot $sent using 3:4:5 with points pt 7 ps 0.3 lc rgb variable\n"
                         "unset multiplot\n",
                         low / 2, high * 2);
}
