/* From a report's document to its page: the template, with cards and tables as HTML, which says
 * what there is to say without any script, and with charts as JSON for the template's script. */
#include <glib/gstdio.h>
#include <string.h>

#include "base/base.h"
#include "lab/report_doc.h"
#include "lab/report_template.h"

/* --- tables and cards ------------------------------------------------------------------------- */

static const char *text_of(JsonObject *object, const char *name) {
  return json_object_get_string_member_with_default(object, name, "");
}

static bool flag_of(JsonObject *object, const char *name) {
  return json_object_get_boolean_member_with_default(object, name, FALSE);
}

static JsonArray *list_of(JsonObject *object, const char *name) {
  return json_object_has_member(object, name) ? json_object_get_array_member(object, name) : NULL;
}

/* A page has no place for what a document leaves out. */
static guint length_of(JsonArray *list) { return list ? json_array_get_length(list) : 0; }

/* Every %s is made harmless. */
static void add(GString *html, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void add(GString *html, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_markup_vprintf_escaped(format, args);
  va_end(args);
  g_string_append(html, text);
}

static void add_rich(GString *html, JsonObject *rich) {
  const char *text = text_of(rich, "text");
  if (json_object_has_member(rich, "colour"))
    add(html, "<span class=\"plan\"><i class=\"dot\" style=\"background:%s\"></i>%s</span>",
        text_of(rich, "colour"), text);
  else if (json_object_has_member(rich, "link"))
    add(html, "<a href=\"%s\">%s</a> ", text_of(rich, "link"), text);
  else
    add(html, "<span class=\"bad\">%s</span> ", text_of(rich, "bad"));
  if (*text_of(rich, "mark")) add(html, " <mark>%s</mark>", text_of(rich, "mark"));
}

static void add_cell(GString *html, JsonNode *cell, bool number) {
  g_string_append(html, number ? "<td class=n>" : "<td>");
  if (JSON_NODE_HOLDS_OBJECT(cell))
    add_rich(html, json_node_get_object(cell));
  else if (JSON_NODE_HOLDS_VALUE(cell))
    add(html, "%s", json_node_get_string(cell));
  else
    for (guint i = 0; i < json_array_get_length(json_node_get_array(cell)); i++)
      add_rich(html, json_array_get_object_element(json_node_get_array(cell), i));
  g_string_append(html, "</td>");
}

static void add_table(GString *html, JsonObject *table);

/* What a row has to say beyond its columns. */
static void add_below(GString *html, JsonObject *below, guint columns) {
  add(html, "<tr class=\"more\"><td colspan=\"%u\">%s", columns, text_of(below, "text"));
  if (json_object_has_member(below, "table")) {
    add(html, "<details><summary>%s</summary>", text_of(below, "summary"));
    add_table(html, json_object_get_object_member(below, "table"));
    add(html, "%s</details>", text_of(below, "after"));
  }
  g_string_append(html, "</td></tr>\n");
}

static void add_row(GString *html, JsonObject *row, JsonArray *columns) {
  JsonArray *cells = list_of(row, "cells");
  const bool below = json_object_has_member(row, "below");
  g_string_append(html, !below                 ? "<tr>"
                        : flag_of(row, "kept") ? "<tr class=\"head kept\">"
                                               : "<tr class=head>");
  for (guint i = 0; i < json_array_get_length(cells); i++)
    add_cell(html, json_array_get_element(cells, i),
             flag_of(json_array_get_object_element(columns, i), "number"));
  g_string_append(html, "</tr>\n");
  if (below)
    add_below(html, json_object_get_object_member(row, "below"), json_array_get_length(columns));
}

static void add_table(GString *html, JsonObject *table) {
  JsonArray *columns = list_of(table, "columns"), *rows = list_of(table, "rows");
  g_string_append(html, "<div class=\"wide\"><table><thead><tr>");
  for (guint i = 0; i < json_array_get_length(columns); i++) {
    JsonObject *column = json_array_get_object_element(columns, i);
    g_string_append(html, flag_of(column, "number") ? "<th class=n>" : "<th>");
    add(html, "%s</th>", text_of(column, "name"));
  }
  g_string_append(html, "</tr></thead><tbody>\n");
  for (guint i = 0; i < json_array_get_length(rows); i++)
    add_row(html, json_array_get_object_element(rows, i), columns);
  g_string_append(html, "</tbody></table></div>\n");
}

static void add_keys(GString *html, JsonArray *keys) {
  if (!keys) return;
  g_string_append(html, "<div class=\"keys\">");
  for (guint i = 0; i < json_array_get_length(keys); i++) {
    JsonObject *key = json_array_get_object_element(keys, i);
    add(html, "<span><i class=\"dot\" style=\"background:%s\"></i>%s</span>",
        text_of(key, "colour"), text_of(key, "name"));
  }
  g_string_append(html, "</div>\n");
}

/* A chart's place on the page; what is in it goes to the list of charts. */
static void add_chart(GString *html, JsonObject *chart, const char *heading, JsonArray *charts) {
  add(html,
      "<figure class=\"chart%s\" data-chart=\"%u\" role=\"img\" aria-label=\"%s: %s\">"
      "<figcaption>%s</figcaption></figure>\n",
      flag_of(chart, "narrow") ? " narrow" : "", json_array_get_length(charts), heading,
      text_of(chart, "caption"), text_of(chart, "caption"));
  json_array_add_object_element(charts, json_object_ref(chart));
}

static void add_section(GString *html, JsonObject *section, JsonArray *charts) {
  JsonArray *parts = list_of(section, "parts");
  add(html, "<section><h2>%s</h2><p>%s</p>\n", text_of(section, "heading"),
      text_of(section, "note"));
  for (guint i = 0; i < length_of(parts); i++) {
    JsonObject *part = json_array_get_object_element(parts, i);
    if (json_object_has_member(part, "chart"))
      add_chart(html, part, text_of(section, "heading"), charts);
    else
      add_table(html, part);
  }
  g_string_append(html, "</section>\n");
}

static void add_head(GString *html, JsonObject *root) {
  JsonArray *notices = list_of(root, "notices"), *cards = list_of(root, "cards");
  add(html, "<h1>%s</h1><p class=\"sub\">%s</p>\n<div class=\"cards\">\n", text_of(root, "title"),
      text_of(root, "sub"));
  for (guint i = 0; i < length_of(cards); i++) {
    JsonObject *card = json_array_get_object_element(cards, i);
    add(html, "<div class=\"card\"><b>%s</b><i>%s</i><small>%s</small></div>\n",
        text_of(card, "value"), text_of(card, "name"), text_of(card, "note"));
  }
  g_string_append(html, "</div>\n");
  for (guint i = 0; i < length_of(notices); i++) {
    JsonObject *notice = json_array_get_object_element(notices, i);
    add(html, "<p class=\"%s\">%s</p>\n", flag_of(notice, "good") ? "good" : "bad",
        text_of(notice, "text"));
  }
  add_keys(html, list_of(root, "keys"));
}

/* --- the page --------------------------------------------------------------------------------- */

/* JSON that may stand in a script element, with no more digits than a chart can show. */
static void add_compact(GString *page, const char *json) {
  for (bool quoted = false; *json;) {
    if (!quoted && (g_ascii_isdigit(*json) || *json == '-')) {
      char *end = NULL, shorter[32];
      const double value = g_ascii_strtod(json, &end);
      g_string_append(page, g_ascii_formatd(shorter, sizeof shorter, "%.6g", value));
      json = end;
    } else if (*json == '<') {
      g_string_append(page, "\\u003c");
      json++;
    } else {
      if (*json == '"') quoted = !quoted;
      if (*json == '\\') g_string_append_c(page, *json++);
      g_string_append_c(page, *json++);
    }
  }
}

static void add_charts(GString *page, JsonArray *charts) {
  g_autoptr(JsonNode) node = json_node_new(JSON_NODE_ARRAY);
  json_node_set_array(node, charts);
  g_autofree char *json = json_to_string(node, FALSE);
  add_compact(page, json);
}

/* The template up to a placeholder; tells where it goes on behind it. */
static const char *copy_to(GString *page, const char *from, const char *placeholder) {
  const char *at = strstr(from, placeholder);
  g_string_append_len(page, from, at - from);
  return at + strlen(placeholder);
}

char *weir_page_text(weir_doc *doc) {
  g_autoptr(JsonNode) node = json_builder_get_root(doc);
  JsonObject *root = json_node_get_object(node);
  JsonArray *sections = list_of(root, "sections");
  g_autoptr(JsonArray) charts = json_array_new();
  GString *page = g_string_new(NULL);
  const char *rest = copy_to(page, (const char *)weir_report_template, "{{title}}");
  add(page, "Weir: %s", text_of(root, "title"));
  rest = copy_to(page, rest, "{{body}}");
  add_head(page, root);
  for (guint i = 0; i < length_of(sections); i++)
    add_section(page, json_array_get_object_element(sections, i), charts);
  rest = copy_to(page, rest, "{{charts}}");
  add_charts(page, charts);
  g_string_append(page, rest);
  return g_string_free(page, FALSE);
}

weir_status weir_page_write(weir_doc *doc, const char *directory) {
  g_autofree char *path = g_build_filename(directory, "report.html", NULL);
  g_autofree char *page = weir_page_text(doc);
  g_autoptr(GError) error = NULL;
  if (g_file_set_contents_full(path, page, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0666, &error))
    return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s", error->message);
}
