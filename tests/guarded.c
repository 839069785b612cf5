/* guarded COMMAND...: runs a test, and runs it again if it failed while the machine stood still.
 *
 * Tests of time-outs have ranks that must answer within a second or so.  On a machine that gives
 * nobody any time for as long (suspended, or with a host that has others to serve) they fail, which
 * says nothing about what they test.  A host may also hold up a single processor, with whatever
 * runs there, while the others go on.  This process and a thread of it on each processor, which
 * should wake every few milliseconds, tell: a failure during which one of them slept for long, too,
 * does not count.  A failure without such a gap is one, at once.
 *
 * The last line says what the test took of the processor, which the time on a busy machine does
 * not. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 5
#define STALL_S 0.2 /* the shortest time-out of any test is 0.5 s */

enum { SKIPPED = 77, NO_COMMAND = 127, PROCESSORS = 256 };

typedef struct watcher {
  _Atomic double last_s; /* when it looked */
  _Atomic double gap_s;  /* the longest time without a look since somebody put it to 0 */
} watcher;

static watcher watchers[PROCESSORS];
static int watching;

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(void) {
  const struct timespec time = {0, 10000000};
  (void)nanosleep(&time, NULL);
}

static void look(watcher *w) {
  const double seen_s = now_s(), gap_s = seen_s - atomic_load(&w->last_s);
  if (gap_s > atomic_load(&w->gap_s)) atomic_store(&w->gap_s, gap_s);
  atomic_store(&w->last_s, seen_s);
}

static void *watch(void *user) {
  for (;;) {
    nap();
    look(user);
  }
  return NULL;
}

/* On each processor that tests may run on, as far as there can be so many threads. */
static void start_watchers(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE && watching < PROCESSORS; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t there;
    CPU_ZERO(&there);
    CPU_SET(cpu, &there);
    pthread_attr_t attributes;
    pthread_t thread;
    watcher *w = &watchers[watching];
    atomic_store(&w->last_s, now_s());
    if (pthread_attr_init(&attributes) != 0) return;
    if (pthread_attr_setaffinity_np(&attributes, sizeof there, &there) == 0 &&
        pthread_create(&thread, &attributes, watch, w) == 0 && pthread_detach(thread) == 0)
      watching++;
    (void)pthread_attr_destroy(&attributes);
  }
}

static void forget_gaps(void) {
  for (int i = 0; i < watching; i++) atomic_store(&watchers[i].gap_s, 0);
}

/* One that has not looked for long sleeps still. */
static double longest_gap_s(void) {
  double longest_s = 0;
  for (int i = 0; i < watching; i++) {
    const double last_s = atomic_load(&watchers[i].last_s), still_s = now_s() - last_s;
    const double gap_s = atomic_load(&watchers[i].gap_s);
    if (still_s > longest_s) longest_s = still_s;
    if (gap_s > longest_s) longest_s = gap_s;
  }
  return longest_s;
}

static pid_t start(char **command) {
  const pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(NO_COMMAND);
  (void)execvp(command[0], command);
  (void)fprintf(stderr, "guarded: %s: %s\n", command[0], strerror(errno));
  _exit(NO_COMMAND);
}

/* Its exit code, or 128 and the signal that ended it. */
static int attend(pid_t pid, watcher *own) {
  int status = 0;
  pid_t ended = 0;
  while (ended == 0) {
    nap();
    ended = waitpid(pid, &status, WNOHANG);
    look(own); /* afterwards: a gap may lie before that look */
  }
  if (ended != pid) return NO_COMMAND;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Of all processes that have ended and were waited for, in all attempts. */
static void tell_processor(void) {
  struct rusage used;
  if (getrusage(RUSAGE_CHILDREN, &used) != 0) return;
  printf("guarded: processor %.1f s, of which the kernel %.1f s\n",
         seconds(used.ru_utime) + seconds(used.ru_stime), seconds(used.ru_stime));
}

int main(int argc, char **argv) {
  if (argc < 2) return NO_COMMAND;
  start_watchers();
  for (int attempt = 1;; attempt++) {
    forget_gaps();
    watcher own = {now_s(), 0}; /* from before it begins */
    const pid_t pid = start(argv + 1);
    const int code = pid < 0 ? NO_COMMAND : attend(pid, &own);
    if (code == 0 || code == SKIPPED || pid < 0 || attempt == ATTEMPTS) {
      tell_processor();
      return code;
    }
    const double others_s = longest_gap_s(), own_s = atomic_load(&own.gap_s);
    const double gap_s = own_s > others_s ? own_s : others_s;
    if (gap_s < STALL_S) {
      tell_processor();
      return code;
    }
    printf("guarded: it failed with %d, but the machine stood still for %.2f s: again\n", code,
           gap_s);
    (void)fflush(stdout);
  }
}
