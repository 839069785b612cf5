#include "moo/sort.h"

#include <math.h>
#include <stdlib.h>

#define NONE ((size_t)-1)

/* What qsort compares: it has no room for a context of its own in C11. */
struct weir_moo_key {
  double value;    /* first objective, or the objective at hand */
  const double *f; /* all objectives of the point; NULL: compare by value and index alone */
  size_t objectives;
  size_t index;
};

bool weir_moo_dominates(const double *a, const double *b, size_t objectives) {
  bool better = false;
  for (size_t i = 0; i < objectives; i++) {
    if (a[i] > b[i]) return false;
    better |= a[i] < b[i];
  }
  return better;
}

bool weir_moo_sorter_create(weir_moo_sorter *sorter, size_t points) {
  *sorter = (weir_moo_sorter){0};
  sorter->last = malloc((points + 1) * sizeof *sorter->last);
  sorter->prev = malloc((points + 1) * sizeof *sorter->prev);
  sorter->key = malloc((points + 1) * sizeof *sorter->key);
  if (sorter->last && sorter->prev && sorter->key) return true;
  weir_moo_sorter_free(sorter);
  return false;
}

void weir_moo_sorter_free(weir_moo_sorter *sorter) {
  free(sorter->last);
  free(sorter->prev);
  free(sorter->key);
  *sorter = (weir_moo_sorter){0};
}

static int compare_keys(const void *pa, const void *pb) {
  const struct weir_moo_key *a = pa, *b = pb;
  if (a->value != b->value) return a->value < b->value ? -1 : 1;
  if (a->f)
    for (size_t i = 1; i < a->objectives; i++)
      if (a->f[i] != b->f[i]) return a->f[i] < b->f[i] ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

/* Does a member of the front dominate p?  Members are visited from the last put in, the nearest in
 * lexicographic order and so the likeliest.  In two objectives a front's second objective falls
 * along that order, so only the last member can. */
static bool front_dominates(const weir_moo_sorter *s, size_t front, const double *f, size_t m,
                            const double *p) {
  for (size_t at = s->last[front]; at != NONE; at = s->prev[at]) {
    if (weir_moo_dominates(f + at * m, p, m)) return true;
    if (m <= 2) return false;
  }
  return false;
}

static size_t sort_feasible(weir_moo_sorter *s, const double *f, size_t n, size_t m, size_t *rank) {
  size_t fronts = 0;
  for (size_t i = 0; i < n; i++) {
    const size_t p = s->key[i].index;
    size_t low = 0, high = fronts; /* the first front that does not dominate p is in [low, high] */
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (front_dominates(s, middle, f, m, f + p * m))
        low = middle + 1;
      else
        high = middle;
    }
    if (low == fronts) s->last[fronts++] = NONE;
    s->prev[p] = s->last[low];
    s->last[low] = p;
    rank[p] = low;
  }
  return fronts;
}

size_t weir_moo_sort(weir_moo_sorter *s, const double *f, const double *violation, size_t n,
                     size_t objectives, size_t *rank) {
  size_t feasible = 0, rest = 0;
  for (size_t i = 0; i < n; i++) {
    if (violation && violation[i] > 0.0) continue;
    s->key[feasible++] =
        (struct weir_moo_key){f[i * objectives], f + i * objectives, objectives, i};
  }
  qsort(s->key, feasible, sizeof *s->key, compare_keys);
  size_t fronts = sort_feasible(s, f, feasible, objectives, rank);
  if (feasible == n) return fronts;
  for (size_t i = 0; i < n; i++)
    if (violation[i] > 0.0) s->key[rest++] = (struct weir_moo_key){violation[i], NULL, 0, i};
  qsort(s->key, rest, sizeof *s->key, compare_keys);
  for (size_t i = 0; i < rest; i++) {
    if (i == 0 || s->key[i].value != s->key[i - 1].value) fronts++;
    rank[s->key[i].index] = fronts - 1;
  }
  return fronts;
}

void weir_moo_crowding(weir_moo_sorter *s, const double *f, const size_t *member, size_t n,
                       size_t objectives, double *distance) {
  for (size_t i = 0; i < n; i++) distance[i] = 0.0;
  if (n == 0) return;
  for (size_t o = 0; o < objectives; o++) {
    for (size_t i = 0; i < n; i++)
      s->key[i] = (struct weir_moo_key){f[member[i] * objectives + o], NULL, 0, i};
    qsort(s->key, n, sizeof *s->key, compare_keys);
    /* In halves: differences of large numbers of opposite sign would overflow. */
    const double width = s->key[n - 1].value / 2.0 - s->key[0].value / 2.0;
    if (!(width > 0.0)) continue;
    distance[s->key[0].index] = INFINITY;
    distance[s->key[n - 1].index] = INFINITY;
    for (size_t i = 1; i + 1 < n; i++)
      distance[s->key[i].index] += (s->key[i + 1].value / 2.0 - s->key[i - 1].value / 2.0) / width;
  }
}
