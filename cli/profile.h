/* What the parts of `weir profile` share. */
#ifndef WEIR_CLI_PROFILE_H
#define WEIR_CLI_PROFILE_H

#include "cli.h"
#include "plan.h"
#include "planner/profile.h"
#include "planner/solve.h"

enum { PROFILE_PLANS = 8, PROFILE_DIVISIONS = 3, PROFILE_RUNS = PROFILE_PLANS * PROFILE_DIVISIONS + 1 };

/* One division that was run.  Steps are counted from the begin of the forward pass to the end of the
 * last group's decoding; medians over the second half of the steps of rank 0. */
typedef struct profile_run {
  const char *division;
  const char *plan; /* "planned" for several */
  size_t row;       /* of the plan; of each group when they differ */
  size_t groups;
  weir_solve_group *group; /* ends and rows; owned */
  double predicted_s, measured_s;
} profile_run;

typedef struct profile_job {
  char *out, *network, *scenario;
  char **plan;
  size_t plans;
  gboolean json;
  weir_profile profile;  /* as the first run had it */
  double forward_s;      /* compute before the first gap */
  double finish_s;       /* decoding the last group, beyond what the rows hold */
  weir_solve_row row[PROFILE_PLANS]; /* measured curves; owned */
  profile_run run[PROFILE_RUNS];
  size_t count;
} profile_job;

/* Run all divisions of the p-th plan and learn its row.  Exit codes. */
int profile_measure(profile_job *job, size_t p);
/* Predict all that was run; plan; run that too. */
int profile_plan(profile_job *job);
void profile_free(profile_job *job);

#endif
