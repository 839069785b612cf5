/* Internal to the planner: the search behind weir_solve and weir_fusion_labels (see solve.h for the
 * model and the symbols).
 *
 * Three parts: bounds (line_bound.c, by line_relax.c and line_path.c), labels (line_labels.c), what
 * both need (line.c). */
#ifndef WEIR_PLANNER_LINE_H
#define WEIR_PLANNER_LINE_H

#include "planner/solve.h"

typedef struct weir_line {
  const weir_profile *profile;
  const weir_solve_row *rows;
  size_t count;            /* rows */
  uint64_t all;            /* rows that none makes useless */
  const uint64_t *allowed; /* per tensor, or NULL */
  size_t n;
  bool beside;   /* some row of `all` compresses on the thread */
  double *ready; /* [n + 1] */
  double *bytes; /* [n + 1] */
  size_t *low;   /* [n + 1] no bucket [i, j) with i < low[j] is in a solution below the bound */
  double *table; /* costs of measured rows by row and pair, or NULL: curves are asked */
  size_t pairs;  /* (i, j) with i < j: at j (j - 1) / 2 + i */
  double most_s; /* step of the best solution known */
  size_t work, most_work; /* steps of search */
} weir_line;

/* limits' allowed rows must leave one to each tensor and curves must have been checked. */
weir_status weir_line_create(weir_line *line, const weir_profile *profile,
                             const weir_solve_row *rows, size_t count, const uint64_t *allowed);
void weir_line_free(weir_line *line);

static inline double weir_line_curve(const weir_curve *curve, double bytes) {
  return curve->count ? weir_curve_at(curve, bytes) : curve->fixed_s + curve->per_byte_s * bytes;
}

/* Compression (h) and exchange (g) of [i, j) with a row. */
static inline void weir_line_cost(const weir_line *line, size_t row, size_t i, size_t j, double *h,
                                  double *g) {
  if (line->table) {
    const double *at = line->table + 2 * (row * line->pairs + j * (j - 1) / 2 + i);
    *h = at[0];
    *g = at[1];
    return;
  }
  const double bytes = line->bytes[j] - line->bytes[i];
  *h = weir_line_curve(&line->rows[row].compress, bytes);
  *g = weir_line_curve(&line->rows[row].exchange, bytes);
}

/* What the exchange of [i, j) takes from the caller. */
static inline double weir_line_taken(const weir_line *line, size_t row, size_t i, size_t j) {
  const weir_solve_row *r = &line->rows[row];
  return r->taken_s + r->taken_per_byte_s * (line->bytes[j] - line->bytes[i]);
}

static inline uint64_t weir_line_allowed(const weir_line *line, size_t tensor) {
  return line->allowed ? line->allowed[tensor] : UINT64_MAX;
}

/* Rows of `all` none of whose curves is measured. */
uint64_t weir_line_affine(const weir_line *line);
/* The first tensor from which on all before j allow the row (j: tensor j - 1 does not), given the
 * answer for j + 1, or n for j = n. */
uint32_t weir_line_begin(const weir_line *line, size_t row, size_t j, uint32_t after);

/* Take a solution if it is below the best one known. */
void weir_line_offer(weir_line *line, weir_solution *best, weir_solve_bucket *bucket, size_t count);
/* Narrow low[] to what most_s leaves: a bucket ends the wire no earlier than when it is ready,
 * compressed and exchanged at once, and left_e[j] follows (see below). */
void weir_line_narrow(weir_line *line, const double *left_e);

/* Lower bounds on the step of any completion of tensors 0..i-1 that ends the caller's lane at c and
 * the wire at e: c + left_c[i], e + left_e[i], and (1 - late[i]) c + late[i] e + rest[i]. */
typedef struct weir_line_bounds {
  double *left_c, *left_e, *late, *rest; /* [n + 1] each */
  double least_s;                        /* of any solution */
} weir_line_bounds;

/* left_c and left_e, over all buckets. */
weir_status weir_line_relax(weir_line *line, double *left_c, double *left_e);

typedef struct weir_line_path {
  weir_line *line;
  double *late, *rest;          /* [n + 1] each */
  uint32_t *next;               /* [n] where the path goes from tensor i */
  uint8_t *row;                 /* [n] with which row */
  struct weir_line_turn *turns; /* scratch */
} weir_line_path;
weir_status weir_line_path_create(weir_line_path *path, weir_line *line);
void weir_line_path_free(weir_line_path *path);
/* rest[], next[] and row[] for late[], which must not descend.  Buckets that low[] rules out may be
 * among those considered, which leaves rest[] a bound. */
void weir_line_shortest(weir_line_path *path);

/* By relaxation: E_last is the most over buckets t of D_t plus all exchanges from t on, hence at
 * least any weighted mean of these, late[i] being the weight of t before tensor i.  For given
 * weights the least mean is a shortest path; weights are moved towards the bucket that is critical
 * for that path (fictitious play), and every path is offered as a solution. */
weir_status weir_line_bound(weir_line *line, weir_line_bounds *bounds, weir_solution *best);
void weir_line_bounds_free(weir_line_bounds *bounds);

/* Search forward over the tensors, keeping every (C, P, E) that no other at the same tensor is at
 * most equal to in all three and whose bounds are below the best solution known; `beam` keeps at
 * most so many of them (0: all).  *complete: nothing was left out. */
weir_status weir_line_labels(weir_line *line, const weir_line_bounds *bounds, size_t beam,
                             weir_solution *best, bool *complete);

#endif
