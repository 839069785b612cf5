/* `weir plan strategy --list-options`: every way to synchronize one tensor with compression. */
#include <stdio.h>

#include "base/base.h"
#include "cli.h"
#include "plan.h"
#include "planner/options.h"

static const char command[] = "weir plan strategy";
static const char description[] =
    "Prints the paths of the decision tree of compression options, one a line, first task\n"
    "first.  A star marks communication of compressed data.  flat: all workers at once; intra\n"
    "and inter: inside and between machines.  Without constraints there are 4341, as published\n"
    "(63 flat, 4278 hierarchical).  Unsatisfiable constraints exit with 2.\n";

typedef struct listing {
  JsonBuilder *builder; /* NULL: lines */
} listing;

static void print_option(void *user, const weir_option *option) {
  const listing *l = user;
  char text[512];
  (void)weir_option_text(option, text, sizeof text);
  if (l->builder)
    json_builder_add_string_value(l->builder, text);
  else
    puts(text);
}

static int list(const weir_option_limits *limits, gboolean json) {
  listing l = {0};
  size_t count = 0;
  const weir_status status = weir_options_visit(limits, NULL, NULL, &count);
  if (status != WEIR_OK) return plan_failed(command, status);
  if (!json) {
    (void)weir_options_visit(limits, print_option, &l, &count);
    printf("%zu options\n", count);
    return WEIR_EXIT_DONE;
  }
  g_autoptr(JsonBuilder) builder = json_builder_new();
  l.builder = builder;
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "count");
  json_builder_add_int_value(builder, (gint64)count);
  json_builder_set_member_name(builder, "options");
  json_builder_begin_array(builder);
  (void)weir_options_visit(limits, print_option, &l, &count);
  json_builder_end_array(builder);
  plan_print(builder);
  return WEIR_EXIT_DONE;
}

int plan_strategy(int argc, char **argv) {
  gboolean options = FALSE, json = FALSE;
  gboolean no_gpu = FALSE, no_cpu = FALSE, no_flat = FALSE, no_tree = FALSE, compressed = FALSE;
  gint most = 0;
  const GOptionEntry entries[] = {
      {"list-options", 0, 0, G_OPTION_ARG_NONE, &options, "List and count the options", NULL},
      {"no-gpu", 0, 0, G_OPTION_ARG_NONE, &no_gpu, "Never compress on the GPU", NULL},
      {"no-cpu", 0, 0, G_OPTION_ARG_NONE, &no_cpu, "Never compress on the CPU", NULL},
      {"no-flat", 0, 0, G_OPTION_ARG_NONE, &no_flat, "No flat communication", NULL},
      {"no-hierarchical", 0, 0, G_OPTION_ARG_NONE, &no_tree, "No hierarchical communication", NULL},
      {"compressed", 0, 0, G_OPTION_ARG_NONE, &compressed, "At least one compression", NULL},
      {"most-compressions", 0, 0, G_OPTION_ARG_INT, &most, "At most N compressions a tensor", "N"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  g_autoptr(GOptionContext) context =
      g_option_context_new("--list-options - how one tensor may be synchronized");
  g_autoptr(GError) error = NULL;
  g_option_context_set_description(context, description);
  g_option_context_add_main_entries(context, entries, NULL);
  if (!g_option_context_parse(context, &argc, &argv, &error)) {
    fprintf(stderr, "%s: %s\n", command, error->message);
    return WEIR_EXIT_USAGE;
  }
  if (argc > 1) return plan_refuse(command, argv[1], "no file");
  if (!options) return plan_refuse(command, "nothing to do", "--list-options");
  if (most < 0) return plan_refuse(command, "--most-compressions", "a number from 0 (any)");
  return list(&(weir_option_limits){.no_gpu = no_gpu, .no_cpu = no_cpu, .no_flat = no_flat,
                                    .no_hierarchical = no_tree, .compressed_only = compressed,
                                    .most_compressions = (size_t)most},
              json);
}
