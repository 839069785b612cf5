/* What the parts of `weir plan` share. */
#ifndef WEIR_CLI_PLAN_H
#define WEIR_CLI_PLAN_H

#include <glib.h>
#include <weir/plan.h>
#include <weir/status.h>

#include "cli.h"
#include "lab/doc.h"
#include "planner/curve.h"

/* One sub-command of `weir plan`; argv[0] is "weir plan NAME". */
int plan_bits(int argc, char **argv);
int plan_fusion(int argc, char **argv);
int plan_strategy(int argc, char **argv);

/* "weir plan NAME: OPTION: expected ..." on stderr; WEIR_EXIT_USAGE. */
int plan_refuse(const char *command, const char *option, const char *expected);
/* The library's last error on stderr; WEIR_EXIT_USAGE, or WEIR_EXIT_FAILED when memory or Weir
 * itself is to blame. */
int plan_failed(const char *command, weir_status status);
/* `count` numbers from 0 separated by commas and nothing else. */
gboolean plan_numbers(const char *text, guint count, double *values);
/* "US,GBPS" and "A,B": a link, and what compressing takes; FALSE: what was expected is in
 * plan_links and plan_costs. */
gboolean plan_link(const char *text, double *alpha_s, double *beta_s);
gboolean plan_curve(const char *text, weir_curve *curve);
extern const char plan_links[], plan_costs[];
/* Parse entries and take exactly one further argument, the input file.  NULL after a message;
 * g_free it. */
char *plan_arguments(const cli_help *help, const GOptionEntry *entries, int *argc, char ***argv);

/* One more bucket of a table (controller/table.h) that begins empty: its last tensor and its
 * plan. */
void plan_table_add(GString *table, const char *last, const weir_plan *plan, weir_place place);
/* A tensor that stays in full precision, apart from all buckets, which follow. */
void plan_table_keep(GString *table, const char *name);

#endif
