/* How long a size takes: runs for warming up, runs that count, and what is made of them. */
#include <math.h>

#include "base/base.h"
#include "kernels/fit_run.h"
#include "kernels/internal.h"

/* Runs that differ by no more than this share of the least are alike, and one is faster than others
 * that takes less by this share. */
static const double alike = 0.15, faster = 0.02;

double weir_kernel_midmean(double *each, int runs) {
  double sum = 0.0;
  weir_sort(each, (size_t)runs);
  for (int i = 0; i < runs; i++) { /* a run is from i / runs to (i + 1) / runs of them */
    const double from = fmax(4.0 * i, runs), to = fmin(4.0 * (i + 1), 3.0 * runs);
    sum += fmax(to - from, 0.0) * each[i];
  }
  return sum / (2.0 * runs);
}

/* What a codec's scratch has room for: growing it is not part of a codec's time. */
static size_t scratch_of(const weir_kernel_probe *probe) {
  return probe->context->capacity + probe->context->mark_words;
}

typedef struct series {
  double each[2][WEIR_KERNEL_RUNS], least, most;
  int done;
} series;

/* Whether there is to be another run, which would take as long as the last one. */
static bool go_on(const series *s, const weir_kernel_pace *pace, double since, double took) {
  const double ends = weir_thread_cpu_s() + took - since;
  if (s->done == 0) {
    return true;
  }
  if (s->done < pace->runs) {
    return ends <= pace->runs_s;
  }
  return s->done < pace->runs_most && s->most > (1.0 + alike) * s->least && ends <= pace->most_s;
}

/* Until two runs in turn were no faster than one before. */
static weir_status warm_up(weir_kernel_run *run, const weir_kernel_pace *pace, int batch[2]) {
  const double since = weir_thread_cpu_s();
  double seconds[2], least = INFINITY;
  int slower = 0;
  weir_status status = WEIR_OK;
  for (int i = 0; status == WEIR_OK && i < pace->warm_ups_most; i++) {
    if (i >= pace->warm_ups && (slower >= 2 || weir_thread_cpu_s() - since > pace->warm_s)) {
      break;
    }
    batch[0] = batch[1] = 0; /* the last one tells how many make a batch */
    status = weir_kernel_sample(run, batch, seconds);
    slower = seconds[0] + seconds[1] > (1.0 - faster) * least ? slower + 1 : 0;
    least = fmin(least, seconds[0] + seconds[1]);
  }
  return status;
}

weir_status weir_kernel_time_at(weir_kernel_probe *probe, const weir_plan *plan, size_t n,
                                const weir_kernel_pace *pace, double seconds[2]) {
  series s = {.least = INFINITY};
  weir_kernel_run run = weir_kernel_run_of(probe, plan, n);
  int batch[2] = {1, 1};
  double took = 0.0;
  weir_status status = warm_up(&run, pace, batch);
  const double since = weir_thread_cpu_s();
  while (status == WEIR_OK && go_on(&s, pace, since, took)) {
    const size_t before = scratch_of(probe);
    status = weir_kernel_sample(&run, batch, seconds);
    took = batch[0] * seconds[0] + batch[1] * seconds[1];
    if (scratch_of(probe) != before) {
      continue;
    }
    s.each[0][s.done] = seconds[0];
    s.each[1][s.done++] = seconds[1];
    s.least = fmin(s.least, seconds[0] + seconds[1]);
    s.most = fmax(s.most, seconds[0] + seconds[1]);
  }
  for (int i = 0; status == WEIR_OK && i < 2; i++) {
    seconds[i] = weir_kernel_midmean(s.each[i], s.done);
  }
  return status;
}

weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n,
                             int warm_ups, int runs, double *compress, double *decode) {
  double seconds[2] = {0.0, 0.0};
  if (n > probe->most) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to time, and room for %zu", n, probe->most);
  }
  if (runs < 1 || runs > WEIR_KERNEL_RUNS || warm_ups < 1) {
    return weir_fail(WEIR_E_INVALID, "%d runs: expected 1 to %d, after at least one", runs,
                     WEIR_KERNEL_RUNS);
  }
  const weir_kernel_pace pace = {.warm_ups = warm_ups,
                                 .warm_ups_most = warm_ups,
                                 .runs = runs,
                                 .runs_most = runs,
                                 .runs_s = INFINITY};
  const weir_status status = weir_kernel_time_at(probe, plan, n, &pace, seconds);
  *compress = seconds[0];
  *decode = seconds[1];
  return status;
}
