#include "controller/fuse_rows.h"

#include <math.h>
#include <stdio.h>

#include "base/schemes.h"
#include "planner/execute.h"

/* --- what a row costs ------------------------------------------------------------------------- */

/* Compression is affine in the elements (decide.h); two points tell it. */
static weir_curve compress_curve(const weir_decision_input *in, const weir_plan *plan) {
  const uint64_t n = in->elements > 1 ? in->elements : 2;
  const weir_group_shape shape = weir_input_shape(in);
  const bool devices = in->devices != 0;
  const double whole = weir_plan_compress(plan, shape, n, devices, in->compress);
  const double fixed = weir_plan_compress(plan, shape, 0, devices, in->compress);
  return (weir_curve){.fixed_s = fixed,
                      .per_byte_s = fmax(0.0, (whole - fixed) / (4.0 * (double)n))};
}

/* The part of an arm's overhead that every bucket pays: what was seen, or the latencies' share. */
static double each_bucket(const weir_bucket_costs *costs, size_t arm, double overhead,
                          double share) {
  return costs->each_s[arm] >= 0.0 ? costs->each_s[arm] : overhead * fmin(1.0, share);
}

/* With the overhead of an arm; WEIR_ARMS: none. */
static weir_curve in_line(const weir_decision_input *in, const weir_plan *plan, size_t arm,
                          const weir_bucket_costs *costs) {
  const weir_link link = weir_input_link(in);
  const weir_group_shape shape = weir_input_shape(in);
  const double bytes = 4.0 * (double)in->elements;
  weir_curve exchange = weir_solve_exchange(plan, shape, &link, bytes);
  exchange.per_byte_s *= weir_plan_shortened(in->shortened, plan);
  if (arm == WEIR_ARMS) return exchange;
  const size_t kept = weir_plan_kept(in->low_rank, plan, in->elements);
  weir_cost_terms terms = weir_cost_plan_between(plan, shape, &link, in->elements, kept);
  weir_cost_scale(&terms, weir_plan_shortened(in->shortened, plan));
  const double processors = weir_cost_plan_processors(plan, shape, &link, in->elements, kept);
  const double whole = weir_curve_at(&exchange, bytes);
  const double overhead =
      fmax(0.0, weir_input_overhead(in, arm, &terms, &link, whole + processors) + processors);
  const double each =
      each_bucket(costs, arm, overhead, whole > 0.0 ? exchange.fixed_s / whole : 1.0);
  exchange.fixed_s += each;
  exchange.per_byte_s += fmax(0.0, overhead - each) / bytes;
  return exchange;
}

static void add_row(const weir_plan *plan, const weir_solve_row *row, weir_fuse_rows *rows) {
  if (rows->count == WEIR_SOLVE_ROWS) return;
  rows->row[rows->count] = *row;
  rows->plan[rows->count++] = *plan;
}

static void add_plan(const weir_decision_input *in, const weir_plan *plan,
                     const weir_bucket_costs *costs, weir_fuse_rows *rows) {
  weir_solve_row row = {.compress = compress_curve(in, plan),
                        .exchange = in_line(in, plan, weir_arm_of(plan), costs),
                        .taken_s = fmax(0.0, costs->taken_s)};
  add_row(plan, &row, rows);
  row.beside = true;
  add_row(plan, &row, rows);
}

/* --- paths ------------------------------------------------------------------------------------ */

/* Sizes are the whole gradient's, half of it, and so on. */
enum { SIZES = 9 };

typedef struct search {
  const weir_decision_input *in;
  const weir_plan *plan;
  const weir_bucket_costs *costs;
  char codec[64];     /* the plan's, as "CODEC:CR" */
  double best[SIZES]; /* s */
  bool found[SIZES];  /* a path is the best, namely: */
  weir_plan path[SIZES];
  weir_solve_row row[SIZES];
} search;

static double seconds(const weir_solve_row *row, double bytes) {
  return weir_curve_at(&row->compress, bytes) + weir_curve_at(&row->exchange, bytes);
}

static double bytes_of(const search *s, size_t size) {
  return ldexp(4.0 * (double)s->in->elements, -(int)size);
}

/* What does not begin with compressing does all of it on the wire's thread. */
static weir_solve_row path_row(const search *s, const weir_option *path, const weir_plan *plan) {
  weir_solve_row row = {.compress = compress_curve(s->in, plan),
                        .exchange = in_line(s->in, plan, weir_arm_of(s->plan), s->costs),
                        .taken_s = fmax(0.0, s->costs->taken_s)};
  if (path->step[0].task == WEIR_TASK_COMP) return row;
  row.exchange.fixed_s += row.compress.fixed_s;
  row.exchange.per_byte_s += row.compress.per_byte_s;
  row.compress = (weir_curve){0};
  return row;
}

static void consider(void *user, const weir_option *option) {
  search *s = user;
  weir_plan named, plan = *s->plan;
  weir_place place;
  if (weir_option_plan(option, s->codec, &named, &place) != WEIR_OK ||
      named.scheme != WEIR_SCHEME_PATH)
    return; /* it is one of the collectives */
  plan.wire = named.wire;
  weir_path_pack(option, &plan);
  if (weir_arm_of(&plan) < WEIR_ARMS || !weir_plan_fits(s->in, &plan)) return;
  const weir_solve_row row = path_row(s, option, &plan);
  for (size_t i = 0; i < SIZES; i++) {
    const double due = seconds(&row, bytes_of(s, i));
    if (due >= s->best[i]) continue;
    s->best[i] = due;
    s->found[i] = true;
    s->path[i] = plan;
    s->row[i] = row;
  }
}

/* A path is often the cheapest of several sizes. */
static bool is_new(const search *s, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (s->found[i] && s->path[i].algorithm == s->path[size].algorithm &&
        s->path[i].inside == s->path[size].inside)
      return false;
  return s->found[size];
}

static void add_paths(const weir_decision_input *in, const weir_plan *plan,
                      const weir_bucket_costs *costs, weir_fuse_rows *rows) {
  const weir_codec *codec = weir_codecs[plan->codec];
  search s = {.in = in, .plan = plan, .costs = costs};
  const weir_option_limits limits = {
      .no_gpu = true, /* one option a path */
      .no_hierarchical = in->hosts < 2 || in->hosts >= in->workers,
      .compressed_only = true,
      .most_compressions = plan->scheme == WEIR_SCHEME_COMPRESSED ? 2 : 1};
  size_t options;
  if (!weir_plan_rounds(plan) || codec->dense || codec->touched || in->devices != 0) return;
  (void)snprintf(s.codec, sizeof s.codec, "%s:%.17g", codec->name, plan->cr);
  for (size_t i = 0; i < SIZES; i++) {
    s.best[i] = INFINITY;
    for (size_t r = 0; r < rows->count; r++)
      s.best[i] = fmin(s.best[i], seconds(&rows->row[r], bytes_of(&s, i)));
  }
  (void)weir_options_visit(&limits, consider, &s, &options);
  for (size_t i = 0; i < SIZES; i++) {
    if (!is_new(&s, i)) continue;
    add_row(&s.path[i], &s.row[i], rows);
    s.row[i].beside = s.row[i].compress.per_byte_s > 0.0; /* else nothing precedes its exchange */
    if (s.row[i].beside) add_row(&s.path[i], &s.row[i], rows);
  }
}

/* --- all of them ------------------------------------------------------------------------------ */

/* What a bucket of few elements may be better off with. */
static const char *const dense[] = {"bf16:1:dense-ring", "bf16:1:dense-tree"};
enum { DENSE = sizeof dense / sizeof *dense };

void weir_fuse_find_rows(const weir_decision_input *in, const weir_plan *plan,
                         const weir_bucket_costs *costs, weir_fuse_rows *rows) {
  weir_plan other = *plan;
  rows->count = 0;
  add_plan(in, plan, costs, rows);
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_plan of_arm = weir_arm_plan(in, weir_arm_at(a), 0.0);
    other.scheme = of_arm.scheme;
    other.algorithm = of_arm.algorithm;
    other.inside = of_arm.inside;
    if (plan->wire == WEIR_WIRE_HUFFMAN && !weir_codes_shorten(&other))
      other.wire = WEIR_WIRE_PAPER;
    if (weir_arm_counts(in, a) && weir_arm_of(&other) == a && !weir_arm_is(weir_arm_at(a), plan))
      add_plan(in, &other, costs, rows);
  }
  for (size_t i = 0; i < DENSE && !weir_codecs[plan->codec]->dense; i++)
    if (weir_plan_parse(dense[i], &other) == WEIR_OK) add_plan(in, &other, costs, rows);
  add_paths(in, plan, costs, rows);
}
