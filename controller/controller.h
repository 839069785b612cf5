/* The decision way: network snapshot + step telemetry -> candidates (gain curve or trials) -> moo
 * -> guard (hysteresis, dwell, fallback) -> directive, which rides to all ranks on the next
 * exchange. Only rank 0 decides; the others run no controller.
 *
 * Everything here is a function of what was fed in: a journal line holds all inputs of a decision,
 * and weir_decide() on them gives the same choice again (weir replay). */
#ifndef WEIR_CONTROLLER_H
#define WEIR_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#include "controller/filter.h"
#include "controller/stages.h"
#include "engine/engine.h"

typedef struct weir_controller weir_controller;

/* Parts of a journal whose size is limited: PATH is the newest, then PATH.1 ... */
enum { WEIR_JOURNAL_PARTS = 4 };

/* Seconds that a step of each of these plans compresses and decodes for, of the whole gradient in
 * the whole group: finite, not negative. */
typedef weir_status weir_price_fn(void *user, const weir_plan *plans, size_t count,
                                  double *seconds);

/* Can the group run the plan?  weir_last_error() says why not. */
typedef weir_status weir_runs_fn(void *user, const weir_plan *plan);

typedef struct weir_controller_config {
  const char *policy;      /* as weir_options.policy; checked by weir_policy_check */
  const char *risk;        /* as weir_options.risk; NULL: measured */
  const char *update_rule; /* as weir_options.update_rule; NULL: unknown */
  double memory_limit;     /* bytes a plan may take (engine/memory.h); 0: any */
  bool codec_threads;      /* codecs have threads of their own, which take room */
  double checkpoint_bytes; /* that policy weir's first trial takes of them, for good */
  int world_size;
  int hosts;                /* machines the ranks are on (weir_comm_hosts); 0: unknown */
  int largest;              /* ranks of the largest of them; 0: unknown */
  uint64_t order;           /* how ranks lie on them (weir_group_shape) */
  bool devices;             /* gradients of some rank are on a device (docs/internals/device.md) */
  bool told;                /* the library below is told how to sum (weir_comm_told) */
  weir_layout layout;       /* copied */
  const size_t *rows;       /* of each of its tensors as a matrix, 1: a vector; NULL: not known */
  const char *const *names; /* of its tensors, for policies that go by them; borrowed */
  size_t full;              /* tensors at its end that no plan is run on (engine.h) */
  double trial_budget;      /* this and the next as in weir_options */
  uint64_t steps;
  uint64_t seed;
  uint64_t warmup_steps;    /* as weir_options.warmup_steps; then not threaded */
  uint64_t step;            /* that comes first */
  const char *journal_path; /* NULL: none; written to as decisions happen, one JSON line each */
  uint64_t journal_bytes;   /* as in weir_options */
  bool journal_goes_on;     /* behind what the file holds; else it is written anew */
  bool overlap;             /* policy weir plans buckets, once it is told of gaps */
  const void *saved;        /* by weir_controller_save, and checked; NULL: nothing.
                               Borrowed for the call */
  size_t saved_bytes;
  bool saved_alike;     /* under the same policy, by as many ranks with the same tensors: then
                               all of it is taken, else what it knows of codecs */
  bool threaded;        /* decide on a thread of its own (real runs) or inside observe() (tests,
                               virtual time: deterministic) */
  bool measure;         /* time the codecs it chooses among before it starts, rather than
                               begin with what is usual */
  weir_price_fn *price; /* who times them, where it succeeds; NULL: this host's processors do */
  void *price_user;
  weir_runs_fn *runs; /* asked of a schedule's stages, which are left out then; NULL: all can be
                           run */
  void *runs_user;
} weir_controller_config;

/* WEIR_OK or WEIR_E_INVALID / WEIR_E_PARSE with what is allowed. */
weir_status weir_policy_check(const char *policy);
/* Likewise of weir_options.risk; WEIR_E_INVALID. */
weir_status weir_risk_check(const char *risk);
/* Likewise of weir_options.update_rule. */
weir_status weir_update_rule_check(const char *rule);
/* Of one that is valid: does it divide by what gradients were like? */
bool weir_update_rule_adapts(const char *rule);
/* Can the policy do without error feedback?  WEIR_E_INVALID says why not. */
weir_status weir_policy_check_without_feedback(const char *policy);
/* What the plan that a session starts with follows from, beside the policy. */
typedef struct weir_beginning {
  int ranks;
  const char *risk, *update_rule; /* as in weir_options */
} weir_beginning;
/* The plan that a session starts with under a policy.  NULL: the one that a session of one rank
 * does. */
weir_status weir_policy_first_plan(const char *policy, const weir_beginning *with, weir_plan *plan);
/* The stages of a policy that goes by some; false: it is another. */
bool weir_policy_stages(const char *policy, weir_stages *stages);
/* The i-th of the plans that a policy goes through whatever they cost and that take most memory;
 * false: there are no more. */
bool weir_policy_heaviest(const char *policy, size_t i, weir_plan *plan);
/* The ratio in force at a step of a warm-up to cr; cr itself when warmup_steps is 0.  A bucket
 * starts with that of its first step. */
double weir_policy_warm_ratio(double cr, uint64_t step, uint64_t warmup_steps);
/* May the policy's plan be warmed up to?  WEIR_E_INVALID says why not. */
weir_status weir_policy_check_warmup(const char *policy);
/* The filter (filter.h) of the options, and behind it what the policy's own table says.  As of
 * weir_filter_check, and reading a table. */
weir_status weir_policy_filter(const char *policy, const char *options,
                               char filter[WEIR_FILTER_MAX]);
/* In which order the engine is to have the tensors: order[i] is the one that comes i-th.  As they
 * are, but those that the filter takes come last, and with policy bits what it keeps in full
 * precision itself.  Returns how many at the end the filter makes no plan's matter: 0 with an empty
 * one. */
size_t weir_policy_order(const char *policy, const char *filter, const weir_layout *layout,
                         const char *const *names, uint32_t *order);

weir_status weir_controller_create(weir_controller **out, const weir_controller_config *config);
void weir_controller_free(weir_controller *controller);

/* What has been learnt and decided until now, for another process to go on from: *data is the
 * caller's to free.  Between steps, by the thread that observes; a decision under way is waited
 * for.  WEIR_E_STATE: it takes too long, nothing was saved. */
weir_status weir_controller_save(weir_controller *controller, void **data, size_t *bytes);
/* Could weir_controller_create take it, over so many tensors?  WEIR_E_PARSE: it is damaged.  *ours
 * false: it is of a version with other arms, codecs or figures, and not to be given to it. */
weir_status weir_controller_saved_check(const void *data, size_t bytes, size_t tensors, bool *ours);

/* The engine's hooks, with user = the controller. */
void weir_controller_observe(void *controller, const weir_header *headers, int ranks,
                             const weir_step_record *record);
void weir_controller_propose(void *controller, weir_directive *directive);
bool weir_controller_want_curve(void *controller);
void weir_controller_fed(void *controller, size_t tensor, const float *e, size_t n);
bool weir_controller_sample(void *controller, size_t tensor, size_t n, weir_runs *runs);
void weir_controller_seen(void *controller, size_t tensor, size_t n, const weir_runs *runs,
                          const float *sample);
/* Floats that a step's samples see at the most; 0: the policy looks at nothing. */
size_t weir_policy_samples(const char *policy);
/* Does it decide by how much of a gradient is not zero?  risk: weir_options's. */
bool weir_policy_counts(const char *policy, const char *risk);
/* In the first how many steps it may come to want to know what elements usually are
 * (kernels/whitened.h); 0: in none. */
uint64_t weir_policy_follows(const char *policy, const weir_beginning *with);
weir_status weir_controller_buckets(void *controller, uint32_t layout, weir_plan_bucket *table,
                                    size_t capacity, size_t *count);
void weir_controller_set_epoch(weir_controller *controller, uint32_t epoch);
/* As weir_set_room. */
void weir_controller_set_room(weir_controller *controller, uint64_t steps);
/* As weir_doubt_update_rule, of "unknown" or else "adaptive". */
void weir_controller_doubt_rule(weir_controller *controller, bool unknown);
/* What messages and bytes cost processors (weir_calibrate_processors); before the first step. */
void weir_controller_processors(weir_controller *controller, const weir_link *processors);
/* When gradients become ready: seconds after the one before, per tensor; copied. */
void weir_controller_gaps(weir_controller *controller, const double *gap_s);
/* What was decided last, and why; empty before. */
void weir_controller_said(weir_controller *controller, char *text, size_t room);

#endif
