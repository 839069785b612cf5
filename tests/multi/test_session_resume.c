/* Saving what ranks keep back, and going on from there: the same bits with as many ranks, the same
 * mass with others, and no word of a damaged state believed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "../held.h"
#include "device.h"
#include "engine/device.h"
#include "session/state.h"
#include "session_ranks.h"

#define RANKS_MOST 4
#define A 96 /* a matrix of 8 x 12 */
#define B 50
#define N (A + B)
#define STEPS 12

/* A state in memory. */
typedef struct blob {
  unsigned char *data;
  size_t bytes, room, at;
  size_t allowed; /* writing or reading fails beyond */
} blob;

static bool append(void *user, const void *data, size_t bytes) {
  blob *b = user;
  if (b->allowed > 0 && b->bytes + bytes > b->allowed) return false;
  if (b->bytes + bytes > b->room) {
    b->room = 2 * (b->bytes + bytes);
    b->data = realloc(b->data, b->room);
    if (b->data == NULL) abort();
  }
  memcpy(b->data + b->bytes, data, bytes);
  b->bytes += bytes;
  return true;
}

static bool take(void *user, void *data, size_t bytes) {
  blob *b = user;
  if (b->at + bytes > b->bytes) return false;
  memcpy(data, b->data + b->at, bytes);
  b->at += bytes;
  return true;
}

typedef struct job {
  const char *policy;
  double momentum;
  uint64_t warmup;
  int ranks, from, to; /* steps */
  bool swapped;        /* registered in the other order */
  bool nothing;        /* gradients are 0 */
  bool at_once;        /* decisions fall in the step that they follow from */
  unsigned where;      /* bit r: rank r has a device */
  bool forgets;        /* no error feedback */
  const blob *load;    /* RANKS_MOST of them; rank r takes r, r + takers, ...; NULL: none */
  int loads, takers;   /* ranks that load, the lowest; 0: all */
  blob *save;          /* at the end */
  double rescale;
  weir_status due; /* of the start */
  const char *words;
} job;

typedef struct worker {
  const job *job;
  int rank;
  char name[64];
  uint64_t digest, step;
  weir_plan plan;
  float last[N]; /* average */
  float sum[N];  /* of averages */
  double given[N];
  char wrong[600];
} worker;

#define EXPECT(condition, ...)                                   \
  do {                                                           \
    if (!(condition) && w->wrong[0] == 0)                        \
      (void)snprintf(w->wrong, sizeof w->wrong, "" __VA_ARGS__); \
  } while (0)

static test_device the_device; /* where a job names one */

static void fill(float *g, int rank, int step) {
  for (int i = 0; i < N; i++)
    g[i] = sinf((float)(i * 7 + 3 * rank) + 0.37f * (float)step) * (float)(1 + i % 5);
}

static void steady(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  (void)user;
  (void)step;
  *latency_s = 1e-3;
  *bandwidth = 1e8;
}

static weir_session *create(worker *w) {
  const job *j = w->job;
  weir_options options = session_options(w->rank, j->ranks, w->name, j->policy);
  weir_session *session = NULL;
  options.momentum_correction = j->momentum;
  options.warmup_steps = j->warmup;
  options.timeout_s = 30;
  options.error_feedback = !j->forgets;
  options.device = j->where >> w->rank & 1 ? 0 : -1;
  if (j->at_once) options.virtual_network = steady;
  weir_status status = weir_session_create(&session, &options);
  for (int i = 0; i < 2 && status == WEIR_OK; i++)
    status = (i == 0) != j->swapped ? weir_register_matrix(session, "a", 8, 12, NULL)
                                    : weir_register_tensor(session, "b", B, NULL);
  EXPECT(status == WEIR_OK, "%.500s", weir_last_error());
  return session;
}

/* Average g, which lies in memory of a device where `on` does. */
static weir_status average(weir_session *session, const job *j, float *g, float *on) {
  const test_device *device = j->where != 0 ? &the_device : NULL;
  if (on != g) device->put(on, g, N * sizeof *g);
  weir_status status = weir_submit(session, j->swapped ? 1 : 0, on);
  if (status == WEIR_OK) status = weir_submit(session, j->swapped ? 0 : 1, on + A);
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  if (on != g) device->get(g, on, N * sizeof *g);
  return status;
}

static void *work(void *arg) {
  worker *w = arg;
  const job *j = w->job;
  weir_session *session = create(w);
  const bool on_device = j->where >> w->rank & 1;
  float g[N];
  float *const on = on_device ? the_device.memory(sizeof g) : g;
  const int takers = j->takers > 0 ? j->takers : j->ranks;
  for (int i = w->rank; j->load != NULL && w->rank < takers && i < j->loads; i += takers) {
    blob mine = j->load[i];
    mine.at = 0;
    const weir_status status = weir_session_load(session, take, &mine);
    EXPECT(status == WEIR_OK && mine.at == mine.bytes, "load %d: %.500s", i, weir_last_error());
  }
  const weir_status started = weir_session_start(session);
  EXPECT(started == j->due && (j->words == NULL || strstr(weir_last_error(), j->words) != NULL),
         "start: %.500s", weir_last_error());
  for (int step = j->from; step < j->to && started == WEIR_OK; step++) {
    weir_step_info info = {.struct_size = sizeof info};
    fill(g, w->rank, step);
    if (j->nothing) memset(g, 0, sizeof g);
    for (int i = 0; i < N; i++) w->given[i] += (double)g[i];
    weir_status status = weir_step_begin(session, &info);
    w->step = info.step;
    w->plan = info.plan;
    if (status == WEIR_OK) status = average(session, j, g, on);
    EXPECT(status == WEIR_OK, "step %d: %.500s", step, weir_last_error());
    for (int i = 0; i < N; i++) w->sum[i] += g[i];
    memcpy(w->last, g, sizeof g);
  }
  if (j->rescale != 0)
    EXPECT(weir_rescale(session, j->rescale) == WEIR_OK, "rescale: %.500s", weir_last_error());
  if (started == WEIR_OK) (void)weir_residual_digest(session, &w->digest);
  if (j->save != NULL)
    EXPECT(weir_session_save(session, append, &j->save[w->rank]) == WEIR_OK, "save: %.500s",
           weir_last_error());
  weir_session_free(session);
  if (on_device) the_device.forget(on);
  return NULL;
}

static void run(const job *j, worker workers[RANKS_MOST]) {
  static int group;
  group++;
  memset(workers, 0, RANKS_MOST * sizeof *workers);
  for (int r = 0; r < j->ranks; r++) {
    workers[r].job = j;
    workers[r].rank = r;
    (void)snprintf(workers[r].name, sizeof workers[r].name, "resume %d", group);
  }
  session_threads(workers, sizeof *workers, j->ranks, work);
  for (int r = 0; r < j->ranks; r++)
    cr_assert(workers[r].wrong[0] == 0, "%s, rank %d: %s", j->policy, r, workers[r].wrong);
}

static void drop(blob *blobs) {
  for (int r = 0; r < RANKS_MOST; r++) free(blobs[r].data);
}

Test(session_resume, a_fixed_policy_goes_on_with_the_same_bits) {
  static const struct {
    const char *policy;
    double momentum;
    uint64_t warmup;
  } rows[] = {{"fixed:none:1:dense-ring", 0, 0},
              {"fixed:topk:0.1:ag", 0, 0},
              {"fixed:star:0.1:art-tree", 0, 0},
              {"fixed:qsgd:0.125:sra", 0, 0},
              {"fixed:powersgd:2:dense-ring", 0, 0},
              {"fixed:bilateral:2:dense-sra", 0, 0},
              {"fixed:whitened:0.125:sra", 0, 0},
              {"fixed:whitened:0.125:ag", 0.9, 0},
              {"fixed:dithered:0.125:sra", 0, 0},
              {"fixed:bf16:1:dense-tree", 0, 0},
              {"fixed:topk:0.05:ag", 0.9, 0},
              {"fixed:topk:0.01:ag", 0, 16},
              {"fixed:randomk:0.2:art-ring", 0, 0},
              {"bits:kmeans", 0, 0},
              {"fixed:qsgd:0.125:path=c.a2a.d.c.ag.d", 0, 0},
              {"fixed:topk:0.1:path=c.g.d.c.b.d", 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int swapped = 0; swapped < 2; swapped++) {
      blob blobs[RANKS_MOST] = {0};
      worker whole[RANKS_MOST], first[RANKS_MOST], second[RANKS_MOST];
      job j = {.policy = rows[i].policy,
               .momentum = rows[i].momentum,
               .warmup = rows[i].warmup,
               .ranks = 3,
               .to = STEPS};
      const bool adapts = strncmp(j.policy, "fixed", 5) != 0; /* then only the state is compared */
      run(&j, whole);
      j.to = 5;
      j.save = blobs;
      run(&j, first);
      j.from = 5;
      j.to = adapts ? 5 : STEPS;
      j.save = NULL;
      j.load = blobs;
      j.loads = 3;
      j.swapped = swapped && !adapts; /* codecs that look at the whole gradient see another order */
      if (swapped && strstr(j.policy, "none") == NULL && strstr(j.policy, "bf16") == NULL) {
        drop(blobs);
        continue;
      }
      run(&j, second);
      for (int r = 0; r < 3; r++) {
        if (adapts) {
          cr_assert_eq(second[r].digest, first[r].digest, "%s", j.policy);
          continue;
        }
        cr_assert_eq(second[r].step, STEPS - 1, "%s: step %d", j.policy, (int)second[r].step);
        if (!swapped) cr_assert_eq(second[r].digest, whole[r].digest, "%s", j.policy);
      }
      /* The last average is that of both ways; sums tell of all of them. */
      for (int e = 0; e < N && !adapts; e++) {
        const float sum = first[0].sum[e] + second[0].sum[e];
        cr_assert(fabsf(sum - whole[0].sum[e]) <= 1e-4f * (1 + fabsf(sum)), "%s: element %d: %g %g",
                  j.policy, e, (double)sum, (double)whole[0].sum[e]);
      }
      drop(blobs);
    }
}

/* What a device has saved a host goes on from, and the other way round, with the bits of hosts that
 * never stopped. */
Test(session_resume, devices_and_hosts_go_on_from_each_other) {
  static const struct {
    const char *policy;
    double momentum;
  } rows[] = {{"fixed:topk:0.1:ag", 0},           {"fixed:topk:0.05:ag", 0.9},
              {"fixed:none:1:dense-ring", 0.5},   {"fixed:qsgd:0.125:sra", 0},
              {"fixed:powersgd:2:dense-ring", 0}, {"fixed:star:0.1:art-tree", 0.9},
              {"fixed:bf16:1:dense-tree", 0},     {"groups:even=2:topk:0.1:ag-ring", 0}};
  static const unsigned where[][2] = {{7, 7}, {7, 0}, {0, 7}, {5, 2}};
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  the_device = test_device_open();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t k = 0; k < sizeof where / sizeof *where; k++) {
      blob blobs[RANKS_MOST] = {0};
      worker whole[RANKS_MOST], part[RANKS_MOST];
      job j = {.policy = rows[i].policy,
               .momentum = rows[i].momentum,
               .ranks = 3,
               .at_once = true,
               .rescale = -0.25,
               .to = STEPS};
      job first = j, second = j;
      run(&j, whole);
      first.where = where[k][0];
      first.rescale = 0;
      first.to = 5;
      first.save = blobs;
      run(&first, part);
      second.where = where[k][1];
      second.from = 5;
      second.load = blobs;
      second.loads = 3;
      run(&second, part);
      for (int r = 0; r < 3; r++) {
        cr_assert_eq(part[r].step, STEPS - 1, "%s: step %d", j.policy, (int)part[r].step);
        cr_assert_eq(part[r].digest, whole[r].digest, "%s, devices %u to %u", j.policy, where[k][0],
                     where[k][1]);
        cr_assert_eq(memcmp(part[r].last, whole[r].last, sizeof part[r].last), 0,
                     "%s, devices %u to %u", j.policy, where[k][0], where[k][1]);
      }
      drop(blobs);
    }
}

/* What was kept back before is sent in the first step of sessions without error feedback, and
 * nothing of that is kept. */
Test(session_resume, what_was_kept_back_is_sent_once_where_nothing_is_kept) {
  blob blobs[RANKS_MOST] = {0};
  worker before[RANKS_MOST], host[RANKS_MOST], mine[RANKS_MOST];
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  the_device = test_device_open();
  job j = {.policy = "fixed:qsgd:0.0625:ag", .ranks = 2, .to = 3, .save = blobs, .where = 1};
  run(&j, before);
  for (int steps = 0; steps < 4; steps++) {
    j = (job){.policy = "fixed:qsgd:0.125:ag",
              .ranks = 2,
              .from = 3,
              .to = 3 + steps,
              .nothing = true,
              .rescale = 0.5,
              .forgets = true,
              .load = blobs,
              .loads = 2};
    run(&j, host);
    j.where = 3;
    run(&j, mine);
    for (int r = 0; r < 2; r++) {
      cr_assert_eq(mine[r].digest, host[r].digest, "%d steps", steps);
      cr_assert_eq(memcmp(mine[r].sum, host[r].sum, sizeof host[r].sum), 0, "%d steps", steps);
    }
    for (int e = 0; e < N && steps > 0; e++) {
      const double kept = (before[0].given[e] + before[1].given[e]) / 2 - (double)before[0].sum[e];
      cr_assert(fabs(kept - (double)mine[0].sum[e]) < 0.5, "element %d: %g of %g", e,
                (double)mine[0].sum[e], kept);
      cr_assert(steps == 1 || mine[0].last[e] == 0, "it comes again");
    }
  }
  drop(blobs);
}

/* A scale changes residual and velocity there as it does on a host: the state that is saved then
 * makes the same average. */
Test(session_resume, a_scale_changes_what_devices_keep_back) {
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  the_device = test_device_open();
  for (int momentum = 0; momentum < 2; momentum++) {
    worker after[2][RANKS_MOST];
    uint64_t kept[2];
    for (int device = 0; device < 2; device++) {
      blob blobs[RANKS_MOST] = {0};
      worker before[RANKS_MOST];
      job j = {.policy = "fixed:topk:0.1:ag",
               .momentum = momentum ? 0.9 : 0,
               .ranks = 2,
               .to = 3,
               .where = device ? 3 : 0,
               .save = blobs,
               .rescale = 0.3};
      run(&j, before);
      kept[device] = before[1].digest;
      j = (job){.policy = "fixed:none:1:dense-ring",
                .momentum = j.momentum,
                .ranks = 2,
                .from = 3,
                .to = 5,
                .nothing = true,
                .load = blobs,
                .loads = 2};
      run(&j, after[device]);
      drop(blobs);
    }
    cr_assert_eq(kept[0], kept[1]);
    cr_assert_eq(memcmp(after[0][0].sum, after[1][0].sum, sizeof after[0][0].sum), 0);
  }
}

/* All gradients given, in the mean, have come out of the averages once a dense step has taken along
 * what was kept back. */
Test(session_resume, other_numbers_of_ranks_lose_nothing) {
  static const int numbers[][2] = {{4, 2}, {2, 4}, {3, 1}, {4, 3}};
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  the_device = test_device_open();
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    blob blobs[RANKS_MOST] = {0};
    worker before[RANKS_MOST], after[RANKS_MOST];
    job j = {.policy = "fixed:topk:0.1:ag",
             .ranks = numbers[i][0],
             .to = 4,
             .where = i < 2 ? 1 : 0,
             .save = blobs};
    run(&j, before);
    j = (job){.policy = "fixed:none:1:dense-ring",
              .ranks = numbers[i][1],
              .from = 4,
              .to = 5,
              .where = i > 0 ? 1 : 0,
              .nothing = true,
              .load = blobs,
              .loads = numbers[i][0]};
    run(&j, after);
    for (int e = 0; e < N; e++) {
      double given = 0;
      for (int r = 0; r < numbers[i][0]; r++) given += before[r].given[e];
      given /= numbers[i][0];
      const double got = (double)before[0].sum[e] + (double)after[0].sum[e];
      cr_assert(fabs(given - got) < 1e-5 * 20, "%d to %d ranks, element %d: %g given, %g came",
                numbers[i][0], numbers[i][1], e, given, got);
    }
    cr_assert_eq(after[0].step, 4);
    drop(blobs);
  }
}

/* Where one rank has loaded two states and another none, nobody goes on with powersgd's columns,
 * not even the rank that has loaded one: the next average is what it is where one rank has loaded
 * all three, which has their sum to send. */
Test(session_resume, columns_are_those_of_all_ranks_or_of_none) {
  blob blobs[RANKS_MOST] = {0};
  worker before[RANKS_MOST], after[3][RANKS_MOST];
  job j = {.policy = "fixed:powersgd:2:dense-ring", .ranks = 3, .to = 5, .save = blobs};
  run(&j, before);
  j = (job){.policy = j.policy, .ranks = 3, .from = 5, .to = 6, .load = blobs, .loads = 3};
  double off[3] = {0}, size = 0;
  for (j.takers = 3; j.takers > 0; j.takers--) run(&j, after[j.takers - 1]);
  for (int e = 0; e < N; e++) {
    size += fabs((double)after[0][0].last[e]);
    for (int t = 1; t < 3; t++)
      off[t] += fabs((double)after[t][0].last[e] - (double)after[0][0].last[e]);
  }
  cr_assert_lt(off[1], 1e-5 * size);
  cr_assert_gt(off[2], 1e-3 * size, "with the columns it is another average");
  drop(blobs);
}

/* Also where a switch has been decided on, is on its way, or has just come into force. */
Test(session_resume, the_plan_in_force_and_what_was_directed_go_on) {
  static const char *const policies[] = {
      "schedule:topk:0.1:ag-ring;step=7:none:1:dense-tree;step=9:star:0.2:art-ring",
      "groups:even=2:topk:0.1:ag-ring",
      "groups:turns=2:even=2:topk:0.1:ag-ring;layers:bf16:1:dense-ring"};
  for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
    for (int at = 1; at < STEPS; at++) {
      blob blobs[RANKS_MOST] = {0};
      worker whole[RANKS_MOST], part[RANKS_MOST];
      job j = {.policy = policies[i], .ranks = 3, .at_once = true, .to = STEPS};
      run(&j, whole);
      j.to = at;
      j.save = blobs;
      run(&j, part);
      j = (job){.policy = policies[i],
                .ranks = 3,
                .at_once = true,
                .from = at,
                .to = STEPS,
                .load = blobs,
                .loads = 3};
      run(&j, part);
      for (int r = 0; r < 3; r++) {
        cr_assert_eq(part[r].digest, whole[r].digest, "%s, saved at %d", j.policy, at);
        cr_assert_eq(memcmp(part[r].last, whole[r].last, sizeof part[r].last), 0, "%s, saved at %d",
                     j.policy, at);
      }
      drop(blobs);
    }
}

/* Under another policy, or with its tensors in another order, the plan that was in force is
 * none. */
Test(session_resume, a_plan_goes_on_under_its_policy_alone) {
  static const char *const others[] = {"groups:even=2:topk:0.1:ag-ring", "fixed:topk:0.1:ag-ring"};
  blob blobs[RANKS_MOST] = {0};
  worker first[RANKS_MOST], second[RANKS_MOST];
  job j = {.policy = others[0], .ranks = 2, .at_once = true, .to = 6, .save = blobs};
  run(&j, first);
  cr_assert_eq(first[0].plan.buckets, 2);
  for (int k = 0; k < 3; k++) {
    j = (job){.policy = others[k == 1],
              .ranks = 2,
              .from = 6,
              .to = 7,
              .load = blobs,
              .loads = 2,
              .swapped = k == 2};
    run(&j, second);
    cr_assert_eq(second[0].plan.buckets, k == 0 ? 2 : 0, "%d", k);
    cr_assert_eq(second[0].plan.id > 0, k == 0, "%d", k);
  }
  drop(blobs);
}

Test(session_resume, a_scale_changes_what_is_kept_back) {
  blob blobs[RANKS_MOST] = {0};
  worker before[RANKS_MOST], after[RANKS_MOST];
  job j = {.policy = "fixed:topk:0.1:ag", .ranks = 2, .to = 3, .save = blobs, .rescale = 0.25};
  run(&j, before);
  j = (job){.policy = "fixed:none:1:dense-ring",
            .ranks = 2,
            .from = 3,
            .to = 4,
            .nothing = true,
            .load = blobs,
            .loads = 2};
  run(&j, after);
  for (int e = 0; e < N; e++) {
    const double kept = (before[0].given[e] + before[1].given[e]) / 2 - (double)before[0].sum[e];
    cr_assert(fabs(kept / 4 - (double)after[0].sum[e]) < 1e-4, "element %d: %g of %g", e,
              (double)after[0].sum[e], kept);
  }
  drop(blobs);
  worker one = {.job = &j, .name = "rescale"};
  j = (job){.policy = "weir", .ranks = 1};
  weir_session *session = create(&one);
  cr_assert_eq(weir_rescale(session, 2), WEIR_E_STATE);
  cr_assert_eq(weir_session_start(session), WEIR_OK);
  cr_assert_eq(weir_rescale(session, 0), WEIR_E_INVALID);
  cr_assert_eq(weir_rescale(session, NAN), WEIR_E_INVALID);
  cr_assert_eq(weir_rescale(session, 1e-60), WEIR_E_INVALID);
  cr_assert_eq(weir_rescale(session, 0.5), WEIR_OK);
  float g[N] = {0};
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  cr_assert_eq(weir_rescale(session, 0.5), WEIR_OK, "nothing was handed in yet");
  cr_assert_eq(weir_submit(session, 0, g), WEIR_OK);
  cr_assert_eq(weir_rescale(session, 0.5), WEIR_E_STATE);
  blob b = {0};
  cr_assert_eq(weir_session_save(session, append, &b), WEIR_E_STATE);
  weir_session_free(session);
}

Test(session_resume, states_that_do_not_belong_together_end_the_start) {
  blob blobs[RANKS_MOST] = {0}, later[RANKS_MOST] = {0}, mixed[RANKS_MOST];
  worker workers[RANKS_MOST];
  job j = {.policy = "fixed:topk:0.1:ag", .ranks = 3, .to = 2, .save = blobs};
  run(&j, workers);
  j.to = 3;
  j.save = later;
  run(&j, workers);
  j = (job){.policy = "fixed:topk:0.1:ag",
            .ranks = 3,
            .load = blobs,
            .loads = 2,
            .due = WEIR_E_MISMATCH,
            .words = "3 ranks have saved a state, and 2 states were loaded"};
  run(&j, workers);
  memcpy(mixed, blobs, sizeof mixed);
  mixed[2] = blobs[1];
  j.load = mixed;
  j.loads = 3;
  j.words = "each is to be loaded by one rank, once";
  run(&j, workers);
  mixed[2] = later[2];
  j.words = "rank 2 goes on from step 3 of 3 ranks, others from step 2 of 3";
  run(&j, workers);
  drop(blobs);
  drop(later);
}

/* A session that loads what it is given; nothing is taken of what is refused. */
static weir_status try_to_load(const unsigned char *data, size_t bytes) {
  const job j = {.policy = "fixed:topk:0.1:ag", .ranks = 1};
  worker w = {.job = &j, .name = "hostile"};
  weir_session *session = create(&w);
  blob b = {.data = (unsigned char *)data, .bytes = bytes};
  const weir_status status = weir_session_load(session, take, &b);
  char said[512];
  (void)snprintf(said, sizeof said, "%s", weir_last_error());
  uint64_t fresh, digest;
  if (status != WEIR_OK) {
    cr_assert_str_not_empty(said);
    cr_assert_eq(weir_session_start(session), WEIR_OK);
    cr_assert_eq(weir_residual_digest(session, &digest), WEIR_OK);
    weir_session *other = create(&w);
    cr_assert_eq(weir_session_start(other), WEIR_OK);
    cr_assert_eq(weir_residual_digest(other, &fresh), WEIR_OK);
    cr_assert_eq(digest, fresh);
    weir_session_free(other);
  }
  weir_session_free(session);
  return status;
}

/* Where things lie in a state: its header, then the first tensor, which is called "a". */
enum {
  IN_VERSION = 8,
  IN_FLAGS = 12,
  IN_RANK = 16,
  IN_SIZE = 24,
  IN_COLUMNS = 64,
  IN_PLAN = 80,
  IN_PENDING = IN_PLAN + (int)sizeof(weir_plan),
  IN_LEARNT = 168,
  IN_GAIN = 176,
  IN_FOLLOWED = 184,
  IN_NAME = 192,
  IN_RESIDUAL = IN_NAME + 24 + 1
};

/* Its checksum is that of what it holds now. */
static void seal(blob *b) {
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, b->data, b->bytes - sizeof hash);
  memcpy(b->data + b->bytes - sizeof hash, &hash, sizeof hash);
}

/* A checksum can be worked out by whoever changes a state. */
Test(session_resume, a_right_checksum_makes_no_state_good) {
  static const uint32_t version = 5, flags = 8, codec = 255, three = 3, one = 1, action = 77,
                        bits = UINT32_C(0x7f800000);
  static const uint64_t size = 0, rank = 1, most = UINT64_MAX, long_name = 4096;
  static const double gains[] = {NAN, -0.5, 1.5}, infinite = INFINITY;
  const struct {
    const char *what;
    size_t at;
    const void *value;
    size_t bytes;
  } wrong[] = {{"magic", 0, "XEIRSAVE", 8},
               {"version", IN_VERSION, &version, 4},
               {"flags", IN_FLAGS, &flags, 4},
               {"a rank beyond the group", IN_RANK, &rank, 8},
               {"a group of none", IN_SIZE, &size, 8},
               {"columns", IN_COLUMNS, &most, 8},
               {"codec", IN_PLAN + offsetof(weir_plan, codec), &codec, 4},
               {"ratio", IN_PLAN + offsetof(weir_plan, cr), &infinite, 8},
               {"more buckets than tensors", IN_PLAN + offsetof(weir_plan, buckets), &three, 4},
               {"a bucket without a table", IN_PLAN + offsetof(weir_plan, buckets), &one, 4},
               {"what is directed", IN_PENDING + offsetof(weir_directive, action), &action, 4},
               {"a switch to no plan", IN_PENDING + offsetof(weir_directive, action), &one, 4},
               {"bytes learnt", IN_LEARNT, &most, 8},
               {"gain", IN_GAIN, &gains[0], 8},
               {"gain", IN_GAIN, &gains[1], 8},
               {"gain", IN_GAIN, &gains[2], 8},
               {"averages followed, and no squares", IN_FOLLOWED, &most, 8},
               {"a long name", IN_NAME, &long_name, 8},
               {"an endless name", IN_NAME, &most, 8},
               {"rows", IN_NAME + 8, &size, 8},
               {"elements", IN_NAME + 16, &most, 8},
               {"name", IN_NAME + 24, "b", 1},
               {"residual", IN_RESIDUAL, &bits, 4}};
  blob blobs[RANKS_MOST] = {0};
  worker workers[RANKS_MOST];
  const job j = {.policy = "fixed:topk:0.1:ag", .ranks = 1, .to = 3, .save = blobs};
  run(&j, workers);
  blob copy = {.data = malloc(blobs[0].bytes), .bytes = blobs[0].bytes};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    memcpy(copy.data, blobs[0].data, copy.bytes);
    seal(&copy);
    cr_assert_eq(try_to_load(copy.data, copy.bytes), WEIR_OK, "%s", weir_last_error());
    memcpy(copy.data + wrong[i].at, wrong[i].value, wrong[i].bytes);
    seal(&copy);
    const weir_status status = try_to_load(copy.data, copy.bytes);
    cr_assert(status == WEIR_E_PARSE || status == WEIR_E_MISMATCH, "%s: %s", wrong[i].what,
              weir_status_name(status));
  }
  free(copy.data);
  drop(blobs);
}

/* What elements usually are lies behind a tensor's residual, and is finite at the most. */
Test(session_resume, what_elements_usually_are_is_finite) {
  static const uint16_t largest = 0x7f7f, infinite = 0x7f80;
  blob blobs[RANKS_MOST] = {0};
  worker workers[RANKS_MOST];
  const job j = {.policy = "fixed:whitened:0.125:sra", .ranks = 1, .to = 3, .save = blobs};
  run(&j, workers);
  unsigned char *const square = blobs[0].data + IN_RESIDUAL + A * sizeof(float);
  memcpy(square, &largest, sizeof largest);
  seal(&blobs[0]);
  cr_assert_eq(try_to_load(blobs[0].data, blobs[0].bytes), WEIR_OK, "%s", weir_last_error());
  memcpy(square, &infinite, sizeof infinite);
  seal(&blobs[0]);
  cr_assert_eq(try_to_load(blobs[0].data, blobs[0].bytes), WEIR_E_PARSE);
  drop(blobs);
}

static uint64_t followed_in(const blob *b) {
  uint64_t followed;
  memcpy(&followed, b->data + IN_FOLLOWED, sizeof followed);
  return followed;
}

/* How long it has been followed goes on, too.  A schedule follows it before it comes to a stage
 * that asks for it. */
Test(session_resume, how_long_what_elements_usually_are_has_been_followed) {
  static const char *const policies[] = {"fixed:whitened:0.125:sra",
                                         "schedule:bf16:1:dense-ring;step=9:whitened:0.125:sra"};
  for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
    blob blobs[RANKS_MOST] = {0}, later[RANKS_MOST] = {0};
    worker workers[RANKS_MOST];
    job j = {.policy = policies[k], .ranks = 2, .to = 3, .save = blobs};
    run(&j, workers);
    cr_assert_eq(followed_in(&blobs[1]), 3);
    j = (job){.policy = j.policy,
              .ranks = 2,
              .from = 3,
              .to = 5,
              .load = blobs,
              .loads = 2,
              .save = later};
    run(&j, workers);
    cr_assert_eq(followed_in(&later[1]), 5);
    drop(blobs);
    drop(later);
  }
  blob blobs[RANKS_MOST] = {0};
  worker workers[RANKS_MOST];
  const job j = {.policy = "fixed:companded:0.125:sra", .ranks = 2, .to = 3, .save = blobs};
  run(&j, workers);
  cr_assert_eq(followed_in(&blobs[1]), 0);
  drop(blobs);
}

/* Ranks whose states have other plans in force begin with the policy's first one. */
Test(session_resume, a_plan_goes_on_where_all_ranks_have_it) {
  blob blobs[RANKS_MOST] = {0};
  worker workers[RANKS_MOST];
  const uint32_t id = 9;
  job j = {.policy = "groups:even=2:topk:0.1:ag-ring",
           .ranks = 2,
           .at_once = true,
           .to = 6,
           .save = blobs};
  run(&j, workers);
  j = (job){.policy = j.policy, .ranks = 2, .from = 6, .to = 7, .load = blobs, .loads = 2};
  for (int k = 0; k < 2; k++) {
    run(&j, workers);
    cr_assert_eq(workers[1].plan.buckets, k == 0 ? 2 : 0);
    memcpy(blobs[1].data + IN_PLAN + offsetof(weir_plan, id), &id, sizeof id);
    seal(&blobs[1]);
  }
  drop(blobs);
}

/* One rank takes the states of two, of which the later or the earlier one has nothing kept back:
 * what the other one has is half of what each of two had in the average, and so of one. */
Test(session_resume, states_with_and_without_anything_kept_back_add_up) {
  for (int empty = 0; empty < 2; empty++) {
    blob blobs[RANKS_MOST] = {0};
    worker before[RANKS_MOST], after[RANKS_MOST];
    float kept[A];
    uint32_t flags = 2;
    job j = {.policy = "fixed:topk:0.1:ag", .ranks = 2, .to = 3, .save = blobs};
    run(&j, before);
    memcpy(kept, blobs[1 - empty].data + IN_RESIDUAL, sizeof kept);
    memcpy(blobs[empty].data + IN_FLAGS, &flags, sizeof flags);
    memset(blobs[empty].data + IN_RESIDUAL, 0, A * sizeof(float));
    memset(blobs[empty].data + IN_RESIDUAL + A * sizeof(float) + 24 + 1, 0, B * sizeof(float));
    seal(&blobs[empty]);
    j = (job){.policy = "fixed:none:1:dense-ring",
              .ranks = 1,
              .from = 3,
              .to = 4,
              .nothing = true,
              .load = blobs,
              .loads = 2};
    run(&j, after);
    for (int e = 0; e < A; e++)
      cr_assert_float_eq(after[0].last[e], kept[e] / 2, 1e-6, "element %d, rank %d has none", e,
                         empty);
    drop(blobs);
  }
}

static weir_status not_saved(weir_device *device, float *r, float *u) {
  (void)device, (void)r, (void)u;
  return WEIR_E_TIMEOUT;
}

static weir_status not_loaded(weir_device *device, const float *r, const float *u) {
  (void)device, (void)r, (void)u;
  return WEIR_E_TIMEOUT;
}

static weir_status not_scaled(weir_device *device, float factor, bool r) {
  (void)device, (void)factor, (void)r;
  return WEIR_E_INTERNAL;
}

/* What a device does not do is told, and nothing is written. */
Test(session_resume, a_device_that_fails_is_told_of) {
  const job j = {.policy = "fixed:topk:0.1:ag", .ranks = 1, .where = 1};
  worker w = {.job = &j, .name = "fails"};
  blob b = {0};
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  weir_session *session = create(&w);
  weir_device_ops failing = *session->device_ops;
  session->device_ops = &failing;
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  failing.save = not_saved;
  failing.scale = not_scaled;
  cr_assert_eq(weir_session_save(session, append, &b), WEIR_E_TIMEOUT);
  cr_assert_eq(b.bytes, 0);
  cr_assert_eq(weir_rescale(session, 0.5), WEIR_E_INTERNAL);
  failing.save = test_device_open().ops->save;
  cr_assert_eq(weir_session_save(session, append, &b), WEIR_OK, "%s", weir_last_error());
  weir_session_free(session);
  session = create(&w);
  session->device_ops = &failing;
  failing.load = not_loaded;
  cr_assert_eq(weir_session_load(session, take, &b), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_session_start(session), WEIR_E_TIMEOUT);
  weir_session_free(session);
  free(b.data);
}

/* Whatever can be registered and saved can be loaded: long names, and one name twice. */
Test(session_resume, any_names_come_back) {
  const job j = {.policy = "fixed:topk:0.1:ag", .ranks = 1};
  char name[6000];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  blob b = {0};
  uint64_t digest[2];
  for (int again = 0; again < 2; again++) {
    worker w = {.job = &j, .name = "names"};
    weir_session *session = create(&w);
    float g[N + 12];
    for (int i = 0; i < N + 12; i++) g[i] = (float)(i % 13) - 5.5F;
    cr_assert_eq(weir_register_tensor(session, name, 5, NULL), WEIR_OK);
    cr_assert_eq(weir_register_tensor(session, "b", 7, NULL), WEIR_OK);
    if (again) cr_assert_eq(weir_session_load(session, take, &b), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
    if (!again) {
      cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
      cr_assert_eq(weir_submit(session, 0, g), WEIR_OK);
      cr_assert_eq(weir_submit(session, 1, g + A), WEIR_OK);
      cr_assert_eq(weir_submit(session, 2, g + N), WEIR_OK);
      cr_assert_eq(weir_submit(session, 3, g + N + 5), WEIR_OK);
      cr_assert_eq(weir_step_end(session, NULL), WEIR_OK);
      cr_assert_eq(weir_session_save(session, append, &b), WEIR_OK);
    }
    cr_assert_eq(weir_residual_digest(session, &digest[again]), WEIR_OK);
    weir_session_free(session);
  }
  cr_assert_eq(digest[0], digest[1]);
  free(b.data);
}

Test(session_resume, damaged_states_are_refused) {
  blob blobs[RANKS_MOST] = {0};
  worker workers[RANKS_MOST];
  const job j = {.policy = "fixed:topk:0.1:ag", .ranks = 1, .to = 3, .save = blobs};
  run(&j, workers);
  const size_t bytes = blobs[0].bytes;
  FREED unsigned char *copy = malloc(bytes);
  cr_assert_eq(try_to_load(blobs[0].data, bytes), WEIR_OK, "%s", weir_last_error());
  for (size_t cut = 0; cut < bytes; cut += 1 + cut / 8)
    cr_assert_eq(try_to_load(blobs[0].data, cut), WEIR_E_IO, "%zu of %zu bytes", cut, bytes);
  for (size_t at = 0; at < bytes; at += 1 + (at > 200) * 13) {
    memcpy(copy, blobs[0].data, bytes);
    copy[at] ^= (unsigned char)(1u << at % 8);
    const weir_status status = try_to_load(copy, bytes);
    cr_assert(status == WEIR_E_PARSE || status == WEIR_E_MISMATCH || status == WEIR_E_IO,
              "byte %zu: %s", at, weir_status_name(status));
  }
  drop(blobs);
}

Test(session_resume, what_cannot_be_saved_or_loaded_is_said) {
  const job j = {.policy = "fixed:topk:0.1:ag", .ranks = 1};
  worker w = {.job = &j, .name = "said"};
  blob b = {.allowed = 100};
  weir_session *session = create(&w);
  cr_assert_eq(weir_session_save(session, append, &b), WEIR_E_STATE);
  cr_assert_eq(weir_session_load(session, NULL, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_session_start(session), WEIR_OK);
  cr_assert_eq(weir_session_load(session, take, &b), WEIR_E_STATE);
  cr_assert_eq(weir_session_save(session, NULL, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_session_save(session, append, &b), WEIR_E_IO);
  cr_assert_str_eq(weir_last_error(), "a session's state could not be written");
  weir_session_free(session);
  free(b.data);

  blob blobs[RANKS_MOST] = {0};
  worker workers[RANKS_MOST];
  const job momentum = {
      .policy = "fixed:topk:0.1:ag", .momentum = 0.9, .ranks = 1, .to = 2, .save = blobs};
  run(&momentum, workers);
  session = create(&w);
  cr_assert_eq(weir_session_load(session, take, &blobs[0]), WEIR_E_MISMATCH);
  cr_assert_str_eq(weir_last_error(), "the state has a velocity, and momentum_correction is 0");
  cr_assert_eq(weir_register_tensor(session, "c", 1, NULL), WEIR_OK);
  blobs[0].at = 0;
  cr_assert_eq(weir_session_load(session, take, &blobs[0]), WEIR_E_MISMATCH);
  cr_assert_str_eq(weir_last_error(),
                   "the state is of 2 tensors with 146 elements; 3 with 147 are registered");
  weir_session_free(session);
  drop(blobs);
}
