/* Inside of the engine: what its files share. */
#ifndef WEIR_ENGINE_STATE_H
#define WEIR_ENGINE_STATE_H

#include "base/schemes.h"
#include "collectives/compressed.h"
#include "engine/engine.h"

typedef struct weir_lanes weir_lanes;
typedef struct weir_on_device weir_on_device; /* device.h */
typedef struct weir_backend weir_backend;     /* backend.h */

/* What a bucket's exchange brings.  Headers go along with the last bucket's last collective. */
typedef struct weir_passage {
  weir_moments moments;     /* of e, this rank's; zero when it sits the step out */
  double kept_square;       /* ||g_c||^2 of this rank */
  double extra_bytes;       /* byte terms of the messages really sent less those expected */
  double gathered;          /* bytes that all ranks together have gathered */
  weir_shortened shortened; /* entropy-coded messages */
  size_t nonzero;           /* elements of g, where they are counted */
  size_t runs;              /* that those make up */
} weir_passage;

/* A thread's stopwatch: what the time since the last lap went into. */
typedef struct weir_stopwatch {
  double mark;
  double compress_s, comm_s;
  size_t elements; /* passed over since `passed` was last told */
} weir_stopwatch;

/* Which of its ranges for profilers an exchange is in (base/trace.h). */
typedef enum weir_trace {
  WEIR_TRACE_NONE = 0,
  WEIR_TRACE_WIRE = 1,  /* in the exchange's own */
  WEIR_TRACE_DECODE = 2 /* in "decode" inside of that */
} weir_trace;

/* Consecutive tensors that are compressed and exchanged together; the whole gradient when the plan
 * has no buckets.  In the hands of one thread at a time: the caller's until it is launched, then
 * the lane's that prepares it, then the lane's that exchanges it (lanes.c). */
typedef struct weir_bucket {
  weir_engine *engine;
  size_t number;
  weir_plan plan; /* of this bucket alone, with the id of the whole */
  const weir_codec *codec;
  uint32_t scheme; /* of its plan, or what that comes to here; and the rows it goes by */
  weir_sum sum;
  const weir_compressed_row *compressed;
  const weir_allgather_row *gather;
  const weir_broadcast_row *broadcast;
  uint32_t place;        /* weir_place */
  size_t first, end;     /* tensors */
  size_t at, n;          /* elements: [at, at + n) of the gradient */
  weir_layout layout;    /* of its tensors, counted from its own first element */
  size_t kept;           /* elements its codec keeps; bytes of a message for an encoder; floats that
                            travel for low rank */
  size_t first_sum;      /* low rank: floats of these that go with P */
  bool thin;             /* low rank, and some tensor of it is a matrix */
  bool whole;            /* every element is summed by an all-reduce, as it is or as bf16 */
  bool all;              /* or so, or compressed on its way: the exchange works on all of e */
  bool parts;            /* compressed on its way by the backend, which has the sum */
  bool at_once;          /* low rank in one sum, in this step */
  bool leaves;           /* something of e stays behind as residual */
  bool damped;           /* half of the residual is fed, the other half stays as well */
  weir_cost_terms terms; /* what its exchange is expected to cost */
  double due;            /* bytes that a rank is expected to gather */
  /* In the set's arena: what is selected or shared, and one wire message a rank where messages are
   * gathered, stride apart; else one. */
  uint32_t *index;
  float *value, *error;
  unsigned char *blocks;
  size_t stride;
  bool stays;          /* messages stay on devices; of gathered ones lengths alone are in blocks */
  size_t stays_at;     /* where they lie there, in a half of each rank's room */
  size_t *block_bytes; /* per rank */
  /* Where messages stay inside of each of several machines: those of the ranks at this one's place
   * of every machine, stride apart, and their lengths; else NULL. */
  unsigned char *column;
  size_t *column_bytes;

  /* Of the step under way. */
  weir_codec_context *context; /* of the thread that has it */
  weir_stopwatch *stopwatch;   /* likewise */
  float *fed;                  /* on the host: e, or where all of it will be summed */
  float *summed, *lost; /* of all elements: what is summed, and what becomes of e; NULL: nothing */
  unsigned char *room;  /* parts: all messages; before those of hitopk its own, stride bytes */
  uint32_t *stale;      /* hitopk, on a device with momentum: where this machine has sent */
  size_t stale_count;   /* something, which a failure may leave to be settled */
  size_t missing;       /* tensors not handed in yet */
  weir_passage passage;
  weir_trace trace;
  weir_status status; /* of preparing it */
  char text[256];     /* why that failed */
  bool ready;         /* prepared; under the lanes' lock */
  bool one_thread;    /* who feeds it compresses it, too: the context goes on from the one */
  bool finite;        /* this rank's e */
  bool overflow;      /* the sum is not finite, on all ranks alike */
  bool listed;        /* its indices are known without the message that names them */
  bool settled;       /* e has become the next residual */
  uint32_t average;   /* digest of what was published (average.h) */
  const struct weir_device_told *told; /* on a device: what compressing has told; NULL: not yet */
  weir_bucket_times times;
} weir_bucket;

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
  weir_series *time;   /* per bucket, all fields of weir_bucket_times */
} weir_profiler;

/* The plan's buckets with their memory.  Built when a plan comes into force, never in a step. */
typedef struct weir_bucket_set {
  weir_bucket *bucket;
  size_t count;
  size_t *offset;       /* of all buckets' layouts, one behind the other */
  uint32_t *of;         /* tensor -> its bucket */
  unsigned char *arena; /* the buckets' lists and messages */
  size_t bytes;
  size_t stays; /* bytes of a step's messages that stay on each rank's device */
} weir_bucket_set;

/* Memory a trial restores: plain memory, and state behind hooks. */
typedef struct weir_state {
  void *data;
  size_t bytes;
} weir_state;

typedef struct weir_checkpoint {
  unsigned char *memory; /* states and what the hooks saved; the backend has the residual's copy */
  size_t capacity;
  size_t *hook_bytes; /* per hook, as saved */
  size_t hook_capacity;
  uint64_t turn;
  size_t warm_rank;
} weir_checkpoint;

/* What low rank starts the next step from: of every matrix a column of Q and then one of
 * bilateral's B, each of length 1, but B's of zeros as long as there are none.  Column k of tensor
 * t's Q lies at values + k * width + at[t].  The same on all ranks, as what it comes from is. */
typedef struct weir_warm {
  float *values;
  size_t rank; /* columns there are; a plan of lower rank uses the first ones */
  size_t width, tensors;
  size_t *at;   /* tensors + 1 */
  size_t *rows; /* of every tensor; 1: a vector */
} weir_warm;

/* Host memory of n floats each (host.c).  A commit lets the two of a pair change places; what no
 * plan has used yet takes no pages. */
typedef struct weir_host {
  float *residual, *fed;
  float *sum;
  float *velocity, *next;               /* NULL without momentum correction */
  float *kept_residual, *kept_velocity; /* from before a trial; NULL before the first */
  /* What elements usually are (kernels/whitened.h), followed from the first step on that encodes in
   * such units, or from the very first (weir_engine_config.follows); and as it was before a trial.
   * NULL: nobody has wanted to know, or no trial kept it. */
  uint16_t *square, *kept_square;
  uint64_t followed, kept_followed; /* so many averages; 0: it is not */
  bool zero, kept_zero;             /* the residual counts as all zero, whatever its memory holds */
  bool counts;                      /* somebody wants to know what of gradients is not zero */
} weir_host;

struct weir_engine {
  weir_engine_config config;
  weir_layout layout; /* owns its offsets */
  size_t n;           /* elements */
  int rank, size;

  weir_plan plan;
  weir_directive pending; /* from the headers of the last exchange */
  bool in_step, in_trial;
  uint64_t exchanges; /* finished, trials included: the step number in tags and headers */
  uint64_t committed; /* steps that count */
  uint64_t turn;      /* whose indices star takes; rolled back with a trial */

  void **submitted; /* per tensor, elements of its type; NULL: not yet */
  uint8_t *types;   /* per tensor, weir_type */
  const weir_backend *backend;
  weir_host host;         /* the one or the other is the backend's */
  weir_on_device *device; /* NULL: steps run in host memory */

  weir_codec_context *context; /* the caller's thread's */
  weir_pool *pool;             /* of all threads' contexts; NULL without codec_threads */
  weir_gain_curve *curve;
  bool curve_wanted;
  bool counting;       /* what of gradients is not zero, in this step */
  double most_nonzero; /* share of the rank with most, when it was counted last; 0: never */
  weir_bucket_set set;
  weir_warm warm;
  weir_plan_bucket *table; /* of the buckets in force or about to be; room for one a tensor */
  uint32_t table_name, table_count; /* 0: it holds none */
  size_t next;                      /* bucket to launch next */
  weir_lanes *lanes;                /* NULL until a plan has buckets */
  weir_header *headers;             /* per rank */

  weir_state *states;
  size_t state_count;
  weir_state_hooks *hooks;
  size_t hook_count;
  weir_checkpoint checkpoint;

  weir_profiler profiler;
  weir_stopwatch stopwatch; /* the caller's thread's */
  double begun;             /* clock reading */
  double loss;              /* of the step under way; NaN: not reported */
  double prepared_s;        /* compress_s when the last exchange began */
  double hidden_s; /* virtual time: what lanes would have done, done by this thread instead */
  double compute_s, compress_s, comm_s, exchange_s, overhead_s;
  double last_compress_s, last_comm_s, last_wait_s,
      last_gain; /* of the previous step, for the header */
  uint64_t bytes_before;

  uint32_t average;      /* digest of the average of the exchange before */
  bool average_known;    /* there was such an exchange, in this group */
  uint64_t average_step; /* weir_step_info.step of it */
  bool diverged;         /* ranks told different digests */

  bool caught_up;     /* brought up to a step it had missed, by a regrouping that then failed */
  weir_status broken; /* the group's end, kept for every later call */
  char broken_text[512];
};

/* Wall time, or the thread's processor time under a virtual network. */
double weir_engine_clock(const weir_engine *engine);
/* Add the time since the thread's last lap to what it compressed, or waited for the wire. */
void weir_lap_compress(weir_bucket *bucket);
void weir_lap_comm(weir_bucket *bucket);
/* Say again why the group ended; WEIR_OK while it has not. */
weir_status weir_engine_check(const weir_engine *engine);
/* Tell the others that `culprit` ends the group, and fail. */
weir_status weir_engine_blame(weir_engine *engine, int culprit, weir_status status);

/* Make room for a plan and let it be the one in force; table: its buckets, NULL when it has none.
 * Failing changes nothing. */
weir_status weir_engine_adopt(weir_engine *engine, const weir_plan *plan,
                              const weir_plan_bucket *table);
/* Does the plan in force keep to config.memory_limit?  WEIR_E_UNSUPPORTED. */
weir_status weir_engine_fits(const weir_engine *engine);
/* Get from rank 0 the table of buckets of a plan that it asked for: collective, between steps. */
weir_status weir_engine_fetch_table(weir_engine *engine, const weir_plan *plan);
void weir_engine_release(weir_engine *engine);

/* Room for a checkpoint of the state as it now is; then take it or bring it back. */
weir_status weir_checkpoint_prepare(weir_engine *engine);
void weir_checkpoint_take(weir_engine *engine);
void weir_checkpoint_restore(weir_engine *engine);

/* --- schemes: one file each ------------------------------------------------------------------- */

/* Encodes and decodes a compressed all-reduce's messages. */
weir_coder weir_bucket_coder(const weir_bucket *bucket);

/* Room of bucket->stale; 0: none is needed. */
size_t weir_bucket_stales(const weir_bucket *bucket);

/* The exchange of all elements is through: the backend takes sum and loss. */
weir_status weir_bucket_store(weir_bucket *bucket);

/* Runs a bucket's collectives, so that the backend can publish the sum. */
typedef weir_status weir_exchange_fn(weir_bucket *bucket, weir_headers *headers);
weir_exchange_fn weir_exchange_dense, weir_exchange_gather, weir_exchange_shared,
    weir_exchange_compressed, weir_exchange_hitopk, weir_exchange_lowrank, weir_exchange_path;
weir_status weir_scheme_run(weir_bucket *bucket, weir_headers *headers);
/* Set a bucket's scheme and rows by its plan.  WEIR_E_UNSUPPORTED when this group of
 * ranks, or the transport below it, cannot run that. */
weir_status weir_scheme_find(weir_bucket *bucket);

/* What a path does before its first communication. */
weir_status weir_path_prepare(weir_bucket *bucket);
/* How many ranks on how many machines, as paths see them: those that differ count as one a rank. */
weir_group_shape weir_path_shape(const weir_engine *engine);

/* What an encoder draws from. */
uint64_t weir_gather_seed(const weir_bucket *bucket);
/* Is a gathered message that was found good one of the plan's?  WEIR_E_PROTOCOL: it is not. */
weir_status weir_gather_due(const weir_bucket *bucket, const void *message);
/* Where the plan says so, codes by how often they occur: before a message leaves, and of what came
 * from rank r, in its own place. */
weir_status weir_gather_shorten(weir_bucket *bucket, unsigned char *message, size_t *bytes);
weir_status weir_gather_restore(weir_bucket *bucket, int r, unsigned char *message, size_t *bytes);
/* Whose indices all ranks take, as far as that is known before the exchange; the indices that all
 * draw alike. */
int weir_shared_root(const weir_bucket *bucket);
weir_status weir_shared_draw(weir_bucket *bucket);

/* --- one bucket's way (bucket.c) -------------------------------------------------------------- */

/* e = g + r for its tensors; then what its exchange can do beforehand.  Never fails: what went
 * wrong is in bucket->status, for the thread that exchanges it to report in its turn. */
void weir_bucket_feed(weir_bucket *bucket);
void weir_bucket_compress(weir_bucket *bucket);
/* Its exchange; headers: NULL but for the last bucket's. */
weir_status weir_bucket_exchange(weir_bucket *bucket, weir_headers *headers);
/* Average into the submitted buffers, unless it overflows; may set overflow. */
weir_status weir_bucket_publish(weir_bucket *bucket);

/* --- what profiles are made of (profile.c) -------------------------------------------------- */

/* Room for the times of a set's buckets. */
weir_status weir_profiler_room(const weir_bucket_set *set, weir_series **time);
/* Another plan: its buckets' times begin anew, in `time`. */
void weir_profiler_forget(weir_engine *engine, weir_series *time);
void weir_profiler_open(weir_engine *engine); /* a step begins: is it to be measured? */
void weir_profiler_came(weir_engine *engine, size_t tensor); /* its gradient is ready */
void weir_profiler_left(weir_engine *engine);                /* the trainer computes on */
void weir_profiler_close(weir_engine *engine);               /* the step has succeeded */

/* --- threads beside the caller's (lanes.c) -------------------------------------------------- */

weir_status weir_lanes_create(weir_lanes **out, weir_engine *engine);
void weir_lanes_free(weir_lanes *lanes); /* NULL is allowed; ends the threads */
/* A step begins: the lanes have all of the engine's buckets but the last to come. */
void weir_lanes_open(weir_lanes *lanes);
/* The next bucket, in order; place caller: it is prepared already. */
void weir_lanes_launch(weir_lanes *lanes, weir_bucket *bucket);
/* Wait until all buckets launched have been exchanged; the first failure of any.  Adds the time the
 * wire took to *exchange_s. */
weir_status weir_lanes_drain(weir_lanes *lanes, double *exchange_s);

/* Headers and records. */
void weir_telemetry_tell(weir_engine *engine, double sum_square, bool nonfinite);
/* Take a bucket's part of the gain curve, when one is wanted; before it is prepared. */
void weir_telemetry_sample(weir_engine *engine, const weir_bucket *bucket);
/* Are the headers of all ranks what they can be?  Sets *nonfinite when any rank sits out. */
weir_status weir_telemetry_check(weir_engine *engine, bool *nonfinite);
/* Is what is not zero counted in the step that begins to exchange? */
bool weir_telemetry_counts(const weir_engine *engine);
void weir_telemetry_record(weir_engine *engine, weir_step_record *record);
/* The link that all ranks agree on; false: none yet. */
bool weir_telemetry_link(const weir_engine *engine, weir_link *link);

#endif
