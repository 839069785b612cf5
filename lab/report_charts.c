/* A run's charts over its steps and its time.  Long runs are thinned out: of as many steps as fall
 * into one point of a line, the least, the mean and the most are kept. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "lab/report_run.h"

enum { POINTS_MOST = 450, DOTS_MOST = 400, PHASES_MOST = 16 };

weir_report_rows weir_report_committed(const weir_report_data *data) {
  weir_report_rows rows = {g_new0(weir_report_row, data->step_count), 0};
  double overhead = 0, sent = 0;
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    overhead += isnan(s->overhead_ms) ? 0 : s->overhead_ms;
    sent += s->wire_bytes / 1e6;
    if (s->trial > 0) {
      overhead += s->compute_ms + s->compress_ms + s->comm_ms;
      continue;
    }
    rows.row[rows.count++] = (weir_report_row){s, overhead, sent};
    overhead = 0;
  }
  if (rows.count) rows.row[rows.count - 1].sent_mb = sent; /* the last trials count, too */
  return rows;
}

/* --- thinning --------------------------------------------------------------------------------- */

typedef double value_of(const weir_report_row *row);

/* Steps to a point. */
static size_t each_of(const weir_report_rows *rows) {
  return (rows->count + POINTS_MOST - 1) / POINTS_MOST;
}

/* No more digits than a chart shows. */
static void add_brief(weir_doc *doc, double value) {
  char text[32];
  (void)g_snprintf(text, sizeof text, "%.4g", value);
  weir_doc_number(doc, NULL, g_strtod(text, NULL));
}

/* One step's value as it is; of several the least, the mean and the most, or nothing. */
static void add_value(weir_doc *doc, const weir_report_rows *rows, size_t from, value_of *value,
                      bool mean_only) {
  const size_t until = MIN(from + each_of(rows), rows->count);
  double least = INFINITY, most = -INFINITY, sum = 0, known = 0;
  for (size_t i = from; i < until; i++) {
    const double x = value(&rows->row[i]);
    if (!isfinite(x)) continue;
    least = fmin(least, x);
    most = fmax(most, x);
    sum += x;
    known++;
  }
  if (least == most || mean_only || !(known > 0)) {
    add_brief(doc, known > 0 ? sum / known : NAN);
    return;
  }
  weir_doc_list(doc, NULL);
  add_brief(doc, least);
  add_brief(doc, sum / known);
  add_brief(doc, most);
  weir_doc_end_list(doc);
}

static double x_of(const weir_report_row *row, bool by_time) {
  return by_time ? row->step->elapsed_s : row->step->step;
}

static double end_of(const weir_report_data *data, bool by_time) {
  const weir_report_step *last = &data->steps[data->step_count - 1];
  return by_time ? fmax(last->elapsed_s, 1e-3) : fmax(last->step, data->steps[0].step) + 1;
}

/* --- parts of a chart ------------------------------------------------------------------------- */

/* A line's form: "line", "step", "area" (upon the areas before it), "points" with a line,
 * "most" of what was thinned out. */
typedef struct series {
  const char *name, *colour, *form;
  value_of *value;
} series;

/* Where phases begin, with their network. */
static void add_marks(weir_doc *doc, const weir_report_data *data, bool by_time) {
  const weir_report_summary *s = &data->summary;
  weir_doc_list(doc, "marks");
  for (size_t p = 0, at = 0; p < s->phase_count && s->phase_count <= PHASES_MOST; p++) {
    while (at < data->step_count && data->steps[at].epoch < s->phases[p].first_epoch) at++;
    if (at == data->step_count) break;
    const double begin_s = at ? data->steps[at - 1].elapsed_s : 0; /* a step's is when it ends */
    weir_doc_object(doc, NULL);
    weir_doc_number(doc, "x", by_time ? begin_s : data->steps[at].step);
    weir_doc_format(doc, "text", "%.3g ms, %.3g Gbit/s", s->phases[p].set_latency_ms,
                    s->phases[p].set_bandwidth_gbps);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

static void begin(weir_doc *doc, const weir_report_data *data, const char *kind,
                  const char *caption, bool by_time) {
  weir_doc_chart(doc, kind, caption, by_time ? "elapsed, s" : "step",
                 by_time ? 0 : data->steps[0].step, end_of(data, by_time));
  add_marks(doc, data, by_time);
}

static void add_heads(weir_doc *doc, const series *line, size_t count) {
  weir_doc_list(doc, "series");
  for (size_t i = 0; i < count; i++) {
    weir_doc_object(doc, NULL);
    weir_doc_text(doc, "name", line[i].name);
    weir_doc_text(doc, "colour", line[i].colour);
    weir_doc_text(doc, "form", line[i].form);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

static void add_lines(weir_doc *doc, const weir_report_rows *rows, bool by_time, const series *line,
                      size_t count) {
  add_heads(doc, line, count);
  weir_doc_list(doc, "points");
  for (size_t i = 0; i < rows->count; i += each_of(rows)) {
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, x_of(&rows->row[i], by_time));
    for (size_t j = 0; j < count; j++)
      add_value(doc, rows, i, line[j].value, !strcmp(line[j].form, "area"));
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
}

/* --- the network ------------------------------------------------------------------------------ */

/* Neither so light nor so dark that they vanish where a dark page turns them over. */
#define GREY "#808c99"
#define INK "#1f3a5f"
#define SET "#7a8ca3"

static double set_latency(const weir_report_row *r) { return r->step->set_latency_ms; }
static double latency(const weir_report_row *r) { return r->step->latency_ms; }
static double set_bandwidth(const weir_report_row *r) { return r->step->set_bandwidth_gbps; }
static double bandwidth(const weir_report_row *r) { return r->step->bandwidth_gbps; }
static double goodput(const weir_report_row *r) { return r->step->goodput_gbps; }

/* Was a network set at all? */
static bool scheduled(const weir_report_data *data) {
  for (size_t i = 0; i < data->step_count; i++)
    if (data->steps[i].set_latency_ms >= 0 || data->steps[i].set_bandwidth_gbps > 0) return true;
  return false;
}

void weir_report_network(weir_doc *doc, const weir_report_data *data,
                         const weir_report_rows *rows) {
  static const series one[] = {{"set", SET, "step", set_latency},
                               {"measured", INK, "line", latency}};
  static const series other[] = {{"set", SET, "step", set_bandwidth},
                                 {"measured", INK, "line", bandwidth},
                                 {"goodput", "#b98a20", "line", goodput}};
  const size_t unset = !scheduled(data); /* then the first series of each is left out */
  weir_doc_section(
      doc, "Network",
      unset ? "Measured by Weir, agreed on by all workers. One way, and as traffic control counts."
            : "Set by the schedule and measured by Weir, agreed on by all workers. One way, and "
              "as traffic control counts. Dashed lines: the schedule changes.");
  begin(doc, data, "lines", "one-way latency, ms", false);
  weir_doc_flag(doc, "log", true);
  weir_doc_flag(doc, "named", true);
  add_lines(doc, rows, false, one + unset, G_N_ELEMENTS(one) - unset);
  weir_doc_end(doc);
  begin(doc, data, "lines", "bandwidth, Gbit/s", false);
  weir_doc_flag(doc, "log", true);
  add_lines(doc, rows, false, other + unset, G_N_ELEMENTS(other) - unset);
  weir_doc_end(doc);
  weir_doc_end_section(doc);
}

/* --- plans ------------------------------------------------------------------------------------ */

GPtrArray *weir_report_collectives(const weir_report_data *data) {
  GPtrArray *names = g_ptr_array_new();
  for (size_t i = 0; i < data->step_count; i++)
    if (!g_ptr_array_find(names, data->steps[i].collective, NULL))
      g_ptr_array_add(names, (gpointer)(guintptr)data->steps[i].collective);
  return names;
}

static double ratio(const weir_report_row *r) { return r->step->cr; }

/* Steps of trials as rings: place, ratio, colour. */
static void add_trials(weir_doc *doc, const weir_report_data *data) {
  size_t trials = 0, at = 0;
  for (size_t i = 0; i < data->step_count; i++) trials += data->steps[i].trial > 0;
  const size_t each = trials / DOTS_MOST + 1;
  weir_doc_list(doc, "dots");
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (!(s->trial > 0) || at++ % each) continue;
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, s->step);
    weir_doc_number(doc, NULL, s->cr);
    weir_doc_text(doc, NULL, weir_colour_of(s->collective).css);
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
}

static void add_bar(weir_doc *doc, double row, double from, double to, const char *colour) {
  weir_doc_object(doc, NULL);
  weir_doc_number(doc, "row", row);
  weir_doc_number(doc, "from", from);
  weir_doc_number(doc, "to", to);
  weir_doc_text(doc, "colour", colour);
}

/* The stretches of steps with a collective in force: of those that fall into one point, any. */
static void add_stretches(weir_doc *doc, const weir_report_rows *rows, const char *collective,
                          double row, double end) {
  const size_t each = each_of(rows);
  const weir_colour colour = weir_colour_of(collective);
  double from = NAN;
  for (size_t i = 0; i < rows->count; i += each) {
    bool used = false;
    for (size_t j = i; j < MIN(i + each, rows->count); j++)
      used = used || rows->row[j].step->collective == collective;
    const double step = rows->row[i].step->step;
    if (used && isnan(from)) from = step;
    if (used || isnan(from)) continue;
    add_bar(doc, row, from, step, colour.css);
    weir_doc_end(doc);
    from = NAN;
  }
  if (isnan(from)) return;
  add_bar(doc, row, from, end, colour.css);
  weir_doc_end(doc);
}

void weir_report_plans(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows) {
  static const series kept[] = {{"ratio in force", INK, "step", ratio}};
  weir_doc_section(
      doc, "Plan",
      "Compression ratio and collective in force. Rings are trial steps that were rolled "
      "back. The ratio of low rank is its rank over 64.");
  begin(doc, data, "lines", "compression ratio", false);
  weir_doc_flag(doc, "log", true);
  add_lines(doc, rows, false, kept, G_N_ELEMENTS(kept));
  add_trials(doc, data);
  weir_doc_end(doc);
  g_autoptr(GPtrArray) names = weir_report_collectives(data);
  begin(doc, data, "bars", "collective", false);
  weir_doc_list(doc, "rows");
  for (guint i = 0; i < names->len; i++) weir_doc_text(doc, NULL, names->pdata[i]);
  weir_doc_end_list(doc);
  weir_doc_list(doc, "bars");
  for (guint i = 0; i < names->len; i++)
    add_stretches(doc, rows, names->pdata[i], i, end_of(data, false));
  weir_doc_end_list(doc);
  weir_doc_end(doc);
  weir_doc_end_section(doc);
}

/* --- time ------------------------------------------------------------------------------------- */

static double compute(const weir_report_row *r) { return r->step->compute_ms; }
static double compress(const weir_report_row *r) { return r->step->compress_ms; }
static double communicate(const weir_report_row *r) { return r->step->comm_ms; }
static double overhead(const weir_report_row *r) { return r->overhead_ms; }
static double total(const weir_report_row *r) {
  return compute(r) + compress(r) + communicate(r) + overhead(r);
}
static double predicted(const weir_report_row *r) {
  return compute(r) + compress(r) + r->step->predicted_comm_ms;
}

/* Where to end the axis so that a few outliers do not flatten everything else. */
static double usual_top(const weir_report_rows *rows, value_of *value) {
  g_autofree double *all = g_new(double, rows->count + 1);
  size_t n = 0;
  for (size_t i = 0; i < rows->count; i++)
    if (isfinite(value(&rows->row[i]))) all[n++] = value(&rows->row[i]);
  weir_sort(all, n);
  const double top = n ? fmin(all[n - 1] * 1.05, all[(n - 1) * 98 / 100] * 1.3) : 0;
  return fmax(top, 1e-3);
}

void weir_report_times(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows) {
  static const series parts[] = {{"compute", "#7d92a9", "area", compute},
                                 {"compress", "#b98a20", "area", compress},
                                 {"communicate", "#cf7a81", "area", communicate},
                                 {"overhead and trials", "#8d7bb5", "area", overhead},
                                 {"predicted, without overhead", "#2b1517", "step", predicted},
                                 {"in all, the longest", "#7c3f86", "most", total}};
  begin(doc, data, "lines", "ms per committed step", false);
  weir_doc_number(doc, "top", usual_top(rows, total));
  add_lines(doc, rows, false, parts, G_N_ELEMENTS(parts) - (each_of(rows) < 2));
  weir_doc_end(doc);
}

/* --- learning --------------------------------------------------------------------------------- */

static void add_accuracy(weir_doc *doc, const weir_report_data *data) {
  static const series tested[] = {{"test accuracy", INK, "points", NULL}};
  const weir_report_summary *s = &data->summary;
  const size_t each = s->accuracy_count / POINTS_MOST + 1;
  if (!s->accuracy_count) return;
  begin(doc, data, "lines", "test accuracy, %", true);
  weir_doc_flag(doc, "narrow", true);
  weir_doc_number(doc, "bottom", 100);
  add_heads(doc, tested, 1);
  weir_doc_list(doc, "points");
  for (size_t i = 0; i < s->accuracy_count; i++) {
    if (i % each && i + 1 < s->accuracy_count) continue;
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, s->accuracy[i].elapsed_s);
    weir_doc_number(doc, NULL, 100 * s->accuracy[i].accuracy);
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

/* Where the model was evaluated; nothing where runs of earlier versions do not tell. */
static void add_test_loss(weir_doc *doc, const weir_report_data *data) {
  static const series tested[] = {{"test loss", INK, "points", NULL}};
  size_t known = 0, at = 0;
  for (size_t i = 0; i < data->step_count; i++) known += !isnan(data->steps[i].test_loss);
  if (!known) return;
  const size_t each = known / POINTS_MOST + 1;
  begin(doc, data, "lines", "test loss", true);
  weir_doc_flag(doc, "narrow", true);
  add_heads(doc, tested, 1);
  weir_doc_list(doc, "points");
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (isnan(s->test_loss) || (at++ % each && at < known)) continue;
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, s->elapsed_s);
    weir_doc_number(doc, NULL, s->test_loss);
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

static double loss(const weir_report_row *r) { return r->step->loss; }

void weir_report_learning(weir_doc *doc, const weir_report_data *data,
                          const weir_report_rows *rows) {
  static const series trained[] = {{"training loss of rank 0", GREY, "line", loss}};
  if (data->summary.accuracy_count)
    weir_doc_section(doc, "Accuracy and loss",
                     "On the test data, and on rank 0's batches (thick line: smoothed).");
  else
    weir_doc_section(doc, "Loss", "On rank 0's batches (thick line: smoothed).");
  add_accuracy(doc, data);
  add_test_loss(doc, data);
  begin(doc, data, "lines", "training loss of rank 0", true);
  weir_doc_flag(doc, "narrow", true);
  weir_doc_flag(doc, "smooth", true);
  weir_doc_number(doc, "top", usual_top(rows, loss));
  add_lines(doc, rows, true, trained, G_N_ELEMENTS(trained));
  weir_doc_end(doc);
  weir_doc_end_section(doc);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static double sent(const weir_report_row *r) { return r->sent_mb; }
static double step_mb(const weir_report_row *r) {
  return r->step->wire_bytes > 0 ? r->step->wire_bytes / 1e6 : NAN;
}

void weir_report_bytes(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows) {
  static const series all[] = {{"in all", INK, "step", sent}};
  static const series each[] = {{"a step", INK, "line", step_mb}};
  weir_doc_section(doc, "Bytes on the wire", "Sent by rank 0, headers and trials included.");
  begin(doc, data, "lines", "MB sent by rank 0, in all", true);
  weir_doc_flag(doc, "narrow", true);
  add_lines(doc, rows, true, all, 1);
  weir_doc_end(doc);
  begin(doc, data, "lines", "MB a step", false);
  weir_doc_flag(doc, "narrow", true);
  weir_doc_flag(doc, "log", true);
  add_lines(doc, rows, false, each, 1);
  weir_doc_end(doc);
  weir_doc_end_section(doc);
}
