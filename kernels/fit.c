/* Fitting compression times; fit.h. */
#include "kernels/fit.h"

#include <math.h>

#include "base/base.h"
#include "kernels/fit_run.h"
#include "kernels/internal.h"

/* Sizes that are run: close enough to each other for the second cache to end between any two, and
 * on both sides of where selecting goes another way.  The small ones are not of whole vectors, for
 * few tensors are, and the large ones no powers of two, for samples of these that lie apart by one
 * meet in few sets of a cache.  A pass runs each so often, after runs that do not count. */
typedef struct knot {
  size_t n;
  int warm_ups, runs;
  bool extra; /* only as far as time allows */
} knot;
#define SMALL ((size_t)4 * WEIR_SAMPLE)
static const knot measured[] = {{1004, 2, 5, false},
                                {2004, 2, 5, false},
                                {4008, 2, 5, false},
                                {16008, 2, 5, false},
                                {SMALL - 1, 2, 3, false},
                                {SMALL, 1, 3, false},
                                {46000, 1, 2, true},
                                {65000, 1, 2, true},
                                {WEIR_KERNEL_WINDOW, 2, 3, false},
                                {2 * WEIR_KERNEL_WINDOW, 3, 3, true},
                                {WEIR_KERNEL_FIT_MOST, 4, 3, false}};
#define MEASURED (sizeof measured / sizeof measured[0])
/* And larger ones: bytes that a step touches over those of the last cache.  It begins to be left
 * when they are half of it, and when they are twice as many most of them are in memory; far beyond
 * it each further element costs the same.
 *
 * A last cache takes up what is used again and again little by little: so what it could hold is run
 * several times before it counts. */
static const struct share {
  double of_cache;
  int warm_ups, runs;
} shares[] = {{0.4, 4, 1},  {0.5, 5, 1}, {0.62, 5, 1}, {0.84, 5, 1},
              {1.22, 5, 1}, {2.1, 1, 1}, {6.2, 0, 1}};
#define SHARES (sizeof shares / sizeof shares[0])
_Static_assert(MEASURED + SHARES + WEIR_KERNEL_WINDOWED <= WEIR_KERNEL_KNOTS,
               "a curve has room for all knots");
/* All sizes are run in so many passes, as far as time allows: what else goes on in the machine for
 * some milliseconds is then in one of a size's, and the lesser of two or the median of three leaves
 * it out. */
enum { PASSES = 3 };
/* A run of a large size takes so long an element at the most, or it is not worth having room for
 * it. */
static const double slow_s = 4e-9;
/* An element of a large size may cost so much more than one of a small size. */
static const double in_memory_s = 1.5e-9;

/* --- curves ---------------------------------------------------------------------------------- */

/* The last knot that is far from the last one, else the first. */
static const double far = 0.55;

static size_t far_from_last(const weir_kernel_curve *curve) {
  size_t at = curve->knots - 2;
  while (at > 0 && (double)curve->n[at] > far * (double)curve->n[curve->knots - 1]) at--;
  return at;
}

weir_kernel_line weir_kernel_line_at(const weir_kernel_curve *curve, size_t n) {
  const size_t last = curve->knots - 1;
  size_t at = 1;
  while (at < last && curve->n[at] < n) at++;
  const size_t before = n > curve->n[last] ? far_from_last(curve) : at - 1;
  double from = (double)curve->n[before];
  double beta = (curve->seconds[at] - curve->seconds[before]) / ((double)curve->n[at] - from);
  if (n > curve->n[last] && beta <= 0.0)
    return (weir_kernel_line){0.0, curve->seconds[last] / (double)curve->n[last]};
  return (weir_kernel_line){curve->seconds[before] - beta * from, beta};
}

double weir_kernel_seconds(const weir_kernel_curve *curve, size_t n) {
  weir_kernel_line line = weir_kernel_line_at(curve, n);
  return fmax(line.alpha + line.beta * (double)n, 0.0);
}

/* --- sizes that are run ---------------------------------------------------------------------- */

void weir_kernel_append(weir_kernel_curve *curve, size_t n, double seconds) {
  curve->n[curve->knots] = n;
  curve->seconds[curve->knots++] = seconds;
}

static int least(int a, int b) { return a < b ? a : b; }
static size_t least_size(size_t a, size_t b) { return a < b ? a : b; }

/* A plan's way through the sizes. */
typedef struct course {
  weir_kernel_probe *probe;
  const weir_plan *plan;
  const weir_kernel_wanted *wanted;
  double cache; /* bytes of the last one */
  double until;
  double each; /* s an element, of the last size that was run; 0: none was */
  size_t was;  /* it; 0: none was */
  struct size {
    weir_kernel_three compress, decode; /* a pass each */
    double took;                        /* s that all runs of the last one took */
  } size[MEASURED + SHARES];
} course;

/* Whether a size's runs end in time, by what they took in the last pass, or else by the last size.
 */
static bool affordable(const course *c, const knot *at, const struct size *size) {
  const double each = c->was > 0 ? c->each + (c->was <= SMALL ? in_memory_s : 0.0) : slow_s;
  const double takes =
      size->compress.count > 0 ? size->took : each * (double)at->n * (at->warm_ups + at->runs);
  return weir_kernel_now(c->probe) + takes <= c->until;
}

static weir_status run_size(course *c, const knot *at, struct size *size) {
  const int runs = least(at->runs, c->wanted->runs);
  double compress, decode;
  if ((at->extra || size->compress.count > 0) && !affordable(c, at, size)) return WEIR_OK;
  const double start = weir_kernel_now(c->probe);
  const weir_status status =
      weir_kernel_time(c->probe, c->plan, at->n, at->warm_ups, runs, &compress, &decode);
  if (status == WEIR_OK) {
    weir_kernel_put(&size->compress, compress);
    weir_kernel_put(&size->decode, decode);
  }
  size->took = weir_kernel_now(c->probe) - start;
  c->each = size->took / (double)at->n / (at->warm_ups + runs);
  c->was = at->n;
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
static weir_status run_sizes(course *c, const knot *sizes, size_t count) {
  weir_status status = WEIR_OK;
  size_t small = 0;
  for (; status == WEIR_OK && small < count && sizes[small].n <= SMALL; small++)
    status = run_size(c, &sizes[small], &c->size[small]);
  for (size_t i = count; status == WEIR_OK && i-- > small;)
    status = run_size(c, &sizes[i], &c->size[i]);
  return status;
}

static weir_status fit_sizes(course *c, const knot *sizes, size_t count, weir_kernel_cost *cost) {
  const size_t used = used_of(sizes, count, c->wanted->to);
  weir_status status = WEIR_OK;
  c->until = weir_kernel_now(c->probe) + c->wanted->each_s;
  for (int pass = 0; status == WEIR_OK && pass < PASSES; pass++) status = run_sizes(c, sizes, used);
  for (size_t i = 0; status == WEIR_OK && i < used; i++) {
    const struct size *size = &c->size[i];
    if (size->compress.count > 0) {
      weir_kernel_append(&cost->compress, sizes[i].n, weir_kernel_middle(&size->compress));
      weir_kernel_append(&cost->decode, sizes[i].n, weir_kernel_middle(&size->decode));
    }
  }
  return status;
}

/* The larger sizes that some time is good for, ascending, when a step touches so many bytes an
 * element: how many. */
static size_t find_large(double each_s, double touched, double cache, knot large[SHARES]) {
  size_t count = 0;
  for (size_t i = 0; i < SHARES; i++) {
    const double n = shares[i].of_cache * cache / touched;
    if (n > 1.1 * (double)WEIR_KERNEL_FIT_MOST && n * slow_s <= each_s)
      large[count++] = (knot){(size_t)n / 1000 * 1000, shares[i].warm_ups, shares[i].runs, true};
  }
  return count;
}

static size_t room_for(double each_s, double cache) {
  knot large[SHARES];
  const size_t count = find_large(each_s, WEIR_KERNEL_STEP_BYTES, cache, large);
  return count > 0 ? large[count - 1].n : WEIR_KERNEL_FIT_MOST;
}

size_t weir_kernel_fit_room(double each_s) { return room_for(each_s, weir_kernel_last_cache()); }

/* Those that a probe of that room has room for; where it has it for most of the largest, as much as
 * it has. */
static size_t find_sizes(const course *c, knot sizes[MEASURED + SHARES]) {
  const double each_s = c->wanted->each_s;
  knot large[SHARES];
  size_t count = 0;
  const size_t larger = find_large(each_s, weir_kernel_touched(c->plan), c->cache, large);
  const size_t room = least_size(c->probe->most, room_for(each_s, c->cache));
  for (size_t i = 0; i < MEASURED + larger; i++) {
    knot next = i < MEASURED ? measured[i] : large[i - MEASURED];
    if (i >= MEASURED && next.n > room && room > next.n / 3 * 2) next.n = room;
    if (next.n <= room) sizes[count++] = next;
  }
  return count;
}

/* The last one that is always run and not above `from`, with another such one behind it. */
static size_t first_of(const knot *sizes, size_t count, size_t from) {
  size_t first = 0, before = 0;
  for (size_t i = 0; i < count; i++) {
    if (sizes[i].extra) continue;
    first = sizes[before].n <= from ? before : first;
    before = i;
  }
  return first;
}

/* As much as sizes that are always run may need. */
static weir_status grow_scratch(weir_kernel_probe *probe) {
  const size_t most = probe->most < WEIR_KERNEL_FIT_MOST ? probe->most : WEIR_KERNEL_FIT_MOST;
  const size_t room = most / 2;
  if (probe->context->capacity >= room) return WEIR_OK;
  const weir_status status = weir_context_reserve(probe->context, room);
  if (status == WEIR_OK) {
    memset(probe->context->magnitude, 0, room * sizeof(float));
    memset(probe->context->position, 0, room * sizeof(uint32_t));
  }
  return status;
}

weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                            const weir_kernel_wanted *wanted, weir_kernel_cost *cost) {
  if (wanted->runs < 1 || count < 1)
    return weir_fail(WEIR_E_INVALID, "%zu plans to fit in %d runs", count, wanted->runs);
  if (probe->most < WEIR_KERNEL_WINDOW) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to fit on, not %zu", probe->most,
                     WEIR_KERNEL_WINDOW);
  }
  knot sizes[MEASURED + SHARES];
  const double cache = weir_kernel_last_cache();
  weir_status status = grow_scratch(probe);
  for (size_t i = 0; status == WEIR_OK && i < count; i++) {
    course c = {.probe = probe, .plan = &plans[i], .wanted = wanted, .cache = cache};
    const size_t all = find_sizes(&c, sizes);
    const size_t first = first_of(sizes, all, wanted->from);
    cost[i] = (weir_kernel_cost){0};
    status = fit_sizes(&c, sizes + first, all - first, &cost[i]);
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
    plan.scheme = WEIR_SCHEME_LOW_RANK;
    return plan;
  }
  if (!row->dense && row->encode == NULL) {
    plan.wire = wire;
    plan.scheme = row->shared_indices ? WEIR_SCHEME_SHARED : WEIR_SCHEME_GATHER;
    return plan;
  }
  plan.scheme = row->dense ? WEIR_SCHEME_DENSE : WEIR_SCHEME_GATHER;
  static const double widths[] = {4, 2, 1, 8, 16, 32};
  for (size_t i = 0; row->encode != NULL && i < sizeof widths / sizeof widths[0]; i++) {
    plan.cr = widths[i] / 32.0;
    if (weir_plan_check(&plan) == WEIR_OK) break;
  }
  return plan;
}

weir_status weir_kernel_fit_all(double cr, weir_wire_format wire, double each_s,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]) {
  const weir_kernel_wanted wanted = {1, SIZE_MAX, WEIR_KERNEL_RUNS, each_s};
  weir_plan plans[WEIR_CODEC_COUNT];
  weir_kernel_probe *probe = NULL;
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++)
    plans[codec] = weir_kernel_fit_plan(codec, cr, wire);
  weir_status status = weir_kernel_probe_create(&probe, weir_kernel_fit_room(each_s));
  if (status == WEIR_OK) status = weir_kernel_fit(probe, plans, WEIR_CODEC_COUNT, &wanted, cost);
  weir_kernel_probe_free(probe);
  return status;
}
