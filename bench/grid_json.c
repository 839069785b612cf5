/* What `weir bench grid` found, as a line of JSON a shape; and back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grid.h"
#include "lab/doc.h"

/* Members that are numbers, by name and place. */
typedef struct field {
  const char *name;
  gsize offset;
} field;
static const field shape_fields[] = {{"set_bytes_s", offsetof(grid_plan, shape.rate_bytes_s)},
                                     {"set_delay_s", offsetof(grid_plan, shape.delay_s)},
                                     {"alpha", offsetof(grid_plan, link.alpha)},
                                     {"beta", offsetof(grid_plan, link.beta)},
                                     {"duplex_beta", offsetof(grid_plan, link.duplex_beta)},
                                     {"inner_alpha", offsetof(grid_plan, link.inner_alpha)},
                                     {"inner_beta", offsetof(grid_plan, link.inner_beta)},
                                     {"burst", offsetof(grid_plan, link.burst)},
                                     {"message_s", offsetof(grid_plan, link.message_s)},
                                     {"byte_s", offsetof(grid_plan, link.byte_s)},
                                     {"answer_s", offsetof(grid_plan, link.answer_s)},
                                     {"sum_s", offsetof(grid_plan, link.sum_s)},
                                     {"sums_s", offsetof(grid_plan, link.sums_s)}};

static void add_op(weir_doc *b, const grid_plan *p, const grid_op *op) {
  const grid_part *last = &op->part[op->parts - 1];
  weir_doc_object(b, NULL);
  weir_doc_text(b, "collective", op->name);
  weir_doc_text(b, "algorithm", weir_row_name(last->kind, last->row));
  weir_doc_number(b, "gradient", (double)op->gradient);
  weir_doc_number(b, "cr", op->cr);
  weir_doc_number(b, "predicted_ms", weir_grid_predict(p->workers, &p->link, op) * 1e3);
  weir_doc_number(b, "measured_ms", op->measured_s * 1e3);
  weir_doc_number(b, "least_ms", op->least_s * 1e3);
  weir_doc_list(b, "parts"); /* kind, row, bytes; kind, row, bytes */
  for (int i = 0; i < op->parts; i++) {
    weir_doc_whole(b, NULL, op->part[i].kind);
    weir_doc_whole(b, NULL, op->part[i].row);
    weir_doc_whole(b, NULL, (gint64)op->part[i].bytes);
  }
  weir_doc_end_list(b);
  weir_doc_end(b);
}

void weir_grid_print(const grid_plan *p) {
  g_autoptr(JsonBuilder) b = json_builder_new();
  weir_doc_object(b, NULL);
  weir_doc_number(b, "workers", p->workers);
  weir_doc_text(b, "clock", weir_uml_clock_name(p->clock));
  for (gsize i = 0; i < G_N_ELEMENTS(shape_fields); i++) {
    double value;
    memcpy(&value, (const char *)p + shape_fields[i].offset, sizeof value);
    weir_doc_number(b, shape_fields[i].name, value);
  }
  weir_doc_list(b, "cells");
  for (int i = 0; i < p->ops; i++)
    if (p->op[i].measured_s > 0) add_op(b, p, &p->op[i]);
  weir_doc_end_list(b);
  weir_doc_print(b);
  (void)fflush(stdout);
}

/* --- reading: what a file holds is checked before it is used ---------------------------------- */

static gboolean get(JsonObject *object, const char *name, double most, double *value) {
  JsonNode *node = json_object_get_member(object, name);
  if (!node || !JSON_NODE_HOLDS_VALUE(node)) return FALSE;
  *value = json_node_get_double(node);
  if (json_node_get_value_type(node) == G_TYPE_INT64) *value = (double)json_node_get_int(node);
  return isfinite(*value) && *value >= 0 && *value <= most;
}

static gboolean read_part(JsonArray *parts, guint at, grid_part *part) {
  gint64 value[3];
  for (guint i = 0; i < 3; i++) {
    JsonNode *node = json_array_get_element(parts, at + i);
    if (!node || !JSON_NODE_HOLDS_VALUE(node)) return FALSE;
    value[i] = json_node_get_int(node);
  }
  if (value[0] < 0 || value[0] >= WEIR_KIND_COUNT || value[2] < 1 || value[2] > 1 << 30)
    return FALSE;
  *part = (grid_part){(weir_kind)value[0], (guint32)value[1], (gsize)value[2]};
  return value[1] >= 0 && value[1] < weir_rows(part->kind);
}

static gboolean read_op(JsonNode *node, grid_op *op) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return FALSE;
  JsonObject *object = json_node_get_object(node);
  JsonNode *name = json_object_get_member(object, "collective");
  JsonNode *parts = json_object_get_member(object, "parts");
  double gradient = 0, measured_ms = 0, least_ms = 0;
  if (!name || !JSON_NODE_HOLDS_VALUE(name) || !parts || !JSON_NODE_HOLDS_ARRAY(parts) ||
      !get(object, "gradient", 1 << 30, &gradient) || !get(object, "cr", 1, &op->cr) ||
      !get(object, "measured_ms", 1e9, &measured_ms) || !get(object, "least_ms", 1e9, &least_ms))
    return FALSE;
  const guint numbers = json_array_get_length(json_node_get_array(parts));
  op->name = weir_grid_name(json_node_get_string(name));
  op->gradient = (gsize)gradient;
  op->measured_s = measured_ms * 1e-3;
  op->least_s = least_ms * 1e-3;
  op->parts = (int)(numbers / 3);
  if (!op->name || !(measured_ms > 0) || numbers % 3 || op->parts < 1 || op->parts > GRID_PARTS)
    return FALSE;
  for (int i = 0; i < op->parts; i++)
    if (!read_part(json_node_get_array(parts), 3 * (guint)i, &op->part[i])) return FALSE;
  return TRUE;
}

/* Results from before there were several are by the real one. */
static gboolean read_clock(JsonObject *object, weir_uml_clock *clock) {
  JsonNode *node = json_object_get_member(object, "clock");
  *clock = WEIR_UML_CLOCK_REAL;
  return !node ||
         (JSON_NODE_HOLDS_VALUE(node) && weir_uml_clock_parse(json_node_get_string(node), clock));
}

static gboolean read_plan(JsonNode *root, grid_plan *p) {
  double workers = 0;
  if (!root || !JSON_NODE_HOLDS_OBJECT(root)) return FALSE;
  JsonObject *object = json_node_get_object(root);
  if (!get(object, "workers", GRID_RANKS, &workers) || workers < 2) return FALSE;
  p->workers = (int)workers;
  if (!read_clock(object, &p->clock)) return FALSE;
  for (gsize i = 0; i < G_N_ELEMENTS(shape_fields); i++) {
    double value = 0;
    if (!get(object, shape_fields[i].name, 1e12, &value)) return FALSE;
    memcpy((char *)p + shape_fields[i].offset, &value, sizeof value);
  }
  JsonNode *cells = json_object_get_member(object, "cells");
  if (!(p->link.beta > 0) || !cells || !JSON_NODE_HOLDS_ARRAY(cells)) return FALSE;
  JsonArray *array = json_node_get_array(cells);
  p->ops = 0;
  if (json_array_get_length(array) > GRID_OPS) return FALSE;
  for (guint i = 0; i < json_array_get_length(array); i++)
    if (!read_op(json_array_get_element(array, i), &p->op[p->ops++])) return FALSE;
  return p->ops > 0;
}

gboolean weir_grid_read(const char *path, grid_plan *plan, int room, int *count, char **error) {
  g_autofree char *content = NULL;
  g_autoptr(GError) why = NULL;
  *count = 0;
  if (!g_file_get_contents(path, &content, NULL, &why)) {
    *error = g_strdup(why->message);
    return FALSE;
  }
  g_auto(GStrv) lines = g_strsplit(content, "\n", -1);
  for (int i = 0; lines[i]; i++) {
    if (!*lines[i]) continue;
    g_autoptr(JsonParser) parser = json_parser_new();
    if (*count == room || !json_parser_load_from_data(parser, lines[i], -1, NULL) ||
        !read_plan(json_parser_get_root(parser), &plan[*count])) {
      *error = g_strdup_printf("%s: line %d: expected a shape as --json prints it%s", path, i + 1,
                               *count == room ? ", and fewer of them" : "");
      return FALSE;
    }
    (*count)++;
  }
  if (*count == 0) *error = g_strdup_printf("%s: expected a shape as --json prints it", path);
  return *count > 0;
}
