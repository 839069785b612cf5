/* A run's page: what it is made of, its headline and its tables. */
#include "lab/report_run.h"

#include <math.h>
#include <string.h>

#include "lab/report.h"

/* --- the headline ----------------------------------------------------------------------------- */

static void add_sub(weir_doc *doc, const weir_report_summary *s) {
  g_autoptr(GString) sub = g_string_new(NULL);
  if (*s->scenario) g_string_append_printf(sub, "%s · ", s->scenario);
  g_string_append_printf(sub, "policy %s · %.0f worker%s · network %s", s->policy, s->workers,
                         s->workers > 1 ? "s" : "", s->network);
  if (*s->clock && strcmp(s->clock, "real")) g_string_append_printf(sub, " · time %s", s->clock);
  if (s->seed >= 0) g_string_append_printf(sub, " · seed %" G_GINT64_FORMAT, s->seed);
  weir_doc_text(doc, "sub", sub->str);
}

static void add_cards(weir_doc *doc, const weir_report_data *data) {
  const weir_report_summary *s = &data->summary;
  g_autofree char *steps = isnan(s->steps)
                               ? g_strdup("evaluation not counted")
                               : g_strdup_printf("%.0f steps, evaluation not counted", s->steps);
  g_autofree char *share =
      g_strdup_printf("%.0f %% of the time", s->elapsed_s > 0 ? 100 * s->comm_s / s->elapsed_s : 0);
  g_autofree char *made = g_strdup_printf("in %zu decisions", data->decision_count);
  weir_doc_list(doc, "cards");
  if (isfinite(s->final_accuracy)) /* a PyTorch training has none that is known here */
    weir_doc_figure(doc, "final test accuracy", "on the test data", "%.2f %%",
                    100 * s->final_accuracy);
  weir_doc_figure(doc, "elapsed", steps, "%.1f s", s->elapsed_s);
  weir_doc_figure(doc, "communicating", share, "%.1f s", s->comm_s);
  if (s->trials_s > 0)
    weir_doc_figure(doc, "trials", "of the time, in steps that were rolled back", "%.1f %%",
                    100 * s->trial_share);
  weir_doc_figure(doc, "sent by rank 0", "headers and trials included", "%.1f MB",
                  s->wire_bytes / 1e6);
  weir_doc_figure(doc, "plan switches", made, "%.0f", s->switches);
  weir_doc_end_list(doc);
}

static void add_verdict(weir_doc *doc, const weir_report_summary *s) {
  g_autofree char *alike =
      g_strdup_printf("All %zu workers hold bit-identical weights.", s->digests);
  weir_doc_list(doc, "notices");
  if (s->digests_told && !(s->workers == 1 && s->digests_equal)) /* one has none to be alike with */
    weir_doc_notice(doc, s->digests_equal,
                    s->digests_equal ? alike
                                     : "The workers' weights differ, or no digests were written: "
                                       "the run is not valid.");
  weir_doc_end_list(doc);
}

static void add_keys(weir_doc *doc, const weir_report_data *data) {
  g_autoptr(GPtrArray) names = weir_report_collectives(data);
  weir_doc_list(doc, "keys");
  for (guint i = 0; i < names->len; i++)
    weir_doc_key(doc, names->pdata[i], weir_colour_of(names->pdata[i]).css);
  weir_doc_end_list(doc);
}

/* --- phases ----------------------------------------------------------------------------------- */

static void add_epochs(weir_doc *doc, const weir_report_phase *p) {
  weir_doc_format(doc, NULL, "%.0f – %.0f", p->first_epoch, p->last_epoch);
}

static void add_deviation(weir_doc *doc, double set, double measured) {
  weir_doc_cell(doc, "%+.1f %%", set > 0 ? 100 * (measured / set - 1) : NAN);
}

enum { PHASES_SHOWN = 150 }; /* a page has room for no more; recorded traces have thousands */

static void add_phases(weir_doc *doc, const weir_report_summary *s) {
  if (!s->phase_count) return;
  g_autofree char *left_out =
      s->phase_count > PHASES_SHOWN
          ? g_strdup_printf(" %zu more are in summary.json.", s->phase_count - PHASES_SHOWN)
          : g_strdup("");
  g_autofree char *note = g_strconcat(
      "What was set, what was measured (goodput is what messages got of the bandwidth, less where "
      "packets were lost), and how many steps after the change the plan in force had been decided "
      "on "
      "the new network.",
      left_out, NULL);
  weir_doc_section(doc, "Phases of the schedule", note);
  weir_doc_table(
      doc, NULL,
      "#epochs|#latency set, ms|#measured|#error|#bandwidth set, Gbit/s|#measured|#error|"
      "#goodput|#answered in steps");
  for (size_t i = 0; i < MIN(s->phase_count, PHASES_SHOWN); i++) {
    const weir_report_phase *p = &s->phases[i];
    weir_doc_row(doc);
    add_epochs(doc, p);
    weir_doc_cell(doc, "%.4g", p->set_latency_ms);
    weir_doc_cell(doc, "%.4g", p->measured_latency_ms);
    add_deviation(doc, p->set_latency_ms, p->measured_latency_ms);
    weir_doc_cell(doc, "%.4g", p->set_bandwidth_gbps);
    weir_doc_cell(doc, "%.4g", p->measured_bandwidth_gbps);
    add_deviation(doc, p->set_bandwidth_gbps, p->measured_bandwidth_gbps);
    weir_doc_cell(doc, "%.4g", p->measured_goodput_gbps);
    weir_doc_cell(doc, "%.0f", p->answered_in_steps);
    weir_doc_end_row(doc);
  }
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}

/* --- a step of each phase --------------------------------------------------------------------- */

/* Sums over steps of which `count` are committed. */
typedef struct times {
  double count, compute, compress, comm, overhead, bytes;
  double foretold, predicted; /* of the steps for which there was a prediction */
} times;

/* Trials are charged as overhead, as in the chart. */
static times add_up(const weir_report_data *data, double first_epoch, double last_epoch) {
  times sum = {0};
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (s->epoch < first_epoch || s->epoch > last_epoch) continue;
    sum.overhead += isnan(s->overhead_ms) ? 0 : s->overhead_ms;
    sum.bytes += s->wire_bytes;
    if (s->trial > 0) {
      sum.overhead += s->compute_ms + s->compress_ms + s->comm_ms;
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

static void add_times(weir_doc *doc, const times *t) {
  const double all = t->compute + t->compress + t->comm + t->overhead;
  const double sums[] = {t->compute, t->compress, t->comm, t->overhead, all};
  weir_doc_cell(doc, "%.0f", t->count);
  for (size_t i = 0; i < G_N_ELEMENTS(sums); i++)
    weir_doc_cell(doc, "%.2f", t->count > 0 ? sums[i] / t->count : NAN);
  weir_doc_cell(doc, "%.2f", t->foretold > 0 ? t->predicted / t->foretold : NAN);
  weir_doc_cell(doc, "%.4g", t->count > 0 ? t->bytes / t->count / 1e6 : NAN);
  weir_doc_end_row(doc);
}

/* The chart, and what it cannot show where one phase's steps take many times as long as another's.
 */
static void add_step(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows) {
  const weir_report_summary *s = &data->summary;
  weir_doc_section(
      doc, "Where the time of a step goes",
      "Trials count with the step that follows them. In the table: means over a phase's "
      "committed steps, ms, and MB by rank 0; overhead is probes, checkpoints and "
      "trials, and not in what was predicted.");
  weir_report_times(doc, data, rows);
  weir_doc_table(doc, NULL,
                 "#epochs|#steps|#compute|#compress|#communicate|#overhead|#in all|#predicted|"
                 "#MB sent");
  for (size_t p = 0; p < MIN(s->phase_count, PHASES_SHOWN); p++) {
    const times sum = add_up(data, s->phases[p].first_epoch, s->phases[p].last_epoch);
    weir_doc_row(doc);
    add_epochs(doc, &s->phases[p]);
    add_times(doc, &sum);
  }
  const times sum = add_up(data, 0, INFINITY);
  weir_doc_row(doc);
  weir_doc_text(doc, NULL, "all");
  add_times(doc, &sum);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}

/* --- the page --------------------------------------------------------------------------------- */

static void add_all(weir_doc *doc, const weir_report_data *data, const weir_report_rows *rows) {
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "title", "Training over a changing network");
  add_sub(doc, &data->summary);
  add_cards(doc, data);
  add_verdict(doc, &data->summary);
  add_keys(doc, data);
  weir_doc_list(doc, "sections");
  add_phases(doc, &data->summary);
  weir_report_network(doc, data, rows);
  weir_report_plans(doc, data, rows);
  add_step(doc, data, rows);
  weir_report_learning(doc, data, rows);
  weir_report_use(doc, rows);
  weir_report_bytes(doc, data, rows);
  weir_report_reasons(doc, data);
  weir_report_decisions(doc, data);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

weir_status weir_report_write(const char *directory) {
  weir_report_data data;
  weir_status status = weir_report_data_read(&data, directory);
  if (status) return status;
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_report_rows rows = weir_report_committed(&data);
  add_all(doc, &data, &rows);
  status = weir_page_write(doc, directory);
  g_free(rows.row);
  weir_report_data_free(&data);
  return status;
}
