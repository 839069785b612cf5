/* Random numbers that follow from a seed alone (xoshiro256**). */
#include <math.h>

#include "base/base.h"

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

weir_rng weir_rng_of(uint64_t seed) {
  weir_rng rng;
  for (int i = 0; i < 4; i++) {
    seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    rng.s[i] = z ^ (z >> 31);
  }
  return rng;
}

uint64_t weir_rng_next(weir_rng *rng) {
  uint64_t *s = rng->s;
  const uint64_t result = rotl(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return result;
}

double weir_rng_uniform(weir_rng *rng) { return (double)(weir_rng_next(rng) >> 11) * 0x1p-53; }

uint64_t weir_rng_below(weir_rng *rng, uint64_t bound) {
  const uint64_t reject_below = -bound % bound; /* 2^64 mod bound */
  uint64_t x;
  do {
    x = weir_rng_next(rng);
  } while (x < reject_below);
  return x % bound;
}

double weir_rng_normal(weir_rng *rng) {
  const double pi = 3.14159265358979323846;
  const double radius = sqrt(-2.0 * log(1.0 - weir_rng_uniform(rng)));
  return radius * cos(2.0 * pi * weir_rng_uniform(rng));
}
