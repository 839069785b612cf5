/* What came of `weir profile`, as a page: a table of divisions, and steps as charts. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lab/report_doc.h"
#include "profile.h"

enum { RANKS = 4 }; /* shown; each has two rows: what it computes and what its links do */

typedef struct panel {
  const char *heading;
  const weir_timeline *timeline;
} panel;

/* What a span is of, its colour and what that means. */
static const struct {
  const char *what, *colour, *meaning;
} kinds[] = {{"backward", "#93a9be", "backward pass"},
             {"compress", "#d9952b", "compressing"},
             {"taken", "#b9a3cb", "taken from computing by exchanges beside it"},
             {"exchange", "#2f6fb5", "exchange"},
             {"decode", "#5a9e73", "decoding"}};

static const char *colour_of(const char *what) {
  for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (!strcmp(kinds[i].what, what)) return kinds[i].colour;
  return "#1d2733";
}

/* --- charts of steps -------------------------------------------------------------------------- */

static size_t ranks_of(const weir_timeline *timeline) {
  size_t ranks = 1;
  for (size_t i = 0; i < timeline->count; i++) ranks = MAX(ranks, timeline->spans[i].server + 1);
  return MIN(ranks, RANKS);
}

static void add_rows(weir_doc *doc, size_t ranks) {
  weir_doc_list(doc, "rows");
  for (size_t r = 0; r < ranks; r++) {
    if (ranks > 1)
      weir_doc_format(doc, NULL, "rank %zu computes", r);
    else
      weir_doc_text(doc, NULL, "computes");
    weir_doc_text(doc, NULL, "links");
  }
  weir_doc_end_list(doc);
}

static void add_span(weir_doc *doc, const weir_profile *profile, const weir_span *span) {
  const double from = fmax(0, span->start_s) * 1e3, to = fmax(0, span->end_s) * 1e3;
  if (!(to > from)) return;
  g_autofree char *bucket = span->chain == SIZE_MAX
                                ? g_strdup("")
                                : g_strdup_printf("of bucket %zu, up to ", span->chain + 1);
  weir_doc_object(doc, NULL);
  weir_doc_number(doc, "row", (double)(2 * span->server + (span->resource == WEIR_ON_INTER)));
  weir_doc_number(doc, "from", from);
  weir_doc_number(doc, "to", to);
  weir_doc_text(doc, "colour", colour_of(span->what));
  weir_doc_format(doc, "text", "%s %s%s: %.2f to %.2f ms", span->what, bucket,
                  profile->tensors[span->tensor].name, from, to);
  if (!strcmp(span->what, "exchange")) weir_doc_format(doc, "inside", "%zu", span->chain + 1);
  weir_doc_end(doc);
}

static void add_keys(weir_doc *doc) {
  weir_doc_list(doc, "keys");
  for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++)
    weir_doc_key(doc, kinds[i].meaning, kinds[i].colour);
  weir_doc_end_list(doc);
}

static void add_panel(weir_doc *doc, const profile_job *job, const panel *p, double end_ms) {
  const size_t ranks = ranks_of(p->timeline);
  g_autofree char *caption =
      g_strdup_printf("%s: %.1f ms", p->heading, p->timeline->iteration_s * 1e3);
  weir_doc_chart(doc, "bars", caption, "ms", 0, end_ms);
  weir_doc_number(doc, "pitch", 20);
  weir_doc_number(doc, "thick", 0.42);
  weir_doc_flag(doc, "framed", true);
  add_keys(doc);
  add_rows(doc, ranks);
  weir_doc_list(doc, "bars");
  for (size_t i = 0; i < p->timeline->count; i++)
    if (p->timeline->spans[i].server < ranks) add_span(doc, &job->profile, &p->timeline->spans[i]);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

static void add_panels(weir_doc *doc, const profile_job *job, const panel *panels, size_t count) {
  double end_s = 0;
  for (size_t p = 0; p < count; p++) end_s = fmax(end_s, panels[p].timeline->iteration_s);
  g_autofree char *note = g_strdup_printf(
      "From the begin of the backward pass until the last bucket has been exchanged and decoded; "
      "%.1f ms for drawing, the forward pass and the update come on top. Measured: a step that "
      "took "
      "about as long as the mean, of the first %d ranks at most, on the last rank's clock. Numbers "
      "are buckets; pointing at a bar names its tensors.",
      job->rest_s * 1e3, RANKS);
  weir_doc_section(doc, "Where a step's time goes", note);
  for (size_t p = 0; p < count; p++) add_panel(doc, job, &panels[p], end_s > 0 ? end_s * 1e3 : 1);
  weir_doc_end_section(doc);
}

/* --- the page --------------------------------------------------------------------------------- */

static void add_head(weir_doc *doc, const profile_job *job, const profile_verdict *v) {
  g_autofree char *one = g_strdup_printf("the model allows %.2f at most", v->bound_over_one);
  g_autofree char *layers = g_strdup_printf("the model allows %.2f at most", v->bound_over_layers);
  g_autofree char *order = g_strdup_printf("%zu of %zu", v->right, v->pairs);
  weir_doc_text(doc, "title", "A division of the gradient, planned and executed");
  weir_doc_text(doc, "sub", job->scenario);
  weir_doc_list(doc, "cards");
  weir_doc_figure(doc, "as fast as one bucket", one, "%.2f ×", v->over_one);
  weir_doc_figure(doc, "as fast as every tensor alone", layers, "%.2f ×", v->over_layers);
  weir_doc_figure(doc, "off at most", v->off_at->division, "%.1f %%", 100 * v->off);
  weir_doc_card(doc, order, "pairs in the order predicted", "predicted 5 % apart or more");
  weir_doc_end_list(doc);
}

static void add_turn(weir_doc *doc, const profile_turn *turn, bool fastest) {
  weir_doc_row(doc);
  weir_doc_text(doc, NULL, turn->division);
  weir_doc_plan(doc, turn->plan, fastest ? "fastest" : "");
  weir_doc_cell(doc, "%.0f", (double)turn->buckets);
  weir_doc_cell(doc, "%.0f", (double)turn->steps);
  weir_doc_cell(doc, "%.1f", turn->predicted_s * 1e3);
  weir_doc_cell(doc, "%.1f", turn->mean.period_s * 1e3);
  weir_doc_cell(doc, "%+.1f %%", 100 * (turn->predicted_s / turn->mean.period_s - 1));
  weir_doc_end_row(doc);
}

static void add_table(weir_doc *doc, const profile_job *job) {
  weir_doc_section(
      doc, "Divisions",
      "They took turns within one job. Predicted from some rounds of turns, measured in "
      "others; a step lasts until the last rank begins the next.");
  weir_doc_table(doc, NULL, "division|plan|#buckets|#steps|#predicted, ms|#measured, ms|#error");
  for (size_t i = 0; i < job->count; i++)
    add_turn(doc, &job->turns[i], &job->turns[i] == job->kept);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}

static weir_status write_page(const profile_job *job, const panel *panels, size_t count) {
  profile_verdict verdict;
  profile_judge(job, &verdict);
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_doc_object(doc, NULL);
  add_head(doc, job, &verdict);
  weir_doc_list(doc, "sections");
  add_table(doc, job);
  add_panels(doc, job, panels, count);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
  return weir_page_write(doc, job->out);
}

weir_status profile_report(const profile_job *job) {
  const profile_turn *one = &job->turns[0], *planned = &job->turns[job->count - 1];
  weir_timeline whole = {0}, plan = {0};
  weir_status status = profile_predict(job, one, &whole);
  if (!status) status = profile_predict(job, planned, &plan);
  if (!status) {
    const panel panels[] = {{"One bucket, predicted", &whole},
                            {"One bucket, measured", &one->measured},
                            {"Planned, predicted", &plan},
                            {"Planned, measured", &planned->measured}};
    status = write_page(job, panels, G_N_ELEMENTS(panels));
  }
  weir_timeline_free(&whole);
  weir_timeline_free(&plan);
  return status;
}
