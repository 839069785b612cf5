/* `weir report`: a run's or a comparison's page, drawn again. */
#include <glib.h>
#include <stdio.h>
#include <weir/weir.h>

#include "cli.h"
#include "lab/report.h"

static gboolean holds(const char *directory, const char *name) {
  g_autofree char *path = g_build_filename(directory, name, NULL);
  return g_file_test(path, G_FILE_TEST_IS_REGULAR);
}

/* What writes the page of such a folder; NULL: it is none of ours. */
static weir_status (*page_of(const char *directory))(const char *) {
  if (holds(directory, "summary.json")) return weir_report_write;
  if (holds(directory, "compare.json")) return weir_compare_report_write;
  return holds(directory, "emulate.json") ? weir_emulate_report_write : NULL;
}

int weir_cmd_report(int argc, char **argv) {
  const cli_help help = {
      "weir report", "DIR",
      "Writes DIR/report.html again from what `weir run`, `weir compare` or `weir emulate` left "
      "in\n"
      "DIR.",
      "Reads summary.json, steps.csv and decisions.jsonl, or compare.json, or emulate.json.\n"
      "Exit codes: 0 written; 2 bad usage or bad input."};
  const GOptionEntry entries[] = {G_OPTION_ENTRY_NULL};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  int code = WEIR_EXIT_USAGE;
  if (argc != 2) {
    fprintf(stderr, "weir report: expected one directory; see `weir report --help`\n");
  } else if (!page_of(argv[1]) && !cli_without("report", argv[1], "summary.json")) {
    fprintf(stderr,
            "weir report: %s: neither summary.json nor compare.json nor emulate.json is there; "
            "expected a folder that `weir run`, `weir compare` or `weir emulate` has left\n",
            argv[1]);
  } else if (page_of(argv[1])) {
    const weir_status status = page_of(argv[1])(argv[1]);
    code =
        status ? WEIR_EXIT_USAGE : WEIR_EXIT_DONE; /* bad input, or a folder that takes nothing */
    if (status)
      fprintf(stderr, "weir report: %s\n", weir_last_error());
    else
      printf("%s/report.html\n", argv[1]);
  }
  return code;
}
