#include "lab/pace.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "base/base.h"

double weir_pace_clock(bool virtual_time) {
  return virtual_time ? weir_thread_cpu_s() : weir_now_s();
}

double weir_pace(bool virtual_time, double begin_s, double seconds) {
  if (!(seconds > 0)) return 0;
  const double end = begin_s + seconds, whole = floor(end);
  if (virtual_time) {
    weir_thread_pass(fmax(0, end - weir_thread_cpu_s()));
    return 0;
  }
  const struct timespec at = {(time_t)whole, (long)((end - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
  return fmax(0, weir_now_s() - end);
}
