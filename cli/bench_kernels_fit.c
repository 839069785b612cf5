/* `weir bench kernels`: fitted costs of all codecs, and how far off they are on other sizes. */
#include <math.h>

#include "base/base.h"
#include "bench_kernels.h"

const gsize kernel_other_sizes[KERNEL_OTHER_SIZES] = {1500,   5000,    20000,   50000,   180000,
                                                      500000, 2000000, 8000000, 25000000};

static weir_status check(kernel_fit *fit, weir_kernel_probe *probe, gsize most) {
  for (gsize i = 0; i < KERNEL_OTHER_SIZES; i++) {
    const gsize n = kernel_other_sizes[i];
    double compress = 0, decode = 0;
    fit->error[i] = NAN;
    if (n > most) continue;
    const weir_status status = weir_kernel_time(probe, &fit->plan, n, 7, &compress, &decode);
    if (status != WEIR_OK) return status;
    const double modelled =
        weir_kernel_seconds(&fit->cost.compress, n) + weir_kernel_seconds(&fit->cost.decode, n);
    fit->error[i] = modelled / (compress + decode) - 1.0;
  }
  return WEIR_OK;
}

/* A machine's speed drifts with what else its host does, so all codecs are fitted anew before each
 * is looked at; the times are the medians of these fits. */
weir_status weir_kernel_fits(double cr, gsize most, kernel_fits *out) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  double ms[WEIR_CODEC_COUNT], cpu_ms[WEIR_CODEC_COUNT];
  weir_kernel_probe *probe = NULL;
  weir_status status = weir_kernel_probe_create(&probe, most);
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT && status == WEIR_OK; codec++) {
    const double start = weir_now_s(), start_cpu = weir_thread_cpu_s();
    status = weir_kernel_fit_all(cr, WEIR_WIRE_AUTO_BF16, cost);
    ms[codec] = 1e3 * (weir_now_s() - start);
    cpu_ms[codec] = 1e3 * (weir_thread_cpu_s() - start_cpu);
    kernel_fit *fit = &out->codec[codec];
    *fit = (kernel_fit){.plan = weir_kernel_fit_plan(codec, cr, WEIR_WIRE_AUTO_BF16),
                        .cost = cost[codec]};
    if (status == WEIR_OK) status = check(fit, probe, most);
  }
  if (status == WEIR_OK) {
    out->ms = weir_kernel_median(ms, WEIR_CODEC_COUNT);
    out->cpu_ms = weir_kernel_median(cpu_ms, WEIR_CODEC_COUNT);
    out->most_ms = ms[WEIR_CODEC_COUNT - 1]; /* sorted by the median */
  }
  weir_kernel_probe_free(probe);
  return status;
}
