/* Reading a run's JSON for its report, without trust. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "lab/report_data.h"

#define DEEPEST 32 /* nesting; our own files need 4 */
static const goffset most_bytes = 512 * 1024 * 1024;

void weir_report_refuse(weir_report_place *place, const char *format, ...) {
  if (place->status) return;
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  g_autofree char *path = g_build_filename(place->directory, place->file, NULL);
  place->status = place->line ? weir_fail(WEIR_E_PARSE, "%s:%zu: %s", path, place->line, message)
                              : weir_fail(WEIR_E_PARSE, "%s: %s", path, message);
}

char *weir_report_slurp(weir_report_place *place, const char *directory, size_t *bytes) {
  char *path = g_build_filename(directory, place->file, NULL), *text = NULL;
  GError *error = NULL;
  GStatBuf info;
  place->directory = directory;
  const bool there = g_stat(path, &info) == 0;
  if (there && !S_ISREG(info.st_mode)) /* a pipe would hold us up, a device would not end */
    place->status = weir_fail(WEIR_E_IO, "%s: is no regular file", path);
  else if (there && info.st_size > most_bytes)
    place->status = weir_fail(WEIR_E_IO, "%s: larger than 512 MiB", path);
  else if (!g_file_get_contents(path, &text, bytes, &error)) {
    place->status = weir_fail(WEIR_E_IO, "%s", error->message);
    g_error_free(error);
  }
  if (text && memchr(text, 0, *bytes)) {
    weir_report_refuse(place, "holds a zero byte, expected text");
    g_clear_pointer(&text, g_free);
  }
  g_free(path);
  return text;
}

const char *weir_json_hostile(const char *text, size_t bytes) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < bytes; i++) {
    if (quoted && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && strchr("'/#", text[i]))
      return "JSON has no comments, and no quotes but \"";
    else if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > DEEPEST)
      return "nested deeper than " G_STRINGIFY(DEEPEST);
    else if (!quoted && (text[i] == ']' || text[i] == '}'))
      depth--;
  }
  return NULL;
}

JsonObject *weir_report_json(weir_report_place *place, JsonParser *parser, const char *text,
                             size_t bytes) {
  if (!g_utf8_validate(text, (gssize)bytes, NULL)) {
    weir_report_refuse(place, "not valid UTF-8");
    return NULL;
  }
  const char *hostile = weir_json_hostile(text, bytes);
  if (hostile) {
    weir_report_refuse(place, "%s", hostile);
    return NULL;
  }
  GError *error = NULL;
  if (!json_parser_load_from_data(parser, text, (gssize)bytes, &error)) {
    weir_report_refuse(place, "%s", error->message);
    g_error_free(error);
    return NULL;
  }
  JsonNode *root = json_parser_get_root(parser);
  if (root && JSON_NODE_HOLDS_OBJECT(root)) return json_node_get_object(root);
  weir_report_refuse(place, "expected a JSON object");
  return NULL;
}

JsonObject *weir_report_load(weir_report_place *place, JsonParser *parser, const char *directory) {
  size_t bytes = 0;
  g_autofree char *text = weir_report_slurp(place, directory, &bytes);
  return text ? weir_report_json(place, parser, text, bytes) : NULL;
}

/* NULL when missing or null. */
static JsonNode *member(weir_report_place *place, JsonObject *object, const char *name,
                        weir_report_need need) {
  JsonNode *node = json_object_get_member(object, name);
  if (node && !JSON_NODE_HOLDS_NULL(node)) return node;
  if (need == WEIR_REQUIRED) weir_report_refuse(place, "'%s' is missing", name);
  return NULL;
}

static bool is_number(JsonNode *node) {
  const GType type = JSON_NODE_HOLDS_VALUE(node) ? json_node_get_value_type(node) : G_TYPE_INVALID;
  return type == G_TYPE_INT64 || type == G_TYPE_DOUBLE;
}

double weir_report_signed(weir_report_place *place, JsonObject *object, const char *name,
                          weir_report_need need) {
  JsonNode *node = member(place, object, name, need);
  if (!node) return NAN;
  const double value = is_number(node) ? json_node_get_double(node) : NAN;
  if (!isfinite(value)) weir_report_refuse(place, "'%s' must be a number", name);
  return value;
}

double weir_report_number(weir_report_place *place, JsonObject *object, const char *name,
                          weir_report_need need) {
  JsonNode *node = member(place, object, name, need);
  if (!node) return NAN;
  const double value = is_number(node) ? json_node_get_double(node) : NAN;
  if (isfinite(value) && value >= 0) return value;
  weir_report_refuse(place, "'%s' must be a number, 0 or more", name);
  return NAN;
}

gint64 weir_report_whole(weir_report_place *place, JsonObject *object, const char *name,
                         weir_report_need need) {
  JsonNode *node = member(place, object, name, need);
  if (!node) return -1;
  const gint64 value = JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_INT64
                           ? json_node_get_int(node)
                           : -1;
  if (value < 0) weir_report_refuse(place, "'%s' must be a whole number, 0 or more", name);
  return value;
}

char *weir_report_text(weir_report_place *place, JsonObject *object, const char *name,
                       weir_report_need need) {
  JsonNode *node = member(place, object, name, need);
  if (!node) return g_strdup("");
  if (JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING)
    return g_strdup(json_node_get_string(node));
  weir_report_refuse(place, "'%s' must be a string", name);
  return g_strdup("");
}

JsonArray *weir_report_array(weir_report_place *place, JsonObject *object, const char *name,
                             weir_report_need need) {
  JsonNode *node = member(place, object, name, need);
  if (!node) return NULL;
  if (JSON_NODE_HOLDS_ARRAY(node)) return json_node_get_array(node);
  weir_report_refuse(place, "'%s' must be a list", name);
  return NULL;
}

JsonObject *weir_report_element(weir_report_place *place, JsonArray *array, const char *name,
                                size_t at) {
  JsonNode *node = json_array_get_element(array, (guint)at);
  if (JSON_NODE_HOLDS_OBJECT(node)) return json_node_get_object(node);
  weir_report_refuse(place, "'%s'[%zu] must be an object", name, at);
  return NULL;
}

weir_report_point *weir_report_points(weir_report_place *place, JsonObject *object,
                                      const char *name, size_t *count) {
  JsonArray *list = weir_report_array(place, object, name, WEIR_REQUIRED);
  *count = list ? json_array_get_length(list) : 0;
  weir_report_point *points = g_new0(weir_report_point, *count + 1);
  for (size_t i = 0; i < *count; i++) {
    JsonNode *node = json_array_get_element(list, (guint)i);
    JsonArray *triple = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
    double value[3] = {0};
    bool good = triple && json_array_get_length(triple) == 3;
    for (guint j = 0; good && j < 3; j++) {
      JsonNode *number = json_array_get_element(triple, j);
      value[j] = is_number(number) ? json_node_get_double(number) : NAN;
      good = isfinite(value[j]) && value[j] >= 0;
    }
    if (!good || value[2] > 1) {
      weir_report_refuse(place, "'%s'[%zu] must be [elapsed_s, step, accuracy], accuracy in [0, 1]",
                         name, i);
      break;
    }
    points[i] = (weir_report_point){value[0], value[1], value[2]};
  }
  return points;
}
