/* `weir top`: what the ranks of a running job are at. */
#include <glib.h>
#include <stdio.h>
#include <unistd.h>

#include "cli.h"
#include "top.h"

static const char *const description =
    "JOB is a job id or a run as the list of several shows them, or the --out folder of a\n"
    "`weir run`; it may be left out where one job runs.  Ranks of other machines are shown as\n"
    "their telemetry tells them.  Reads what sessions keep in WEIR_STATUS_DIR, "
    "$XDG_RUNTIME_DIR/weir\n"
    "or /tmp/weir-UID (docs/guide/inside.md); asks nobody, and disturbs nobody.\n"
    "Exit codes: 0 shown, or the job has ended; 1 no such job runs; 2 bad usage, or several jobs "
    "run.";

static int complain(top_found found, const char *why) {
  fprintf(stderr, "weir top: %s\n", why);
  return found == TOP_NONE ? WEIR_EXIT_FAILED : WEIR_EXIT_USAGE;
}

/* Again each second on a terminal, until the job is gone. */
static int show(const char *wanted, gboolean json, gboolean once) {
  gboolean seen = FALSE;
  for (;; seen = TRUE) {
    top_job job;
    g_autofree char *why = NULL;
    const top_found found = top_find(wanted, &job, &why);
    if (found == TOP_ONE && !once && !json) fputs("\033[H\033[2J", stdout);
    if (found == TOP_ONE) (json ? top_print_json : top_print_table)(&job);
    top_forget(&job);
    if (found == TOP_NONE && seen) return WEIR_EXIT_DONE;
    if (found != TOP_ONE) return complain(found, why);
    if (once || fflush(stdout) != 0) return WEIR_EXIT_DONE;
    g_usleep(G_USEC_PER_SEC);
  }
}

int weir_cmd_top(int argc, char **argv) {
  gboolean once = FALSE, json = FALSE;
  const cli_help help = {
      "weir top", "[JOB]",
      "Shows the ranks of a running job: plan, network, times, and who waits for "
      "whom; again each second.",
      description};
  const GOptionEntry entries[] = {
      {"once", 0, 0, G_OPTION_ARG_NONE, &once, "show it once; so it is where nobody watches", NULL},
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "as JSON, one line each time", NULL},
      G_OPTION_ENTRY_NULL};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  if (argc > 2) {
    fprintf(stderr, "weir top: expected one job; see `weir top --help`\n");
    return WEIR_EXIT_USAGE;
  }
  return show(argc == 2 ? argv[1] : NULL, json, once || (!json && !isatty(STDOUT_FILENO)));
}
