/* Pacing: computing takes as long as on a processor of a given speed. */
#ifndef WEIR_LAB_PACE_H
#define WEIR_LAB_PACE_H

#include <stdbool.h>

/* What the pace is measured by: weir_now_s, or in virtual time the thread's weir_thread_cpu_s. */
double weir_pace_clock(bool virtual_time);
/* Let what began at begin_s take so many seconds at least: what this processor is faster by is
 * waited for (it is free meanwhile), or in virtual time passed at once.  Returns by how much it is
 * over later than that: because the thread woke up late, its processor is slower or was busy with
 * others, or no time was asked for. */
double weir_pace(bool virtual_time, double begin_s, double seconds);

#endif
