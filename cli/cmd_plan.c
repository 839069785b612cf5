/* `weir plan`: what the planner decides for a measured model, without running anything. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"
#include "plan.h"

static const struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} plans[] = {
    {"fusion", "which tensors to compress and send together", plan_fusion},
    {"strategy", "how each tensor is compressed and sent", plan_strategy},
    {"bits", "how many bits each layer's gradient gets", plan_bits},
};

int plan_refuse(const char *command, const char *option, const char *expected) {
  fprintf(stderr, "%s: %s: expected %s\n", command, option, expected);
  return WEIR_EXIT_USAGE;
}

int plan_failed(const char *command, weir_status status) {
  fprintf(stderr, "%s: %s\n", command, weir_last_error());
  return status == WEIR_E_NOMEM || status == WEIR_E_INTERNAL ? WEIR_EXIT_FAILED : WEIR_EXIT_USAGE;
}

gboolean plan_numbers(const char *text, guint count, double *values) {
  for (guint i = 0; i < count; i++) {
    char *end = NULL;
    if (!text || !*text || g_ascii_isspace(*text)) return FALSE;
    values[i] = g_ascii_strtod(text, &end);
    if (end == text || !isfinite(values[i]) || values[i] < 0.0) return FALSE;
    if (*end != (i + 1 < count ? ',' : '\0')) return FALSE;
    text = end + 1;
  }
  return TRUE;
}

char *plan_arguments(const cli_help *help, const GOptionEntry *entries, int *argc, char ***argv) {
  if (!cli_parse(help, entries, argc, argv)) return NULL;
  if (*argc == 2) return g_strdup((*argv)[1]);
  fprintf(stderr, "%s: %d files; expected one %s; see `%s --help`\n", help->command, *argc - 1,
          help->arguments, help->command);
  return NULL;
}

void plan_number(JsonBuilder *builder, const char *name, double value) {
  json_builder_set_member_name(builder, name);
  json_builder_add_double_value(builder, value);
}

void plan_print(JsonBuilder *builder) {
  json_builder_end_object(builder);
  g_autoptr(JsonNode) root = json_builder_get_root(builder);
  g_autofree char *text = json_to_string(root, FALSE);
  puts(text);
}

static void usage(FILE *to) {
  fputs("usage: weir plan WHAT [FILE] [OPTIONS]     (weir plan WHAT --help explains each)\n\n", to);
  for (guint i = 0; i < G_N_ELEMENTS(plans); i++)
    fprintf(to, "  %-8s %s\n", plans[i].name, plans[i].summary);
}

int weir_cmd_plan(int argc, char **argv) {
  if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    usage(stdout);
    return WEIR_EXIT_DONE;
  }
  for (guint i = 0; argc > 1 && i < G_N_ELEMENTS(plans); i++)
    if (!strcmp(argv[1], plans[i].name)) {
      g_autofree char *name = g_strdup_printf("weir plan %s", plans[i].name);
      argv[1] = name;
      return plans[i].run(argc - 1, argv + 1);
    }
  if (argc > 1) fprintf(stderr, "weir plan: unknown plan '%s'\n", argv[1]);
  usage(stderr);
  return WEIR_EXIT_USAGE;
}
