/* The command line: one file a sub-command, one row of the table in main.c each. */
#ifndef WEIR_CLI_H
#define WEIR_CLI_H

#include <glib.h>
#include <weir/status.h>

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

/* A command that is the choice of one of several. */
typedef struct cli_menu {
  const char *command;          /* "weir", "weir plan" */
  const char *what;             /* of what one is to be chosen */
  const char *head, *tail;      /* of the list of them */
  const weir_command *commands; /* ends with a NULL name; in the list's order */
} cli_menu;

/* What --help says of a command besides its options. */
typedef struct cli_help {
  const char *command;     /* "weir NAME"; stands before messages too */
  const char *arguments;   /* what follows the options, such as "DIR"; NULL if nothing may, or if
                              the options' rows say it (G_OPTION_REMAINING) */
  const char *summary;     /* above the options */
  const char *description; /* below them; NULL: nothing */
} cli_help;

/* What follows --help's options of a command that takes policies: those there are, then what is
 * given. The caller frees it with g_free(). */
char *help_policies(const char *ending);

/* Runs the command that argv[1] names, with argv[0] being both words; --help and -h list all. */
int cli_choose(const cli_menu *menu, int argc, char **argv);

/* arguments.c */
/* Takes the options out of argv.  With --help it prints the help, in lines of at most 100 columns,
 * and ends the process.  FALSE after saying on stderr what is wrong. */
gboolean cli_parse(const cli_help *help, const GOptionEntry *entries, int *argc, char ***argv);
/* Frees the texts that cli_parse put where the entries say. */
void cli_forget(const GOptionEntry *entries);
/* Options that mean the same wherever they are. */
GOptionEntry cli_option_out(char **to);
GOptionEntry cli_option_policy(char **to);
GOptionEntry cli_option_risk(char **to);
GOptionEntry cli_option_network(char **to);
GOptionEntry cli_option_clock(char **to); /* of User-Mode Linux */
GOptionEntry cli_option_workers(char **to);
GOptionEntry cli_option_seed(char **to);
GOptionEntry cli_option_scenario(char ***to); /* what is no option: exactly one is expected */
/* The code to end with: WEIR_EXIT_FAILED, after a word on stderr, if what was printed got lost
 * (a full disk), else the given one. */
int cli_end(int code);
/* From now on want of memory ends the process in words. */
void cli_catch_aborts(void);
/* On a terminal, how far long work has come and how long it will take if it goes on like this: one
 * line, rewritten.  share: done so far, 0 to 1; with 1 the line is wiped out.  begin_s: when it
 * began (weir_now_s).  Says nothing elsewhere. */
void cli_progress(const char *what, double share, double begin_s);
/* The others say on stderr what is wrong and return FALSE; command is "weir NAME". */
gboolean cli_refuse(const char *command, const char *option, const char *text,
                    const char *expected);
/* Exactly one scenario, and a folder for the results. */
gboolean cli_scenario_and_out(const char *command, char **rest, const char *out);
/* What came of a training that left its results in a folder: its summary.json, or a few words. */
int cli_summary(const char *command, const char *out, gboolean json);
/* files.c */
/* A pipe, a terminal or a device is written to and never replaced; a file is whole or not there.
 * WEIR_E_IO. */
weir_status cli_write(const char *path, const GString *text);
/* Does the folder lack FILE because its run has not been finished, or because it holds those of a
 * comparison?  Then it says so on stderr, as `weir COMMAND`. */
gboolean cli_without(const char *command, const char *directory, const char *file);
/* A result that was left there, as it is. */
int cli_print_file(const char *command, const char *out, const char *name);
gboolean cli_seed(const char *command, const char *text, guint64 *seed);      /* NULL: 0 */
gboolean cli_workers(const char *command, const char *text, gint64 *workers); /* NULL: -1 */

int weir_cmd_cost(int argc, char **argv);
int weir_cmd_run(int argc, char **argv);
int weir_cmd_train(int argc, char **argv);
int weir_cmd_emulate(int argc, char **argv);
int weir_cmd_compare(int argc, char **argv);
int weir_cmd_bench(int argc, char **argv);
int weir_cmd_report(int argc, char **argv);
int weir_cmd_explain(int argc, char **argv);
int weir_cmd_replay(int argc, char **argv);
int weir_cmd_plan(int argc, char **argv);
int weir_cmd_profile(int argc, char **argv);
int weir_cmd_probe(int argc, char **argv);
int weir_cmd_top(int argc, char **argv);

#endif
