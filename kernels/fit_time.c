/* How long a size takes: runs for warming up, runs that count, and what is made of them. */
#include <math.h>

#include "base/base.h"
#include "kernels/fit_run.h"
#include "kernels/internal.h"

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
  return probe->context->capacity + probe->context->bitmap_words;
}

typedef struct series {
  double compress[WEIR_KERNEL_RUNS], decode[WEIR_KERNEL_RUNS];
} series;

static weir_status time_runs(weir_kernel_run *run, int warm_ups, int runs, series *s) {
  int batch[2] = {1, 1}, done = 0;
  double seconds[2];
  weir_status status = WEIR_OK;
  for (int i = 0; status == WEIR_OK && i < warm_ups; i++) {
    batch[0] = batch[1] = 0; /* the last one tells how many make a batch */
    status = weir_kernel_sample(run, batch, seconds);
  }
  while (status == WEIR_OK && done < runs) {
    const size_t before = scratch_of(run->probe);
    status = weir_kernel_sample(run, batch, seconds);
    if (scratch_of(run->probe) == before) {
      s->compress[done] = seconds[0];
      s->decode[done++] = seconds[1];
    }
  }
  return status;
}

weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n,
                             int warm_ups, int runs, double *compress, double *decode) {
  series s;
  if (n > probe->most)
    return weir_fail(WEIR_E_INVALID, "%zu elements to time, and room for %zu", n, probe->most);
  if (runs < 1 || runs > WEIR_KERNEL_RUNS || warm_ups < 0) {
    return weir_fail(WEIR_E_INVALID, "%d runs after %d: expected 1 to %d after 0 or more", runs,
                     warm_ups, WEIR_KERNEL_RUNS);
  }
  weir_kernel_run run = weir_kernel_run_of(probe, plan, n);
  const weir_status status = time_runs(&run, warm_ups, runs, &s);
  if (status == WEIR_OK) {
    *compress = weir_kernel_midmean(s.compress, runs);
    *decode = weir_kernel_midmean(s.decode, runs);
  }
  return status;
}
