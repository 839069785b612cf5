/* Why a run's plans were chosen, as a section of its page. */

#include "lab/explain.h"
#include "lab/report_run.h"

enum { REASONS_MOST = 100 };

static void add_reason(weir_doc *doc, const weir_reason *r) {
  weir_doc_object(doc, NULL);
  weir_doc_flag(doc, "kept", !r->switched);
  weir_doc_list(doc, "cells");
  weir_doc_cell(doc, "%.0f", r->step);
  weir_doc_text(doc, NULL, r->title);
  weir_doc_cell(doc, "%.1f %%", 100 * r->regret);
  weir_doc_end_list(doc);
  weir_doc_object(doc, "below");
  weir_doc_format(doc, "text", "%s %s %s %s", r->measured, r->tried, r->believed, r->came);
  weir_doc_end(doc);
  weir_doc_end(doc);
}

void weir_report_reasons(weir_doc *doc, const weir_report_data *data) {
  g_autoptr(GPtrArray) reasons = weir_explain(data);
  if (!reasons->len) return;
  g_autofree char *whole = weir_explain_whole(data, reasons);
  g_autoptr(GString) note = g_string_new(whole);
  g_string_append(note,
                  " Of each switch, and each trial that led to none: what was measured, what was "
                  "tried, what was believed, what came of it, and the regret afterwards.");
  if (reasons->len > REASONS_MOST)
    g_string_append_printf(note, " %u more are told by `weir explain`.",
                           reasons->len - REASONS_MOST);
  weir_doc_section(doc, "Why", note->str);
  weir_doc_table(doc, NULL, "#step|what|#regret");
  for (guint i = 0; i < MIN(reasons->len, REASONS_MOST); i++) add_reason(doc, reasons->pdata[i]);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}
