/* The slow rank.  Medians over a few steps and over ranks: one late step, and the first one, say
 * nothing.  A rank that was named is so until it is clearly no longer slow. */
#include "session/slow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define COMPUTES 1.5 /* times the others' median; and at least so many seconds more */
#define COMPUTES_S 2e-3
#define LINK 3.0 /* likewise of latencies; and of bandwidths, the other way round */
#define LINK_S 1e-3
#define GOES_ON 0.8 /* of these, for the rank that was named last */
#define STANDS_S 2.0

weir_status weir_slow_open(weir_slow *slow, int ranks) {
  memset(slow, 0, sizeof *slow);
  slow->verdict.rank = slow->told.rank = -1;
  slow->ranks = ranks;
  slow->compute = calloc((size_t)ranks * WEIR_SLOW_STEPS, sizeof *slow->compute);
  slow->value = calloc(2 * (size_t)ranks, sizeof *slow->value);
  if (slow->compute != NULL && slow->value != NULL) return WEIR_OK;
  weir_slow_close(slow);
  return weir_fail(WEIR_E_NOMEM, "no memory to compare %d ranks", ranks);
}

void weir_slow_close(weir_slow *slow) {
  free(slow->value);
  free(slow->compute);
  slow->value = slow->compute = NULL;
}

static double median(double *values, size_t count) {
  weir_sort(values, count);
  return count == 0 ? 0 : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The median of all values but one's; those that are not known are 0 and do not count. */
static double of_others(const weir_slow *slow, int ranks, int without) {
  double *others = slow->value + ranks;
  size_t count = 0;
  for (int r = 0; r < ranks; r++)
    if (r != without && slow->value[r] > 0) others[count++] = slow->value[r];
  return median(others, count);
}

/* Whose value is by the largest factor beyond the median of the others', if it is so by `factor`
 * and by `least`. */
static void compare(weir_slow *slow, int ranks, uint32_t kind, double factor, double least,
                    weir_slow_verdict *worst) {
  const bool inverse = kind == WEIR_SLOW_BANDWIDTH;
  double most = 0;
  for (int r = 0; r < ranks; r++) {
    const double own = slow->value[r], median = of_others(slow, ranks, r);
    if (!(own > 0) || !(median > 0)) continue;
    const bool named = slow->verdict.rank == r && slow->verdict.kind == kind;
    const double times = inverse ? median / own : own / median;
    if (times < factor * (named ? GOES_ON : 1) || (!inverse && own - median < least) ||
        times <= most)
      continue;
    most = times;
    *worst = (weir_slow_verdict){r, kind, own / median, own, median};
  }
}

static double usable(double value) { return isfinite(value) && value > 0 ? value : 0; }

static void take_computes(weir_slow *slow, const weir_header *headers, int ranks) {
  const size_t known = slow->steps < WEIR_SLOW_STEPS ? slow->steps : WEIR_SLOW_STEPS;
  for (int r = 0; r < ranks; r++) {
    double *kept = slow->compute + (size_t)r * WEIR_SLOW_STEPS, recent[WEIR_SLOW_STEPS];
    kept[(slow->steps - 1) % WEIR_SLOW_STEPS] = usable(headers[r].compute_s);
    memcpy(recent, kept, sizeof recent);
    slow->value[r] = median(recent, known);
  }
}

static bool alike(const weir_slow_verdict *a, const weir_slow_verdict *b) {
  return a->rank == b->rank && a->kind == b->kind;
}

/* Where ranks share processors another one is slow every few steps, which is no news. */
static bool is_news(weir_slow *slow, const weir_slow_verdict *found, double now_s) {
  if (alike(found, &slow->told)) return false;
  if (!alike(found, &slow->verdict)) slow->since_s = now_s;
  if (now_s - slow->since_s < STANDS_S) return false;
  slow->told = *found;
  return true;
}

bool weir_slow_update(weir_slow *slow, const weir_header *headers, int ranks, double now_s) {
  weir_slow_verdict found = {.rank = -1};
  if (ranks > slow->ranks || ranks < 2) return false;
  slow->steps++;
  take_computes(slow, headers, ranks);
  if (slow->steps < WEIR_SLOW_LEAST) return false;
  compare(slow, ranks, WEIR_SLOW_COMPUTE, COMPUTES, COMPUTES_S, &found);
  if (found.rank < 0) {
    for (int r = 0; r < ranks; r++) slow->value[r] = usable(headers[r].latency_s);
    compare(slow, ranks, WEIR_SLOW_LATENCY, LINK, LINK_S, &found);
  }
  if (found.rank < 0) {
    for (int r = 0; r < ranks; r++) slow->value[r] = usable(headers[r].bandwidth);
    compare(slow, ranks, WEIR_SLOW_BANDWIDTH, LINK, 0, &found);
  }
  const bool news = is_news(slow, &found, now_s);
  slow->verdict = found;
  return news;
}

void weir_slow_say(const weir_slow_verdict *v, char *text, size_t room) {
  if (v->kind == WEIR_SLOW_COMPUTE)
    (void)snprintf(text, room,
                   "rank %d computes %.1f x the median of the others (%.3g ms, %.3g ms)", v->rank,
                   v->ratio, 1e3 * v->own, 1e3 * v->median);
  else if (v->kind == WEIR_SLOW_LATENCY)
    (void)snprintf(text, room,
                   "rank %d's link has %.1f x the median latency of the others (%.3g ms, %.3g ms)",
                   v->rank, v->ratio, 1e3 * v->own, 1e3 * v->median);
  else if (v->kind == WEIR_SLOW_BANDWIDTH)
    (void)snprintf(text, room,
                   "rank %d's link has %.2g of the median bandwidth of the others (%.3g, %.3g "
                   "Gbit/s)",
                   v->rank, v->ratio, 8e-9 * v->own, 8e-9 * v->median);
  else
    (void)snprintf(text, room, "no rank is slow");
}
