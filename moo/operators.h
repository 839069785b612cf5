/* Random numbers and variation operators of NSGA-II. */
#ifndef WEIR_MOO_OPERATORS_H
#define WEIR_MOO_OPERATORS_H

#include <stdint.h>

#include "moo/nsga2.h"

/* xoshiro256** seeded by splitmix64 (Blackman and Vigna); this folder includes no other. */
typedef struct weir_moo_rng {
  uint64_t s[4];
} weir_moo_rng;
void weir_moo_seed(weir_moo_rng *rng, uint64_t seed);
uint64_t weir_moo_next(weir_moo_rng *rng);
double weir_moo_uniform(weir_moo_rng *rng);                 /* [0, 1) */
uint64_t weir_moo_below(weir_moo_rng *rng, uint64_t bound); /* [0, bound), bound >= 1 */

/* Simulated binary crossover with bounds (Deb and Agrawal 1995) of real variables, each crossed
 * with probability 1/2; uniform crossover of categorical ones.  a and b are changed in place. */
void weir_moo_crossover(weir_moo_rng *rng, const weir_moo_problem *problem, double eta, double *xa,
                        double *xb, uint32_t *ca, uint32_t *cb);

/* Polynomial mutation with bounds (Deb and Goyal 1996) of real variables; random reset of
 * categorical ones.  Each variable with the given probability. */
void weir_moo_mutate(weir_moo_rng *rng, const weir_moo_problem *problem, double probability,
                     double eta, double *x, uint32_t *category);

#endif
