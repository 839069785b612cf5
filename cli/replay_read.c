/* decisions.jsonl and steps.csv, read without trust. */
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "base/base.h"
#include "controller/controller.h"
#include "replay.h"

static gboolean refuse(const char *path, guint line, const char *format, ...) G_GNUC_PRINTF(3, 4);
static gboolean refuse(const char *path, guint line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  fprintf(stderr, "weir replay: %s:%u: %s\n", path, line, text);
  return FALSE;
}

static gboolean is_number(JsonNode *node) {
  if (!node || !JSON_NODE_HOLDS_VALUE(node)) return FALSE;
  const GType type = json_node_get_value_type(node);
  return type == G_TYPE_INT64 || type == G_TYPE_DOUBLE;
}

static gboolean set_field(const weir_field *field, JsonNode *node, void *at) {
  if (!is_number(node)) return FALSE;
  if (field->kind == WEIR_FIELD_DOUBLE) {
    *(double *)at = json_node_get_double(node);
    return TRUE;
  }
  if (json_node_get_value_type(node) != G_TYPE_INT64) return FALSE;
  const gint64 value = json_node_get_int(node);
  if (value < 0 || (field->kind == WEIR_FIELD_U32 && value > G_MAXUINT32) ||
      (field->kind == WEIR_FIELD_U8 && value > G_MAXUINT8))
    return FALSE;
  if (field->kind == WEIR_FIELD_U8)
    *(guint8 *)at = (guint8)value;
  else if (field->kind == WEIR_FIELD_U32)
    *(guint32 *)at = (guint32)value;
  else
    *(guint64 *)at = (guint64)value;
  return TRUE;
}

static gboolean read_input(const char *path, guint line, JsonObject *object,
                           weir_decision_input *input) {
  for (gsize i = 0; i < weir_field_count; i++) {
    const weir_field *field = &weir_fields[i];
    char *at = (char *)input + field->offset;
    JsonNode *node = json_object_get_member(object, field->name);
    if (!node && field->since) continue;
    if (field->count == 0) {
      if (!set_field(field, node, at))
        return refuse(path, line, "input.%s: expected a number", field->name);
      continue;
    }
    if (!node || !JSON_NODE_HOLDS_ARRAY(node) ||
        json_array_get_length(json_node_get_array(node)) != field->count)
      return refuse(path, line, "input.%s: expected an array of %zu numbers", field->name,
                    field->count);
    for (gsize k = 0; k < field->count; k++)
      if (!set_field(field, json_array_get_element(json_node_get_array(node), (guint)k),
                     at + k * sizeof(double)))
        return refuse(path, line, "input.%s: element %zu is not a number", field->name, k);
  }
  return TRUE;
}

static JsonObject *member_object(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return node && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

static gboolean read_choice(JsonObject *root, replay_line *out) {
  JsonObject *choice = member_object(root, "choice");
  JsonNode *text = choice ? json_object_get_member(choice, "plan") : NULL;
  JsonNode *cr = choice ? json_object_get_member(choice, "cr") : NULL;
  JsonNode *switched = json_object_get_member(root, "switched");
  JsonNode *predicted = json_object_get_member(root, "predicted_ms");
  if (!text || !JSON_NODE_HOLDS_VALUE(text) || json_node_get_value_type(text) != G_TYPE_STRING)
    return FALSE;
  if (weir_plan_parse(json_node_get_string(text), &out->choice) != WEIR_OK) return FALSE;
  if (!is_number(cr) || !is_number(predicted)) return FALSE;
  if (!switched || !JSON_NODE_HOLDS_VALUE(switched) ||
      json_node_get_value_type(switched) != G_TYPE_BOOLEAN)
    return FALSE;
  out->choice.cr = json_node_get_double(cr); /* the plan's text holds fewer digits */
  out->switched = json_node_get_boolean(switched);
  out->predicted_ms = json_node_get_double(predicted);
  return TRUE;
}

/* Is the line's format the one that this program reads? */
static gboolean check_format(const char *path, guint line, JsonObject *object) {
  JsonNode *node = json_object_get_member(object, "format");
  if (!node)
    return refuse(path, line, "no journal, or one from before they had formats; expected format %d",
                  WEIR_JOURNAL_FORMAT);
  if (!JSON_NODE_HOLDS_VALUE(node) || json_node_get_value_type(node) != G_TYPE_INT64)
    return refuse(path, line, "format: expected a number");
  const gint64 format = json_node_get_int(node);
  if (format != WEIR_JOURNAL_FORMAT)
    return refuse(path, line, "format %" G_GINT64_FORMAT "; weir %s reads format %d", format,
                  weir_version(), WEIR_JOURNAL_FORMAT);
  return TRUE;
}

static gboolean read_line(const char *path, guint number, const char *text, replay_line *out) {
  g_autoptr(JsonParser) parser = json_parser_new();
  g_autoptr(GError) error = NULL;
  if (!json_parser_load_from_data(parser, text, -1, &error))
    return refuse(path, number, "expected a JSON object: %s", error->message);
  JsonNode *root = json_parser_get_root(parser);
  if (!root || !JSON_NODE_HOLDS_OBJECT(root)) return refuse(path, number, "expected a JSON object");
  JsonObject *object = json_node_get_object(root);
  if (!check_format(path, number, object)) return FALSE;
  JsonObject *input = member_object(object, "input");
  if (!input) return refuse(path, number, "expected a member 'input', an object");
  if (!read_input(path, number, input, &out->input)) return FALSE;
  if (!read_choice(object, out))
    return refuse(path, number, "expected 'choice' (plan, cr), 'predicted_ms' and 'switched'");
  if (weir_decide(&out->input, &out->again) != WEIR_OK)
    return refuse(path, number, "%s", weir_last_error());
  gboolean same = FALSE;
  if (out->input.trigger == WEIR_TRIGGER_TRIAL) {
    JsonObject *trial = member_object(object, "trial");
    if (!trial || !replay_trial(trial, &same))
      return refuse(path, number, "expected 'trial' with plan, verdict and samples");
    out->otherwise = !same;
  }
  if (out->input.policy != WEIR_POLICY_BITS) return TRUE;
  JsonObject *bits = member_object(object, "bits");
  if (!bits || !replay_bits(bits, &same))
    return refuse(path, number,
                  "expected 'bits' with method, alpha and layers (numel, norm, bits, error2)");
  out->otherwise = !same;
  return TRUE;
}

/* A file's lines; NULL, and the reason printed, when it cannot be read. */
static char **read_rows(const char *path) {
  g_autofree char *text = NULL;
  g_autoptr(GError) error = NULL;
  gsize bytes = 0;
  if (!g_file_get_contents(path, &text, &bytes, &error)) {
    fprintf(stderr, "weir replay: %s; expected a run's folder or its decisions.jsonl\n",
            error->message);
    return NULL;
  }
  char **rows = g_strsplit(text + weir_text_mark(text, bytes), "\n", -1);
  for (char **row = rows; *row; row++) (*row)[weir_text_line(*row, strlen(*row))] = '\0';
  return rows;
}

static gboolean read_part(const char *path, GArray *lines) {
  g_auto(GStrv) rows = read_rows(path);
  if (!rows) return FALSE;
  for (guint i = 0; rows[i]; i++) {
    if (!rows[i][0] && !rows[i + 1]) break; /* after the last newline */
    replay_line line = {0};
    if (!read_line(path, i + 1, rows[i], &line)) return FALSE;
    g_array_append_val(lines, line);
  }
  return TRUE;
}

/* The oldest part first; only the newest, which has the path's name, must be there. */
gboolean replay_read_decisions(const char *path, GArray *lines) {
  for (int part = WEIR_JOURNAL_PARTS - 1; part > 0; part--) {
    g_autofree char *older = g_strdup_printf("%s.%d", path, part);
    if (g_file_test(older, G_FILE_TEST_EXISTS) && !read_part(older, lines)) return FALSE;
  }
  if (!read_part(path, lines)) return FALSE;
  return lines->len > 0 || refuse(path, 1, "no decisions; expected one a line, in JSON");
}

/* --- steps.csv ------------------------------------------------------------------------------ */

enum { STEP, TRIAL, PLAN, COMPUTE, COMPRESS, COMM, COLUMNS };
static const char *const column_names[COLUMNS] = {"step",       "trial",       "plan",
                                                  "compute_ms", "compress_ms", "comm_ms"};

static gboolean read_number(const char *text, double *value) {
  char *end = NULL;
  *value = g_ascii_strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*value) && *value >= 0.0;
}

/* The step counts for the last decision made before it, when it ran what that decision chose. */
static void count_step(GArray *lines, guint *at, double step, const char *plan, double ms) {
  while (*at + 1 < lines->len &&
         (double)g_array_index(lines, replay_line, *at + 1).input.step < step)
    (*at)++;
  if (*at >= lines->len) return;
  replay_line *line = &g_array_index(lines, replay_line, *at);
  char chosen[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&line->choice, chosen);
  if ((double)line->input.step >= step || strcmp(chosen, plan) != 0) return;
  line->steps++;
  line->measured_ms += (ms - line->measured_ms) / line->steps;
}

static gboolean find_columns(char **header, int column[COLUMNS]) {
  for (int c = 0; c < COLUMNS; c++) {
    column[c] = -1;
    for (int i = 0; header[i]; i++)
      if (!strcmp(header[i], column_names[c])) column[c] = i;
    if (column[c] < 0) return FALSE;
  }
  return TRUE;
}

gboolean replay_read_steps(const char *path, GArray *lines) {
  g_auto(GStrv) rows = read_rows(path);
  if (!rows) return FALSE;
  g_auto(GStrv) header = g_strsplit(rows[0] ? rows[0] : "", ",", -1);
  int column[COLUMNS];
  if (!find_columns(header, column))
    return refuse(path, 1, "expected columns step, trial, plan, compute_ms, compress_ms, comm_ms");
  const guint width = g_strv_length(header);
  guint at = 0;
  for (guint i = 1; rows[i]; i++) {
    if (!rows[i][0]) continue;
    g_auto(GStrv) cell = g_strsplit(rows[i], ",", -1);
    double value[COLUMNS] = {0};
    if (g_strv_length(cell) != width)
      return refuse(path, i + 1, "expected %u fields as in the first line", width);
    for (int c = 0; c < COLUMNS; c++)
      if (c != PLAN && !read_number(cell[column[c]], &value[c]))
        return refuse(path, i + 1, "%s: expected a number, at least 0", column_names[c]);
    if (value[TRIAL] == 0.0)
      count_step(lines, &at, value[STEP], cell[column[PLAN]],
                 value[COMPUTE] + value[COMPRESS] + value[COMM]);
  }
  return TRUE;
}
