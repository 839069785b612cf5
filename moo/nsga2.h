/* NSGA-II (Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm,
 * 2002) over mixed real and categorical variables, minimising 1 to WEIR_MOO_OBJECTIVES objectives.
 * No globals, no I/O, nothing but libc and libm: the same problem, options and seed give the same
 * front on every run. */
#ifndef WEIR_MOO_NSGA2_H
#define WEIR_MOO_NSGA2_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_MOO_OBJECTIVES 8

typedef struct weir_moo_problem {
  size_t reals;           /* real variables, may be 0 */
  const double *lower;    /* reals entries, finite */
  const double *upper;    /* reals entries, upper >= lower */
  size_t categoricals;    /* categorical variables, may be 0 (not both) */
  const uint32_t *values; /* [categoricals]: variable i takes 0 .. values[i]-1, values[i] >= 1 */
  size_t objectives;
  void *user;
  /* Fills in f[0..objectives) and returns the constraint violation: 0 when feasible, otherwise a
   * positive measure of how far off.  NaN or an infinite value, of either sign, as an objective or
   * as the violation, counts as an infinite violation.  By Deb's rules such an individual loses to
   * all others, is the equal of all of its kind whatever its objectives, and stays in a population
   * only while there is nothing better; it is never in the front that is returned.
   * Must be a pure function of its arguments. */
  double (*evaluate)(void *user, const double *x, const uint32_t *category, double *f);
} weir_moo_problem;

typedef struct weir_moo_options {
  size_t population;    /* even, >= 4; default 100 */
  size_t generations;   /* default 250 */
  double crossover;     /* probability of a pair to be crossed, default 0.9 */
  double eta_crossover; /* distribution index of SBX, default 15 */
  double mutation;      /* probability per variable; 0: 1 / number of variables (default) */
  double eta_mutation;  /* distribution index of polynomial mutation, default 20 */
  uint64_t seed;        /* default 1 */
} weir_moo_options;
void weir_moo_options_init(weir_moo_options *options);

/* The first front of the last population, duplicates in objective space left out. */
typedef struct weir_moo_front {
  size_t count;       /* 0 only when nothing feasible was found */
  double *x;          /* count * reals */
  uint32_t *category; /* count * categoricals */
  double *f;          /* count * objectives */
} weir_moo_front;

enum { WEIR_MOO_OK = 0, WEIR_MOO_INVALID = 1, WEIR_MOO_NOMEM = 2 };

/* One of the codes above; on failure *front is empty.  Release with weir_moo_front_free. */
int weir_moo_nsga2(const weir_moo_problem *problem, const weir_moo_options *options,
                   weir_moo_front *front);
void weir_moo_front_free(weir_moo_front *front); /* fine on an empty one */

#endif
