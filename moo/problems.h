/* Standard test problems with known fronts. */
#ifndef WEIR_MOO_PROBLEMS_H
#define WEIR_MOO_PROBLEMS_H

#include "moo/nsga2.h"

/* Zitzler, Deb, Thiele 2000 (ZDT) and Deb, Thiele, Laumanns, Zitzler 2002 (DTLZ). */
typedef struct weir_moo_benchmark {
  const char *name;
  weir_moo_problem problem;
  double reference[3]; /* for the hypervolume */
  double wanted;       /* hypervolume that 100 x 250 must reach (median of 11 seeds) */
} weir_moo_benchmark;

/* zdt1, zdt2, zdt3 (30 variables), zdt6 (10), dtlz2 (12 variables, 3 objectives). */
#define WEIR_MOO_BENCHMARKS 5
extern const weir_moo_benchmark weir_moo_benchmarks[WEIR_MOO_BENCHMARKS];

#endif
