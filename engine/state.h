/* Inside of the engine: what its files share. */
#ifndef WEIR_ENGINE_STATE_H
#define WEIR_ENGINE_STATE_H

#include "base/ways.h"
#include "collectives/compressed.h"
#include "engine/engine.h"
#include "engine/marks.h"
#include "engine/velocity.h"

typedef struct weir_lanes weir_lanes;
typedef struct weir_on_device weir_on_device; /* device.h */

/* One group's way through an exchange.  Notes go along with the last group's last collective. */
typedef struct weir_passage {
  weir_moments moments; /* of fed, this rank's; zero when it sits the step out */
  float *sum;           /* out, unless late: n floats, the sum over ranks, the same bits on all */
  float *next;          /* out: the residual to commit (fed or spare); NULL: all zero */
  double kept_square;   /* out: ||g_c||^2 of this rank */
  double extra_bytes;   /* out: byte terms of the messages really sent less those expected */
  weir_gathering sent;  /* out, AG: in so many all-gathers, by all ranks together */
} weir_passage;

/* A thread's stop watch: what the time since the last lap went into. */
typedef struct weir_watch {
  double mark;
  double compress_s, comm_s;
  size_t elements; /* passed over since `passed` was last told */
} weir_watch;

/* Where the residual from before the step is while e takes its place (residual.c). */
typedef enum weir_old_residual {
  WEIR_OLD_IN_PLACE = 0,  /* untouched */
  WEIR_OLD_ZERO = 1,      /* it was all zero */
  WEIR_OLD_SUBMITTED = 2, /* in the submitted buffers, whose gradient has been used */
  WEIR_OLD_SUM = 3        /* where the sum was, which has been published */
} weir_old_residual;

/* Which of its ranges for profilers an exchange is in (base/trace.h). */
typedef enum weir_trace {
  WEIR_TRACE_NONE = 0,
  WEIR_TRACE_WIRE = 1,  /* in the exchange's own */
  WEIR_TRACE_DECODE = 2 /* in "decode" inside of that */
} weir_trace;

/* Consecutive tensors that are compressed and exchanged together; the whole gradient when the plan
 * has no groups.  In the hands of one thread at a time: the caller's until it is launched, then the
 * lane's that prepares it, then the lane's that exchanges it (lanes.c). */
typedef struct weir_group {
  weir_engine *engine;
  size_t number;
  weir_plan plan; /* of this group alone, with the id of the whole */
  weir_way way;   /* of its collective, with the row that it names; NULL where it names none */
  const weir_allreduce *allreduce;
  const weir_compressed_row *compressed;
  uint32_t place;        /* weir_place */
  size_t first, end;     /* tensors */
  size_t at, n;          /* elements: [at, at + n) of the gradient */
  weir_layout layout;    /* of its tensors, counted from its own first element */
  size_t kept;           /* elements its codec keeps; bytes of a message for an encoder; floats that
                            travel for low rank */
  size_t first_sum;      /* low rank: floats of these that go with P */
  bool pieces;           /* what is gathered comes in pieces (exchange_pieces.c) */
  size_t *piece;         /* an encoder's: offsets of the one under way */
  bool merged;           /* in a trial: gathered and added up in spare (exchange_merged.c) */
  void *merging;         /* for that; in the set's arena */
  bool whole;            /* low rank without a matrix: all of it is summed in place */
  bool late;             /* its sum is made when nothing can fail any more, without spare
                            (residual.c) */
  weir_cost_terms terms; /* what its exchange is expected to cost */
  weir_gathering due;    /* AG: likewise to gather */
  /* For sparse plans; in the set's arena. */
  uint32_t *index; /* what is gathered: of use until it is sent, as value and error */
  float *value, *error;
  size_t kept_capacity;
  unsigned char *blocks; /* what is gathered: one wire message a rank, stride apart; else one */
  size_t stride;
  size_t *block_bytes; /* per rank */
  void *room;          /* for selecting, among the blocks; NULL: spare is */
  size_t room_bytes;
  unsigned char *own; /* encoders in pieces, with momentum: this rank's messages, as far as */
  size_t own_end;     /* this element */
  bool marked;        /* AR-Topk that keeps many: lists, messages and sums share a buffer
                         (exchange_marked.c) */
  size_t stretch;     /* marked: elements whose indices go at once */

  /* Of the step under way. */
  weir_codec_context *context; /* of the thread that has it */
  weir_watch *watch;           /* likewise */
  float *fed;                  /* e: its part of the engine's residual */
  float *spare;                /* its part of the engine's */
  weir_old_residual old;
  weir_velocity_place velocity;
  size_t missing; /* tensors not handed in yet */
  weir_passage passage;
  weir_trace trace;
  weir_status status; /* of preparing it */
  char text[256];     /* why that failed */
  bool ready;         /* prepared; under the lanes' lock */
  bool finite;        /* this rank's e */
  bool overflow;      /* the sum is not finite, on all ranks alike */
  /* On a device: */
  const struct weir_device_told *told; /* what compressing has told; NULL: not awaited yet */
  bool settled;                        /* its next residual has been made */
  weir_group_times times;
} weir_group;

/* The newest values of something measured once a step. */
#define WEIR_KEPT_STEPS 16
typedef struct weir_series {
  float value[WEIR_KEPT_STEPS];
} weir_series;

/* Only when the engine is asked to profile. */
typedef struct weir_profiler {
  bool on;             /* in this step */
  bool fresh;          /* the newest values are those of the step that ended last */
  double mark;         /* when the gradient before became ready, or the backward pass began */
  double forward_s;    /* of the step under way, until the backward pass began */
  uint64_t steps;      /* measured, of the gaps */
  uint64_t plan_steps; /* of the times */
  weir_series *gap;    /* per tensor */
  weir_series *time;   /* per group, all fields of weir_group_times */
} weir_profiler;

/* The plan's groups with their memory.  Built when a plan comes into force, never within a step. */
typedef struct weir_group_set {
  weir_group *group;
  size_t count;
  size_t *offset;       /* of all groups' layouts, one behind the other, and of their pieces */
  uint32_t *of;         /* tensor -> its group */
  unsigned char *arena; /* grows only */
  size_t capacity, used;
  bool trial; /* the residual from before a trial is in spare between steps (residual.c) */
} weir_group_set;

/* Memory a trial restores: plain memory, and state behind hooks. */
typedef struct weir_state {
  void *data;
  size_t bytes;
} weir_state;

typedef struct weir_checkpoint {
  unsigned char *memory; /* states and what the hooks saved; the residual is in spare */
  size_t capacity;
  size_t *hook_bytes; /* per hook, as saved */
  size_t hook_capacity;
  bool residual_zero;
  uint64_t turn;
  size_t warm_rank;
} weir_checkpoint;

/* What powersgd starts the next step from: Q's columns of all matrices, of length 1.  Column k of
 * tensor t lies at q + k * columns + at[t].  The same on all ranks, as what it comes from is. */
typedef struct weir_warm {
  float *q;
  size_t rank; /* columns there are; a plan of lower rank uses the first ones */
  size_t columns;
  size_t *at;   /* tensors + 1 */
  size_t *rows; /* of every tensor; 1: a vector */
} weir_warm;

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

  float **submitted;       /* per tensor; NULL: not yet */
  float *residual, *spare; /* n floats each; a commit may swap them */
  bool residual_zero;      /* counts as all zero, whatever its memory holds */

  weir_on_device *device; /* NULL: steps run in host memory */

  weir_codec_context *context; /* the caller's thread's */
  weir_pool *pool;             /* of all threads' contexts; NULL without codec_threads */
  weir_gain_curve *curve;
  bool curve_wanted;
  weir_group_set set;
  weir_warm warm;
  weir_velocity velocity;
  weir_plan_group *table; /* of the groups in force or about to be; room for one a tensor */
  uint32_t table_name, table_count; /* 0: it holds none */
  size_t next;                      /* group to launch next */
  weir_lanes *lanes;                /* NULL until a plan has groups */
  weir_note *notes;                 /* per rank */

  weir_state *states;
  size_t state_count;
  weir_state_hooks *hooks;
  size_t hook_count;
  weir_checkpoint checkpoint;

  weir_profiler profiler;
  weir_watch watch;  /* the caller's thread's */
  double begun;      /* clock reading */
  double loss;       /* of the step under way; NaN: not reported */
  double prepared_s; /* compress_s when the last exchange began */
  double hidden_s;   /* virtual time: what lanes would have done, done by this thread instead */
  double compute_s, compress_s, comm_s, exchange_s, overhead_s;
  double last_compress_s, last_comm_s, last_wait_s,
      last_gain; /* of the previous step, for the note */
  uint64_t bytes_before;

  bool caught_up;     /* brought up to a step it had missed, by a regrouping that then failed */
  weir_status broken; /* the group's end, kept for every later call */
  char broken_text[512];
};

/* Wall time, or the thread's processor time under a virtual network. */
double weir_engine_clock(const weir_engine *engine);
/* Add the time since the thread's last lap to what it compressed, or waited for the wire. */
void weir_lap_compress(weir_group *group);
void weir_lap_comm(weir_group *group);
/* Keep a failure that ends the group; returns status. */
weir_status weir_engine_break(weir_engine *engine, weir_status status);
/* Say again why the group ended; WEIR_OK while it has not. */
weir_status weir_engine_check(const weir_engine *engine);
/* Tell the others that `culprit` ends the group, and fail. */
weir_status weir_engine_blame(weir_engine *engine, int culprit, weir_status status);

/* Make room for a plan and let it be the one in force; table: its groups, NULL when it has none.
 * WEIR_E_NOMEM changes nothing. */
weir_status weir_engine_adopt(weir_engine *engine, const weir_plan *plan,
                              const weir_plan_group *table, bool trial);
/* What plans before have used and the one in force does not; during a trial not spare. */
void weir_engine_give_back(weir_engine *engine);
/* Get from rank 0 the table of groups of a plan that it asked for: collective, between steps. */
weir_status weir_engine_fetch_table(weir_engine *engine, const weir_plan *plan);
void weir_engine_release(weir_engine *engine);

/* --- the residual in a step (residual.c) ----------------------------------------------------- */

/* e = g + r for a group's tensors. */
void weir_residual_feed(weir_group *group);
/* submitted = share * sum, a group's; sets overflow. */
weir_status weir_residual_publish(weir_group *group, float share);
/* For who is late: the residual from before the step is given up; where to make the sum, n floats.
 * Then what was made there is published. */
float *weir_residual_let_go(weir_group *group);
void weir_residual_publish_late(weir_group *group, float *sum, float share);
/* The one from before the step, of elements [at, ..) of a group's tensor t, wherever it waits;
 * NULL: zero. */
const float *weir_residual_old(const weir_group *group, size_t t, size_t at);
/* The residual, with zeros in its memory where it counts as zero. */
float *weir_residual_of(const weir_engine *engine);
/* The groups' next residuals become the residual. */
void weir_engine_commit(weir_engine *engine);
/* The step is dropped: the residual is what it was.  Before the submitted buffers are
 * given back. */
void weir_residual_restore(weir_engine *engine);
/* The step has failed on this rank: likewise, but e, or what became of it, is kept in spare
 * (group->fed or passage.next), should the others have completed the step. */
void weir_residual_part(weir_engine *engine);

/* Room for a checkpoint of the state as it now is; then take it or bring it back. */
weir_status weir_checkpoint_prepare(weir_engine *engine);
void weir_checkpoint_take(weir_engine *engine);
void weir_checkpoint_restore(weir_engine *engine);

/* One composition a way (base/ways.h). */
typedef struct weir_exchange {
  /* What this rank can do by itself: select, encode, and take what it sends off e. */
  weir_status (*prepare)(weir_group *group);
  weir_status (*run)(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes);
  /* submitted = share * sum.  Sets overflow where the sum is not finite; who is late does so in
   * run, and is not called then. */
  weir_status (*publish)(weir_group *group, float share);
} weir_exchange;
extern const weir_exchange weir_exchanges[WEIR_WAY_COUNT];
/* Set a group's way and rows by its plan's collective.  WEIR_E_UNSUPPORTED when this group of
 * ranks, or the transport below it, cannot run that. */
weir_status weir_exchange_find(weir_group *group);
/* Its codec's selection into group->index, with memory of the step's. */
weir_status weir_group_select(weir_group *group, size_t *k);
/* Lends the group's context the memory that selecting takes, until it has selected. */
void weir_group_lend(weir_group *group);

weir_status weir_prepare_dense(weir_group *group);
weir_status weir_exchange_dense(weir_group *group, const weir_allreduce *allreduce,
                                weir_notes *notes);
weir_status weir_prepare_ag(weir_group *group);
weir_status weir_exchange_ag(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes);
weir_status weir_publish_ag(weir_group *group, float share);
/* Its parts: what it draws from; are all messages well formed (sets overflow when their sum is not
 * finite, using spare where that is not plain from the largest values); one more all-gather is
 * done, of block_bytes. */
uint64_t weir_ag_seed(const weir_group *group);
weir_status weir_ag_look_through(weir_group *group);
void weir_ag_count(weir_group *group);
/* What an encoder's message says, off e. */
weir_status weir_ag_take_off(weir_group *group);
/* In a trial, all in spare: is there room; its pointers, in every step; the sum. */
bool weir_merged_fits(const weir_group *group, size_t stride);
void weir_merged_open(weir_group *group);
weir_status weir_merged_sum(weir_group *group);
/* In pieces: an encoder's, and where it encodes at once; a selection's, marked before. */
unsigned char *weir_pieces_whole(const weir_group *group);
weir_status weir_exchange_pieces(weir_group *group, weir_notes *notes);
/* Bytes of its `own`; then what goes there, and off e. */
size_t weir_pieces_kept(weir_group *group);
void weir_pieces_keep_whole(weir_group *group, size_t bytes);
weir_status weir_pieces_take_off(weir_group *group);
weir_status weir_pieces_select(weir_group *group);
weir_status weir_exchange_spans(weir_group *group, weir_notes *notes);
weir_marks weir_marks_in_spare(const weir_group *group); /* at its end, of these two and below */
weir_status weir_prepare_compressed(weir_group *group);
weir_status weir_exchange_compressed(weir_group *group, const weir_allreduce *allreduce,
                                     weir_notes *notes);
weir_status weir_prepare_hitopk(weir_group *group);
weir_status weir_exchange_hitopk(weir_group *group, const weir_allreduce *allreduce,
                                 weir_notes *notes);
weir_status weir_prepare_art(weir_group *group);
weir_status weir_exchange_art(weir_group *group, const weir_allreduce *allreduce,
                              weir_notes *notes);
weir_status weir_publish_art(weir_group *group, float share);
/* For who is marked: its pointers into spare, in every step, as spare moves; the indices it has
 * selected are there; the root's indices to all, when they take several stretches, *bytes in all;
 * the sum of the values; publishing. */
void weir_marked_open(weir_group *group);
void weir_marked_listed(weir_group *group);
weir_status weir_marked_share(weir_group *group, int root, size_t *bytes);
weir_status weir_marked_sum(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes);
void weir_marked_publish(weir_group *group, float share);
/* Its parts: whose indices all ranks take, as far as that is known before the exchange, or VAR's
 * root; the indices that all draw; the root's list, *bytes in blocks, from it to all, into
 * group->index on who is not `listed`; what that has cost. */
int weir_art_root(const weir_group *group);
size_t weir_art_variances(const weir_engine *engine); /* bytes that finding VAR's root takes */
weir_status weir_art_root_of_variance(weir_group *group, int *root);
weir_status weir_art_draw(weir_group *group);
weir_status weir_art_share(weir_group *group, int root, bool listed, size_t *bytes);
void weir_art_extra_bytes(weir_group *group, size_t bytes);

/* --- one group's way (group.c) -------------------------------------------------------------- */

/* e = g + r for its tensors; then what its exchange can do beforehand.  Never fails: what went
 * wrong is in group->status, for the thread that exchanges it to report in its turn. */
void weir_group_feed(weir_group *group);
void weir_group_prepare(weir_group *group);
/* Its exchange; notes: NULL but for the last group's. */
weir_status weir_group_exchange(weir_group *group, weir_notes *notes);
/* Average into the submitted buffers, unless it overflows; sets overflow. */
weir_status weir_group_publish(weir_group *group);

/* --- what profiles are made of (profile.c) -------------------------------------------------- */

/* Room for the times of a set's groups. */
weir_status weir_profiler_room(const weir_group_set *set, weir_series **time);
/* Another plan: its groups' times begin anew, in `time`. */
void weir_profiler_forget(weir_engine *engine, weir_series *time);
void weir_profiler_open(weir_engine *engine); /* a step begins: is it to be measured? */
void weir_profiler_came(weir_engine *engine, size_t tensor); /* its gradient is ready */
void weir_profiler_left(weir_engine *engine);                /* the trainer computes on */
void weir_profiler_close(weir_engine *engine);               /* the step has succeeded */

/* --- threads beside the caller's (lanes.c) -------------------------------------------------- */

weir_status weir_lanes_create(weir_lanes **out, weir_engine *engine);
void weir_lanes_free(weir_lanes *lanes); /* NULL is allowed; ends the threads */
/* A step begins: the lanes have all of the engine's groups but the last to come. */
void weir_lanes_open(weir_lanes *lanes);
/* The next group, in order; place caller: it is prepared already. */
void weir_lanes_launch(weir_lanes *lanes, weir_group *group);
/* Wait until all groups launched have been exchanged; the first failure of any.  Adds the time the
 * wire took to *exchange_s. */
weir_status weir_lanes_drain(weir_lanes *lanes, double *exchange_s);

/* Notes and records. */
void weir_telemetry_note(weir_engine *engine, double sum_square, bool nonfinite);
/* Take a group's part of the gain curve, when one is wanted; before it is prepared. */
void weir_telemetry_sample(weir_engine *engine, const weir_group *group);
/* Are the notes of all ranks what they can be?  Sets *nonfinite when any rank sits out. */
weir_status weir_telemetry_check(weir_engine *engine, bool *nonfinite);
void weir_telemetry_record(weir_engine *engine, weir_step_record *record);
/* Median over the ranks that know; 0 when none does. */
void weir_telemetry_network(const weir_engine *engine, weir_step_info *info);

#endif
