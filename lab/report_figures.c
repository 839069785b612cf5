/* The gnuplot scripts of a run's figures.  Every range is given, so that a run of one step or
 * without measurements draws too; nothing but numbers and our own names goes into a script. */
#include <math.h>

#include "base/base.h"
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

/* Where to end the axis so that a few outliers do not flatten everything else. */
static double step_time_top(const bin *bins, size_t count) {
  double *total = g_new(double, count);
  for (size_t i = 0; i < count; i++)
    total[i] = bins[i].compute + bins[i].compress + bins[i].comm + bins[i].overhead;
  weir_sort(total, count);
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
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 410);
  network_data(g, data);
  g_string_append(g, "set multiplot layout 2,1\nunset key\n");
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
                           i ? "set xlabel 'step'\nset tmargin 0.6\nset bmargin 3.2\n"
                             : "set tmargin 1.8\nset bmargin 1\nset format x ''\n");
    g_string_append_printf(g,
                           "plot $net using 1:%d with steps lw 6 lc rgb '" WEIR_FIGURE_SET
                           "', $net using 1:%d with lines lw 1.6 lc rgb '" WEIR_FIGURE_INK
                           "'\nset format x\n",
                           panel[i].column, panel[i].column + 1);
  }
  g_string_append(g, "unset multiplot\n");
}

/* Stretches of equal plan as horizontal segments: begin, ratio, end, colour, the collective's row;
 * and the steps of trials. */
static void plan_data(GString *g, const weir_report_data *data, const int row[WEIR_COLL_COUNT]) {
  g_string_append(g, "$run << EOD\nnan nan nan nan nan\n"); /* a block may not be empty */
  const weir_report_step *from = NULL;
  for (size_t i = 0; i <= data->step_count; i++) {
    const weir_report_step *s = i < data->step_count ? &data->steps[i] : NULL;
    if (s && !weir_figure_committed(s)) continue;
    const bool same = s && from && s->cr == from->cr && s->collective == from->collective;
    if (same) continue;
    if (from)
      g_string_append_printf(g, "%.9g %.9g %.9g %u %d\n", from->step, from->cr,
                             s ? s->step : weir_figure_last_step(data)->step + 1,
                             weir_figure_colour(from->collective), row[from->collective]);
    from = s;
  }
  g_string_append(g, "EOD\n$try << EOD\nnan nan nan\n");
  for (size_t i = 0; i < data->step_count; i++)
    if (!weir_figure_committed(&data->steps[i]))
      g_string_append_printf(g, "%.9g %.9g %u\n", data->steps[i].step, data->steps[i].cr,
                             weir_figure_colour(data->steps[i].collective));
  g_string_append(g, "EOD\n");
}

static void plan_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  int row[WEIR_COLL_COUNT];
  const unsigned rows = weir_figures_rows(data, row);
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 430);
  plan_data(g, data, row);
  const double lowest = weir_figure_lowest_ratio(data);
  g_string_append(g, "set datafile missing 'nan'\nset multiplot\nunset key\n");
  weir_figure_step_range(g, data);
  weir_figure_mark_phases(g, data, false, false);
  g_string_append_printf(g,
                         "set size 1,0.6\nset origin 0,0.4\nset tmargin 1\nset bmargin 0.8\n"
                         "set logscale y\nset yrange [%.9g:1.6]\nset format x ''\n"
                         "set ylabel 'compression ratio'\n"
                         "plot $try using 1:2:3 with points pt 6 ps 0.7 lc rgb variable, "
                         "$run using 1:2:($3-$1):(0):4 with vectors nohead lw 5 lc rgb variable\n",
                         lowest / 1.6);
  g_string_append(g,
                  "set size 1,0.4\nset origin 0,0\nset tmargin 0.4\nset bmargin 3.2\n"
                  "unset logscale y\nset format x\nset xlabel 'step'\nunset ylabel\n");
  weir_figures_set_rows(f, row, rows);
  g_string_append(g,
                  "plot $run using 1:5:($3-$1):(0):4 with vectors nohead lw 9 lc rgb variable\n"
                  "unset multiplot\n");
}

static void step_time_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WEIR_FIGURE_WIDTH, 310);
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
                         "set yrange [0:%.9g]\nunset key\nset tmargin 1\nset xlabel 'step'\n"
                         "set ylabel 'ms per step'\nset style fill solid 1 noborder\n"
                         "plot $time using 1:5 with fillsteps lc rgb '" WEIR_FIGURE_OVERHEAD
                         "', "
                         "'' using 1:4 with fillsteps lc rgb '" WEIR_FIGURE_COMMUNICATE
                         "', "
                         "'' using 1:3 with fillsteps lc rgb '" WEIR_FIGURE_COMPRESS
                         "', "
                         "'' using 1:2 with fillsteps lc rgb '" WEIR_FIGURE_COMPUTE
                         "', "
                         "'' using 1:6 with steps lw 1 lc rgb '" WEIR_FIGURE_PREDICTED "'\n",
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
