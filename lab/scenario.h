/* Scenario files: what is trained, by how many workers, over which network at which time.
 * The table in scenario_keys.c says what each key means and allows. */
#ifndef WEIR_LAB_SCENARIO_H
#define WEIR_LAB_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#include "lab/models/model.h"
#include "lab/shaper.h"

#define WEIR_SCENARIO_PHASES_MAX 64
#define WEIR_SCENARIO_DECAYS_MAX 16
#define WEIR_SCENARIO_TEXT_MAX 512
#define WEIR_SCENARIO_WORKERS_MAX 4096

/* A span of epochs, or of time, under one state of the network. */
typedef struct weir_phase {
  char name[64];
  int line; /* of its section header */
  bool has_epochs;
  double seconds;                   /* 0: not given */
  uint32_t first_epoch, last_epoch; /* both included, as counted in the file */
  double latency_ms;                /* one way */
  double bandwidth_gbps;            /* as in the file, before bandwidth_scale */
  double loss_percent, reorder_percent, duplicate_percent;
} weir_phase;

/* A trace of packet slots: one line per slot, a millisecond stamp each. */
typedef struct weir_trace_config {
  char file[WEIR_SCENARIO_TEXT_MAX]; /* relative to the scenario's folder; "" : no trace */
  int line;
  double latency_ms;
  double interval_s; /* how often the rate changes */
  double window_s;   /* over which slots are counted */
  double slot_bytes;
} weir_trace_config;

/* A fault put into one worker on purpose, in mid-step, to see how the others end. */
typedef enum weir_fault_kind {
  WEIR_FAULT_NONE = 0,
  WEIR_FAULT_KILL,   /* "kill":   SIGKILL */
  WEIR_FAULT_FREEZE, /* "freeze": SIGSTOP */
  WEIR_FAULT_EXIT    /* "exit":   exits with code 3 */
} weir_fault_kind;

typedef struct weir_scenario {
  char path[WEIR_SCENARIO_TEXT_MAX];
  /* [scenario] */
  char name[WEIR_SCENARIO_TEXT_MAX];
  uint32_t workers;
  double bandwidth_scale;
  uint64_t seed;
  double timeout_s;
  char policy[WEIR_SCENARIO_TEXT_MAX];         /* default of --policy */
  char risk[WEIR_SCENARIO_TEXT_MAX];           /* of policy weir; default of --risk */
  char full_precision[WEIR_SCENARIO_TEXT_MAX]; /* as weir_options.full_precision */
  double trial_budget;                         /* of its trials */
  uint32_t codec_threads;                      /* of each worker */
  uint32_t tcp_streams;                        /* between each two workers */
  uint32_t error_feedback;                     /* 0: as weir_options.error_feedback is false */
  uint32_t overlap;                            /* 1: policy weir may plan buckets of tensors */
  uint32_t segments; /* that TCP sends at a time at least; 0: as the kernel has it */
  int workers_line;  /* 0: set on the command line */
  int policy_line, risk_line, full_line, feedback_line, shape_line;
  /* [training] */
  char dataset[WEIR_SCENARIO_TEXT_MAX], data_dir[WEIR_SCENARIO_TEXT_MAX];
  char model[WEIR_SCENARIO_TEXT_MAX];
  weir_model_sizes sizes; /* 0 where the model has none to choose */
  char optimizer[WEIR_SCENARIO_TEXT_MAX];
  double beta2;
  uint32_t divided_step;      /* 1: see weir_optimizer_config */
  uint32_t rate_warmup_steps; /* of the learning rate */
  uint32_t batch;
  double layer_ms, gflops; /* as if another processor computed: see lab/models/product.h */
  double codec_gbps;       /* likewise, of compressing: see session/pace.h; 0: as it can */
  uint32_t slice;          /* see weir_trainer_config */
  double learning_rate, momentum, weight_decay, decay_factor;
  uint32_t report_loss;         /* 0: nobody tells policy weir the loss */
  uint32_t momentum_correction; /* 1: the session keeps the momentum, before compression */
  double clip_norm;             /* 0: gradients are not clipped */
  uint32_t warmup_epochs;       /* of the ratio of a fixed plan */
  uint32_t decay_epochs[WEIR_SCENARIO_DECAYS_MAX]; /* as counted in the file */
  size_t decays;
  uint32_t epochs, steps_per_epoch, evaluate_every, train_limit;
  uint32_t checkpoint_steps;     /* after so many a run saves what it can go on from; 0: never */
  double source_ms, source_mb_s; /* of reading a training sample; 0: it is there */
  uint32_t cache_mb;             /* of each worker's cache of samples; 0: none */
  int training_line, data_dir_line, epochs_line, decay_line, warmup_line;
  int dataset_line, model_line, optimizer_line, divided_line, slice_line, layer_line;
  int sizes_line[3]; /* of layers, channels and context; 0: not given */
  /* [phase NAME] or [trace] */
  weir_phase phases[WEIR_SCENARIO_PHASES_MAX]; /* sorted by epoch, no gap, no overlap; of a
                                                  network that goes by seconds, as in the file */
  size_t phase_count;
  weir_trace_config trace;
  uint32_t first_epoch; /* 0 or 1: where the file starts to count */
  /* [fault] */
  weir_fault_kind fault;
  uint32_t fault_rank, fault_step;
  int fault_line;
} weir_scenario;

/* Read and check.  Errors say "file:line: what is wrong; expected what"; *scenario is then not to
 * be used. */
weir_status weir_scenario_read(weir_scenario *scenario, const char *path);

/* The same for `weir emulate`, which trains nothing: only [scenario] and the network have to be
 * there, and phases go by seconds where they have them (then all must), else by epochs. */
weir_status weir_scenario_read_network(weir_scenario *scenario, const char *path);
/* Read so: do its phases go by seconds? */
bool weir_scenario_is_timed(const weir_scenario *scenario);

/* What still has to hold after the command line changed workers; also called by _read. */
weir_status weir_scenario_check_workers(const weir_scenario *scenario);

/* What the links are set to in an epoch (bandwidth_scale applied).  Clamped to the schedule; not
 * for trace-driven scenarios. */
const weir_phase *weir_scenario_phase(const weir_scenario *scenario, uint32_t epoch);
void weir_scenario_shape(const weir_scenario *scenario, const weir_phase *phase, weir_shape *shape);

/* Bytes per second from bits: the file speaks of Gbit/s. */
#define WEIR_GBPS 125e6

#endif
