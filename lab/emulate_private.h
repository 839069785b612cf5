/* What the files of `weir emulate` share. */
#ifndef WEIR_LAB_EMULATE_PRIVATE_H
#define WEIR_LAB_EMULATE_PRIVATE_H

#include <glib.h>
#include <sys/types.h>

#include "lab/emulate.h"
#include "lab/progress.h"
#include "lab/schedule.h"
#include "lab/topology.h"

enum { WEIR_EMULATE_VERSION = 1, WEIR_EMULATE_LINE = 4096 };

typedef enum weir_launcher {
  WEIR_LAUNCHER_NONE,
  WEIR_LAUNCHER_TORCHRUN,
  WEIR_LAUNCHER_MPIRUN
} weir_launcher;

/* What is known outside of the processes that run: in memory that they share. */
typedef struct weir_emulate_result {
  int exit_code;
} weir_emulate_result;

struct weir_emulate {
  weir_emulate_options options;
  weir_scenario scenario;
  weir_trace trace;
  weir_launcher launcher;
  char *out;   /* NULL: none */
  char *lacks; /* why the network is not tc; NULL: nothing to say */
  bool uml, auto_network;
  int lock;
  weir_progress progress;
  weir_emulate_result *result;
};

/* One process that the runner started: a rank, or mpirun. */
typedef struct weir_emulated {
  pid_t pid;
  int output; /* what it prints; -1: at its end */
  int log;    /* -1: none */
  bool ended, put_down;
  int code; /* 128 + signal */
  double ended_s;
  char line[WEIR_EMULATE_LINE]; /* the begin of one */
  size_t held;
} weir_emulated;

/* From when on the network was so; as read back. */
typedef struct weir_emulate_setting {
  double begin_s;
  const char *phase; /* "" of a trace */
  weir_shape shape;
} weir_emulate_setting;

/* One run, in the process that holds the network. */
typedef struct weir_emulation {
  weir_emulate *emulate;
  weir_topology *topology;
  weir_emulated *process;
  uint32_t processes;
  weir_shape in_force;
  size_t phase; /* in force */
  GArray *settings;
  GArray *sample_s; /* double: when counters were read */
  GArray *counters; /* weir_shaper_counters: of all workers, a sample after the other */
  double begin;
  double schedule_begin_s; /* seconds after the begin; INFINITY: it waits for traffic */
  double next_change;      /* seconds after the begin; INFINITY: none */
  bool interrupted, timed_out;
} weir_emulation;

/* Seconds after the schedule's begin at which a phase begins; of the one behind the last, when it
 * ends. */
double weir_emulate_phase_begin(const weir_emulate *emulate, size_t phase);
/* Put what is due at this time into force, and note when the next change is. */
weir_status weir_emulate_set(weir_emulation *run, double time_s);
/* Read all counters and say how it goes. */
weir_status weir_emulate_sample(weir_emulation *run, double time_s);
/* What a worker's counters were in a sample. */
const weir_shaper_counters *weir_emulate_counted(const weir_emulation *run, guint sample,
                                                 uint32_t rank);
/* Until all processes have ended. */
weir_status weir_emulate_supervise(weir_emulation *run);
/* The body of weir_stage_run; user: the weir_emulate. */
weir_status weir_emulate_tc(void *user);
weir_status weir_emulate_uml(weir_emulate *emulate, int *exit_code);
/* emulate.json */
weir_status weir_emulate_write(const weir_emulation *run, int exit_code);

#endif
