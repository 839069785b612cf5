/* `weir emulate`: any program over a changing network. */
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "cli.h"
#include "lab/emulate.h"

static const char command[] = "weir emulate";

static const char summary[] =
    "Runs COMMAND once per worker of the scenario, each on a machine of its own (a network\n"
    "namespace with a host name, w0, w1, ..., and an own /dev/shm), over links that change as the\n"
    "scenario's phases or its trace say. COMMAND is any program: a training, iperf3, ping.\n"
    "\n"
    "  weir emulate scenarios/demo.ini --out out/ddp -- python train.py\n"
    "  weir emulate scenarios/demo.ini --launcher torchrun -- train.py\n"
    "  weir emulate scenarios/demo.ini -- sh -c '[ $RANK = 0 ] && exec ping -c 60 w1; sleep 60'\n"
    "\n"
    "COMMAND finds RANK, WORLD_SIZE, LOCAL_RANK (0), LOCAL_WORLD_SIZE (1), MASTER_ADDR and\n"
    "MASTER_PORT in its environment, the interface's name for Gloo and NCCL, and DIR in WEIR_OUT.\n"
    "DIR gets rank-R.log, emulate.json (what was set, what flowed, and when) and report.html.\n"
    "docs/guide/emulate.md tells more.";

static const char description[] =
    "Phases take effect by time: for their `seconds`, or, where the scenario has epochs alone, "
    "for\n"
    "so many times --epoch-s. The last phase lasts until COMMAND ends; a trace begins again.\n"
    "[training] and [fault] are not looked at.\n"
    "\n"
    "Networks, in the order in which `auto` tries them:\n"
    "  tc   network namespaces, links shaped by the kernel: htb, and netem where a phase has "
    "delay,\n"
    "       loss, reordering or duplicates\n"
    "  uml  the same inside User-Mode Linux, for kernels without netem; the host's files are "
    "there,\n"
    "       but only DIR (by WEIR_OUT) and the temporary folder can be written\n"
    "\n"
    "Exit codes: 0 all ranks ended so; else the highest of theirs (128 + signal for one that a\n"
    "signal ended); 124 time was up; 1 it was interrupted, or the network failed; 2 bad usage or "
    "bad\n"
    "input.\n";

typedef struct emulate_arguments {
  char *out, *network, *launcher, *workers, *epoch, *grace, *timeout, *memory;
  gboolean await_traffic, json, quiet, inside_uml, relay;
  char **rest;
} emulate_arguments;

static gboolean seconds(const char *option, const char *text, double otherwise, double least,
                        double *to) {
  char *end = NULL;
  *to = text ? g_ascii_strtod(text, &end) : otherwise;
  if (!text || (end != text && !*end && isfinite(*to) && *to >= least && *to <= 1e6)) return TRUE;
  return cli_refuse(
      command, option, text,
      least > 0 ? "seconds, more than 0 and at most 1000000" : "seconds from 0 to 1000000");
}

static gboolean memory(const char *text, guint32 *mib) {
  guint64 value = 0;
  const gboolean good = !text || g_ascii_string_to_unsigned(text, 10, 64, 1 << 24, &value, NULL);
  *mib = (guint32)value;
  return good || cli_refuse(command, "memory-mib", text, "a whole number, 64 or more");
}

/* "SCENARIO -- COMMAND..." or "SCENARIO COMMAND...". */
static gboolean split(char **rest, weir_emulate_options *options) {
  if (!rest || !rest[0]) {
    fprintf(stderr, "%s: expected a scenario file and a command; see `%s --help`\n", command,
            command);
    return FALSE;
  }
  options->scenario = rest[0];
  options->command = rest + 1 + (rest[1] && !strcmp(rest[1], "--"));
  if (*options->command && **options->command) return TRUE;
  fprintf(stderr, "%s: expected a command after the scenario: %s %s -- COMMAND...\n", command,
          command, rest[0]);
  return FALSE;
}

static int emulate(const weir_emulate_options *options, gboolean json) {
  weir_emulate *run = NULL;
  int code = WEIR_EXIT_DONE;
  weir_status status = WEIR_OK;
  if (weir_emulate_prepare(&run, options) || weir_emulate_open(run)) {
    code = WEIR_EXIT_USAGE;
    status = WEIR_E_INVALID;
  } else {
    status = weir_emulate_execute(run, &code);
    if (status) code = WEIR_EXIT_FAILED;
  }
  if (status)
    fprintf(stderr, "%s: %s\n", command, weir_last_error());
  else if (json)
    code = MAX(code, cli_print_file(command, options->out, "emulate.json"));
  else if (options->out && !options->inside_uml)
    fprintf(stderr, "%s/report.html\n", options->out);
  weir_emulate_free(run);
  return code;
}

static int check_and_emulate(const emulate_arguments *a) {
  weir_emulate_options options = {.out = a->out,
                                  .network = a->network,
                                  .launcher = a->launcher,
                                  .await_traffic = a->await_traffic,
                                  .quiet = a->quiet || a->json,
                                  .inside_uml = a->inside_uml,
                                  .relay = a->relay};
  gint64 workers = 0;
  if (!split(a->rest, &options) || !cli_workers(command, a->workers, &workers) ||
      !seconds("epoch-s", a->epoch, 1, 1e-3, &options.epoch_s) ||
      !seconds("grace-s", a->grace, 30, 0, &options.grace_s) ||
      !seconds("timeout-s", a->timeout, 0, 1e-3, &options.timeout_s) ||
      !memory(a->memory, &options.memory_mib))
    return WEIR_EXIT_USAGE;
  if (a->out && !*a->out) {
    (void)cli_refuse(command, "out", "''", "a folder for the results");
    return WEIR_EXIT_USAGE;
  }
  if (a->json && !a->out) {
    fprintf(stderr, "%s: --json prints DIR/emulate.json; expected --out DIR\n", command);
    return WEIR_EXIT_USAGE;
  }
  options.workers = workers;
  return emulate(&options, a->json);
}

int weir_cmd_emulate(int argc, char **argv) {
  emulate_arguments a = {0};
  const GOptionEntry entries[] = {
      cli_option_out(&a.out),
      {"network", 'n', 0, G_OPTION_ARG_STRING, &a.network, "auto (default), tc or uml", "NETWORK"},
      {"launcher", 'l', 0, G_OPTION_ARG_STRING, &a.launcher,
       "none (default), torchrun (a node a worker) or mpirun (Open MPI, a host a worker)",
       "LAUNCHER"},
      cli_option_workers(&a.workers),
      {"epoch-s", 'e', 0, G_OPTION_ARG_STRING, &a.epoch,
       "how long an epoch of the scenario's phases counts; default: 1", "S"},
      {"await-traffic", 'a', 0, G_OPTION_ARG_NONE, &a.await_traffic,
       "let the schedule begin once a worker has sent a megabyte, not as COMMAND starts", NULL},
      {"grace-s", 'g', 0, G_OPTION_ARG_STRING, &a.grace,
       "how long the other ranks may go on once one has failed; default: 30", "S"},
      {"timeout-s", 't', 0, G_OPTION_ARG_STRING, &a.timeout, "end it all after that long", "S"},
      {"memory-mib", 'm', 0, G_OPTION_ARG_STRING, &a.memory,
       "memory of User-Mode Linux; default: by the number of workers", "MIB"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json,
       "print emulate.json instead of what the ranks print", NULL},
      {"quiet", 'q', 0, G_OPTION_ARG_NONE, &a.quiet, "do not print what the ranks print", NULL},
      {"inside-uml", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &a.inside_uml, NULL, NULL},
      {"relay", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &a.relay, NULL, NULL},
      {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &a.rest, NULL,
       "SCENARIO -- COMMAND..."},
      G_OPTION_ENTRY_NULL};
  if (argc > 1 && !strcmp(argv[1], "--enter")) { /* what follows is not ours to read */
    (void)weir_emulate_enter(argv + 2);
    fprintf(stderr, "%s: %s\n", command, weir_last_error());
    return WEIR_EXIT_FAILED;
  }
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&(cli_help){command, NULL, summary, description}, entries, &argc, &argv))
    code = check_and_emulate(&a);
  cli_forget(entries);
  return code;
}
