/* One worker: a session, a trainer, and the loop over epochs and steps. */
#ifndef WEIR_LAB_WORKER_H
#define WEIR_LAB_WORKER_H

#include <weir/weir.h>

#include "lab/channel.h"
#include "lab/savepoint.h"
#include "lab/scenario.h"
#include "lab/sim.h"
#include "lab/trainer.h"

/* All borrowed. */
typedef struct weir_worker_config {
  const weir_scenario *scenario;
  const weir_dataset *data; /* read only, shared by all workers */
  int rank;
  const char *policy;
  const char *rendezvous, *bind_address;
  uint64_t job_id;
  const char *secret;         /* NULL in virtual time */
  const char *journal_path;   /* rank 0 writes its decisions there */
  const char *transport;      /* NULL: "tcp", or "inproc" in virtual time */
  const char *capture;        /* folder for profile.csv, groups.csv, timings-*.csv; NULL: none */
  const char *keep;           /* folder for what the run can go on from; NULL: nothing is saved */
  uint64_t run;               /* its number, see run_record.h */
  const weir_savepoint *from; /* rank 0's, of the generation to go on from; NULL: the beginning */
  int channel;                /* the worker's end */
  /* Not NULL: there is no runner; what it would be told goes here instead.  Rank 0's is given MET
   * at the begin, and DONE once for every rank, with that rank's digest. */
  weir_status (*told)(void *user, const weir_message *message);
  void *user;
  weir_sim_clock *clock; /* NULL: a real network over TCP; else threads in virtual time */
} weir_worker_config;

/* Steps that make an epoch. */
uint64_t weir_worker_steps_per_epoch(const weir_scenario *scenario, const weir_dataset *data);

/* Train to the end.  Tells the runner DONE or ERROR over the channel, and returns the same. */
weir_status weir_worker_run(const weir_worker_config *config);

#endif
