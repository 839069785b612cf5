/* A run's decisions: what was known, what was chosen of what, and what came of it. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "lab/report_run.h"

/* What a page has room for, of all decisions together. */
enum { DECISIONS_MOST = 200, CANDIDATES_MOST = 1400, CANDIDATES_EACH = 60, CANDIDATES_LEAST = 8 };

/* Median step time (compute, compress, communicate) of the committed steps from one decision up to
 * the next: the steps in which the network changed do not count against the prediction. */
static double measured_ms(const weir_report_data *data, size_t decision) {
  const double from = data->decisions[decision].step;
  const double until =
      decision + 1 < data->decision_count ? data->decisions[decision + 1].step : INFINITY;
  g_autofree double *time = g_new(double, data->step_count);
  size_t count = 0;
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    /* A directive takes effect with the step after the one that carried it. */
    if (s->trial == 0 && s->step > from && s->step <= until)
      time[count++] = s->compute_ms + s->compress_ms + s->comm_ms;
  }
  weir_sort(time, count);
  return count ? time[count / 2] : NAN;
}

static bool is_choice(const weir_report_decision *d, const weir_report_candidate *c) {
  return !strcmp(c->plan, d->choice.plan);
}

static void add_candidate(weir_doc *doc, const weir_report_decision *d,
                          const weir_report_candidate *c) {
  weir_doc_row(doc);
  weir_doc_text(doc, NULL, c->plan);
  weir_doc_cell(doc, "%.2f", c->t_comp_ms);
  weir_doc_cell(doc, "%.2f", c->t_comm_ms);
  weir_doc_cell(doc, "%.3f", c->gain);
  weir_doc_cell(doc, "%.4g", c->progress_per_s);
  weir_doc_text(doc, NULL,
                c->front && is_choice(d, c) ? "front, chosen"
                : c->front                  ? "front"
                : is_choice(d, c)           ? "chosen"
                                            : "");
  weir_doc_end_row(doc);
}

/* The front and the choice first, then as many of the others as there is room for.  Tells how many.
 */
static size_t add_candidates(weir_doc *doc, const weir_report_decision *d, size_t room) {
  size_t front = 0, shown = 0;
  for (size_t i = 0; i < d->candidate_count; i++) front += d->candidates[i].front;
  weir_doc_format(doc, "summary", "%zu candidates, %zu on the front", d->candidate_count, front);
  weir_doc_table(doc, "table", "plan|#compress, ms|#communicate, ms|#gain|#progress per s|");
  for (int others = 0; others < 2; others++)
    for (size_t i = 0; i < d->candidate_count && shown < room; i++) {
      const weir_report_candidate *c = &d->candidates[i];
      if ((c->front || is_choice(d, c)) == !others) {
        add_candidate(doc, d, c);
        shown++;
      }
    }
  weir_doc_end_table(doc);
  if (shown < d->candidate_count)
    weir_doc_format(doc, "after", "%zu more are in decisions.jsonl.", d->candidate_count - shown);
  return shown;
}

/* Takes from what the page has left for candidates. */
static void add_decision(weir_doc *doc, const weir_report_data *data, size_t i, size_t each,
                         size_t *left) {
  const weir_report_decision *d = &data->decisions[i];
  weir_doc_object(doc, NULL);
  weir_doc_flag(doc, "kept", !weir_report_switches(d));
  weir_doc_list(doc, "cells");
  weir_doc_format(doc, NULL, "%zu", i + 1);
  weir_doc_cell(doc, "%.0f", d->step);
  weir_doc_cell(doc, "%.0f", d->epoch);
  weir_doc_text(doc, NULL, d->trigger);
  weir_doc_cell(doc, "%.3g", d->latency_ms);
  weir_doc_cell(doc, "%.3g", d->bandwidth_gbps);
  weir_doc_plan(doc, d->choice.plan, "");
  weir_doc_cell(doc, "%.1f", d->predicted_ms);
  weir_doc_cell(doc, "%.1f", measured_ms(data, i));
  if (d->divided && d->groups > 0)
    weir_doc_format(doc, NULL, "%s, in %.0f buckets", d->switched ? "switched" : "kept", d->groups);
  else
    weir_doc_format(doc, NULL, "%s%s", d->switched ? "switched" : "kept",
                    d->divided ? ", without buckets" : "");
  weir_doc_end_list(doc);
  weir_doc_object(doc, "below");
  weir_doc_text(doc, "text", d->why);
  if (d->candidate_count && *left) *left -= add_candidates(doc, d, MIN(each, *left));
  weir_doc_end(doc);
  weir_doc_end(doc);
}

/* Which decisions a page has room for: of too many, those that kept the plan are left out first. */
static bool *choose(const weir_report_data *data, size_t *chosen) {
  bool *shown = g_new0(bool, data->decision_count + 1);
  *chosen = 0;
  for (int kept = 0; kept < 2; kept++)
    for (size_t i = 0; i < data->decision_count && *chosen < DECISIONS_MOST; i++)
      if (weir_report_switches(&data->decisions[i]) == !kept) {
        shown[i] = true;
        ++*chosen;
      }
  return shown;
}

void weir_report_decisions(weir_doc *doc, const weir_report_data *data) {
  size_t chosen = 0;
  g_autofree bool *shown = choose(data, &chosen);
  size_t left = CANDIDATES_MOST - 4 * chosen;
  const size_t each = CLAMP(left / MAX(chosen, 1), CANDIDATES_LEAST, CANDIDATES_EACH);
  g_autoptr(GString) note = g_string_new(
      "What was known, what was chosen, and what the step time was predicted to be and then was "
      "(median up to the next decision); below that, why.");
  if (chosen < data->decision_count)
    g_string_append_printf(note, " %zu more are in decisions.jsonl.",
                           data->decision_count - chosen);
  weir_doc_section(doc, "Decisions", note->str);
  weir_doc_table(doc, NULL,
                 "##|#step|#epoch|trigger|#latency, ms|#bandwidth, Gbit/s|choice|#predicted, ms|"
                 "#measured, ms|");
  for (size_t i = 0; i < data->decision_count; i++)
    if (shown[i]) add_decision(doc, data, i, each, &left);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}
