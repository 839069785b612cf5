/* `weir emulate`: any program, once per worker, over a network that changes as a scenario says. */
#ifndef WEIR_LAB_EMULATE_H
#define WEIR_LAB_EMULATE_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/status.h>

typedef struct weir_emulate_options {
  const char *scenario;
  const char *out;      /* folder for logs, emulate.json and report.html; NULL: none */
  const char *network;  /* "auto", "tc" or "uml"; NULL: auto */
  const char *launcher; /* "none", "torchrun" or "mpirun"; NULL: none */
  char **command;       /* ends with NULL */
  int64_t workers;      /* negative: the scenario's */
  double epoch_s;       /* how long an epoch lasts where phases go by epochs */
  double grace_s;       /* how long the other ranks may go on once one has failed */
  double timeout_s;     /* of the whole; 0: none */
  uint32_t memory_mib;  /* of User-Mode Linux; 0: by the number of workers */
  bool await_traffic;   /* the schedule begins once a worker has sent a megabyte */
  bool quiet;           /* what ranks print goes to the logs alone */
  bool inside_uml;      /* runs inside User-Mode Linux, as in runner.h */
  bool relay;           /* likewise */
} weir_emulate_options;

typedef struct weir_emulate weir_emulate;

/* Check everything a user can get wrong, and choose the network; touches nothing.  Any failure is
 * the input's. */
weir_status weir_emulate_prepare(weir_emulate **out, const weir_emulate_options *options);
/* Make the output folder, and remove what an older or crashed run left in it. */
weir_status weir_emulate_open(weir_emulate *emulate);
/* Run until all ranks have ended.  On WEIR_OK *exit_code is the highest of theirs, 128 + signal for
 * one that a signal ended; ranks that the runner put down do not count, unless time was up (124).
 * WEIR_E_STATE: interrupted; the report of what there was is written all the same.  All else: there
 * is no result but the logs.  Nothing of the network outlives the call, nor a caller that is
 * killed. */
weir_status weir_emulate_execute(weir_emulate *emulate, int *exit_code);
/* "tc" or "uml". */
const char *weir_emulate_network(const weir_emulate *emulate);
void weir_emulate_free(weir_emulate *emulate);

/* Open MPI's way to another worker (its plm_rsh_agent): become what follows the host's address in
 * argv, on that worker's machine.  Returns only on failure. */
weir_status weir_emulate_enter(char **argv);

#endif
