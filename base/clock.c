/* Clocks: the time of day that never goes back, and what a thread has used of its processor. */
#include <time.h>

#include "base/base.h"

static double seconds(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double weir_now_s(void) { return seconds(CLOCK_MONOTONIC); }

static _Thread_local double passed;

double weir_thread_cpu_s(void) { return seconds(CLOCK_THREAD_CPUTIME_ID) + passed; }

void weir_thread_pass(double seconds) { passed += seconds; }
