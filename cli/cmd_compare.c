/* `weir compare`: a scenario under several policies. */
#include <glib.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "base/base.h"
#include "cli.h"
#include "lab/compare.h"
#include "lab/out.h"
#include "lab/report.h"
#include "lab/runner.h"

#define SEEDS_MAX 64
#define DENSE_POLICIES "none:1:dense-ring,none:1:dense-tree,bf16:1:dense-ring"
#define SPARSE_POLICIES \
  "lwtopk:0.1:ag,lwtopk:0.001:ag,mstopk:0.01:ag,star:0.1:art-ring,star:0.01:art-tree"
#define OWN_POLICIES "paper,weir"
#define DEFAULT_POLICIES DENSE_POLICIES "," SPARSE_POLICIES "," OWN_POLICIES

static const char command[] = "weir compare";

static const char summary[] =
    "Runs the same training under each policy with the same seed, one after the other, and judges\n"
    "the policies by time to accuracy. Each run's files go to DIR/POLICY (with '-' for ':', and\n"
    "-seedS added when there are several seeds); DIR gets compare.json and report.html.\n"
    "\n"
    "The policies without --policies:\n"
    "  " DENSE_POLICIES ",\n  " SPARSE_POLICIES ",\n  " OWN_POLICIES
    "\n"
    "\n"
    "A run that fails does not stop the others; the exit code is then 1. After an interruption\n"
    "the runs that were done are compared; the table, the report and \"complete\": false say that\n"
    "others are missing.\n"
    "Exit codes: 0 done; 1 a run failed, or it was interrupted; 2 bad usage or bad input\n"
    "(nothing was run).";

typedef struct compare_arguments {
  char *out, *policies, *network, *clock, *workers, *seeds, *target;
  gboolean json;
  char **rest;
} compare_arguments;

typedef struct compare_request {
  weir_run_options options; /* policy, seed and out differ from run to run */
  const char *out;
  uint64_t seeds[SEEDS_MAX];
  size_t seed_count;
  char **policies;
  double target;   /* fraction; NaN: not given */
  weir_run *first; /* prepared as long as the others take its data, and not run */
} compare_request;

/* --- arguments -------------------------------------------------------------------------------- */

static gboolean parse_seeds(const char *text, compare_request *request) {
  g_auto(GStrv) items = g_strsplit(text, ",", -1);
  gboolean good =
      *items || cli_refuse(command, "seeds", "''", "whole numbers with commas, e.g. 1,2,3");
  for (char **item = items; *item && good; item++) {
    guint64 seed = 0;
    if (request->seed_count == SEEDS_MAX ||
        !g_ascii_string_to_unsigned(g_strstrip(*item), 10, 0, G_MAXINT64, &seed, NULL))
      good =
          cli_refuse(command, "seeds", text,
                     "at most 64 whole numbers up to 9223372036854775807 with commas, e.g. 1,2,3");
    else
      request->seeds[request->seed_count++] = seed;
  }
  return good;
}

static gboolean parse_request(const compare_arguments *a, compare_request *request) {
  gint64 workers = 0;
  if (!cli_scenario_and_out(command, a->rest, a->out) ||
      !cli_workers(command, a->workers, &workers))
    return FALSE;
  char *end = NULL;
  const double percent = a->target ? g_ascii_strtod(a->target, &end) : NAN;
  if (a->target && (end == a->target || *end || !(percent > 0 && percent <= 100)))
    return cli_refuse(command, "target", a->target,
                      "an accuracy in percent, greater than 0, at most 100");
  request->target = percent / 100;
  request->out = a->out;
  request->options = (weir_run_options){
      .scenario = a->rest[0], .network = a->network, .clock = a->clock, .workers = workers};
  request->policies = g_strsplit(a->policies ? a->policies : DEFAULT_POLICIES, ",", -1);
  if (!*request->policies)
    return cli_refuse(command, "policies", "''", "policies, separated by commas");
  for (char **policy = request->policies; *policy; policy++)
    if (!*g_strstrip(*policy))
      return cli_refuse(command, "policies", a->policies, "policies, separated by single commas");
  return !a->seeds || parse_seeds(a->seeds, request);
}

/* --- runs ------------------------------------------------------------------------------------- */

static weir_run_options options_of(const compare_request *request, const weir_compared *compared,
                                   char *folder) {
  weir_run_options options = request->options;
  options.policy = compared->policy;
  options.out = folder;
  options.has_seed = request->seed_count > 0;
  options.seed = compared->seed;
  options.like = request->first;
  return options;
}

/* Two runs that would write into the same folder? */
static int check_folders(const weir_comparison *comparison) {
  for (size_t i = 0; i < comparison->count; i++)
    for (size_t j = 0; j < i; j++)
      if (!strcmp(comparison->runs[i].folder, comparison->runs[j].folder)) {
        fprintf(stderr,
                "weir compare: command line: %s would be run twice; expected each policy and seed "
                "once\n",
                comparison->runs[i].folder);
        return WEIR_EXIT_USAGE;
      }
  return WEIR_EXIT_DONE;
}

/* Find out about every bad policy before the first hour is spent. */
static int check_all(compare_request *request, weir_comparison *comparison) {
  if (check_folders(comparison)) return WEIR_EXIT_USAGE;
  for (size_t i = 0; i < comparison->count; i++) {
    g_autofree char *folder = g_build_filename(request->out, comparison->runs[i].folder, NULL);
    const weir_run_options options = options_of(request, &comparison->runs[i], folder);
    weir_run *run = NULL;
    weir_status status = weir_run_prepare(&run, &options);
    if (!status) status = weir_run_spares(run, request->out);
    if (!status) comparison->runs[i].seed = weir_run_seed(run);
    if (i == 0)
      request->first = run;
    else
      weir_run_free(run);
    if (status) {
      fprintf(stderr, "weir compare: %s\n", weir_last_error());
      return WEIR_EXIT_USAGE;
    }
  }
  return WEIR_EXIT_DONE;
}

static weir_status run_one(const compare_request *request, weir_compared *compared) {
  g_autofree char *folder = g_build_filename(request->out, compared->folder, NULL);
  const weir_run_options options = options_of(request, compared, folder);
  weir_run *run = NULL;
  weir_status status = weir_run_prepare(&run, &options);
  if (!status) status = weir_run_open(run);
  if (!status) status = weir_run_execute(run);
  if (!status) status = weir_compared_read(compared, request->out);
  if (status) {
    fprintf(stderr, "weir compare: %s: %s\n", compared->folder, weir_last_error());
    if (status == WEIR_E_STATE) {
      compared->state = WEIR_COMPARED_INTERRUPTED;
    } else {
      compared->state = WEIR_COMPARED_FAILED;
      compared->trouble = g_strdup(weir_last_error());
    }
  }
  weir_run_free(run);
  return status;
}

/* After every run, so that even what kills this process leaves what is known until then. */
static weir_status keep(const compare_request *request, weir_comparison *comparison, char **text) {
  weir_comparison_judge(comparison, request->target);
  return weir_comparison_write(comparison, request->options.scenario, request->out, text);
}

static int finish(const compare_request *request, weir_comparison *comparison, gboolean json) {
  g_autofree char *text = NULL;
  size_t done = 0;
  for (size_t i = 0; i < comparison->count; i++)
    done += comparison->runs[i].state == WEIR_COMPARED_DONE;
  int code = done < comparison->count ? WEIR_EXIT_FAILED : WEIR_EXIT_DONE;
  if (keep(request, comparison, &text) || weir_compare_report_write(request->out)) {
    fprintf(stderr, "weir compare: %s\n", weir_last_error());
    code = WEIR_EXIT_FAILED;
  }
  if (json && text)
    fputs(text, stdout);
  else
    weir_comparison_print(comparison);
  if (!weir_comparison_complete(comparison))
    fprintf(stderr, "weir compare: interrupted; %zu of %zu runs are compared\n", done,
            comparison->count);
  else if (done < comparison->count)
    fprintf(stderr, "weir compare: not every run was done; see above\n");
  return code;
}

/* How long the rest takes is told from the runs done: policies differ, so it is a rough figure. */
static void announce(const weir_comparison *comparison, size_t i, double begin_s) {
  fprintf(stderr, "run %zu of %zu: %s", i + 1, comparison->count, comparison->runs[i].folder);
  if (i) {
    const double left_s = (weir_now_s() - begin_s) / (double)i * (double)(comparison->count - i);
    fprintf(stderr, " (all to be done in about %d:%02d)", (int)(left_s / 60), (int)left_s % 60);
  }
  fputc('\n', stderr);
}

/* Runs take the signals themselves while they last. */
static volatile sig_atomic_t asked_to_end;
static void ask_to_end(int number) {
  (void)number;
  asked_to_end = 1;
}

static weir_status run_all(const compare_request *request, weir_comparison *comparison) {
  struct sigaction ask = {.sa_handler = ask_to_end, .sa_flags = SA_RESTART}, old_int, old_term;
  const double begin_s = weir_now_s();
  weir_status kept = WEIR_OK;
  (void)sigemptyset(&ask.sa_mask);
  (void)sigaction(SIGINT, &ask, &old_int);
  (void)sigaction(SIGTERM, &ask, &old_term);
  for (size_t i = 0; i < comparison->count && !kept && !asked_to_end; i++) {
    announce(comparison, i, begin_s);
    if (run_one(request, &comparison->runs[i]) == WEIR_E_STATE) break;
    kept = keep(request, comparison, NULL);
  }
  (void)sigaction(SIGINT, &old_int, NULL); /* asked once more, it ends at once */
  (void)sigaction(SIGTERM, &old_term, NULL);
  return kept;
}

static int compare(compare_request *request, gboolean json) {
  const uint64_t one = 1;
  weir_comparison comparison;
  weir_comparison_plan(&comparison, request->policies, request->seed_count ? request->seeds : &one,
                       request->seed_count ? request->seed_count : 1);
  int lock = -1, code = check_all(request, &comparison);
  if (!code && weir_out_open(request->out, &lock)) {
    fprintf(stderr, "weir compare: %s\n", weir_last_error());
    code = WEIR_EXIT_USAGE;
  } else if (!code && run_all(request, &comparison)) {
    fprintf(stderr, "weir compare: %s\n", weir_last_error());
    code = WEIR_EXIT_FAILED;
  } else if (!code) {
    code = finish(request, &comparison, json);
  }
  weir_out_close(lock);
  weir_comparison_free(&comparison);
  return code;
}

int weir_cmd_compare(int argc, char **argv) {
  compare_arguments a = {0};
  const GOptionEntry entries[] = {
      cli_option_out(&a.out),
      {"policies", 'p', 0, G_OPTION_ARG_STRING, &a.policies, "policies, separated by commas",
       "LIST"},
      cli_option_network(&a.network),
      cli_option_clock(&a.clock),
      cli_option_workers(&a.workers),
      {"seeds", 's', 0, G_OPTION_ARG_STRING, &a.seeds,
       "random seeds, separated by commas; default: the scenario's", "LIST"},
      {"target", 't', 0, G_OPTION_ARG_STRING, &a.target,
       "accuracy to reach; default: one point below the final accuracy of none:1:dense-ring (of "
       "the best run, if that policy is not run)",
       "PERCENT"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print compare.json instead of the table", NULL},
      cli_option_scenario(&a.rest),
      G_OPTION_ENTRY_NULL};
  g_autofree char *description = help_policies("");
  compare_request request = {.target = NAN};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&(cli_help){command, NULL, summary, description}, entries, &argc, &argv)) {
    if (parse_request(&a, &request)) code = compare(&request, a.json);
  }
  weir_run_free(request.first);
  g_strfreev(request.policies);
  cli_forget(entries);
  return code;
}
