#include "moo/operators.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

void weir_moo_seed(weir_moo_rng *rng, uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    rng->s[i] = z ^ (z >> 31);
  }
}

uint64_t weir_moo_next(weir_moo_rng *rng) {
  uint64_t *s = rng->s;
  const uint64_t result = rotate_left(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate_left(s[3], 45);
  return result;
}

double weir_moo_uniform(weir_moo_rng *rng) { return (double)(weir_moo_next(rng) >> 11) * 0x1p-53; }

uint64_t weir_moo_below(weir_moo_rng *rng, uint64_t bound) {
  const uint64_t refuse = (UINT64_MAX - bound + 1) % bound; /* 2^64 mod bound: the uneven rest */
  for (;;) {
    const uint64_t r = weir_moo_next(rng);
    if (r >= refuse) return r % bound;
  }
}

static double clamp(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

/* Spread factor for a child whose distance to its bound allows at most `room` (>= 1) parents'
 * half-distances: the polynomial distribution cut there, at u in [0, 1). */
static double spread(double u, double room, double eta) {
  const double alpha = 2.0 - pow(room, -(eta + 1.0));
  const double v = u * alpha;
  const double base = v <= 1.0 ? v : 1.0 / (2.0 - v);
  return pow(base, 1.0 / (eta + 1.0));
}

static void cross_real(weir_moo_rng *rng, double eta, double low, double high, double *xa,
                       double *xb) {
  const double a = *xa < *xb ? *xa : *xb, b = *xa < *xb ? *xb : *xa;
  const double width = b - a;
  if (width <= 1e-14 * (high - low)) return; /* equal parents have equal children */
  const double u = weir_moo_uniform(rng);
  const double spread_a = spread(u, 1.0 + 2.0 * (a - low) / width, eta);
  const double spread_b = spread(u, 1.0 + 2.0 * (high - b) / width, eta);
  const double child_a = clamp(0.5 * (a + b - spread_a * width), low, high);
  const double child_b = clamp(0.5 * (a + b + spread_b * width), low, high);
  if (weir_moo_next(rng) >> 63) {
    *xa = child_b;
    *xb = child_a;
  } else {
    *xa = child_a;
    *xb = child_b;
  }
}

void weir_moo_crossover(weir_moo_rng *rng, const weir_moo_problem *problem, double eta, double *xa,
                        double *xb, uint32_t *ca, uint32_t *cb) {
  for (size_t i = 0; i < problem->reals; i++)
    if (weir_moo_next(rng) >> 63)
      cross_real(rng, eta, problem->lower[i], problem->upper[i], &xa[i], &xb[i]);
  for (size_t i = 0; i < problem->categoricals; i++)
    if (weir_moo_next(rng) >> 63) {
      const uint32_t kept = ca[i];
      ca[i] = cb[i];
      cb[i] = kept;
    }
}

static double mutate_real(weir_moo_rng *rng, double eta, double low, double high, double x) {
  const double width = high - low;
  if (!(width > 0.0)) return low;
  const double u = weir_moo_uniform(rng), power = eta + 1.0;
  double delta;
  if (u < 0.5) {
    const double room = 1.0 - (x - low) / width;
    delta = pow(2.0 * u + (1.0 - 2.0 * u) * pow(room, power), 1.0 / power) - 1.0;
  } else {
    const double room = 1.0 - (high - x) / width;
    delta = 1.0 - pow(2.0 * (1.0 - u) + (2.0 * u - 1.0) * pow(room, power), 1.0 / power);
  }
  return clamp(x + delta * width, low, high);
}

void weir_moo_mutate(weir_moo_rng *rng, const weir_moo_problem *problem, double probability,
                     double eta, double *x, uint32_t *category) {
  for (size_t i = 0; i < problem->reals; i++)
    if (weir_moo_uniform(rng) < probability)
      x[i] = mutate_real(rng, eta, problem->lower[i], problem->upper[i], x[i]);
  for (size_t i = 0; i < problem->categoricals; i++)
    if (weir_moo_uniform(rng) < probability)
      category[i] = (uint32_t)weir_moo_below(rng, problem->values[i]);
}
