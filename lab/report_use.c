/* Which plans a run used for how many of its steps. */
#include <math.h>
#include <stdlib.h>
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

/* Bars of several uses one behind the other in a row. */
typedef struct pile {
  char name[40];
  double until;
} pile;

static void add_share(weir_doc *doc, GArray *piles, const char *name, const char *collective,
                      double percent) {
  guint row = 0;
  while (row < piles->len && strcmp(g_array_index(piles, pile, row).name, name)) row++;
  if (row == piles->len) {
    pile fresh = {.until = 0};
    (void)g_strlcpy(fresh.name, name, sizeof fresh.name);
    g_array_append_val(piles, fresh);
  }
  pile *p = &g_array_index(piles, pile, row);
  weir_doc_object(doc, NULL);
  weir_doc_number(doc, "row", row);
  weir_doc_number(doc, "from", p->until);
  weir_doc_number(doc, "to", p->until += percent);
  weir_doc_text(doc, "colour", weir_colour_of(collective).css);
  weir_doc_format(doc, "text", "%s %s: %.1f %%", name, collective, percent);
  weir_doc_end(doc);
}

/* Tenths of a decade are one. */
static void name_ratio(const use *u, char name[40]) {
  (void)g_snprintf(name, 40, "%.2g", pow(10, round(10 * log10(u->cr)) / 10));
}

static void add_density(weir_doc *doc, const GArray *uses, double all, const char *caption,
                        bool ratios) {
  g_autoptr(GArray) piles = g_array_new(FALSE, TRUE, sizeof(pile));
  weir_doc_chart(doc, "bars", caption, "% of committed steps", 0, 100);
  weir_doc_flag(doc, "narrow", true);
  weir_doc_flag(doc, "totals", true);
  weir_doc_list(doc, "bars");
  for (guint i = 0; i < uses->len; i++) {
    const use *u = &g_array_index(uses, use, i);
    char name[40];
    name_ratio(u, name);
    add_share(doc, piles, ratios ? name : u->collective, u->collective, 100 * u->steps / all);
  }
  weir_doc_end_list(doc);
  weir_doc_list(doc, "rows");
  for (guint i = 0; i < piles->len; i++)
    weir_doc_text(doc, NULL, g_array_index(piles, pile, i).name);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

void weir_report_use(weir_doc *doc, const weir_report_rows *rows) {
  g_autoptr(GArray) uses = count_uses(rows);
  const double all = (double)MAX(rows->count, 1);
  weir_doc_section(doc, "Use of plans",
                   "Share of the committed steps. Compression ratios are rounded to tenths of a "
                   "decade in the chart; times in the table, and bytes sent by rank 0, "
                   "are means of a step.");
  add_density(doc, uses, all, "compression ratios", true);
  add_density(doc, uses, all, "collectives", false);
  weir_doc_table(doc, NULL, "plan|#steps|#share|#compress, ms|#communicate, ms|#MB sent");
  for (guint i = 0; i < MIN(uses->len, SHOWN_MOST); i++)
    add_use(doc, &g_array_index(uses, use, i), all);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}
