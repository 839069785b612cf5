/* What must hold whatever the input is: else the fuzzer ends, and keeps the input. */
#ifndef WEIR_FUZZ_DEMAND_H
#define WEIR_FUZZ_DEMAND_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline void demand(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    abort();
  }
}

#endif
