/* `weir bench`: how fast the parts are on this machine.  Each benchmark is a program of bench/,
 * which lies in libexec when installed and beside this one in a build tree. */
#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Where programs are, seen from the folder that this one is in. */
static const char *const places[] = {WEIR_LIBEXEC, "../bench"};

/* argv[0] is "weir bench NAME", and stays so: it is what the program's help calls it. */
static int run_program(int argc, char **argv) {
  (void)argc;
  g_autoptr(GError) error = NULL;
  g_autofree char *self = g_file_read_link("/proc/self/exe", &error);
  if (!self) {
    fprintf(stderr, "%s: %s\n", argv[0], error->message);
    return WEIR_EXIT_FAILED;
  }
  g_autofree char *folder = g_path_get_dirname(self);
  g_autofree char *name = g_strconcat("weir-bench-", strrchr(argv[0], ' ') + 1, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(places); i++) {
    g_autofree char *path = g_build_filename(folder, places[i], name, NULL);
    (void)execv(path, argv);
    if (errno == ENOENT) continue;
    fprintf(stderr, "%s: %s: %s\n", argv[0], path, strerror(errno));
    return WEIR_EXIT_FAILED;
  }
  fprintf(stderr, "%s: %s is neither in %s/%s nor in %s/%s; it is installed with this command\n",
          argv[0], name, folder, places[0], folder, places[1]);
  return WEIR_EXIT_FAILED;
}

static const weir_command rows[] = {
    {"collectives", "collectives between processes: time, bandwidth, bytes, wrong elements",
     run_program},
    {"grid", "cost rows against measurement, over links of given latency and rate", run_program},
    {"kernels", "codecs and messages on one core, beside reading, copying and other selections",
     run_program},
    {"moo", "NSGA-II: hypervolume and time on standard problems", run_program},
    {NULL, NULL, NULL},
};

int weir_cmd_bench(int argc, char **argv) {
  static const cli_menu menu = {
      "weir bench", "benchmark",
      "usage: weir bench WHAT [OPTIONS]     (weir bench WHAT --help explains each)\n", "", rows};
  return cli_choose(&menu, argc, argv);
}
