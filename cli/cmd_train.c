/* `weir train`: one worker of a group that a launcher started. */
#include <glib.h>
#include <stdio.h>
#include <weir/weir.h>

#include "cli.h"
#include "lab/train.h"

static const char command[] = "weir train";

static const char summary[] =
    "Trains the scenario's model as one of the workers that mpirun, srun or torchrun started,\n"
    "over the network there is; the scenario's phases are not applied. Rank 0 writes\n"
    "summary.json, decisions.jsonl, steps.csv and report.html into DIR, and prints the digest of\n"
    "the weights, which all ranks have compared.\n"
    "\n"
    "  mpirun -n 4 weir train scenarios/demo.ini --out out/demo\n"
    "  srun -n 4 weir train scenarios/demo.ini --out out/demo\n"
    "  torchrun --no-python --nproc-per-node 4 weir train scenarios/demo.ini --out out/demo\n"
    "\n"
    "docs/guide/launch.md lists the variables that are read.";

static const char exit_codes[] =
    "\nExit codes: 0 done; 1 the training failed (which rank, why); 2 bad usage, environment or "
    "input.\n";

typedef struct train_arguments {
  char *out, *policy, *transport, *seed;
  gboolean json;
  char **rest;
} train_arguments;

static int check_and_train(const train_arguments *a) {
  guint64 seed = 0;
  if (!cli_scenario_and_out(command, a->rest, a->out) || !cli_seed(command, a->seed, &seed))
    return WEIR_EXIT_USAGE;
  const weir_train_options options = {.scenario = a->rest[0],
                                      .out = a->out,
                                      .policy = a->policy,
                                      .transport = a->transport,
                                      .has_seed = a->seed != NULL,
                                      .seed = seed};
  weir_train *train = NULL;
  if (weir_train_prepare(&train, &options)) {
    fprintf(stderr, "weir train: %s\n", weir_last_error());
    return WEIR_EXIT_USAGE;
  }
  int code = WEIR_EXIT_DONE;
  if (weir_train_execute(train)) {
    fprintf(stderr, "weir train: rank %d: %s\n", weir_train_rank(train), weir_last_error());
    code = WEIR_EXIT_FAILED;
  } else if (weir_train_rank(train) == 0) {
    if (!a->json) printf("weights_sha256 %s\n", weir_train_weights_sha256(train));
    code = cli_summary(command, a->out, a->json);
  }
  weir_train_free(train);
  return code;
}

int weir_cmd_train(int argc, char **argv) {
  train_arguments a = {0};
  const GOptionEntry entries[] = {
      cli_option_out(&a.out),
      cli_option_policy(&a.policy),
      {"transport", 't', 0, G_OPTION_ARG_STRING, &a.transport,
       "auto (default), tcp, mixed, shm, mpi, shm+mpi, nccl, nccl+tcp, nccl+mpi or shm+nccl",
       "NAME"},
      cli_option_seed(&a.seed),
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print the summary as JSON (rank 0)", NULL},
      cli_option_scenario(&a.rest),
      G_OPTION_ENTRY_NULL};
  g_autofree char *description = help_policies(exit_codes);
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&(cli_help){command, NULL, summary, description}, entries, &argc, &argv))
    code = check_and_train(&a);
  cli_forget(entries);
  return code;
}
