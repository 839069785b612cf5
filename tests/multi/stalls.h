/* Is the machine itself standing still?  A process that should wake every few milliseconds writes
 * down how late it was: a test of time-outs can then tell its own faults from a machine that gave
 * nobody any time (a suspended machine, a debugger, far too much load). */
#ifndef WEIR_TESTS_STALLS_H
#define WEIR_TESTS_STALLS_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#define STALLS_EVERY_S 0.01
#define STALLS_LONGEST_S 0.2 /* longer gaps spoil a test whose time-outs are half a second */

typedef struct stalls {
  _Atomic double awake_s; /* gaps beyond a stall do not count */
  _Atomic double worst_s; /* longest gap since somebody put it to 0 */
  pid_t pid;
} stalls;

static inline stalls *stalls_start(void) {
  stalls *w = group_shared(sizeof *w);
  (void)fflush(NULL);
  const pid_t pid = fork();
  if (pid < 0) abort();
  if (pid > 0) {
    w->pid = pid;
    return w;
  }
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (double last_s = weir_now_s();;) {
    group_nap(STALLS_EVERY_S);
    const double now_s = weir_now_s(), gap_s = now_s - last_s;
    last_s = now_s;
    if (gap_s > atomic_load(&w->worst_s)) atomic_store(&w->worst_s, gap_s);
    atomic_store(&w->awake_s,
                 atomic_load(&w->awake_s) + (gap_s < STALLS_LONGEST_S ? gap_s : STALLS_LONGEST_S));
  }
}

static inline void stalls_stop(stalls *w) {
  (void)kill(w->pid, SIGKILL);
  (void)waitpid(w->pid, NULL, 0);
  (void)munmap(w, sizeof *w);
}

/* Until a counter has got so far, or for so long. */
static inline void stalls_wait(const atomic_int *count, int due, double limit_s) {
  const double until_s = weir_now_s() + limit_s;
  while (atomic_load(count) < due && weir_now_s() < until_s) group_nap(0.001);
}

/* Wait for a process; after so many seconds in which the machine was awake it is killed: false. */
static inline bool stalls_ends(stalls *w, pid_t pid, double limit_s) {
  const double until_s = atomic_load(&w->awake_s) + limit_s;
  while (atomic_load(&w->awake_s) < until_s) {
    if (waitpid(pid, NULL, WNOHANG) == pid) return true;
    group_nap(0.002);
  }
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, NULL, 0);
  return false;
}

/* A number from the environment. */
static inline uint64_t stalls_asked(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

#endif
