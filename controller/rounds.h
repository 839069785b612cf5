/* Paired trials of policy weir at risk "measured" (rounds.c): which arms are tried when, and what
 * has come of it. */
#ifndef WEIR_CONTROLLER_ROUNDS_H
#define WEIR_CONTROLLER_ROUNDS_H

#include "controller/decide.h"
#include "controller/progress.h"

enum { WEIR_LOSSES = 128 }; /* of steps that count, the newest */
/* The step by which every training counts as settled (weir_settled). */
#define WEIR_SETTLED_AT_LAST UINT64_C(500)

/* Steps that must be able to follow the one on which a round's directive rides; and with fewer than
 * so many a round goes back at once, as directives can be lost. */
enum { WEIR_ROOM_LEAST = 4 };

typedef enum weir_standing_of_method {
  WEIR_METHOD_UNTRIED = 0,
  WEIR_METHOD_SHOWN = 1,  /* may be chosen */
  WEIR_METHOD_REFUSED = 2 /* may not, until it is tried again */
} weir_standing_of_method;

typedef struct weir_method_record {
  weir_standing_of_method standing;
  weir_evidence evidence;
  double progress;     /* as shown last */
  uint64_t due;        /* step from which it may be tried (again) */
  uint64_t good_until; /* the step at which what it has shown is too old to be in force */
} weir_method_record;

typedef struct weir_rounds {
  enum { WEIR_ROUND_NONE, WEIR_ROUND_TRIAL, WEIR_ROUND_BACK } phase;
  double budget;  /* share of the training's time */
  uint32_t rule;  /* weir_update_rule; adaptive once a method fell behind in force */
  uint64_t steps; /* of the training; 0: not known */
  /* The round under way: steps of `tried`, and of what follows, are rolled back, then the plan in
   * force takes the same batches. */
  size_t method;
  weir_plan tried;
  uint64_t plan_id, first; /* the trial's plan; the step its first batch belongs to */
  uint64_t follow_id;      /* the plan in force as it follows in the trial; 0: not yet directed */
  size_t ran, turned, paired; /* steps of the trial; of the arm, once another follows; after it */
  double tried_loss[WEIR_ROUND_BATCHES], kept_loss[WEIR_ROUND_BATCHES];
  uint64_t dropped;
  bool ahead; /* it began before the loss had halved, and tells nothing unless it has by its end */
  /* Losses of steps that count, one after the other; begun anew when a step's is missing. */
  double loss[WEIR_LOSSES];
  size_t losses;
  weir_course course; /* of all of these */
  double begun;       /* mean of the first ones */
  uint64_t told;      /* steps whose loss was reported */
  uint64_t silent;    /* steps in a row without, the newest */
  bool settled;       /* few bits may be chosen */
  bool withheld;      /* a method held back what no plan has sent since that sends every element */
  double elapsed_s, spent_s; /* all steps' time so far, and trials' */
  uint64_t timed;            /* steps that all but spent_s of it is of */
  unsigned in_vain;          /* rounds whose first losses differed, the newest in a row */
  double checkpoint_bytes;   /* of memory_limit, from the first round on */
  bool kept;                 /* a round has begun: its checkpoint's memory stays */
  bool said;                 /* that no loss is reported, or that trials cannot be compared */
  weir_method_record record[WEIR_METHODS];
  /* While a method's plan is in force: how the loss fell when it was taken, and since when, and
   * from where, the loss is held against that. */
  bool following;
  weir_slope promised;
  uint64_t promised_at;
  double anchor, anchor_loss;
  bool undivided; /* what is being decided is to have no buckets, so that a round can begin */
  /* For the journal. */
  size_t judged;
  weir_plan judged_plan;
  weir_slope slope;
  weir_judgement judgement;
  weir_evidence samples;
  char what[300];
} weir_rounds;

/* What a method has shown, as far as it still counts; 0: it may not be chosen. */
double weir_rounds_shown(const weir_rounds *rounds, size_t method, uint64_t step);
/* What a plan may take of so many bytes (0: any), beside a checkpoint if there is one. */
double weir_rounds_memory(const weir_rounds *rounds, double limit, bool checkpoint);

/* Steps that a trainer must be able to take back for a round. */
uint64_t weir_round_room(const weir_round_form *form);

#endif
