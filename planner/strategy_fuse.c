/* Fusion and strategy together (see strategy.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/fusion.h"
#include "planner/solve.h"
#include "planner/strategy.h"

enum {
  TRIAL_WORK = 15000,
  TRIALS = 48,
  POINTS = 24,
  KINDS = 3,
  REDUCED_WORK = 100000,
  WHOLE_WORK = WEIR_STRATEGY_WORK / 5,
  FEW = 64, /* tensors, which leave time for more */
  FEW_WORK = WEIR_STRATEGY_WORK / 3
};
/* Of the time, until the buckets are settled; their strategy takes the rest, with as much work as
 * that is enough for when it goes as fast as every tensor's did, or a little slower. */
static const double trial_share = 0.65, slower = 1.15;

typedef struct fuser {
  const weir_profile *profile;
  const weir_cluster *cluster;
  const weir_strategy_limits *limits;
  size_t *best, *trial; /* ends, [n] each */
  size_t best_buckets, trials;
  double best_s;
  double until_s;   /* of this thread's processor time: the buckets are to be settled */
  double end_s;     /* likewise: all is to be done */
  double alone_s;   /* that every tensor's strategy took */
  double longest_s; /* that a look took */
} fuser;

static bool in_time(const fuser *f) { return weir_thread_cpu_s() + f->longest_s < f->until_s; }

/* The codecs that all tensors of a bucket may use. */
static uint8_t *bucket_codecs(const fuser *f, const size_t *end, size_t buckets) {
  uint8_t *codecs = malloc(buckets);
  for (size_t k = 0, i = 0; codecs && k < buckets; k++)
    for (codecs[k] = UINT8_MAX; i < end[k]; i++)
      if (f->limits->codecs) codecs[k] &= f->limits->codecs[i];
  return codecs;
}

static weir_status solve_buckets(const fuser *f, const size_t *end, size_t buckets,
                                 const weir_strategy_limits *limits, weir_profile *fused,
                                 weir_strategy_report *report) {
  weir_strategy_limits own = *limits;
  uint8_t *codecs = bucket_codecs(f, end, buckets);
  weir_status status = codecs ? weir_profile_fuse(f->profile, end, buckets, fused)
                              : weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", buckets);
  own.codecs = codecs;
  if (status == WEIR_OK) {
    status = weir_strategy_solve(fused, f->cluster, &own, report);
    if (status != WEIR_OK) weir_profile_free(fused);
  }
  free(codecs);
  return status;
}

/* A quick look at the fusion in `trial`; kept when it is the best. */
static weir_status look(fuser *f, size_t buckets) {
  const weir_strategy_limits quick = {
      .options = f->limits->options, .executable = f->limits->executable, .work = TRIAL_WORK};
  weir_profile fused;
  weir_strategy_report report;
  const double begun = weir_thread_cpu_s();
  const weir_status status = solve_buckets(f, f->trial, buckets, &quick, &fused, &report);
  f->longest_s = fmax(f->longest_s, weir_thread_cpu_s() - begun);
  /* A bucket of tensors that may not be compressed together is no error, only no candidate. */
  if (status == WEIR_E_INVALID) return WEIR_OK;
  if (status != WEIR_OK) return status;
  f->trials++;
  if (report.by[WEIR_STRATEGY_WEIR].iteration_s < f->best_s) {
    f->best_s = report.by[WEIR_STRATEGY_WEIR].iteration_s;
    f->best_buckets = buckets;
    memcpy(f->best, f->trial, buckets * sizeof *f->best);
  }
  weir_strategy_report_free(&report);
  weir_profile_free(&fused);
  return WEIR_OK;
}

/* --- candidates ----------------------------------------------------------------------------- */

/* The fastest option of each kind for a tensor alone: uncompressed, on the GPU, on the CPU. */
typedef struct kinds {
  const weir_cluster *cluster;
  double bytes, least[KINDS];
  weir_option option[KINDS];
} kinds;

static double cost_on(const weir_op *ops, size_t count, weir_resource resource) {
  double seconds = 0.0;
  for (size_t k = 0; k < count; k++)
    if (ops[k].resource == resource) seconds += ops[k].seconds;
  return seconds;
}

static void fastest(void *user, const weir_option *option) {
  kinds *best = user;
  weir_op ops[WEIR_OPTION_TASKS];
  const size_t count = weir_option_ops(option, best->cluster, 0, best->bytes, ops);
  const double gpu = cost_on(ops, count, WEIR_ON_COMPUTE), cpu = cost_on(ops, count, WEIR_ON_CPU);
  const double all =
      gpu + cpu + cost_on(ops, count, WEIR_ON_INTRA) + cost_on(ops, count, WEIR_ON_INTER);
  const size_t kind = !weir_path_compresses(option) ? 0 : cpu > 0.0 ? 2 : 1;
  if (all >= best->least[kind]) return;
  best->least[kind] = all;
  best->option[kind] = *option;
}

/* An option as a row of weir_solve: compression on its lane, the busier link as the wire. */
static void tabulate(const kinds *k, size_t kind, double bytes[POINTS], double compress[POINTS],
                     double exchange[POINTS]) {
  double most_h = 0.0, most_g = 0.0;
  for (size_t p = 0; p < POINTS; p++) {
    weir_op ops[WEIR_OPTION_TASKS];
    bytes[p] = 256.0 * pow(2.0, (double)p);
    const size_t count = weir_option_ops(&k->option[kind], k->cluster, 0, bytes[p], ops);
    most_h = fmax(most_h, cost_on(ops, count, kind == 2 ? WEIR_ON_CPU : WEIR_ON_COMPUTE));
    most_g =
        fmax(most_g, fmax(cost_on(ops, count, WEIR_ON_INTRA), cost_on(ops, count, WEIR_ON_INTER)));
    compress[p] = most_h;
    exchange[p] = most_g;
  }
}

static weir_status look_at_reduced(fuser *f) {
  kinds k = {.cluster = f->cluster};
  double table[KINDS][3][POINTS];
  weir_solve_row rows[KINDS];
  size_t count = 0, options;
  for (size_t i = 0; i < f->profile->count; i++) k.bytes += weir_profile_bytes(f->profile, i);
  k.bytes /= 8.0;
  for (size_t kind = 0; kind < KINDS; kind++) k.least[kind] = INFINITY;
  weir_status status = weir_options_visit(&f->limits->options, fastest, &k, &options);
  for (size_t kind = 0; kind < KINDS && status == WEIR_OK; kind++) {
    if (k.least[kind] == INFINITY) continue;
    double(*t)[POINTS] = table[kind];
    tabulate(&k, kind, t[0], t[1], t[2]);
    rows[count++] = (weir_solve_row){.compress = {.count = POINTS, .bytes = t[0], .seconds = t[1]},
                                     .exchange = {.count = POINTS, .bytes = t[0], .seconds = t[2]},
                                     .beside = kind == 2};
  }
  weir_solution solution;
  const weir_solve_limits reduced = {.work = REDUCED_WORK};
  if (status == WEIR_OK) status = weir_solve(f->profile, rows, count, &reduced, &solution);
  if (status != WEIR_OK) return status;
  for (size_t g = 0; g < solution.count; g++) f->trial[g] = solution.bucket[g].end;
  status = look(f, solution.count);
  weir_solution_free(&solution);
  return status;
}

static weir_status look_at_usual(fuser *f) {
  static const weir_curve free_of_charge = {0};
  weir_status status = WEIR_OK;
  for (size_t b = 0; b < weir_fusion_baseline_count && status == WEIR_OK && in_time(f); b++) {
    weir_fusion fusion;
    status = weir_fusion_run_baseline(&weir_fusion_baselines[b], f->profile, &free_of_charge,
                                      &free_of_charge, &fusion);
    if (status != WEIR_OK) break;
    memcpy(f->trial, fusion.end, fusion.buckets * sizeof *f->trial);
    status = look(f, fusion.buckets);
    weir_fusion_free(&fusion);
  }
  return status;
}

/* --- improvement ---------------------------------------------------------------------------- */

/* Change number `move` at the border behind bucket k: merge; split the bucket before it; move the
 * border by one tensor either way.  Returns the number of buckets, 0 when it cannot be done. */
static size_t change(fuser *f, size_t k, size_t move) {
  const size_t buckets = f->best_buckets, begin = k ? f->best[k - 1] : 0, end = f->best[k];
  memcpy(f->trial, f->best, buckets * sizeof *f->trial);
  if (move == 0) {
    if (k + 1 == buckets) return 0;
    memmove(&f->trial[k], &f->trial[k + 1], (buckets - k - 1) * sizeof *f->trial);
    return buckets - 1;
  }
  if (move == 1) {
    if (end - begin < 2) return 0;
    memmove(&f->trial[k + 1], &f->trial[k], (buckets - k) * sizeof *f->trial);
    f->trial[k] = begin + (end - begin) / 2;
    return buckets + 1;
  }
  if (k + 1 == buckets) return 0;
  f->trial[k] += move == 2 ? 1 : (size_t)-1;
  return f->trial[k] > begin && f->trial[k] < f->best[k + 1] ? buckets : 0;
}

static weir_status improve(fuser *f) {
  const size_t end = f->trials + TRIALS;
  for (bool better = true; better && f->trials < end && in_time(f);) {
    better = false;
    for (size_t move = 0; move < 4; move++)
      for (size_t k = f->best_buckets; k-- > 0 && f->trials < end && in_time(f);) {
        if (k >= f->best_buckets) continue;
        const double before = f->best_s;
        const size_t buckets = change(f, k, move);
        const weir_status status = buckets ? look(f, buckets) : WEIR_OK;
        if (status != WEIR_OK) return status;
        better |= f->best_s < before;
      }
  }
  return WEIR_OK;
}

/* --- the whole ------------------------------------------------------------------------------ */

/* The work that there is time for; some in any case. */
static size_t work_left(const fuser *f, size_t work) {
  const double share = (f->end_s - weir_thread_cpu_s()) / (slower * f->alone_s);
  const double all = (double)(work ? work : WEIR_STRATEGY_WORK);
  return share >= 1.0 ? work : (size_t)fmax(TRIAL_WORK, share * all);
}

/* The buckets' strategy in earnest; every tensor alone when that is better. */
static weir_status finish(fuser *f, const weir_strategy_limits *whole, weir_strategy_report *alone,
                          weir_strategy_fusion *fusion) {
  const size_t n = f->profile->count;
  weir_strategy_limits own = *whole, *limits = &own;
  own.work = work_left(f, whole->work);
  weir_status status = WEIR_OK;
  double fused_s = INFINITY;
  if (f->best_buckets) {
    status = solve_buckets(f, f->best, f->best_buckets, limits, &fusion->profile, &fusion->report);
    if (status == WEIR_OK) fused_s = fusion->report.by[WEIR_STRATEGY_WEIR].iteration_s;
  }
  if (status == WEIR_OK && alone->by[WEIR_STRATEGY_WEIR].iteration_s < fused_s) {
    weir_profile_free(&fusion->profile);
    weir_strategy_report_free(&fusion->report);
    for (size_t i = 0; i < n; i++) f->best[i] = i + 1;
    f->best_buckets = n;
    fusion->report = *alone;
    *alone = (weir_strategy_report){0};
    status = weir_profile_fuse(f->profile, f->best, n, &fusion->profile);
  }
  return status;
}

weir_status weir_strategy_fuse(const weir_profile *profile, const weir_cluster *cluster,
                               const weir_strategy_limits *limits, weir_strategy_fusion *fusion) {
  static const weir_strategy_limits no_limits = {0};
  const double begun = weir_now_s();
  const size_t n = profile->count;
  *fusion = (weir_strategy_fusion){0};
  weir_status status = weir_cluster_check(cluster);
  if (status != WEIR_OK) return status;
  fuser f = {.profile = profile,
             .cluster = cluster,
             .limits = limits ? limits : &no_limits,
             .best_s = INFINITY};
  f.best = malloc(2 * n * sizeof *f.best);
  if (!f.best) return weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", n);
  f.trial = f.best + n;
  weir_strategy_limits whole = *f.limits;
  if (!whole.work && n > WEIR_STRATEGY_THOROUGH) whole.work = n > FEW ? WHOLE_WORK : FEW_WORK;
  const double most_s = whole.fuse_s > 0.0 ? whole.fuse_s : WEIR_STRATEGY_FUSE_S;
  const double cpu_s = weir_thread_cpu_s();
  weir_strategy_report alone;
  status = weir_strategy_solve(profile, cluster, &whole, &alone);
  f.alone_s = weir_thread_cpu_s() - cpu_s;
  f.until_s = cpu_s + trial_share * most_s;
  f.end_s = cpu_s + most_s;
  if (status == WEIR_OK && n <= WEIR_SOLVE_TENSORS && in_time(&f)) status = look_at_reduced(&f);
  if (status == WEIR_OK) status = look_at_usual(&f);
  if (status == WEIR_OK && f.best_buckets) status = improve(&f);
  if (status == WEIR_OK) status = finish(&f, &whole, &alone, fusion);
  weir_strategy_report_free(&alone);
  fusion->report.upper_bound_s = 0.0;
  fusion->end = f.best; /* [0, buckets) */
  fusion->buckets = f.best_buckets;
  fusion->solve_s = weir_now_s() - begun;
  if (status != WEIR_OK) weir_strategy_fusion_free(fusion);
  return status;
}

void weir_strategy_fusion_free(weir_strategy_fusion *fusion) {
  free(fusion->end);
  weir_profile_free(&fusion->profile);
  weir_strategy_report_free(&fusion->report);
  *fusion = (weir_strategy_fusion){0};
}
