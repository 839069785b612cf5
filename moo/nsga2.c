#include "moo/nsga2.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "moo/operators.h"
#include "moo/sort.h"

/* Parents lie in the first half of every array, children in the second. */
typedef struct state {
  const weir_moo_problem *problem;
  weir_moo_options options;
  size_t n; /* population */
  weir_moo_rng rng;
  weir_moo_sorter sorter;
  double *x, *next_x;
  uint32_t *category, *next_category;
  double *f, *next_f;
  double *violation, *next_violation;
  size_t *rank, *next_rank;
  double *crowding, *next_crowding;
  size_t *member, *survivor; /* one front; the chosen n */
  double *distance;
} state;

void weir_moo_options_init(weir_moo_options *options) {
  *options = (weir_moo_options){.population = 100,
                                .generations = 250,
                                .crossover = 0.9,
                                .eta_crossover = 15.0,
                                .mutation = 0.0,
                                .eta_mutation = 20.0,
                                .seed = 1};
}

static bool valid(const weir_moo_problem *p, const weir_moo_options *o) {
  if (!p->evaluate || p->objectives < 1 || p->objectives > WEIR_MOO_OBJECTIVES) return false;
  if (p->reals + p->categoricals == 0) return false;
  if (o->population < 4 || o->population % 2 || o->population > 1u << 20) return false;
  if (!(o->crossover >= 0.0 && o->crossover <= 1.0)) return false;
  if (!(o->mutation >= 0.0 && o->mutation <= 1.0)) return false;
  if (!(o->eta_crossover >= 0.0 && o->eta_mutation >= 0.0)) return false;
  for (size_t i = 0; i < p->reals; i++)
    if (!isfinite(p->lower[i]) || !isfinite(p->upper[i]) || p->upper[i] < p->lower[i]) return false;
  for (size_t i = 0; i < p->categoricals; i++)
    if (p->values[i] == 0) return false;
  return true;
}

static void state_free(state *s) {
  void *blocks[] = {s->x,      s->next_x,    s->category,  s->next_category,
                    s->f,      s->next_f,    s->violation, s->next_violation,
                    s->rank,   s->next_rank, s->crowding,  s->next_crowding,
                    s->member, s->survivor,  s->distance};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
  weir_moo_sorter_free(&s->sorter);
}

static bool state_create(state *s, const weir_moo_problem *problem,
                         const weir_moo_options *options) {
  const size_t n = options->population, both = 2 * n;
  *s = (state){.problem = problem, .options = *options, .n = n};
  if (s->options.mutation == 0.0)
    s->options.mutation = 1.0 / (double)(problem->reals + problem->categoricals);
  weir_moo_seed(&s->rng, options->seed);
  s->x = calloc(both * problem->reals + 1, sizeof *s->x);
  s->next_x = calloc(both * problem->reals + 1, sizeof *s->x);
  s->category = calloc(both * problem->categoricals + 1, sizeof *s->category);
  s->next_category = calloc(both * problem->categoricals + 1, sizeof *s->category);
  s->f = calloc(both * problem->objectives, sizeof *s->f);
  s->next_f = calloc(both * problem->objectives, sizeof *s->f);
  s->violation = calloc(both, sizeof *s->violation);
  s->next_violation = calloc(both, sizeof *s->violation);
  s->rank = calloc(both, sizeof *s->rank);
  s->next_rank = calloc(both, sizeof *s->rank);
  s->crowding = calloc(both, sizeof *s->crowding);
  s->next_crowding = calloc(both, sizeof *s->crowding);
  s->member = calloc(both, sizeof *s->member);
  s->survivor = calloc(both, sizeof *s->survivor);
  s->distance = calloc(both, sizeof *s->distance);
  if (weir_moo_sorter_create(&s->sorter, both) && s->x && s->next_x && s->category &&
      s->next_category && s->f && s->next_f && s->violation && s->next_violation && s->rank &&
      s->next_rank && s->crowding && s->next_crowding && s->member && s->survivor && s->distance)
    return true;
  state_free(s);
  return false;
}

static void evaluate(state *s, size_t i) {
  const weir_moo_problem *p = s->problem;
  double *f = s->f + i * p->objectives;
  double violation =
      p->evaluate(p->user, s->x + i * p->reals, s->category + i * p->categoricals, f);
  for (size_t o = 0; o < p->objectives; o++)
    if (!isfinite(f[o])) violation = INFINITY;
  s->violation[i] = isfinite(violation) ? violation : INFINITY;
}

static void first_generation(state *s) {
  const weir_moo_problem *p = s->problem;
  for (size_t i = 0; i < s->n; i++) {
    for (size_t v = 0; v < p->reals; v++)
      s->x[i * p->reals + v] =
          p->lower[v] + weir_moo_uniform(&s->rng) * (p->upper[v] - p->lower[v]);
    for (size_t v = 0; v < p->categoricals; v++)
      s->category[i * p->categoricals + v] = (uint32_t)weir_moo_below(&s->rng, p->values[v]);
    evaluate(s, i);
  }
}

static int by_crowding(const void *pa, const void *pb) {
  const double *a = pa, *b = pb; /* pairs (distance, member) */
  if (a[0] != b[0]) return a[0] > b[0] ? -1 : 1;
  return a[1] < b[1] ? -1 : a[1] > b[1];
}

/* Into distance[].  Objectives of an infinite violation may be no numbers, and say nothing: those
 * that share it are equals. */
static void crowd(state *s, size_t size) {
  const size_t objectives = isfinite(s->violation[s->member[0]]) ? s->problem->objectives : 0;
  weir_moo_crowding(&s->sorter, s->f, s->member, size, objectives, s->distance);
  for (size_t i = 0; i < size; i++) s->crowding[s->member[i]] = s->distance[i];
}

/* Fill survivor[] from `count` individuals, whole fronts first, the last one by crowding. */
static bool select_survivors(state *s, size_t count) {
  const size_t fronts =
      weir_moo_sort(&s->sorter, s->f, s->violation, count, s->problem->objectives, s->rank);
  size_t taken = 0;
  for (size_t front = 0; front < fronts && taken < s->n; front++) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
      if (s->rank[i] == front) s->member[size++] = i;
    crowd(s, size);
    if (taken + size <= s->n) {
      memcpy(s->survivor + taken, s->member, size * sizeof *s->member);
      taken += size;
      continue;
    }
    double *pair = malloc(2 * size * sizeof *pair);
    if (!pair) return false;
    for (size_t i = 0; i < size; i++) {
      pair[2 * i] = s->distance[i];
      pair[2 * i + 1] = (double)s->member[i];
    }
    qsort(pair, size, 2 * sizeof *pair, by_crowding);
    for (size_t i = 0; taken < s->n; i++) s->survivor[taken++] = (size_t)pair[2 * i + 1];
    free(pair);
  }
  return true;
}

static void swap_doubles(double **a, double **b) {
  double *kept = *a;
  *a = *b;
  *b = kept;
}

static void keep_survivors(state *s) {
  const size_t r = s->problem->reals, c = s->problem->categoricals, m = s->problem->objectives;
  for (size_t i = 0; i < s->n; i++) {
    const size_t from = s->survivor[i];
    memcpy(s->next_x + i * r, s->x + from * r, r * sizeof *s->x);
    memcpy(s->next_category + i * c, s->category + from * c, c * sizeof *s->category);
    memcpy(s->next_f + i * m, s->f + from * m, m * sizeof *s->f);
    s->next_violation[i] = s->violation[from];
    s->next_rank[i] = s->rank[from];
    s->next_crowding[i] = s->crowding[from];
  }
  swap_doubles(&s->x, &s->next_x);
  swap_doubles(&s->f, &s->next_f);
  swap_doubles(&s->violation, &s->next_violation);
  swap_doubles(&s->crowding, &s->next_crowding);
  uint32_t *category = s->category;
  s->category = s->next_category;
  s->next_category = category;
  size_t *rank = s->rank;
  s->rank = s->next_rank;
  s->next_rank = rank;
}

/* Binary tournament by front, then crowding. */
static size_t tournament(state *s, size_t a, size_t b) {
  if (s->rank[a] != s->rank[b]) return s->rank[a] < s->rank[b] ? a : b;
  if (s->crowding[a] != s->crowding[b]) return s->crowding[a] > s->crowding[b] ? a : b;
  return weir_moo_next(&s->rng) >> 63 ? a : b;
}

static void shuffle(state *s, size_t *order) {
  for (size_t i = 0; i < s->n; i++) order[i] = i;
  for (size_t i = s->n - 1; i > 0; i--) {
    const size_t j = (size_t)weir_moo_below(&s->rng, i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

static void copy_individual(state *s, size_t to, size_t from) {
  const size_t r = s->problem->reals, c = s->problem->categoricals;
  memcpy(s->x + to * r, s->x + from * r, r * sizeof *s->x);
  memcpy(s->category + to * c, s->category + from * c, c * sizeof *s->category);
}

/* Every individual enters two tournaments, so none is left out and the best enter twice. */
static void make_children(state *s) {
  const size_t r = s->problem->reals, c = s->problem->categoricals;
  size_t *order = s->member;
  for (size_t i = 0; i < s->n; i += 2) {
    size_t parent[2];
    for (size_t side = 0; side < 2; side++) {
      const size_t at = (2 * (i + side)) % s->n;
      if (at == 0) shuffle(s, order);
      parent[side] = tournament(s, order[at], order[at + 1]);
    }
    const size_t a = s->n + i, b = a + 1;
    copy_individual(s, a, parent[0]);
    copy_individual(s, b, parent[1]);
    if (weir_moo_uniform(&s->rng) < s->options.crossover)
      weir_moo_crossover(&s->rng, s->problem, s->options.eta_crossover, s->x + a * r, s->x + b * r,
                         s->category + a * c, s->category + b * c);
    for (size_t child = a; child <= b; child++) {
      weir_moo_mutate(&s->rng, s->problem, s->options.mutation, s->options.eta_mutation,
                      s->x + child * r, s->category + child * c);
      evaluate(s, child);
    }
  }
}

static bool seen_before(const state *s, const weir_moo_front *front, const double *f) {
  const size_t m = s->problem->objectives;
  for (size_t i = 0; i < front->count; i++)
    if (memcmp(front->f + i * m, f, m * sizeof *f) == 0) return true;
  return false;
}

static int take_front(const state *s, weir_moo_front *front) {
  const size_t r = s->problem->reals, c = s->problem->categoricals, m = s->problem->objectives;
  front->x = malloc((s->n * r + 1) * sizeof *front->x);
  front->category = malloc((s->n * c + 1) * sizeof *front->category);
  front->f = malloc(s->n * m * sizeof *front->f);
  if (!front->x || !front->category || !front->f) {
    weir_moo_front_free(front);
    return WEIR_MOO_NOMEM;
  }
  for (size_t i = 0; i < s->n; i++) {
    if (s->rank[i] != 0 || s->violation[i] > 0.0 || seen_before(s, front, s->f + i * m)) continue;
    memcpy(front->x + front->count * r, s->x + i * r, r * sizeof *s->x);
    memcpy(front->category + front->count * c, s->category + i * c, c * sizeof *s->category);
    memcpy(front->f + front->count * m, s->f + i * m, m * sizeof *s->f);
    front->count++;
  }
  return WEIR_MOO_OK;
}

int weir_moo_nsga2(const weir_moo_problem *problem, const weir_moo_options *options,
                   weir_moo_front *front) {
  *front = (weir_moo_front){0};
  if (!valid(problem, options)) return WEIR_MOO_INVALID;
  state s;
  if (!state_create(&s, problem, options)) return WEIR_MOO_NOMEM;
  int result = WEIR_MOO_NOMEM;
  first_generation(&s);
  if (!select_survivors(&s, s.n)) goto done;
  keep_survivors(&s);
  for (size_t generation = 0; generation < options->generations; generation++) {
    make_children(&s);
    if (!select_survivors(&s, 2 * s.n)) goto done;
    keep_survivors(&s);
  }
  result = take_front(&s, front);
done:
  state_free(&s);
  return result;
}

void weir_moo_front_free(weir_moo_front *front) {
  free(front->x);
  free(front->category);
  free(front->f);
  *front = (weir_moo_front){0};
}
