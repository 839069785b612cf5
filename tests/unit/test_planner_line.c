/* The bounds of the planner's search: those of all pairs of tensors and all rows, in few steps. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/line.h"

enum { MOST = 64, ROWS = 6, POINTS = 4 };

static weir_profile_tensor tensors[WEIR_SOLVE_TENSORS];
static char name[] = "t";
static double x[2 * ROWS][POINTS], y[2 * ROWS][POINTS];

/* Coarse values now and then, so that there are ties. */
static double draw(weir_rng *rng, double scale) {
  if (weir_rng_below(rng, 3)) return scale * weir_rng_uniform(rng);
  return scale * (double)weir_rng_below(rng, 5) / 4.0;
}

static weir_curve random_curve(weir_rng *rng, size_t which) {
  if (weir_rng_below(rng, 4))
    return (weir_curve){.fixed_s = draw(rng, weir_rng_below(rng, 4) ? 1e-3 : 3e-2),
                        .per_byte_s = draw(rng, 1e-9)};
  double bytes = 0.0, seconds = 0.0;
  for (size_t i = 0; i < POINTS; i++) {
    x[which][i] = bytes += 1.0 + draw(rng, 3e6);
    y[which][i] = seconds += draw(rng, 1e-3);
  }
  return (weir_curve){.count = POINTS, .bytes = x[which], .seconds = y[which]};
}

typedef struct instance {
  weir_profile profile;
  size_t rows;
  weir_solve_row row[ROWS];
  uint64_t allowed[MOST];
} instance;

static void make(instance *in, weir_rng *rng) {
  in->profile = (weir_profile){1 + (size_t)weir_rng_below(rng, MOST), tensors};
  const double gap_s = weir_rng_below(rng, 2) ? 1e-3 : 1e-6;
  for (size_t i = 0; i < in->profile.count; i++)
    tensors[i] = (weir_profile_tensor){name, 1.0 + floor(draw(rng, 1e6)), draw(rng, gap_s)};
  in->rows = 1 + (size_t)weir_rng_below(rng, ROWS);
  for (size_t r = 0; r < in->rows; r++)
    in->row[r] = (weir_solve_row){random_curve(rng, 2 * r), random_curve(rng, 2 * r + 1),
                                  weir_rng_below(rng, 2), 0.0, 0.0};
  for (size_t r = 0; r < in->rows && weir_rng_below(rng, 2); r++) {
    in->row[r].taken_s = draw(rng, 5e-4);
    in->row[r].taken_per_byte_s =
        draw(rng, weir_rng_below(rng, 2) ? 5e-10 : 5e-9); /* more than the wire's, some */
  }
  for (size_t i = 0; i < in->profile.count; i++) /* long runs, and one row at least */
    in->allowed[i] = (weir_rng_below(rng, 4) ? UINT64_MAX : weir_rng_next(rng)) |
                     UINT64_C(1) << weir_rng_below(rng, in->rows);
}

/* --- by definition: every bucket [i, j), every row -------------------------------------------- */

typedef struct definition {
  const instance *in;
  bool limited;
  double ready[MOST + 1], bytes[MOST + 1], late[MOST + 1];
  size_t low[MOST + 1]; /* of buckets that end there */
  double left_c[MOST + 1], left_e[MOST + 1], rest[MOST + 1];
} definition;

static bool allowed(const definition *d, size_t r, size_t i, size_t j) {
  for (size_t t = i; t < j && d->limited; t++)
    if (!(d->in->allowed[t] >> r & 1)) return false;
  return i >= d->low[j];
}

static double mean(const definition *d, size_t r, size_t i, size_t j) {
  const weir_solve_row *row = &d->in->row[r];
  const double bytes = d->bytes[j] - d->bytes[i], gap = d->ready[j] - d->ready[i];
  const double h = weir_curve_at(&row->compress, bytes), g = weir_curve_at(&row->exchange, bytes);
  const double s = row->taken_s + row->taken_per_byte_s * bytes;
  const double early = 1.0 - d->late[i], within = d->late[j] - d->late[i];
  return early * gap + (row->beside ? within : early) * h + d->late[j] * g + (1.0 - d->late[j]) * s;
}

static void define_at(definition *d, size_t i) {
  const size_t n = d->in->profile.count;
  d->left_c[i] = d->left_e[i] = d->rest[i] = INFINITY;
  for (size_t j = i + 1; j <= n; j++)
    for (size_t r = 0; r < d->in->rows; r++) {
      const weir_solve_row *row = &d->in->row[r];
      if (!allowed(d, r, i, j)) continue;
      const double bytes = d->bytes[j] - d->bytes[i], gap = d->ready[j] - d->ready[i];
      const double h = weir_curve_at(&row->compress, bytes);
      const double send = weir_curve_at(&row->exchange, bytes) + d->left_e[j];
      const double s = j < n ? row->taken_s + row->taken_per_byte_s * bytes : 0.0;
      const double caller = (row->beside ? 0.0 : h) + s + d->left_c[j];
      d->left_e[i] = fmin(d->left_e[i], send);
      d->left_c[i] = fmin(d->left_c[i], gap + fmax(h + send, caller));
      d->rest[i] = fmin(d->rest[i], mean(d, r, i, j) + d->rest[j]);
    }
}

static void define(definition *d) {
  const size_t n = d->in->profile.count;
  d->left_c[n] = d->left_e[n] = d->rest[n] = 0.0;
  for (size_t i = n; i-- > 0;) define_at(d, i);
}

static void begin(definition *d, const instance *in, bool limited) {
  *d = (definition){.in = in, .limited = limited};
  for (size_t i = 0; i < in->profile.count; i++) {
    d->ready[i + 1] = d->ready[i] + tensors[i].gap_s;
    d->bytes[i + 1] = d->bytes[i] + 4.0 * tensors[i].numel;
  }
}

static void expect(const double *found, const double *due, size_t n, const char *what,
                   size_t number) {
  for (size_t i = 0; i <= n; i++)
    cr_assert(fabs(found[i] - due[i]) <= 1e-12 * (1e-3 + due[0]),
              "instance %zu, %s[%zu]: %.17g, not %.17g", number, what, i, found[i], due[i]);
}

/* --- tests ------------------------------------------------------------------------------------ */

Test(planner_line, bounds_are_those_over_all_buckets_and_rows) {
  weir_rng rng = weir_rng_of(21);
  for (size_t number = 0; number < 1500; number++) {
    static instance in;
    static definition d;
    weir_solve_bucket bucket[MOST];
    weir_solution best = {.bucket = bucket};
    weir_line line;
    weir_line_bounds b;
    make(&in, &rng);
    begin(&d, &in, number % 2);
    const size_t n = in.profile.count;
    cr_assert_eq(
        weir_line_create(&line, &in.profile, in.row, in.rows, d.limited ? in.allowed : NULL),
        WEIR_OK);
    cr_assert_eq(weir_line_bound(&line, &b, &best), WEIR_OK);
    for (size_t i = 0; i <= n; i++) d.late[i] = b.late[i];
    define(&d);
    expect(b.left_c, d.left_c, n, "left_c", number);
    expect(b.left_e, d.left_e, n, "left_e", number);
    expect(b.rest, d.rest, n, "rest", number);
    const double least = fmax(fmax(d.left_c[0], d.left_e[0]), d.rest[0]);
    cr_assert_float_eq(b.least_s, least, 1e-12 * least);
    cr_assert_leq(b.least_s, best.step_s * (1.0 + 1e-12));
    weir_line_bounds_free(&b);
    weir_line_free(&line);
  }
}

static void walk(const definition *d, const weir_line_path *path, size_t number) {
  double walked = 0.0;
  for (size_t i = 0; i < path->line->n; i = path->next[i]) {
    cr_assert(allowed(d, path->row[i], i, path->next[i]), "instance %zu", number);
    walked += mean(d, path->row[i], i, path->next[i]);
  }
  cr_assert(fabs(walked - path->rest[0]) <= 1e-12 * (1e-3 + walked), "instance %zu", number);
}

/* Of buckets that do not end with the last tensor, those that begin where a later one may can be
 * among those considered: what is found lies between the least with them and the least without. */
static void within_low(definition *d, weir_line_path *path, weir_rng *rng, size_t number) {
  weir_line *line = path->line;
  const size_t n = line->n;
  for (size_t j = 1; j <= n; j++) line->low[j] = d->low[j] = (size_t)weir_rng_below(rng, j);
  weir_line_shortest(path);
  define(d);
  for (size_t i = 0; i <= n; i++)
    cr_assert_leq(path->rest[i], d->rest[i] + 1e-12 * d->rest[0], "instance %zu", number);
  for (size_t j = n - 1; j-- > 1;)
    d->low[j] = d->low[j] < d->low[j + 1] ? d->low[j] : d->low[j + 1];
  define(d);
  for (size_t i = 0; i <= n; i++)
    cr_assert_geq(path->rest[i], d->rest[i] - 1e-12 * d->rest[0], "instance %zu", number);
  walk(d, path, number);
}

Test(planner_line, shortest_path_is_that_over_all_buckets_and_rows) {
  weir_rng rng = weir_rng_of(22);
  for (size_t number = 0; number < 1500; number++) {
    static instance in;
    static definition d;
    weir_line line;
    weir_line_path path;
    make(&in, &rng);
    begin(&d, &in, number % 2);
    const size_t n = in.profile.count;
    cr_assert_eq(
        weir_line_create(&line, &in.profile, in.row, in.rows, d.limited ? in.allowed : NULL),
        WEIR_OK);
    cr_assert_eq(weir_line_path_create(&path, &line), WEIR_OK);
    for (size_t i = 1; i <= n; i++) d.late[i] = d.late[i - 1] + draw(&rng, 1.0 / (double)n);
    d.late[n] = 1.0;
    for (size_t i = 0; i <= n; i++) path.late[i] = d.late[i];
    weir_line_shortest(&path);
    define(&d);
    expect(path.rest, d.rest, n, "rest", number);
    walk(&d, &path, number);
    within_low(&d, &path, &rng, number);
    weir_line_path_free(&path);
    weir_line_free(&line);
  }
}

/* 8 million buckets by 40 rows, once for each of the relaxation and the path, would be 640 million
 * steps; a heap and a queue per row need about log2(n) for a tensor. */
Test(planner_line, thousands_of_tensors_by_tens_of_rows_take_few_steps) {
  enum { MANY = 40 };
  weir_rng rng = weir_rng_of(23);
  const weir_profile profile = {WEIR_SOLVE_TENSORS, tensors};
  weir_solve_row row[MANY];
  for (size_t i = 0; i < profile.count; i++)
    tensors[i] = (weir_profile_tensor){name, 1.0 + floor(1e5 * weir_rng_uniform(&rng)),
                                       1e-4 * weir_rng_uniform(&rng)};
  for (size_t r = 0; r < MANY; r++) { /* the more for a bucket, the less for a byte */
    const double share = (double)(r / 2) / (MANY / 2);
    row[r] = (weir_solve_row){
        .compress = {.fixed_s = 1e-5, .per_byte_s = 1e-10 * share},
        .exchange = {.fixed_s = 1e-4 + 1e-3 * share, .per_byte_s = 1.05e-9 - 1e-9 * share},
        .beside = r % 2,
        .taken_s = 2e-6};
  }
  weir_line line;
  weir_line_bounds b;
  weir_solution best = {.bucket = malloc(profile.count * sizeof *best.bucket)};
  cr_assert_eq(weir_line_create(&line, &profile, row, MANY, NULL), WEIR_OK);
  line.most_work = 1;
  cr_assert_eq(weir_line_bound(&line, &b, &best), WEIR_OK);
  cr_assert_lt(line.work, (size_t)(2 * MANY * WEIR_SOLVE_TENSORS * 16));
  weir_line_bounds_free(&b);
  weir_line_free(&line);
  free(best.bucket);
}
