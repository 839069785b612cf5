/* Fitting compression times; fit.h. */
#include "kernels/fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/fit_run.h"
#include "kernels/internal.h"

/* Sizes that are run, so often: close enough to each other for the second cache to end between any
 * two, and on both sides of where selecting goes another way.  The small ones are not of whole
 * vectors, for few tensors are, and the large ones no powers of two, for samples of these that lie
 * apart by one meet in few sets of a cache. */
enum warming {
  WARM_ONCE,
  WARM_LONG, /* long enough for the last cache: see below */
  COLD       /* more than a cache holds: nothing is gained by warming up */
};
typedef struct knot {
  size_t n;
  int runs;
  bool extra; /* only as far as time allows */
  enum warming warming;
} knot;
#define SMALL ((size_t)4 * WEIR_SAMPLE)
static const knot measured[] = {{1004, 5, false, WARM_ONCE},
                                {2004, 5, false, WARM_ONCE},
                                {4008, 5, false, WARM_ONCE},
                                {16008, 5, false, WARM_ONCE},
                                {SMALL - 1, 3, false, WARM_ONCE},
                                {SMALL, 3, false, WARM_ONCE},
                                {46000, 3, true, WARM_ONCE},
                                {65000, 3, true, WARM_ONCE},
                                {WEIR_KERNEL_WINDOW, 3, false, WARM_ONCE},
                                {2 * WEIR_KERNEL_WINDOW, 3, true, WARM_ONCE},
                                {WEIR_KERNEL_FIT_MOST, 3, false, WARM_LONG}};
#define MEASURED (sizeof measured / sizeof measured[0])
/* And larger ones: bytes that the simplest codecs touch over those of the last cache. */
static const struct share {
  double of_cache;
  int runs;
  enum warming warming;
} shares[] = {{0.36, 2, WARM_ONCE}, {0.5, 3, WARM_LONG}, {1.0, 2, COLD}, {2.5, 2, COLD}};
#define SHARES (sizeof shares / sizeof shares[0])
/* All runs of the larger sizes together take an element of the largest so long. */
static const double slow_s = 4e-9;
/* An element of a large size may cost so many times what one of a small size costs. */
static const double dearer = 3.5;
/* A last cache takes up what is used again and again little by little: some runs of the largest
 * sizes that it holds, as many as take this share of the time, go before those that count.  The
 * smaller ones then find all of theirs there. */
enum { WARM_UPS_LEAST = 2, WARM_UPS_MOST = 16 };
static const double warm_share = 0.05;
/* A second run of what is more than a cache holds leaves so much of the time for the others. */
static const double kept_share = 0.25;

/* --- curves ---------------------------------------------------------------------------------- */

weir_kernel_line weir_kernel_line_at(const weir_kernel_curve *curve, size_t n) {
  const size_t last = curve->knots - 1;
  size_t at = 1;
  while (at < last && curve->n[at] < n) {
    at++;
  }
  double from = (double)curve->n[at - 1];
  double beta = (curve->seconds[at] - curve->seconds[at - 1]) / ((double)curve->n[at] - from);
  if (n > curve->n[last] && beta <= 0.0) {
    return (weir_kernel_line){0.0, curve->seconds[last] / (double)curve->n[last]};
  }
  return (weir_kernel_line){curve->seconds[at - 1] - beta * from, beta};
}

double weir_kernel_seconds(const weir_kernel_curve *curve, size_t n) {
  weir_kernel_line line = weir_kernel_line_at(curve, n);
  return fmax(line.alpha + line.beta * (double)n, 0.0);
}

/* --- sizes that are run ---------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Medians of what so many runs took; of two the lesser. */
static void middle_of(double each[2][WEIR_KERNEL_RUNS], int runs, double seconds[2]) {
  for (int i = 0; i < 2; i++) {
    qsort(each[i], (size_t)runs, sizeof each[i][0], ascending);
    seconds[i] = each[i][(runs - 1) / 2];
  }
}

/* In so many seconds, when one takes so long. */
static int warm_ups_for(double warm_s, double once) {
  return (int)fmin(fmax(warm_s / fmax(once, 1e-9), WARM_UPS_LEAST), WARM_UPS_MOST);
}

static const double is_warm = -1.0;

/* One size of one plan: medians of so many runs after one for warming up, which tells how many make
 * a batch, or as many as warm up the last cache for so long (is_warm: not at all).  What is over in
 * microseconds is warmed up twice: its first run of all waits for code and predictors, and tells
 * nothing. */
static weir_status time_at(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                           double warm_s, double seconds[2]) {
  double each[2][WEIR_KERNEL_RUNS];
  weir_kernel_run run = weir_kernel_run_of(probe, plan, n);
  int batch[2] = {0, 0};
  weir_status status = WEIR_OK;
  if (n < SMALL) {
    status = weir_kernel_sample(&run, batch, seconds);
    batch[0] = batch[1] = 0;
  }
  status = status == WEIR_OK ? weir_kernel_sample(&run, batch, seconds) : status;
  const int warm_ups = warm_s < 0.0 ? 1 : warm_ups_for(warm_s, seconds[0] + seconds[1]);
  for (int i = 1; status == WEIR_OK && i < warm_ups; i++) {
    status = weir_kernel_sample(&run, batch, seconds);
  }
  for (int i = 0; status == WEIR_OK && i < runs; i++) {
    status = weir_kernel_sample(&run, batch, seconds);
    each[0][i] = seconds[0];
    each[1][i] = seconds[1];
  }
  if (status == WEIR_OK) {
    middle_of(each, runs, seconds);
  }
  return status;
}

/* What a codec's scratch has room for: growing it is not part of a codec's time. */
static size_t scratch_of(const weir_kernel_probe *probe) {
  return probe->context->capacity + probe->context->mark_words;
}

/* A size that is more than a cache holds.  At least one run that no scratch grew in, and others
 * while they would end in time. */
static weir_status time_cold(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double until, double seconds[2]) {
  double each[2][WEIR_KERNEL_RUNS];
  weir_kernel_run run = weir_kernel_run_of(probe, plan, n);
  int batch[2] = {1, 1}, done = 0;
  weir_status status = WEIR_OK;
  double took = 0.0;
  while (status == WEIR_OK && done < runs && (done == 0 || weir_thread_cpu_s() + took <= until)) {
    const size_t before = scratch_of(probe);
    status = weir_kernel_sample(&run, batch, seconds);
    took = seconds[0] + seconds[1];
    each[0][done] = seconds[0];
    each[1][done] = seconds[1];
    done += scratch_of(probe) == before;
  }
  if (status == WEIR_OK) {
    middle_of(each, done, seconds);
  }
  return status;
}

weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double *compress, double *decode) {
  double seconds[2] = {0.0, 0.0};
  if (n > probe->most) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to time, and room for %zu", n, probe->most);
  }
  if (runs < 1 || runs > WEIR_KERNEL_RUNS) {
    return weir_fail(WEIR_E_INVALID, "%d runs: expected 1 to %d", runs, WEIR_KERNEL_RUNS);
  }
  const weir_status status = time_at(probe, plan, n, runs, is_warm, seconds);
  *compress = seconds[0];
  *decode = seconds[1];
  return status;
}

static void append(weir_kernel_curve *curve, size_t n, double seconds) {
  curve->n[curve->knots] = n;
  curve->seconds[curve->knots++] = seconds;
}

static int least(int a, int b) { return a < b ? a : b; }

/* A plan's way through the sizes. */
typedef struct course {
  weir_kernel_probe *probe;
  const weir_plan *plan;
  const weir_kernel_wanted *wanted;
  double until;
  double each; /* s an element, of the last size that was run; 0: none was */
  bool small;  /* it was a small one */
  bool warm;   /* the last cache holds what it can of it */
  double seconds[MEASURED + SHARES][2];
  bool run[MEASURED + SHARES];
} course;

static bool affordable(const course *c, const knot *at, double warm_s) {
  const double each = c->each > 0.0 ? c->each * (c->small ? dearer : 1.0) : slow_s;
  const double once = each * (double)at->n;
  const int runs =
      at->warming == COLD ? 1 : at->runs + (warm_s < 0.0 ? 1 : warm_ups_for(warm_s, once));
  return weir_thread_cpu_s() + once * runs <= c->until;
}

static weir_status run_size(course *c, const knot *at, size_t i) {
  const int runs = least(at->runs, least(c->wanted->runs, WEIR_KERNEL_RUNS));
  const bool once = at->n <= SMALL || (at->warming == WARM_ONCE && c->warm);
  const double warm_s = once ? is_warm : warm_share * c->wanted->each_s;
  double *seconds = c->seconds[i];
  if (at->extra && !affordable(c, at, warm_s)) {
    return WEIR_OK;
  }
  const weir_status status = at->warming == COLD
                                 ? time_cold(c->probe, c->plan, at->n, runs,
                                             c->until - kept_share * c->wanted->each_s, seconds)
                                 : time_at(c->probe, c->plan, at->n, runs, warm_s, seconds);
  c->run[i] = status == WEIR_OK;
  c->each = (seconds[0] + seconds[1]) / (double)at->n;
  c->small = at->n <= SMALL;
  c->warm = !c->small && at->warming != COLD;
  return status;
}

/* So many of the sizes are on the way to `to`, two at the least that are always run. */
static size_t used_of(const knot *sizes, size_t count, size_t to) {
  size_t used = 0, always = 0;
  bool enough = false;
  while (used < count && !(enough && always >= 2)) {
    const knot *at = &sizes[used++];
    always += !at->extra;
    enough = at->n >= to && (!at->extra || at->n > WEIR_KERNEL_FIT_MOST);
  }
  return used;
}

/* Small sizes from the first on, and the others from the last down: so the last cache need not be
 * warmed up for each. */
static weir_status fit_sizes(weir_kernel_probe *probe, const weir_plan *plan, const knot *sizes,
                             size_t count, const weir_kernel_wanted *wanted,
                             weir_kernel_cost *cost) {
  course c = {.probe = probe, .plan = plan, .wanted = wanted};
  const size_t used = used_of(sizes, count, wanted->to);
  weir_status status = WEIR_OK;
  size_t small = 0;
  c.until = weir_thread_cpu_s() + wanted->each_s;
  for (; status == WEIR_OK && small < used && sizes[small].n <= SMALL; small++) {
    status = run_size(&c, &sizes[small], small);
  }
  for (size_t i = used; status == WEIR_OK && i-- > small;) {
    status = run_size(&c, &sizes[i], i);
  }
  for (size_t i = 0; status == WEIR_OK && i < used; i++) {
    if (c.run[i]) {
      append(&cost->compress, sizes[i].n, c.seconds[i][0]);
      append(&cost->decode, sizes[i].n, c.seconds[i][1]);
    }
  }
  return status;
}

/* The larger sizes that some time is good for, ascending: how many. */
static size_t find_large(double each_s, knot large[SHARES]) {
  const double cache = weir_kernel_last_cache();
  size_t count = 0;
  for (size_t i = 0; i < SHARES; i++) {
    const double n = shares[i].of_cache * cache / WEIR_KERNEL_STEP_BYTES;
    if (n > 1.25 * (double)WEIR_KERNEL_FIT_MOST && n * slow_s <= each_s) {
      large[count++] = (knot){(size_t)n / 1000 * 1000, shares[i].runs, true, shares[i].warming};
    }
  }
  return count;
}

size_t weir_kernel_fit_room(double each_s) {
  knot large[SHARES];
  const size_t count = find_large(each_s, large);
  return count > 0 ? large[count - 1].n : WEIR_KERNEL_FIT_MOST;
}

/* Those there is room for. */
static size_t find_sizes(const weir_kernel_probe *probe, double each_s,
                         knot sizes[MEASURED + SHARES]) {
  knot large[SHARES];
  size_t count = 0;
  const size_t larger = find_large(each_s, large);
  for (size_t i = 0; i < MEASURED + larger; i++) {
    const knot next = i < MEASURED ? measured[i] : large[i - MEASURED];
    if (next.n <= probe->most) {
      sizes[count++] = next;
    }
  }
  return count;
}

/* The last one that is always run and not above `from`, with another such one behind it. */
static size_t first_of(const knot *sizes, size_t count, size_t from) {
  size_t first = 0, before = 0;
  for (size_t i = 0; i < count; i++) {
    if (sizes[i].extra) {
      continue;
    }
    first = sizes[before].n <= from ? before : first;
    before = i;
  }
  return first;
}

/* As much as sizes that are always run may need. */
static weir_status grow_scratch(weir_kernel_probe *probe) {
  const size_t most = probe->most < WEIR_KERNEL_FIT_MOST ? probe->most : WEIR_KERNEL_FIT_MOST;
  const size_t room = most / 2;
  if (probe->context->capacity >= room) {
    return WEIR_OK;
  }
  const weir_status status = weir_context_reserve(probe->context, room);
  if (status == WEIR_OK) {
    memset(probe->context->magnitude, 0, room * sizeof(float));
    memset(probe->context->position, 0, room * sizeof(uint32_t));
  }
  return status;
}

weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                            const weir_kernel_wanted *wanted, weir_kernel_cost *cost) {
  if (wanted->runs < 1 || count < 1) {
    return weir_fail(WEIR_E_INVALID, "%zu plans to fit in %d runs", count, wanted->runs);
  }
  if (probe->most < WEIR_KERNEL_WINDOW) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to fit on, not %zu", probe->most,
                     WEIR_KERNEL_WINDOW);
  }
  knot sizes[MEASURED + SHARES];
  const size_t all = find_sizes(probe, wanted->each_s, sizes);
  const size_t first = first_of(sizes, all, wanted->from);
  weir_status status = grow_scratch(probe);
  for (size_t i = 0; status == WEIR_OK && i < count; i++) {
    cost[i] = (weir_kernel_cost){0};
    status = fit_sizes(probe, &plans[i], sizes + first, all - first, wanted, &cost[i]);
  }
  return status == WEIR_OK
             ? weir_kernel_fit_large(probe, plans, count, wanted->to, wanted->runs, cost)
             : status;
}

weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire) {
  const weir_codec *row = weir_codec_find(codec);
  weir_plan plan = {.codec = codec, .cr = row->dense ? 1.0 : cr};
  if (row->low_rank) {
    plan.cr = 4.0 / WEIR_POWERSGD_RANK_MAX;
    plan.collective = WEIR_COLL_DENSE_RING;
    return plan;
  }
  if (!row->dense && row->encode == NULL) {
    plan.wire = wire;
    plan.collective = row->shared_indices ? WEIR_COLL_ART_RING : WEIR_COLL_AG;
    return plan;
  }
  plan.collective = row->dense ? WEIR_COLL_DENSE_RING : WEIR_COLL_AG;
  static const double widths[] = {4, 2, 1, 8, 16, 32};
  for (size_t i = 0; row->encode != NULL && i < sizeof widths / sizeof widths[0]; i++) {
    plan.cr = widths[i] / 32.0;
    if (weir_plan_check(&plan) == WEIR_OK) {
      break;
    }
  }
  return plan;
}

weir_status weir_kernel_fit_all(double cr, weir_wire_format wire, double each_s,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]) {
  const weir_kernel_wanted wanted = {1, SIZE_MAX, WEIR_KERNEL_RUNS, each_s};
  weir_plan plans[WEIR_CODEC_COUNT];
  weir_kernel_probe *probe = NULL;
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    plans[codec] = weir_kernel_fit_plan(codec, cr, wire);
  }
  weir_status status = weir_kernel_probe_create(&probe, weir_kernel_fit_room(each_s));
  if (status == WEIR_OK) {
    status = weir_kernel_fit(probe, plans, WEIR_CODEC_COUNT, &wanted, cost);
  }
  weir_kernel_probe_free(probe);
  return status;
}
