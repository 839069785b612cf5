/* `weir run`: a scenario, run once. */
#include <glib.h>
#include <stdio.h>
#include <weir/weir.h>

#include "cli.h"
#include "lab/run_record.h"
#include "lab/runner.h"

static const char command[] = "weir run";

static const char summary[] =
    "Trains the scenario's model, with its number of workers, over an emulated network that\n"
    "changes as the scenario says. Writes summary.json, decisions.jsonl, steps.csv and\n"
    "report.html into DIR. A scenario is a short text file, such as scenarios/demo.ini;\n"
    "docs/guide/scenarios.md explains all keys.\n"
    "\n"
    "Networks, in the order in which `auto` tries them:\n"
    "  tc   worker processes in network namespaces, links shaped by the kernel (htb, netem)\n"
    "  uml  the same inside User-Mode Linux, for kernels without netem; needs no privileges\n"
    "  sim  threads; training is real, the network's time comes from the cost model\n"
    "\n"
    "Every checkpoint_steps of the scenario (100) the run saves what it can go on from. One that "
    "was\n"
    "killed or interrupted goes on in its folder, and ends as if it had not been:\n"
    "  weir run --resume DIR";

static const char exit_codes[] =
    "\nExit codes: 0 done; 1 the run failed (which worker, why); 2 bad usage or bad input.\n";

typedef struct run_arguments {
  char *out, *resume, *policy, *risk, *network, *clock, *workers, *seed;
  gboolean json, inside_uml, relay, profile;
  char **rest;
} run_arguments;

static int run_scenario(const weir_run_options *options, gboolean json) {
  weir_run *run = NULL;
  int code = WEIR_EXIT_DONE;
  if (weir_run_prepare(&run, options) || weir_run_open(run)) {
    fprintf(stderr, "weir run: %s\n", weir_last_error());
    code = WEIR_EXIT_USAGE;
  } else if (weir_run_execute(run)) {
    fprintf(stderr, "weir run: %s\n", weir_last_error());
    code = WEIR_EXIT_FAILED;
  } else if (!options->inside_uml) {
    code = cli_summary(command, options->out, json);
  }
  weir_run_free(run);
  return code;
}

/* The folder's record names the scenario; it may be named again. */
static gboolean scenario_or_none(const run_arguments *a) {
  if (a->out || (a->rest && a->rest[0] && a->rest[1])) {
    fprintf(stderr, "%s: --resume DIR takes the place of --out, with at most one scenario\n",
            command);
    return FALSE;
  }
  return TRUE;
}

static int resume(const run_arguments *a, weir_run_options *options) {
  weir_run_record record = {0};
  options->out = a->resume;
  options->resume = true;
  int code = WEIR_EXIT_USAGE;
  if (weir_run_record_read(&record, a->resume) || weir_run_record_apply(&record, options))
    fprintf(stderr, "weir run: %s\n", weir_last_error());
  else
    code = run_scenario(options, a->json);
  weir_run_record_free(&record);
  return code;
}

static int check_and_run(const run_arguments *a) {
  weir_run_options options = {.out = a->out,
                              .policy = a->policy,
                              .risk = a->risk,
                              .network = a->network,
                              .clock = a->clock,
                              .has_seed = a->seed != NULL,
                              .inside_uml = a->inside_uml,
                              .relay = a->relay,
                              .profile = a->profile,
                              .keep = true};
  gint64 workers = 0;
  guint64 seed = 0;
  if (!(a->resume ? scenario_or_none(a) : cli_scenario_and_out(command, a->rest, a->out)) ||
      !cli_workers(command, a->workers, &workers) || !cli_seed(command, a->seed, &seed))
    return WEIR_EXIT_USAGE;
  options.scenario = a->rest ? a->rest[0] : NULL;
  options.workers = workers;
  options.seed = seed;
  return a->resume ? resume(a, &options) : run_scenario(&options, a->json);
}

int weir_cmd_run(int argc, char **argv) {
  run_arguments a = {0};
  const GOptionEntry entries[] = {
      cli_option_out(&a.out),
      {"resume", 0, 0, G_OPTION_ARG_FILENAME, &a.resume,
       "go on with the run in DIR, from its last checkpoint; what else is said must be as it was",
       "DIR"},
      cli_option_policy(&a.policy),
      cli_option_risk(&a.risk),
      cli_option_network(&a.network),
      cli_option_clock(&a.clock),
      cli_option_workers(&a.workers),
      cli_option_seed(&a.seed),
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print the summary as JSON", NULL},
      {"profile", 0, 0, G_OPTION_ARG_NONE, &a.profile,
       "also write profile.csv, groups.csv and timings-RANK.csv (docs/guide/overlap.md)", NULL},
      {"inside-uml", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &a.inside_uml, NULL, NULL},
      {"relay", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &a.relay, NULL, NULL},
      cli_option_scenario(&a.rest),
      G_OPTION_ENTRY_NULL};
  g_autofree char *description = help_policies(exit_codes);
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&(cli_help){command, NULL, summary, description}, entries, &argc, &argv))
    code = check_and_run(&a);
  cli_forget(entries);
  return code;
}
