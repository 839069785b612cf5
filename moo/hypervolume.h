/* Exact dominated hypervolume, minimisation: how much of the box up to a reference point a set of
 * points dominates. */
#ifndef WEIR_MOO_HYPERVOLUME_H
#define WEIR_MOO_HYPERVOLUME_H

#include <stddef.h>

/* f: n * objectives, objectives 2 or 3; points not strictly below the reference in every objective
 * add nothing.  NaN when objectives is neither 2 nor 3 or memory runs out. */
double weir_moo_hypervolume(const double *f, size_t n, size_t objectives, const double *reference);

#endif
