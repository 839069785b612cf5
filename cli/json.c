#include "json.h"

#include <math.h>
#include <stdio.h>

void cli_json_number(JsonBuilder *builder, const char *name, double value) {
  json_builder_set_member_name(builder, name);
  if (isfinite(value))
    json_builder_add_double_value(builder, value);
  else
    json_builder_add_null_value(builder);
}

void cli_json_whole(JsonBuilder *builder, const char *name, gint64 value) {
  json_builder_set_member_name(builder, name);
  json_builder_add_int_value(builder, value);
}

void cli_json_text(JsonBuilder *builder, const char *name, const char *value) {
  json_builder_set_member_name(builder, name);
  json_builder_add_string_value(builder, value);
}

void cli_json_list(JsonBuilder *builder, const char *name) {
  json_builder_set_member_name(builder, name);
  json_builder_begin_array(builder);
}

char *cli_json_line(JsonBuilder *builder) {
  json_builder_end_object(builder);
  g_autoptr(JsonNode) root = json_builder_get_root(builder);
  g_autofree char *text = json_to_string(root, FALSE);
  return g_strconcat(text, "\n", NULL);
}

void cli_json_print(JsonBuilder *builder) {
  g_autofree char *line = cli_json_line(builder);
  fputs(line, stdout);
}
