/* Asking for what a pass over several arrays reads, before it gets there.
 *
 * A processor asks for the lines of a stream by itself, but only so many at a time, and in a
 * virtual machine not always as many: passes over data in the last cache took 1.0 or 1.2 times as
 * long for thousands of runs in turn, on one processor and not on its neighbour.  Asked for 4 KiB
 * ahead they take the lesser time always, and data in memory come a tenth sooner.  Nearer than that
 * slows data in memory down; lines that are only written are better not asked for. */
#ifndef WEIR_CPU_AHEAD_H
#define WEIR_CPU_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_READ_AHEAD 4096

static inline void fetch_ahead(const void *at) {
  __builtin_prefetch((const void *)((uintptr_t)at + WEIR_READ_AHEAD), 0, 3);
}

/* The lines of count floats, so many floats ahead.  Beside long work on each element it has to be
 * done like this, for many lines in a row: asked for one by one in between, data in memory came too
 * late for thousands of runs in turn, and then stochastic rounding took 1.6 times as long. */
static inline void fetch_all(const float *x, size_t ahead, size_t count) {
  for (size_t i = 0; i < count; i += 64 / sizeof *x)
    __builtin_prefetch((const void *)((uintptr_t)x + (ahead + i) * sizeof *x), 0, 3);
}

#endif
