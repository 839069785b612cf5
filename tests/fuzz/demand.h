/* What must hold whatever the input is: else the fuzzer ends, and keeps the input.  What was
 * refused last stands beside it. */
#ifndef WEIR_FUZZ_DEMAND_H
#define WEIR_FUZZ_DEMAND_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

static inline void demand(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "%s: %s (%s)\n", program_invocation_short_name, what, weir_last_error());
    abort();
  }
}

#endif
