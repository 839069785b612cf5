/* summary.json, and the medians and answers in it. */
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/doc.h"
#include "lab/out.h"
#include "lab/steplog.h"

/* --- figures ---------------------------------------------------------------------------------- */

static bool in_phase(const weir_row *row, uint32_t first_epoch, uint32_t last_epoch) {
  return row->epoch >= first_epoch && row->epoch <= last_epoch;
}

/* Median of a figure of weir_step_info over the steps of some epochs that know it; 0: none does. */
static double median_of(const weir_steplog *log, uint32_t first_epoch, uint32_t last_epoch,
                        size_t offset) {
  double *values = malloc((log->count ? log->count : 1) * sizeof *values);
  if (!values) return 0;
  size_t n = 0;
  for (size_t i = 0; i < log->count; i++) {
    double value;
    memcpy(&value, (const char *)&log->rows[i].info + offset, sizeof value);
    if (in_phase(&log->rows[i], first_epoch, last_epoch) && value > 0) values[n++] = value;
  }
  weir_sort(values, n);
  const double median = n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : 0;
  free(values);
  return median;
}

double weir_summary_median(const weir_steplog *log, uint32_t first_epoch, uint32_t last_epoch,
                           bool latency) {
  return median_of(
      log, first_epoch, last_epoch,
      latency ? offsetof(weir_step_info, latency_s) : offsetof(weir_step_info, bandwidth_bytes_s));
}

/* Was one line of decisions.jsonl decided in knowledge of the network in force (both values within
 * a tenth, a latency within 0.05 ms at least), at a step in [from, to]? */
static bool answers(JsonObject *decision, const weir_row *set, uint64_t from, uint64_t to) {
  const gint64 step = json_object_get_int_member_with_default(decision, "step", -1);
  if (step < 0 || (uint64_t)step < from || (uint64_t)step > to) return false;
  const double latency = json_object_get_double_member_with_default(decision, "latency_ms", 0);
  const double rate = json_object_get_double_member_with_default(decision, "bandwidth_gbps", 0);
  const double set_latency = set->set_latency_s * 1e3, set_rate = set->set_bandwidth * 8e-9;
  return latency > 0 && fabs(latency - set_latency) <= fmax(0.1 * set_latency, 0.05) &&
         fabs(rate - set_rate) <= 0.1 * set_rate;
}

/* Step of the first decision that answers; -1: none. */
static gint64 first_answer(const char *decisions, const weir_row *set, uint64_t from, uint64_t to) {
  gint64 step = -1;
  g_auto(GStrv) lines = g_strsplit(decisions, "\n", -1);
  g_autoptr(JsonParser) parser = json_parser_new();
  for (char **line = lines; *line && step < 0; line++) {
    if (!**line || !json_parser_load_from_data(parser, *line, -1, NULL)) continue;
    JsonNode *root = json_parser_get_root(parser);
    if (!root || !JSON_NODE_HOLDS_OBJECT(root)) continue;
    JsonObject *decision = json_node_get_object(root);
    if (answers(decision, set, from, to)) step = json_object_get_int_member(decision, "step");
  }
  return step;
}

int weir_summary_answered(const weir_steplog *log, const char *decisions, uint32_t first_epoch,
                          uint32_t last_epoch) {
  size_t begin = 0;
  while (begin < log->count && !in_phase(&log->rows[begin], first_epoch, last_epoch)) begin++;
  if (begin == log->count) return -1;
  size_t end = begin;
  while (end + 1 < log->count && in_phase(&log->rows[end + 1], first_epoch, last_epoch)) end++;
  const weir_row *rows = log->rows;
  const gint64 step =
      first_answer(decisions, &rows[begin], rows[begin].info.step, rows[end].info.step);
  if (step < 0) return -1;
  size_t at = begin;
  while (at < end && rows[at].info.step < (uint64_t)step) at++;
  return (int)(at - begin) + 1;
}

double weir_summary_probe_share(const weir_steplog *log) {
  double sent = 0, capacity = 0, since_s = 0;
  for (size_t i = 0; i < log->count; i++) {
    const weir_row *row = &log->rows[i];
    sent += (double)row->info.probe_bytes;
    capacity += row->set_bandwidth * fmax(0, row->elapsed_s - since_s);
    since_s = row->elapsed_s;
  }
  return capacity > 0 || isnan(capacity) ? sent / capacity : 0;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void add_totals(weir_doc *doc, const weir_steplog *log) {
  double comm = 0, compress = 0, compute = 0, overhead = 0, accuracy = NAN, loss = NAN;
  double trials = 0, before_s = 0;
  uint64_t bytes = 0, steps = 0, switches = 0, last_plan = 0;
  for (size_t i = 0; i < log->count; i++) {
    const weir_step_info *info = &log->rows[i].info;
    comm += info->comm_s;
    compress += info->compress_s;
    compute += info->compute_s;
    overhead += info->overhead_s;
    bytes += info->wire_bytes;
    if (isfinite(log->rows[i].accuracy)) accuracy = log->rows[i].accuracy;
    if (isfinite(log->rows[i].test_loss)) loss = log->rows[i].test_loss;
    if (info->trial) trials += log->rows[i].elapsed_s - before_s;
    before_s = log->rows[i].elapsed_s;
    if (info->trial) continue;
    weir_plan plan = info->plan;
    plan.id = 0; /* the same work under a new number is no switch */
    const uint64_t digest = weir_plan_digest(&plan);
    if (steps && digest != last_plan) switches++;
    last_plan = digest;
    steps++;
  }
  weir_doc_number(doc, "final_accuracy", accuracy);
  weir_doc_number(doc, "final_loss", loss);
  weir_doc_number(doc, "elapsed_s", log->count ? log->rows[log->count - 1].elapsed_s : 0);
  weir_doc_number(doc, "comm_s", comm);
  weir_doc_number(doc, "compress_s", compress);
  weir_doc_number(doc, "compute_s", compute);
  weir_doc_number(doc, "overhead_s", overhead);
  weir_doc_number(doc, "trials_s", trials);
  weir_doc_number(doc, "trial_share", before_s > 0 ? trials / before_s : 0);
  weir_doc_whole(doc, "switches", (gint64)switches);
  weir_doc_whole(doc, "wire_bytes", (gint64)bytes);
  weir_doc_number(doc, "probe_share", weir_summary_probe_share(log));
  weir_doc_whole(doc, "steps", (gint64)steps);
}

/* What was found when, of the accuracy or the loss on the test set. */
static void add_evaluations(weir_doc *doc, const weir_steplog *log, const char *name,
                            size_t offset) {
  weir_doc_list(doc, name);
  for (size_t i = 0; i < log->count; i++) {
    const weir_row *row = &log->rows[i];
    double value;
    memcpy(&value, (const char *)row + offset, sizeof value);
    if (!isfinite(value)) continue;
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, row->elapsed_s);
    weir_doc_whole(doc, NULL, (gint64)row->info.step);
    weir_doc_number(doc, NULL, value);
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
}

/* The median of what was set: the very value for a phase, a typical one for a trace. */
static double median_set(const weir_steplog *log, bool latency) {
  double *values = malloc((log->count ? log->count : 1) * sizeof *values);
  if (!values) return NAN;
  for (size_t i = 0; i < log->count; i++)
    values[i] = latency ? log->rows[i].set_latency_s : log->rows[i].set_bandwidth;
  weir_sort(values, log->count);
  const double median = log->count ? values[log->count / 2] : NAN;
  free(values);
  return median;
}

static void add_phase(weir_doc *doc, const weir_summary *s, const char *decisions, const char *name,
                      uint32_t first, uint32_t last, double latency_s, double bandwidth) {
  const double measured_latency = weir_summary_median(s->log, first, last, true);
  const double measured_rate = weir_summary_median(s->log, first, last, false);
  const double goodput = median_of(s->log, first, last, offsetof(weir_step_info, goodput_bytes_s));
  const int answered = weir_summary_answered(s->log, decisions, first, last);
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "name", name);
  weir_doc_whole(doc, "first_epoch", first);
  weir_doc_whole(doc, "last_epoch", last);
  weir_doc_number(doc, "set_latency_ms", latency_s * 1e3);
  weir_doc_number(doc, "set_bandwidth_gbps", bandwidth * 8e-9);
  weir_doc_number(doc, "measured_latency_ms", measured_latency > 0 ? measured_latency * 1e3 : NAN);
  weir_doc_number(doc, "measured_bandwidth_gbps", measured_rate > 0 ? measured_rate * 8e-9 : NAN);
  weir_doc_number(doc, "measured_goodput_gbps", goodput > 0 ? goodput * 8e-9 : NAN);
  if (answered >= 0)
    weir_doc_whole(doc, "answered_in_steps", answered);
  else
    weir_doc_number(doc, "answered_in_steps", NAN);
  weir_doc_end(doc);
}

static void add_phases(weir_doc *doc, const weir_summary *s, const char *decisions) {
  const weir_scenario *scenario = s->scenario;
  weir_doc_list(doc, "phases");
  for (size_t i = 0; i < scenario->phase_count; i++) {
    const weir_phase *phase = &scenario->phases[i];
    weir_shape shape;
    weir_scenario_shape(scenario, phase, &shape);
    add_phase(doc, s, decisions, phase->name, phase->first_epoch, phase->last_epoch, shape.delay_s,
              shape.rate_bytes_s);
  }
  if (!scenario->phase_count && *scenario->trace.file)
    add_phase(doc, s, decisions, "trace", scenario->first_epoch,
              scenario->first_epoch + scenario->epochs - 1, median_set(s->log, true),
              median_set(s->log, false));
  weir_doc_end_list(doc);
}

weir_status weir_summary_write(const weir_summary *s, const char *directory) {
  char *path = g_build_filename(directory, "decisions.jsonl", NULL), *decisions = NULL;
  if (!g_file_get_contents(path, &decisions, NULL, NULL)) decisions = g_strdup("");
  g_free(path);
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "scenario", s->scenario->name);
  weir_doc_whole(doc, "workers", s->scenario->workers);
  weir_doc_text(doc, "network", s->network);
  weir_doc_text(doc, "clock", s->clock);
  weir_doc_text(doc, "policy", s->policy);
  weir_doc_whole(doc, "seed", (gint64)s->scenario->seed);
  add_totals(doc, s->log);
  weir_doc_list(doc, "weights_sha256");
  for (uint32_t r = 0; r < s->scenario->workers; r++)
    weir_doc_text(doc, NULL, s->weights_sha256[r]);
  weir_doc_end_list(doc);
  add_evaluations(doc, s->log, "accuracy", offsetof(weir_row, accuracy));
  add_evaluations(doc, s->log, "test_loss", offsetof(weir_row, test_loss));
  add_phases(doc, s, decisions);
  g_autofree char *text = weir_doc_lines(doc), *lined = g_strconcat(text, "\n", NULL);
  g_free(decisions);
  return weir_out_write(directory, "summary.json", lined);
}
