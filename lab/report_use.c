/* Which plans a run used for how many of its steps. */
#include <math.h>
#include <string.h>

#include "lab/report_run.h"

enum { SHOWN_MOST = 30 };

/* A plan, or a ratio with its collective. */
typedef struct use {
  const char *codec, *collective;
  double cr;
  double steps, compress_ms, comm_ms, bytes;
} use;

static bool same(const use *u, const weir_report_step *s) {
  return u->codec == s->codec && u->collective == s->collective && u->cr == s->cr;
}

/* The most used first; then as they are named, so that the order says nothing by chance. */
static int by_steps(const void *a, const void *b) {
  const use *const x = a, *const y = b;
  if (x->steps != y->steps) return x->steps < y->steps ? 1 : -1;
  if (x->cr != y->cr) return x->cr < y->cr ? 1 : -1;
  return strcmp(x->collective, y->collective);
}

static GArray *count_uses(const weir_report_rows *rows) {
  GArray *uses = g_array_new(FALSE, TRUE, sizeof(use));
  size_t at = 0; /* of the step before: plans stay */
  for (size_t i = 0; i < rows->count; i++) {
    const weir_report_step *s = rows->row[i].step;
    if (at >= uses->len || !same(&g_array_index(uses, use, at), s))
      for (at = 0; at < uses->len && !same(&g_array_index(uses, use, at), s);) at++;
    if (at == uses->len) {
      const use fresh = {.codec = s->codec, .collective = s->collective, .cr = s->cr};
      g_array_append_val(uses, fresh);
    }
    use *u = &g_array_index(uses, use, at);
    u->steps++;
    u->compress_ms += s->compress_ms;
    u->comm_ms += s->comm_ms;
    u->bytes += s->wire_bytes;
  }
  g_array_sort(uses, by_steps);
  return uses;
}

static void add_use(weir_doc *doc, const use *u, double all) {
  g_autofree char *plan = g_strdup_printf("%s:%.4g:%s", u->codec, u->cr, u->collective);
  weir_doc_row(doc);
  weir_doc_plan(doc, plan, "");
  weir_doc_cell(doc, "%.0f", u->steps);
  weir_doc_cell(doc, "%.1f %%", 100 * u->steps / all);
  weir_doc_cell(doc, "%.2f", u->compress_ms / u->steps);
  weir_doc_cell(doc, "%.2f", u->comm_ms / u->steps);
  weir_doc_cell(doc, "%.4g", u->bytes / u->steps / 1e6);
  weir_doc_end_row(doc);
}

/* --- densities -------------------------------------------------------------------------------- */

enum { PLACES = 161 };

/* Ratios are compared by their logarithm; none is above 1. */
static double log_ratio(const use *u) { return fmin(0, log10(u->cr)); }

/* Silverman's rule with the standard deviation of log10(ratio) over all steps; no less than a
 * twentieth of a decade, so that a ratio that never moved is a hill and no needle. */
static double bandwidth_of(const GArray *uses, double all) {
  double mean = 0, square = 0;
  for (guint i = 0; i < uses->len; i++) {
    const use *u = &g_array_index(uses, use, i);
    mean += log_ratio(u) * u->steps / all;
    square += log_ratio(u) * log_ratio(u) * u->steps / all;
  }
  return fmax(0.05, 1.06 * sqrt(fmax(0, square - mean * mean)) * pow(all, -0.2));
}

static double bell(double distance, double bandwidth) {
  const double z = distance / bandwidth;
  return exp(-z * z / 2) / (bandwidth * sqrt(2 * G_PI));
}

/* Steps of one collective a decade at x = log10(ratio), of all steps.  What would lie above a ratio
 * of 1 is reflected there, so that the curves hold all steps. */
static double density_at(const GArray *uses, double all, const char *collective, double bandwidth,
                         double x) {
  double sum = 0;
  for (guint i = 0; i < uses->len; i++) {
    const use *u = &g_array_index(uses, use, i);
    if (u->collective == collective)
      sum +=
          u->steps / all * (bell(x - log_ratio(u), bandwidth) + bell(x + log_ratio(u), bandwidth));
  }
  return 100 * sum;
}

/* The collectives, the most used first. */
static GPtrArray *collectives_of(const GArray *uses) {
  GPtrArray *found = g_ptr_array_new();
  for (guint i = 0; i < uses->len; i++) {
    const char *collective = g_array_index(uses, use, i).collective;
    if (!g_ptr_array_find(found, collective, NULL)) g_ptr_array_add(found, (gpointer)collective);
  }
  return found;
}

static void add_curves(weir_doc *doc, const GArray *uses, double all, const GPtrArray *collectives,
                       double lowest, double bandwidth) {
  weir_doc_list(doc, "points");
  for (int p = 0; p < PLACES; p++) {
    const double x = lowest * (1 - p / (PLACES - 1.0));
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, pow(10, x));
    for (guint c = 0; c < collectives->len; c++)
      weir_doc_number(doc, NULL, density_at(uses, all, collectives->pdata[c], bandwidth, x));
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
}

/* As figures 7 and 8 of Flexible Communication: where on the scale of ratios a run spent its steps,
 * and with which collectives; one collective's area upon the other's. */
static void add_density(weir_doc *doc, const GArray *uses, double all) {
  g_autoptr(GPtrArray) collectives = collectives_of(uses);
  const double bandwidth = bandwidth_of(uses, all);
  double lowest = 0;
  for (guint i = 0; i < uses->len; i++)
    lowest = fmin(lowest, log_ratio(&g_array_index(uses, use, i)));
  lowest -= 3.5 * bandwidth;
  weir_doc_chart(doc, "lines", "% of committed steps a decade of compression ratios",
                 "compression ratio", pow(10, lowest), 1);
  weir_doc_flag(doc, "narrow", true);
  weir_doc_flag(doc, "log_x", true);
  weir_doc_list(doc, "series");
  for (guint c = 0; c < collectives->len; c++) {
    weir_doc_object(doc, NULL);
    weir_doc_text(doc, "name", collectives->pdata[c]);
    weir_doc_text(doc, "colour", weir_colour_of(collectives->pdata[c]).css);
    weir_doc_text(doc, "form", "area");
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
  add_curves(doc, uses, all, collectives, lowest, bandwidth);
  weir_doc_end(doc);
}

static void add_bar(weir_doc *doc, double row, const char *collective, double percent) {
  weir_doc_object(doc, NULL);
  weir_doc_number(doc, "row", row);
  weir_doc_number(doc, "from", 0);
  weir_doc_number(doc, "to", percent);
  weir_doc_text(doc, "colour", weir_colour_of(collective).css);
  weir_doc_format(doc, "text", "%s: %.1f %%", collective, percent);
  weir_doc_end(doc);
}

static double steps_of(const GArray *uses, const char *collective) {
  double steps = 0;
  for (guint i = 0; i < uses->len; i++)
    if (g_array_index(uses, use, i).collective == collective)
      steps += g_array_index(uses, use, i).steps;
  return steps;
}

/* Collectives are no scale, and nothing lies between two of them: each has its share. */
static void add_shares(weir_doc *doc, const GArray *uses, double all) {
  g_autoptr(GPtrArray) collectives = collectives_of(uses);
  weir_doc_chart(doc, "bars", "collectives", "% of committed steps", 0, 100);
  weir_doc_flag(doc, "narrow", true);
  weir_doc_flag(doc, "totals", true);
  weir_doc_list(doc, "bars");
  for (guint c = 0; c < collectives->len; c++)
    add_bar(doc, c, collectives->pdata[c], 100 * steps_of(uses, collectives->pdata[c]) / all);
  weir_doc_end_list(doc);
  weir_doc_list(doc, "rows");
  for (guint c = 0; c < collectives->len; c++) weir_doc_text(doc, NULL, collectives->pdata[c]);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

void weir_report_use(weir_doc *doc, const weir_report_rows *rows) {
  g_autoptr(GArray) uses = count_uses(rows);
  const double all = (double)MAX(rows->count, 1);
  weir_doc_section(doc, "Use of plans",
                   "Of the committed steps: a kernel density estimate over the logarithm of the "
                   "compression ratio (a collective's area is its share), and each collective's "
                   "share. Times in the table, and bytes sent by rank 0, are means of a step.");
  add_density(doc, uses, all);
  add_shares(doc, uses, all);
  weir_doc_table(doc, NULL, "plan|#steps|#share|#compress, ms|#communicate, ms|#MB sent");
  for (guint i = 0; i < MIN(uses->len, SHOWN_MOST); i++)
    add_use(doc, &g_array_index(uses, use, i), all);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}
