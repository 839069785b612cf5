/* The data way: gradient in -> error feedback + codec -> collective -> decode-add -> averaged
 * gradient out.  The engine executes the current plan, an immutable value, and nothing else decides
 * here: a directive from rank 0 arrives with the headers of one step and takes effect at the begin
 * of the next, on all ranks alike. */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "kernels/adaptive.h"
#include "kernels/codec.h"
#include "kernels/runs.h"

/* What rank 0 asks all ranks to do at the begin of the next step. */
typedef enum weir_action {
  WEIR_ACTION_KEEP = 0,   /* go on */
  WEIR_ACTION_SWITCH = 1, /* run `plan` from now on; ends a trial (restore first) if one runs */
  WEIR_ACTION_TRIAL = 2,  /* checkpoint (or, inside a trial, restore), then run `plan` for the next
                             steps until another directive; nothing of them will remain */
  WEIR_ACTION_PROBE = 3,  /* all ranks run their active probe before the step */
  WEIR_ACTION_SAMPLE = 4, /* as PROBE, but only to see whether the link has become narrow */
  WEIR_ACTION_FOLLOW = 5  /* inside a trial: run `plan` for its next steps, from where it is, and
                             nothing of them will remain either; outside of one nothing */
} weir_action;

typedef struct weir_directive {
  uint32_t action; /* weir_action */
  uint32_t reserved;
  weir_plan plan;
} weir_directive;

/* Does it say which plan is to run? */
static inline bool weir_action_plans(uint32_t action) {
  return action == WEIR_ACTION_SWITCH || action == WEIR_ACTION_TRIAL ||
         action == WEIR_ACTION_FOLLOW;
}

/* One rank's header of a step: fixed size, little-endian, rides on the collective. */
typedef struct weir_header {
  uint64_t step;          /* exchange number */
  uint32_t flags;         /* WEIR_HEADER_* */
  float deviation;        /* of messages' times, s for the root of a byte; 0 without losses */
  double compute_s;       /* of this step */
  double compress_s;      /* of the previous step: this one's is not over yet */
  double comm_s;          /* of the previous step: time its exchanges took, hidden or not */
  double wait_s;          /* of the previous step: the part of comm_s that nothing hid */
  double latency_s;       /* this rank's estimate; 0 unknown */
  double latency_error;   /* relative */
  double bandwidth;       /* bytes/s, this rank's estimate; 0 unknown */
  double bandwidth_error; /* relative */
  double goodput;         /* of the bandwidth, what messages get where packets are lost */
  double goodput_error;   /* relative */
  double gain;            /* of the previous step, this rank's ||g_c||^2 / ||g_e||^2 */
  double sum_square;      /* ||g_e||^2 of this step */
  double loss;            /* of this step, as reported; NaN: not */
  double curve[8];        /* gain of exact top-k at weir_curve_cr[]; negative: not measured */
  uint32_t average; /* digest of the average that the exchange before has brought (average.h) */
  uint32_t joiners; /* which ranks wait to join, as this one knows it (transport.h); 0: none */
  float nonzero;    /* share of this rank's gradient that is not 0; 0: not counted */
  float runs;       /* runs of such, over its elements */
  weir_directive directive; /* rank 0's; KEEP from others */
} weir_header;
#define WEIR_HEADER_NONFINITE 1u       /* this rank's e is not finite: the step must not count */
#define WEIR_HEADER_NETWORK_CHANGED 2u /* this rank's monitor saw a change since its last header */
#define WEIR_HEADER_SUSPECT 4u         /* its monitor suspects a change that it cannot settle */
#define WEIR_HEADER_STALE 8u           /* its values are old, and it can afford a probe */
#define WEIR_HEADER_RISEN 16u          /* a train was far faster than its bandwidth allows */
#define WEIR_HEADER_AVERAGE 32u        /* `average` is known */
_Static_assert(sizeof(weir_header) <= WEIR_HEADER_MAX, "a header must fit its block");

/* Ratios at which headers carry the gain curve, descending from 0.3 to 0.0003. */
#define WEIR_CURVE_POINTS 8
extern const double weir_curve_cr[WEIR_CURVE_POINTS];

/* Whose devices read each other's memory. */
enum { WEIR_ROOMS_NONE = 0, WEIR_ROOMS_ALL = 1, WEIR_ROOMS_INSIDE = 2 /* of each machine */ };

/* What the engine measured of one step, for the rank's own controller and log. */
typedef struct weir_step_record {
  weir_step_info info;
  weir_cost_terms terms; /* of the plan executed, all buckets', with the wire bytes really sent */
  double shortened;      /* bytes of entropy-coded messages over those of plain ones; 0: none was */
  uint64_t rooms;        /* messages can stay on devices: WEIR_ROOMS_*, of which the ranks' rooms */
  double room_bytes;     /* take so much each */
  /* What elements usually are (kernels/whitened.h) has been followed from the first step on, or for
   * long enough. */
  bool squares_known;
} weir_step_record;

/* Where decisions come from and telemetry goes to.  All called from the session's thread. */
typedef struct weir_engine_hooks {
  void *user;
  /* Fill in the network estimate of this rank's header (latency .. bandwidth_error, flags). */
  void (*local)(void *user, weir_header *header);
  /* Rank 0 only: the directive for the next step. */
  void (*propose)(void *user, weir_directive *directive);
  /* After every successful exchange: all ranks' headers and this rank's record. */
  void (*observe)(void *user, const weir_header *headers, int ranks,
                  const weir_step_record *record);
  /* WEIR_ACTION_PROBE, thorough, and WEIR_ACTION_SAMPLE: measure the network now; on all ranks. */
  weir_status (*probe)(void *user, bool thorough);
  /* Should this step's header carry the gain curve?  (Costs a pass over e.)  NULL: never. */
  bool (*want_curve)(void *user);
  /* A tensor's e = g + r, n elements, before it is compressed; of buckets fed on the session's
   * thread, in their order.  Not told where e is not finite.  NULL: nobody wants to know. */
  void (*fed)(void *user, size_t tensor, const float *e, size_t n);
  /* The same where e is a device's: which runs of it are to be seen in this step, if any; and then,
   * before this rank's header, what they hold, unless e is not finite.  Together at most
   * sample_room floats a step.  NULL: nobody wants to know. */
  bool (*sample)(void *user, size_t tensor, size_t n, weir_runs *runs);
  void (*seen)(void *user, size_t tensor, size_t n, const weir_runs *runs, const float *sample);
  size_t sample_room;
  /* For labs, from whichever thread did it: since begin_s, a reading of the engine's clock,
   * compressing or adding up has passed over so many elements.  What it takes counts with them.
   * NULL: nobody wants to know. */
  void (*passed)(void *user, double begin_s, size_t elements);
  /* Rank 0 only: the table of buckets of that name, which it proposed; at most capacity entries. */
  weir_status (*buckets)(void *user, uint32_t layout, weir_plan_bucket *table, size_t capacity,
                         size_t *count);
} weir_engine_hooks;

typedef struct weir_engine weir_engine;

/* layout is copied.  The engine borrows comm; hooks are copied.  virtual_network as
 * in weir_options: comm_s then comes from the cost rows instead of the clock, and compute_s and
 * compress_s from the thread's processor time. */
typedef struct weir_engine_config {
  weir_comm *comm;
  weir_layout layout;
  const size_t *rows;   /* per tensor: of a matrix, row after row; 1 or 0: a vector.  Divides the
                         tensor's elements.  Copied; NULL: all are vectors */
  const uint8_t *types; /* per tensor, weir_type: what is submitted of it; copied; NULL: all fp32 */
  size_t full;     /* of the layout's tensors, so many at its end are summed in fp32 and no plan
                         is run on them (full.c) */
  double momentum; /* of momentum correction, in [0, 1); 0: none */
  /* Bytes that the first plan and its room may take beyond the caller's (memory.h); 0: any. */
  double memory_limit;
  weir_plan first_plan;
  const weir_plan_bucket *first_buckets; /* its table, NULL without buckets; copied */
  weir_engine_hooks hooks;
  weir_network_fn virtual_network;
  weir_virtual_exchange_fn virtual_exchange; /* NULL: by virtual_network's latency and bandwidth */
  void *virtual_user;
  unsigned codec_threads; /* that share the long passes of compressing; 0 as 1 */
  bool threads;           /* some rank has several: what they take counts on all, against
                             memory_limit */
  /* Steps on a device (kernels/device.h); NULL: in host memory.  stream and timeout_s as its
   * create's.  devices: some rank of the group has one, and all refuse a codec that does not run
   * there. */
  const struct weir_device_ops *device_ops;
  int device;
  void *stream;
  double device_timeout_s;
  bool devices;
  bool rooms; /* all ranks have one, and are to try whether these can read each other's memory: */
  bool rooms_inside; /* those of a machine, of which there are several (weir_comm_levelled) */
  int most_ranks; /* that the group may have once others join: memory_limit is for as many; or 0 */
  bool counts; /* headers tell of nonzero elements: in every step while gradients have few, in host
                  memory, without momentum */
  /* No error feedback: what a plan does not send is lost.  Plans of codecs that are not unbiased
   * are refused. */
  bool without_feedback;
  /* What elements usually are (kernels/whitened.h) is followed in the first so many steps, in host
   * memory, whatever the plan, and then forgotten unless the plan asks for it; 0: from the first
   * step on of a plan that does.  The same on all ranks. */
  uint64_t follows;
  bool damped; /* of what few bits have left (weir_codec.damps), half is fed a step: host_feed.c */
  bool keep_nonfinite;      /* gradients of a step that is lost become NaN, not zero */
  bool profile;             /* measure when gradients become ready, and the buckets' times */
  struct weir_scope *scope; /* of the session, for the engine's threads (base/scope.h); or NULL */
} weir_engine_config;
weir_status weir_engine_create(weir_engine **out, const weir_engine_config *config);
void weir_engine_free(weir_engine *engine);

weir_status weir_engine_register_state(weir_engine *engine, void *data, size_t bytes);
weir_status weir_engine_register_hooks(weir_engine *engine, const weir_state_hooks *hooks);
weir_status weir_engine_step_begin(weir_engine *engine, weir_step_info *info);
/* At gradient: elements of the tensor's type. */
weir_status weir_engine_submit(weir_engine *engine, uint32_t tensor, void *gradient);
weir_status weir_engine_step_end(weir_engine *engine, weir_step_info *info);
/* Between begin and end of a step: this rank's loss. */
weir_status weir_engine_report_loss(weir_engine *engine, double loss);
/* On a device: a gradient brought to a norm of at most limit, on the caller's stream; gradients[t]
 * is that of tensor place[t].  Waits only for the norm it had, unless that is NULL. */
weir_status weir_engine_clip(const weir_engine *engine, void *const *gradients,
                             const uint32_t *place, double limit, double *norm);
/* What a step of each plan would compress and decode for, in seconds, on the engine's device and in
 * a group of as many ranks that all have one (device_price.c).  Runs steps on a gradient of its
 * own, of at most so many elements, 0: the usual, which takes memory while it lasts.  Waits. */
weir_status weir_engine_price(const weir_engine *engine, size_t most, const weir_plan *plans,
                              size_t count, double *seconds);
/* --- optimizers on a device (device_adaptive.c) ----------------------------------------------- */

/* Is it memory of the device?  WEIR_E_INVALID. */
weir_status weir_engine_check_memory(const weir_engine *engine, const void *memory);
/* weir_lars_squares of every piece, or with terms weir_lamb_squares; waits. */
weir_status weir_engine_squares(const weir_engine *engine, const weir_tensor_piece *pieces,
                                size_t count, const weir_adam *terms, weir_squares *out);
/* Page-locked memory of at least so many bytes, which the next call may move. */
weir_status weir_engine_lend(const weir_engine *engine, size_t bytes, void **memory);
/* weir_move of every piece; waits. */
weir_status weir_engine_move(const weir_engine *engine, const weir_mover *movers, size_t count);
/* A copy from or to what was lent, is queued; and all of these are done. */
weir_status weir_engine_copy(const weir_engine *engine, void *to, const void *from, size_t bytes);
weir_status weir_engine_copied(const weir_engine *engine);

/* Has the step's communication begun?  Then it goes on until weir_engine_step_end, and nobody else
 * may use the communicator. */
bool weir_engine_exchanging(const weir_engine *engine);
/* The backward pass begins now; without this it begins at weir_engine_step_begin's return. */
void weir_engine_mark_backward(weir_engine *engine);
/* The mean time between the gradient submitted before it and tensor itself, in s, over the newest
 * steps measured (the sum of means, unlike that of medians, is the whole pass's);
 * false: unknown. */
bool weir_engine_gap(const weir_engine *engine, size_t tensor, double *gap_s);
/* Medians of the buckets' times since the plan came into force, at most capacity of them; *count:
 * how many buckets (1 without buckets).  Tells over how many steps, 0: unknown. */
size_t weir_engine_times(const weir_engine *engine, weir_bucket_times *times, size_t capacity,
                         size_t *count);
/* What was measured in the step that ended last: when its backward pass began, the gaps of all
 * tensors, gap_s[t] that of tensor place[t], and its buckets' times, at most capacity.  Tells how
 * many buckets there are; 0: it was not measured, or failed. */
size_t weir_engine_last_step(const weir_engine *engine, const uint32_t *place, double *forward_s,
                             double *gap_s, weir_bucket_times *times, size_t capacity);
void weir_engine_plan(const weir_engine *engine, weir_plan *plan);
/* Can this group run a plan without buckets, within the memory limit?  WEIR_E_UNSUPPORTED says why
 * not, on all ranks alike. */
weir_status weir_engine_runs(weir_engine *engine, const weir_plan *plan);
/* Latency, bandwidth and goodput as all ranks were told in the last step: of each the median over
 * the ranks that know; 0 when none does. */
void weir_engine_network(const weir_engine *engine, weir_step_info *info);
/* The buckets in force, as many as fit; tells how many there are, 0 for a plan without. */
size_t weir_engine_buckets(const weir_engine *engine, weir_plan_bucket *buckets, size_t capacity);
/* --- after a loss (regroup.c) --------------------------------------------------------------- */

/* Where a rank stands when its group has ended, for survivors to compare. */
typedef struct weir_standing {
  uint64_t committed, exchanges, turn;
  uint64_t state_bytes; /* registered */
  uint64_t columns;     /* of powersgd's, a matrix */
  uint64_t fresh;       /* 1: it has just joined, and has nothing yet; 0 of rank 0 */
} weir_standing;
/* Give up the step and the trial under way. */
void weir_engine_stand(weir_engine *engine, weir_standing *standing);
/* What a new group begins with. */
typedef struct weir_regrouping {
  weir_comm *comm;
  const weir_plan *first; /* the first of these without buckets that the group can run */
  size_t firsts;
  double memory_limit;        /* as in the configuration: it may have been that of a lost rank */
  bool threads;               /* likewise */
  uint64_t follows;           /* as in the configuration */
  bool (*want_curve)(void *); /* as in the hooks, for the rank's new number */
} weir_regrouping;
/* Go on in a group of the survivors; all: the standings of its ranks.  A step that some of them
 * have completed counts for all: for a rank that *missed* it, the residual becomes what it would
 * have been, and registered memory and powersgd's columns come from *leader, a rank that has all
 * steps.  When it fails because another rank was lost meanwhile, this rank has the step either
 * wholly or not at all, and the call is repeated with the next group; *missed then tells of both.
 * A rank that has just joined misses all, and keeps nothing back.  Collective.
 * WEIR_E_UNSUPPORTED, on all ranks alike: the group can run none of the plans. */
weir_status weir_engine_regroup(weir_engine *engine, const weir_regrouping *group,
                                const weir_standing *all, int *leader, bool *missed);

/* --- to go on later (resume.c) --------------------------------------------------------------- */

/* What the next step starts from. */
typedef struct weir_engine_memory {
  uint64_t committed, turn;
  bool zero;                  /* the residual counts as nothing at all, whatever it holds */
  float *residual, *velocity; /* n each; velocity: NULL without momentum */
  uint16_t *squares;          /* n, what elements usually are (kernels/whitened.h), or NULL */
  uint64_t followed;          /* of so many averages */
  float *columns;             /* of low rank: those of tensor t at k * width + at[t] (weir_warm) */
  size_t rank, width;
  const size_t *at;
  weir_plan plan;                /* in force */
  const weir_plan_bucket *table; /* of its buckets */
  weir_directive pending;        /* which the next step will obey: a switch, or none */
  double gain;                   /* of the last step, which the next one's header tells */
} weir_engine_memory;
/* The engine's own memory, between steps, with room for columns of so many ranks, and for squares
 * where they are asked for: to be read, or to be filled in before the first step.  Of an engine on
 * a device residual and velocity are copies on the host, which the next such call makes anew. */
weir_status weir_engine_memory_open(weir_engine *engine, size_t rank, bool squares,
                                    weir_engine_memory *memory);
/* It has been filled in: take counters and `zero`, and memory->plan with what is pending.  A plan
 * that this group cannot run, or that does not keep to the limit, is not taken, on all ranks alike,
 * nor what is pending: the plan stays the first one. */
weir_status weir_engine_memory_take(weir_engine *engine, const weir_engine_memory *memory);
weir_status weir_engine_rescale(weir_engine *engine, float factor);
/* Between steps: from the next one on as if it had been made with `damped`. */
weir_status weir_engine_damp(weir_engine *engine);

/* Keep a failure that ends the group, and tell the others of one that is this rank's alone; returns
 * status. */
weir_status weir_engine_break(weir_engine *engine, weir_status status);
/* Has a failure, whatever its status, ended the group? */
bool weir_engine_ended(const weir_engine *engine);
/* Have ranks been found to hold different averages?  Then their weights are no longer the same. */
bool weir_engine_diverged(const weir_engine *engine);

uint64_t weir_engine_residual_digest(const weir_engine *engine);
/* The residual itself, n floats, for tests of conservation; valid until the next call. */
const float *weir_engine_residual(const weir_engine *engine);

#endif
