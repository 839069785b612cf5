/* What came of `weir profile`, as a page: a table of divisions, and steps as pictures. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lab/report_page.h"
#include "profile.h"

/* Pixels.  A rank has two rows: what it computes and what its links do. */
enum { WIDTH = 1160, LEFT = 140, RIGHT = 12, ROW = 19, BAR = 15, HEAD = 26, AXIS = 34, RANKS = 4 };

typedef struct panel {
  const char *heading;
  const weir_timeline *timeline;
} panel;

static const char *const kinds[] = {"backward", "compress", "taken", "exchange", "decode"};
/* One a kind, in their order. */
static const weir_page_key keys[] = {{"#93a9be", "backward pass"},
                                     {"#d9952b", "compressing"},
                                     {"#b9a3cb", "taken from computing by exchanges beside it"},
                                     {"#2f6fb5", "exchange"},
                                     {"#5a9e73", "decoding"},
                                     {NULL, NULL}};

static const char *colour_of(const char *what) {
  for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (!strcmp(kinds[i], what)) return keys[i].colour;
  return "#1d2733";
}

/* --- the picture ------------------------------------------------------------------------------ */

static size_t ranks_of(const weir_timeline *timeline) {
  size_t ranks = 1;
  for (size_t i = 0; i < timeline->count; i++) ranks = MAX(ranks, timeline->spans[i].server + 1);
  return MIN(ranks, RANKS);
}

static double end_of(const panel *panels, size_t count) {
  double end = 0;
  for (size_t p = 0; p < count; p++) end = fmax(end, panels[p].timeline->iteration_s);
  return end > 0 ? end : 1;
}

static void add_text(GString *svg, double x, double y, const char *anchor, const char *fill,
                     const char *text) {
  g_string_append_printf(svg,
                         "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\" "
                         "font-size=\"12\">",
                         x, y, anchor, fill);
  weir_page_escape(svg, text);
  g_string_append(svg, "</text>\n");
}

static void add_span(GString *svg, const weir_profile *profile, const weir_span *span, double top,
                     double scale) {
  const double x = LEFT + fmax(0, span->start_s) * scale;
  const double width = LEFT + fmax(0, span->end_s) * scale - x;
  if (!(width > 0.05)) return;
  const double y = top + (double)(2 * span->server + (span->resource == WEIR_ON_INTER)) * ROW;
  g_string_append_printf(svg,
                         "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                         "stroke=\"#fff\" stroke-width=\"0.4\"><title>%s ",
                         x, y, width, BAR, colour_of(span->what), span->what);
  if (span->chain != SIZE_MAX) g_string_append_printf(svg, "of group %zu, up to ", span->chain + 1);
  weir_page_escape(svg, profile->tensors[span->tensor].name);
  g_string_append_printf(svg, ": %.2f to %.2f ms</title></rect>\n", span->start_s * 1e3,
                         span->end_s * 1e3);
  if (strcmp(span->what, "exchange") != 0 || width < 20) return;
  g_autofree char *number = g_strdup_printf("%zu", span->chain + 1);
  add_text(svg, x + width / 2, y + BAR - 3, "middle", "#fff", number);
}

/* Returns where the next panel begins. */
static double add_panel(GString *svg, const profile_job *job, const panel *p, double top,
                        double scale) {
  const weir_timeline *timeline = p->timeline;
  const size_t ranks = ranks_of(timeline);
  g_autofree char *heading =
      g_strdup_printf("%s: %.1f ms", p->heading, timeline->iteration_s * 1e3);
  add_text(svg, 0, top + 16, "start", "#1d2733", heading);
  top += HEAD;
  for (size_t r = 0; r < ranks; r++) {
    const double y = top + (double)(2 * r) * ROW;
    g_autofree char *name =
        ranks > 1 ? g_strdup_printf("rank %zu computes", r) : g_strdup("computes");
    add_text(svg, LEFT - 8, y + BAR - 3, "end", "#566372", name);
    add_text(svg, LEFT - 8, y + ROW + BAR - 3, "end", "#566372", "links");
  }
  for (size_t i = 0; i < timeline->count; i++)
    if (timeline->spans[i].server < ranks)
      add_span(svg, &job->profile, &timeline->spans[i], top, scale);
  const double x = LEFT + timeline->iteration_s * scale, bottom = top + (double)(2 * ranks) * ROW;
  g_string_append_printf(svg,
                         "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#a3222a\" "
                         "stroke-dasharray=\"3 2\"/>\n",
                         x, x, top - 4, bottom);
  return bottom + 8;
}

/* 1, 2 or 5 times a power of ten, for some ten of them. */
static double tick(double span) {
  const double power = pow(10, floor(log10(span / 10))), times = span / 10 / power;
  return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static void add_axis(GString *svg, double top, double end_s, double scale) {
  const double step = tick(end_s * 1e3);
  for (int i = 0; i * step <= end_s * 1e3 * (1 + 1e-9); i++) {
    g_autofree char *text = g_strdup_printf("%g ms", i * step);
    const double x = LEFT + i * step / 1e3 * scale;
    g_string_append_printf(svg,
                           "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                           "stroke=\"#c9d1da\"/>\n",
                           x, x, top, top + 5);
    const bool cut = x > WIDTH - 28; /* half of what stands there would be beyond the picture */
    add_text(svg, x, top + 19, i == 0 ? "start" : cut ? "end" : "middle", "#566372", text);
  }
}

static char *draw(const profile_job *job, const panel *panels, size_t count) {
  const double end_s = end_of(panels, count), scale = (WIDTH - LEFT - RIGHT) / end_s;
  size_t rows = 0;
  for (size_t p = 0; p < count; p++) rows += 2 * ranks_of(panels[p].timeline);
  const double height = (double)(rows * ROW + count * (HEAD + 8) + AXIS);
  g_autoptr(GString) svg = g_string_new(NULL);
  g_string_printf(svg, "<svg viewBox=\"0 0 %d %.0f\" xmlns=\"http://www.w3.org/2000/svg\">\n",
                  WIDTH, height);
  double top = 0;
  for (size_t p = 0; p < count; p++) top = add_panel(svg, job, &panels[p], top, scale);
  add_axis(svg, top, end_s, scale);
  g_string_append(svg, "</svg>\n");
  return g_strdup(svg->str);
}

/* --- the page --------------------------------------------------------------------------------- */

static void card(GString *page, const char *name, const char *note, const char *format,
                 double value) G_GNUC_PRINTF(4, 0);
static void card(GString *page, const char *name, const char *note, const char *format,
                 double value) {
  g_autofree char *text = g_strdup_printf(format, value);
  weir_page_card(page, text, name, note);
}

static void headline(GString *page, const profile_job *job, const profile_verdict *v) {
  g_autofree char *one = g_strdup_printf("the model allows %.2f at most", v->bound_over_one);
  g_autofree char *layers = g_strdup_printf("the model allows %.2f at most", v->bound_over_layers);
  g_autofree char *order = g_strdup_printf("%zu of %zu", v->right, v->pairs);
  g_string_append(page,
                  "<h1>A division of the gradient, planned and executed</h1><p class=\"sub\">");
  weir_page_escape(page, job->scenario);
  g_string_append(page, "</p>\n<div class=\"cards\">\n");
  card(page, "as fast as one group", one, "%.2f ×", v->over_one);
  card(page, "as fast as every tensor alone", layers, "%.2f ×", v->over_layers);
  card(page, "off at most", v->off_at->division, "%.1f %%", 100 * v->off);
  weir_page_card(page, order, "pairs in the order predicted", "predicted 5 % apart or more");
  g_string_append(page, "</div>\n");
}

static void table(GString *page, const profile_job *job) {
  g_string_append(
      page,
      "<section><h2>Divisions</h2><p>They took turns within one job. Predicted from "
      "some rounds of turns, measured in others; a step lasts until the last rank begins "
      "the next.</p>\n<table><tr><th>division</th><th>plan</th><th class=\"n\">groups"
      "</th><th class=\"n\">steps</th><th class=\"n\">predicted, ms</th>"
      "<th class=\"n\">measured, ms</th><th class=\"n\">error</th></tr>\n");
  for (size_t i = 0; i < job->count; i++) {
    const profile_turn *turn = &job->turns[i];
    weir_plan plan;
    g_string_append_printf(page, "<tr><td>%s%s</td><td>", turn->division,
                           turn == job->kept ? " <mark>fastest</mark>" : "");
    weir_page_plan(page, turn->plan,
                   weir_plan_parse(turn->plan, &plan) ? WEIR_COLL_COUNT : plan.collective);
    g_string_append(page, "</td>");
    weir_page_number(page, "%.0f", (double)turn->groups);
    weir_page_number(page, "%.0f", (double)turn->steps);
    weir_page_number(page, "%.1f", turn->predicted_s * 1e3);
    weir_page_number(page, "%.1f", turn->mean.period_s * 1e3);
    weir_page_number(page, "%+.1f %%", 100 * (turn->predicted_s / turn->mean.period_s - 1));
    g_string_append(page, "</tr>\n");
  }
  g_string_append(page, "</table></section>\n");
}

static void write_page(GString *page, const profile_job *job, const char *svg) {
  profile_verdict verdict;
  profile_judge(job, &verdict);
  g_autofree char *note = g_strdup_printf(
      "From the begin of the backward pass until the last group has been exchanged and decoded; "
      "%.1f ms for drawing, the forward pass and the update come on top. Measured: a step that "
      "took "
      "about as long as the mean, of the first %d ranks at most, on the last rank's clock. Numbers "
      "are groups; pointing at a bar names its tensors.",
      job->rest_s * 1e3, RANKS);
  weir_page_begin(page, "Weir: plans executed");
  headline(page, job, &verdict);
  table(page, job);
  weir_page_figure(page, "Where a step's time goes", note, keys, svg);
  weir_page_end(page);
}

weir_status profile_report(const profile_job *job) {
  const profile_turn *one = &job->turns[0], *planned = &job->turns[job->count - 1];
  weir_timeline whole = {0}, plan = {0};
  weir_status status = profile_predict(job, one, &whole);
  if (!status) status = profile_predict(job, planned, &plan);
  if (!status) {
    const panel panels[] = {{"One group, predicted", &whole},
                            {"One group, measured", &one->measured},
                            {"Planned, predicted", &plan},
                            {"Planned, measured", &planned->measured}};
    g_autofree char *svg = draw(job, panels, G_N_ELEMENTS(panels));
    g_autoptr(GString) page = g_string_new(NULL);
    write_page(page, job, svg);
    status = weir_page_write(page, job->out);
  }
  weir_timeline_free(&whole);
  weir_timeline_free(&plan);
  return status;
}
