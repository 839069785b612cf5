/* The command line: one file a sub-command, one row of the table in main.c each. */
#ifndef WEIR_CLI_H
#define WEIR_CLI_H

/* Exit codes, the same for every sub-command. */
enum {
  WEIR_EXIT_DONE = 0,
  WEIR_EXIT_FAILED = 1, /* the run failed: which rank, why */
  WEIR_EXIT_USAGE = 2   /* bad usage or bad input: file, line, what was expected */
};

typedef struct weir_command {
  const char *name;
  const char *summary; /* one line for `weir --help` */
  int (*run)(int argc, char **argv); /* argv[0] is "weir NAME" */
} weir_command;

/* The policies there are, for --help; the caller frees it with g_free(). */
char *help_policies(void);

int weir_cmd_cost(int argc, char **argv);
int weir_cmd_run(int argc, char **argv);
int weir_cmd_compare(int argc, char **argv);
int weir_cmd_bench(int argc, char **argv);
int weir_cmd_report(int argc, char **argv);
int weir_cmd_replay(int argc, char **argv);
int weir_cmd_plan(int argc, char **argv);
int weir_cmd_profile(int argc, char **argv);

#endif
