/* Which cases of a grid a test tries: every one, or under a sanitizer, where each takes ten times
 * as long, a part drawn at random, another one in every run; a sixth of that under ThreadSanitizer,
 * as threads race in any case of a kind.  Of the dearest grids half is drawn in other builds, too.
 * The seed is printed; WEIR_SAMPLE_SEED draws the same part again, and with WEIR_SAMPLE_ALL every
 * case is tried. */
#ifndef WEIR_TESTS_SAMPLED_H
#define WEIR_TESTS_SAMPLED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

/* Whether the next case is tried, one in `of`. */
static inline bool sampled_one_in(uint64_t of) {
  static weir_rng rng;
  static bool seeded;
  if (of <= 1 || getenv("WEIR_SAMPLE_ALL") != NULL) return true;
  if (!seeded) {
    const char *given = getenv("WEIR_SAMPLE_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 10)
                                        : (uint64_t)(weir_now_s() * 1e6) ^ (uint64_t)getpid() << 32;
    rng = weir_rng_of(seed);
    (void)fprintf(stderr, "sampled: WEIR_SAMPLE_SEED=%llu\n", (unsigned long long)seed);
    seeded = true;
  }
  return weir_rng_below(&rng, of) == 0;
}

/* One in `of` under a sanitizer, else every one. */
static inline bool sampled(uint64_t of) {
#if defined(__SANITIZE_THREAD__)
  return sampled_one_in(6 * of);
#elif defined(__SANITIZE_ADDRESS__)
  return sampled_one_in(of);
#else
  (void)of;
  return true;
#endif
}

/* One in `of` under a sanitizer, else one in two: of the dearest grids. */
static inline bool sampled_of_dear(uint64_t of) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return sampled(of);
#else
  (void)of;
  return sampled_one_in(2);
#endif
}

#endif
