/* `weir plan`: what the planner decides for a measured model, without running anything. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"
#include "plan.h"

static const weir_command plans[] = {
    {"fusion", "which tensors to compress and send together", plan_fusion},
    {"strategy", "how each tensor is compressed and sent", plan_strategy},
    {"bits", "how many bits each layer's gradient gets", plan_bits},
    {NULL, NULL, NULL},
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

const char plan_links[] = "US,GBPS: microseconds from 0 and Gbit/s above 0";
const char plan_costs[] = "A,B: milliseconds an operation and milliseconds a megabyte, from 0";

gboolean plan_link(const char *text, double *alpha_s, double *beta_s) {
  double values[2];
  if (!plan_numbers(text, 2, values) || values[1] <= 0.0) return FALSE;
  *alpha_s = values[0] * 1e-6;
  *beta_s = 8e-9 / values[1];
  return TRUE;
}

gboolean plan_curve(const char *text, weir_curve *curve) {
  double values[2];
  if (!plan_numbers(text, 2, values)) return FALSE;
  *curve = (weir_curve){.fixed_s = values[0] * 1e-3, .per_byte_s = values[1] * 1e-9};
  return TRUE;
}

char *plan_arguments(const cli_help *help, const GOptionEntry *entries, int *argc, char ***argv) {
  if (!cli_parse(help, entries, argc, argv)) return NULL;
  if (*argc == 2) return g_strdup((*argv)[1]);
  fprintf(stderr, "%s: expected one %s; see `%s --help`\n", help->command, help->arguments,
          help->command);
  return NULL;
}

int weir_cmd_plan(int argc, char **argv) {
  static const cli_menu menu = {
      "weir plan", "plan",
      "usage: weir plan WHAT [FILE] [OPTIONS]     (weir plan WHAT --help explains each)\n", "",
      plans};
  return cli_choose(&menu, argc, argv);
}

/* What `weir plan` found, as the table of buckets that policy groups:TABLE executes. */

static void add_row(GString *table, const char *name, const char *plan, weir_place place) {
  if (table->len == 0) g_string_append(table, "last,plan,place\n");
  g_string_append_printf(table, "%s,%s,%s\n", name, plan,
                         place == WEIR_PLACE_THREAD ? "thread" : "caller");
}

void plan_table_add(GString *table, const char *last, const weir_plan *plan, weir_place place) {
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  add_row(table, last, text, place);
}

void plan_table_keep(GString *table, const char *name) {
  g_autoptr(GString) item = g_string_new(NULL); /* of a filter, which is of patterns */
  for (; *name; name++) {
    if (strchr("*?[]\\", *name)) g_string_append_c(item, '\\');
    g_string_append_c(item, *name);
  }
  add_row(table, item->str, "full", WEIR_PLACE_CALLER);
}
