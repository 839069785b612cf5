/* Evaluating a fusion, the baselines, and the choice of the exact method. */
#include "planner/fusion.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/solve.h"

static const double mib = 1048576.0;

const weir_fusion_baseline weir_fusion_baselines[] = {
    {"layer-wise", 0.0, 0},           {"bucket 2 MiB", 2.0 * mib, 0},
    {"bucket 4 MiB", 4.0 * mib, 0},   {"bucket 8 MiB", 8.0 * mib, 0},
    {"bucket 16 MiB", 16.0 * mib, 0}, {"bucket 25 MiB", 25.0 * mib, 0},
    {"bucket 32 MiB", 32.0 * mib, 0}, {"bucket 64 MiB", 64.0 * mib, 0},
    {"one bucket", 0.0, 1},           {"even, 2 buckets", 0.0, 2},
    {"even, 4 buckets", 0.0, 4},      {"even, 8 buckets", 0.0, 8},
    {"even, 16 buckets", 0.0, 16},
};
const size_t weir_fusion_baseline_count =
    sizeof weir_fusion_baselines / sizeof *weir_fusion_baselines;

void weir_fusion_free(weir_fusion *fusion) {
  free(fusion->end);
  *fusion = (weir_fusion){0};
}

double weir_fusion_evaluate(const weir_profile *profile, const weir_curve *compress,
                            const weir_curve *communicate, const size_t *end, size_t buckets) {
  double compressed = 0.0, sent = 0.0;
  for (size_t k = 0, tensor = 0; k < buckets; k++) {
    double bytes = 0.0;
    for (; tensor < end[k]; tensor++) {
      compressed += profile->tensors[tensor].gap_s;
      bytes += weir_profile_bytes(profile, tensor);
    }
    compressed += weir_curve_at(compress, bytes);
    sent = fmax(compressed, sent) + weir_curve_at(communicate, bytes);
  }
  return sent;
}

weir_status weir_fusion_solve(const weir_profile *profile, const weir_curve *compress,
                              const weir_curve *communicate, weir_fusion *best) {
  return compress->count || communicate->count
             ? weir_fusion_labels(profile, compress, communicate, 0, best)
             : weir_fusion_affine(profile, compress, communicate, best);
}

weir_status weir_fusion_run_baseline(const weir_fusion_baseline *baseline,
                                     const weir_profile *profile, const weir_curve *compress,
                                     const weir_curve *communicate, weir_fusion *fusion) {
  const size_t n = profile->count;
  *fusion = (weir_fusion){.end = malloc(n * sizeof *fusion->end)};
  if (!fusion->end) return weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", n);
  const size_t even = baseline->buckets < n ? baseline->buckets : n;
  double bytes = 0.0;
  for (size_t j = 1; j <= n; j++) {
    bytes += weir_profile_bytes(profile, j - 1);
    int close = 1;
    if (baseline->bucket_bytes > 0.0)
      close = bytes >= baseline->bucket_bytes;
    else if (even)
      close = j * even / n > (j - 1) * even / n;
    if (!close && j < n) continue;
    fusion->end[fusion->buckets++] = j;
    bytes = 0.0;
  }
  fusion->iteration_s =
      weir_fusion_evaluate(profile, compress, communicate, fusion->end, fusion->buckets);
  return WEIR_OK;
}

/* Exact fusion for affine costs: greedy walks below a searched bound (see fusion.h). */

/* The problem in the form of fusion.h, in the direction in which the walk is exact.
 *
 * A walk that takes as much as it may can be stopped by a tensor that a later bucket could hold
 * only if the bound of a bucket, T - (m + 1) c - t (a - c), grew with t.  It does not when a >= c.
 * When a < c the same problem is read from the other end: buckets in reverse, compression and
 * communication swapped, exactly as a two-stage flow line may be run backwards. */
typedef struct affine {
  size_t n;
  const double *rise;   /* [n + 1] P: not descending */
  const double *fall;   /* [n + 1] R: not ascending */
  double first, second; /* fixed costs, first >= second */
  size_t *end;          /* [n] ends of the walk that was made last */
} affine;

static double term(const affine *a, size_t buckets, size_t bucket, size_t from, size_t to) {
  return a->rise[to] + a->fall[from] + (double)bucket * (a->first - a->second) +
         (double)(buckets + 1) * a->second;
}

/* Can exactly `buckets` buckets end by `bound`?  If so *value is when the walk's buckets end. */
static int walk(const affine *a, size_t buckets, double bound, double *value) {
  size_t from = 0;
  *value = 0.0;
  for (size_t bucket = 1; bucket <= buckets; bucket++) {
    const size_t furthest = a->n - (buckets - bucket);
    const double room = bound - (double)bucket * (a->first - a->second) -
                        (double)(buckets + 1) * a->second - a->fall[from];
    size_t to = from;
    while (to < furthest && a->rise[to + 1] <= room) to++;
    if (to == from) return 0;
    *value = fmax(*value, term(a, buckets, bucket, from, to));
    a->end[bucket - 1] = from = to;
  }
  return from == a->n;
}

/* The two ends of the line alone: nothing with that many buckets ends earlier. */
static double least(const affine *a, size_t buckets) {
  return fmax(term(a, buckets, 1, 0, 1), term(a, buckets, buckets, a->n - 1, a->n));
}

typedef struct affine_best {
  double value;
  size_t buckets;
  size_t *end;
} affine_best;

static void keep(const affine *a, size_t buckets, double value, affine_best *best) {
  best->value = value;
  best->buckets = buckets;
  for (size_t k = 0; k < buckets; k++) best->end[k] = a->end[k];
}

/* The best value for this count if it is below best->value; to the last digits of a double. */
static void search(const affine *a, size_t buckets, affine_best *best) {
  const double digit = 1e-15;
  double low = least(a, buckets), value = 0.0;
  if (low >= best->value || !walk(a, buckets, best->value * (1.0 - digit), &value) ||
      value >= best->value)
    return;
  keep(a, buckets, value, best);
  while (best->value - low > digit * best->value) {
    const double middle = low + 0.5 * (best->value - low);
    if (middle <= low || middle >= best->value) return;
    if (walk(a, buckets, middle, &value))
      keep(a, buckets, fmin(value, middle), best);
    else
      low = middle;
  }
}

static void all_counts(const affine *a, size_t *order, affine_best *best) {
  weir_rng rng = weir_rng_of(a->n);
  for (size_t i = 0; i < a->n; i++) {
    const size_t j = (size_t)weir_rng_below(&rng, i + 1);
    order[i] = order[j];
    order[j] = i + 1;
  }
  for (size_t i = 0; i < a->n; i++) search(a, order[i], best);
}

/* rise and fall from the profile's sums; in the reverse direction they change places. */
static void lay_out(const double *ready, const double *bytes, size_t n, const weir_curve *h,
                    const weir_curve *g, double *rise, double *fall) {
  const int backwards = h->fixed_s < g->fixed_s;
  for (size_t j = 0; j <= n; j++) {
    const double up = ready[j] + h->per_byte_s * bytes[j];
    const double down = g->per_byte_s * (bytes[n] - bytes[j]);
    rise[backwards ? n - j : j] = backwards ? down : up;
    fall[backwards ? n - j : j] = backwards ? up : down;
  }
}

static void turn_round(size_t n, affine_best *best) {
  /* Bucket k of the reversed order ends at n - (the begin of its original). */
  size_t *end = best->end;
  const size_t buckets = best->buckets;
  for (size_t k = 0; k + 1 < buckets; k++) end[k] = n - end[k];
  for (size_t k = 0; 2 * k + 2 < buckets; k++) {
    const size_t other = end[buckets - 2 - k];
    end[buckets - 2 - k] = end[k];
    end[k] = other;
  }
}

weir_status weir_fusion_affine(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, weir_fusion *best) {
  *best = (weir_fusion){0};
  weir_status status = weir_curve_check(compress, "compression");
  if (status == WEIR_OK) status = weir_curve_check(communicate, "communication");
  if (status != WEIR_OK) return status;
  if (compress->count || communicate->count)
    return weir_fail(WEIR_E_INVALID, "measured curves: expected affine ones");
  const size_t n = profile->count;
  double *sums = malloc(4 * (n + 1) * sizeof *sums);
  size_t *ends = malloc(2 * n * sizeof *ends);
  best->end = malloc(n * sizeof *best->end);
  if (!sums || !ends || !best->end) {
    status = weir_fail(WEIR_E_NOMEM, "no memory to fuse %zu tensors", n);
    goto done;
  }
  double *ready = sums, *bytes = sums + n + 1, *rise = bytes + n + 1, *fall = rise + n + 1;
  weir_profile_sums(profile, ready, bytes);
  lay_out(ready, bytes, n, compress, communicate, rise, fall);
  const affine a = {n,
                    rise,
                    fall,
                    fmax(compress->fixed_s, communicate->fixed_s),
                    fmin(compress->fixed_s, communicate->fixed_s),
                    ends};
  affine_best found = {INFINITY, 0, best->end};
  a.end[0] = n;
  keep(&a, 1, term(&a, 1, 1, 0, n), &found);
  all_counts(&a, ends + n, &found);
  if (compress->fixed_s < communicate->fixed_s) turn_round(n, &found);
  best->buckets = found.buckets;
  best->iteration_s = best->least_s =
      weir_fusion_evaluate(profile, compress, communicate, best->end, best->buckets);
  if (!isfinite(best->iteration_s))
    status = weir_fail(WEIR_E_INVALID, "these costs give no fusion a finite time");
done:
  free(sums);
  free(ends);
  if (status != WEIR_OK) weir_fusion_free(best);
  return status;
}

/* Exact fusion for measured costs: the joint search with a single row (see fusion.h). */

_Static_assert((int)WEIR_FUSION_LABEL_TENSORS == (int)WEIR_SOLVE_TENSORS, "the same search");

weir_status weir_fusion_labels(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, size_t work, weir_fusion *best) {
  *best = (weir_fusion){0};
  const weir_solve_row row = {.compress = *compress, .exchange = *communicate};
  const weir_solve_limits limits = {.work = work ? work : WEIR_FUSION_WORK};
  weir_solution solution;
  const weir_status status = weir_solve(profile, &row, 1, &limits, &solution);
  if (status != WEIR_OK) return status;
  best->end = malloc(solution.count * sizeof *best->end);
  if (best->end) {
    for (size_t k = 0; k < solution.count; k++) best->end[k] = solution.bucket[k].end;
    best->buckets = solution.count;
    best->iteration_s =
        weir_fusion_evaluate(profile, compress, communicate, best->end, best->buckets);
    best->least_s = solution.least_s;
  }
  weir_solution_free(&solution);
  return best->end ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for a fusion");
}
