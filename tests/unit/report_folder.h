/* A folder with a believable run and a comparison, and what is done to its files in tests of
 * reports. */
#ifndef WEIR_TESTS_REPORT_FOLDER_H
#define WEIR_TESTS_REPORT_FOLDER_H

#include <criterion/criterion.h>
#include <glib.h>
#include <json-glib/json-glib.h>
#include <string.h>
#include <unistd.h>

#include "run_files.h"

static char directory[64];

static const char *path_of(const char *name) {
  static char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static void set_up(void) {
  (void)strcpy(directory, "/tmp/weir-run-XXXXXX");
  cr_assert(mkdtemp(directory));
  run_write(directory);
  compare_write(directory);
}

static void tear_down(void) {
  GDir *d = g_dir_open(directory, 0, NULL);
  for (const char *name; (name = g_dir_read_name(d));)
    if (unlink(path_of(name))) (void)rmdir(path_of(name));
  g_dir_close(d);
  (void)rmdir(directory);
}

static char *slurp(const char *name) {
  char *text = NULL;
  cr_assert(g_file_get_contents(path_of(name), &text, NULL, NULL), "%s", name);
  return text;
}

static void store(const char *name, const char *text, gssize bytes) {
  cr_assert(g_file_set_contents(path_of(name), text, bytes, NULL));
}

static inline size_t occurrences(const char *text, const char *of) {
  size_t n = 0;
  while ((text = strstr(text, of))) n++, text += strlen(of);
  return n;
}

static void no_outside_world(const char *page) {
  cr_assert(strstr(page, "default-src 'none'"));
  cr_assert_null(strstr(page, "<link"));
  cr_assert_null(strstr(page, " src="));
  cr_assert_null(strstr(page, "href=\"http"));
  cr_assert_null(strstr(page, "url(http"));
  cr_assert_null(strstr(page, "@import"));
}

/* The charts' data, as they stand in the page. */
static JsonArray *charts_of(const char *page, JsonParser *parser) {
  const char *begin = strstr(page, "id=\"charts\">") + strlen("id=\"charts\">");
  const char *end = strstr(begin, "</script>");
  GError *error = NULL;
  cr_assert(json_parser_load_from_data(parser, begin, end - begin, &error), "%s",
            error ? error->message : "");
  return json_node_get_array(json_parser_get_root(parser));
}

static JsonObject *chart_of(JsonArray *charts, const char *caption) {
  for (guint i = 0; i < json_array_get_length(charts); i++) {
    JsonObject *chart = json_array_get_object_element(charts, i);
    if (!strcmp(json_object_get_string_member(chart, "caption"), caption)) return chart;
  }
  cr_assert_fail("there is no chart '%s'", caption);
  return NULL;
}

static inline JsonArray *points_of(JsonArray *charts, const char *caption) {
  return json_object_get_array_member(chart_of(charts, caption), "points");
}

static void replace(const char *name, const char *from, const char *to) {
  char *text = slurp(name);
  GString *changed = g_string_new(text);
  cr_assert(g_string_replace(changed, from, to, 1), "'%s' is not in %s", from, name);
  store(name, changed->str, (gssize)changed->len);
  g_string_free(changed, TRUE);
  g_free(text);
}

#endif
