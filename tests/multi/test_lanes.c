/* The engine's threads: the wire's goes before computing, where the system lets it. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "engine/state.h"

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
