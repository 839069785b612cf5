/* Times of sizes that are not run: beyond the last cache, and on the way there.
 *
 * Only a curve whose largest size is not in memory is continued here; behind one that is, a line
 * goes on.
 *
 * A codec is run on a window of WEIR_KERNEL_WINDOW elements whose data were put out of the caches.
 * A window is smaller than a gradient in memory in three ways, each of which has its term:
 *   - what is written has to leave the cache some time: what evicting it takes beyond evicting what
 *     was only read is added, for every byte written;
 *   - a codec's second pass over a window finds it in the cache: for each further pass as much is
 *     added as the first took beyond its time in the caches, once to twice what reading alone does
 *     (low rank evicts between its own);
 *   - drawing indices marks them in a bit an element, at random, and a gradient's marks are in no
 *     cache: that is timed at the full size, as it reads no gradient. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/fit_run.h"
#include "kernels/internal.h"
#include "kernels/powersgd.h"

enum { ROUNDS = 3 };
static const double least_share = 1.0 / 3.0, most_share = 8.0 / 3.0;
/* Knots, as bytes touched by a step of the simplest codecs over those of the last cache. */
static const double shares[] = {1.0 / 3.0, 0.6, 1.0, 1.6, 8.0 / 3.0, 8.0};
#define SHARES (sizeof shares / sizeof shares[0])
_Static_assert(SHARES == WEIR_KERNEL_WINDOWED, "what other knots leave room for");

/* Of one window, s. */
typedef struct window {
  double seconds[2]; /* compress without accumulating, decode */
  double bytes;      /* of the message */
  double draw;       /* part of compressing */
} window;
typedef struct common {
  double accumulate, accumulate_warm;
  double read, read_warm; /* a pass that reads e */
  double written;         /* for a float of each element to leave the cache */
} common;

/* As they are measured. */
enum { ACCUMULATE, ACCUMULATE_WARM, EVICT_WRITTEN, EVICT_READ, READ, READ_WARM, COMMON };
typedef struct window_times {
  weir_kernel_three seconds[2], draw;
  double bytes;
} window_times;

double weir_kernel_beyond(double bytes, double cache) {
  const double share = log(bytes / cache / least_share) / log(most_share / least_share);
  return fmin(fmax(share, 0.0), 1.0);
}

double weir_kernel_last_cache(void) {
  long most = 0;
  for (int i = 0; i < 8; i++) {
    char path[80];
    long kilobytes = 0;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
    FILE *file = fopen(path, "re");
    if (file == NULL) continue;
    if (fscanf(file, "%9ldK", &kilobytes) == 1 && 1024 * kilobytes > most) most = 1024 * kilobytes;
    (void)fclose(file);
  }
  if (most <= 0) most = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return most > 1 << 20 ? (double)most : (double)(32 << 20);
}

/* --- windows --------------------------------------------------------------------------------- */

static void evict_floats(const float *x) { weir_kernel_evict(x, WEIR_KERNEL_WINDOW * sizeof *x); }

static double time_evict(const weir_kernel_probe *p, const float *x) {
  const double start = weir_kernel_now(p);
  evict_floats(x);
  return weir_kernel_since(p, start);
}

static double time_accumulate(weir_kernel_probe *p) {
  const double start = weir_kernel_now(p);
  weir_kernel_accumulate(p, WEIR_KERNEL_WINDOW);
  return weir_kernel_since(p, start);
}

static double time_read(const weir_kernel_probe *p) {
  const double start = weir_kernel_now(p);
  (void)weir_sum_square(p->e, WEIR_KERNEL_WINDOW);
  return weir_kernel_since(p, start);
}

static void time_common(weir_kernel_probe *p, weir_kernel_three t[COMMON]) {
  evict_floats(p->g);
  evict_floats(p->r);
  evict_floats(p->e);
  weir_kernel_put(&t[ACCUMULATE], time_accumulate(p));
  weir_kernel_put(&t[ACCUMULATE_WARM], time_accumulate(p));
  weir_kernel_put(&t[EVICT_WRITTEN], time_evict(p, p->e));
  weir_kernel_put(&t[EVICT_READ], time_evict(p, p->g));
  weir_kernel_put(&t[READ], time_read(p));
  weir_kernel_put(&t[READ_WARM], time_read(p));
}

/* What a large gradient's decoder finds in memory: a message as long as the gradient, not a list.
 */
static bool long_message(const weir_codec *codec) { return codec->encode != NULL || codec->dense; }

/* As in a step: where indices are marked and listed is in no cache, and the caches are full of what
 * was written before. */
static weir_status time_draw(weir_kernel_probe *p, const weir_plan *plan, size_t n,
                             double *seconds) {
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  size_t k;
  weir_kernel_evict(p->context->bitmap, p->context->bitmap_words * sizeof *p->context->bitmap);
  weir_kernel_evict(p->index, (size_t)(plan->cr * (double)n) * sizeof *p->index);
  weir_kernel_accumulate(p, n < p->most ? n : p->most);
  const double start = weir_kernel_now(p);
  const weir_status status =
      weir_codec_find(plan->codec)
          ->draw(p->context, &layout, plan->cr, ++p->seed, p->index, p->most, &k);
  *seconds = weir_kernel_since(p, start);
  return status;
}

static weir_status time_window(weir_kernel_probe *p, const weir_plan *plan, window_times *w) {
  weir_kernel_run run = weir_kernel_run_of(p, plan, WEIR_KERNEL_WINDOW);
  run.cold = true;
  weir_kernel_accumulate(p, WEIR_KERNEL_WINDOW);
  evict_floats(p->e);
  evict_floats(p->sum);
  if (run.codec->dense) { /* where rounding's error goes */
    evict_floats(p->value);
  }
  if (long_message(run.codec)) weir_kernel_evict(p->message, 2 * WEIR_KERNEL_WINDOW);
  double start = weir_kernel_now(p);
  weir_status status = weir_kernel_compress(&run);
  weir_kernel_put(&w->seconds[0], fmax(weir_kernel_since(p, start) - run.apart, 0.0));
  if (long_message(run.codec)) weir_kernel_evict(p->message, run.bytes);
  start = weir_kernel_now(p);
  status = status == WEIR_OK ? weir_kernel_decode(&run) : status;
  weir_kernel_put(&w->seconds[1], weir_kernel_since(p, start));
  w->bytes = (double)run.bytes;
  if (status == WEIR_OK && run.codec->draw != NULL) {
    double draw;
    status = time_draw(p, plan, WEIR_KERNEL_WINDOW, &draw);
    weir_kernel_put(&w->draw, draw);
  }
  return status;
}

/* Whether a curve ends where caches have a good part of a step's data: a line would not go on. */
static bool in_caches(const weir_plan *plan, const weir_kernel_cost *cost, double cache) {
  const size_t last = cost->compress.n[cost->compress.knots - 1];
  return weir_kernel_touched(plan) * (double)last < 1.5 * cache;
}

static weir_status time_windows(weir_kernel_probe *p, const weir_plan *plans, size_t count,
                                const bool *windowed, int rounds, common *c, window *w) {
  weir_status status = WEIR_OK;
  weir_kernel_three t[COMMON] = {{0}};
  window_times *times = calloc(count, sizeof *times);
  if (times == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to time %zu codecs", count);
  for (int round = 0; round < rounds && round < ROUNDS; round++) {
    time_common(p, t);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
      status = windowed[i] ? time_window(p, &plans[i], &times[i]) : WEIR_OK;
  }
  *c =
      (common){weir_kernel_middle(&t[ACCUMULATE]), weir_kernel_middle(&t[ACCUMULATE_WARM]),
               weir_kernel_middle(&t[READ]), weir_kernel_middle(&t[READ_WARM]),
               fmax(weir_kernel_middle(&t[EVICT_WRITTEN]) - weir_kernel_middle(&t[EVICT_READ]), 0)};
  for (size_t i = 0; i < count; i++) {
    w[i] = (window){
        {weir_kernel_middle(&times[i].seconds[0]), weir_kernel_middle(&times[i].seconds[1])},
        times[i].bytes,
        weir_kernel_middle(&times[i].draw)};
  }
  free(times);
  return status;
}

/* --- the model ------------------------------------------------------------------------------- */

/* A window's times with all that a gradient in memory has and a window has not. */
static void complete(const weir_plan *plan, const common *c, const weir_kernel_cost *warm,
                     window *w) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const double floats = (double)WEIR_KERNEL_WINDOW * sizeof(float);
  const double in_cache =
      weir_kernel_seconds(&warm->compress, WEIR_KERNEL_WINDOW) - c->accumulate_warm;
  const double read = fmax(c->read - c->read_warm, 0.0);
  const double further = fmin(fmax(w->seconds[0] - in_cache, read), 2.0 * read);
  w->seconds[0] += c->accumulate + c->written + codec->rereads * further;
  if (long_message(codec)) w->seconds[0] += w->bytes / floats * c->written;
  if (codec->rounds || codec->low_rank) { /* error, e */
    w->seconds[0] += c->written;
  }
  if (codec->encode != NULL || codec->low_rank || codec->rounds) w->seconds[1] += c->written;
}

/* From the curve's last line to that through the window's time, whose fixed part is the same. */
static double between(const weir_kernel_curve *curve, weir_kernel_line last, double seconds,
                      double share, double n) {
  const double alpha = fmin(fmax(last.alpha, 0.0), 0.5 * seconds);
  const double warm = fmax(last.alpha + last.beta * n, curve->seconds[curve->knots - 1]);
  const double cold = alpha + (seconds - alpha) / (double)WEIR_KERNEL_WINDOW * n;
  return warm + share * fmax(cold - warm, 0.0);
}

/* What drawing takes at n elements beyond n / m of what it takes at m; 0 for what draws nothing. */
static weir_status further_draw(weir_kernel_probe *p, const weir_plan *plan, size_t n, size_t m,
                                double draw_m, double *seconds) {
  double draw = 0.0;
  *seconds = 0.0;
  if (weir_codec_find(plan->codec)->draw == NULL || plan->cr * (double)n > (double)p->most)
    return WEIR_OK;
  const weir_status status = time_draw(p, plan, n, &draw);
  *seconds = fmax(draw - draw_m * (double)n / (double)m, 0.0);
  return status;
}

/* Knots behind `from`, the last beyond `to` or where nothing changes any more. */
static size_t find_knots(size_t from, size_t to, double cache, size_t *n) {
  size_t knots = 0;
  for (size_t i = 0; i < SHARES; i++) {
    const size_t at = (size_t)(shares[i] * cache / WEIR_KERNEL_STEP_BYTES);
    if (at <= from + from / 4 || (knots > 0 && n[knots - 1] >= to)) continue;
    n[knots++] = at;
  }
  if (knots == 0) n[knots++] = 4 * from;
  return knots;
}

static weir_status extend(weir_kernel_probe *p, const weir_plan *plan, const window *w, size_t to,
                          double cache, weir_kernel_cost *cost) {
  weir_kernel_curve *const curves[2] = {&cost->compress, &cost->decode};
  const size_t from = cost->compress.n[cost->compress.knots - 1];
  const double touched = weir_kernel_touched(plan);
  const double first = fmin(weir_kernel_beyond(touched * (double)from, cache), 0.9);
  const weir_kernel_line last[2] = {weir_kernel_line_at(curves[0], from),
                                    weir_kernel_line_at(curves[1], from)};
  size_t n[SHARES];
  const size_t knots = find_knots(from, to, cache, n);
  weir_status status = WEIR_OK;
  for (size_t i = 0; status == WEIR_OK && i < knots; i++) {
    const double past = weir_kernel_beyond(touched * (double)n[i], cache);
    const double share = fmax(past - first, 0.0) / (1.0 - first);
    double further;
    status = further_draw(p, plan, n[i], WEIR_KERNEL_WINDOW, w->draw, &further);
    const double seconds[2] = {
        between(curves[0], last[0], w->seconds[0], share, (double)n[i]) + further,
        between(curves[1], last[1], w->seconds[1], share, (double)n[i])};
    weir_kernel_append(curves[0], n[i], seconds[0]);
    weir_kernel_append(curves[1], n[i], seconds[1]);
  }
  return status;
}

weir_status weir_kernel_fit_large(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                                  size_t to, int runs, weir_kernel_cost *cost) {
  const double cache = weir_kernel_last_cache();
  common c = {0};
  bool any = false;
  bool *windowed = calloc(count, sizeof *windowed);
  window *w = malloc(count * sizeof *w);
  weir_status status = WEIR_OK;
  if (w == NULL || windowed == NULL) {
    status = weir_fail(WEIR_E_NOMEM, "no memory to time %zu codecs", count);
    goto done;
  }
  for (size_t i = 0; i < count; i++) {
    windowed[i] = cost[i].compress.n[cost[i].compress.knots - 1] < to &&
                  in_caches(&plans[i], &cost[i], cache);
    any = any || windowed[i];
  }
  status = any ? time_windows(probe, plans, count, windowed, runs, &c, w) : WEIR_OK;
  for (size_t i = 0; i < count && status == WEIR_OK; i++) {
    if (windowed[i]) {
      complete(&plans[i], &c, &cost[i], &w[i]);
      status = extend(probe, &plans[i], &w[i], to, cache, &cost[i]);
    }
  }
done:
  free(windowed);
  free(w);
  return status;
}
