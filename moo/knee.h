/* The knee of a front: the point where giving up a little of any objective buys least
 * of another. */
#ifndef WEIR_MOO_KNEE_H
#define WEIR_MOO_KNEE_H

#include <stddef.h>

/* Index of the knee among n >= 1 mutually non-dominated points f (n * objectives, minimised, at
 * most WEIR_MOO_OBJECTIVES of them).
 *
 * Objectives are scaled to [0, 1] over the front (one on which all agree becomes 0).  The extremes
 * are, per objective, the point where it is largest; the knee is the point farthest from the affine
 * hull of the extremes (two objectives: the line through both ends; three: the plane, or the line
 * when two extremes coincide) on the side of the ideal point.  Ties, among them a front of two
 * points, whose distances are all 0, go to the smaller sum of scaled objectives, then to the lower
 * index.  One point is its own knee. */
size_t weir_moo_knee(const double *f, size_t n, size_t objectives);

#endif
