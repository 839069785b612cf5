/* What sub-commands do alike with their command line. */
#include "cli.h"

#include <errno.h>
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { COLUMNS = 100 }; /* of a line of help */

int cli_end(int code) {
  const gboolean bad = fflush(stdout) != 0 || ferror(stdout);
  if (!bad || code != WEIR_EXIT_DONE) return code;
  fprintf(stderr, "weir: standard output cannot be written: %s\n", strerror(errno));
  return WEIR_EXIT_FAILED;
}

static void list(const cli_menu *menu, FILE *to) {
  int width = 0;
  for (const weir_command *c = menu->commands; c->name; c++)
    width = MAX(width, (int)strlen(c->name));
  fprintf(to, "%s\n", menu->head);
  for (const weir_command *c = menu->commands; c->name; c++)
    fprintf(to, "  %-*s  %s\n", width, c->name, c->summary);
  fputs(menu->tail, to);
}

int cli_choose(const cli_menu *menu, int argc, char **argv) {
  if (argc < 2) {
    list(menu, stderr);
    return WEIR_EXIT_USAGE;
  }
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
    list(menu, stdout);
    return WEIR_EXIT_DONE;
  }
  for (const weir_command *c = menu->commands; c->name; c++)
    if (!strcmp(argv[1], c->name)) {
      g_autofree char *name = g_strdup_printf("%s %s", menu->command, c->name);
      argv[1] = name;
      return c->run(argc - 1, argv + 1);
    }
  fprintf(stderr, "%s: unknown %s '%s'; `%s --help` lists them\n", menu->command, menu->what,
          argv[1], menu->command);
  return WEIR_EXIT_USAGE;
}

void cli_progress(const char *what, double share, double begin_s) {
  if (!isatty(STDERR_FILENO)) return;
  const double went_s = weir_now_s() - begin_s;
  const double left_s = share > 0 ? went_s * (1 - share) / share : 0;
  fputs("\r\033[K", stderr);
  if (share <= 0)
    fprintf(stderr, "%s", what);
  else if (share < 1)
    fprintf(stderr, "%s: %.0f %%, ETA %d:%02d", what, 100 * share, (int)(left_s / 60),
            (int)fmod(left_s, 60));
  (void)fflush(stderr);
}

/* Where the lines that continue this one begin: under an option's explanation, or a little further
 * to the right than the line itself. */
static size_t continued_at(const char *line, size_t length) {
  size_t at = strspn(line, " ");
  if (at >= length || line[at] != '-') return at + 4;
  for (size_t i = at; i + 2 < length; i++)
    if (line[i] == ' ' && line[i + 1] == ' ') at = i + 2;
  return at + strspn(line + at, " ");
}

/* Adds a line and breaks it at spaces where it is too long. */
static void add_line(GString *to, const char *line, size_t length) {
  const size_t further = continued_at(line, length);
  size_t indent = 0;
  while (indent + length > COLUMNS) {
    size_t end = COLUMNS - indent;
    while (end > further && line[end] != ' ') end--;
    if (line[end] != ' ') break; /* a word of more than a line */
    g_string_append_printf(to, "%*s%.*s\n", (int)indent, "", (int)end, line);
    const size_t skip = end + strspn(line + end, " ");
    line += skip;
    length -= skip;
    indent = further;
  }
  g_string_append_printf(to, "%*s%.*s\n", length ? (int)indent : 0, "", (int)length, line);
}

static void replace(char **text, const char *what, const char *by) {
  g_auto(GStrv) parts = g_strsplit(*text, what, -1);
  g_free(*text);
  *text = g_strjoinv(by, parts);
}

static void print_help(GOptionContext *context) {
  g_autofree char *text = g_option_context_get_help(context, TRUE, NULL);
  replace(&text, "[OPTION…]", "[OPTIONS]");
  replace(&text, "Application Options:", "Options:");
  g_strchomp(text);
  g_autoptr(GString) page = g_string_new(NULL);
  for (const char *line = text; *line;) {
    const size_t length = strcspn(line, "\n");
    add_line(page, line, length);
    line += length + (line[length] == '\n');
  }
  fputs(page->str, stdout);
}

gboolean cli_parse(const cli_help *help, const GOptionEntry *entries, int *argc, char ***argv) {
  gboolean wanted = FALSE;
  const GOptionEntry own[] = {
      {"help", 'h', 0, G_OPTION_ARG_NONE, &wanted, "show this and end", NULL},
      G_OPTION_ENTRY_NULL,
  };
  g_autoptr(GOptionContext) context = g_option_context_new(help->arguments);
  g_autoptr(GError) error = NULL;
  g_option_context_set_help_enabled(context, FALSE); /* GLib's own prints and ends by itself */
  g_option_context_add_main_entries(context, entries, NULL);
  g_option_context_add_main_entries(context, own, NULL);
  g_option_context_set_summary(context, help->summary);
  g_option_context_set_description(context, help->description);
  const gboolean parsed = g_option_context_parse(context, argc, argv, &error);
  if (wanted) {
    print_help(context);
    exit(cli_end(WEIR_EXIT_DONE));
  }
  if (!parsed)
    fprintf(stderr, "%s: %s; see `%s --help`\n", help->command, error->message, help->command);
  else if (!help->arguments && *argc > 1)
    fprintf(stderr, "%s: unexpected argument '%s'; see `%s --help`\n", help->command, (*argv)[1],
            help->command);
  return parsed && (help->arguments || *argc <= 1);
}

void cli_forget(const GOptionEntry *entries) {
  for (; entries->long_name; entries++) {
    const GOptionArg kind = entries->arg;
    char **text = entries->arg_data;
    char ***list = entries->arg_data;
    if (kind == G_OPTION_ARG_STRING || kind == G_OPTION_ARG_FILENAME)
      g_clear_pointer(text, g_free);
    else if (kind == G_OPTION_ARG_STRING_ARRAY || kind == G_OPTION_ARG_FILENAME_ARRAY)
      g_clear_pointer(list, g_strfreev);
  }
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
  return !text || g_ascii_string_to_unsigned(text, 10, 0, G_MAXINT64, seed, NULL) ||
         cli_refuse(command, "seed", text, "a whole number from 0 to 9223372036854775807");
}

gboolean cli_workers(const char *command, const char *text, gint64 *workers) {
  *workers = -1;
  return !text || g_ascii_string_to_signed(text, 10, 1, 4096, workers, NULL) ||
         cli_refuse(command, "workers", text, "a whole number from 1 to 4096");
}
