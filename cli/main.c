/* The command: its table of sub-commands. */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "cli.h"

static const weir_command commands[] = {
    /* name, summary, function */
    {"run", "run a scenario: real training over an emulated network", weir_cmd_run},
    {"train", "train as one worker of a group that mpirun, srun or torchrun started",
     weir_cmd_train},
    {"emulate", "run any program over a network that changes as a scenario says", weir_cmd_emulate},
    {"compare", "run a scenario under several policies and compare them", weir_cmd_compare},
    {"cost", "predict what each collective costs on a given network", weir_cmd_cost},
    {"plan", "decide per tensor: fusion, bit widths, compression options", weir_cmd_plan},
    {"profile", "time a job's tensors and buckets, plan from that, and check the plan",
     weir_cmd_profile},
    {"probe", "measure latency and bandwidth between hosts, as a session does", weir_cmd_probe},
    {"top", "show what the ranks of a running job are at", weir_cmd_top},
    {"report", "write a run's report.html again", weir_cmd_report},
    {"explain", "tell in plain sentences why a run switched its plan", weir_cmd_explain},
    {"replay", "make a run's decisions again from its journal, and state their regret",
     weir_cmd_replay},
    {"bench", "measure how fast the parts are on this machine", weir_cmd_bench},
    {NULL, NULL, NULL},
};

static const cli_menu menu = {
    "weir", "command",
    "weir " WEIR_VERSION
    ": gradient communication tuned to the network while training runs\n\n"
    "usage: weir COMMAND [OPTIONS]     (weir COMMAND --help explains each)\n"
    "       weir --version\n",
    "\nExit codes: 0 done; 1 the run failed or was interrupted; 2 bad usage or bad input.\n",
    commands};

int main(int argc, char **argv) {
  static char help[] = "--help";
  cli_catch_aborts();
  /* Whatever the locale says, or where there is none: GLib takes options as UTF-8 then, as results
   * have them, and not as ASCII. */
  (void)setlocale(LC_CTYPE, "C.UTF-8");
  /* `weir help NAME...` is `weir NAME... --help`. */
  if (argc > 1 && !strcmp(argv[1], "help")) {
    memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof *argv);
    argv[argc - 1] = help;
  }
  if (argc > 1 && !strcmp(argv[1], "--version")) {
    printf("weir %s\n", weir_version());
    return cli_end(WEIR_EXIT_DONE);
  }
  return cli_end(cli_choose(&menu, argc, argv));
}
