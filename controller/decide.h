/* One decision as a pure function: everything it may know is in weir_decision_input, so a journal
 * line replays to the same choice.  Seconds and bytes throughout. */
#ifndef WEIR_CONTROLLER_DECIDE_H
#define WEIR_CONTROLLER_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>
#include <weir/status.h>

#include "controller/progress.h"
#include "engine/engine.h"
#include "moo/nsga2.h"

enum {
  WEIR_POLICY_WEIR = 0,
  WEIR_POLICY_PAPER = 1,
  WEIR_POLICY_FIXED = 2,
  WEIR_POLICY_BUCKETS = 3,
  WEIR_POLICY_BITS = 4,
  WEIR_POLICY_SCHEDULE = 5,
  WEIR_POLICY_COUNT = 6
};

typedef enum weir_trigger {
  WEIR_TRIGGER_NONE = 0,
  WEIR_TRIGGER_START = 1,
  WEIR_TRIGGER_LATENCY = 2,
  WEIR_TRIGGER_BANDWIDTH = 3,
  WEIR_TRIGGER_GAIN = 4,
  WEIR_TRIGGER_PERIODIC = 5,
  WEIR_TRIGGER_FALLBACK = 6, /* the last switch did worse than foretold: back to `previous` */
  WEIR_TRIGGER_STAGE = 7,    /* the next stage of a warm-up or schedule begins: `current` is its
                                plan */
  WEIR_TRIGGER_TRIAL = 8,    /* a trial, or the loss itself, has told something of an arm */
  WEIR_TRIGGER_SPARSITY =
      9, /* gradients have come to touch more, under a plan that sends just that */
  WEIR_TRIGGER_COUNT = 10
} weir_trigger;
const char *weir_trigger_name(uint32_t trigger); /* NULL when unknown */
bool weir_trigger_network(uint32_t trigger);     /* latency or bandwidth */

/* What policy weir may choose among (weir_options.risk). */
typedef enum weir_risk {
  WEIR_RISK_BOLD = 0, /* dense and top-k, by the model of progress; also journals' before this */
  WEIR_RISK_MEASURED = 1, /* arms known to keep the loss, and others once they have shown it */
  WEIR_RISK_SAFE = 2,     /* arms known to keep the loss */
  WEIR_RISK_COUNT = 3
} weir_risk;
/* "bold", "measured" or "safe"; WEIR_E_INVALID. */
weir_status weir_risk_parse(const char *text, uint32_t *risk);

/* Arms: everything of a plan but, where it is free, its ratio.  Their order is the order of
 * overhead[] below. */
#define WEIR_ARMS 73
#define WEIR_BOLD_ARMS 14 /* the first ones: risk bold chooses among them alone */
#define WEIR_FLAT_ARMS 10 /* of these the first ones, which need no machines */
/* What has to show in a trial that it holds the loss: a codec at a ratio, by whichever collective.
 * Arms of one method share what is known of it. */
#define WEIR_METHODS 10
/* How far a training has come.  What few bits lose is noise, which makes the second moments of an
 * optimizer such as Adam larger, and its steps smaller.  At the beginning 4 bits do harm by it,
 * later 3 (docs/internals/progress.md). */
typedef enum weir_settled {
  WEIR_UNSETTLED = 0,
  WEIR_SETTLED = 1,    /* past its beginning */
  WEIR_SETTLED_SGD = 2 /* steps are proportional to gradients: their noise makes none smaller */
} weir_settled;
typedef struct weir_arm {
  weir_plan plan;   /* algorithm any: that of the cheapest row; ratio 0: it is found by search */
  bool safe;        /* known to keep the loss of a training without evidence */
  uint32_t settled; /* ... once it has come so far (weir_settled): few bits */
  bool machines;    /* only where ranks share machines */
  double debt;   /* how far it keeps a training behind under SGD, as a share of the loss, as seen on
                     the MLP and the convolutional net (docs/internals/progress.md) */
  size_t method; /* of an arm with a ratio of its own that is not safe; else WEIR_METHODS */
} weir_arm;
const weir_arm *weir_arm_at(size_t a); /* the library's, below WEIR_ARMS */
/* But for the ratio: is it a plan of the arm? */
bool weir_arm_is(const weir_arm *arm, const weir_plan *plan);
/* The arm of a plan; WEIR_ARMS when no arm is like it (lwtopk, mstopk, var, the papers' format). */
size_t weir_arm_of(const weir_plan *plan);
/* Is it a plan that keeps the loss without evidence: fp32, 16 bits, 5 to 3.5 of companded and
 * nonzero, 5 of whitened under rules other than SGD, and under SGD 3 of qsgd and 4 of
 * qsgd-l2 and dithered, all with error feedback? */
bool weir_plan_safe(const weir_plan *plan);
/* Bits that a safe plan has for an element; 0: another, or one that is no arm. */
double weir_plan_bits(const weir_plan *plan);
struct weir_decision_input;
/* The method of a plan; WEIR_METHODS: none.  Its first arm. */
size_t weir_method_of(const weir_plan *plan);
const weir_arm *weir_method_arm(size_t method);
/* Does it send what gradients have touched alone? */
bool weir_plan_sparse(const weir_plan *plan);
/* Can such plans be priced, and does nothing else wait to be sent? */
bool weir_sparse_known(const struct weir_decision_input *input);

/* Does its codec send all of a gradient, rounded, rather than hold much of it back? */
bool weir_plan_rounds(const weir_plan *plan);
/* What is believed of a plan's method before it is tried, in rounds of a form; and the form. */
const weir_belief *weir_belief_of(const weir_plan *plan, const weir_round_form *form);
const weir_round_form *weir_round_form_of(const weir_plan *plan, weir_update_rule rule);
/* Can the arm run here?  Is it one to choose among? */
bool weir_arm_runs(const struct weir_decision_input *input, size_t arm);
bool weir_arm_counts(const struct weir_decision_input *input, size_t arm);

#define WEIR_TRIALS 5 /* candidate ratios of the paper's controller */
extern const double weir_trial_cr[WEIR_TRIALS];

#define WEIR_LOW_RANKS 7 /* 1, 2, 4, ... WEIR_POWERSGD_RANK_MAX */

/* What policy paper compresses with: one codec by all-gather, and one whose indices ranks share by
 * all-reduce. */
typedef struct weir_paper_codecs {
  uint32_t gather; /* WEIR_CODEC_MSTOPK or WEIR_CODEC_LWTOPK */
  uint32_t shared; /* WEIR_CODEC_STAR or WEIR_CODEC_VAR */
  bool both;       /* trials choose `shared`; until then it is STAR */
} weir_paper_codecs;
/* What may follow "paper": "", or ":" and codecs joined by "+", which take the place of the default
 * of their kind ("mstopk+star"); star+var: both.  WEIR_E_INVALID. */
weir_status weir_paper_parse(const char *text, weir_paper_codecs *codecs);

typedef struct weir_decision_input {
  uint64_t decision, step, epoch;
  uint32_t policy;  /* WEIR_POLICY_* */
  uint32_t trigger; /* weir_trigger */
  uint64_t seed;    /* below 2^53, so that every JSON reader keeps it */
  uint64_t workers, elements;
  uint64_t hosts; /* machines the workers are on; 0: unknown, taken as one each */
  uint64_t
      largest;    /* workers on the largest of them; 0: unknown, taken as even where they can be */
  uint64_t order; /* how workers lie on them (weir_group_shape); 0: machine by machine */
  uint64_t devices; /* not 0: gradients of some rank are on a device (docs/internals/device.md) */
  uint64_t told;    /* not 0: NCCL is told to sum by ring or tree (weir_comm_told) */
  uint32_t risk;    /* weir_risk */
  uint32_t settled; /* weir_settled */
  uint32_t untried; /* not 0: few bits were not tried with such an optimizer, and 16 are sent */
  /* Not 0: residuals hold what a method has not sent, of elements that gradients may not touch any
   * more: only a plan that sends every element brings it back. */
  uint32_t withheld;
  /* Not 0: what elements usually are is known (weir_step_record), and the update rule is one that
   * divides by it. */
  uint32_t squares_known;
  uint32_t open; /* not 0: the policy's plan names no algorithm: the cheapest goes */
  /* Bytes that a plan and its room on a device may take (engine/memory.h); 0: any. */
  double memory_limit;
  uint32_t threads;                  /* not 0: codecs have threads of their own */
  uint64_t rooms;                    /* WEIR_ROOMS_* */
  double room_bytes;                 /* that rooms take as yet */
  double latency, latency_error;     /* s one way; relative */
  double bandwidth, bandwidth_error; /* of the link, bytes/s; relative */
  double goodput; /* of it, what messages get, where packets are lost; 0: as much as the link has */
  double deviation; /* of messages' times, s for the root of a byte */
  /* weir_calibrate_processors: 0 is unknown, and inside of machines no time. */
  weir_link processors;
  double compute;                     /* s a step, of the slowest rank */
  double gain;                        /* smoothed gain of the plan in force; negative: not known */
  double curve[WEIR_CURVE_POINTS];    /* gain of exact top-k at curve_cr[], mean over ranks */
  double curve_cr[WEIR_CURVE_POINTS]; /* descending */
  double overlap;                     /* see weir_shared_gain */
  double overhead[WEIR_ARMS];         /* s of communication beyond the model */
  double overhead_latencies[WEIR_ARMS]; /* of the exchanges it was seen in; 0: unknown */
  double compress[WEIR_CODEC_COUNT];    /* measured / modelled compression time */
  weir_plan current;                    /* in force (or already directed) */
  weir_plan previous;                   /* before it; for WEIR_TRIGGER_FALLBACK */
  uint64_t dwell;                       /* steps since the last switch */
  uint64_t losses;                      /* steps whose loss was reported; 0: none is */
  double shown[WEIR_METHODS];           /* progress that methods have shown; 0: may not be chosen */
  double trial_compress[WEIR_TRIALS];   /* paper: average over the trial's steps, s */
  double trial_gain[WEIR_TRIALS];
  double nonzero; /* most of a gradient that was not zero of late, as a share; 0: unknown */
  double runs;    /* most runs of such, over its elements */
  /* Bytes of an arm's entropy-coded messages over those of plain ones; 0: not seen. */
  double shortened[WEIR_ARMS];
  /* s that buckets would save of a step under an arm's plan; 0: nothing, or not looked at. */
  double saved[WEIR_ARMS];
  double low_rank[WEIR_LOW_RANKS];     /* floats that powersgd of these ranks sends; 0: not known */
  uint32_t paper_gather, paper_shared; /* its codecs; 0: mstopk, star */
} weir_decision_input;

typedef struct weir_candidate {
  weir_plan plan; /* id is not set */
  double compress_s, comm_s, gain;
  double progress_per_s;
} weir_candidate;

#define WEIR_CANDIDATES_MAX WEIR_ARMS
#define WEIR_FRONT_MAX 64
typedef struct weir_decision {
  size_t candidates;
  weir_candidate candidate[WEIR_CANDIDATES_MAX];
  size_t front_size;
  weir_candidate front[WEIR_FRONT_MAX];
  weir_candidate choice; /* what will run: the optimum, or the plan in force when kept */
  double predicted_s;    /* a whole step of it */
  bool switched;
  size_t buckets; /* of what will run; 0: the gradient as a whole */
  char why[384];
} weir_decision;

/* Deterministic in *input.  WEIR_E_INVALID when the input is out of range (says which field). */
weir_status weir_decide(const weir_decision_input *input, weir_decision *decision);
weir_status weir_decide_weir(const weir_decision_input *input, weir_decision *decision);
weir_status weir_decide_paper(const weir_decision_input *input, weir_decision *decision);

/* The front of both policies' problems, which the caller frees; WEIR_E_NOMEM. */
weir_status weir_decide_search(const weir_moo_problem *problem, uint64_t seed,
                               weir_moo_front *front);

/* What policy paper would run at a ratio: the cheapest collective by the paper's rows,
 * with the input's codec for it. */
void weir_paper_candidate(const weir_decision_input *input, double cr, weir_candidate *candidate);

/* --- the model (candidates.c) --------------------------------------------------------------- */

/* Numbers of the model that experiments may tune; one row, no others anywhere. */
typedef struct weir_decision_constants {
  double progress_exponent; /* progress of a step = gain ^ this, times, where all ranks send the */
  double shared_progress;   /* indices of one, this: another rank's turn comes N steps later */
  double cr_low, cr_high;   /* where policy weir searches */
  double paper_cr_low, paper_cr_high;
  double change;             /* relative move of latency, bandwidth or gain that counts */
  double hysteresis;         /* relative improvement that a switch must promise */
  double hysteresis_changed; /* the same right after a change of the network */
  double spare;              /* share of the speed that is given up for plans of more bits */
  uint64_t dwell;            /* steps between switches, except after a change of the network */
  uint64_t period;           /* steps between periodic decisions */
  double overlap_prior;
} weir_decision_constants;
extern const weir_decision_constants weir_constants;

/* Expected progress of one step, in steps of uncompressed SGD: in (0, 1], 1 for a dense plan.
 * With error feedback what is not sent is delayed and not lost, so progress falls far slower than
 * the gain: gain ^ p with a small p.  Exponent and factor come from training 4 workers at fixed
 * ratios from 0.001 to 1 and counting steps to an accuracy (docs/reference/performance.md). */
double weir_progress(uint32_t codec, double gain);
/* The same of a plan: 1 where it is known to keep the loss, and under policy weir, but for risk
 * bold, what its method has shown, and 0 if it has not. */
double weir_plan_progress(const weir_decision_input *in, const weir_plan *plan, double gain);

/* Gain of exact top-k at ratio cr: piecewise linear in log cr through the curve's points and
 * gain(1) = 1, made monotone; below the last point towards 0 at cr 0 in proportion to cr. */
double weir_curve_gain(const double *curve_cr, const double *curve, double cr);

/* Gain when all ranks send the indices one rank chose (star, var).  A fraction `overlap` of those
 * indices serves this rank like its own top-k, the rest like indices drawn at random, which carry
 * cr of the energy: overlap * top + (1 - overlap) * cr.  weir_overlap is its inverse, in [0, 1]. */
double weir_shared_gain(double overlap, double top, double cr);
double weir_overlap(double shared, double top, double cr);

/* Messages of which each rank decodes as many elements as there are, where those of N go to all: of
 * what is summed one. */
double weir_messages_decoded(const struct weir_codec *codec, uint64_t workers);
/* A-priori compression time of a codec at a ratio, in s; measurements scale it. */
double weir_compress_prior(uint32_t codec, uint64_t workers, uint64_t elements, double cr);
/* The same of a plan, as measurements have scaled it (*compress: of its codec and of bf16, by
 * codec).  Where partial sums travel encoded, each rank encodes a gradient and decodes two on the
 * way: weir_coding_in_hops, which a measured exchange holds; what is left is a pass like bf16's,
 * and where gradients are on devices that sum messages themselves, like the codec's own.  Of a path
 * all behind its first communication is such coding.  Factors of low rank are encoded by hosts, of
 * whose usual time measurements on devices tell nothing. */
double weir_plan_compress(const weir_plan *plan, weir_group_shape shape, uint64_t elements,
                          bool devices, const double *compress);
double weir_coding_in_hops(const weir_plan *plan, weir_group_shape shape, uint64_t elements,
                           bool devices, const double *compress);
/* Is one rank's choice of elements all ranks'?  Not where it is drawn from the step's number. */
bool weir_one_selects(uint32_t codec);
/* What rows are predicted from: links of the network as it is, all messages alike; processors, and
 * links inside of machines, as calibrated.  And the same of an input, whose messages may differ. */
weir_link weir_model_link(const weir_link *processors, double latency, double bandwidth);
weir_link weir_input_link(const weir_decision_input *input);
/* What a plan keeps of so many elements (weir_cost_kept), and powersgd of matrices as they are,
 * where low_rank tells of them. */
size_t weir_plan_kept(const double *low_rank, const weir_plan *plan, uint64_t elements);
/* What a message may take is room; what is sent of it where gradients are mostly zero. */
size_t weir_plan_touched(const weir_plan *plan, size_t kept, double nonzero, double runs);
/* An arm's overhead, seen where an exchange had so many latencies, where it has those of *terms and
 * is modelled as so many seconds: as with buckets (fuse.h), of what is too much the latencies'
 * share grows with them, as with pieces.  latencies 0: unknown, as it is. */
double weir_overhead_at(double overhead, double latencies, const weir_cost_terms *terms,
                        const weir_link *link, double modelled);
/* That of the input's arm. */
double weir_input_overhead(const weir_decision_input *input, size_t arm,
                           const weir_cost_terms *terms, const weir_link *link, double modelled);
/* Bytes/s that exchanges are predicted with. */
double weir_input_goodput(const weir_decision_input *input);
/* The workers and their machines. */
weir_group_shape weir_input_shape(const weir_decision_input *input);
/* Does the plan keep to memory_limit? */
bool weir_plan_fits(const weir_decision_input *input, const weir_plan *plan);
/* Bytes of a plan's messages over those that its row has: less than 1 where they are
 * entropy-coded. */
double weir_plan_shortened(const double *shortened, const weir_plan *plan);
/* Everything above for one plan. */
void weir_evaluate(const weir_decision_input *input, const weir_plan *plan,
                   weir_candidate *candidate);
/* The same of an arm, with plain messages or entropy-coded ones, whichever is faster. */
void weir_evaluate_arm(const weir_decision_input *input, const weir_arm *arm, double log_cr,
                       weir_candidate *candidate);
/* Seconds of a whole step, with buckets where it is known what they save. */
double weir_step_seconds(const weir_decision_input *input, const weir_candidate *candidate);
/* A ring or tree of fp32 values as NCCL's, where NCCL can be told; other plans as they are. */
weir_plan weir_plan_told(const weir_decision_input *input, const weir_plan *plan);
/* An arm's plan in this group, at the ratio of that logarithm where the arm has not one of its
 * own. */
weir_plan weir_arm_plan(const weir_decision_input *input, const weir_arm *arm, double log_cr);
/* The ratio with the most progress per second for one arm: a scan of log cr, then
 * golden section. */
void weir_best_of_arm(const weir_decision_input *input, const weir_arm *arm, weir_candidate *best);

/* --- the guard (guard.c) -------------------------------------------------------------------- */

/* Take `best`, or stay with the plan in force; fills in choice, switched and why. */
void weir_guard(const weir_decision_input *input, const weir_candidate *best,
                weir_decision *decision);
bool weir_same_plan(const weir_plan *a, const weir_plan *b); /* but for the id */

/* --- the input as named fields, for the journal and for replay (fields.c) ------------------- */

/* The member "format" of every line of a journal.  It changes with what a reader of this version
 * could not read, or would read wrongly. */
#define WEIR_JOURNAL_FORMAT 2

typedef enum weir_field_kind {
  WEIR_FIELD_U8,
  WEIR_FIELD_U32,
  WEIR_FIELD_U64,
  WEIR_FIELD_DOUBLE
} weir_field_kind;
typedef struct weir_field {
  const char *name;
  weir_field_kind kind;
  size_t offset; /* in weir_decision_input */
  size_t count;  /* 0: a scalar; otherwise an array of so many */
  bool since;    /* journals of earlier versions are without it: zero */
} weir_field;
extern const weir_field weir_fields[];
extern const size_t weir_field_count;

#endif
