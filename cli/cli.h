/* The command line: one file a sub-command, one row of the table in main.c each. */
#ifndef WEIR_CLI_H
#define WEIR_CLI_H

#include <glib.h>

/* Exit codes, the same for every sub-command. */
enum {
  WEIR_EXIT_DONE = 0,
  WEIR_EXIT_FAILED = 1, /* the run failed: which rank, why */
  WEIR_EXIT_USAGE = 2   /* bad usage or bad input: file, line, what was expected */
};

typedef struct weir_command {
  const char *name;
  const char *summary;               /* one line for `weir --help` */
  int (*run)(int argc, char **argv); /* argv[0] is "weir NAME" */
} weir_command;

/* What follows --help's options of a command that takes policies: those there are, then what is
 * given. The caller frees it with g_free(). */
char *help_policies(const char *ending);
/* Of --clock, in a table of options. */
extern const char help_clock[];

/* arguments.c: each says on stderr what is wrong and returns FALSE; command is "weir NAME". */
gboolean cli_parse(const char *command, const GOptionEntry *entries, const char *summary,
                   const char *description, int *argc, char ***argv);
gboolean cli_refuse(const char *command, const char *option, const char *text,
                    const char *expected);
/* Exactly one scenario, and a folder for the results. */
gboolean cli_scenario_and_out(const char *command, char **rest, const char *out);
gboolean cli_seed(const char *command, const char *text, guint64 *seed);      /* NULL: 0 */
gboolean cli_workers(const char *command, const char *text, gint64 *workers); /* NULL: -1 */

int weir_cmd_cost(int argc, char **argv);
int weir_cmd_run(int argc, char **argv);
int weir_cmd_train(int argc, char **argv);
int weir_cmd_compare(int argc, char **argv);
int weir_cmd_bench(int argc, char **argv);
int weir_cmd_report(int argc, char **argv);
int weir_cmd_replay(int argc, char **argv);
int weir_cmd_plan(int argc, char **argv);
int weir_cmd_profile(int argc, char **argv);
int weir_cmd_probe(int argc, char **argv);

#endif
