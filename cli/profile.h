/* What the parts of `weir profile` share.
 *
 * Divisions of the gradient take turns within one job, so that what disturbs the machine disturbs
 * all of them alike.  From the ranks' timings (lab/timings.h) a *step of all ranks* is made: a
 * gradient is ready, a bucket compressed or exchanged, when it is on the last rank.  A step lasts
 * until all ranks have begun the next.  What is learnt and what it is compared with come from
 * different rounds of turns.  The model is planner/solve.h's:
 *
 *   step = rest + timeline      rest: updating, drawing a batch, the forward pass
 *
 * with gaps from the undivided step, curves from all buckets that were exchanged, and what
 * exchanges take from ranks that compute on beside them (ranks may share processors) from how much
 * later gradients are ready. */
#ifndef WEIR_CLI_PROFILE_H
#define WEIR_CLI_PROFILE_H

#include "cli.h"
#include "plan.h"
#include "planner/profile.h"
#include "planner/solve.h"
#include "planner/timeline.h"

enum {
  PROFILE_PLANS = 8,
  PROFILE_DIVISIONS = 6,
  PROFILE_TURNS = PROFILE_PLANS * PROFILE_DIVISIONS
};

/* A step of all ranks, or the mean of several: s since the last rank began it. */
typedef struct profile_step {
  double period_s;         /* until the last rank begins the next; 0: unknown */
  double mark_s;           /* backward pass begins */
  double *ready_s;         /* [tensors]; owned, as are the following */
  double *done_s, *wire_s; /* [buckets] compressed; exchanged and decoded */
} profile_step;

/* One division that took turns. */
typedef struct profile_turn {
  const char *division;
  const char *plan; /* "several" for more than one */
  char *text;       /* as the policy takes it; owned */
  size_t buckets;
  weir_solve_bucket *bucket; /* ends and rows; owned */
  size_t steps;              /* measured */
  profile_step mean;         /* over the middle half of them */
  weir_timeline measured;    /* of every rank, a step that took about as long */
  double predicted_s;
} profile_turn;

typedef struct profile_job {
  char *out, *network, *clock, *scenario;
  char **plan;
  size_t plans;
  gboolean json;
  int turn;             /* steps each time */
  double within;        /* that predictions must be off by at most, a share; 0: nobody asks */
  weir_profile profile; /* gaps: of the last rank, undivided */
  double rest_s;
  const profile_turn *kept;          /* the fastest as measured */
  double least_s;                    /* no division can be predicted to take less; rest included */
  weir_solve_row row[PROFILE_PLANS]; /* measured; owned */
  profile_turn *turns;               /* that were run last */
  size_t count, layers;              /* layers: which of them has every tensor alone */
} profile_job;

/* Which rounds of turns count, from 0: never the first. */
typedef enum profile_rounds { PROFILE_ALL, PROFILE_ODD, PROFILE_EVEN } profile_rounds;
/* Run job->turns in turns, under DIR/name.  Exit codes. */
int profile_run(profile_job *job, const char *name);
/* Read what the turns of that run took. */
weir_status profile_read(profile_job *job, const char *name, profile_rounds rounds);
/* Learn rest, gaps and rows from turns that were read: the first PROFILE_LEARNT of each plan. */
enum { PROFILE_LEARNT = 3 };
weir_status profile_learn(profile_job *job);
/* Learn from the odd rounds of a run, predict all of its turns, and read the even rounds. */
weir_status profile_compare(profile_job *job, const char *name);
/* Does the trainer hand over slices of tensors (NAME/0, NAME/1, ...)? */
gboolean profile_sliced(const profile_job *job);
/* Every tensor alone, all of its slices together, as turn->plan; written to path. */
weir_status profile_whole_tensors(const profile_job *job, const char *path, profile_turn *turn);
/* Every tensor alone, as whichever plan is faster for it alone ("ByteComp", section 5.3); written
 * to path. */
weir_status profile_myopic(const profile_job *job, const char *path, profile_turn *turn);
/* The planned division, written to path; planned->text is given. */
weir_status profile_plan(profile_job *job, const char *path, profile_turn *planned);
/* Of the turns that were compared, the fastest: written to path unless it is the planned one, the
 * last. */
weir_status profile_keep(profile_job *job, const char *path);
/* A turn's step by the model, from the begin of the backward pass; weir_timeline_free. */
weir_status profile_predict(const profile_job *job, const profile_turn *turn, weir_timeline *to);
/* DIR/trace.json: the turn as predicted, and as measured. */
weir_status profile_show(const profile_job *job, const profile_turn *turn);

/* What came of it.  Ratios are times measured, bounds what the model would allow at most. */
typedef struct profile_verdict {
  double off;                 /* largest |predicted / measured - 1| */
  const profile_turn *off_at; /* there */
  size_t right, pairs;        /* predicted 5 % apart at least; measured in that order */
  double over_one, over_layers, bound_over_one, bound_over_layers; /* of the plan */
} profile_verdict;
void profile_judge(const profile_job *job, profile_verdict *verdict);
/* On stdout, as a table or JSON; and DIR/profile.json. */
weir_status profile_print(const profile_job *job);
/* Is all as it was asked to be?  Says on stderr what is not. */
gboolean profile_holds(const profile_job *job);
/* DIR/report.html. */
weir_status profile_report(const profile_job *job);

void profile_forget(profile_turn *turn); /* what was read */
void profile_free_turns(profile_job *job);

#endif
