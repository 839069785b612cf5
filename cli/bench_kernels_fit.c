/* `weir bench kernels`: fitted costs of all codecs, and how far off they are on other sizes. */
#include <math.h>

#include "base/base.h"
#include "bench_kernels.h"

const gsize kernel_other_sizes[KERNEL_OTHER_SIZES] = {1500,   5000,    20000,   50000,   180000,
                                                      500000, 2000000, 8000000, 25000000};

enum { CHECKED = 7, ATTEMPTS = 3, REFERENCE = 6000 };
static const double steady = 0.05;

/* A time of work that fits into the first cache: how fast the processor is just now. */
static weir_status refer(weir_kernel_probe *probe, double *least, double *most) {
  const weir_plan plan = weir_kernel_fit_plan(WEIR_CODEC_TOPK, 0.01, WEIR_WIRE_AUTO_BF16);
  double compress = 0, decode = 0;
  const weir_status status = weir_kernel_time(probe, &plan, REFERENCE, 3, &compress, &decode);
  *least = fmin(*least, compress);
  *most = fmax(*most, compress);
  return status;
}

static weir_status check(kernel_fit *fit, weir_kernel_probe *probe, gsize most, double *least,
                         double *slowest) {
  for (gsize i = 0; i < KERNEL_OTHER_SIZES; i++) {
    const gsize n = kernel_other_sizes[i];
    double compress = 0, decode = 0;
    fit->error[i] = NAN;
    if (n > most) continue;
    weir_status status = weir_kernel_time(probe, &fit->plan, n, CHECKED, &compress, &decode);
    if (status == WEIR_OK) status = refer(probe, least, slowest);
    if (status != WEIR_OK) return status;
    const double modelled =
        weir_kernel_seconds(&fit->cost.compress, n) + weir_kernel_seconds(&fit->cost.decode, n);
    fit->error[i] = modelled / (compress + decode) - 1.0;
  }
  return WEIR_OK;
}

/* Fit all codecs and look at one. */
static weir_status attempt(guint32 codec, double cr, gsize most, weir_kernel_probe *probe,
                           kernel_fit *fit, double *ms, double *cpu_ms) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  double least = INFINITY, slowest = 0.0;
  weir_status status = refer(probe, &least, &slowest);
  if (status != WEIR_OK) return status;
  const double start = weir_now_s(), start_cpu = weir_thread_cpu_s();
  status = weir_kernel_fit_all(cr, WEIR_WIRE_AUTO_BF16, cost);
  *ms = 1e3 * (weir_now_s() - start);
  *cpu_ms = 1e3 * (weir_thread_cpu_s() - start_cpu);
  *fit = (kernel_fit){.plan = weir_kernel_fit_plan(codec, cr, WEIR_WIRE_AUTO_BF16),
                      .cost = cost[codec]};
  if (status == WEIR_OK) status = refer(probe, &least, &slowest);
  if (status == WEIR_OK) status = check(fit, probe, most, &least, &slowest);
  fit->drift = slowest / least - 1.0;
  return status;
}

/* A machine's speed drifts with what else its host does, so all codecs are fitted anew before each
 * is looked at, again where it drifted meanwhile, and the steadiest attempt counts; the fits' times
 * are medians. */
weir_status weir_kernel_fits(double cr, gsize most, kernel_fits *out) {
  double ms[WEIR_CODEC_COUNT * ATTEMPTS], cpu_ms[WEIR_CODEC_COUNT * ATTEMPTS];
  int count = 0;
  weir_kernel_probe *probe = NULL;
  weir_status status = weir_kernel_probe_create(&probe, most > REFERENCE ? most : REFERENCE);
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT && status == WEIR_OK; codec++) {
    kernel_fit *fit = &out->codec[codec];
    fit->drift = INFINITY;
    for (int i = 0; i < ATTEMPTS && fit->drift > steady && status == WEIR_OK; i++) {
      kernel_fit other;
      status = attempt(codec, cr, most, probe, &other, &ms[count], &cpu_ms[count]);
      if (status == WEIR_OK && other.drift < fit->drift) *fit = other;
      count++;
    }
  }
  if (status == WEIR_OK) {
    out->ms = weir_kernel_median(ms, count);
    out->cpu_ms = weir_kernel_median(cpu_ms, count);
    out->most_ms = ms[count - 1]; /* sorted by the median */
  }
  weir_kernel_probe_free(probe);
  return status;
}
