/* The gnuplot scripts of a run's figures.  Every range is given, so that a run of one step or
 * without measurements draws too; nothing but numbers and our own names goes into a script. */
#include <math.h>
#include <stdlib.h>

#include "lab/report_figures.h"
#include "lab/report_plot.h"

/* One committed step, or the mean of several. */
typedef struct bin {
  double step, compute, compress, comm, overhead, predicted;
} bin;

/* Time of a trial's steps is charged to the committed step after it. */
static bin *make_bins(const weir_report_data *data, size_t *count) {
  const size_t each = data->step_count / WEIR_FIGURE_POINTS + 1;
  bin *bins = g_new0(bin, data->step_count / each + 2);
  size_t filled = 0, n = 0;
  double trials = 0;
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    const double overhead = isnan(s->overhead_ms) ? 0 : s->overhead_ms;
    if (!weir_figure_committed(s)) {
      trials += s->compute_ms + s->compress_ms + s->comm_ms + overhead;
      continue;
    }
    bin *b = &bins[n];
    if (!filled) b->step = s->step;
    b->compute += s->compute_ms / (double)each;
    b->compress += s->compress_ms / (double)each;
    b->comm += s->comm_ms / (double)each;
    b->overhead += (overhead + trials) / (double)each;
    b->predicted += (s->compute_ms + s->compress_ms + s->predicted_comm_ms) / (double)each;
    trials = 0;
    if (++filled == each) n++, filled = 0;
  }
  *count = n ? n : 1;
  return bins;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Where to end the axis so that a few outliers do not flatten everything else. */
static double step_time_top(const bin *bins, size_t count) {
  double *total = g_new(double, count);
  for (size_t i = 0; i < count; i++)
    total[i] = bins[i].compute + bins[i].compress + bins[i].comm + bins[i].overhead;
  qsort(total, count, sizeof *total, ascending);
  const double most = total[count - 1], usual = total[(count - 1) * 98 / 100] * 1.3;
  g_free(total);
  return fmax(fmin(most * 1.05, usual), 1e-3);
}

static double field(const weir_report_step *s, size_t offset) {
  return *(const double *)(const void *)((const char *)s + offset);
}

/* A logarithmic axis around two columns' values. */
static void log_range(GString *g, const weir_report_data *data, size_t a, size_t b) {
  double low = INFINITY, high = 0;
  for (size_t i = 0; i < data->step_count; i++)
    for (int j = 0; j < 2; j++) {
      const double value = field(&data->steps[i], j ? b : a);
      if (!(value > 0)) continue;
      low = fmin(low, value);
      high = fmax(high, value);
    }
  if (!(high > 0)) low = high = 1;
  g_string_append_printf(g, "set logscale y\nset yrange [%.9g:%.9g]\n", low / 2, high * 2);
}

static void network_data(GString *g, const weir_report_data *data) {
  const size_t each = data->step_count / WEIR_FIGURE_POINTS + 1;
  g_string_append(g, "$net << EOD\n");
  for (size_t i = 0; i < data->step_count; i += each) {
    const weir_report_step *s = &data->steps[i];
    g_string_append_printf(g, "%.9g %.9g %.9g %.9g %.9g\n", s->step, s->set_latency_ms,
                           s->latency_ms, s->set_bandwidth_gbps, s->bandwidth_gbps);
  }
  g_string_append(g, "EOD\nset datafile missing 'nan'\n");
}

static void network_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 450);
  network_data(g, data);
  g_string_append(g, "set multiplot layout 2,1\n");
  weir_figure_step_range(g, data);
  static const struct {
    const char *label;
    size_t set, measured;
    int column;
  } panel[2] = {{"one-way latency, ms", offsetof(weir_report_step, set_latency_ms),
                 offsetof(weir_report_step, latency_ms), 2},
                {"bandwidth, Gbit/s", offsetof(weir_report_step, set_bandwidth_gbps),
                 offsetof(weir_report_step, bandwidth_gbps), 4}};
  for (int i = 0; i < 2; i++) {
    g_string_append(g, "unset arrow\nunset label\n");
    weir_figure_mark_phases(g, data, false, !i);
    log_range(g, data, panel[i].set, panel[i].measured);
    g_string_append_printf(g, "set ylabel '%s'\n%s", panel[i].label,
                           i ? "set xlabel 'step'\nunset key\nset tmargin 0.6\nset bmargin 3.2\n"
                             : "set tmargin 4.4\nset bmargin 1\nset format x ''\n"
                               "set key at graph 1, graph 1.46 right horizontal\n");
    g_string_append_printf(g,
                           "plot $net using 1:%d with steps lw 6 lc rgb '#aeb9c4' title 'set', "
                           "$net using 1:%d with lines lw 1.6 lc rgb '" WEIR_FIGURE_INK
                           "' title 'measured'\nset format x\n",
                           panel[i].column, panel[i].column + 1);
  }
  g_string_append(g, "unset multiplot\n");
}

/* Stretches of equal plan as horizontal segments, one block a collective. */
static void plan_data(GString *g, const weir_report_data *data) {
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++) {
    g_string_append_printf(g, "$run%u << EOD\n", (unsigned)c);
    g_string_append(g, "nan nan nan\n"); /* a block may not be empty */
    const weir_report_step *from = NULL;
    for (size_t i = 0; i <= data->step_count; i++) {
      const weir_report_step *s = i < data->step_count ? &data->steps[i] : NULL;
      if (s && !weir_figure_committed(s)) continue;
      const bool same = s && from && s->cr == from->cr && s->collective == from->collective;
      if (same) continue;
      if (from && from->collective == c)
        g_string_append_printf(g, "%.9g %.9g %.9g\n", from->step, from->cr,
                               s ? s->step : weir_figure_last_step(data)->step + 1);
      from = s;
    }
    g_string_append_printf(g, "EOD\n$try%u << EOD\nnan nan\n", (unsigned)c);
    for (size_t i = 0; i < data->step_count; i++)
      if (!weir_figure_committed(&data->steps[i]) && data->steps[i].collective == c)
        g_string_append_printf(g, "%.9g %.9g\n", data->steps[i].step, data->steps[i].cr);
    g_string_append(g, "EOD\n");
  }
}

static void plan_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 430);
  plan_data(g, data);
  const double lowest = weir_figure_lowest_ratio(data);
  g_string_append(g, "set datafile missing 'nan'\nset multiplot\nunset key\n");
  weir_figure_step_range(g, data);
  weir_figure_mark_phases(g, data, false, false);
  g_string_append_printf(g,
                         "set size 1,0.6\nset origin 0,0.4\nset tmargin 1\nset bmargin 0.8\n"
                         "set logscale y\nset yrange [%.9g:1.6]\nset format x ''\n"
                         "set ylabel 'compression ratio'\nplot ",
                         lowest / 1.6);
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++)
    g_string_append_printf(g,
                           "$try%u using 1:2 with points pt 6 ps 0.7 lc rgb '%s', "
                           "$run%u using 1:2:($3-$1):(0) with vectors nohead lw 5 lc rgb '%s'%s",
                           (unsigned)c, weir_report_colour[c], (unsigned)c, weir_report_colour[c],
                           c + 1 < WEIR_COLL_COUNT ? ", " : "\n");
  g_string_append(g,
                  "set size 1,0.4\nset origin 0,0\nset tmargin 0.4\nset bmargin 3.2\n"
                  "unset logscale y\nset format x\nset xlabel 'step'\nunset ylabel\n");
  int row[WEIR_COLL_COUNT];
  weir_figures_set_rows(f, row, weir_figures_rows(data, row));
  g_string_append(g, "plot ");
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++)
    g_string_append_printf(g,
                           "$run%u using 1:(%d):($3-$1):(0) with vectors nohead lw 9 lc rgb "
                           "'%s'%s",
                           (unsigned)c, row[c], weir_report_colour[c],
                           c + 1 < WEIR_COLL_COUNT ? ", " : "\n");
  g_string_append(g, "unset multiplot\n");
}

static void step_time_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 340);
  size_t count = 0;
  bin *bins = make_bins(data, &count);
  g_string_append(g, "$time << EOD\n");
  for (size_t i = 0; i <= count; i++) { /* the last one twice: a step has a width */
    const bin *b = &bins[i < count ? i : count - 1];
    const double x = i < count ? b->step : weir_figure_last_step(data)->step + 1;
    g_string_append_printf(g, "%.9g %.9g %.9g %.9g %.9g %.9g\n", x, b->compute,
                           b->compute + b->compress, b->compute + b->compress + b->comm,
                           b->compute + b->compress + b->comm + b->overhead, b->predicted);
  }
  g_string_append(g, "EOD\nset datafile missing 'nan'\n");
  weir_figure_step_range(g, data);
  weir_figure_mark_phases(g, data, false, false);
  g_string_append_printf(g,
                         "set yrange [0:%.9g]\nset key maxrows 1 width 1\nset xlabel 'step'\nset "
                         "ylabel 'ms per step'\n"
                         "set style fill solid 1 noborder\n"
                         "plot $time using 1:5 with fillsteps lc rgb '#8d7bb5' title "
                         "'overhead and trials', "
                         "'' using 1:4 with fillsteps lc rgb '#d9868b' title 'communicate', "
                         "'' using 1:3 with fillsteps lc rgb '#e3bf5a' title 'compress', "
                         "'' using 1:2 with fillsteps lc rgb '#a9b8c8' title 'compute', "
                         "'' using 1:6 with steps lw 1 lc rgb '#3b1d20' title 'predicted'\n",
                         step_time_top(bins, count));
  g_free(bins);
}

void weir_report_figures(weir_figures *figures, const weir_report_data *data) {
  network_figure(figures, data);
  plan_figure(figures, data);
  step_time_figure(figures, data);
  weir_figure_density(figures, data);
  weir_figure_accuracy(figures, data);
  weir_figure_bytes(figures, data);
}
