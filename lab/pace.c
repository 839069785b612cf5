#include "lab/pace.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "base/base.h"

double weir_pace_clock(bool virtual_time) {
  return virtual_time ? weir_thread_cpu_s() : weir_now_s();
}

static void wait_until(double end) {
  const double whole = floor(end);
  const struct timespec at = {(time_t)whole, (long)((end - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

double weir_pace(bool virtual_time, double begin_s, double seconds) {
  const double end = begin_s + fmax(0, seconds);
  if (virtual_time && seconds > 0)
    weir_thread_pass(fmax(0, end - weir_thread_cpu_s()));
  else if (seconds > 0)
    wait_until(end);
  return fmax(0, weir_pace_clock(virtual_time) - end);
}
