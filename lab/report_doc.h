/* A report as data.  What is to be told is built as one JSON document, report_page.c puts it into
 * the template (report.html): cards and tables as plain HTML, charts as JSON that the template
 * draws.
 *
 *   {"title", "sub", "notices": [{"good", "text"}], "cards": [{"value", "name", "note"}],
 *    "keys": [{"name", "colour"}], "sections": [{"heading", "note", "parts": [TABLE or CHART]}]}
 *   TABLE  {"columns": [{"name", "number"}], "rows": [{"cells": [CELL], "kept", "below": BELOW}]}
 *   CELL   text, or {"text", "colour", "mark"}, or {"text", "link"}, or {"bad"}, or a list of such
 *   BELOW  {"text", "summary", "table": TABLE, "after"}
 *   CHART  {"chart": "lines" or "bars", ...}: see the template */
#ifndef WEIR_LAB_REPORT_DOC_H
#define WEIR_LAB_REPORT_DOC_H

#include <stdbool.h>
#include <weir/status.h>

#include "lab/doc.h"

void weir_doc_card(weir_doc *doc, const char *value, const char *name, const char *note);
/* A card with a number in the given format of one double; a dash for NAN. */
void weir_doc_figure(weir_doc *doc, const char *name, const char *note, const char *format,
                     double value) G_GNUC_PRINTF(4, 0);
void weir_doc_notice(weir_doc *doc, bool good, const char *text);
void weir_doc_key(weir_doc *doc, const char *name, const char *colour);
/* A section and its list of parts. */
void weir_doc_section(weir_doc *doc, const char *heading, const char *note);
void weir_doc_end_section(weir_doc *doc);
/* A table: names of its columns with | between, those of numbers begin with #. */
void weir_doc_table(weir_doc *doc, const char *name, const char *columns);
void weir_doc_end_table(weir_doc *doc);
void weir_doc_row(weir_doc *doc); /* its cells follow */
void weir_doc_end_row(weir_doc *doc);
/* A cell with a number in the given format of one double; a dash for NAN. */
void weir_doc_cell(weir_doc *doc, const char *format, double value) G_GNUC_PRINTF(2, 0);
/* A chart; its members follow.  end_axis: where the axis ends when nothing is zoomed; NAN: with the
 * data. */
void weir_doc_chart(weir_doc *doc, const char *kind, const char *caption, const char *x_axis,
                    double begin_axis, double end_axis);

/* The colour of a collective, the same in every chart and table, or of anything else; CSS. */
typedef struct weir_colour {
  char css[40];
} weir_colour;
weir_colour weir_colour_of(const char *collective);
/* A plan with its collective's colour, as a cell. */
void weir_doc_plan(weir_doc *doc, const char *plan, const char *mark);

/* The whole page's text; g_free. */
char *weir_page_text(weir_doc *doc);
/* Write it to directory/report.html, under a temporary name, and rename that. */
weir_status weir_page_write(weir_doc *doc, const char *directory);

#endif
