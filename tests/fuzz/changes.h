/* Inputs that are changes to something sound, so that none grows old with a format: each a place
 * (two bytes), a length (a byte, up to 8) and as many bytes, or 9 to 15 and a limit's number. */
#ifndef WEIR_TESTS_CHANGES_H
#define WEIR_TESTS_CHANGES_H

#include <glib.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct blob {
  uint8_t *data;
  size_t bytes, at;
} blob;

/* Numbers at their limits, of either kind, are put where words lie. */
static const double reals[] = {-0.0, 1.0,   -1.0,   0.5,      1e-3,      1e-320, 1e18,
                               1e19, 1e300, -1e300, INFINITY, -INFINITY, NAN};
static const uint64_t wholes[] = {
    0, 1, 2, 3, 5, 17, 40, 64, 65, 1000, 1U << 31, UINT32_MAX, 1ULL << 53, 1ULL << 62, UINT64_MAX};

static inline uint64_t limit_of(uint8_t number) {
  const size_t i = number % (G_N_ELEMENTS(wholes) + G_N_ELEMENTS(reals));
  uint64_t word;
  if (i < G_N_ELEMENTS(wholes)) return wholes[i];
  memcpy(&word, &reals[i - G_N_ELEMENTS(wholes)], sizeof word);
  return word;
}

/* In memory of its own, that a byte too many is seen. */
static inline blob changed(const blob *sound, const uint8_t *data, size_t size) {
  enum { HEAD = 3, LIMIT = 9, LENGTHS = 16 };
  blob b = {.data = g_memdup2(sound->data, sound->bytes), .bytes = sound->bytes};
  while (size > HEAD) {
    size_t at = (size_t)(data[0] | data[1] << 8) % b.bytes, taken = 1;
    if (data[2] % LENGTHS >= LIMIT) {
      const uint64_t word = limit_of(data[HEAD]);
      at -= at % sizeof word;
      memcpy(b.data + at, &word, MIN(sizeof word, b.bytes - at));
    } else {
      taken = MIN((size_t)(data[2] % LENGTHS), size - HEAD);
      memcpy(b.data + at, data + HEAD, MIN(taken, b.bytes - at));
    }
    data += HEAD + taken;
    size -= HEAD + taken;
  }
  return b;
}

/* fuzz_runs_decision.c */
void feed_decision(size_t policy, const uint8_t *data, size_t size);

#endif
