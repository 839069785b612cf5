/* Which cases of a grid a test tries: every one, or under a sanitizer, where each takes ten times
 * as long, a part drawn at random, another one in every run; a third of that under ThreadSanitizer,
 * as threads race in any case of a kind.  The seed is printed; WEIR_SAMPLE_SEED draws the same part
 * again. */
#ifndef WEIR_TESTS_SAMPLED_H
#define WEIR_TESTS_SAMPLED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

/* Whether the next case is tried, one in `of` under a sanitizer. */
static inline bool sampled(uint64_t of) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static weir_rng rng;
  static bool seeded;
  if (!seeded) {
    const char *given = getenv("WEIR_SAMPLE_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 10)
                                        : (uint64_t)(weir_now_s() * 1e6) ^ (uint64_t)getpid() << 32;
    rng = weir_rng_of(seed);
    (void)fprintf(stderr, "sampled: WEIR_SAMPLE_SEED=%llu\n", (unsigned long long)seed);
    seeded = true;
  }
#if defined(__SANITIZE_THREAD__)
  of *= 3;
#endif
  return weir_rng_below(&rng, of) == 0;
#else
  (void)of;
  return true;
#endif
}

#endif
