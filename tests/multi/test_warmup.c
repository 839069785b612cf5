/* Deep Gradient Compression as a trainer meets it: the ratio's warm-up, and clipping. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "session_ranks.h"

#define RANKS 4
#define STEPS 20
#define N 4096

typedef struct rank {
  weir_options options;
  int last; /* step in whose midst rank 0 leaves; STEPS: none */
  weir_status status;
  char error[256];
  double cr[STEPS];
  float first[STEPS]; /* of the averages */
} rank;

static void *train(void *user) {
  rank *r = user;
  weir_session *session = NULL;
  weir_survivors left = {.struct_size = sizeof left};
  uint32_t tensor;
  static _Thread_local float g[N];
  r->status = weir_session_create(&session, &r->options);
  if (!r->status) r->status = weir_register_tensor(session, "w", N, &tensor);
  if (!r->status) r->status = weir_session_start(session);
  for (int s = 0; s < STEPS && !r->status; s++) {
    weir_step_info info = {.struct_size = sizeof info};
    r->status = weir_step_begin(session, &info);
    r->cr[s] = info.plan.cr;
    for (int i = 0; i < N; i++) g[i] = (float)((i * 7 + r->options.rank + s) % 31);
    if (!r->status) r->status = weir_submit(session, tensor, g);
    if (r->options.rank == 0 && s == r->last) break;
    if (!r->status) r->status = weir_step_end(session, NULL);
    r->first[s] = g[0];
    if (r->status != WEIR_E_PEER || r->last == STEPS) continue;
    r->status = weir_shrink(session, &left);
    s = (int)left.step - 1;
  }
  if (r->status) (void)snprintf(r->error, sizeof r->error, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

static void run(rank ranks[RANKS], const char *group, const char *policy, uint64_t warmup) {
  memset(ranks, 0, RANKS * sizeof *ranks);
  for (int r = 0; r < RANKS; r++) {
    ranks[r].options = session_options(r, RANKS, group, policy);
    ranks[r].options.warmup_steps = warmup;
    ranks[r].last = STEPS;
  }
  session_threads(ranks, sizeof *ranks, RANKS, train);
  for (int r = 0; r < RANKS; r++)
    cr_assert_eq(ranks[r].status, WEIR_OK, "rank %d: %s", r, ranks[r].error);
}

/* Twelve steps of warm-up are stages of three; the last is cut off at the plan's own ratio. */
Test(warmup, ratio_comes_down_in_four_stages_on_all_ranks) {
  static const double plain = 0.001, due[4] = {0.25, 0.0625, 0.015625, 0.00390625};
  static const char *const policies[] = {"fixed:dgc:0.001:ag", "fixed:star:0.001:art-ring",
                                         "fixed:randomk:0.001:art-tree"};
  static rank ranks[RANKS];
  for (size_t p = 0; p < 3; p++) {
    run(ranks, policies[p], policies[p], 12);
    for (int r = 0; r < RANKS; r++)
      for (int s = 0; s < STEPS; s++) {
        cr_assert_eq(ranks[r].cr[s], s < 12 ? due[s / 3] : plain, "%s: rank %d step %d has %g",
                     policies[p], r, s, ranks[r].cr[s]);
        cr_assert_eq(ranks[r].first[s], ranks[0].first[s]);
      }
  }
}

/* A ratio above a stage's is not undercut: 1/4, then 0.1 from the second stage on. */
Test(warmup, never_below_the_plan) {
  static rank ranks[RANKS];
  run(ranks, "above", "fixed:topk:0.1:ag", 8);
  for (int s = 0; s < STEPS; s++) cr_assert_eq(ranks[1].cr[s], s < 2 ? 0.25 : 0.1, "step %d", s);
  run(ranks, "none", "fixed:topk:0.1:ag", 0);
  for (int s = 0; s < STEPS; s++) cr_assert_eq(ranks[1].cr[s], 0.1, "step %d", s);
}

/* Rank 0 leaves in the midst of a step; the others go on with the stage that is due, whether the
 * one after it begins with the next step or later, and under a controller of another rank's. */
Test(warmup, survivors_go_on_with_the_stage_that_is_due) {
  static const double due[4] = {0.25, 0.0625, 0.015625, 0.00390625};
  static rank ranks[3];
  for (int last = 1; last < 16; last++) {
    char group[32];
    (void)snprintf(group, sizeof group, "left %d", last);
    memset(ranks, 0, sizeof ranks);
    for (int k = 0; k < 3; k++) {
      ranks[k].options = session_options(k, 3, group, "fixed:topk:0.001:ag");
      ranks[k].options.warmup_steps = 12;
      ranks[k].last = last;
    }
    session_threads(ranks, sizeof *ranks, 3, train);
    for (int k = 1; k < 3; k++) {
      cr_assert_eq(ranks[k].status, WEIR_OK, "%d: %s", last, ranks[k].error);
      for (int s = 0; s < STEPS; s++)
        cr_assert_eq(ranks[k].cr[s], s < 12 ? due[s / 3] : 0.001, "%d: rank %d step %d has %g",
                     last, k, s, ranks[k].cr[s]);
    }
  }
}

/* A stage of one step. */
Test(warmup, every_step_a_stage) {
  static rank ranks[RANKS];
  run(ranks, "four", "fixed:topk:0.001:ag", 4);
  for (int s = 0; s < STEPS; s++)
    cr_assert_eq(ranks[2].cr[s], s < 4 ? ldexp(1, -2 - 2 * s) : 0.001, "step %d", s);
}

Test(warmup, only_fixed_selections_are_warmed_up) {
  static const char *const bad[] = {"weir", "paper", "fixed:none:1:dense-ring",
                                    "fixed:qsgd:0.125:ag", "fixed:powersgd:4:dense-ring"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    weir_options options;
    weir_options_init(&options);
    options.policy = bad[i];
    options.warmup_steps = 10;
    weir_session *session;
    cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID, "%s", bad[i]);
    cr_assert(strstr(weir_last_error(), "codec that selects"), "%s", weir_last_error());
  }
}

static void *clip(void *user) {
  rank *r = user;
  weir_session *session = NULL;
  float g[4] = {3, 4, 0, 12};
  double norm = 0;
  r->status = session_open(&session, &r->options, 4);
  if (!r->status) r->status = weir_clip(session, (void *[]){g}, 13, &norm);
  if (r->status) (void)snprintf(r->error, sizeof r->error, "%s", weir_last_error());
  memcpy(r->first, g, sizeof g);
  r->cr[0] = norm;
  weir_session_free(session);
  return NULL;
}

/* Of four ranks each has half of the limit: a norm of 13 becomes one of 6.5. */
Test(warmup, ranks_clip_to_the_limit_over_the_root_of_their_number) {
  static rank ranks[RANKS];
  for (int r = 0; r < RANKS; r++)
    ranks[r].options = session_options(r, RANKS, "clip", "fixed:none:1:dense-ring");
  session_threads(ranks, sizeof *ranks, RANKS, clip);
  for (int r = 0; r < RANKS; r++) {
    const float *g = ranks[r].first;
    cr_assert_eq(ranks[r].status, WEIR_OK, "rank %d: %s", r, ranks[r].error);
    cr_assert(ranks[r].cr[0] == 13 && g[0] == 1.5F && g[1] == 2 && g[2] == 0 && g[3] == 6);
  }
}

/* (3, 4) and (12): a norm of 13. */
Test(warmup, clips_all_tensors_together) {
  weir_options options;
  weir_options_init(&options);
  options.policy = "bits"; /* which keeps its tensors in another order than they were registered */
  weir_session *session;
  uint32_t tensor;
  float bias[2] = {3, 4}, weight[1000] = {12}; /* long enough to be quantized, so it goes first */
  void *const gradients[3] = {bias, NULL, weight}, *const missing[3] = {bias, NULL, NULL};
  double norm = 0;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "bias", 2, &tensor), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "nothing", 0, &tensor), WEIR_OK);
  cr_assert_eq(weir_register_tensor(session, "weight", 1000, &tensor), WEIR_OK);
  cr_assert_eq(weir_clip(session, gradients, 1, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_clip(session, gradients, 0, &norm), WEIR_OK);
  cr_assert(norm == 13 && bias[0] == 3 && bias[1] == 4 && weight[0] == 12);
  cr_assert_eq(weir_clip(session, gradients, 13, &norm), WEIR_OK);
  cr_assert(norm == 13 && weight[0] == 12);
  cr_assert_eq(weir_clip(session, gradients, 6.5, &norm), WEIR_OK);
  cr_assert(norm == 13 && bias[0] == 1.5F && bias[1] == 2 && weight[0] == 6);
  cr_assert_eq(weir_clip(session, gradients, NAN, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_clip(session, gradients, -1, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_clip(session, NULL, 1, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_clip(session, missing, 1, NULL), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "tensor 2 (weight)"), "%s", weir_last_error());
  weight[0] = NAN;
  cr_assert_eq(weir_clip(session, gradients, 1, &norm), WEIR_OK);
  cr_assert(isnan(norm) && bias[0] == 1.5F);
  weir_session_free(session);
}
