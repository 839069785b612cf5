/* The public API with buckets: who runs what, what is told of it, what is refused meanwhile. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/parallel.h>

#include "session_ranks.h"

#define RANKS 3
#define TENSORS 4
#define NUMEL 500

typedef struct worker {
  int rank;
  const char *group, *policy;
  weir_status status; /* out */
  char message[512];
  float sum; /* of the updates of the last step */
  size_t buckets, timed;
  uint32_t ran[12]; /* buckets of each step */
  double forward_s; /* of the last step, as the three that follow */
  double last_gap_s[TENSORS];
  weir_bucket_times last[TENSORS];
  size_t last_buckets;
  double gap_s[TENSORS];
  weir_bucket_times times[TENSORS];
  weir_plan_bucket table[TENSORS];
  weir_step_info info;
  weir_status in_mid_step;
  float g[TENSORS][NUMEL];
} worker;

static void pause_ms(long ms) {
  const struct timespec time = {0, ms * 1000000};
  (void)nanosleep(&time, NULL);
}

static weir_status zeros(void *user, size_t first, size_t count, void *results) {
  (void)user, (void)first;
  memset(results, 0, count);
  return WEIR_OK;
}

static weir_status one_step(worker *w, weir_session *session, int step) {
  weir_status status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_mark_backward(session);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++) {
    if (t == 2) pause_ms(4); /* the backward pass takes its time for this one */
    for (size_t i = 0; i < NUMEL; i++) w->g[t][i] = (float)((int)i % 7 + w->rank + step);
    status = weir_submit(session, t, w->g[t]);
  }
  if (status != WEIR_OK) return status;
  char byte = 0, all[RANKS];
  weir_status refused = weir_allgather_bytes(session, &byte, 1, all);
  const weir_map map = {.struct_size = sizeof map, .count = RANKS, .bytes = 1, .fn = zeros};
  if (refused == WEIR_E_STATE) refused = weir_parallel_map(session, &map, all);
  void *gradients[TENSORS];
  for (uint32_t t = 0; t < TENSORS; t++) gradients[t] = w->g[t];
  if (refused == WEIR_E_STATE) refused = weir_clip(session, gradients, 0, NULL);
  if (step == 5) w->in_mid_step = refused;
  if (step < 5 && refused != WEIR_OK && refused != WEIR_E_STATE) return refused;
  w->info.struct_size = sizeof w->info;
  return weir_step_end(session, &w->info);
}

static weir_status tell(worker *w, const weir_session *session) {
  weir_status status = weir_current_buckets(session, w->table, TENSORS, &w->buckets);
  if (status == WEIR_OK)
    status = weir_last_step_times(session, &w->forward_s, w->last_gap_s, w->last, TENSORS,
                                  &w->last_buckets);
  if (status == WEIR_OK) status = weir_current_times(session, w->times, TENSORS, &w->timed);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_tensor_gap(session, t, &w->gap_s[t]);
  return status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  options.profile = true;
  weir_session *session;
  w->status = weir_session_create(&session, &options);
  for (int t = 0; t < TENSORS && w->status == WEIR_OK; t++) {
    char name[16];
    snprintf(name, sizeof name, "t%d", t);
    w->status = weir_register_tensor(session, name, NUMEL, NULL);
  }
  if (w->status == WEIR_OK) w->status = weir_session_start(session);
  double gap;
  size_t count;
  if (w->status == WEIR_OK &&
      (weir_tensor_gap(session, 0, &gap) != WEIR_E_STATE ||
       weir_current_times(session, w->times, TENSORS, &count) != WEIR_E_STATE))
    w->status = WEIR_E_INTERNAL;
  if (w->status == WEIR_OK && weir_last_step_times(session, &w->forward_s, w->last_gap_s, w->last,
                                                   TENSORS, &count) != WEIR_E_STATE)
    w->status = WEIR_E_INTERNAL;
  for (int step = 0; step < 12 && w->status == WEIR_OK; step++) {
    w->status = one_step(w, session, step);
    w->ran[step] = w->info.plan.buckets;
  }
  if (w->status == WEIR_OK) w->status = tell(w, session);
  if (w->status == WEIR_OK && (weir_tensor_gap(session, TENSORS, &gap) != WEIR_E_INVALID ||
                               weir_current_buckets(session, NULL, 1, &count) != WEIR_E_INVALID))
    w->status = WEIR_E_INTERNAL;
  if (w->status != WEIR_OK) snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

static void run(worker *w, const char *policy) {
  static int turn;
  static char group[64];
  snprintf(group, sizeof group, "session buckets %d %d", (int)getpid(), turn++);
  for (int r = 0; r < RANKS; r++) w[r] = (worker){.rank = r, .group = group, .policy = policy};
  session_threads(w, sizeof *w, RANKS, work);
}

Test(session_buckets, layers_are_exchanged_as_they_come) {
  static worker w[RANKS];
  run(w, "groups:layers:none:1:dense-ring");
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    cr_assert_eq(w[r].buckets, TENSORS);
    cr_assert_eq(w[r].timed, TENSORS);
    cr_assert_eq(w[r].info.plan.buckets, TENSORS);
    for (uint32_t k = 0; k < TENSORS; k++) cr_assert_eq(w[r].table[k].end, k + 1);
    /* While buckets are under way the communicator is theirs. */
    cr_assert_eq(w[r].in_mid_step, WEIR_E_STATE);
    for (size_t t = 0; t < TENSORS; t++)
      for (size_t i = 0; i < NUMEL; i++) /* ranks 0, 1, 2 in step 11: the mean is rank 1's */
        cr_assert_float_eq(w[r].g[t][i], (float)(i % 7) + 12, 1e-5);
    cr_assert_geq(w[r].gap_s[2], 0.004);
    cr_assert_geq(w[r].times[2].launched_s, 0.004);
    cr_assert_leq(w[r].times[0].launched_s, w[r].times[3].launched_s);
    cr_assert_eq(w[r].last_buckets, TENSORS);
    double exchange_s = 0;
    for (size_t k = 0; k < TENSORS; k++) exchange_s += w[r].last[k].exchange_s;
    cr_assert_float_eq(w[r].info.exchange_s, exchange_s, 1e-9, "%g, not %g", w[r].info.exchange_s,
                       exchange_s);
    cr_assert_geq(w[r].last_gap_s[2], 0.004);
    cr_assert_geq(w[r].last[2].launched_s, w[r].forward_s + 0.004);
  }
}

Test(session_buckets, divisions_take_turns) {
  static worker w[RANKS];
  run(w, "groups:turns=2:layers:none:1:dense-ring;even=1:none:1:dense-ring");
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    cr_assert_eq(w[r].ran[0], 0); /* the first step knows of no table yet */
    size_t times[TENSORS + 1] = {0}, changes = 0;
    for (size_t step = 0; step < 12; step++) {
      cr_assert_leq(w[r].ran[step], TENSORS);
      times[w[r].ran[step]]++;
      changes += step > 0 && w[r].ran[step] != w[r].ran[step - 1];
      cr_assert_eq(w[r].ran[step], w[0].ran[step]);
    }
    /* A turn is 2 steps and those until its end has been heard of. */
    cr_assert_geq(times[TENSORS], 2);
    cr_assert_geq(times[1], 2);
    cr_assert_geq(changes, 2);
    for (size_t t = 0; t < TENSORS; t++)
      for (size_t i = 0; i < NUMEL; i++)
        cr_assert_float_eq(w[r].g[t][i], (float)(i % 7) + 12, 1e-5);
  }
}

/* Every turn is a plan of its own, those too that divide as the one before them. */
Test(session_buckets, equal_divisions_are_turns_of_their_own) {
  static worker w[RANKS];
  run(w, "groups:turns=2:even=1:none:1:dense-ring;even=1:none:1:dense-ring");
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    cr_assert_geq(w[r].info.plan.id, 3u); /* 12 steps, of which a turn has 3 */
  }
}

Test(session_buckets, without_groups_there_is_one) {
  static worker w[RANKS];
  run(w, "fixed:none:1:dense-tree");
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    cr_assert_eq(w[r].buckets, 0);
    cr_assert_eq(w[r].timed, 1);
    cr_assert_eq(w[r].in_mid_step, WEIR_OK); /* nothing is under way before weir_step_end */
    cr_assert_eq(w[r].info.exchange_s, w[r].info.comm_s);
  }
}

Test(session_buckets, a_table_that_cannot_be_read_ends_the_start) {
  static worker w[RANKS];
  run(w, "groups:/nowhere/at/all.csv");
  cr_assert_eq(w[0].status, WEIR_E_IO, "%s", w[0].message);
  for (int r = 1; r < RANKS; r++) cr_assert_neq(w[r].status, WEIR_OK);
}
