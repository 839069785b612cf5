#include "lab/report.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "lab/report_figures.h"
#include "lab/report_page.h"

enum { CANDIDATES_SHOWN = 60 };

static void text_card(GString *page, const char *name, const char *note, const char *format,
                      double value) G_GNUC_PRINTF(4, 0);
static void text_card(GString *page, const char *name, const char *note, const char *format,
                      double value) {
  char *text = isnan(value) ? g_strdup("–") : g_strdup_printf(format, value);
  weir_page_card(page, text, name, note);
  g_free(text);
}

static void headline(GString *page, const weir_report_data *data) {
  const weir_report_summary *s = &data->summary;
  char note[128];
  g_string_append(page, "<h1>Training over a changing network</h1><p class=\"sub\">");
  if (*s->scenario) {
    weir_page_escape(page, s->scenario);
    g_string_append(page, " · ");
  }
  g_string_append(page, "policy ");
  weir_page_escape(page, s->policy);
  g_string_append_printf(page, " · %.0f workers · network ", s->workers);
  weir_page_escape(page, s->network);
  if (*s->clock && strcmp(s->clock, "real")) {
    g_string_append(page, " · time ");
    weir_page_escape(page, s->clock);
  }
  if (!isnan(s->seed)) g_string_append_printf(page, " · seed %.0f", s->seed);
  g_string_append(page, "</p>\n<div class=\"cards\">\n");
  text_card(page, "final test accuracy", "on the test images", "%.2f %%", 100 * s->final_accuracy);
  (void)g_snprintf(note, sizeof note, "%.0f steps, evaluation not counted", s->steps);
  text_card(page, "elapsed", isnan(s->steps) ? "evaluation not counted" : note, "%.1f s",
            s->elapsed_s);
  (void)g_snprintf(note, sizeof note, "%.0f %% of the time",
                   s->elapsed_s > 0 ? 100 * s->comm_s / s->elapsed_s : 0);
  text_card(page, "communicating", note, "%.1f s", s->comm_s);
  if (s->trials_s > 0)
    text_card(page, "trials", "of the time, in steps that were rolled back", "%.1f %%",
              100 * s->trial_share);
  text_card(page, "sent by rank 0", "headers and trials included", "%.1f MB", s->wire_bytes / 1e6);
  (void)g_snprintf(note, sizeof note, "in %zu decisions", data->decision_count);
  text_card(page, "plan switches", note, "%.0f", s->switches);
  g_string_append(page, "</div>\n");
  if (s->digests_equal)
    g_string_append_printf(page,
                           "<p class=\"good\">All %zu workers hold bit-identical "
                           "weights.</p>\n",
                           s->digests);
  else
    g_string_append(page,
                    "<p class=\"bad\">The workers' weights differ, or no digests were "
                    "written: the run is not valid.</p>\n");
}

static void deviation(GString *page, double set, double measured) {
  weir_page_number(page, "%+.1f %%", set > 0 ? 100 * (measured / set - 1) : NAN);
}

static void phases(GString *page, const weir_report_summary *s) {
  if (!s->phase_count) return;
  g_string_append(
      page,
      "<section><h2>Phases of the schedule</h2><p>What was set, what was "
      "measured (goodput is what messages got of the bandwidth, less where packets were lost), "
      "and how many steps after the change the plan in force had been "
      "decided on the new network.</p>\n<table><tr><th class=\"n\">epochs</th>"
      "<th class=\"n\">latency set, ms</th><th class=\"n\">measured</th>"
      "<th class=\"n\">error</th><th class=\"n\">bandwidth set, Gbit/s</th>"
      "<th class=\"n\">measured</th><th class=\"n\">error</th>"
      "<th class=\"n\">goodput</th>"
      "<th class=\"n\">answered in steps</th></tr>\n");
  for (size_t i = 0; i < s->phase_count; i++) {
    const weir_report_phase *p = &s->phases[i];
    g_string_append_printf(page, "<tr><td class=\"n\">%.0f – %.0f</td>", p->first_epoch,
                           p->last_epoch);
    weir_page_number(page, "%.4g", p->set_latency_ms);
    weir_page_number(page, "%.4g", p->measured_latency_ms);
    deviation(page, p->set_latency_ms, p->measured_latency_ms);
    weir_page_number(page, "%.4g", p->set_bandwidth_gbps);
    weir_page_number(page, "%.4g", p->measured_bandwidth_gbps);
    deviation(page, p->set_bandwidth_gbps, p->measured_bandwidth_gbps);
    weir_page_number(page, "%.4g", p->measured_goodput_gbps);
    weir_page_number(page, "%.0f", p->answered_in_steps);
    g_string_append(page, "</tr>\n");
  }
  g_string_append(page, "</table></section>\n");
}

/* Sums over steps of which `count` are committed. */
typedef struct times {
  double count, compute, compress, comm, overhead, bytes;
  double foretold, predicted; /* of the steps for which there was a prediction */
} times;

/* Trials are charged as overhead, as in the figure. */
static times add_up(const weir_report_data *data, double first_epoch, double last_epoch) {
  times sum = {0};
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (s->epoch < first_epoch || s->epoch > last_epoch) continue;
    const double used = s->compute_ms + s->compress_ms + s->comm_ms;
    sum.overhead += isnan(s->overhead_ms) ? 0 : s->overhead_ms;
    sum.bytes += s->wire_bytes;
    if (!weir_figure_committed(s)) {
      sum.overhead += used;
      continue;
    }
    sum.count++;
    sum.compute += s->compute_ms;
    sum.compress += s->compress_ms;
    sum.comm += s->comm_ms;
    if (isnan(s->predicted_comm_ms)) continue;
    sum.foretold++;
    sum.predicted += s->compute_ms + s->compress_ms + s->predicted_comm_ms;
  }
  return sum;
}

static void times_row(GString *page, const char *epochs, const times *t) {
  const double all = t->compute + t->compress + t->comm + t->overhead;
  g_string_append_printf(page, "<tr><td class=\"n\">%s</td>", epochs);
  weir_page_number(page, "%.0f", t->count);
  const double sums[] = {t->compute, t->compress, t->comm, t->overhead, all};
  for (size_t i = 0; i < G_N_ELEMENTS(sums); i++)
    weir_page_number(page, "%.2f", t->count > 0 ? sums[i] / t->count : NAN);
  weir_page_number(page, "%.2f", t->foretold > 0 ? t->predicted / t->foretold : NAN);
  weir_page_number(page, "%.4g", t->count > 0 ? t->bytes / t->count / 1e6 : NAN);
  g_string_append(page, "</tr>\n");
}

/* What the figure cannot show where one phase's steps take many times as long as another's. */
static void step_times(GString *page, const weir_report_data *data) {
  const weir_report_summary *s = &data->summary;
  g_string_append(page,
                  "<section><h2>A step of each phase</h2><p>Means over its committed steps, ms; "
                  "overhead is probes, checkpoints and trials.</p>\n<table><tr>"
                  "<th class=\"n\">epochs</th><th class=\"n\">steps</th>"
                  "<th class=\"n\">compute</th><th class=\"n\">compress</th>"
                  "<th class=\"n\">communicate</th><th class=\"n\">overhead</th>"
                  "<th class=\"n\">in all</th><th class=\"n\">predicted, without overhead</th>"
                  "<th class=\"n\">MB sent by rank 0</th></tr>\n");
  for (size_t p = 0; p < s->phase_count; p++) {
    const weir_report_phase *phase = &s->phases[p];
    const times sum = add_up(data, phase->first_epoch, phase->last_epoch);
    char epochs[64];
    (void)g_snprintf(epochs, sizeof epochs, "%.0f – %.0f", phase->first_epoch, phase->last_epoch);
    times_row(page, epochs, &sum);
  }
  const times sum = add_up(data, 0, INFINITY);
  times_row(page, "all", &sum);
  g_string_append(page, "</table></section>\n");
}

/* Median step time (compute, compress, communicate) of the committed steps from one decision up to
 * the next: the steps in which the network changed do not count against the prediction. */
static double measured_ms(const weir_report_data *data, size_t decision) {
  const double from = data->decisions[decision].step;
  const double until =
      decision + 1 < data->decision_count ? data->decisions[decision + 1].step : INFINITY;
  double *time = g_new(double, data->step_count);
  size_t count = 0;
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    /* A directive takes effect with the step after the one that carried it. */
    if (s->trial == 0 && s->step > from && s->step <= until)
      time[count++] = s->compute_ms + s->compress_ms + s->comm_ms;
  }
  weir_sort(time, count);
  const double median = count ? time[count / 2] : NAN;
  g_free(time);
  return median;
}

static void candidate_row(GString *page, const weir_report_decision *d,
                          const weir_report_candidate *c) {
  g_string_append(page, "<tr><td>");
  weir_page_plan(page, c->plan, c->collective);
  g_string_append(page, "</td>");
  weir_page_number(page, "%.2f", c->t_comp_ms);
  weir_page_number(page, "%.2f", c->t_comm_ms);
  weir_page_number(page, "%.3f", c->gain);
  weir_page_number(page, "%.4g", c->progress_per_s);
  g_string_append_printf(page, "<td>%s%s</td></tr>\n", c->front ? "<mark>front</mark> " : "",
                         strcmp(c->plan, d->choice.plan) ? "" : "<mark>chosen</mark>");
}

static bool always_shown(const weir_report_decision *d, const weir_report_candidate *c) {
  return c->front || !strcmp(c->plan, d->choice.plan);
}

/* The front and the choice first, then as many of the others as there is room for. */
static void candidates(GString *page, const weir_report_decision *d) {
  if (!d->candidate_count) return;
  size_t front = 0, shown = 0;
  for (size_t i = 0; i < d->candidate_count; i++) front += d->candidates[i].front;
  g_string_append_printf(page,
                         "<details><summary>%zu candidates, %zu on the front</summary><table><tr>"
                         "<th>plan</th><th class=\"n\">compress, ms</th>"
                         "<th class=\"n\">communicate, ms</th><th class=\"n\">gain</th>"
                         "<th class=\"n\">progress per s</th><th></th></tr>\n",
                         d->candidate_count, front);
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < d->candidate_count && shown < CANDIDATES_SHOWN; i++)
      if (always_shown(d, &d->candidates[i]) == !pass) {
        candidate_row(page, d, &d->candidates[i]);
        shown++;
      }
  g_string_append(page, "</table>");
  if (shown < d->candidate_count)
    g_string_append_printf(page, "%zu more are in decisions.jsonl.", d->candidate_count - shown);
  g_string_append(page, "</details>");
}

static void decision_row(GString *page, const weir_report_data *data, size_t i) {
  const weir_report_decision *d = &data->decisions[i];
  g_string_append_printf(page, "<tr class=\"head%s\">", d->switched ? "" : " kept");
  g_string_append_printf(page, "<td class=\"n\">%zu</td>", i + 1);
  weir_page_number(page, "%.0f", d->step);
  weir_page_number(page, "%.0f", d->epoch);
  g_string_append(page, "<td>");
  weir_page_escape(page, d->trigger);
  g_string_append(page, "</td>");
  weir_page_number(page, "%.3g", d->latency_ms);
  weir_page_number(page, "%.3g", d->bandwidth_gbps);
  g_string_append(page, "<td>");
  weir_page_plan(page, d->choice.plan, d->choice.collective);
  g_string_append(page, "</td>");
  weir_page_number(page, "%.1f", d->predicted_ms);
  weir_page_number(page, "%.1f", measured_ms(data, i));
  g_string_append_printf(page, "<td>%s</td></tr>\n<tr class=\"more\"><td></td><td colspan=\"9\">",
                         d->switched ? "switched" : "kept");
  weir_page_escape(page, d->why);
  candidates(page, d);
  g_string_append(page, "</td></tr>\n");
}

static void decisions(GString *page, const weir_report_data *data) {
  g_string_append(
      page,
      "<section><h2>Decisions</h2><p>What was known, what was chosen, and what "
      "the step time was predicted to be and then was (median up to the next decision); "
      "below that, why.</p>\n<table><tr><th class=\"n\">#</th><th class=\"n\">step</th>"
      "<th class=\"n\">epoch</th><th>trigger</th><th class=\"n\">latency, ms</th>"
      "<th class=\"n\">bandwidth, Gbit/s</th><th>choice</th>"
      "<th class=\"n\">predicted, ms</th><th class=\"n\">measured, ms</th>"
      "<th></th></tr>\n");
  for (size_t i = 0; i < data->decision_count; i++) decision_row(page, data, i);
  g_string_append(page, "</table></section>\n");
}

/* The collectives that have a row in figures. */
static void legend(GString *page, const weir_report_data *data) {
  weir_page_key keys[WEIR_COLL_COUNT + 1] = {{NULL, NULL}};
  int row[WEIR_COLL_COUNT];
  (void)weir_figures_rows(data, row);
  for (unsigned c = 0; c < WEIR_COLL_COUNT; c++)
    if (row[c] >= 0) keys[row[c]] = (weir_page_key){weir_report_colour[c], weir_collective_name(c)};
  weir_page_legend(page, "Collectives:", keys);
}

static void figures(GString *page, const weir_figures *f, const weir_report_data *data) {
  static const weir_page_key network[] = {
      {WEIR_FIGURE_SET, "set"}, {WEIR_FIGURE_INK, "measured"}, {NULL, NULL}};
  static const weir_page_key parts[] = {{WEIR_FIGURE_COMPUTE, "compute"},
                                        {WEIR_FIGURE_COMPRESS, "compress"},
                                        {WEIR_FIGURE_COMMUNICATE, "communicate"},
                                        {WEIR_FIGURE_OVERHEAD, "overhead and trials"},
                                        {WEIR_FIGURE_PREDICTED, "predicted, without overhead"},
                                        {NULL, NULL}};
  legend(page, data);
  weir_page_figure(page, "Network",
                   "Set by the schedule and measured by Weir, agreed on by all "
                   "workers. One way, and as traffic control counts.",
                   network, f->svg[WEIR_FIGURE_NETWORK]);
  weir_page_figure(page, "Plan",
                   "Compression ratio and collective in force. Rings are trial steps "
                   "that were rolled back. Dashed lines: the schedule changes.",
                   NULL, f->svg[WEIR_FIGURE_PLAN]);
  weir_page_figure(page, "Where the time of a step goes",
                   "Per committed step. Trials count with the step that follows them.", parts,
                   f->svg[WEIR_FIGURE_STEP_TIME]);
  step_times(page, data);
  weir_page_figure(page, "Accuracy and loss",
                   "On the test images, and on rank 0's batches (thick "
                   "line: smoothed).",
                   NULL, f->svg[WEIR_FIGURE_ACCURACY]);
  weir_page_figure(page, "Density of compression ratios and collectives",
                   "Share of the committed "
                   "steps.",
                   NULL, f->svg[WEIR_FIGURE_DENSITY]);
  weir_page_figure(page, "Bytes on the wire", "Sent by rank 0, headers and trials included.", NULL,
                   f->svg[WEIR_FIGURE_BYTES]);
}

weir_status weir_report_write(const char *directory) {
  weir_report_data data;
  weir_status status = weir_report_data_read(&data, directory);
  if (status) return status;
  weir_figures drawn;
  weir_figures_init(&drawn);
  weir_report_figures(&drawn, &data);
  status = weir_figures_draw(&drawn);
  if (!status) {
    GString *page = g_string_new(NULL);
    weir_page_begin(page, "Weir: report of a run");
    headline(page, &data);
    phases(page, &data.summary);
    figures(page, &drawn, &data);
    decisions(page, &data);
    weir_page_end(page);
    status = weir_page_write(page, directory);
    g_string_free(page, TRUE);
  }
  weir_figures_free(&drawn);
  weir_report_data_free(&data);
  return status;
}
