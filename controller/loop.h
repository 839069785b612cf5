/* State of the decision way.  Owned by one thread: the controller's own, or the session's when it
 * decides inline.  What crosses threads is in mailbox.h. */
#ifndef WEIR_CONTROLLER_LOOP_H
#define WEIR_CONTROLLER_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "controller/bits.h"
#include "controller/controller.h"
#include "controller/decide.h"
#include "controller/fuse.h"
#include "controller/network.h"
#include "controller/rounds.h"
#include "controller/stages.h"
#include "controller/table.h"

enum { WEIR_SAID_MAX = 384 };
typedef struct weir_journal weir_journal;

/* One step, reduced over ranks on the session's thread; small, so that handing it over is cheap. */
typedef struct weir_observation {
  uint64_t step, epoch;
  uint64_t room;  /* steps that can follow, and be rolled back */
  bool adapts;    /* the trainer's steps have turned out not to be SGD's, */
  bool unknown;   /* and nobody knows what becomes of averages */
  weir_plan plan; /* executed in this step */
  bool trial;
  double compute;       /* s, slowest rank */
  double loss;          /* mean over ranks; NaN: not all have reported it */
  double nonzero;       /* share of its gradient, of the rank with most; 0: not all have counted */
  double runs;          /* weir_header's, of the rank with most */
  double shortened;     /* as weir_step_record has it, of this rank */
  bool squares_known;   /* as weir_step_record has it */
  weir_network network; /* agreed on from this step's headers */
  uint64_t rooms;       /* as weir_step_record has it */
  double room_bytes;
  bool has_curve;
  double curve[WEIR_CURVE_POINTS];
  /* What the headers tell of the step before, which was then still going on. */
  struct {
    bool valid;
    bool trial;
    weir_plan plan;
    weir_cost_terms terms; /* with the bytes it really sent */
    weir_network network;
    double compute, comm, wait, gain; /* wait: the part of comm that nothing hid */
    double compress;                  /* mean over ranks; of one that others wait for, its own */
    double mean_comm;                 /* over ranks; comm: of the one that waits least */
    double whole; /* from its exchange to the next one's beginning, mean over ranks */
  } heard;
} weir_observation;

typedef struct weir_loop weir_loop;

/* A policy: one row of weir_policies[], one file. */
typedef struct weir_policy {
  const char *name; /* as in weir_options.policy */
  const char *description;
  uint32_t id;       /* WEIR_POLICY_* */
  bool takes_plan;   /* "name:PLAN" */
  bool takes_table;  /* "name:GROUPS", see table.h */
  bool takes_stages; /* "name:STAGES", see stages.h */
  weir_status (*check)(
      const char *text); /* of what may follow its name, "" or ":..."; NULL: nothing */
  void (*complete)(const char *text, weir_plan *plan); /* a plan below, by that; NULL: as it is */
  const char *first; /* the plan a session starts with; NULL: the one named */
  /* The same where there are several ranks, unless at risk bold; NULL: `first`. */
  const char *first_of_several;
  const char *first_by_sgd; /* likewise where the update rule is sgd; NULL: first_of_several */
  const char *heaviest[2];  /* of the plans that it goes through whatever they cost; or NULL */
  bool curve;               /* wants the gain curve */
  bool without_feedback;    /* can do without it: its plans are the user's, or none needs it */
  /* After every observed step: decide, and direct the ranks if need be. */
  weir_status (*consider)(weir_loop *loop, const weir_observation *seen);
} weir_policy;
extern const weir_policy weir_policy_weir, weir_policy_paper, weir_policy_fixed,
    weir_policy_buckets, weir_policy_bits, weir_policy_schedule;
extern const weir_policy *const weir_policies[WEIR_POLICY_COUNT];

#define WEIR_RECENT 5
typedef struct weir_recent {
  double value[WEIR_RECENT];
  unsigned count; /* ever pushed */
} weir_recent;

/* Many more, for what varies from step to step and yet stays the same. */
#define WEIR_LONG_RECENT 16
typedef struct weir_long_recent {
  double value[WEIR_LONG_RECENT];
  unsigned count; /* ever pushed */
} weir_long_recent;

/* What has been learnt while running (learn.c). */
typedef struct weir_learnt {
  double overhead[WEIR_ARMS];  /* s of communication beyond the model */
  double latencies[WEIR_ARMS]; /* of the exchanges that it, excess and floor are of; 0: unknown */
  double floor[WEIR_ARMS];     /* the least it ever was: what no network can be blamed for */
  bool tried[WEIR_ARMS];
  weir_recent excess[WEIR_ARMS]; /* measured less modelled, since the network last changed */
  double compress[WEIR_CODEC_COUNT];
  weir_recent factor[WEIR_CODEC_COUNT]; /* measured / modelled compression time */
  double overlap;
  double compute; /* s of a step that no exchange or codec explains */
  weir_long_recent rests;
  weir_recent whole_computes; /* of steps without buckets */
  weir_bucket_costs bucket_costs;
  weir_recent each[WEIR_ARMS], taken;
  uint64_t heard_id; /* plan of the last step heard of */
  double gain;       /* smoothed, of the plan in force */
  uint64_t gain_steps;
  double curve[WEIR_CURVE_POINTS];
  bool has_curve;
  uint64_t curve_age;   /* steps since it was last measured */
  double step_s;        /* smoothed measured step of the plan in force */
  double nonzero, runs; /* weir_decision_input's */
  double shortened[WEIR_ARMS];
  uint64_t step_count;
  int departures; /* steps in a row whose comm_s departs from the prediction */
  int leaps;      /* steps in a row in which it is nowhere near it */
  int absorb;     /* steps for which departures are the arm's own: probing found no change */
} weir_learnt;

/* Means over the steps of a trial of policy paper. */
typedef struct weir_paper_trial {
  double compress, gain, loss;
  int heard, losses; /* steps that they are of */
} weir_paper_trial;

struct weir_loop {
  const weir_policy *policy;
  int workers;
  int hosts;      /* machines they are on */
  int largest;    /* ranks of the largest of them; 0: unknown */
  uint64_t order; /* how ranks lie on them (weir_group_shape) */
  bool devices;
  bool told;     /* NCCL is told to sum by ring or tree */
  uint32_t risk; /* weir_risk */
  double memory_limit;
  bool codec_threads;
  bool curve; /* the gain curve is wanted */
  size_t elements;
  double low_rank[WEIR_LOW_RANKS]; /* weir_decision_input's */
  weir_layout layout;              /* owns its offsets */
  weir_link processors;            /* as calibrated; 0: not known */
  weir_plan_bucket *table;         /* buckets of the plan last directed; room for one a tensor */
  weir_plan_bucket *next_table;    /* likewise, while buckets are being planned */
  bool overlap;                    /* plan buckets */
  double *gap_s;                   /* per tensor */
  bool has_gaps, fuse_failed;      /* buckets did worse than foretold on this network */
  double undivided_s;              /* of a step without those last directed, as foretold */
  weir_turns turns;                /* of a policy that takes a table */
  weir_stages stages;              /* of policy schedule */
  size_t stage;                    /* of it, the one last directed */
  weir_bits_run *bits;             /* of policy bits; NULL for the others */
  uint64_t seed;
  bool open;             /* the policy's plan names no algorithm */
  double warm_cr;        /* what a warm-up leads to */
  uint64_t warmup_steps; /* 0: none */
  weir_journal *journal; /* NULL: none */

  weir_learnt learnt;
  uint64_t steps;    /* observed, trials' steps included */
  weir_plan current; /* last directed, or the first plan */
  uint64_t next_id, decisions;
  uint64_t dwell;      /* steps executed under `current` */
  uint64_t waiting;    /* steps since the last directive while it has not come into force */
  weir_directive last; /* for repeating it, should a step that carried it have failed */

  weir_network at_decision; /* network and gain the last decision knew */
  double curve_at_decision[WEIR_CURVE_POINTS];
  double nonzero_at_decision;
  uint64_t since_decision;

  struct { /* fallback */
    bool armed;
    weir_plan previous;
    double previous_rate; /* measured progress/s under it */
    double predicted_s;
    int slow;
    bool in_doubt; /* it failed, unless the network has changed: to be probed first */
  } probation;
  struct {                /* probing */
    uint64_t since, wait; /* steps since the last one; until the next for a departure */
    uint64_t doubt_wait;  /* ... for a suspicion */
    int suspected;        /* steps in a row in which some rank suspected */
    bool pending, doubt;  /* one is under way; and it was for a suspicion */
    bool unseen; /* exchanges mostly wait for latencies: they would not show a narrow link */
  } probe;
  struct { /* trials of policy paper */
    enum { WEIR_TRIALS_NONE, WEIR_TRIALS_RUN, WEIR_TRIALS_DRAIN, WEIR_TRIALS_DONE } phase;
    weir_paper_codecs codecs;
    int candidate;     /* its ratio */
    uint64_t first_id; /* plan id of the first one */
    int ran;           /* steps of the candidate */
    /* While they run, by ratio; [1]: of VAR, where both it and STAR are tried. */
    weir_paper_trial of[WEIR_TRIALS][2];
    double compress[WEIR_TRIALS], gain[WEIR_TRIALS]; /* of the last ones that came to their end */
    double reference; /* gain of the ratio in force as the last trials had it */
    uint32_t trigger;
  } trials;

  weir_rounds rounds; /* of policy weir at risk measured */

  bool wants_curve;   /* read by the owner after weir_loop_step */
  bool has_directive; /* out */
  weir_directive directive;
  uint64_t dropped;         /* observations lost to a full mailbox, for the journal */
  char said[WEIR_SAID_MAX]; /* the last decision or directive, and why */
};

/* Says it, to the log too. */
void weir_loop_say(weir_loop *loop, const char *format, ...) WEIR_PRINTF(2, 3);

/* The decision way, in order: learn, consider, direct. */
weir_status weir_loop_step(weir_loop *loop, const weir_observation *seen);

/* Put a directive into loop->directive; SWITCH and TRIAL give the plan its id.  A plan of buckets
 * has its table in loop->table. */
void weir_loop_direct(weir_loop *loop, uint32_t action, const weir_plan *plan);
/* What a decision would know now. */
void weir_loop_input(const weir_loop *loop, const weir_observation *seen, uint32_t trigger,
                     weir_decision_input *input);
/* Decide, journal it, and direct a switch when the decision is one. */
weir_status weir_loop_decide(weir_loop *loop, const weir_observation *seen, uint32_t trigger,
                             weir_decision *decision);
/* Buckets (divide.c).  Before a decision of policy weir stands: what they would save of a step, of
 * the plan that it takes and of those of more bits that may be as fast with them; then it is made
 * again, knowing that. */
weir_status weir_loop_look_ahead(weir_loop *loop, weir_decision_input *input,
                                 weir_decision *decision);
/* Buckets for the plan decided.  One that stays is divided anew only when the network has changed,
 * or when it has no buckets yet: what its buckets cost now is known by measuring them alone.  It
 * loses them where they have failed, and for a trial. */
weir_status weir_loop_divide(weir_loop *loop, const weir_decision_input *input,
                             weir_decision *decision);
/* Go on under another plan, whether it is known what it costs or not. */
weir_status weir_loop_begin_stage(weir_loop *loop, const weir_observation *seen,
                                  const weir_plan *plan);
/* A warm-up is at `step`, whose ratio is in force; the following step's is directed if it is
 * another. */
void weir_policy_warm_start(weir_loop *loop, uint64_t step);
/* Trigger of a network that has moved since the last decision, else WEIR_TRIGGER_NONE. */
uint32_t weir_loop_network_trigger(const weir_loop *loop, const weir_network *now);
/* Does a plan in force that sends what gradients have touched send far more than when it was
 * chosen? */
bool weir_loop_denser(const weir_loop *loop);
/* Paired trials (rounds.c).  Before anything else is considered: *busy says that a round goes on,
 * or that it has decided.  And after it: may one begin? */
weir_status weir_rounds_step(weir_loop *loop, const weir_observation *seen, bool *busy);
weir_status weir_rounds_consider(weir_loop *loop, const weir_observation *seen);
/* Direct a probe when the ranks suspect a change, when communication keeps departing from its
 * prediction, or when what is known has grown old. */
void weir_loop_consider_probe(weir_loop *loop, const weir_observation *seen);
/* The network has moved: what was probed for is found. */
void weir_loop_probe_found(weir_loop *loop);
bool weir_network_known(const weir_network *network, int workers);
/* For policies that decide nothing but the algorithms that their plans leave open: a network is
 * known for the first time, or has moved; else WEIR_TRIGGER_NONE. */
uint32_t weir_loop_open_trigger(const weir_loop *loop, const weir_observation *seen);
weir_group_shape weir_loop_shape(const weir_loop *loop);

/* Take in what the headers told (learn.c). */
void weir_learn_start(weir_learnt *learnt);
/* Replaces the usual compression times by what the codecs of the arms take as `price` tells; where
 * that is NULL or fails, on this host's processors. */
weir_status weir_learn_codecs(weir_loop *loop, weir_price_fn *price, void *user);
void weir_learn(weir_loop *loop, const weir_observation *seen);
void weir_learn_switched(weir_learnt *learnt);
void weir_learn_network_changed(weir_learnt *learnt);
/* What exchanges over such a network are predicted from. */
weir_link weir_learn_link(const weir_loop *loop, const weir_network *network);
/* What the model says of the exchange that was heard of: with the bytes it really sent. */
double weir_learn_modelled(const weir_loop *loop, const weir_observation *seen);
/* Set what an arm costs beyond the model, within bounds that depend on the modelled time, in
 * exchanges of so many latencies. */
void weir_learn_overhead(weir_learnt *learnt, size_t arm, double overhead, double modelled,
                         double latencies);

/* A switch to the arm of what was heard of has failed: all that the model did not foretell is the
 * arm's own fault now; without it the next decision would come back. */
void weir_learn_blame(weir_loop *loop, const weir_observation *seen);

/* Journal (journal.c): one JSON line a decision. */
/* bytes: of all parts together, 0: as many as come. */
weir_status weir_journal_open(weir_journal **out, const char *path, uint64_t bytes, bool goes_on);
void weir_journal_close(weir_journal *journal);
/* Have the disk take what was written; *bytes: of the newest part so far. */
weir_status weir_journal_keep(weir_journal *journal, uint64_t *bytes);
/* Go back to where it had so many bytes: of a journal that is one part.  A shorter one stays. */
weir_status weir_journal_cut(weir_journal *journal, uint64_t bytes);
weir_status weir_journal_write(weir_journal *journal, const weir_loop *loop,
                               const weir_decision_input *input, const weir_decision *decision);

#endif
