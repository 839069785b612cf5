/* Policy schedule: stages come at their steps and epochs on all ranks, and what they kept back goes
 * on from one to the next. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "controller/stages.h"
#include "engine/engine.h"
#include "session/state.h"
#include "session_ranks.h"

#define RANKS 3
#define N 200
#define STEPS 24

typedef struct worker {
  const char *policy, *group;
  uint64_t steps_per_epoch;
  uint64_t memory_limit;
  int rank;
  char plan[STEPS][WEIR_PLAN_TEXT_MAX];
  double given[N], moved[N], left[N]; /* gradients; ranks * averages; the residual at the end */
  weir_status status;
  char message[512];
} worker;

static float gradient(int rank, uint64_t step, size_t i) {
  return (float)((int)((i * 37 + step * 11 + (size_t)rank * 101) % 64) - 32);
}

static weir_status one_step(worker *w, weir_session *session, uint64_t step) {
  float g[N];
  weir_step_info info = {.struct_size = sizeof info};
  weir_status status = WEIR_OK;
  if (step % w->steps_per_epoch == 0)
    status = weir_set_epoch(session, (uint32_t)(step / w->steps_per_epoch));
  if (status == WEIR_OK) status = weir_step_begin(session, NULL);
  for (size_t i = 0; i < N; i++) w->given[i] += (double)(g[i] = gradient(w->rank, step, i));
  if (status == WEIR_OK) status = weir_submit(session, 0, g);
  if (status == WEIR_OK) status = weir_step_end(session, &info);
  for (size_t i = 0; i < N; i++) w->moved[i] += RANKS * (double)g[i];
  if (status == WEIR_OK) weir_plan_format(&info.plan, w->plan[step]);
  return status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  weir_session *session = NULL;
  options.memory_limit = w->memory_limit;
  w->status = session_open(&session, &options, N);
  for (uint64_t step = 0; step < STEPS && w->status == WEIR_OK; step++)
    w->status = one_step(w, session, step);
  for (size_t i = 0; i < N && w->status == WEIR_OK; i++)
    w->left[i] = (double)weir_engine_residual(session->engine)[i];
  (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

static void run(worker w[RANKS], const char *policy, uint64_t steps_per_epoch, uint64_t limit) {
  static int serial;
  char group[64];
  (void)snprintf(group, sizeof group, "schedule-%d-%d", (int)getpid(), serial++);
  for (int r = 0; r < RANKS; r++) {
    w[r] = (worker){.policy = policy,
                    .group = group,
                    .steps_per_epoch = steps_per_epoch,
                    .memory_limit = limit,
                    .rank = r};
  }
  session_threads(w, sizeof *w, RANKS, work);
}

/* One letter a step: d dense, t topk, q qsgd. */
static void expect(worker w[RANKS], const char *letters) {
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "%s", w[r].message);
    for (size_t s = 0; s < STEPS; s++) {
      const char *codec = letters[s] == 'd' ? "none:" : letters[s] == 't' ? "topk:" : "qsgd:";
      cr_assert_eq(strncmp(w[r].plan[s], codec, strlen(codec)), 0, "rank %d, step %zu: %s", r, s,
                   w[r].plan[s]);
    }
  }
  for (size_t i = 0; i < N; i++) { /* nothing is lost or counted twice */
    double given = 0, kept = 0;
    for (int r = 0; r < RANKS; r++) {
      given += w[r].given[i];
      kept += w[r].left[i];
    }
    cr_assert_float_eq(w[0].moved[i] + kept, given, 0.02, "element %zu: %g + %g, not %g", i,
                       w[0].moved[i], kept, given);
  }
}

Test(schedule, stages_begin_at_their_steps) {
  static worker w[RANKS];
  run(w, "schedule:topk:0.1:ag;step=6:qsgd:0.25:ag;step=15:none:1:dense-ring", STEPS, 0);
  expect(w, "ttttttqqqqqqqqqddddddddd");
  run(w, "schedule:none:1:dense;step=5:topk:0.1:ag", STEPS, 0); /* the algorithm is left open */
  expect(w, "dddddttttttttttttttttttt");
  run(w, "schedule:none:1:dense-ring;step=1000:topk:0.1:ag", STEPS, 0); /* never comes */
  expect(w, "dddddddddddddddddddddddd");
}

/* An epoch is known when its first step has been seen, and rides on the second's headers. */
Test(schedule, stages_begin_with_the_third_step_of_their_epochs) {
  static worker w[RANKS];
  run(w, "schedule:topk:0.1:ag;epoch=1:qsgd:0.25:ag;epoch=2:none:1:dense-ring", 8, 0);
  expect(w, "ttttttttttqqqqqqqqdddddd");
}

/* Of 200 elements, 800 bytes: a later stage counts as much as the first. */
Test(schedule, a_stage_that_takes_too_much_memory_is_refused_at_the_start) {
  static worker w[RANKS];
  run(w, "schedule:none:1:dense-ring;step=9:qsgd:0.25:ag", STEPS, 900);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_E_UNSUPPORTED, "%d: %s", (int)w[r].status, w[r].message);
    cr_assert_not_null(strstr(w[r].message, "qsgd:0.25:ag"), "%s", w[r].message);
  }
}

/* Not in the middle of the training, when its turn comes. */
Test(schedule, a_stage_that_the_group_cannot_run_is_refused_at_the_start) {
  weir_options options =
      session_options(0, 1, "stages", "schedule:none:1:dense-ring;step=2:none:1:native");
  weir_session *session = NULL;
  cr_assert_eq(session_open(&session, &options, N), WEIR_E_UNSUPPORTED);
  cr_assert(strstr(weir_last_error(), "collective native needs") != NULL, "%s", weir_last_error());
  weir_session_free(session);
}

Test(schedule, text) {
  weir_stages s;
  cr_assert_eq(weir_stages_parse("mstopk:0.01:hitopk;epoch=13:none:1:dense-torus", &s), WEIR_OK);
  cr_assert(s.count == 2 && !s.by_step && s.stage[0].from == 0 && s.stage[1].from == 13);
  cr_assert_eq(s.stage[0].plan.codec, WEIR_CODEC_MSTOPK);
  cr_assert_eq(s.stage[1].plan.codec, WEIR_CODEC_NONE);
  cr_assert_eq(weir_stages_at(&s, 0), 0);
  cr_assert_eq(weir_stages_at(&s, 12), 0);
  cr_assert_eq(weir_stages_at(&s, 13), 1);
  cr_assert_eq(weir_stages_at(&s, UINT64_MAX), 1);
  static const char *const refused[][2] = {
      {"", ""},
      {"none:1", ""},
      {"none:1:dense;", "expected epoch=N:PLAN"},
      {"none:1:dense;none:1:dense", "expected epoch=N:PLAN"},
      {"epoch=0:none:1:dense", ""},
      {"none:1:dense;epoch=:none:1:dense", "number"},
      {"none:1:dense;epoch=-1:none:1:dense", "number"},
      {"none:1:dense;epoch=1x:none:1:dense", "number"},
      {"none:1:dense;epoch=99999999999999999999:none:1:dense", "number"},
      {"none:1:dense;epoch=0:none:1:dense", "more than"},
      {"none:1:dense;epoch=3:none:1:dense;epoch=3:none:1:dense", "more than"},
      {"none:1:dense;epoch=3:none:1:dense;step=4:none:1:dense", "not by both"},
      {"none:1:dense;step=3:frob:1:dense", "frob"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const weir_status status = weir_stages_parse(refused[i][0], &s);
    cr_assert(status == WEIR_E_INVALID || status == WEIR_E_PARSE, "%s", refused[i][0]);
    cr_assert_not_null(strstr(weir_last_error(), refused[i][1]), "%s: %s", refused[i][0],
                       weir_last_error());
  }
  char many[1024] = "none:1:dense", longest[512];
  for (int i = 1; i <= WEIR_STAGES_MAX; i++)
    (void)snprintf(many + strlen(many), sizeof many - strlen(many), ";step=%d:none:1:dense", i);
  cr_assert_eq(weir_stages_parse(many, &s), WEIR_E_INVALID);
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  cr_assert_eq(weir_stages_parse(longest, &s), WEIR_E_INVALID);
}
