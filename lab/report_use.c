/* Which plans a run used for how many of its steps. */
#include <math.h>
#include <string.h>

#include "lab/report_run.h"

enum { SHOWN_MOST = 30 };

/* A plan, or a ratio with its collective. */
typedef struct use {
  const char *plan, *codec, *collective;
  double cr;
  double place; /* of its collective among those of the report */
  double steps, compress_ms, comm_ms, bytes;
} use;

static bool same(const use *u, const weir_report_step *s) {
  return u->plan == s->plan && u->codec == s->codec && u->collective == s->collective &&
         u->cr == s->cr;
}

/* The most used first; then as they are named, so that the order says nothing by chance. */
static int by_steps(const void *a, const void *b) {
  const use *const x = a, *const y = b;
  if (x->steps != y->steps) return x->steps < y->steps ? 1 : -1;
  if (x->cr != y->cr) return x->cr < y->cr ? 1 : -1;
  const int order = strcmp(x->collective, y->collective);
  return order ? order : strcmp(x->plan, y->plan);
}

static GArray *count_uses(const weir_report_rows *rows) {
  GArray *uses = g_array_new(FALSE, TRUE, sizeof(use));
  size_t at = 0; /* of the step before: plans stay */
  for (size_t i = 0; i < rows->count; i++) {
    const weir_report_step *s = rows->row[i].step;
    if (at >= uses->len || !same(&g_array_index(uses, use, at), s))
      for (at = 0; at < uses->len && !same(&g_array_index(uses, use, at), s);) at++;
    if (at == uses->len) {
      const use fresh = {
          .plan = s->plan, .codec = s->codec, .collective = s->collective, .cr = s->cr};
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
  g_autofree char *plan =
      *u->plan ? g_strdup(u->plan) : g_strdup_printf("%s:%.4g:%s", u->codec, u->cr, u->collective);
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

/* A kernel density estimate of the committed steps over some axis, by Gaussian kernels. */
typedef struct density {
  const GArray *uses;
  double all;                    /* steps */
  double (*place)(const use *u); /* on the axis */
  double area;
  bool mirrored; /* what would lie above 0 is reflected there, so that the curves hold all steps */
  double bandwidth, from, to;
} density;

/* Ratios are compared by their logarithm; none is above 1. */
static double log_ratio(const use *u) { return fmin(0, log10(u->cr)); }
static double place_of_collective(const use *u) { return u->place; }

/* Silverman's rule with the standard deviation over all steps; no less than a twentieth of the
 * axis' unit, so that what never moved is a hill and no needle. */
static double bandwidth_of(const density *d) {
  double mean = 0, square = 0;
  for (guint i = 0; i < d->uses->len; i++) {
    const use *u = &g_array_index(d->uses, use, i);
    mean += d->place(u) * u->steps / d->all;
    square += d->place(u) * d->place(u) * u->steps / d->all;
  }
  return fmax(0.05, 1.06 * sqrt(fmax(0, square - mean * mean)) * pow(d->all, -0.2));
}

/* The bandwidth, and the part of the axis beyond which there is next to nothing. */
static void measure(density *d) {
  d->bandwidth = bandwidth_of(d);
  for (guint i = 0; i < d->uses->len; i++) {
    const double at = d->place(&g_array_index(d->uses, use, i));
    d->from = fmin(d->from, at);
    d->to = fmax(d->to, at);
  }
  d->from -= 3.5 * d->bandwidth;
  d->to += d->mirrored ? 0 : 3.5 * d->bandwidth;
}

static double bell(double distance, double bandwidth) {
  const double z = distance / bandwidth;
  return exp(-z * z / 2) / (bandwidth * sqrt(2 * G_PI));
}

/* What the steps of one collective contribute at x. */
static double density_at(const density *d, const char *collective, double x) {
  double sum = 0;
  for (guint i = 0; i < d->uses->len; i++) {
    const use *u = &g_array_index(d->uses, use, i);
    if (u->collective != collective) continue;
    const double at = d->place(u), mirrored = d->mirrored ? bell(x + at, d->bandwidth) : 0;
    sum += u->steps / d->all * (bell(x - at, d->bandwidth) + mirrored);
  }
  return d->area * sum;
}

/* The collectives, the most used plan's first. */
static GPtrArray *collectives_of(const GArray *uses) {
  GPtrArray *found = g_ptr_array_new();
  for (guint i = 0; i < uses->len; i++) {
    use *u = &g_array_index(uses, use, i);
    guint place = found->len;
    if (!g_ptr_array_find(found, u->collective, &place))
      g_ptr_array_add(found, (gpointer)u->collective);
    u->place = place;
  }
  return found;
}

static double share_of(const GArray *uses, double all, const char *collective) {
  double steps = 0;
  for (guint i = 0; i < uses->len; i++)
    if (g_array_index(uses, use, i).collective == collective)
      steps += g_array_index(uses, use, i).steps;
  return 100 * steps / all;
}

static void add_series(weir_doc *doc, const density *d, const GPtrArray *collectives) {
  weir_doc_list(doc, "series");
  for (guint c = 0; c < collectives->len; c++) {
    const char *name = collectives->pdata[c];
    weir_doc_object(doc, NULL);
    weir_doc_text(doc, "name", name);
    weir_doc_format(doc, "key", "%s, %.1f %%", name, share_of(d->uses, d->all, name));
    weir_doc_text(doc, "colour", weir_colour_of(name).css);
    weir_doc_text(doc, "form", "area");
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

/* One collective's area upon the other's. */
static void add_curves(weir_doc *doc, const density *d, const GPtrArray *collectives, bool log_x) {
  weir_doc_flag(doc, "narrow", true);
  weir_doc_flag(doc, "log_x", log_x);
  add_series(doc, d, collectives);
  weir_doc_list(doc, "points");
  for (int p = 0; p < PLACES; p++) {
    const double x = d->from + (d->to - d->from) * p / (PLACES - 1);
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, log_x ? pow(10, x) : x);
    for (guint c = 0; c < collectives->len; c++)
      weir_doc_number(doc, NULL, density_at(d, collectives->pdata[c], x));
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
}

/* Figure 7 of Flexible Communication: where on the scale of ratios a run spent its steps. */
static void add_ratios(weir_doc *doc, const GArray *uses, double all,
                       const GPtrArray *collectives) {
  density d = {.uses = uses, .all = all, .place = log_ratio, .area = 100, .mirrored = true};
  measure(&d);
  weir_doc_chart(doc, "lines", "% of committed steps a decade of compression ratios",
                 "compression ratio", pow(10, d.from), 1);
  add_curves(doc, &d, collectives, true);
  weir_doc_end(doc);
}

/* Its figure 8: with which collectives, which stand at 0, 1, 2 and so on of the axis. */
static void add_collectives(weir_doc *doc, const GArray *uses, double all,
                            const GPtrArray *collectives) {
  density d = {.uses = uses, .all = all, .place = place_of_collective, .area = 1};
  measure(&d);
  weir_doc_chart(doc, "lines", "density of committed steps over collectives", "collective", d.from,
                 d.to);
  weir_doc_list(doc, "places");
  for (guint c = 0; c < collectives->len; c++) weir_doc_text(doc, NULL, collectives->pdata[c]);
  weir_doc_end_list(doc);
  add_curves(doc, &d, collectives, false);
  weir_doc_end(doc);
}

void weir_report_use(weir_doc *doc, const weir_report_rows *rows) {
  g_autoptr(GArray) uses = count_uses(rows);
  g_autoptr(GPtrArray) collectives = collectives_of(uses);
  const double all = (double)MAX(rows->count, 1);
  const guint shown = MIN(uses->len, SHOWN_MOST);
  g_autoptr(GString) note = g_string_new(
      "Of the committed steps: kernel density estimates over the logarithm of the compression "
      "ratio, and over the collectives, side by side in this order. A collective's area is its "
      "share in both. Times in the table, and bytes sent by rank 0, are means of a step.");
  if (shown < uses->len)
    g_string_append_printf(note, " %u plans that were used less are in steps.csv alone.",
                           uses->len - shown);
  weir_doc_section(doc, "Use of plans", note->str);
  add_ratios(doc, uses, all, collectives);
  add_collectives(doc, uses, all, collectives);
  weir_doc_table(doc, NULL, "plan|#steps|#share|#compress, ms|#communicate, ms|#MB sent");
  for (guint i = 0; i < shown; i++) add_use(doc, &g_array_index(uses, use, i), all);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}
