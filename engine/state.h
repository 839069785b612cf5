/* Inside of the engine: what its files share. */
#ifndef WEIR_ENGINE_STATE_H
#define WEIR_ENGINE_STATE_H

#include "engine/engine.h"

/* One step's way through an exchange.  Notes go along with the exchange's last collective. */
typedef struct weir_passage {
  weir_moments moments; /* of fed, this rank's; zero when it sits the step out */
  float *sum;           /* out: n floats, the sum over ranks, the same bits on all */
  float *next;          /* out: the residual to commit (fed or spare); NULL: all zero */
  double kept_square;   /* out: ||g_c||^2 of this rank */
  double extra_bytes;   /* out: byte terms of the messages really sent less those expected */
} weir_passage;

/* Memory a trial restores: plain memory, and state behind hooks. */
typedef struct weir_state {
  void *data;
  size_t bytes;
} weir_state;

typedef struct weir_checkpoint {
  unsigned char *memory; /* residual, then states, then what the hooks saved */
  size_t capacity;
  size_t *hook_bytes; /* per hook, as saved */
  size_t hook_capacity;
  bool residual_zero;
  uint64_t turn;
} weir_checkpoint;

struct weir_engine {
  weir_engine_config config;
  weir_layout layout; /* owns its offsets */
  size_t n;           /* elements */
  int rank, size;

  weir_plan plan;
  weir_directive pending; /* from the notes of the last exchange */
  bool in_step, in_trial;
  uint64_t exchanges; /* finished, trials included: the step number in tags and notes */
  uint64_t committed; /* steps that count */
  uint64_t turn;      /* whose indices star takes; rolled back with a trial */

  float **submitted; /* per tensor; NULL: not yet */
  float *residual, *fed, *spare; /* n floats each; a commit swaps them */
  bool residual_zero;            /* residual is known to hold nothing */

  weir_codec_context *context;
  weir_gain_curve *curve;
  /* For sparse plans, sized by weir_engine_reserve. */
  uint32_t *index;
  float *value, *error;
  size_t kept_capacity;
  unsigned char *blocks; /* one wire message a rank, stride apart */
  size_t blocks_capacity, stride;
  size_t *block_bytes; /* per rank */
  weir_note *notes;    /* per rank */

  weir_state *states;
  size_t state_count;
  weir_state_hooks *hooks;
  size_t hook_count;
  weir_checkpoint checkpoint;

  double mark, begun; /* clock readings */
  double compute_s, compress_s, comm_s, overhead_s, predicted_comm_s;
  double last_compress_s, last_comm_s, last_gain; /* of the previous step, for the note */
  uint64_t bytes_before;

  weir_status broken; /* the group's end, kept for every later call */
  char broken_text[512];
};

/* Wall time, or the thread's processor time under a virtual network. */
double weir_engine_clock(const weir_engine *engine);
/* Add the time since the last lap to *part. */
void weir_engine_lap(weir_engine *engine, double *part);
/* Keep a failure that ends the group; returns status. */
weir_status weir_engine_break(weir_engine *engine, weir_status status);
/* Say again why the group ended; WEIR_OK while it has not. */
weir_status weir_engine_check(const weir_engine *engine);
/* Tell the others that `culprit` ends the group, and fail. */
weir_status weir_engine_blame(weir_engine *engine, int culprit, weir_status status);

/* Make room for a plan.  WEIR_E_NOMEM changes nothing. */
weir_status weir_engine_reserve(weir_engine *engine, const weir_plan *plan);
void weir_engine_release(weir_engine *engine);

/* Room for a checkpoint of the state as it now is; then take it or bring it back. */
weir_status weir_checkpoint_prepare(weir_engine *engine);
void weir_checkpoint_take(weir_engine *engine);
void weir_checkpoint_restore(weir_engine *engine);

/* One composition a collective. */
typedef struct weir_exchange {
  uint32_t collective; /* weir_collective_id; its index in weir_exchanges[] */
  weir_status (*run)(weir_engine *engine, const weir_allreduce *allreduce, weir_notes *notes,
                     weir_passage *passage);
  uint32_t allreduce; /* which row of weir_allreduces[] it is given */
} weir_exchange;
extern const weir_exchange weir_exchanges[WEIR_COLL_COUNT];

weir_status weir_exchange_dense(weir_engine *engine, const weir_allreduce *allreduce,
                                weir_notes *notes, weir_passage *passage);
weir_status weir_exchange_ag(weir_engine *engine, const weir_allreduce *allreduce,
                             weir_notes *notes, weir_passage *passage);
/* What weir_exchange_ag does with an encoder. */
weir_status weir_exchange_encoded(weir_engine *engine, weir_notes *notes, weir_passage *passage);
weir_status weir_exchange_art(weir_engine *engine, const weir_allreduce *allreduce,
                              weir_notes *notes, weir_passage *passage);

/* Notes and records. */
void weir_telemetry_note(weir_engine *engine, const weir_passage *passage, bool nonfinite);
/* Are the notes of all ranks what they can be?  Sets *nonfinite when any rank sits out. */
weir_status weir_telemetry_check(weir_engine *engine, bool *nonfinite);
void weir_telemetry_record(weir_engine *engine, const weir_passage *passage,
                           weir_step_record *record);
/* Median over the ranks that know; 0 when none does. */
void weir_telemetry_network(const weir_engine *engine, double *latency_s, double *bandwidth);

#endif
