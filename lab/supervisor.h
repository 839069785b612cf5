/* The runner's side of a run: listens to all workers, sets the network when rank 0 asks, finds
 * those that died, froze or fell silent, and sees to it that all of them end. */
#ifndef WEIR_LAB_SUPERVISOR_H
#define WEIR_LAB_SUPERVISOR_H

#include <sys/types.h>
#include <weir/status.h>

#include "lab/progress.h"
#include "lab/steplog.h"

typedef struct weir_supervisor_member {
  int channel;       /* the runner's end */
  pid_t pid;         /* 0: a thread */
  bool ended;        /* nothing more will come: reaped, or a thread that has said its last */
  bool done;         /* trained to the end */
  bool stopped;      /* seen stopped by a signal */
  bool put_down;     /* by us, because it did not end by itself */
  bool died;         /* ended without saying why: `trouble` is what was seen of it from outside */
  char trouble[512]; /* why it ended early; "" */
} weir_supervisor_member;

/* Put an epoch's network, or (epoch 0xffffffff) the trace's at a time, into force and say what it
 * is. */
typedef struct weir_supervisor_network {
  weir_status (*set)(void *user, uint32_t epoch, double time_s, weir_shape *in_force);
  void *user;
  double interval_s; /* how often to call it between epochs; 0: never */
} weir_supervisor_network;

typedef struct weir_supervisor {
  weir_supervisor_member *members;
  uint32_t count;
  double timeout_s;                /* of the workers' sessions */
  weir_supervisor_network network; /* set NULL: virtual time */
  weir_steplog *log;
  const char *out; /* where the log is kept when rank 0 asks; and the run's number */
  uint64_t run;
  double elapsed_s; /* of the run until now, before it goes on; for the trace */
  weir_progress *progress;
  char (*weights_sha256)[65]; /* one a rank, filled in */
  /* used by weir_supervisor_run only */
  weir_shape in_force;
  double began, last_word, last_set, failed_at;
  double turned; /* when the watch last went round */
  bool interrupted;
} weir_supervisor;

/* Until every worker has ended.  WEIR_OK when all trained to the end with equal weights.
 * WEIR_E_STATE after SIGINT or SIGTERM; else WEIR_E_PEER with who failed first, why, and what the
 * others said.  Processes have all been waited for when it returns.  SIGINT and SIGTERM must be
 * blocked in every thread, as weir_stage_run leaves them: it reads them. */
weir_status weir_supervisor_run(weir_supervisor *supervisor);

/* Every turn of the watch.  Time in which the runner itself stood still (Ctrl-Z) is nobody's
 * silence. */
void weir_supervisor_turn(weir_supervisor *supervisor, double now);

#endif
