/* What labs are told of passes over elements: how many, and that what they make of them counts. */
#include <criterion/criterion.h>
#include <time.h>

#include "base/base.h"
#include "group.h"

#define TENSORS 3
enum { RANKS = 3, STEPS = 2 };
static const size_t offset[TENSORS + 1] = {0, 700, 1000, 4000};

/* Passes over all of the gradient: of a rank that selects, and of one that does not. */
typedef struct expected {
  const char *plan;
  size_t passes, passes_of_others;
} expected;

/* Error feedback, compressing, adding up, averaging.  A dense sum is made in the hops, and only the
 * root of art-* selects. */
static const expected arms[] = {{"none:1:dense-ring", 2, 2},   {"bf16:1:dense-tree", 2, 2},
                                {"topk:0.1:ag", 4, 4},         {"qsgd:0.125:ag", 4, 4},
                                {"qsgd:0.125:sra", 4, 4},      {"star:0.1:art-ring", 4, 3},
                                {"randomk:0.1:art-tree", 3, 3}};

typedef struct listener {
  atomic_size_t elements;
  atomic_int early; /* told of what is yet to begin */
  double pause_s;   /* made of each telling on the rank's own thread */
  double paused_s;  /* there */
  pthread_t caller;
} listener;

static void hear(void *user, double begin_s, size_t elements) {
  listener *l = user;
  const double now = weir_now_s();
  atomic_fetch_add(&l->elements, elements);
  if (begin_s > now) atomic_fetch_add(&l->early, 1);
  if (!pthread_equal(pthread_self(), l->caller)) return;
  const struct timespec pause = {0, (long)(l->pause_s * 1e9)};
  (void)nanosleep(&pause, NULL);
  l->paused_s += weir_now_s() - now;
}

typedef struct course {
  const expected *arm;
  bool buckets;
} course;

static weir_status create(member *m, const course *c, listener *l, weir_engine **engine) {
  weir_plan plan;
  weir_plan_bucket table[TENSORS];
  weir_status status = weir_plan_parse(c->arm->plan, &plan);
  if (status) return status;
  for (uint32_t t = 0; t < TENSORS; t++) {
    table[t] = (weir_plan_bucket){.end = t + 1, .place = t % WEIR_PLACE_COUNT};
    weir_bucket_set_plan(&table[t], &plan);
  }
  if (c->buckets) {
    weir_plan_of_bucket(&table[0], &plan);
    plan.buckets = TENSORS;
    plan.layout = weir_buckets_name(table, TENSORS);
  }
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .first_plan = plan,
                                     .first_buckets = c->buckets ? table : NULL,
                                     .hooks = {.user = l, .passed = hear}};
  return weir_engine_create(engine, &config);
}

static weir_status step(weir_engine *engine, float *gradient, weir_step_info *info) {
  for (size_t i = 0; i < offset[TENSORS]; i++) gradient[i] = (float)(i % 17) - 8.0f;
  weir_status status = weir_engine_step_begin(engine, info);
  for (uint32_t t = 0; t < TENSORS && !status; t++)
    status = weir_engine_submit(engine, t, gradient + offset[t]);
  return status ? status : weir_engine_step_end(engine, info);
}

static void check(member *m, const course *c, listener *l, const weir_step_info *info, int number) {
  /* star's root is the step's number modulo ranks. */
  const size_t passes = number % RANKS == m->rank ? c->arm->passes : c->arm->passes_of_others;
  const size_t heard = atomic_exchange(&l->elements, 0);
  if (heard != passes * offset[TENSORS])
    group_fail(m->group, "%s, rank %d: %zu elements, not %zu passes over %zu", c->arm->plan,
               m->rank, heard, passes, offset[TENSORS]);
  if (atomic_load(&l->early)) group_fail(m->group, "%s: told before it began", c->arm->plan);
  if (!(l->paused_s > 0 && info->compress_s >= l->paused_s))
    group_fail(m->group, "%s, rank %d: %g s of compression, of which %g were waited for",
               c->arm->plan, m->rank, info->compress_s, l->paused_s);
  l->paused_s = 0;
}

static void run_rank(member *m) {
  const course *c = m->group->shared;
  listener l = {.pause_s = 2e-3, .caller = pthread_self()};
  weir_engine *engine = NULL;
  float gradient[4000];
  weir_status status = create(m, c, &l, &engine);
  for (int i = 0; i < STEPS && !status; i++) {
    weir_step_info info;
    status = step(engine, gradient, &info);
    if (!status) check(m, c, &l, &info, i);
  }
  if (status) group_fail(m->group, "%s, rank %d: %s", c->arm->plan, m->rank, weir_last_error());
  group_barrier(m);
  weir_engine_free(engine);
}

static void run(bool buckets) {
  for (size_t a = 0; a < sizeof arms / sizeof *arms; a++) {
    course c = {&arms[a], buckets};
    group_well(RANKS, run_rank, &c, NULL);
  }
}

Test(passed, whole_gradients) { run(false); }
Test(passed, groups_in_three_threads) { run(true); }
