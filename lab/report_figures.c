/* The gnuplot scripts of a run's figures.  Every range is given, so that a run of one step or
 * without measurements draws too; nothing but numbers and our own names goes into a script. */
#include <math.h>
#include <stdlib.h>

#include "lab/report_plot.h"

enum { WIDTH = 1180, BINS_MOST = 1200, PHASES_MOST = 16 };

#define GREY "#8f9aa6"
#define INK "#1f3a5f"

/* One committed step, or the mean of several. */
typedef struct bin {
  double step, compute, compress, comm, overhead, predicted;
} bin;

static bool committed(const weir_report_step *s) { return s->trial == 0; }

static const weir_report_step *last_step(const weir_report_data *data) {
  return &data->steps[data->step_count - 1];
}

/* Time of a trial's steps is charged to the committed step after it. */
static bin *make_bins(const weir_report_data *data, size_t *count) {
  const size_t each = data->step_count / BINS_MOST + 1;
  bin *bins = g_new0(bin, data->step_count / each + 2);
  size_t filled = 0, n = 0;
  double trials = 0;
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    const double overhead = isnan(s->overhead_ms) ? 0 : s->overhead_ms;
    if (!committed(s)) {
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

static void step_range(GString *g, const weir_report_data *data) {
  g_string_append_printf(g, "set xrange [%.9g:%.9g]\n", data->steps[0].step,
                         fmax(last_step(data)->step, data->steps[0].step) + 1);
}

static void time_range(GString *g, const weir_report_data *data) {
  g_string_append_printf(g, "set xrange [0:%.9g]\n", fmax(last_step(data)->elapsed_s, 1e-3));
}

/* Dashed lines where a phase begins; by step or by elapsed time. */
static void mark_phases(GString *g, const weir_report_data *data, bool by_time, bool labelled) {
  const weir_report_summary *s = &data->summary;
  if (s->phase_count > PHASES_MOST) return;
  size_t at = 0;
  for (size_t p = 0; p < s->phase_count; p++) {
    while (at < data->step_count && data->steps[at].epoch < s->phases[p].first_epoch) at++;
    if (at == data->step_count) break;
    const double x = by_time ? data->steps[at].elapsed_s : data->steps[at].step;
    if (p)
      g_string_append_printf(g,
                             "set arrow from first %.9g, graph 0 to first %.9g, graph 1 nohead "
                             "dt (6,5) lw 0.9 lc rgb '#7b8794' back\n",
                             x, x);
    if (labelled)
      g_string_append_printf(g,
                             "set label '%.3g ms, %.3g Gbit/s' at first %.9g, graph 1.08 offset "
                             "0.3,0 tc rgb '#46525f'\n",
                             s->phases[p].set_latency_ms, s->phases[p].set_bandwidth_gbps, x);
  }
}

static void network_data(GString *g, const weir_report_data *data) {
  const size_t each = data->step_count / BINS_MOST + 1;
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
  weir_figures_begin(f, WIDTH, 450);
  network_data(g, data);
  g_string_append(g, "set multiplot layout 2,1\n");
  step_range(g, data);
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
    mark_phases(g, data, false, !i);
    log_range(g, data, panel[i].set, panel[i].measured);
    g_string_append_printf(g, "set ylabel '%s'\n%s", panel[i].label,
                           i ? "set xlabel 'step'\nunset key\nset tmargin 0.6\nset bmargin 3.2\n"
                             : "set tmargin 4.4\nset bmargin 1\nset format x ''\n"
                               "set key at graph 1, graph 1.46 right horizontal\n");
    g_string_append_printf(g,
                           "plot $net using 1:%d with steps lw 6 lc rgb '#cfd6de' title 'set', "
                           "$net using 1:%d with lines lw 1.6 lc rgb '" INK
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
      if (s && !committed(s)) continue;
      const bool same = s && from && s->cr == from->cr && s->collective == from->collective;
      if (same) continue;
      if (from && from->collective == c)
        g_string_append_printf(g, "%.9g %.9g %.9g\n", from->step, from->cr,
                               s ? s->step : last_step(data)->step + 1);
      from = s;
    }
    g_string_append_printf(g, "EOD\n$try%u << EOD\nnan nan\n", (unsigned)c);
    for (size_t i = 0; i < data->step_count; i++)
      if (!committed(&data->steps[i]) && data->steps[i].collective == c)
        g_string_append_printf(g, "%.9g %.9g\n", data->steps[i].step, data->steps[i].cr);
    g_string_append(g, "EOD\n");
  }
}

/* Where the axis of ratios begins. */
static double lowest_ratio(const weir_report_data *data) {
  double lowest = 0.001;
  for (size_t i = 0; i < data->step_count; i++) lowest = fmin(lowest, data->steps[i].cr);
  return lowest;
}

static void plan_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WIDTH, 430);
  plan_data(g, data);
  const double lowest = lowest_ratio(data);
  g_string_append(g, "set datafile missing 'nan'\nset multiplot\nunset key\n");
  step_range(g, data);
  mark_phases(g, data, false, false);
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
  weir_figures_begin(f, WIDTH, 340);
  size_t count = 0;
  bin *bins = make_bins(data, &count);
  g_string_append(g, "$time << EOD\n");
  for (size_t i = 0; i <= count; i++) { /* the last one twice: a step has a width */
    const bin *b = &bins[i < count ? i : count - 1];
    const double x = i < count ? b->step : last_step(data)->step + 1;
    g_string_append_printf(g, "%.9g %.9g %.9g %.9g %.9g %.9g\n", x, b->compute,
                           b->compute + b->compress, b->compute + b->compress + b->comm,
                           b->compute + b->compress + b->comm + b->overhead, b->predicted);
  }
  g_string_append(g, "EOD\nset datafile missing 'nan'\n");
  step_range(g, data);
  mark_phases(g, data, false, false);
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

enum { CR_BINS = 51 }; /* tenths of a decade, from 1e-5 to 1 */

static void density_data(GString *g, const weir_report_data *data) {
  double share[CR_BINS][WEIR_COLL_COUNT] = {{0}}, total = 0, all[WEIR_COLL_COUNT] = {0};
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (!committed(s)) continue;
    const double place = (log10(s->cr) + 5) * 10;
    const int at = place < 0 ? 0 : (int)(place + 0.5);
    share[at < CR_BINS ? at : CR_BINS - 1][s->collective]++;
    all[s->collective]++;
    total++;
  }
  if (!(total > 0)) total = 1;
  g_string_append(g, "$cr << EOD\n");
  for (int b = 0; b < CR_BINS; b++) {
    double sum = 0;
    g_string_append_printf(g, "%.9g", b / 10.0 - 5);
    for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++)
      g_string_append_printf(g, " %.9g", sum += 100 * share[b][c] / total);
    g_string_append(g, "\n");
  }
  g_string_append(g, "EOD\n$coll << EOD\n");
  int row[WEIR_COLL_COUNT];
  (void)weir_figures_rows(data, row);
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++) /* out of sight: those without a row */
    g_string_append_printf(g, "%d %.9g \"%.0f %%\"\n", row[c], 100 * all[c] / total,
                           100 * all[c] / total);
  g_string_append(g, "EOD\n");
}

static void density_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WIDTH, 320);
  density_data(g, data);
  const double lowest = lowest_ratio(data);
  g_string_append_printf(g,
                         "set multiplot layout 1,2\nunset key\nset style fill solid 1 noborder\n"
                         "set tmargin 1\nset bmargin 3.4\n"
                         "set boxwidth 0.09\nset xrange [%.9g:0.15]\nset yrange [0:105]\n"
                         "set xtics ('0.00001' -5, '0.0001' -4, '0.001' -3, '0.01' -2, '0.1' -1,"
                         " '1 (dense)' 0)\n"
                         "set xlabel 'compression ratio'\nset ylabel '%% of steps'\nplot ",
                         fmax(log10(lowest), -5) - 0.15);
  for (uint32_t c = WEIR_COLL_COUNT; c-- > 0;)
    g_string_append_printf(g, "$cr using 1:%u with boxes lc rgb '%s'%s", (unsigned)c + 2,
                           weir_report_colour[c], c ? ", " : "\n");
  g_string_append(g,
                  "set xrange [0:112]\nset xtics autofreq\nset xtics 20\n"
                  "set xlabel '% of steps'\nunset ylabel\nunset grid\nset grid xtics lc rgb "
                  "'#e6eaee' lt 1 lw 0.8\n");
  int row[WEIR_COLL_COUNT];
  weir_figures_set_rows(f, row, weir_figures_rows(data, row));
  g_string_append(g, "plot ");
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++)
    g_string_append_printf(g,
                           "$coll every ::%u::%u using (0):1:(0):2:($1-0.32):($1+0.32) with "
                           "boxxyerror lc rgb '%s', ",
                           (unsigned)c, (unsigned)c, weir_report_colour[c]);
  g_string_append(g,
                  "$coll using 2:1:3 with labels left offset 0.6,0 tc rgb '#2b3540'\n"
                  "unset multiplot\n");
}

static void accuracy_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  const weir_report_summary *s = &data->summary;
  weir_figures_begin(f, WIDTH, 320);
  double lowest = 1, loss_top = 0, longest = fmax(last_step(data)->elapsed_s, 1e-3);
  g_string_append(g, "$acc << EOD\nnan nan\n");
  for (size_t i = 0; i < s->accuracy_count; i++) {
    lowest = fmin(lowest, s->accuracy[i].accuracy);
    longest = fmax(longest, s->accuracy[i].elapsed_s);
    g_string_append_printf(g, "%.9g %.9g\n", s->accuracy[i].elapsed_s,
                           100 * s->accuracy[i].accuracy);
  }
  g_string_append(g, "EOD\n$loss << EOD\nnan nan\n");
  const size_t each = data->step_count / BINS_MOST + 1;
  for (size_t i = 0; i < data->step_count; i += each) {
    const weir_report_step *step = &data->steps[i];
    if (!committed(step) || isnan(step->loss)) continue;
    loss_top = fmax(loss_top, step->loss);
    g_string_append_printf(g, "%.9g %.9g\n", step->elapsed_s, step->loss);
  }
  g_string_append_printf(g,
                         "EOD\nset datafile missing 'nan'\nset multiplot layout 1,2\nunset key\n"
                         "set tmargin 1\nset bmargin 3.4\nset xlabel 'elapsed, s'\n"
                         "set xrange [0:%.9g]\n",
                         longest);
  mark_phases(g, data, true, false);
  g_string_append_printf(g,
                         "set ylabel 'test accuracy, %%'\nset yrange [%.9g:%.9g]\n"
                         "plot $acc using 1:2 with linespoints lw 1.6 pt 7 ps 0.45 lc rgb '" INK
                         "'\nset ylabel 'training loss of rank 0'\nset yrange [0:%.9g]\n"
                         "plot $loss using 1:2 with lines lw 1 lc rgb '" GREY
                         "', "
                         "$loss using 1:2 smooth bezier with lines lw 1.8 lc rgb '" INK
                         "'\n"
                         "unset multiplot\n",
                         fmin(95, floor(lowest * 20) * 5), 100.0,
                         loss_top > 0 ? fmin(loss_top * 1.05, 2.5) : 1); /* guessing costs ln 10 */
}

static void bytes_figure(weir_figures *f, const weir_report_data *data) {
  GString *g = f->script;
  weir_figures_begin(f, WIDTH, 320);
  const size_t each = data->step_count / BINS_MOST + 1;
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
                             mb > 0 ? mb : NAN, (unsigned)s->collective);
  }
  if (!(high > 0)) low = high = 1;
  g_string_append(g,
                  "EOD\nset datafile missing 'nan'\nset multiplot layout 1,2\nunset key\n"
                  "set tmargin 1\nset bmargin 3.4\n");
  time_range(g, data);
  mark_phases(g, data, true, false);
  g_string_append_printf(g,
                         "set xlabel 'elapsed, s'\nset ylabel 'MB sent by rank 0, in all'\n"
                         "set yrange [0:%.9g]\nplot $sent using 1:2 with steps lw 1.8 lc rgb '" INK
                         "'\nunset arrow\n",
                         sum > 0 ? sum * 1.05 : 1);
  step_range(g, data);
  mark_phases(g, data, false, false);
  g_string_append_printf(g,
                         "set logscale y\nset yrange [%.9g:%.9g]\nset xlabel 'step'\n"
                         "set ylabel 'MB a step'\nplot ",
                         low / 2, high * 2);
  for (uint32_t c = 0; c < WEIR_COLL_COUNT; c++)
    g_string_append_printf(g,
                           "$sent using 3:($5==%u ? $4 : NaN) with points pt 7 ps 0.3 lc rgb "
                           "'%s'%s",
                           (unsigned)c, weir_report_colour[c],
                           c + 1 < WEIR_COLL_COUNT ? ", " : "\n");
  g_string_append(g, "unset multiplot\n");
}

void weir_report_figures(weir_figures *figures, const weir_report_data *data) {
  network_figure(figures, data);
  plan_figure(figures, data);
  step_time_figure(figures, data);
  density_figure(figures, data);
  accuracy_figure(figures, data);
  bytes_figure(figures, data);
}
