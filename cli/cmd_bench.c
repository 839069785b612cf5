/* `weir bench`: how fast the parts are on this machine.  Each benchmark is a program of bench/,
 * which is installed beside this one. */
#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/installed.h"
#include "cli.h"

/* argv[0] is "weir bench NAME", and stays so: it is what the program's help calls it. */
static int run_program(int argc, char **argv) {
  (void)argc;
  char path[PATH_MAX];
  g_autofree char *name = g_strconcat("weir-bench-", strrchr(argv[0], ' ') + 1, NULL);
  if (weir_installed_find(WEIR_INSTALLED_PROGRAM, name, path, sizeof path)) {
    (void)execv(path, argv);
    fprintf(stderr, "%s: %s: %s\n", argv[0], path, strerror(errno));
  } else {
    fprintf(stderr, "%s: %s is not installed beside this command, in libexec/weir\n", argv[0],
            name);
  }
  return WEIR_EXIT_FAILED;
}

static const weir_command rows[] = {
    {"cache", "epochs over samples that are slow to read, with a cache of them and without",
     run_program},
    {"collectives", "collectives between processes: time, bandwidth, bytes, wrong elements",
     run_program},
    {"grid", "cost rows against measurement, over links of given latency and rate", run_program},
    {"kernels", "codecs and messages on one core, beside reading, copying and other selections",
     run_program},
    {"moo", "NSGA-II: hypervolume and time on standard problems", run_program},
    {"pto", "LARS and LAMB divided among the ranks, beside every rank doing all of it",
     run_program},
    {NULL, NULL, NULL},
};

int weir_cmd_bench(int argc, char **argv) {
  static const cli_menu menu = {
      "weir bench", "benchmark",
      "usage: weir bench WHAT [OPTIONS]     (weir bench WHAT --help explains each)\n", "", rows};
  return cli_choose(&menu, argc, argv);
}
