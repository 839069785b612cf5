/* The engine's threads: the wire's goes before computing, where the system lets it, and none works
 * in what another one does. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../planned.h"
#include "engine/state.h"
#include "group.h"
#include "script.h"

#define THREADS 64

typedef struct view {
  int tid[THREADS], nice[THREADS], count;
} view;

static view look(void) {
  view v = {.count = 0};
  DIR *tasks = opendir("/proc/self/task");
  cr_assert_not_null(tasks);
  for (struct dirent *e; (e = readdir(tasks)) != NULL && v.count < THREADS;) {
    const int tid = atoi(e->d_name);
    if (tid <= 0) continue;
    v.tid[v.count] = tid;
    v.nice[v.count++] = getpriority(PRIO_PROCESS, (id_t)tid);
  }
  (void)closedir(tasks);
  return v;
}

/* How many threads there are now and not before, and which of them have this priority. */
static void news(const view *before, int nice, int *threads, int *matching) {
  const view now = look();
  *threads = *matching = 0;
  for (int i = 0; i < now.count; i++) {
    bool known = false;
    for (int k = 0; k < before->count; k++) known = known || before->tid[k] == now.tid[i];
    if (known) continue;
    ++*threads;
    *matching += now.nice[i] == nice;
  }
}

static void wait_a_little(void) {
  const struct timespec pause = {0, 5000000};
  (void)nanosleep(&pause, NULL);
}

static void *try_it(void *granted) {
  *(bool *)granted = setpriority(PRIO_PROCESS, (id_t)gettid(), -10) == 0;
  return NULL;
}

Test(lanes, the_wires_thread_alone_goes_first) {
  bool granted = false;
  pthread_t other;
  cr_assert_eq(pthread_create(&other, NULL, try_it, &granted), 0);
  (void)pthread_join(other, NULL);
  const int own = getpriority(PRIO_PROCESS, 0);
  cr_assert_neq(own, -10);
  const view before = look();
  weir_engine engine = {.pool = NULL};
  weir_lanes *lanes = NULL;
  cr_assert_eq(weir_lanes_create(&lanes, &engine), WEIR_OK);
  int threads = 0, first = 0, ordinary = 0;
  for (int i = 0; i < 2000; i++) { /* a thread does it itself, when it has begun */
    news(&before, -10, &threads, &first);
    if (threads == 2 && first == (granted ? 1 : 0)) break;
    wait_a_little();
  }
  cr_assert_eq(threads, 2, "%d threads", threads);
  cr_assert_eq(first, granted ? 1 : 0, "%d of them at -10", first);
  news(&before, own, &threads, &ordinary);
  cr_assert_eq(ordinary, 2 - first);
  weir_lanes_free(lanes);
  for (int i = 0; i < 2000; i++) { /* the kernel's end of a thread comes after its join */
    news(&before, -10, &threads, &first);
    if (threads == 0) break;
    wait_a_little();
  }
  cr_assert_eq(threads, 0, "%d threads are left", threads);
}

/* --- what is lent on one thread --------------------------------------------------------------- */

/* Tensors of 256 elements, each a bucket but for the last two. */
#define LENT_TENSORS ((size_t)4)
#define LENT_EACH ((size_t)256)

static bool always(void *user) {
  (void)user;
  return true;
}

/* A step in which rank 1 has all of its own ready before rank 0 hands in anything. */
static weir_status lent_step(member *m, weir_engine *engine, float *g, float *before) {
  const size_t n = LENT_TENSORS * LENT_EACH;
  weir_status status = weir_engine_step_begin(engine, NULL);
  if (before != NULL) memcpy(before, weir_engine_residual(engine), n * sizeof *before);
  for (size_t i = 0; i < n; i++) g[i] = (float)((i * 37 + (size_t)m->rank * 11) % 64) - 31.5F;
  if (m->rank == 0) group_barrier(m);
  for (uint32_t t = 0; status == WEIR_OK && t < LENT_TENSORS; t++)
    status = weir_engine_submit(engine, t, g + t * LENT_EACH);
  if (m->rank == 1) group_barrier(m);
  return status == WEIR_OK ? weir_engine_step_end(engine, NULL) : status;
}

static void lent_body(member *m) {
  const size_t n = LENT_TENSORS * LENT_EACH;
  const size_t offset[] = {0, LENT_EACH, 2 * LENT_EACH, 3 * LENT_EACH, n};
  script s = {.steps = m->group->shared, .count = 3};
  FREED float *memory = calloc(2 * n, sizeof *memory);
  float *const g = memory, *const before = memory + n;
  weir_engine_config config = {.comm = m->comm,
                               .layout = {LENT_TENSORS, offset},
                               .first_plan = s.steps[0].plan,
                               .first_buckets = s.steps[0].table,
                               .hooks = script_hooks(&s)};
  config.hooks.want_curve = always;
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "%s", weir_last_error());
  for (s.at = 0; s.at < s.count && !group_failed_by_now(m); s.at++)
    if (lent_step(m, engine, g, s.at == 2 ? before : NULL) != WEIR_OK)
      group_fail(m->group, "rank %d, step %d: %s", m->rank, s.at, weir_last_error());
  /* What was fed is the gradient, of which g is no more, and the residual. */
  float *const fed = before;
  for (size_t i = 0; i < n; i++) fed[i] += (float)((i * 37 + (size_t)m->rank * 11) % 64) - 31.5F;
  size_t bytes[2] = {n * sizeof *fed, n * sizeof *fed};
  FREED float *all = calloc(2 * n, sizeof *all);
  memcpy(all + (size_t)m->rank * n, fed, n * sizeof *fed);
  if (group_failed_by_now(m) ||
      weir_allgather(m->comm, all, n * sizeof *all, bytes, NULL) != WEIR_OK)
    group_fail(m->group, "the ranks do not come together");
  for (size_t i = 0; i < LENT_EACH; i++)
    if (fabsf(2 * g[i] - (all[i] + all[n + i])) > 1e-3F)
      group_fail(m->group, "rank %d, element %zu: %g of a sum of %g", m->rank, i,
                 (double)(2 * g[i]), (double)(all[i] + all[n + i]));
  weir_engine_free(engine);
}

/* Where a gain curve is wanted the caller feeds what another thread selects from.  What the
 * caller's context was lent for that is a bucket's sum, into which it draws nothing later on. */
Test(lanes, what_is_lent_to_a_thread_goes_back) {
  static script_step steps[3];
  const weir_plan star = planned("star:0.5:art-ring"), none = planned("none:1:dense-ring"),
                  drawn = planned("randomk:0.5:art-ring");
  for (int i = 0; i < 3; i++) {
    size_t count = 0;
    script_add_bucket(&steps[i], &count, 1, i < 2 ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER,
                      i < 2 ? &star : &none);
    script_add_bucket(&steps[i], &count, 2, WEIR_PLACE_CALLER, i < 2 ? &none : &drawn);
    script_add_bucket(&steps[i], &count, LENT_TENSORS, WEIR_PLACE_CALLER, &none);
    script_close(&steps[i], count, (uint64_t)i);
    steps[i].action = WEIR_ACTION_SWITCH;
  }
  group_well(2, lent_body, steps, NULL);
}
