/* Non-dominated sorting and crowding distance, minimisation throughout. */
#ifndef WEIR_MOO_SORT_H
#define WEIR_MOO_SORT_H

#include <stdbool.h>
#include <stddef.h>

/* a is no worse than b in every objective and better in at least one. */
bool weir_moo_dominates(const double *a, const double *b, size_t objectives);

/* Scratch for up to `points` points; sizes in elements. */
typedef struct weir_moo_sorter {
  size_t *last; /* points: last member of each front */
  size_t *prev; /* points: member put into the same front before this one */
  struct weir_moo_key *key;
} weir_moo_sorter;
bool weir_moo_sorter_create(weir_moo_sorter *sorter, size_t points); /* false: no memory */
void weir_moo_sorter_free(weir_moo_sorter *sorter);

/* rank[i] = number of the front point i is in, from 0; returns the number of fronts.
 * f: n * objectives, finite where violation[i] is 0.  violation may be NULL (all feasible).  Deb's
 * rules: feasible points are ranked by domination and come before all others; the others by
 * violation alone, equal violations sharing a front.
 * Method: lexicographic order, then each point goes to the first front none of whose members
 * dominates it, found by binary search (ENS-BS; Zhang, Tian, Cheng, Jin 2015).  With two objectives
 * only a front's last member can dominate, hence O(n log n). */
size_t weir_moo_sort(weir_moo_sorter *sorter, const double *f, const double *violation, size_t n,
                     size_t objectives, size_t *rank);

/* Crowding distance of the points member[0..n) of one front: distance[i] belongs to member[i].
 * Infinite at the extremes of each objective; an objective on which all agree adds nothing.  Values
 * must be finite. */
void weir_moo_crowding(weir_moo_sorter *sorter, const double *f, const size_t *member, size_t n,
                       size_t objectives, double *distance);

#endif
