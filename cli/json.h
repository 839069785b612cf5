/* What --json prints: one object in one line. */
#ifndef WEIR_CLI_JSON_H
#define WEIR_CLI_JSON_H

#include <json-glib/json-glib.h>

/* Members of the object that is being built; a number that is not finite is null. */
void cli_json_number(JsonBuilder *builder, const char *name, double value);
void cli_json_whole(JsonBuilder *builder, const char *name, gint64 value);
void cli_json_text(JsonBuilder *builder, const char *name, const char *value);
/* Begins a list; json_builder_end_array() ends it. */
void cli_json_list(JsonBuilder *builder, const char *name);
/* Ends the outermost object; the caller frees the line with g_free(). */
char *cli_json_line(JsonBuilder *builder);
/* Ends the outermost object and prints it. */
void cli_json_print(JsonBuilder *builder);

#endif
