#include "lab/report_doc.h"

#include <math.h>
#include <string.h>

void weir_doc_card(weir_doc *doc, const char *value, const char *name, const char *note) {
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "value", value);
  weir_doc_text(doc, "name", name);
  weir_doc_text(doc, "note", note);
  weir_doc_end(doc);
}

void weir_doc_figure(weir_doc *doc, const char *name, const char *note, const char *format,
                     double value) {
  g_autofree char *text = isnan(value) ? g_strdup("–") : g_strdup_printf(format, value);
  weir_doc_card(doc, text, name, note);
}

void weir_doc_notice(weir_doc *doc, bool good, const char *text) {
  weir_doc_object(doc, NULL);
  weir_doc_flag(doc, "good", good);
  weir_doc_text(doc, "text", text);
  weir_doc_end(doc);
}

void weir_doc_key(weir_doc *doc, const char *name, const char *colour) {
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "name", name);
  weir_doc_text(doc, "colour", colour);
  weir_doc_end(doc);
}

void weir_doc_section(weir_doc *doc, const char *heading, const char *note) {
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "heading", heading);
  weir_doc_text(doc, "note", note);
  weir_doc_list(doc, "parts");
}

void weir_doc_end_section(weir_doc *doc) {
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

void weir_doc_table(weir_doc *doc, const char *name, const char *columns) {
  g_auto(GStrv) names = g_strsplit(columns, "|", -1);
  weir_doc_object(doc, name);
  weir_doc_list(doc, "columns");
  for (char **column = names; *column; column++) {
    weir_doc_object(doc, NULL);
    weir_doc_text(doc, "name", *column + (**column == '#'));
    weir_doc_flag(doc, "number", **column == '#');
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_list(doc, "rows");
}

void weir_doc_end_table(weir_doc *doc) {
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

void weir_doc_row(weir_doc *doc) {
  weir_doc_object(doc, NULL);
  weir_doc_list(doc, "cells");
}

void weir_doc_end_row(weir_doc *doc) {
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

void weir_doc_cell(weir_doc *doc, const char *format, double value) {
  g_autofree char *text = isnan(value) ? g_strdup("–") : g_strdup_printf(format, value);
  weir_doc_text(doc, NULL, text);
}

void weir_doc_chart(weir_doc *doc, const char *kind, const char *caption, const char *x_axis,
                    double begin_axis, double end_axis) {
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "chart", kind);
  weir_doc_text(doc, "caption", caption);
  weir_doc_text(doc, "x", x_axis);
  weir_doc_list(doc, "axis");
  weir_doc_number(doc, NULL, begin_axis);
  weir_doc_number(doc, NULL, end_axis);
  weir_doc_end_list(doc);
}

/* Families of collectives have a hue each, their algorithms a lightness: neither so light nor so
 * dark that they vanish where a dark page turns them over. */
weir_colour weir_colour_of(const char *collective) {
  static const struct {
    const char *prefix;
    int hue, saturation;
  } family[] = {{"dense", 210, 55},      {"ag", 26, 74},   {"art", 150, 45},
                {"hitopk", 350, 42},     {"sra", 277, 32}, {"hier-sra", 277, 32},
                {"compressed", 290, 30}, {"path=", 60, 55}};
  static const char *const algorithm[] = {"-ring",   "-star",        "-halving",
                                          "-torus",  "-double-tree", "-tree",
                                          "-direct", "dense-sra",    "-one-shot"};
  static const int lightness[] = {34, 60, 44, 50, 68, 58, 40, 54, 64};
  int hue = 212, saturation = 9, light = 46;
  for (size_t i = 0; i < G_N_ELEMENTS(family); i++)
    if (g_str_has_prefix(collective, family[i].prefix)) {
      hue = family[i].hue;
      saturation = family[i].saturation;
      break;
    }
  for (size_t i = 0; i < G_N_ELEMENTS(algorithm); i++)
    if (g_str_has_suffix(collective, algorithm[i])) {
      light = lightness[i];
      break;
    }
  if (strstr(collective, "hier-")) light -= 7;
  weir_colour colour;
  (void)g_snprintf(colour.css, sizeof colour.css, "hsl(%d,%d%%,%d%%)", hue, saturation, light);
  return colour;
}

/* CODEC:CR:COLLECTIVE[:WIRE] */
void weir_doc_plan(weir_doc *doc, const char *plan, const char *mark) {
  g_auto(GStrv) part = g_strsplit(plan, ":", 4);
  const char *collective = g_strv_length(part) > 2 ? part[2] : "";
  if (*collective) part[2][strcspn(part[2], "/")] = '\0'; /* "/5": of so many buckets */
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "text", plan);
  weir_doc_text(doc, "colour", weir_colour_of(collective).css);
  weir_doc_text(doc, "mark", mark);
  weir_doc_end(doc);
}
