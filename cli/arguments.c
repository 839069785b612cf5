/* What sub-commands that take a scenario do alike with their command line. */
#include <glib.h>
#include <stdio.h>

#include "cli.h"

gboolean cli_parse(const char *command, const GOptionEntry *entries, const char *summary,
                   const char *description, int *argc, char ***argv) {
  g_autoptr(GOptionContext) context = g_option_context_new(NULL);
  g_autoptr(GError) error = NULL;
  g_option_context_add_main_entries(context, entries, NULL);
  g_option_context_set_summary(context, summary);
  g_option_context_set_description(context, description);
  if (g_option_context_parse(context, argc, argv, &error)) return TRUE;
  fprintf(stderr, "%s: %s; see `%s --help`\n", command, error->message, command);
  return FALSE;
}

gboolean cli_refuse(const char *command, const char *option, const char *text,
                    const char *expected) {
  fprintf(stderr, "%s: command line: --%s %s is not allowed; expected %s\n", command, option, text,
          expected);
  return FALSE;
}

gboolean cli_scenario_and_out(const char *command, char **rest, const char *out) {
  if (!rest || !rest[0] || rest[1]) {
    fprintf(stderr, "%s: expected exactly one scenario file; see `%s --help`\n", command, command);
    return FALSE;
  }
  if (!out || !*out) {
    fprintf(stderr, "%s: --out is missing; expected a folder for the results\n", command);
    return FALSE;
  }
  return TRUE;
}

gboolean cli_seed(const char *command, const char *text, guint64 *seed) {
  *seed = 0;
  return !text || g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT64, seed, NULL) ||
         cli_refuse(command, "seed", text, "a whole number, 0 or more");
}

gboolean cli_workers(const char *command, const char *text, gint64 *workers) {
  *workers = -1;
  return !text || g_ascii_string_to_signed(text, 10, 1, 4096, workers, NULL) ||
         cli_refuse(command, "workers", text, "a whole number from 1 to 4096");
}
