#include "lab/doc.h"

#include <math.h>
#include <stdio.h>

static void member(weir_doc *doc, const char *name) {
  if (name) json_builder_set_member_name(doc, name);
}

/* Names of files are bytes, and messages may be cut inside of a letter: JSON is UTF-8. */
void weir_doc_text(weir_doc *doc, const char *name, const char *text) {
  g_autofree char *valid = text ? g_utf8_make_valid(text, -1) : NULL;
  member(doc, name);
  json_builder_add_string_value(doc, valid);
}

void weir_doc_format(weir_doc *doc, const char *name, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  weir_doc_text(doc, name, text);
}

void weir_doc_number(weir_doc *doc, const char *name, double value) {
  member(doc, name);
  if (isfinite(value))
    json_builder_add_double_value(doc, value);
  else
    json_builder_add_null_value(doc);
}

void weir_doc_whole(weir_doc *doc, const char *name, gint64 value) {
  member(doc, name);
  json_builder_add_int_value(doc, value);
}

void weir_doc_flag(weir_doc *doc, const char *name, bool value) {
  member(doc, name);
  json_builder_add_boolean_value(doc, value);
}

void weir_doc_object(weir_doc *doc, const char *name) {
  member(doc, name);
  json_builder_begin_object(doc);
}

void weir_doc_list(weir_doc *doc, const char *name) {
  member(doc, name);
  json_builder_begin_array(doc);
}

void weir_doc_end(weir_doc *doc) { json_builder_end_object(doc); }
void weir_doc_end_list(weir_doc *doc) { json_builder_end_array(doc); }

char *weir_doc_line(weir_doc *doc) {
  weir_doc_end(doc);
  g_autoptr(JsonNode) root = json_builder_get_root(doc);
  g_autofree char *text = json_to_string(root, FALSE);
  return g_strconcat(text, "\n", NULL);
}

char *weir_doc_lines(weir_doc *doc) {
  weir_doc_end(doc);
  g_autoptr(JsonNode) root = json_builder_get_root(doc);
  return json_to_string(root, TRUE);
}

void weir_doc_print(weir_doc *doc) {
  g_autofree char *line = weir_doc_line(doc);
  fputs(line, stdout);
}
